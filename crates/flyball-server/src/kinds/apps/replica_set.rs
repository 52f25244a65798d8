//! Replica sets.

use super::{GROUP, demanding, replicated, same_selector};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Kind, Part, Subresource as Sub};
use crate::kinds::printer::{Row, View};
use crate::kinds::workload::{self, Counts};
use flyball_core::Object;

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "ReplicaSet", "replicasets")
    .printed(row)
    .default(default)
    .warn(workload::warn)
    .validate(validate)
    .short(&["rs"])
    .category("all")
    .generation()
    .subresources(&[Sub::SCALE, Sub::STATUS]);

fn default(set: &mut Object) {
    workload::template(set);
    set.inner_or_new("spec").fill("replicas", 1);
}

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        of_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        ready: "readyReplicas",
    };
    if part == Part::Status {
        return STATUS.check(object, None);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = workload::not_negative(&spec, &["replicas", "minReadySeconds"]);
    errors.extend(demanding(&spec.at("selector"), "deployment"));
    errors.extend(replicated(&spec));
    errors.extend(same_selector(&root, old));
    errors
}

fn row(view: &View<'_>) -> Row {
    workload::replicas(view, view.selector("spec.selector"))
}
