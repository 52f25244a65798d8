//! Ownership: owner references in the namespace of a ClusterServiceVersion, labels elsewhere.

use crate::api::{ClusterServiceVersion, labels};
use flyball::ObjectKey;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};

/// The kind in owner references and labels.
pub(crate) const KIND: &str = "ClusterServiceVersion";

/// Returns the labels that name an owner.
pub(crate) fn owner_labels(namespace: &str, name: &str, kind: &str) -> Map<String, Value> {
    [(labels::OWNER, name), (labels::OWNER_KIND, kind), (labels::OWNER_NAMESPACE, namespace)]
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value.into()))
        .collect()
}

/// Returns the labels of an owner that is a ClusterServiceVersion.
pub(super) fn labels_of(csv: &ClusterServiceVersion) -> Map<String, Value> {
    owner_labels(&csv.namespace().unwrap_or_default(), &csv.name_any(), KIND)
}

/// Returns an owner reference to a ClusterServiceVersion, which is not its controller, as in OLM: the object may have
/// several owners during an upgrade.
pub(crate) fn owner_reference(csv: &ClusterServiceVersion) -> Value {
    reference("operators.coreos.com/v1alpha1", KIND, &csv.name_any(), csv.uid().as_deref(), false)
}

/// Returns an owner reference. It has no UID if the owner does not exist yet.
pub(crate) fn reference(api_version: &str, kind: &str, name: &str, uid: Option<&str>, controller: bool) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid.unwrap_or_default(),
        "controller": controller,
        "blockOwnerDeletion": false,
    })
}

/// Returns the labels of a ClusterServiceVersion that make its objects components of an Operator.
pub(crate) fn component_labels(csv: &ClusterServiceVersion) -> Map<String, Value> {
    let is_component = |(label, _): &(&String, &String)| label.starts_with(labels::COMPONENT_PREFIX);
    let found = csv.metadata.labels.iter().flatten().filter(is_component);
    found.map(|(label, value)| (label.clone(), value.as_str().into())).collect()
}

/// Adds the labels that all objects of a ClusterServiceVersion have.
pub(crate) fn managed(mut object: Value, csv: &ClusterServiceVersion) -> Value {
    add_labels(&mut object, component_labels(csv));
    add_labels(&mut object, [(labels::MANAGED.to_owned(), "true".into())].into_iter().collect());
    object
}

/// Adds labels to an object.
pub(super) fn add_labels(object: &mut Value, added: Map<String, Value>) {
    let metadata = object["metadata"].as_object_mut().expect("objects are built with metadata");
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.extend(added);
    }
}

/// Returns the ClusterServiceVersions that own an object.
pub(crate) fn owners(meta: &ObjectMeta) -> Vec<ObjectKey> {
    let by_reference = meta
        .owner_references
        .iter()
        .flatten()
        .filter(|owner| owner.kind == KIND && owner.api_version.starts_with(crate::api::GROUP));
    let mut owners: Vec<ObjectKey> =
        by_reference.map(|owner| ObjectKey::new(meta.namespace.as_deref(), &owner.name)).collect();
    let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    if let (Some(KIND), Some(namespace), Some(name)) =
        (label(labels::OWNER_KIND), label(labels::OWNER_NAMESPACE), label(labels::OWNER))
    {
        owners.push(ObjectKey::new(Some(namespace), name));
    }
    owners
}
