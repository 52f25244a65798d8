//! The schema of the status in the cluster, for controllers that set fields of their own choice.
//!
//! The CRD of such a kind may come from elsewhere. An update of a status drops fields that the schema does not declare,
//! but a server-side apply with them is rejected. So they are omitted here, and the list of conditions is completed
//! with those of others, if the schema does not merge it by type.
//!
//! The schema is read from the API server's OpenAPI documents, which every authenticated client may read, when a status
//! is first set, and again after a rejection. Without a document, or if it cannot be read, the schema counts as open.

use super::Environment;
use crate::error::Result;
use crate::kind::Kind;
use flyball_core::time::Timestamp;
use http::Request;
use http::header::ACCEPT;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::Mutex as AsyncMutex;

/// Age in seconds at which a schema that lacks fields, or is unknown, is read again: they may have been declared since.
const MAX_AGE_SECONDS: i64 = 600;
/// Age in seconds from which a rejection is a reason to read the schema again.
const MIN_AGE_SECONDS: i64 = 1;
/// Marks a schema that permits any fields.
const OPEN: &str = "x-kubernetes-preserve-unknown-fields";

/// The status schema of a controller's kind.
#[derive(Debug)]
pub(crate) struct StatusSchema {
    /// Types of the controller's conditions.
    own_conditions: &'static [&'static str],
    latest: Mutex<Option<Latest>>,
    /// Held while the schema is read, so that concurrent reconciles read it once.
    reading: AsyncMutex<()>,
}

/// A schema that was read.
#[derive(Clone, Debug)]
struct Latest {
    /// `None` if the kind has no declared status.
    schema: Option<Arc<Value>>,
    read_at: Timestamp,
    /// True if the schema lacked fields of a status, or is unknown.
    is_provisional: bool,
}

/// The result of adapting a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adapted {
    /// Nothing of it is declared.
    Nothing,
    Status,
    /// With conditions of others, as they are in the given status in the cluster.
    WithForeignConditions,
}

impl StatusSchema {
    pub(crate) fn new(own_conditions: &'static [&'static str]) -> Self {
        Self { own_conditions, latest: Mutex::default(), reading: AsyncMutex::default() }
    }

    /// Adapts a status to the schema, with the status in the cluster.
    pub(crate) async fn adapt(&self, env: &Environment, kind: &Kind, status: &mut Value, before: &Value) -> Adapted {
        let Some(schema) = self.schema(env, kind).await else { return Adapted::Nothing };
        let conditions = &schema["properties"]["conditions"];
        let is_joined = conditions["x-kubernetes-list-type"] != "map" && join(status, before, self.own_conditions);
        complete(status, &conditions["items"]);
        let fit = prune(status, &schema);
        if fit != Fit::Whole
            && let Some(latest) = &mut *self.latest.lock()
        {
            latest.is_provisional = true;
        }
        // Nobody owns an empty status, so it would be applied again and again.
        match fit {
            Fit::Whole | Fit::Pruned if is_joined => Adapted::WithForeignConditions,
            Fit::Whole => Adapted::Status,
            Fit::Pruned if !is_empty(status) => Adapted::Status,
            Fit::Pruned | Fit::Mismatch => Adapted::Nothing,
        }
    }

    /// Reads the schema again after a rejection; returns true if it has changed.
    pub(crate) async fn refresh(&self, env: &Environment, kind: &Kind) -> bool {
        let Some(before) = self.latest.lock().clone() else { return false };
        if age(&before, env) < MIN_AGE_SECONDS {
            return false;
        }
        let _reading = self.reading.lock().await;
        let other = self.latest.lock().clone().filter(|latest| latest.read_at != before.read_at);
        let schema = match other {
            Some(other) => other.schema,
            None => self.update(env, kind).await,
        };
        schema != before.schema
    }

    /// Returns the schema; `None` if the kind has no declared status.
    async fn schema(&self, env: &Environment, kind: &Kind) -> Option<Arc<Value>> {
        if let Some(latest) = self.current(env) {
            return latest.schema;
        }
        let _reading = self.reading.lock().await;
        match self.current(env) {
            Some(latest) => latest.schema,
            None => self.update(env, kind).await,
        }
    }

    /// Returns the schema that was read, unless it is to be read again.
    fn current(&self, env: &Environment) -> Option<Latest> {
        let latest = self.latest.lock().clone();
        latest.filter(|latest| !latest.is_provisional || age(latest, env) < MAX_AGE_SECONDS)
    }

    async fn update(&self, env: &Environment, kind: &Kind) -> Option<Arc<Value>> {
        let found = read(env, kind).await.unwrap_or_else(|error| {
            tracing::debug!(%kind, %error, "cannot read the schema of the status");
            None
        });
        let is_provisional = !matches!(found, Some(Some(_)));
        let schema = found.unwrap_or(Some(Value::Bool(true))).map(Arc::new);
        *self.latest.lock() = Some(Latest { schema: schema.clone(), read_at: env.clock.now(), is_provisional });
        schema
    }
}

