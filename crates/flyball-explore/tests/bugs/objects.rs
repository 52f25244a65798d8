//! Objects and permissions that several operators need.

use flyball::{Context, ObjectKey, Resource, Result};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};

/// A class whose volumes are provisioned at once and can grow.
pub(crate) const STORAGE_CLASS: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: expandable}
provisioner: flyball.dev/simulated
allowVolumeExpansion: true
";

/// Returns a set of pods with one volume each, and labels of the pods and of the claims.
pub(crate) fn stateful_set(
    name: &str,
    replicas: i32,
    gibibytes: i32,
    labels: &Value,
    claim_labels: &Value,
) -> Result<StatefulSet> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{
                    "name": "server",
                    "image": "registry.example.com/server:1",
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }]},
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data", "labels": claim_labels},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "expandable",
                    "resources": {"requests": {"storage": format!("{gibibytes}Gi")}},
                },
            }],
        },
    }))?)
}

/// Returns the key of the object that a label of a claim names.
pub(crate) fn owner_of(claim: &PersistentVolumeClaim, label: &str) -> Vec<ObjectKey> {
    let name = claim.labels().get(label);
    name.map(|name| ObjectKey::new(claim.namespace().as_deref(), name)).into_iter().collect()
}

/// Returns the requested size of a volume in GiB.
pub(crate) fn claim_size(claim: &PersistentVolumeClaim) -> i32 {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let storage = requests.and_then(|requests| requests.get("storage")).map_or("", |storage| &storage.0);
    storage.strip_suffix("Gi").and_then(|size| size.parse().ok()).unwrap_or_default()
}

/// Returns the size of the volumes that a set creates, in GiB.
pub(crate) fn template_size(set: &StatefulSet) -> i32 {
    let templates = set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_ref());
    templates.and_then(|templates| templates.first()).map_or(0, claim_size)
}

/// Returns the API of a kind, in the namespace of the object that is reconciled.
pub(crate) fn api<K, T>(cx: &Context<K>) -> Api<T>
where
    K: Resource,
    T: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or("default"))
}

/// Returns the permission for requests through the client.
pub(crate) fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(vec![resource.into()]),
        verbs: verbs.iter().map(|&verb| verb.into()).collect(),
        ..PolicyRule::default()
    }
}
