//! DefaultStorageClass, StorageObjectInUseProtection and PersistentVolumeClaimResize.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, decided, default_class, pass};
use crate::kinds::{PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, Part, STORAGE_CLASS};
use crate::storage::Store;
use flyball_core::{Object, ObjectKey, Quantity, Status};
use serde_json::{Value, json};
use std::sync::Arc;

const DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Sets the storage class of new claims without one to the default class.
pub(super) struct DefaultStorageClass {
    store: Arc<Store>,
}

impl DefaultStorageClass {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Plugin for DefaultStorageClass {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        if let Some(claim) = object.filter(|_| attributes.operation == Operation::Create) {
            class(&self.store, claim);
        }
        pass()
    }
}

/// Protects volumes and claims from being deleted while they are in use.
pub(super) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        match object {
            Some(claim) if attributes.creates(&PERSISTENT_VOLUME_CLAIM) => {
                protect(claim, "kubernetes.io/pvc-protection");
            }
            Some(volume) if attributes.creates(&PERSISTENT_VOLUME) => {
                protect(volume, "kubernetes.io/pv-protection");
            }
            _ => {}
        }
        pass()
    }
}

/// Rejects the expansion of claims whose class does not allow it.
pub(super) struct PersistentVolumeClaimResize {
    store: Arc<Store>,
}

impl PersistentVolumeClaimResize {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Plugin for PersistentVolumeClaimResize {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        match (object, attributes.old) {
            (Some(claim), Some(old)) if attributes.part == Part::Whole => {
                decided(resize(&self.store, attributes, claim, old))
            }
            _ => pass(),
        }
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

/// Sets the storage class of a claim without one to the newest default class.
fn class(store: &Store, claim: &mut Object) {
    let named = claim.at(&["spec", "storageClassName"]).is_some_and(|class| !class.is_null());
    if named || claim.annotation(OLD_CLASS).is_some() {
        return;
    }
    let newest = default_class::newest(store, &STORAGE_CLASS, &DEFAULT);
    if let (Some(class), Some(spec)) = (newest, claim.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("storageClassName".into(), class.into());
    }
}

/// Rejects the expansion of a claim if its class does not allow it.
fn resize(store: &Store, attributes: &Attributes<'_>, claim: &Object, old: &Object) -> Result<(), Status> {
    let size = |claim: &Object| {
        let size = claim.at(&["spec", "resources", "requests", "storage"]).and_then(Value::as_str);
        size.and_then(|size| size.parse().ok()).unwrap_or(Quantity::ZERO)
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    let reject = |why: &str| Err(attributes.forbidden(why));
    if old.at(&["status", "phase"]) != Some(&"Bound".into()) {
        return reject("only bound persistent volume claims can be expanded");
    }
    let class =
        claim.annotation(OLD_CLASS).or_else(|| claim.at(&["spec", "storageClassName"])?.as_str()).unwrap_or_default();
    let class = store.get(&STORAGE_CLASS.table(), &ObjectKey::new(None, class));
    if class
        .and_then(|class| class.object().ok())
        .is_some_and(|class| class.get("allowVolumeExpansion") == Some(&Value::Bool(true)))
    {
        return Ok(());
    }
    reject(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}
