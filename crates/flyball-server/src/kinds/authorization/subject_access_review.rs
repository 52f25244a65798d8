//! Reviews of another user's access.

use super::GROUP;
use crate::kinds::kind::{Kind, Review};

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "SubjectAccessReview", "subjectaccessreviews").cluster().review(Review::Access);
