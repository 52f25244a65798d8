//! Horizontal pod autoscalers, in the storage version.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, NONE, Row, UNKNOWN, UNSET, View, at, text};
use crate::kinds::rules::{number, resource};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use flyball_core::names::{dns_label, path_segment};
use serde_json::{Value, json};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
    .printed(COLUMNS, row)
    .default(default)
    .validate(validate)
    .short(&["hpa"])
    .category("all")
    .subresources(&[Sub::STATUS]);

pub(super) const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Reference",
        "scaleTargetRef points to the target resource to scale, and is used to the pods for which metrics should be \
         collected, as well as to actually change the replica count.",
    ),
    Heading::text(
        "Targets",
        "metrics contains the specifications for which to use to calculate the desired replica count (the maximum \
         replica count across all metrics will be used).  The desired replica count is calculated multiplying the \
         ratio between the target value and the current value by the current number of pods.  Ergo, metrics used \
         must decrease as the pod count is increased, and vice-versa.  See the individual metric source types for \
         more information about how each type of metric must respond. If not set, the default metric will be set to \
         80% average CPU utilization.",
    ),
    Heading::text(
        "MinPods",
        "minReplicas is the lower limit for the number of replicas to which the autoscaler can scale down.  It \
         defaults to 1 pod.  minReplicas is allowed to be 0 if the alpha feature gate HPAScaleToZero is enabled and \
         at least one Object or External metric is configured.  Scaling is active as long as at least one metric \
         value is available.",
    ),
    Heading::text(
        "MaxPods",
        "maxReplicas is the upper limit for the number of replicas to which the autoscaler can scale up. It cannot \
         be less that minReplicas.",
    ),
    Heading::text(
        "Replicas",
        "currentReplicas is current number of replicas of pods managed by this autoscaler, as last seen by the \
         autoscaler.",
    ),
    Heading::AGE,
];

pub(super) fn default(scaler: &mut Object) {
    let spec = scaler.inner_or_new("spec");
    spec.fill("minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec.set("metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    if let Some(behavior) = spec.inner("behavior") {
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let up = behavior.inner_or_new("scaleUp");
        up.fill("stabilizationWindowSeconds", 0);
        up.fill("policies", json!([pods, percent]));
        let down = behavior.inner_or_new("scaleDown");
        down.fill("policies", json!([percent]));
        for direction in ["scaleUp", "scaleDown"] {
            behavior.inner_or_new(direction).fill("selectPolicy", "Max");
        }
    }
}

type Rule = fn(&Field<'_>) -> Errors;

/// The sources of metrics of an autoscaler, with their rules.
const SOURCES: &[(&str, &str, Rule)] = &[
    ("Object", "object", object_source),
    ("External", "external", external_source),
    ("Pods", "pods", pods_source),
    ("Resource", "resource", resource_source),
    ("ContainerResource", "containerResource", container_source),
];

const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

pub(super) fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        return number::counts(&root.at("status"), &["currentReplicas", "desiredReplicas"]);
    }
    let spec = root.at("spec");
    let mut errors = Errors::new();
    let (least, most) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    if least.int_if_set().is_some_and(|least| least < 1) {
        errors.push(least.invalid("must be greater than or equal to 1"));
    }
    if most.int() == 0 {
        errors.push(most.required("must be set and greater than 0"));
    } else if most.int() < 0 {
        errors.push(most.invalid("must be greater than or equal to 1"));
    }
    if least.int_if_set().is_some_and(|least| most.int() < least) {
        errors.push(most.invalid_as(most.int(), "must be greater than or equal to `minReplicas`"));
    }
    let target = spec.at("scaleTargetRef");
    errors.extend(reference(&target));
    let version = target.at("apiVersion");
    let kept = old.is_some_and(|old| {
        old.at(&["spec", "scaleTargetRef", "apiVersion"])
            .and_then(Value::as_str)
            .is_none_or(|version| !version.contains('/'))
    });
    if !version.text().contains('/') && !kept {
        errors.push(version.invalid_as(version.text(), "apiVersion must specify API group"));
    }
    let metrics = spec.at("metrics");
    errors.extend(metrics.items().flat_map(|each| metric(&each)));
    if least.int_if_set() == Some(0)
        && !metrics.list().iter().any(|metric| metric["type"] == "Object" || metric["type"] == "External")
    {
        errors.push(
            metrics
                .forbidden("must specify at least one Object or External metric to support scaling to zero replicas"),
        );
    }
    let behavior = spec.at("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        let rules = behavior.at(direction);
        if rules.is_set() {
            errors.extend(scaling_rules(&rules));
        }
    }
    errors
}

