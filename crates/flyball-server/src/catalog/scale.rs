//! The scale of an object: its desired and current replicas.

use super::resource::Resource;
use flyball_core::{GroupVersionKind, Object, Reason, Status};
use serde_json::{Map, Value, json};

/// The kind of a scale.
pub(crate) fn kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// Returns the error for a body that is not a scale. For custom resources, it names no detail: kube-apiserver describes
/// it with their scheme, which lacks the kind.
pub(crate) fn decode_error(resource: &Resource, error: Status) -> Status {
    const SCHEME: &str = "k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go";
    if resource.custom().is_none() || error.reason != Some(Reason::BadRequest) {
        return error;
    }
    Status::bad_request(format!("no kind is registered for the type v1.Scale in scheme \"{SCHEME}\""))
}

/// Returns the value at a simple JSON path such as `.spec.replicas`.
fn at<'o>(object: &'o Object, path: &str) -> Option<&'o Value> {
    let steps: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    object.at(&steps)
}

/// Returns the scale of an object, or an error if it has none.
pub(crate) fn of(resource: &Resource, object: &Object) -> Result<Object, Status> {
    let paths = resource.scale().ok_or_else(Status::unknown_resource)?;
    if resource.custom().is_some() && at(object, paths.spec).and_then(Value::as_i64).is_none() {
        return Err(Status::internal(format!("the spec replicas field {:?} does not exist", paths.spec)));
    }
    of_any(resource, object)
}

/// Returns the scale of an object, with 0 replicas if it sets none.
pub(crate) fn of_any(resource: &Resource, object: &Object) -> Result<Object, Status> {
    let paths = resource.scale().ok_or_else(Status::unknown_resource)?;
    let replicas = at(object, paths.spec).and_then(Value::as_i64);
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.metadata().and_then(|metadata| metadata.get(field)) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let replicas = replicas.unwrap_or(0);
    let mut status = Map::new();
    status.insert("replicas".into(), at(object, paths.status).and_then(Value::as_i64).unwrap_or(0).into());
    if let Some(selector) = paths.selector.and_then(|path| selector(object, path)) {
        status.insert("selector".into(), selector.into());
    }
    let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
    let mut scale =
        Object::try_from(json!({"metadata": metadata, "spec": spec, "status": status})).expect("made as an object");
    scale.set_kind(&kind());
    Ok(scale)
}

/// Writes the selector of an object as a text.
fn selector(object: &Object, path: &str) -> Option<String> {
    match at(object, path.trim_end_matches('!'))? {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Object(fields) if path.ends_with('!') => {
            let mut parts: Vec<String> =
                fields.get("matchLabels").and_then(Value::as_object).into_iter().flatten().map(pair).collect();
            for expression in fields.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
                let key = expression["key"].as_str().unwrap_or_default();
                let values: Vec<&str> =
                    expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                parts.push(match expression["operator"].as_str() {
                    Some("In") => format!("{key} in ({})", values.join(",")),
                    Some("NotIn") => format!("{key} notin ({})", values.join(",")),
                    Some("DoesNotExist") => format!("!{key}"),
                    _ => key.to_owned(),
                });
            }
            parts.sort();
            Some(parts.join(","))
        }
        Value::Object(fields) => Some(fields.iter().map(pair).collect::<Vec<_>>().join(",")),
        _ => None,
    }
}

fn pair((key, value): (&String, &Value)) -> String {
    format!("{key}={}", value.as_str().unwrap_or_default())
}

/// Writes a scale that admission changed into its object.
pub(crate) fn write(resource: &Resource, object: &mut Object, scale: &Object) -> Result<(), Status> {
    set(resource, object, scale.at(&["spec", "replicas"]).cloned().unwrap_or_else(|| 0.into()))
}

/// Sets the desired replicas of an object.
pub(crate) fn set(resource: &Resource, object: &mut Object, replicas: Value) -> Result<(), Status> {
    let paths = resource.scale().ok_or_else(Status::unknown_resource)?;
    let path = paths.spec.to_owned();
    let steps: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    let (last, parents) = steps.split_last().expect("a path has a step");
    object.change(|value| {
        let mut place = value;
        for step in parents {
            if !place.is_object() {
                *place = json!({});
            }
            place = place.as_object_mut().expect("just made one").entry(*step).or_insert_with(|| json!({}));
        }
        if !place.is_object() {
            *place = json!({});
        }
        place.as_object_mut().expect("just made one").insert((*last).to_owned(), replicas);
    });
    Ok(())
}
