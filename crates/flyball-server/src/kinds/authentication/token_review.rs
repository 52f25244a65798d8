//! Reviews of tokens.

use super::GROUP;
use crate::kinds::kind::{Kind, Review};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "TokenReview", "tokenreviews").cluster().review(Review::Token);