fn age(latest: &Latest, env: &Environment) -> i64 {
    env.clock.now().as_second().saturating_sub(latest.read_at.as_second())
}

/// Reads the schema of the status of the kind that is reconciled. The outer `None` means that there is no document for
/// the kind, which the API server publishes some time after the CRD; the inner one, that no status is declared.
async fn read(env: &Environment, kind: &Kind) -> Result<Option<Option<Value>>> {
    let gvk = kind.gvk();
    let root = if gvk.group.is_empty() { "api".to_owned() } else { format!("apis/{}", gvk.group) };
    let request = Request::get(format!("/openapi/v3/{root}/{}", gvk.version)).header(ACCEPT, "application/json");
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    let document = match env.client.exchange(request).await {
        Ok(document) => document,
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 406) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut document: Value = serde_json::from_slice(&document)?;
    Ok(status_of(&mut document, kind))
}

fn status_of(document: &mut Value, kind: &Kind) -> Option<Option<Value>> {
    let gvk = kind.gvk();
    let schemas = document.pointer_mut("/components/schemas")?.as_object_mut()?;
    let is_of_kind = |schema: &Value| {
        let known = schema["x-kubernetes-group-version-kind"].as_array();
        known.into_iter().flatten().any(|known| {
            (known["group"].as_str(), known["version"].as_str(), known["kind"].as_str())
                == (Some(&*gvk.group), Some(&*gvk.version), Some(&*gvk.kind))
        })
    };
    let schema = schemas.values_mut().find(|schema| is_of_kind(schema))?;
    if schema.get("properties").is_none() || schema[OPEN] == true && schema["properties"].get("status").is_none() {
        return Some(Some(Value::Bool(true)));
    }
    let status = schema["properties"].get_mut("status").map(Value::take);
    // A reference to another schema is not followed.
    let is_reference = |status: &Value| status.get("$ref").is_some() || status.get("allOf").is_some();
    Some(status.map(|status| if is_reference(&status) { Value::Bool(true) } else { status }))
}

/// Adds the conditions of others to an atomic list, in the order of the list in the cluster; returns true if there are
/// any.
fn join(status: &mut Value, before: &Value, own: &[&str]) -> bool {
    let Some(desired) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return false };
    let before = before["conditions"].as_array().map_or(&[][..], |before| before);
    let is_own = |condition: &Value| own.iter().any(|own| condition["type"] == **own);
    let is_foreign = |desired: &[Value], condition: &Value| {
        condition["type"].is_string()
            && !is_own(condition)
            && desired.iter().all(|desired| desired["type"] != condition["type"])
    };
    if !before.iter().any(|condition| is_foreign(desired, condition)) {
        return false;
    }
    let mut joined = Vec::with_capacity(before.len() + desired.len());
    for condition in before {
        match desired.iter().position(|desired| desired["type"] == condition["type"]) {
            Some(at) => joined.push(desired.remove(at)),
            None if is_foreign(desired, condition) => joined.push(condition.clone()),
            None => {}
        }
    }
    joined.append(desired);
    *desired = joined;
    true
}

