//! Reviews of what the user who asks may do.

use super::GROUP;
use crate::kinds::kind::{Kind, Verbs};

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
    .cluster()
    .verbs(Verbs::CreateOnly)
    .exempt_from_policies();