fn reference(reference: &Field<'_>) -> Errors {
    let mut errors = reference.at("kind").must_obey(path_segment);
    errors.extend(reference.at("name").must_obey(path_segment));
    let version = reference.at("apiVersion");
    if version.text().matches('/').count() > 1 {
        errors.push(version.invalid(format!("unexpected GroupVersion string: {}", version.text())));
    }
    errors
}

fn metric(metric: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let ty = metric.at("type");
    if ty.is_empty() {
        errors.push(ty.required("must specify a metric source type"));
    }
    errors.extend(ty.must_be_in(TYPES));
    let sources: Vec<_> = SOURCES.iter().filter(|(_, field, _)| metric.at(field).is_set()).collect();
    if let Some((_, field, rule)) = sources.first() {
        errors.extend(rule(&metric.at(field)));
    }
    let expected = SOURCES.iter().find(|(known, _, _)| *known == ty.text()).map(|(_, field, _)| *field);
    match expected {
        Some(field) if !metric.at(field).is_set() => {
            errors.push(metric.at(field).required("must populate information for the given metric source"));
        }
        Some(_) => {}
        None => errors.extend(ty.must_be_in(TYPES)),
    }
    if sources.len() != 1 {
        let others = sources.iter().filter(|(_, field, _)| Some(*field) != expected);
        errors.extend(
            others.map(|(_, field, _)| metric.at(field).forbidden("must populate the given metric source only")),
        );
    }
    errors
}

fn identified(source: &Field<'_>) -> Errors {
    let metric = source.at("metric");
    let name = metric.at("name");
    if name.is_empty() { vec![name.required("must specify a metric name")] } else { name.obeys(path_segment) }
}

fn target(target: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let ty = target.at("type");
    if ty.is_empty() {
        errors.push(ty.required("must specify a metric target type"));
    }
    if !matches!(ty.text(), "Utilization" | "Value" | "AverageValue") {
        errors.push(ty.invalid_as(ty.text(), "must be either Utilization, Value, or AverageValue"));
    }
    for value in ["value", "averageValue"].map(|value| target.at(value)).iter().filter(|value| value.is_set()) {
        if resource::amount(value) <= flyball_core::Quantity::ZERO {
            errors.push(value.invalid("must be positive"));
        }
    }
    let percent = target.at("averageUtilization");
    if percent.int_if_set().is_some_and(|percent| percent < 1) {
        errors.push(percent.invalid("must be greater than 0"));
    }
    errors
}

fn object_source(source: &Field<'_>) -> Errors {
    let mut errors = reference(&source.at("describedObject"));
    errors.extend(identified(source));
    let target_value = source.at("target");
    errors.extend(target(&target_value));
    if !target_value.at("value").is_set() && !target_value.at("averageValue").is_set() {
        errors.push(target_value.at("averageValue").required("must set either a target value or averageValue"));
    }
    errors
}

fn external_source(source: &Field<'_>) -> Errors {
    let mut errors = identified(source);
    let target_value = source.at("target");
    errors.extend(target(&target_value));
    match (target_value.at("value").is_set(), target_value.at("averageValue").is_set()) {
        (false, false) => errors.push(
            target_value.at("averageValue").required("must set either a target value for metric or a per-pod target"),
        ),
        (true, true) => errors.push(
            target_value.at("value").forbidden("may not set both a target value for metric and a per-pod target"),
        ),
        _ => {}
    }
    errors
}

fn pods_source(source: &Field<'_>) -> Errors {
    let mut errors = identified(source);
    let target_value = source.at("target");
    errors.extend(target(&target_value));
    if !target_value.at("averageValue").is_set() {
        errors.push(target_value.at("averageValue").required("must specify a positive target averageValue"));
    }
    errors
}

fn resource_source(source: &Field<'_>) -> Errors {
    let name = source.at("name");
    let mut errors: Errors =
        name.is_empty().then(|| name.required("must specify a resource name")).into_iter().collect();
    errors.extend(used(source));
    errors
}