/// Sets required fields of conditions that are missing or too short, as those of `metav1.Condition`.
fn complete(status: &mut Value, schema: &Value) {
    let is_required = |field: &str| {
        let required = schema["required"].as_array();
        required.into_iter().flatten().any(|required| required == field)
    };
    let is_filled = |field: &str| schema["properties"][field]["minLength"].as_u64() > Some(0);
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(fields) = condition.as_object_mut() else { continue };
        let kind = fields.get("type").cloned().unwrap_or_default();
        for (field, default) in [("reason", kind), ("message", Value::String(String::new()))] {
            let is_empty = fields.get(field).is_none_or(|value| value == "");
            if is_empty && is_filled(field) || is_required(field) && !fields.contains_key(field) {
                fields.insert(field.to_owned(), default);
            }
        }
    }
}

/// Agreement of a value with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// The schema declares all of it.
    Whole,
    /// Undeclared parts were removed.
    Pruned,
    /// The value has another type than declared.
    Mismatch,
}

/// Removes the parts of a value that a structural schema does not declare.
fn prune(value: &mut Value, schema: &Value) -> Fit {
    let Some(schema) = schema.as_object() else { return Fit::Whole };
    if !has_type(value, schema) {
        return Fit::Mismatch;
    }
    match value {
        Value::Object(fields) => prune_fields(fields, schema),
        Value::Array(items) => {
            let mut fit = Fit::Whole;
            let Some(schema) = schema.get("items") else { return fit };
            items.retain_mut(|item| {
                let of_item = prune(item, schema);
                is_kept(item, of_item, &mut fit)
            });
            fit
        }
        _ => Fit::Whole,
    }
}

fn prune_fields(fields: &mut Map<String, Value>, schema: &Map<String, Value>) -> Fit {
    let mut fit = Fit::Whole;
    let is_open = schema.get(OPEN) == Some(&Value::Bool(true));
    let other = schema.get("additionalProperties").filter(|other| **other != Value::Bool(false));
    fields.retain(|name, value| {
        let declared = schema.get("properties").and_then(|properties| properties.get(name));
        let of_field = match declared.or(other) {
            Some(declared) => prune(value, declared),
            None if is_open => Fit::Whole,
            None => Fit::Mismatch,
        };
        is_kept(value, of_field, &mut fit)
    });
    fit
}

