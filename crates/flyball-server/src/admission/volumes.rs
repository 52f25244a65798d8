//! What every new volume and claim gets: protection while it is in use, and a claim its class.

use super::Attributes;
use crate::kinds::Part;
use crate::server::Inner;
use flyball_core::{GroupResource, Object, ObjectKey, Quantity, Status};
use serde_json::{Value, json};

const DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn admit(inner: &Inner, attributes: &Attributes<'_>, object: &mut Object) {
    if attributes.is("", "persistentvolumeclaims") {
        class(inner, object);
        protect(object, "kubernetes.io/pvc-protection");
    } else if attributes.is("", "persistentvolumes") {
        protect(object, "kubernetes.io/pv-protection");
    }
}

fn protect(object: &mut Object, finalizer: &str) {
    if object.finalizers().any(|given| given == finalizer) {
        return;
    }
    let finalizers = object.metadata_mut().entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut() {
        finalizers.push(finalizer.into());
    }
}

/// Gives a claim that names no class the default one, of several the newest.
fn class(inner: &Inner, claim: &mut Object) {
    let named = claim.at(&["spec", "storageClassName"]).is_some_and(|class| !class.is_null());
    if named || claim.annotation(OLD_CLASS).is_some() {
        return;
    }
    let all = inner.store.list(&GroupResource::new("storage.k8s.io", "storageclasses"), None).entries;
    let default = |class: &Object| DEFAULT.iter().any(|annotation| class.annotation(annotation) == Some("true"));
    let created = |class: &Object| {
        class.at(&["metadata", "creationTimestamp"]).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let classes = all.iter().filter_map(|entry| entry.object().ok()).filter(default);
    let newest = classes.max_by_key(|class| (created(class), std::cmp::Reverse(class.name().to_owned())));
    if let (Some(class), Some(spec)) = (newest, claim.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("storageClassName".into(), class.name().into());
    }
}

/// Refuses to let a claim grow whose class does not allow it.
pub(super) fn validate(
    inner: &Inner,
    attributes: &Attributes<'_>,
    claim: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    let Some(old) = old.filter(|_| attributes.is("", "persistentvolumeclaims") && attributes.part == Part::Whole)
    else {
        return Ok(());
    };
    let size = |claim: &Object| {
        let size = claim.at(&["spec", "resources", "requests", "storage"]).and_then(Value::as_str);
        size.and_then(|size| size.parse().ok()).unwrap_or(Quantity::ZERO)
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    let refuse =
        |why: &str| Err(Status::forbidden(&attributes.resource.group_resource(), attributes.known_name(), why));
    if old.at(&["status", "phase"]) != Some(&"Bound".into()) {
        return refuse("only bound persistent volume claims can be expanded");
    }
    let class =
        claim.annotation(OLD_CLASS).or_else(|| claim.at(&["spec", "storageClassName"])?.as_str()).unwrap_or_default();
    let class = inner.store.get(&GroupResource::new("storage.k8s.io", "storageclasses"), &ObjectKey::new(None, class));
    if class
        .and_then(|class| class.object().ok())
        .is_some_and(|class| class.get("allowVolumeExpansion") == Some(&Value::Bool(true)))
    {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}
