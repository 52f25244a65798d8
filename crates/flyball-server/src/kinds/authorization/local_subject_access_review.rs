//! Reviews of what another user may do in a namespace.

use super::GROUP;
use crate::kinds::kind::{Kind, Verbs};

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews")
    .verbs(Verbs::CreateOnly)
    .exempt_from_policies();
