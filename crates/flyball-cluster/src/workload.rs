//! Common parts of the control plane's components: pods, their owners, resources and affinity, and events about them.
//! It imports no component.

pub(crate) mod affinity;
pub(crate) mod events;
pub(crate) mod owners;
pub(crate) mod pods;
pub(crate) mod references;
pub(crate) mod resources;
pub(crate) mod selection;

use flyball_core::time::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The field manager and event source of the controllers.
pub(crate) const MANAGER: &str = "kube-controller-manager";

/// Converts a timestamp to the time of an object's field, in whole seconds.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}
