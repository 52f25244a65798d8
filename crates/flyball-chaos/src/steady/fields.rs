//! Fields of an object as paths and values, without what the API server and others assign.

use crate::change::PREFIX;
use crate::operator::is_custom;
use flyball_core::pointer::escape;
use flyball_core::time::parse_rfc3339;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Maximum depth of an object.
const MAX_DEPTH: usize = 64;
/// Maximum number of fields of an object; further ones are not compared.
const MAX_FIELDS: usize = 20_000;

/// Annotations that controllers of Kubernetes and its clients set.
const FOREIGN_ANNOTATIONS: &[&str] =
    &["deployment.kubernetes.io/", "kubectl.kubernetes.io/", "deprecated.daemonset.template.generation"];

/// Fields whose values the API server or a controller of Kubernetes assigns.
const ASSIGNED: &[(&str, &[&str])] = &[
    ("Service", &["/spec/clusterIP", "/spec/clusterIPs", "/spec/healthCheckNodePort"]),
    ("PersistentVolumeClaim", &["/spec/volumeName"]),
    ("Job", &["/spec/selector", "/spec/template/metadata/labels"]),
    ("ServiceAccount", &["/secrets"]),
];

/// Returns the leaves of an object.
pub(super) fn of(object: &Value) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let group = crate::api::group_of(object["apiVersion"].as_str().unwrap_or_default());
    let kind = object["kind"].as_str().unwrap_or_default();
    let assigned = ASSIGNED.iter().filter(|(one, _)| *one == kind && !is_custom(group)).flat_map(|(_, paths)| *paths);
    let assigned: Vec<&str> = assigned.copied().collect();
    for (key, value) in object.as_object().into_iter().flatten() {
        match key.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => collect(&metadata(value), "/metadata".to_owned(), 0, &mut fields),
            "status" if is_custom(group) => collect(&status(value), "/status".to_owned(), 0, &mut fields),
            "status" => collect(&conditions(&value["conditions"]), "/status/conditions".to_owned(), 0, &mut fields),
            key => collect(value, format!("/{}", escape(key)), 0, &mut fields),
        }
    }
    fields.retain(|path, _| {
        let is_assigned = assigned
            .iter()
            .any(|one| path.strip_prefix(one).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
        !(is_assigned || kind == "Service" && path.ends_with("/nodePort"))
    });
    fields
}

fn metadata(metadata: &Value) -> Value {
    let mut kept = Map::new();
    for field in ["labels", "ownerReferences", "finalizers"] {
        if !metadata[field].is_null() {
            kept.insert(field.to_owned(), metadata[field].clone());
        }
    }
    let is_own = |key: &str| !key.starts_with(PREFIX) && !FOREIGN_ANNOTATIONS.iter().any(|one| key.starts_with(one));
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    let annotations: Map<String, Value> =
        annotations.filter(|(key, _)| is_own(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    kept.insert("annotations".to_owned(), Value::Object(annotations));
    kept.insert("isDeleted".to_owned(), json!(!metadata["deletionTimestamp"].is_null()));
    Value::Object(kept)
}

/// Returns the status of a custom resource, with the statuses of its conditions only.
fn status(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("observedGeneration");
        if let Some(all) = fields.get_mut("conditions") {
            *all = conditions(all);
        }
    }
    status
}

fn conditions(conditions: &Value) -> Value {
    let all = conditions.as_array().into_iter().flatten();
    let pairs = all.filter_map(|one| Some((one["type"].as_str()?.to_owned(), one["status"].clone())));
    Value::Object(pairs.collect())
}

fn collect(value: &Value, path: String, depth: usize, fields: &mut BTreeMap<String, String>) {
    if depth > MAX_DEPTH || fields.len() > MAX_FIELDS {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                collect(value, format!("{path}/{}", escape(key)), depth + 1, fields);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                collect(value, format!("{path}/{index}"), depth + 1, fields);
            }
        }
        Value::String(text) if parse_rfc3339(text).is_some() => {
            fields.insert(path, "time".to_owned());
        }
        value => {
            fields.insert(path, value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_assigned_values_do_not_count() {
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "uid": "1", "annotations": {"chaos.flyball.dev/experiment": "x", "b": "c"}},
            "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 1, "nodePort": 3}]},
            "status": {"loadBalancer": {}}});
        let paths: Vec<String> = of(&service).into_keys().collect();
        assert_eq!(paths, ["/metadata/annotations/b", "/metadata/isDeleted", "/spec/ports/0/port"]);
        let site = json!({"apiVersion": "example.com/v1", "kind": "Site", "status": {"observedGeneration": 3,
            "at": "2026-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True", "message": "m"}]}});
        let fields = of(&site);
        assert_eq!(fields["/status/at"], "time");
        assert_eq!(fields["/status/conditions/Ready"], "\"True\"");
        assert_eq!(fields.len(), 2, "{fields:?}");
    }
}
