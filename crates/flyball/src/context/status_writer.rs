//! The status of a kind with several controllers, each of which sets a part of it.
//!
//! A server-side apply removes the fields that its field manager applied before and no longer applies: under a common
//! manager, controllers would remove each other's fields in a loop. So the first controller of a kind, in the order
//! of declaration, applies the status under the operator's field manager, as a single one does, and each further one
//! under `OPERATOR/CONTROLLER`.
//!
//! Invariant: no two controllers overwrite each other's fields in a loop. A controller that applies the same status
//! again, and finds that another one has changed a field of it in between, gets an error.

use super::recent::RecentEntries;
use crate::cache::{Entry, percent_encoded};
use crate::error::{Error, Result};
use flyball_core::ObjectKey;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::hash::{DefaultHasher, Hash, Hasher};
use tower::BoxError;

/// Length limit of a field manager, as in the API server.
const MAX_FIELD_MANAGER_LENGTH: usize = 128;

/// Limit of objects whose last desired status is stored.
const MAX_OBJECTS: usize = 10_000;

/// The field manager of one of several controllers of a kind, which sets its part of the status.
#[derive(Debug)]
pub(crate) struct StatusWriter {
    pub(crate) manager: String,
    /// The same for a query.
    pub(crate) encoded: String,
    /// Hash of the last desired status of each object.
    desired: Mutex<RecentEntries<ObjectKey, u64>>,
}

impl StatusWriter {
    /// Creates the writer that is the first of its kind, or a further one for a controller.
    pub(crate) fn new(operator: &str, further: Option<&str>) -> Result<Self, BoxError> {
        let name = |controller: &str| further.map_or_else(|| operator.into(), |_| format!("{operator}/{controller}"));
        let controller = further.unwrap_or_default();
        let manager = name(controller);
        match manager.len() <= MAX_FIELD_MANAGER_LENGTH {
            true => {
                let desired = Mutex::new(RecentEntries::new(MAX_OBJECTS));
                Ok(Self { manager, encoded: name(&percent_encoded(controller)), desired })
            }
            false => {
                let why = "the name is longer than 128 characters: shorten the name of the controller";
                Err(format!("cannot apply its status under the field manager {manager:?}: {why}").into())
            }
        }
    }

    /// Records the desired status of an object, and returns true if it is the same as before.
    pub(crate) fn record_desired(&self, key: &ObjectKey, status: &Value) -> bool {
        let mut hasher = DefaultHasher::new();
        status.to_string().hash(&mut hasher);
        let hash = hasher.finish();
        let mut desired = self.desired.lock();
        desired.insert(key.clone(), hash) == Some(hash)
    }

    /// Returns an error if the status would change a field of another controller.
    pub(crate) fn check(&self, known: &Entry, object: &Value) -> Result<()> {
        let live: Value = known.decode()?;
        for entry in known.applied_entries() {
            let theirs = entry["manager"].as_str().unwrap_or_default();
            if entry["subresource"] != "status" || theirs == self.manager {
                continue;
            }
            if let Some(path) = contested(&entry["fieldsV1"], object, &live) {
                return Err(Error::from(format!(
                    "{path} is set by another controller of the kind as well, as field manager {theirs:?}: let one of them \
                     set it, or give a list that both add to the list type map in its definition"
                ))
                .terminal());
            }
        }
        Ok(())
    }
}

