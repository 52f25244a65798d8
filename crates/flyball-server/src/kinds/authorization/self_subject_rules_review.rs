//! Lists of the requesting user's permissions in a namespace.

use super::GROUP;
use crate::kinds::kind::{Kind, Review};

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews").cluster().review(Review::SelfRules);