fn container_source(source: &Field<'_>) -> Errors {
    let (name, container) = (source.at("name"), source.at("container"));
    let mut errors = if name.is_empty() {
        vec![name.required("must specify a resource name")]
    } else {
        resource::container_name(&name, name.text())
    };
    if container.is_empty() {
        errors.push(container.required("must specify a container"));
    } else {
        errors.extend(container.obeys(dns_label));
    }
    errors.extend(used(source));
    errors
}

/// Validates the target of a resource metric, which is a utilization or an amount.
fn used(source: &Field<'_>) -> Errors {
    let target_value = source.at("target");
    let mut errors = target(&target_value);
    match (target_value.at("averageUtilization").is_set(), target_value.at("averageValue").is_set()) {
        (false, false) => {
            errors.push(
                target_value
                    .at("averageUtilization")
                    .required("must set either a target raw value or a target utilization"),
            );
        }
        (true, true) => errors.push(
            target_value.at("averageValue").forbidden("may not set both a target raw value and a target utilization"),
        ),
        _ => {}
    }
    errors
}

fn scaling_rules(rules: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let window = rules.at("stabilizationWindowSeconds");
    if window.int() < 0 {
        errors.push(window.invalid("must be greater than or equal to zero"));
    }
    if window.int() > 3600 {
        errors.push(window.invalid("must be less than or equal to 3600"));
    }
    errors.extend(rules.at("selectPolicy").may_be_one_of(&["Disabled", "Max", "Min"]));
    let policies = rules.at("policies");
    if policies.is_empty() {
        errors.push(policies.required("must specify at least one Policy"));
    }
    for policy in policies.items() {
        errors.extend(policy.at("type").must_be_in(&["Percent", "Pods"]));
        let seconds = policy.at("periodSeconds");
        errors.extend(policy.at("value").positive());
        errors.extend(seconds.positive());
        if seconds.int() > 1800 {
            errors.push(seconds.invalid("must be less than or equal to 1800"));
        }
    }
    errors
}

pub(super) fn row(view: &View<'_>) -> Row {
    let reference = format!("{}/{}", view.text("spec.scaleTargetRef.kind"), view.text("spec.scaleTargetRef.name"));
    let current = view.list("status.currentMetrics");
    let metrics: Vec<String> =
        view.list("spec.metrics").iter().enumerate().map(|(i, metric)| shown_target(metric, current.get(i))).collect();
    let shown = match metrics.as_slice() {
        [] => NONE.to_owned(),
        [first, second, more @ ..] if !more.is_empty() => format!("{first}, {second} + {} more...", more.len()),
        all => all.join(", "),
    };
    let least = view.at("spec.minReplicas").as_i64().map_or_else(|| UNSET.to_owned(), |least| least.to_string());
    Row::from([
        view.name(),
        reference.into(),
        shown.into(),
        least.into(),
        view.int("spec.maxReplicas").into(),
        view.int("status.currentReplicas").into(),
        view.age(),
    ])
}

/// Returns the table cell of a metric: current and target value.
fn shown_target(metric: &Value, current: Option<&Value>) -> String {
    let (field, named, averaged) = match text(metric, "type") {
        "External" => ("external", false, true),
        "Pods" => ("pods", false, false),
        "Object" => ("object", false, true),
        "Resource" => ("resource", true, false),
        "ContainerResource" => ("containerResource", true, false),
        _ => return "<unknown type>".into(),
    };
    let target = at(metric, field).get("target").unwrap_or(&Value::Null);
    let now = current.map_or(&Value::Null, |current| at(current, field));
    let now = |value: &str| now["current"][value].as_str().map_or_else(|| UNKNOWN.to_owned(), str::to_owned);
    let name = if named { format!("{}: ", text(at(metric, field), "name")) } else { String::new() };
    if let Some(average) = target["averageValue"].as_str() {
        let suffix = if averaged { " (avg)" } else { "" };
        return format!("{name}{}/{average}{suffix}", now("averageValue"));
    }
    if named {
        let percent = |value: &Value| value["averageUtilization"].as_i64().map(|percent| format!("{percent}%"));
        let now = current.and_then(|current| percent(&at(current, field)["current"]));
        return format!(
            "{name}{}/{}",
            now.as_deref().unwrap_or(UNKNOWN),
            percent(target).as_deref().unwrap_or("<auto>")
        );
    }
    format!("{}/{}", now("value"), target["value"].as_str().unwrap_or("0"))
}
