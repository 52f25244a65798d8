//! Kinds of `events.k8s.io`.

mod event;

use crate::kinds::kind::Kind;

const GROUP: &str = "events.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&event::KIND];