/// Returns the first field owned by another manager that applying `desired` would change.
fn contested(owned: &Value, desired: &Value, live: &Value) -> Option<String> {
    owned.as_object()?.iter().find_map(|(name, owned)| {
        let (place, desired, live) = match name.split_at_checked(2)? {
            ("f:", field) => (format!(".{field}"), desired.get(field)?, live.get(field)),
            ("k:", key) => {
                let parts: Map<String, Value> = serde_json::from_str(key).ok()?;
                let is_it = |element: &&Value| parts.iter().all(|(part, value)| element.get(part) == Some(value));
                let live = live.as_array().and_then(|live| live.iter().find(is_it));
                (format!("[{key}]"), desired.as_array()?.iter().find(is_it)?, live)
            }
            _ => return None,
        };
        let is_leaf = owned.as_object().is_none_or(|owned| owned.keys().all(|name| name == "."));
        match is_leaf {
            true => (Some(desired) != live).then_some(place),
            false => contested(owned, desired, live.unwrap_or(&Value::Null)).map(|path| place + &path),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn change_of_field_owned_by_another_manager_is_contested() {
        let check = |owned: Value, desired: Value, live: Value, expected: Option<&str>| {
            let (desired, live) = (json!({"status": desired}), json!({"status": live}));
            assert_eq!(contested(&json!({"f:status": owned}), &desired, &live).as_deref(), expected, "{desired}");
        };
        check(json!({"f:a": {}}), json!({"b": 1}), json!({"a": 1}), None);
        check(json!({"f:a": {}}), json!({"a": 1}), json!({"a": 1}), None);
        check(json!({"f:a": {}}), json!({"a": 2}), json!({"a": 1}), Some(".status.a"));
        // An atomic list, and one whose elements have keys.
        let (ours, theirs) = (json!({"type": "A", "status": "True"}), json!({"type": "B", "status": "True"}));
        let both = |ours: &Value| json!({"conditions": [ours, theirs]});
        check(json!({"f:conditions": {}}), json!({"conditions": [ours]}), both(&ours), Some(".status.conditions"));
        let element = json!({".": {}, "f:type": {}, "f:status": {}});
        let theirs_owned = json!({"f:conditions": {r#"k:{"type":"B"}"#: element}});
        check(theirs_owned, json!({"conditions": [ours]}), both(&ours), None);
        let ours_owned = json!({"f:conditions": {r#"k:{"type":"A"}"#: element}});
        let changed = json!({"type": "A", "status": "False"});
        let path = r#".status.conditions[{"type":"A"}].status"#;
        check(ours_owned, json!({"conditions": [changed]}), both(&ours), Some(path));
    }

    #[test]
    fn overwritten_status_field_is_an_error() {
        let first = StatusWriter::new("op", None).unwrap();
        let second = StatusWriter::new("op", Some("second one")).unwrap();
        assert_eq!((&*first.manager, &*second.manager), ("op", "op/second one"));
        assert_eq!((&*first.encoded, &*second.encoded), ("op", "op/second%20one"));
        let key = ObjectKey::new(Some("ns"), "a");
        assert!(
            !second.record_desired(&key, &json!({"a": 2})),
            "fields that another controller set before are adopted"
        );
        assert!(second.record_desired(&key, &json!({"a": 2})) && !second.record_desired(&key, &json!({"a": 3})));
        let known = r#"{"metadata":{"name":"a","managedFields":[{"manager":"op","operation":"Apply","subresource":"status",
            "fieldsV1":{"f:status":{"f:a":{}}}}]},"status":{"a":1}}"#;
        let (_, known) = Entry::parse(known.as_bytes(), "op").unwrap();
        let object = json!({"status": {"a": 2}});
        assert!(first.check(&known, &object).is_ok());
        let error = second.check(&known, &object).unwrap_err().to_string();
        assert!(error.starts_with(".status.a is set by another controller of the kind as well"), "{error}");
        assert!(StatusWriter::new("op", Some(&"x".repeat(126))).is_err());
    }

    #[test]
    fn oldest_status_is_evicted() {
        let writer = StatusWriter::new("op", None).unwrap();
        let record_desired = |n: usize| writer.record_desired(&ObjectKey::new(None, &n.to_string()), &json!({}));
        // In reverse order, so that the newest has the smallest name.
        (0..=MAX_OBJECTS).rev().for_each(|n| _ = record_desired(n));
        assert!(record_desired(0) && !record_desired(MAX_OBJECTS));
    }
}
