//! Kinds of `coordination.k8s.io`.

mod lease;

use crate::kinds::kind::Kind;

const GROUP: &str = "coordination.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&lease::KIND];
