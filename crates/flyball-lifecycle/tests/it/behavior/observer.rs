//! A watch of all kinds that the recordings contain: the objects at rest, and the states that they pass through.

use super::normalization::{Names, state};
use futures_util::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Group, version, kind and plural of the watched kinds.
const KINDS: [(&str, &str, &str, &str); 24] = [
    ("operators.coreos.com", "v1alpha1", "ClusterServiceVersion", "clusterserviceversions"),
    ("operators.coreos.com", "v1alpha1", "Subscription", "subscriptions"),
    ("operators.coreos.com", "v1alpha1", "InstallPlan", "installplans"),
    ("operators.coreos.com", "v1alpha1", "CatalogSource", "catalogsources"),
    ("operators.coreos.com", "v1", "OperatorGroup", "operatorgroups"),
    ("operators.coreos.com", "v2", "OperatorCondition", "operatorconditions"),
    ("operators.coreos.com", "v1", "Operator", "operators"),
    ("", "v1", "Namespace", "namespaces"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("", "v1", "Service", "services"),
    ("", "v1", "Secret", "secrets"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("apps", "v1", "Deployment", "deployments"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
];

/// Pause before a watch that ended is opened again.
const REOPEN: Duration = Duration::from_millis(10);

/// Returns the resource of a kind.
pub(crate) fn resource_of(kind: &str) -> Option<ApiResource> {
    let (group, version, kind, plural) = KINDS.into_iter().find(|(_, _, known, _)| *known == kind)?;
    Some(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural))
}

/// Returns `Kind namespace/name`, or `Kind name`.
pub(crate) fn key_of(kind: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

#[derive(Default)]
struct Record {
    objects: BTreeMap<String, Value>,
    /// The states of each object since the last step began.
    states: BTreeMap<String, Vec<Value>>,
    names: Names,
    changed: Option<Instant>,
}

/// Watches that run until this is dropped.
pub(crate) struct Observer {
    record: Arc<Mutex<Record>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Observer {
    pub(crate) fn start(client: &Client) -> Self {
        let record = Arc::new(Mutex::new(Record::default()));
        let watch = |(_, _, kind, _)| {
            let resource = resource_of(kind).expect("it is in the table");
            tokio::spawn(watch(Api::all_with(client.clone(), &resource), kind, record.clone()))
        };
        Self { tasks: KINDS.map(watch).into(), record }
    }

    /// Waits until no watched object has changed for this long, or the limit is reached.
    pub(crate) async fn quiet(&self, quiet: Duration, limit: Duration) {
        let began = Instant::now();
        while began.elapsed() < limit {
            let last = self.record.lock().changed.unwrap_or(began).max(began);
            if last.elapsed() >= quiet {
                return;
            }
            tokio::time::sleep_until(last + quiet).await;
        }
    }

    /// Returns an object as it is now.
    pub(crate) fn object(&self, key: &str) -> Option<Value> {
        self.record.lock().objects.get(key).cloned()
    }

    /// Returns the keys of all objects.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.record.lock().objects.keys().cloned().collect()
    }

    /// Forgets the states of the previous step.
    pub(crate) fn begin_step(&self) {
        self.record.lock().states.clear();
    }

    /// Returns the states of each object since the step began.
    pub(crate) fn states(&self) -> BTreeMap<String, Vec<Value>> {
        let record = self.record.lock();
        let of = |(key, states): (&String, &Vec<Value>)| {
            let mut states = states.clone();
            states.dedup();
            (record.names.replace(key), states)
        };
        record.states.iter().map(of).collect()
    }

    /// Returns all objects, normalized, by their normalized keys.
    pub(crate) fn objects(&self) -> BTreeMap<String, Value> {
        let record = self.record.lock();
        let recorded = record.objects.iter().filter(|(key, object)| !is_left_out(key, object));
        recorded.map(|(key, object)| (record.names.replace(key), record.names.object(object))).collect()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Returns true for objects that the recordings do not contain.
fn is_left_out(key: &str, object: &Value) -> bool {
    key.ends_with("/kube-root-ca.crt")
        || key.starts_with("ServiceAccount ") && key.ends_with("/default")
        || object["kind"] == "ClusterRole"
            && ["admin", "edit", "view"].contains(&key.trim_start_matches("ClusterRole "))
}

async fn watch(api: Api<DynamicObject>, kind: &'static str, record: Arc<Mutex<Record>>) {
    let mut from = "0".to_owned();
    loop {
        if let Ok(stream) = api.watch(&WatchParams::default(), &from).await {
            let mut stream = stream.boxed();
            while let Ok(Some(event)) = stream.try_next().await {
                let (object, is_deleted) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                    WatchEvent::Deleted(object) => (object, true),
                    WatchEvent::Bookmark(bookmark) => {
                        from = bookmark.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(_) => break,
                };
                from = object.metadata.resource_version.clone().unwrap_or_default();
                record.lock().changed(kind, object, is_deleted);
            }
        }
        tokio::time::sleep(REOPEN).await;
    }
}

impl Record {
    fn changed(&mut self, kind: &str, object: DynamicObject, is_deleted: bool) {
        let metadata = &object.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let key = key_of(kind, metadata.namespace.as_deref().unwrap_or_default(), &name);
        self.names.add(&key, metadata.uid.as_deref().unwrap_or_default());
        let mut value = serde_json::to_value(&object).unwrap();
        let Some((group, version, ..)) = KINDS.into_iter().find(|(_, _, known, _)| *known == kind) else { return };
        value["kind"] = kind.into();
        value["apiVersion"] = if group.is_empty() { version.into() } else { format!("{group}/{version}").into() };
        if is_deleted {
            self.objects.remove(&key);
        } else if self.objects.get(&key) == Some(&value) {
            return;
        } else {
            self.objects.insert(key.clone(), value.clone());
        }
        self.changed = Some(Instant::now());
        let state = if is_deleted { Some(json!({"deleted": true})) } else { state(kind, &value) };
        if let Some(state) = state.filter(|_| has_states(kind)) {
            let state = self.names.replace_in(&state);
            self.states.entry(key).or_default().push(state);
        }
    }
}

/// Returns true if the recordings contain the states of a kind.
fn has_states(kind: &str) -> bool {
    KINDS[..6].iter().any(|(_, _, known, _)| *known == kind)
}

/// Returns true if one of the states has these fields.
pub(crate) fn has_seen(states: &[Value], expected: &Map<String, Value>) -> bool {
    states.iter().any(|state| expected.iter().all(|(field, value)| state[field] == *value))
}
