//! Reviews of the requesting user's access.

use super::GROUP;
use crate::kinds::kind::{Kind, Review};

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews").cluster().review(Review::SelfAccess);
