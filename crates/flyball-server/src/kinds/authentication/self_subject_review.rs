//! Reviews of the requesting user.

use super::GROUP;
use crate::kinds::kind::{Kind, Review};

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "SelfSubjectReview", "selfsubjectreviews").cluster().review(Review::SelfSubject);
