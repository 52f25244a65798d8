//! Reviews of another user's access in a namespace.

use super::GROUP;
use crate::kinds::kind::{Kind, Review};

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews").review(Review::LocalAccess);
