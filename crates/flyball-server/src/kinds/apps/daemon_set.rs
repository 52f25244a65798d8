//! Daemon sets.

use super::{GROUP, same_selector, selected};
use crate::kinds::display::{internal, selector};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::pod_spec;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::{label, number};
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::workload::{self, CONTAINERS, Counts};
use flyball_core::field::FieldError;
use flyball_core::{Clock, Object};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "DaemonSet", "daemonsets")
    .printed(COLUMNS, row)
    .pod_template(&["spec", "template"])
    .default(default)
    .warn(workload::warn)
    .prepare(prepare)
    .validate(validate)
    .short(&["ds"])
    .category("all")
    .generation()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::number(
        "Desired",
        "The total number of nodes that should be running the daemon pod (including nodes correctly running the \
         daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    Heading::number(
        "Current",
        "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More \
         info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    Heading::number(
        "Ready",
        "numberReady is the number of nodes that should be running the daemon pod and have one or more of the daemon \
         pod running with a Ready Condition.",
    ),
    Heading::number("Up-to-date", "The total number of nodes that are running updated daemon pod"),
    Heading::number(
        "Available",
        "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running \
         and available (ready for at least spec.minReadySeconds)",
    ),
    Heading::text(
        "Node Selector",
        "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a \
         node's labels for the pod to be scheduled on that node. More info: \
         https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
    ),
    Heading::AGE,
    Heading::text("Containers", "Names of each container in the template.").wide(),
    Heading::text("Images", "Images referenced by each container in the template.").wide(),
    Heading::text(
        "Selector",
        "A label query over pods that are managed by the daemon set. Must match in order to be controlled. It must \
         match the pod template's labels. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    )
    .wide(),
];

/// Increments the template generation in an annotation.
const TEMPLATES: &str = "deprecated.daemonset.template.generation";

fn default(set: &mut Object) {
    workload::template(set);
    set.metadata_mut().inner_or_new("annotations").fill(TEMPLATES, "0");
    let spec = set.inner_or_new("spec");
    spec.fill("revisionHistoryLimit", 10);
    let strategy = spec.inner_or_new("updateStrategy");
    strategy.fill("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.inner_or_new("rollingUpdate");
        rolling.fill_absent("maxUnavailable", 1);
        rolling.fill_absent("maxSurge", 0);
    }
}

fn prepare(object: &mut Object, old: Option<&Object>, _: Part, _: &Clock) {
    let count = |object: &Object| object.annotation(TEMPLATES).and_then(|count| count.parse::<i64>().ok()).unwrap_or(0);
    let template = |object: &Object| object.at(&["spec", "template"]).cloned();
    let number = match old {
        None => count(object).max(1),
        Some(old) if template(old) != template(object) => count(old) + 1,
        Some(old) => count(old),
    };
    object.metadata_mut().inner_or_new("annotations").set(TEMPLATES, number.to_string());
}

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        of_replicas: &[],
        ready: "",
    };
    if part == Part::Status {
        return STATUS.check(object, old);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let (label_selector, template) = (spec.at("selector"), spec.at("template"));
    let mut errors: Errors = same_selector(&root, old).into_iter().collect();
    errors.extend(label::selector(&label_selector));
    errors.extend(selected(&spec, true));
    if label_selector.is_set() && label::is_empty(label_selector.value()) {
        errors.push(
            label_selector.invalid_as(selector(label_selector.value()), "empty selector is invalid for daemonset"),
        );
    }
    errors.extend(pod_spec::check_template(&template));
    errors.extend(workload::endless(&template, "DaemonSet"));
    errors.extend(workload::not_negative(&spec, &["minReadySeconds"]));
    errors.extend(strategy(&spec.at("updateStrategy")));
    errors.extend(workload::not_negative(&spec, &["revisionHistoryLimit"]));
    errors
}

fn strategy(strategy: &Field<'_>) -> Errors {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" => Errors::new(),
        "RollingUpdate" if !rolling.is_set() => vec![rolling.required("")],
        "RollingUpdate" => {
            let (fewer, more) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            let mut errors = number::count_or_percent(&fewer);
            errors.extend(number::count_or_percent(&more));
            errors.extend(number::at_most_all(&fewer));
            errors.extend(number::at_most_all(&more));
            match (number::count(&fewer) != 0, number::count(&more) != 0) {
                (true, true) => errors.push(more.invalid("may not be set when maxUnavailable is non-zero")),
                (false, false) => errors.push(fewer.required("cannot be 0 when maxSurge is 0")),
                _ => {}
            }
            errors
        }
        _ => {
            let shown = internal("DaemonSetUpdateStrategy", strategy.value());
            vec![FieldError::not_supported(strategy.path(), shown, ["RollingUpdate", "OnDelete"])]
        }
    }
}

fn row(view: &View<'_>) -> Row {
    let [names, images] = view.containers(CONTAINERS);
    let count = |field: &str| Value::from(view.int(&format!("status.{field}")));
    Row::from([
        view.name(),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        view.labels("spec.template.spec.nodeSelector"),
        view.age(),
        names,
        images,
        view.selector("spec.selector"),
    ])
}
