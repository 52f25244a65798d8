//! Campaigns: scenarios without faults that are generated from the samples and the schemas of their kinds.
//!
//! They delete objects in both orders and with their namespace, apply each property with unusual values beside a
//! healthy resource, and reach a specification on several paths.

use crate::scenario::{Scenario, Step};
use crate::site::ELSEWHERE;
use crate::stage::Stage;
use flyball_core::pointer;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Limit of the variants of one custom resource.
const MAX_VARIANTS: usize = 120;
/// Limit of the combinations of two properties.
const MAX_PAIRS: usize = 40;
/// Depth of properties.
const MAX_DEPTH: usize = 5;
/// Limit of a number that is set to its maximum: larger ones create too many objects.
const MAX_NUMBER: i64 = 20;
/// Key and value that are added to maps.
const ADDED: (&str, &str) = ("explored", "value");
/// Name of the scenario that applies only a healthy resource.
const HEALTHY: &str = "healthy";

/// The rule by which a generated scenario is checked, beside those for undisturbed runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Check {
    /// No further rule.
    Undisturbed,
    /// The final state is that of another scenario.
    Path { direct: String },
    /// The objects of another scenario converge as well.
    Isolation { healthy: String },
}

/// A generated scenario.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) scenario: Scenario,
    /// `None` for scenarios that others are compared with.
    pub(crate) check: Option<Check>,
}

/// Generates the scenarios for the objects of the explorer's scenarios.
pub(crate) fn cases(stage: &Stage, scenarios: &[Scenario], unique: &[String]) -> Vec<Case> {
    let mut cases = Vec::new();
    let objects = scenarios.first().map(first_versions).unwrap_or_default();
    if objects.is_empty() {
        return cases;
    }
    cases.extend(deletions(stage, &objects));
    for scenario in scenarios {
        cases.extend(paths_of_scenario(scenario));
    }
    for (n, object) in objects.iter().enumerate() {
        if let Some(schema) = spec_schema(stage, object) {
            cases.extend(campaign(n, &objects, &schema, unique));
        }
    }
    cases
}

/// Returns the first version of each object that a scenario applies.
pub(crate) fn first_versions(scenario: &Scenario) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let name = |object: &Value| {
        format!("{} {} {}", object["kind"], object["metadata"]["namespace"], object["metadata"]["name"])
    };
    scenario.objects().filter(|object| seen.insert(name(object))).cloned().collect()
}

/// Returns the scenario that applies and deletes objects.
pub(crate) fn default_scenario(name: &str, objects: &[Value], names: &[String]) -> Scenario {
    let mut steps: Vec<Step> = objects.iter().cloned().map(Step::Apply).collect();
    steps.push(Step::Settle);
    steps.extend(names.iter().cloned().map(Step::Delete));
    steps.push(Step::Settle);
    Scenario::of(name, steps)
}

/// Returns the names of objects for deletions.
pub(crate) fn delete_names(stage: &Stage, objects: &[Value]) -> Vec<String> {
    let name = |object: &Value| {
        let (_, served) = stage.locate(object).ok()?;
        let dot = if served.group.is_empty() { "" } else { "." };
        let namespace = object["metadata"]["namespace"].as_str().map(|name| format!("{name}/")).unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Some(format!("{}{dot}{}/{namespace}{name}", served.plural, served.group))
    };
    objects.iter().filter_map(name).collect()
}

fn deletions(stage: &Stage, objects: &[Value]) -> Vec<Case> {
    let names = delete_names(stage, objects);
    let reverse: Vec<String> = names.iter().rev().cloned().collect();
    let mut scenarios = vec![default_scenario("delete/forward", objects, &names)];
    if names.len() > 1 {
        scenarios.push(default_scenario("delete/reverse", objects, &reverse));
    }
    let mut steps: Vec<Step> = objects.iter().cloned().map(Step::Apply).collect();
    steps.extend([Step::Settle, Step::DeleteNamespace, Step::Settle]);
    scenarios.push(Scenario::of("delete/namespace", steps));
    scenarios.into_iter().map(|scenario| Case { scenario, check: Some(Check::Undisturbed) }).collect()
}

