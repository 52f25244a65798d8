//! Pod disruption budgets.

use super::GROUP;
use crate::kinds::display::internal;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::{label, number};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "PodDisruptionBudget", "poddisruptionbudgets")
    .printed(COLUMNS, row)
    .checks(Checks::Once)
    .validate(validate)
    .short(&["pdb"])
    .generation()
    .versioned_updates()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Min Available", "The minimum number of pods that must be available."),
    Heading::text("Max Unavailable", "The maximum number of pods that may be unavailable."),
    Heading::number("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
    Heading::AGE,
];

fn validate(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        let status = root.at("status");
        return number::counts(&status, &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]);
    }
    let spec = root.at("spec");
    let mut errors = Errors::new();
    let bounds = ["minAvailable", "maxUnavailable"].map(|bound| spec.at(bound));
    if bounds.iter().all(Field::is_set) {
        errors.push(spec.invalid_as(
            internal("PodDisruptionBudgetSpec", spec.value()),
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for bound in bounds.iter().filter(|bound| bound.is_set()) {
        errors.extend(number::count_or_percent(bound));
        errors.extend(number::at_most_all(bound));
    }
    errors.extend(label::selector(&spec.at("selector")));
    errors.extend(spec.at("unhealthyPodEvictionPolicy").may_be_one_of(&["AlwaysAllow", "IfHealthyBudget"]));
    errors
}

fn row(view: &View<'_>) -> Row {
    let count = |path: &str| match view.at(path) {
        Value::Null => Value::from("N/A"),
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    };
    let allowed = view.int("status.disruptionsAllowed").into();
    Row::from([view.name(), count("spec.minAvailable"), count("spec.maxUnavailable"), allowed, view.age()])
}
