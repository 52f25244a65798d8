//! Changes of an operator outside of the namespace of its test: cluster-scoped objects and other namespaces.
//!
//! They are derived from the operator's requests and the responses, so that only its own changes count. Changes are
//! expected for objects that the test created, for objects that these own, and for those that the test
//! [allows](Allowlist). A kind is no exception: a custom resource of another tenant is of the operator's own kind. This
//! module sends no requests.

use http::{Method, Uri};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Groups of review kinds, whose creation stores no object.
const REVIEW_GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Changes that an operator may make outside of the namespace of its test.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowlist {
    pub(super) namespaces: BTreeSet<String>,
    /// Groups and plurals, and groups and kinds.
    pub(super) resources: BTreeSet<(String, String)>,
}

/// The object that a request writes, or a whole collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteTarget {
    group: String,
    namespace: Option<String>,
    plural: String,
    name: Option<String>,
    /// The path of the collection.
    collection: String,
}

impl WriteTarget {
    /// Returns the target of a request; `None` if it writes no object.
    pub(super) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let is_dry = uri.query().unwrap_or_default().split('&').any(|option| option == "dryRun=All");
        if method == Method::GET || is_dry {
            return None;
        }
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match *parts.first()? {
            "api" => ("", parts.get(2..)?),
            "apis" => (*parts.get(1)?, parts.get(3..)?),
            _ => return None,
        };
        let is_within = rest.first() == Some(&"namespaces")
            && rest.get(2).is_some_and(|part| !["status", "finalize"].contains(part));
        let (namespace, rest) = if is_within { (rest.get(1), rest.get(2..)?) } else { (None, rest) };
        let before = parts.len() - rest.len();
        Some(Self {
            group: group.to_owned(),
            namespace: namespace.map(|namespace| (*namespace).to_owned()),
            plural: (*rest.first()?).to_owned(),
            name: rest.get(1).map(|name| (*name).to_owned()),
            collection: format!("/{}", parts.get(..=before)?.join("/")),
        })
    }

    fn object(&self, response: &Value) -> String {
        let name = self.name.as_deref().or(response["metadata"]["name"].as_str()).unwrap_or("*");
        format!("{}/{name}", self.collection)
    }

    fn is_review(&self) -> bool {
        REVIEW_GROUPS.contains(&&*self.group)
    }

    fn is_event(&self) -> bool {
        self.plural == "events" && ["", "events.k8s.io"].contains(&&*self.group)
    }
}

/// The changes outside of one namespace.
#[derive(Debug, Default)]
pub(super) struct ForeignChanges {
    home: String,
    allowed: Allowlist,
    /// Paths of objects that the test created, and of expected ones, whose deletion names no owner.
    expected: BTreeSet<String>,
    /// UIDs and namespaces of possible owners.
    owners: BTreeMap<String, Option<String>>,
    changed: BTreeSet<String>,
    unexpected: BTreeMap<String, Method>,
}

impl ForeignChanges {
    pub(super) fn new(home: &str, allowed: Allowlist) -> Self {
        Self { home: home.to_owned(), allowed, ..Self::default() }
    }

    /// Records a write of the test.
    pub(super) fn record_test_write(&mut self, place: &WriteTarget, response: &Value) {
        self.expect(place, response);
    }

    fn expect(&mut self, place: &WriteTarget, response: &Value) {
        self.expected.insert(place.object(response));
        let uid = response["metadata"]["uid"].as_str();
        self.owners.extend(uid.map(|uid| (uid.to_owned(), place.namespace.clone())));
    }

    /// Records a write of the operator.
    pub(super) fn changed(&mut self, method: &Method, place: &WriteTarget, response: &Value) {
        if place.is_review() || place.namespace.as_ref() == Some(&self.home) {
            return;
        }
        if place.is_event() && self.is_about_expected(response) {
            return;
        }
        let object = place.object(response);
        let resource = (place.group.clone(), place.plural.clone());
        let owners = response["metadata"]["ownerReferences"].as_array();
        let is_expected = self.expected.contains(&object)
            || self.allowed.resources.contains(&resource)
            || place.namespace.as_ref().is_some_and(|namespace| self.allowed.namespaces.contains(namespace))
            || owners.into_iter().flatten().any(|owner| self.owns(owner, place.namespace.as_ref()));
        if is_expected {
            self.expect(place, response);
        } else {
            self.unexpected.entry(object.clone()).or_insert_with(|| method.clone());
        }
        self.changed.insert(object);
    }

    /// Returns true if an event is about an object that the operator may change.
    fn is_about_expected(&self, event: &Value) -> bool {
        let about = ["involvedObject", "regarding"].iter().map(|name| &event[*name]).find(|about| about.is_object());
        let Some(about) = about else { return false };
        let text = |name: &str| about[name].as_str().unwrap_or_default();
        let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
        let namespace = text("namespace");
        namespace == self.home
            || self.allowed.namespaces.contains(namespace)
            || self.allowed.resources.contains(&(group.to_owned(), text("kind").to_owned()))
            || self.owners.contains_key(text("uid"))
    }