/// Compares a scenario that changes objects with the direct way to their last versions.
fn paths_of_scenario(scenario: &Scenario) -> Vec<Case> {
    let (first, all) = (first_versions(scenario), scenario.objects().count());
    if first.len() == all || scenario.steps.iter().any(|step| matches!(step, Step::Delete(_) | Step::DeleteNamespace)) {
        return Vec::new();
    }
    let last_of = |object: &Value| {
        let same =
            |other: &&Value| other["metadata"]["name"] == object["metadata"]["name"] && other["kind"] == object["kind"];
        scenario.objects().filter(same).last().cloned().unwrap_or_default()
    };
    let mut steps: Vec<Step> = first.iter().map(|object| Step::Apply(last_of(object))).collect();
    steps.push(Step::Settle);
    let direct = format!("path/direct/{}", scenario.name());
    let via = Scenario::of(format!("path/{}", scenario.name()), scenario.steps.clone());
    vec![
        Case { scenario: Scenario::of(direct.clone(), steps), check: None },
        Case { scenario: via, check: Some(Check::Path { direct }) },
    ]
}

/// Returns the schema of the specification of a custom resource.
fn spec_schema(stage: &Stage, object: &Value) -> Option<Value> {
    let (group, version) = object["apiVersion"].as_str()?.split_once('/')?;
    let of_kind = |crd: &&Value| crd["spec"]["group"] == group && crd["spec"]["names"]["kind"] == object["kind"];
    let definition = stage.definitions.iter().find(of_kind)?;
    let versions = definition["spec"]["versions"].as_array()?;
    let found = versions.iter().find(|known| known["name"] == version)?;
    let spec = &found["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec.is_object().then(|| spec.clone())
}

/// A change of one property.
#[derive(Clone, Debug, PartialEq)]
struct Variant {
    /// The JSON pointer of the property.
    pointer: String,
    label: String,
    /// The value; `None` to remove the property.
    value: Option<Value>,
    /// True if the change can be undone by setting the property to its value in the sample, or removing it.
    is_optional: bool,
    is_enum: bool,
}

impl Variant {
    fn apply(&self, object: &Value) -> Value {
        let mut object = object.clone();
        match &self.value {
            Some(value) => set(&mut object, &self.pointer, value.clone()),
            None => crate::driver::remove(&mut object, &self.pointer),
        }
        object
    }

    fn name(&self) -> String {
        format!("{}={}", self.pointer.trim_start_matches("/spec/").replace('/', "."), self.label)
    }
}

/// Sets a property, and creates the objects on the way to it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for field in pointer.split('/').skip(1) {
        let field = pointer::unescape(field);
        at = match at {
            Value::Array(items) => {
                let Some(item) = field.parse::<usize>().ok().and_then(|n| items.get_mut(n)) else { return };
                item
            }
            other => {
                if !other.is_object() {
                    *other = json!({});
                }
                &mut other[&*field]
            }
        };
    }
    *at = value;
}

