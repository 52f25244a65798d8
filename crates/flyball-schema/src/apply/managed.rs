//! Owners of fields: `metadata.managedFields`.

use super::set::FieldSet;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The managers of an object and their fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedFields(pub(super) BTreeMap<Manager, Entry>);

/// The fields of one manager.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    /// API version of the field paths.
    pub(super) api_version: String,
    /// Time of the manager's last change; `None` if it only became the owner of existing fields.
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// A field manager. The same name for applies, for updates and for a subresource identifies three managers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// Kind of write.
    pub operation: Operation,
    /// Its name.
    pub name: String,
    /// API version of its writes; `None` for an applier, which is the same manager in all versions.
    pub api_version: Option<String>,
    /// Subresource that it writes to, empty for the object itself.
    pub subresource: String,
}

/// The kind of write of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply: the manager releases fields that it no longer sends.
    Apply,
    /// Any other write.
    Update,
}

impl Manager {
    /// Creates the manager of an apply.
    pub fn applier(name: &str, subresource: &str) -> Self {
        Self { operation: Operation::Apply, name: name.into(), api_version: None, subresource: subresource.into() }
    }

    /// Creates the manager of an update; one without a name is `unknown`.
    pub fn updater(name: &str, api_version: &str, subresource: &str) -> Self {
        let name = if name.is_empty() { "unknown" } else { name };
        Self {
            operation: Operation::Update,
            name: name.into(),
            api_version: Some(api_version.into()),
            subresource: subresource.into(),
        }
    }

    /// Formats the manager like in conflicts: `"kubectl" using apps/v1`.
    pub fn describe(&self) -> String {
        let mut text = flyball_core::field::go_quote(&self.name);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {}", flyball_core::field::go_quote(&self.subresource));
        }
        if let Some(api_version) = &self.api_version {
            text += &format!(" using {api_version}");
        }
        text
    }
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl ManagedFields {
    /// Parses `metadata.managedFields`; `None` if an entry is malformed.
    pub fn decode(entries: Option<&Value>) -> Option<Self> {
        let mut managed = Self::default();
        for entry in entries.and_then(Value::as_array).into_iter().flatten() {
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            let api_version = text("apiVersion");
            if text("fieldsType") != "FieldsV1" || api_version.is_empty() {
                return None;
            }
            let manager = match text("operation") {
                "Apply" => Manager::applier(text("manager"), text("subresource")),
                "Update" => {
                    Manager { name: text("manager").into(), ..Manager::updater("", api_version, text("subresource")) }
                }
                _ => return None,
            };
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::new(),
                Some(fields) => FieldSet::decode(fields)?,
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managed.put(Entry { manager, api_version: api_version.into(), time, fields });
        }
        Some(managed)
    }

    /// Returns the managers at the start of a write.
    ///
    /// A client may edit managedFields by hand: `[]` and `[{}]` clear them, a valid list replaces them, and an absent
    /// or malformed one keeps those of the live object. On a subresource the client's are ignored.
    pub fn for_write(live: Option<&Value>, client: Option<&Value>, subresource: bool) -> Self {
        let stored = || Self::decode(live).unwrap_or_default();
        let client = match client {
            Some(Value::Array(entries)) if !subresource => entries,
            _ => return stored(),
        };
        if client.is_empty() || matches!(&client[..], [Value::Object(only)] if only.is_empty()) {
            return Self::default();
        }
        let client = Value::Array(client.clone());
        Self::decode(Some(&client)).filter(|managed| !managed.0.is_empty()).unwrap_or_else(stored)
    }

    /// Encodes `metadata.managedFields`; `None` if no field has an owner.
    pub fn encode(self) -> Option<Value> {
        let mut entries: Vec<Entry> = self.0.into_values().collect();
        entries.sort_by(|a, b| {
            let key = |e: &Entry| (e.manager.operation, e.time.clone().unwrap_or_default());
            key(a).cmp(&key(b)).then_with(|| {
                (&a.manager.name, &a.api_version, &a.manager.subresource).cmp(&(
                    &b.manager.name,
                    &b.api_version,
                    &b.manager.subresource,
                ))
            })
        });
        let entries: Vec<Value> = entries.into_iter().map(Entry::encode).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    /// Returns the approximate memory in bytes of the fields as JSON, which may be far more than their own.
    pub fn json_bytes(&self) -> usize {
        self.0.values().map(|entry| entry.fields.json_bytes()).sum()
    }

    /// Returns true if no field has an owner.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, manager: &Manager) -> Option<&Entry> {
        self.0.get(manager)
    }

    /// Removes a manager and its ownership.
    pub fn remove(&mut self, manager: &Manager) {
        self.remove_entry(manager);
    }

    pub(super) fn remove_entry(&mut self, manager: &Manager) -> Option<Entry> {
        self.0.remove(manager)
    }

    pub(super) fn rename(&mut self, manager: &Manager, to: Manager) {
        if let Some(entry) = self.0.remove(manager) {
            self.put(Entry { manager: to, ..entry });
        }
    }

    /// Replaces the entry of a manager.
    pub(super) fn put(&mut self, entry: Entry) {
        self.0.insert(entry.manager.clone(), entry);
    }
}

impl FromIterator<Entry> for ManagedFields {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self(entries.into_iter().map(|entry| (entry.manager.clone(), entry)).collect())
    }
}

impl Entry {
    fn encode(self) -> Value {
        let mut out = Map::new();
        out.insert("apiVersion".into(), self.api_version.into());
        out.insert("fieldsType".into(), "FieldsV1".into());
        out.insert("fieldsV1".into(), self.fields.encode());
        out.insert("manager".into(), self.manager.name.into());
        out.insert("operation".into(), self.manager.operation.as_str().into());
        if !self.manager.subresource.is_empty() {
            out.insert("subresource".into(), self.manager.subresource.into());
        }
        if let Some(time) = self.time {
            out.insert("time".into(), json!(time));
        }
        Value::Object(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
               "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}})
    }

    #[test]
    fn entries_round_trip_with_appliers_first() {
        let entries = json!([entry("b", "Update"), entry("a", "Apply")]);
        let written = ManagedFields::decode(Some(&entries)).unwrap().encode().unwrap();
        assert_eq!(written, json!([entry("a", "Apply"), entry("b", "Update")]));
    }

    #[test]
    fn client_can_remove_or_replace_managers() {
        let live = json!([entry("live", "Apply")]);
        let write =
            |client: Value, subresource| ManagedFields::for_write(Some(&live), Some(&client), subresource).encode();
        assert_eq!(write(json!([]), false), None);
        assert_eq!(write(json!([{}]), false), None);
        assert_eq!(write(json!([{}]), true), Some(live.clone()));
        assert_eq!(write(json!([{"manager": "x"}]), false), Some(live.clone()));
        assert_eq!(write(json!([entry("x", "Update")]), false), Some(json!([entry("x", "Update")])));
        assert_eq!(ManagedFields::for_write(Some(&live), None, false).encode(), Some(live));
    }
}