/// Returns true if a part of a value is kept, and adds its agreement with the schema to that of the whole.
fn is_kept(part: &Value, of_part: Fit, whole: &mut Fit) -> bool {
    if of_part != Fit::Whole {
        *whole = Fit::Pruned;
    }
    of_part == Fit::Whole || of_part == Fit::Pruned && !is_empty(part)
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn has_type(value: &Value, schema: &Map<String, Value>) -> bool {
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    let permits = schema.get("enum").and_then(Value::as_array).is_none_or(|values| values.contains(value));
    permits
        && match schema.get("type").and_then(Value::as_str) {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(mut value: Value, schema: Value, fit: Fit, expected: Value) {
        assert_eq!(prune(&mut value, &schema), fit, "{schema}");
        assert_eq!(value, expected, "{schema}");
    }

    #[test]
    fn undeclared_fields_are_removed() {
        let text = json!({"type": "string"});
        let condition = json!({"type": "object", "properties": {"type": text, "status": text}});
        let schema = json!({"type": "object", "properties": {
            "conditions": {"type": "array", "items": condition},
            "open": {"type": "object", OPEN: true, "properties": {"count": {"type": "integer"}}},
            "map": {"type": "object", "additionalProperties": text},
            "port": {"x-kubernetes-int-or-string": true},
            "phase": {"type": "string", "enum": ["A", "B"]},
        }});
        check(
            json!({
                "conditions": [{"type": "A", "status": "True", "lastTransitionTime": "now"}, 1],
                "open": {"count": "many", "more": 1},
                "map": {"a": "b", "c": 1},
                "port": 80,
                "phase": "C",
                "release": {"revision": 1},
            }),
            schema.clone(),
            Fit::Pruned,
            json!({
                "conditions": [{"type": "A", "status": "True"}],
                "open": {"more": 1},
                "map": {"a": "b"},
                "port": 80,
            }),
        );
        let declared = json!({"conditions": [{"type": "A"}], "open": {"count": 1, "more": {}}, "phase": "A"});
        check(declared.clone(), schema, Fit::Whole, declared.clone());
        check(declared.clone(), Value::Bool(true), Fit::Whole, declared.clone());
        check(declared.clone(), json!({"type": "object", OPEN: true}), Fit::Whole, declared);
        check(json!({"a": 1}), json!({"type": "object"}), Fit::Pruned, json!({}));
        let text =
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}, "b": text}});
        check(json!({"a": [{"type": "A"}], "b": "c"}), text, Fit::Pruned, json!({"b": "c"}));
        check(json!({"a": 1}), json!({"type": "array"}), Fit::Mismatch, json!({"a": 1}));
    }

    #[test]
    fn atomic_list_contains_conditions_of_others() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let of = |conditions: &[Value]| json!({"conditions": conditions});
        let check = |desired: &[Value], before: &[Value], expected: &[Value]| {
            let mut status = of(desired);
            join(&mut status, &of(before), &["Own", "Failed"]);
            assert_eq!(status, of(expected));
        };
        let (own, foreign) = (condition("Own", "True"), condition("Foreign", "True"));
        let only_own = std::slice::from_ref(&own);
        check(only_own, &[], only_own);
        check(
            only_own,
            &[condition("Own", "False"), foreign.clone(), condition("Failed", "True")],
            &[own.clone(), foreign.clone()],
        );
        let failed = condition("Failed", "True");
        check(
            &[failed.clone(), own.clone()],
            &[foreign.clone(), condition("Own", "True")],
            &[foreign.clone(), own.clone(), failed.clone()],
        );
        check(&[failed.clone(), own.clone()], only_own, &[failed, own.clone()]);
        let mut status = json!({"phase": "A"});
        join(&mut status, &of(&[foreign]), &[]);
        assert_eq!(status, json!({"phase": "A"}));
    }

    #[test]
    fn required_fields_of_conditions_are_set() {
        let schema = json!({"required": ["reason", "message"], "properties": {"reason": {"minLength": 1}}});
        let mut status =
            json!({"conditions": [{"type": "A", "reason": ""}, {"type": "B", "reason": "R", "message": "m"}]});
        complete(&mut status, &schema);
        assert_eq!(
            status["conditions"],
            json!([{"type": "A", "reason": "A", "message": ""}, {"type": "B", "reason": "R", "message": "m"}])
        );
        let mut status = json!({"conditions": [{"type": "A"}]});
        complete(&mut status, &Value::Null);
        assert_eq!(status, json!({"conditions": [{"type": "A"}]}));
    }

    #[test]
    fn status_schema_is_that_of_the_kind() {
        let kind = Kind::new("example.com", "v1", "Site");
        let of = |kind: &str, more: Value| {
            let mut schema =
                json!({"x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": kind}]});
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            schema
        };
        let check = |schema: Value, expected: Option<Option<Value>>| {
            let list = of("SiteList", json!({"properties": {"status": {"type": "string"}}}));
            let mut document = json!({"components": {"schemas": {"a": list, "b": schema}}});
            assert_eq!(status_of(&mut document, &kind), expected);
        };
        let object = json!({"type": "object"});
        check(of("Site", json!({"properties": {"status": object}})), Some(Some(object)));
        check(of("Site", json!({"properties": {"spec": {}}})), Some(None));
        check(of("Site", json!({OPEN: true, "properties": {"spec": {}}})), Some(Some(Value::Bool(true))));
        check(of("Site", json!({})), Some(Some(Value::Bool(true))));
        check(of("Page", json!({"properties": {}})), None);
    }
}