/// Generates the scenarios of one custom resource among the objects of the sample.
fn campaign(n: usize, objects: &[Value], schema: &Value, unique: &[String]) -> Vec<Case> {
    let sample = &objects[n];
    let mut variants = Vec::new();
    properties(schema, "/spec", sample.pointer("/spec"), 0, &mut variants);
    variants.retain(|variant| variant.apply(sample) != *sample);
    variants.truncate(MAX_VARIANTS);
    let kind = sample["kind"].as_str().unwrap_or_default().to_lowercase();
    let world = |object: Value| -> Vec<Step> {
        let others = objects.iter().enumerate().filter(|(other, _)| *other != n).map(|(_, other)| other.clone());
        others.chain([object]).map(Step::Apply).collect()
    };
    let mut healthy = sample.clone();
    for pointer in ["/metadata/name"].into_iter().chain(unique.iter().map(String::as_str)) {
        if let Some(Value::String(value)) = healthy.pointer_mut(pointer) {
            *value = format!("{value}-{HEALTHY}");
        }
    }
    let mut cases = Vec::new();
    let with_settle = |steps: Vec<Step>| steps.into_iter().chain([Step::Settle]).collect::<Vec<_>>();
    let alone = format!("spec/{kind}/{HEALTHY}");
    cases.push(Case { scenario: Scenario::of(alone.clone(), with_settle(world(healthy.clone()))), check: None });
    let direct = format!("path/{kind}/direct");
    cases.push(Case { scenario: Scenario::of(direct.clone(), with_settle(world(sample.clone()))), check: None });
    cases.extend(neighbors(&kind, n, objects, &healthy));
    for (name, object) in combinations(sample, &variants) {
        let mut steps = world(object);
        steps.extend([Step::Apply(healthy.clone()), Step::Settle]);
        let check = Some(Check::Isolation { healthy: alone.clone() });
        cases.push(Case { scenario: Scenario::of(format!("spec/{kind}/{name}"), steps), check });
    }
    for variant in variants.iter().filter(|variant| variant.is_optional) {
        let mut steps = with_settle(world(sample.clone()));
        steps.extend([Step::Apply(variant.apply(sample)), Step::Settle, Step::Apply(sample.clone()), Step::Settle]);
        let scenario = Scenario::of(format!("path/{kind}/{}/back", variant.name()), steps);
        cases.push(Case { scenario, check: Some(Check::Path { direct: direct.clone() }) });
        let there = format!("path/{kind}/{}/direct", variant.name());
        let steps = with_settle(world(variant.apply(sample)));
        cases.push(Case { scenario: Scenario::of(there.clone(), steps), check: None });
        let mut steps = with_settle(world(sample.clone()));
        steps.extend([Step::Apply(variant.apply(sample)), Step::Settle]);
        let scenario = Scenario::of(format!("path/{kind}/{}", variant.name()), steps);
        cases.push(Case { scenario, check: Some(Check::Path { direct: there }) });
    }
    cases
}

/// Deletes the sample beside a resource whose name begins with its name, and beside one of the same name in another
/// namespace.
fn neighbors(kind: &str, n: usize, objects: &[Value], healthy: &Value) -> Vec<Case> {
    let sample = &objects[n];
    if !sample["metadata"]["namespace"].is_null() || objects.len() > 1 {
        return Vec::new();
    }
    let mut elsewhere = sample.clone();
    elsewhere["metadata"]["namespace"] = ELSEWHERE.into();
    let mut cases = Vec::new();
    for (name, neighbor) in [("prefix", healthy.clone()), ("namespace", elsewhere)] {
        let alone = format!("neighbor/{kind}/{name}/alone");
        let steps = vec![Step::Apply(neighbor.clone()), Step::Settle];
        cases.push(Case { scenario: Scenario::of(alone.clone(), steps), check: None });
        let mut steps = vec![Step::Apply(sample.clone()), Step::Apply(neighbor), Step::Settle];
        steps.extend([Step::Remove(sample.clone()), Step::Settle]);
        let check = Some(Check::Isolation { healthy: alone });
        cases.push(Case { scenario: Scenario::of(format!("neighbor/{kind}/{name}"), steps), check });
    }
    cases
}

/// Returns the sample with each variant, and with pairs of a removed property and a value of an enumeration.
fn combinations(sample: &Value, variants: &[Variant]) -> Vec<(String, Value)> {
    let mut all: Vec<(String, Value)> =
        variants.iter().map(|variant| (variant.name(), variant.apply(sample))).collect();
    let enums: Vec<&Variant> = variants.iter().filter(|variant| variant.is_enum).collect();
    let pairs = enums.iter().flat_map(|one| {
        let others = variants.iter().filter(|other| other.pointer != one.pointer);
        others.map(move |other| (format!("{},{}", one.name(), other.name()), other.apply(&one.apply(sample))))
    });
    all.extend(pairs.take(MAX_PAIRS * enums.len().max(1)).filter(|(_, object)| object != sample));
    all
}

