//! Defaults, validation, warnings and cells of workloads with pod templates.

use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::pod_spec;
use crate::kinds::printer::{Row, View};
use crate::kinds::rules::number;
use flyball_core::Object;
use serde_json::Value;

pub(super) fn template(workload: &mut Object) {
    workload.inner_or_new("spec").inner("template").into_iter().for_each(pod_spec::template);
}

/// Copies the labels of the pod template to an object without labels.
pub(super) fn label(object: &mut Object, labels: Value) {
    if object.labels().is_none_or(serde_json::Map::is_empty) {
        object.metadata_mut().insert("labels".into(), labels);
    }
}

/// Validates a pod template of a kind whose pods run indefinitely.
pub(super) fn endless(template: &Field<'_>, kind: &str) -> Errors {
    let mut errors = Errors::new();
    let (policy, deadline) = (template.at("spec.restartPolicy"), template.at("spec.activeDeadlineSeconds"));
    if policy.text() != "Always" {
        errors.push(policy.not_supported(&["Always"]));
    }
    if deadline.is_set() {
        errors.push(deadline.forbidden(format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
    errors
}

pub(super) fn not_negative(spec: &Field<'_>, names: &[&str]) -> Errors {
    names.iter().filter_map(|name| spec.at(name).not_negative()).collect()
}

/// The counts of a status, and those that must not exceed others.
pub(super) struct Counts {
    pub(super) all: &'static [&'static str],
    pub(super) of_replicas: &'static [&'static str],
    /// The name in messages of the count that available pods are compared with.
    pub(super) ready: &'static str,
}

impl Counts {
    pub(super) fn check(&self, object: &Object, old: Option<&Object>) -> Errors {
        let root = Field::root(object);
        let status = root.at("status");
        let mut errors = number::counts(&status, self.all);
        errors.extend(number::counts_no_more(
            &status,
            self.of_replicas,
            "replicas",
            "cannot be greater than status.replicas",
        ));
        if !self.ready.is_empty() {
            let why = format!("cannot be greater than {}", self.ready);
            errors.extend(number::counts_no_more(&status, &["availableReplicas"], "readyReplicas", &why));
        }
        if let Some(old) = old {
            let before = Field::root(old);
            errors.extend(number::not_decremented(&status.at("collisionCount"), &before.at("status.collisionCount")));
        }
        errors
    }
}

pub(super) const UNMATCHED: &str = "`selector` does not match template `labels`";

/// Returns the warnings of a workload's pod template.
pub(super) fn warn(object: &Object, old: Option<&Object>) -> Vec<String> {
    let root = Field::root(object);
    let template = root.at("spec.template");
    let before = old.and_then(|old| old.at(&["spec", "template"]));
    if before == Some(template.value()) {
        return Vec::new();
    }
    let spec = root.at("spec");
    let template = spec.at("template");
    pod_spec::warn_of(&template.at("metadata"), &template.at("spec"), true)
}

pub(super) const CONTAINERS: &str = "spec.template.spec.containers";

pub(super) fn replicas(view: &View<'_>, selector: Value) -> Row {
    let [names, images] = view.containers(CONTAINERS);
    let [desired, current, ready] =
        ["spec.replicas", "status.replicas", "status.readyReplicas"].map(|path| view.int(path).into());
    Row::from([view.name(), desired, current, ready, view.age(), names, images, selector])
}
