//! Kinds of `node.k8s.io`.

mod runtime_class;

pub(crate) use runtime_class::KIND as RUNTIME_CLASS;

use crate::kinds::kind::Kind;

const GROUP: &str = "node.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&runtime_class::KIND];
