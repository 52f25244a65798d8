//! Actions of others in a run: users and controllers that change objects while the operator works.

use crate::fault::Fault;
use crate::history::Actor;
use crate::hub::{AdminRequest, Hub, IncidentKind};
use crate::site::name_at;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, sleep_until};

/// Prefix of annotations of injected writes, which are no part of the state of a run.
pub(crate) const ANNOTATION_PREFIX: &str = "explore.flyball.dev/";
/// Finalizer of another controller.
const FINALIZER: &str = "explore.flyball.dev/foreign";
/// Time after which an injected change of the custom resource is reverted.
const FLIP: Duration = Duration::from_secs(10);
/// Time for which a foreign finalizer stays.
const STUCK: Duration = Duration::from_secs(60);
/// Number of times that the operator may remove the annotation of another controller.
const MAX_REMOVALS: u32 = 5;
/// Interval at which another controller checks its annotation.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Number of checks.
const CHECKS: u32 = 20;

/// Performs the actions that precede a write of an object, given by its path and the body of the request.
pub(crate) async fn before(hub: &Arc<Hub>, fault: &Fault, path: &str, name: Option<&str>, body: &[u8]) {
    match fault {
        Fault::Conflict => annotate(hub, path, "conflict", json!(hub.elapsed().as_millis().to_string())).await,
        Fault::DeletePrimary => delete_primary(hub).await,
        Fault::Flip => flip(hub).await,
        Fault::Preexist => preexist(hub, path, name, body).await,
        _ => {}
    }
}

/// Performs the actions that follow a write of an object, given by its path.
pub(crate) async fn after(hub: &Arc<Hub>, fault: &Fault, path: &str) {
    match fault {
        Fault::DeleteTarget => {
            hub.request(Actor::Fault, AdminRequest::json(Method::DELETE, path, &Value::Null)).await;
        }
        Fault::EditTarget => edit(hub, path).await,
        Fault::Orphan => {
            let patch = json!({"metadata": {"ownerReferences": null}});
            hub.request(Actor::Fault, AdminRequest::merge(path, &patch)).await;
        }
        Fault::Stick => stick(hub, path).await,
        Fault::Annotate => keep_annotation(hub, path).await,
        _ => {}
    }
}

async fn read(hub: &Hub, path: &str) -> Option<Value> {
    let (code, object) = hub.request(Actor::Fault, AdminRequest::json(Method::GET, path, &Value::Null)).await;
    (code == 200).then_some(object)
}

async fn annotate(hub: &Hub, path: &str, name: &str, value: Value) {
    let mut patch = json!({"metadata": {"annotations": {}}});
    patch["metadata"]["annotations"][format!("{ANNOTATION_PREFIX}{name}")] = value;
    hub.request(Actor::Fault, AdminRequest::merge(path.trim_end_matches("/status"), &patch)).await;
}

async fn delete_primary(hub: &Hub) {
    if let Some((path, _)) = hub.primary() {
        hub.request(Actor::Fault, AdminRequest::json(Method::DELETE, &path, &Value::Null)).await;
    }
}

/// Changes a number or a boolean of the custom resource, and changes it back later.
async fn flip(hub: &Arc<Hub>) {
    let Some((path, object)) = hub.primary() else { return };
    let Some((pointer, value)) = scalar(&object["spec"], String::new()) else { return };
    let other = match &value {
        Value::Bool(value) => json!(!value),
        other => json!(other.as_i64().unwrap_or_default() + 1),
    };
    let patch = |value: Value| json!({"spec": nested(&pointer, value)});
    hub.request(Actor::Fault, AdminRequest::merge(&path, &patch(other))).await;
    let until = hub.lasts(FLIP);
    let (hub, back) = (hub.clone(), patch(value));
    tokio::spawn(async move {
        sleep_until(until).await;
        hub.request(Actor::Fault, AdminRequest::merge(&path, &back)).await;
    });
}

/// Returns the first number or boolean in an object, with its path of fields.
fn scalar(value: &Value, path: String) -> Option<(String, Value)> {
    match value {
        Value::Bool(_) => Some((path, value.clone())),
        Value::Number(number) if number.is_i64() => Some((path, value.clone())),
        Value::Object(fields) => fields.iter().find_map(|(name, field)| scalar(field, format!("{path}/{name}"))),
        _ => None,
    }
}

