//! Bindings: the scheduler's decision for a pod, which is not stored.

use super::GROUP;
use crate::kinds::kind::{Kind, Verbs};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Binding", "bindings").verbs(Verbs::CreateOnly);
