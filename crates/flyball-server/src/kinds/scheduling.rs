//! Kinds of `scheduling.k8s.io`.

mod priority_class;

pub(crate) use priority_class::KIND as PRIORITY_CLASS;

use crate::kinds::kind::Kind;

const GROUP: &str = "scheduling.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&priority_class::KIND];
