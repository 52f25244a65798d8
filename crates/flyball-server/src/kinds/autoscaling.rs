//! Kinds of `autoscaling`.

mod horizontal_pod_autoscaler;
mod horizontal_pod_autoscaler_v1;

use crate::kinds::kind::Kind;

const GROUP: &str = "autoscaling";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&horizontal_pod_autoscaler::KIND, &horizontal_pod_autoscaler_v1::KIND];