/// Returns a value inside of objects with these fields, separated by slashes.
fn nested(path: &str, value: Value) -> Value {
    path.split('/').filter(|part| !part.is_empty()).rev().fold(value, |value, field| json!({field: value}))
}

/// Changes the first text or number of the data or the specification of an object.
async fn edit(hub: &Hub, path: &str) {
    let Some(object) = read(hub, path).await else { return };
    for section in ["data", "spec"] {
        let text = object[section].as_object().into_iter().flatten().find(|(_, value)| value.is_string());
        let patch = match (text, scalar(&object[section], String::new())) {
            (Some((name, _)), _) if section == "data" => json!({section: {name: "ZWRpdGVk"}}),
            (_, Some((pointer, Value::Number(number)))) => {
                json!({section: nested(&pointer, json!(number.as_i64().unwrap_or_default() + 1))})
            }
            _ => continue,
        };
        hub.request(Actor::Fault, AdminRequest::merge(path, &patch)).await;
        return;
    }
}

/// Adds a finalizer, and removes it later.
async fn stick(hub: &Arc<Hub>, path: &str) {
    let Some(object) = read(hub, path).await else { return };
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.push(json!(FINALIZER));
    let patch = json!({"metadata": {"finalizers": finalizers}});
    hub.request(Actor::Fault, AdminRequest::merge(path, &patch)).await;
    let until = hub.lasts(STUCK);
    let (hub, path) = (hub.clone(), path.to_owned());
    tokio::spawn(async move {
        sleep_until(until).await;
        let Some(object) = read(&hub, &path).await else { return };
        let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        let patch = json!({"metadata": {"finalizers": finalizers}});
        hub.request(Actor::Fault, AdminRequest::merge(&path, &patch)).await;
    });
}

/// Adds an annotation, and adds it again when it is missing.
async fn keep_annotation(hub: &Arc<Hub>, path: &str) {
    let (name, value) = ("keep", json!("foreign"));
    annotate(hub, path, name, value.clone()).await;
    let interval = hub.pace.of(CHECK_INTERVAL);
    hub.lasts(CHECK_INTERVAL * CHECKS);
    let (hub, path) = (hub.clone(), path.to_owned());
    tokio::spawn(async move {
        let mut removals = 0;
        for _ in 0..CHECKS {
            sleep(interval).await;
            let Some(object) = read(&hub, &path).await else { return };
            if object["metadata"]["annotations"][format!("{ANNOTATION_PREFIX}{name}")] == value {
                continue;
            }
            removals += 1;
            if removals == MAX_REMOVALS {
                let text = format!("an annotation that another controller keeps was removed {removals} times");
                return hub.record_incident(IncidentKind::Fight, name_at(&path), text);
            }
            annotate(&hub, &path, name, value.clone()).await;
        }
    });
}

/// Creates an object of the same name, of another owner.
async fn preexist(hub: &Hub, path: &str, name: Option<&str>, body: &[u8]) {
    let Ok(mut object) = serde_json::from_slice::<Value>(body) else { return };
    let collection = match name {
        Some(_) if read(hub, path).await.is_some() => return,
        Some(_) => path.rsplit_once('/').map_or(path, |(collection, _)| collection),
        None => path,
    };
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| ["name", "namespace"].contains(&&**field));
    }
    object["metadata"]["annotations"] = json!({format!("{ANNOTATION_PREFIX}owner"): "somebody else"});
    hub.request(Actor::Fault, AdminRequest::json(Method::POST, collection, &object)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_found_and_nested() {
        let spec = json!({"image": "a", "limits": {"cpu": 2}, "paused": true});
        let (path, value) = scalar(&spec, String::new()).unwrap();
        assert_eq!((&*path, &value), ("/limits/cpu", &json!(2)));
        assert_eq!(nested(&path, json!(3)), json!({"limits": {"cpu": 3}}));
        assert_eq!(scalar(&json!({"a": "b"}), String::new()), None);
    }
}
