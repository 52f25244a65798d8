//! Conversion of `v1` horizontal pod autoscalers to and from `v2`, the stored version.
//!
//! `v1` has only a CPU target. Other fields are annotations, as JSON in the order of kube-apiserver's types: metrics
//! and conditions as `v1` types, behavior as the internal type.

use super::{GROUP, horizontal_pod_autoscaler};
use crate::kinds::field::Errors;
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Row, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use flyball_core::field::go_json;
use serde_json::{Map, Value, json};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
    .printed(horizontal_pod_autoscaler::COLUMNS, row)
    .default(default)
    .validate(validate)
    .short(&["hpa"])
    .category("all")
    .subresources(&[Sub::STATUS])
    .stored_as("autoscaling", to_v2, from_v2);

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

fn default(scaler: &mut Object) {
    scaler.inner_or_new("spec").fill("minReplicas", 1);
    // Metrics that `v1` does not have are in an annotation: in this case there is no default.
    if !has_other_metrics(scaler) {
        scaler.inner_or_new("spec").fill("targetCPUUtilizationPercentage", 80);
    }
}

/// Converts `v1` to `v2`.
fn to_v2(scaler: &mut Object) {
    let [metrics, current, conditions, behavior] =
        [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR].map(|name| take_annotation(scaler, name));
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut) {
        let percentage = spec.remove("targetCPUUtilizationPercentage");
        let cpu = percentage.map(|percentage| {
            let target = json!({"type": "Utilization", "averageUtilization": percentage});
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        });
        let others = metrics.as_ref().and_then(Value::as_array).into_iter().flatten();
        let others = others.map(|metric| metric_to_v2(metric, &TARGET));
        spec.set("metrics", cpu.into_iter().chain(others).collect::<Value>());
        if let Some(behavior) = behavior.filter(Value::is_object) {
            spec.set("behavior", recase(&behavior, lower));
        }
        horizontal_pod_autoscaler::default(scaler);
    }
    if let Some(status) = scaler.get_mut("status").and_then(Value::as_object_mut) {
        let percentage = status.remove("currentCPUUtilizationPercentage");
        let cpu = |percentage| json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percentage}}}]);
        let to_v2 = |all: &Vec<Value>| all.iter().map(|metric| metric_to_v2(metric, &CURRENT)).collect();
        let metrics = current.as_ref().and_then(Value::as_array).map(to_v2);
        status.insert("currentMetrics".into(), metrics.or_else(|| percentage.map(cpu)).unwrap_or_default());
        if let Some(conditions) = conditions.filter(Value::is_array) {
            status.insert("conditions".into(), conditions);
        }
    }
}

/// Returns true if a `v1` autoscaler has metrics that only `v2` supports.
fn has_other_metrics(scaler: &Object) -> bool {
    let metrics = scaler.annotation(METRICS).and_then(|text| serde_json::from_str::<Value>(text).ok());
    metrics.as_ref().and_then(Value::as_array).is_some_and(|metrics| !metrics.is_empty())
}

/// Converts `v2` to `v1`.
fn from_v2(scaler: &mut Object) {
    for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        take_annotation(scaler, name);
    }
    let mut alpha: Vec<(&str, String)> = Vec::new();
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = take_list(spec, "metrics");
        let cpu = metrics.iter().find(|metric| is_cpu(metric));
        if let Some(percentage) = cpu.and_then(|metric| non_null(metric, "/resource/target/averageUtilization")) {
            spec.set("targetCPUUtilizationPercentage", percentage.clone());
        }
        let is_cpu_percentage =
            |metric: &&Value| is_cpu(metric) && non_null(metric, "/resource/target/averageUtilization").is_some();
        let mut others = metrics.iter().filter(|metric| !is_cpu_percentage(metric)).peekable();
        if others.peek().is_some() {
            alpha.push((METRICS, metrics_from_v2(others, &TARGET)));
        }
        if let Some(behavior) = spec.remove("behavior").filter(|behavior| !behavior.is_null()) {
            alpha.push((BEHAVIOR, behavior_from_v2(&behavior)));
        }
    }
    if let Some(status) = scaler.get_mut("status").and_then(Value::as_object_mut) {
        status.entry("currentReplicas").or_insert_with(|| 0.into());
        let metrics = take_list(status, "currentMetrics");
        let cpu = metrics.iter().rfind(|metric| is_cpu(metric));
        if let Some(percentage) = cpu.and_then(|metric| non_null(metric, "/resource/current/averageUtilization")) {
            status.set("currentCPUUtilizationPercentage", percentage.clone());
        }
        if !metrics.is_empty() {
            alpha.push((CURRENT_METRICS, metrics_from_v2(&metrics, &CURRENT)));
        }
        let conditions = take_list(status, "conditions");
        if !conditions.is_empty() {
            alpha.push((CONDITIONS, list(&conditions.iter().map(condition).collect::<Vec<_>>())));
        }
    }
    if !alpha.is_empty() {
        let annotations = scaler.metadata_mut().inner_or_new("annotations");
        alpha.into_iter().for_each(|(name, text)| annotations.set(name, text));
    }
}

