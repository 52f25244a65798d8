//! Lists of what the user who asks may do in a namespace.

use super::GROUP;
use crate::kinds::kind::{Kind, Verbs};

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews")
    .cluster()
    .verbs(Verbs::CreateOnly)
    .exempt_from_policies();
