//! Kinds of `discovery.k8s.io`.

mod endpoint_slice;

use crate::kinds::kind::Kind;

const GROUP: &str = "discovery.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&endpoint_slice::KIND];
