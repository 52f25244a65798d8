//! Deployments.

use super::{GROUP, check_selector, replicated, same_selector};
use crate::kinds::display::internal;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{self, Heading, Row, View};
use crate::kinds::rules::number;
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::workload::{self, CONTAINERS, Counts};
use flyball_core::Object;
use flyball_core::field::FieldError;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Deployment", "deployments")
    .status_keeps_labels()
    .generation_counts_annotations()
    .printed(COLUMNS, row)
    .pod_template(&["spec", "template"])
    .default(default)
    .warn(warn)
    .validate(validate)
    .short(&["deploy"])
    .category("all")
    .generation()
    .subresources(&[Sub::SCALE, Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Ready", "Number of the pod with ready state"),
    Heading::text(
        "Up-to-date",
        "Total number of non-terminating pods targeted by this deployment that have the desired template spec.",
    ),
    Heading::text(
        "Available",
        "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this \
         deployment.",
    ),
    Heading::AGE,
    Heading::text("Containers", "Names of each container in the template.").wide(),
    Heading::text("Images", "Images referenced by each container in the template.").wide(),
    Heading::text(
        "Selector",
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by \
         this deployment. It must match the pod template's labels.",
    )
    .wide(),
];

fn default(deployment: &mut Object) {
    workload::template(deployment);
    let spec = deployment.inner_or_new("spec");
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", 10);
    spec.fill("progressDeadlineSeconds", 600);
    let strategy = spec.inner_or_new("strategy");
    strategy.fill("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.inner_or_new("rollingUpdate");
        rolling.fill_absent("maxUnavailable", "25%");
        rolling.fill_absent("maxSurge", "25%");
    }
}

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    const STATUS: Counts = Counts {
        all: &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        of_replicas: &["updatedReplicas", "readyReplicas", "availableReplicas"],
        ready: "readyReplicas",
    };
    if part == Part::Status {
        return STATUS.check(object, old);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = workload::not_negative(&spec, &["replicas"]);
    errors.extend(check_selector(&spec.at("selector"), "deployment"));
    errors.extend(replicated(&spec));
    errors.extend(strategy(&spec.at("strategy")));
    errors
        .extend(workload::not_negative(&spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"]));
    let deadline = spec.at("progressDeadlineSeconds");
    if deadline.is_set() && deadline.int() <= spec.at("minReadySeconds").int() {
        errors.push(deadline.invalid("must be greater than minReadySeconds"));
    }
    errors.extend(same_selector(&root, old));
    errors
}

fn strategy(strategy: &Field<'_>) -> Errors {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" if rolling.is_set() => {
            vec![rolling.forbidden("may not be specified when strategy `type` is 'Recreate'")]
        }
        "Recreate" => Errors::new(),
        "RollingUpdate" => {
            let (fewer, more) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            let mut errors = number::count_or_percent(&fewer);
            errors.extend(number::count_or_percent(&more));
            if number::count(&fewer) == 0 && number::count(&more) == 0 {
                errors.push(fewer.invalid("may not be 0 when `maxSurge` is 0"));
            }
            errors.extend(number::at_most_all(&fewer));
            errors
        }
        _ => {
            let shown = internal("DeploymentStrategy", strategy.value());
            vec![FieldError::not_supported(strategy.path(), shown, ["Recreate", "RollingUpdate"])]
        }
    }
}

/// Warns about names that are invalid as host names.
fn warn(object: &Object, old: Option<&Object>) -> Vec<String> {
    let wrong = flyball_core::names::dns_label(object.name());
    let mut warnings = Vec::new();
    if old.is_none() && !wrong.is_empty() {
        let wrong = wrong.join(" ");
        warnings.push(format!("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{wrong}]"));
    }
    warnings.extend(workload::warn(object, old));
    warnings
}

fn row(view: &View<'_>) -> Row {
    let [names, images] = view.containers(CONTAINERS);
    Row::from([
        view.name(),
        format!("{}/{}", view.int("status.readyReplicas"), view.int("spec.replicas")).into(),
        view.int("status.updatedReplicas").into(),
        view.int("status.availableReplicas").into(),
        view.age(),
        names,
        images,
        printer::selector(view.at("spec.selector")).into(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(change: Value, expected: &[&str]) {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        for (field, value) in change.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let mut object = Object::try_from(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap();
        default(&mut object);
        let errors: Vec<String> = validate(&object, None, Part::Whole).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{change}");
    }

    #[test]
    fn selector_must_match_the_template() {
        check(json!({}), &[]);
        check(
            json!({"selector": {"matchLabels": {"a": "c"}}}),
            &[
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        );
        check(json!({"selector": {}}), &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]);
        check(
            json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}),
            &["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"],
        );
    }
}