/// Removes an annotation and returns its JSON; malformed JSON is dropped, as kube-apiserver does.
fn take_annotation(scaler: &mut Object, name: &str) -> Option<Value> {
    let annotations = scaler.metadata_mut().inner("annotations")?;
    let text = annotations.remove(name);
    if annotations.is_empty() {
        scaler.metadata_mut().remove("annotations");
    }
    serde_json::from_str(text?.as_str()?).ok()
}

fn take_list(from: &mut Map<String, Value>, name: &str) -> Vec<Value> {
    match from.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric.pointer("/resource/name") == Some(&"cpu".into())
}

fn non_null<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    value.pointer(path).filter(|value| !value.is_null())
}

/// Encodes the present fields of an object in this order.
fn object(fields: &[(&str, Option<String>)]) -> String {
    let present = fields.iter().filter_map(|(name, value)| Some(format!("\"{name}\":{}", value.as_ref()?)));
    format!("{{{}}}", present.collect::<Vec<_>>().join(","))
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.join(","))
}

fn text(of: &Value, path: &str) -> Option<String> {
    non_null(of, path).map(go_json)
}

/// Encodes a field that is always present.
fn always(of: &Value, path: &str) -> Option<String> {
    Some(text(of, path).unwrap_or_else(|| "\"\"".into()))
}

fn amount(of: &Value, path: &str) -> Option<String> {
    Some(text(of, path).unwrap_or_else(|| "\"0\"".into()))
}

fn target_reference(of: &Value, path: &str) -> Option<String> {
    let of = of.pointer(path).unwrap_or(&Value::Null);
    let fields =
        [("kind", always(of, "/kind")), ("name", always(of, "/name")), ("apiVersion", text(of, "/apiVersion"))];
    Some(object(&fields))
}

/// The `v1` names for a part of a metric.
struct Words {
    /// The corresponding field in `v2`.
    field: &'static str,
    value: &'static str,
    average: &'static str,
    utilization: &'static str,
}

const TARGET: Words = Words {
    field: "target",
    value: "targetValue",
    average: "targetAverageValue",
    utilization: "targetAverageUtilization",
};

const CURRENT: Words = Words {
    field: "current",
    value: "currentValue",
    average: "currentAverageValue",
    utilization: "currentAverageUtilization",
};

fn metrics_from_v2<'v>(metrics: impl IntoIterator<Item = &'v Value>, words: &Words) -> String {
    list(&metrics.into_iter().map(|metric| metric_from_v2(metric, words)).collect::<Vec<_>>())
}

fn metric_from_v2(metric: &Value, words: &Words) -> String {
    let is_current = words.field == CURRENT.field;
    let source =
        |name: &'static str, write: &dyn Fn(&Value) -> String| (name, non_null(metric, &format!("/{name}")).map(write));
    let path = |name: &str| format!("/{}/{name}", words.field);
    // The current value is encoded even if it is empty.
    let measured = |of: &Value, name: &str| if is_current { amount(of, &path(name)) } else { text(of, &path(name)) };
    let resource = |of: &Value, container: bool| {
        object(&[
            ("name", always(of, "/name")),
            (words.utilization, text(of, &path("averageUtilization"))),
            (words.average, measured(of, "averageValue")),
            ("container", always(of, "/container").filter(|_| container)),
        ])
    };
    object(&[
        ("type", always(metric, "/type")),
        source("object", &|of| {
            object(&[
                ("target", target_reference(of, "/describedObject")),
                ("metricName", always(of, "/metric/name")),
                (words.value, amount(of, &path("value"))),
                ("selector", text(of, "/metric/selector")),
                ("averageValue", text(of, &path("averageValue"))),
            ])
        }),
        source("pods", &|of| {
            object(&[
                ("metricName", always(of, "/metric/name")),
                (words.average, amount(of, &path("averageValue"))),
                ("selector", text(of, "/metric/selector")),
            ])
        }),
        source("resource", &|of| resource(of, false)),
        source("containerResource", &|of| resource(of, true)),
        source("external", &|of| {
            object(&[
                ("metricName", always(of, "/metric/name")),
                ("metricSelector", text(of, "/metric/selector")),
                (words.value, measured(of, "value")),
                (words.average, text(of, &path("averageValue"))),
            ])
        }),
    ])
}