    /// Returns true if a reference names an expected object without a namespace, or in this one: others own nothing.
    fn owns(&self, owner: &Value, namespace: Option<&String>) -> bool {
        let owner = self.owners.get(owner["uid"].as_str().unwrap_or_default());
        owner.is_some_and(|of| of.is_none() || of.as_ref() == namespace)
    }

    /// Returns the paths of the objects that the operator changed.
    pub(super) fn all(&self) -> BTreeSet<String> {
        self.changed.clone()
    }

    /// Describes the unexpected changes.
    pub(super) fn unexpected(&self) -> Vec<String> {
        self.unexpected.iter().map(|(object, method)| format!("{method} {object}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn write_target(method: &Method, path: &str) -> Option<WriteTarget> {
        WriteTarget::of(method, &path.parse().expect("it is a path"))
    }

    #[test]
    fn request_determines_the_written_object() {
        let object = |path: &str| write_target(&Method::PATCH, path).map(|place| place.object(&json!(null)));
        assert_eq!(object("/api/v1/namespaces/a/status").as_deref(), Some("/api/v1/namespaces/a"));
        let job = "/apis/batch/v1/namespaces/a/jobs/b";
        assert_eq!(object(&format!("{job}/status?fieldManager=x")).as_deref(), Some(job));
        assert_eq!((write_target(&Method::GET, job), object(&format!("{job}?force=true&dryRun=All"))), (None, None));
        for query in ["fieldManager=dryRun=All", "notdryRun=All", "dryRun="] {
            assert_eq!(object(&format!("{job}?{query}")).as_deref(), Some(job), "{query} is not a dry run");
        }
        let created = write_target(&Method::POST, "/apis/a.b/v1/widgets")
            .map(|it| it.object(&json!({"metadata": {"name": "w"}})));
        assert_eq!(created.as_deref(), Some("/apis/a.b/v1/widgets/w"));
    }

    #[test]
    fn objects_owned_by_expected_objects_are_expected() {
        let mut foreign = ForeignChanges::new("home", Allowlist::default());
        let mut write = |path: &str, uid: &str, owner: &str| {
            let place = write_target(&Method::POST, path).expect("it writes");
            let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "uid": owner}]);
            let response = json!({"metadata": {"name": uid, "uid": uid, "ownerReferences": owners}});
            if owner == "test" {
                foreign.record_test_write(&place, &response)
            } else {
                foreign.changed(&Method::POST, &place, &response)
            }
            foreign.unexpected().len()
        };
        assert_eq!(write("/api/v1/namespaces/home/configmaps", "m", "nobody"), 0);
        assert_eq!(write("/api/v1/namespaces/other/configmaps", "a", "test"), 0);
        assert_eq!(write("/api/v1/namespaces/other/secrets", "b", "a"), 0);
        assert_eq!(write("/api/v1/namespaces/other/secrets", "c", "b"), 0);
        assert_eq!(write("/api/v1/namespaces/other/secrets", "d", "x"), 1);
        assert_eq!(write("/api/v1/nodes", "e", "x"), 2);
        assert_eq!(write("/api/v1/namespaces/third/secrets", "f", "a"), 3, "owners of another namespace own nothing");
        assert_eq!(write("/api/v1/persistentvolumes", "g", "test"), 3);
        assert_eq!(write("/api/v1/namespaces/third/secrets", "h", "g"), 3);
        let deleted = write_target(&Method::DELETE, "/api/v1/namespaces/other/secrets/b").expect("it writes");
        foreign.changed(&Method::DELETE, &deleted, &json!({"kind": "Status", "status": "Success"}));
        assert_eq!(foreign.unexpected().len(), 3, "an owned object may be deleted");
    }

    #[test]
    fn events_about_permitted_objects_are_expected_and_leases_are_not() {
        let mut foreign = ForeignChanges::new("home", Allowlist::default());
        let mut write = |path: &str, about: Value| {
            let response = json!({"metadata": {"name": "e"}, "involvedObject": about});
            foreign.changed(&Method::POST, &write_target(&Method::POST, path).expect("it writes"), &response);
            foreign.unexpected().len()
        };
        let pod = |namespace: &str| json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "uid": "p"});
        assert_eq!(write("/api/v1/namespaces/default/events", pod("home")), 0);
        assert_eq!(write("/api/v1/namespaces/other/events", pod("other")), 1);
        assert_eq!(write("/apis/events.k8s.io/v1/namespaces/other/events", json!(null)), 2);
        assert_eq!(write("/apis/coordination.k8s.io/v1/namespaces/home/leases", json!(null)), 2);
        assert_eq!(write("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", json!(null)), 3);
        assert_eq!(write("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json!(null)), 3);
    }
}
