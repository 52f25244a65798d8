//! Pods, and the templates of them that other kinds hold.

mod container;
mod defaults;
mod env;
mod mount;
mod placement;
mod probe;
mod security;
mod spec;
mod surroundings;
mod update;
pub(super) mod volume;
mod warnings;

pub(super) use defaults::{pod as default, template};
pub(super) use placement::tolerations;
pub(super) use spec::{template as check_template, template_metadata as check_template_metadata};
pub(super) use update::{prepare, validate, warn};
pub(super) use warnings::of as warn_of;

use flyball_core::Object;
use serde_json::Value;

/// Returns how many seconds a deleted pod is given to end.
pub(super) fn grace(pod: &Object, asked: Option<i64>) -> i64 {
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
