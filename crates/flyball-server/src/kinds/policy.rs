//! Kinds of `policy`.

mod pod_disruption_budget;

pub(crate) use pod_disruption_budget::KIND as POD_DISRUPTION_BUDGET;

use crate::kinds::kind::Kind;

const GROUP: &str = "policy";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&pod_disruption_budget::KIND];
