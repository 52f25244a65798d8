//! Reviews of the user who asks.

use super::GROUP;
use crate::kinds::kind::{Kind, Verbs};

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "SelfSubjectReview", "selfsubjectreviews")
    .cluster()
    .verbs(Verbs::CreateOnly)
    .exempt_from_policies();