/// Adds the variants of the properties of a schema.
fn properties(schema: &Value, path: &str, sample: Option<&Value>, depth: usize, variants: &mut Vec<Variant>) {
    let required: BTreeSet<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let pointer = format!("{path}/{}", pointer::escape(name));
        let value = sample.and_then(|sample| sample.get(name));
        let is_optional = !required.contains(&**name);
        let mut add = |label: &str, value: Option<Value>, is_enum: bool, is_optional: bool| {
            let (pointer, label) = (pointer.clone(), label.to_owned());
            variants.push(Variant { pointer, label, value, is_optional, is_enum });
        };
        if is_optional && value.is_some() {
            add("absent", None, false, true);
        }
        if is_optional && value.is_none() {
            add("present", Some(example(property, 0)), false, true);
            if let Some(empty) = empty(property) {
                add("empty", Some(empty), false, false);
            }
        }
        for (label, value, is_enum) in values(property, value) {
            add(&label, Some(value), is_enum, is_enum && is_optional);
        }
        for (label, value) in additions(property, value) {
            add(&label, Some(value), false, true);
        }
        if depth < MAX_DEPTH {
            properties(property, &pointer, value, depth + 1, variants);
            if let Some(first) = value.and_then(|value| value.get(0)) {
                properties(&property["items"], &format!("{pointer}/0"), Some(first), depth + 1, variants);
            }
        }
    }
}

/// Returns a bound of a schema, which may be written with a decimal point.
fn integer(bound: &Value) -> Option<i64> {
    bound.as_i64().or_else(|| format!("{:.0}", bound.as_f64()?).parse().ok())
}

/// Returns unusual values of a property that its schema accepts.
fn values(schema: &Value, sample: Option<&Value>) -> Vec<(String, Value, bool)> {
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().filter(|value| !value.is_null());
        return values.map(|value| (value.as_str().unwrap_or("value").to_owned(), value.clone(), true)).collect();
    }
    let value = |label: &str, value: Value| (label.to_owned(), value, false);
    match schema["type"].as_str().unwrap_or_default() {
        "integer" | "number" => {
            let min = integer(&schema["minimum"]).unwrap_or_default();
            let mut all = vec![value("min", json!(min))];
            if schema["minimum"].is_null() {
                all.push(value("negative", json!(-1)));
            }
            let max = integer(&schema["maximum"]).filter(|max| *max <= MAX_NUMBER);
            all.extend(max.map(|max| value("max", json!(max))));
            all.extend(sample.and_then(Value::as_i64).map(|sample| value("more", json!(sample + 1))));
            all
        }
        "boolean" => vec![value("true", json!(true)), value("false", json!(false))],
        "string" => {
            let bounds = (schema["minLength"].as_u64().unwrap_or(0), schema["maxLength"].as_u64().unwrap_or(300));
            let long = usize::try_from(bounds.1.min(300)).unwrap_or(300);
            let mut all = vec![value("long", json!("x".repeat(long))), value("unicode", json!("ü☃"))];
            if bounds.0 == 0 {
                all.push(value("blank", json!("")));
            }
            all
        }
        "array" if sample.is_some() => vec![value("empty", json!([]))],
        "object" if sample.is_some() && schema["required"].is_null() => vec![value("empty", json!({}))],
        _ => Vec::new(),
    }
}

