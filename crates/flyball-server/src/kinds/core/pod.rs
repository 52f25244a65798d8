//! Pods: their life from creation to deletion; `pod_spec` has the rules that templates share.

mod defaults;
mod row;
mod update;

use super::GROUP;
use crate::kinds::kind::{Checks, Deletion, Kind, Subresource as Sub};
use flyball_core::Object;
use serde_json::Value;

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "Pod", "pods")
    .deletion(Deletion { grace: Some(grace), ..Deletion::AT_ONCE })
    .printed(row::of)
    .default(defaults::default)
    .checks(Checks::Whole)
    .warn(update::warn)
    .prepare(update::prepare)
    .validate(update::validate)
    .short(&["po"])
    .category("all")
    .generation()
    .deleted_as_object()
    .subresources(&[
        Sub::ATTACH,
        Sub::BINDING,
        Sub::EPHEMERAL,
        Sub::EVICTION,
        Sub::EXEC,
        Sub::LOG,
        Sub::PORT_FORWARD,
        Sub::POD_PROXY,
        Sub::RESIZE,
        Sub::STATUS,
    ])
    .paths(&[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ]);

/// Returns how many seconds a deleted pod is given to end.
fn grace(pod: &Object, asked: Option<i64>) -> i64 {
    let text = |path: &[&str]| pod.at(path).and_then(Value::as_str).unwrap_or_default();
    // What does not run has nothing to end.
    if text(&["spec", "nodeName"]).is_empty() || matches!(text(&["status", "phase"]), "Failed" | "Succeeded") {
        return 0;
    }
    let own = pod.at(&["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    match asked.or(own).unwrap_or(0) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}