fn condition(condition: &Value) -> String {
    object(&[
        ("type", always(condition, "/type")),
        ("status", always(condition, "/status")),
        ("lastTransitionTime", Some(text(condition, "/lastTransitionTime").unwrap_or_else(|| "null".into()))),
        ("reason", text(condition, "/reason")),
        ("message", text(condition, "/message")),
    ])
}

/// Encodes behavior as the internal type, which has no JSON names and omits no fields.
fn behavior_from_v2(behavior: &Value) -> String {
    let null = || Some("null".to_owned());
    let rules = |direction: &str| {
        let Some(rules) = non_null(behavior, direction) else { return null() };
        let policy = |policy: &Value| {
            object(&[
                ("Type", always(policy, "/type")),
                ("Value", text(policy, "/value")),
                ("PeriodSeconds", text(policy, "/periodSeconds")),
            ])
        };
        let policies = rules["policies"].as_array().map(|all| list(&all.iter().map(policy).collect::<Vec<_>>()));
        Some(object(&[
            ("StabilizationWindowSeconds", text(rules, "/stabilizationWindowSeconds").or_else(null)),
            ("SelectPolicy", text(rules, "/selectPolicy").or_else(null)),
            ("Policies", policies.or_else(null)),
            ("Tolerance", text(rules, "/tolerance").or_else(null)),
        ]))
    };
    object(&[("ScaleUp", rules("/scaleUp")), ("ScaleDown", rules("/scaleDown"))])
}

fn lower(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Renames all fields of a value and omits null fields.
fn recase(value: &Value, rename: fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (rename(name), recase(value, rename))).collect())
        }
        Value::Array(items) => items.iter().map(|item| recase(item, rename)).collect(),
        value => value.clone(),
    }
}

/// Creates an object from the present fields.
fn present_fields(fields: &[(&str, Option<Value>)]) -> Value {
    let present = fields.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
    Value::Object(present.collect())
}

/// Encodes name and selector of a metric, whose field names depend on the source.
fn identifier(of: &Value, selector: &str) -> Option<Value> {
    let get = |name: &str| of.get(name).filter(|value| !value.is_null()).cloned();
    Some(present_fields(&[("name", get("metricName")), ("selector", get(selector))]))
}

fn metric_to_v2(metric: &Value, words: &Words) -> Value {
    let source = |name: &'static str, read: &dyn Fn(&Value) -> Value| {
        (name, metric.get(name).filter(|of| of.is_object()).map(read))
    };
    let half = |of: &Value, value: &str, average: &str| {
        let get = |name: &str| of.get(name).filter(|value| !value.is_null()).cloned();
        let (value, average, utilization) = (get(value), get(average), get(words.utilization));
        let ty = match (&utilization, &average) {
            (Some(_), _) => "Utilization",
            (None, Some(_)) => "AverageValue",
            (None, None) => "Value",
        };
        let is_target = words.field == TARGET.field;
        Some(present_fields(&[
            ("type", is_target.then(|| ty.into())),
            ("value", value.filter(|value| !is_target || value != "0")),
            ("averageValue", average),
            ("averageUtilization", utilization),
        ]))
    };
    let resource = |of: &Value| {
        let half = half(of, "", words.average);
        present_fields(&[
            ("name", of.get("name").cloned()),
            (words.field, half),
            ("container", of.get("container").cloned()),
        ])
    };
    present_fields(&[
        ("type", metric.get("type").cloned()),
        source("object", &|of| {
            present_fields(&[
                ("describedObject", of.get("target").cloned()),
                ("metric", identifier(of, "selector")),
                (words.field, half(of, words.value, "averageValue")),
            ])
        }),
        source("pods", &|of| {
            present_fields(&[("metric", identifier(of, "selector")), (words.field, half(of, "", words.average))])
        }),
        source("resource", &resource),
        source("containerResource", &resource),
        source("external", &|of| {
            let half = half(of, words.value, words.average);
            present_fields(&[("metric", identifier(of, "metricSelector")), (words.field, half)])
        }),
    ])
}

/// Rules of `v1`, whose objects are converted from `v2`.
fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let second = |object: &Object| {
        let mut object = object.clone();
        to_v2(&mut object);
        object
    };
    horizontal_pod_autoscaler::validate(&second(object), old.map(second).as_ref(), part)
}

fn row(view: &View<'_>) -> Row {
    let mut object = view.object.clone();
    to_v2(&mut object);
    horizontal_pod_autoscaler::row(&View { object: &object, ..*view })
}