/// Returns the value of a map or list with one more element, and with one less.
fn additions(schema: &Value, sample: Option<&Value>) -> Vec<(String, Value)> {
    match sample {
        Some(Value::Object(fields)) if schema["additionalProperties"].is_object() => {
            let mut more = fields.clone();
            more.insert(ADDED.0.to_owned(), example(&schema["additionalProperties"], 0));
            let mut all = vec![("added".to_owned(), Value::Object(more))];
            if let Some(first) = fields.keys().next() {
                let mut less = fields.clone();
                less.remove(first);
                all.push(("removed".to_owned(), Value::Object(less)));
            }
            all
        }
        Some(Value::Array(items)) => {
            let mut more = items.clone();
            more.push(example(&schema["items"], 0));
            let mut all = vec![("added".to_owned(), Value::Array(more))];
            if !items.is_empty() {
                all.push(("removed".to_owned(), Value::Array(items[1..].to_vec())));
            }
            all
        }
        _ => Vec::new(),
    }
}

/// Returns an empty value of an optional property.
fn empty(schema: &Value) -> Option<Value> {
    match schema["type"].as_str() {
        Some("object") if schema["required"].is_null() => Some(json!({})),
        Some("array") => Some(json!([])),
        _ => None,
    }
}

/// Returns a value that fits a schema.
fn example(schema: &Value, depth: usize) -> Value {
    if let Some(value) = [&schema["default"], &schema["example"]].into_iter().find(|value| !value.is_null()) {
        return value.clone();
    }
    if let Some(value) = schema["enum"].as_array().and_then(|values| values.first()) {
        return value.clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "integer" | "number" => json!(integer(&schema["minimum"]).map_or(1, |min| min.max(1))),
        "boolean" => json!(true),
        "array" if depth < MAX_DEPTH => json!([example(&schema["items"], depth + 1)]),
        "array" => json!([]),
        "object" if schema["additionalProperties"].is_object() => {
            json!({ADDED.0: example(&schema["additionalProperties"], depth + 1)})
        }
        "object" if depth < MAX_DEPTH => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields: Map<String, Value> =
                fields.map(|(name, property)| (name.clone(), example(property, depth + 1))).collect();
            Value::Object(fields)
        }
        "object" => json!({}),
        _ if schema["x-kubernetes-int-or-string"] == true => json!(1),
        _ => json!(ADDED.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "mode": {"type": "string", "enum": ["single", "cluster"]},
            "auth": {"type": "object", "properties": {"key": {"type": "string"}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }})
    }

    fn variants(sample: &Value) -> Vec<String> {
        let mut variants = Vec::new();
        properties(&schema(), "/spec", sample.pointer("/spec"), 0, &mut variants);
        variants.retain(|variant| variant.apply(sample) != *sample);
        variants.iter().map(Variant::name).collect()
    }

    #[test]
    fn each_property_varies_in_all_ways() {
        let sample = json!({"spec": {"size": 1, "auth": {"key": "a"}, "labels": {"a": "b"}}});
        let names = variants(&sample);
        for name in [
            "size=max",
            "size=more",
            "mode=present",
            "mode=cluster",
            "auth=absent",
            "auth.key=absent",
            "auth.key=blank",
            "labels=added",
            "labels=removed",
            "labels=absent",
            "auth=empty",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
        assert!(!names.contains(&"size=absent".to_owned()), "required properties remain");
        assert!(!names.contains(&"size=min".to_owned()), "it is the value of the sample");
    }

    #[test]
    fn enumerations_are_combined_with_removed_properties() {
        let sample = json!({"spec": {"size": 1, "auth": {"key": "a"}}});
        let mut variants = Vec::new();
        properties(&schema(), "/spec", sample.pointer("/spec"), 0, &mut variants);
        let all = combinations(&sample, &variants);
        let (_, object) = all.iter().find(|(name, _)| name == "mode=cluster,auth.key=absent").unwrap();
        assert_eq!(object["spec"], json!({"size": 1, "mode": "cluster", "auth": {}}));
    }

    #[test]
    fn examples_fit_their_schema() {
        let example = example(&schema(), 0);
        assert_eq!(
            example,
            json!({"size": 1, "mode": "single", "auth": {"key": "value"}, "labels": {"explored": "value"}})
        );
    }
}
