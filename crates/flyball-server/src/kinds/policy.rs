//! Kinds of `policy`.

mod pod_disruption_budget;

use crate::kinds::kind::Kind;

const GROUP: &str = "policy";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&pod_disruption_budget::KIND];
