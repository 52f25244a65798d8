//! Reviews of what another user may do.

use super::GROUP;
use crate::kinds::kind::{Kind, Verbs};

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "SubjectAccessReview", "subjectaccessreviews")
    .cluster()
    .verbs(Verbs::CreateOnly)
    .exempt_from_policies();
