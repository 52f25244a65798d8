//! Replication controllers: the predecessor of replica sets, with a map of labels as selector.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Deletion, Kind};
use crate::kinds::pod_spec;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::usage;
use crate::kinds::workload::{self, Counts, UNMATCHED};
use flyball_core::Object;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ReplicationController", "replicationcontrollers")
    .deletion(Deletion { orphans: true, ..Deletion::AT_ONCE })
    .scale_selector(".spec.selector")
    .registry_path("controllers")
    .printed(COLUMNS, row)
    .pod_template(&["spec", "template"])
    .default(default)
    .quota_usage(usage::counted)
    .warn(workload::warn)
    .validate(validate)
    .short(&["rc"])
    .category("all")
    .generation()
    .subresources(&[Sub::SCALE, Sub::STATUS])
    .paths(&["status.replicas"]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::number(
        "Desired",
        "Replicas is the number of desired replicas. This is a pointer to distinguish between explicit zero and \
         unspecified. Defaults to 1. More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    Heading::number(
        "Current",
        "Replicas is the most recently observed number of replicas. More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    Heading::number("Ready", "The number of ready replicas for this replication controller."),
    Heading::AGE,
    Heading::text("Containers", "Names of each container in the template.").wide(),
    Heading::text("Images", "Images referenced by each container in the template.").wide(),
    Heading::text(
        "Selector",
        "Selector is a label query over pods that should match the Replicas count. If Selector is empty, it is \
         defaulted to the labels present on the Pod template. Label keys and values that must match in order to be \
         controlled by this replication controller, if empty defaulted to labels on Pod template. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    )
    .wide(),
];

fn default(controller: &mut Object) {
    workload::template(controller);
    let labels = controller.at(&["spec", "template", "metadata", "labels"]).cloned();
    let spec = controller.inner_or_new("spec");
    spec.fill("replicas", 1);
    let Some(labels) = labels.filter(Value::is_object) else { return };
    if spec.get("selector").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty) {
        spec.set("selector", labels.clone());
    }
    workload::label(controller, labels);
}

fn validate(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"],
        of_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        ready: "readyReplicas",
    };
    if part == Part::Status {
        return STATUS.check(object, None);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = workload::not_negative(&spec, &["minReadySeconds"]);
    let label_selector = spec.at("selector");
    errors.extend(label_selector.must_be_set());
    errors.extend(workload::not_negative(&spec, &["replicas"]));
    let template = spec.at("template");
    if !template.is_set() {
        errors.push(template.required(""));
        return errors;
    }
    let labels = template.at("metadata.labels");
    let has = |(key, value): (&String, &Value)| labels.value().get(key) == Some(value);
    if !label_selector.value().as_object().into_iter().flatten().all(has) {
        errors.push(labels.invalid(UNMATCHED));
    }
    errors.extend(pod_spec::check_template(&template));
    errors.extend(workload::endless(&template, "ReplicationController"));
    errors
}

fn row(view: &View<'_>) -> Row {
    workload::replicas(view, view.labels("spec.selector"))
}
