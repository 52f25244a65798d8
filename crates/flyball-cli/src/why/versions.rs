//! Earlier versions of objects: which part of an object a write changed.
//!
//! A list at an exact resource version returns the state of that time, as long as the API server keeps it: a few
//! minutes with etcd. A version that cannot be read proves nothing.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.

use super::fields::{self, Segment};
use super::page::Object;
use super::reasons::pause_annotation;
use crate::cluster::kinds::Kinds;
use http::Request;
use kube::Client;
use serde_json::Value;
use std::collections::BTreeMap;

/// Limit of the versions that are read for one answer.
const MAX_READS: usize = 128;

/// The most important part of an object that a change touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The specification or the data, the creation, or the request to delete the object.
    Spec,
    /// Labels, annotations and owners.
    Metadata,
    /// Only the finalizers, which are those of an operator.
    Finalizers,
    /// Only the status.
    Status,
}

/// Two versions of an object; `null` if it does not exist.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    before: Value,
    after: Value,
}

/// The versions that the API server still has.
pub(super) struct History<'a> {
    client: &'a Client,
    kinds: &'a Kinds,
    read: BTreeMap<(Object, u64), Option<Value>>,
}

impl<'a> History<'a> {
    pub(super) fn new(client: &'a Client, kinds: &'a Kinds) -> Self {
        Self { client, kinds, read: BTreeMap::new() }
    }

    /// Returns the versions around a write.
    pub(super) async fn of_write(&mut self, object: &Object, revision: &str) -> Option<Versions> {
        let revision: u64 = revision.parse().ok()?;
        self.between(object, revision.checked_sub(1)?, revision).await
    }

    /// Returns the versions at two revisions.
    pub(super) async fn between(&mut self, object: &Object, before: u64, after: u64) -> Option<Versions> {
        Some(Versions { after: self.at(object, after).await?, before: self.at(object, before).await? })
    }

    async fn at(&mut self, object: &Object, revision: u64) -> Option<Value> {
        let key = (object.clone(), revision);
        if let Some(known) = self.read.get(&key) {
            return known.clone();
        }
        if self.read.len() >= MAX_READS {
            return None;
        }
        let found = self.request(object, revision).await;
        self.read.insert(key, found.clone());
        found
    }

    async fn request(&self, object: &Object, revision: u64) -> Option<Value> {
        let kind = self.kinds.of(&object.api_version(), &object.kind)?;
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("fieldSelector", &format!("metadata.name={}", object.name));
        query.append_pair("resourceVersion", &revision.to_string()).append_pair("resourceVersionMatch", "Exact");
        let path = format!("{}?{}", kind.path(object.namespace.as_deref(), None), query.finish());
        let mut list: Value = self.client.request(Request::get(path).body(Vec::new()).ok()?).await.ok()?;
        let Value::Array(items) = list["items"].take() else { return None };
        let named = items.into_iter().find(|item| item["metadata"]["name"] == *object.name);
        Some(named.unwrap_or_default())
    }
}

impl Versions {
    fn is_new(&self) -> bool {
        self.before.is_null() || self.before["metadata"]["uid"] != self.after["metadata"]["uid"]
    }

    /// Returns the most important part that differs.
    pub(super) fn change(&self) -> Change {
        let differs = |name: &str| self.before[name] != self.after[name];
        let names = |object: &Value| object.as_object().cloned().unwrap_or_default().into_iter().map(|(name, _)| name);
        let is_spec = |name: &String| !matches!(&**name, "apiVersion" | "kind" | "metadata" | "status");
        let mut spec = names(&self.before).chain(names(&self.after)).filter(is_spec);
        if self.is_new() || spec.any(|name| differs(&name)) {
            return Change::Spec;
        }
        let (before, after) = (&self.before["metadata"], &self.after["metadata"]);
        let differs = |name: &str| before[name] != after[name];
        match differs("finalizers") {
            _ if differs("deletionTimestamp") => Change::Spec,
            _ if ["labels", "annotations", "ownerReferences"].into_iter().any(differs) => Change::Metadata,
            true => Change::Finalizers,
            false => Change::Status,
        }
    }

    /// Returns true if a field differs.
    pub(super) fn changes(&self, path: &[Segment]) -> bool {
        let before = if self.is_new() { &Value::Null } else { fields::value(&self.before, path) };
        before != fields::value(&self.after, path)
    }

    /// Returns true if the change ended a pause.
    pub(super) fn resumes(&self) -> bool {
        pause_annotation(&self.before).is_some() && pause_annotation(&self.after).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn versions(before: Value, after: Value) -> Versions {
        Versions { before, after }
    }

    #[test]
    fn most_important_part_of_a_change_is_found() {
        let object = |metadata: Value, size: u32, ready: u32| json!({"metadata": metadata, "spec": {"size": size}, "status": {"ready": ready}});
        let check = |before: Value, after: Value, expected| {
            assert_eq!(versions(before.clone(), after.clone()).change(), expected, "{before} {after}");
        };
        let plain = || object(json!({"resourceVersion": "1"}), 1, 0);
        check(Value::Null, plain(), Change::Spec);
        check(plain(), object(json!({"resourceVersion": "2"}), 2, 1), Change::Spec);
        check(plain(), object(json!({"resourceVersion": "2"}), 1, 1), Change::Status);
        check(plain(), object(json!({"finalizers": ["a"], "managedFields": []}), 1, 0), Change::Finalizers);
        check(plain(), object(json!({"finalizers": ["a"], "labels": {"a": "b"}}), 1, 0), Change::Metadata);
        check(plain(), object(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), 1, 0), Change::Spec);
        check(json!({"metadata": {"uid": "a"}}), json!({"metadata": {"uid": "b"}}), Change::Spec);
        check(json!({"data": {"a": "1"}}), json!({}), Change::Spec);
    }

    #[test]
    fn changes_of_a_field_and_the_end_of_a_pause_are_found() {
        let path = fields::parse("spec.size").unwrap();
        let object = |size: u32, paused: &str| json!({"spec": {"size": size}, "metadata": {"annotations": {"flyball.dev/paused": paused}}});
        let changes = |before: Value, after: Value| versions(before, after).changes(&path);
        assert!(changes(object(1, ""), object(2, "")) && changes(Value::Null, object(1, "")));
        assert!(!changes(object(1, "true"), object(1, "")));
        let resumes = |before: &str, after: &str| versions(object(1, before), object(1, after)).resumes();
        assert!(resumes("true", "false") && !resumes("true", "true") && !resumes("", "true"));
    }
}
