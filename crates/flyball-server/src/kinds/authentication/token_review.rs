//! Reviews of tokens.

use super::GROUP;
use crate::kinds::kind::{Kind, Verbs};

pub(super) static KIND: Kind =
    Kind::new(GROUP, "v1", "TokenReview", "tokenreviews").cluster().verbs(Verbs::CreateOnly).exempt_from_policies();
