//! Replica sets.

use super::{GROUP, check_selector, replicated, same_selector};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::workload::{self, Counts};
use flyball_core::Object;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ReplicaSet", "replicasets")
    .printed(COLUMNS, row)
    .pod_template(&["spec", "template"])
    .default(default)
    .warn(workload::warn)
    .validate(validate)
    .short(&["rs"])
    .category("all")
    .generation()
    .subresources(&[Sub::SCALE, Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::number(
        "Desired",
        "Replicas is the number of desired pods. This is a pointer to distinguish between explicit zero and \
         unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    Heading::number(
        "Current",
        "Replicas is the most recently observed number of non-terminating pods. More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    Heading::number("Ready", "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition."),
    Heading::AGE,
    Heading::text("Containers", "Names of each container in the template.").wide(),
    Heading::text("Images", "Images referenced by each container in the template.").wide(),
    Heading::text(
        "Selector",
        "Selector is a label query over pods that should match the replica count. Label keys and values that must \
         match in order to be controlled by this replica set. It must match the pod template's labels. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    )
    .wide(),
];

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
    errors.extend(check_selector(&spec.at("selector"), "deployment"));
    errors.extend(replicated(&spec));
    errors.extend(same_selector(&root, old));
    errors
}

fn row(view: &View<'_>) -> Row {
    workload::replicas(view, view.selector("spec.selector"))
}
