//! ServiceAccount: sets the service account of a new pod, and mounts its token.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#serviceaccount>.

use super::pod::{check_room, list, spec};
use super::{Attributes, LONG_READ_BYTES, Operation, Plugin, PluginResult, Reinvocation, WriteCost, decided, pass};
use crate::kinds::{POD, SERVICE_ACCOUNT};
use crate::storage::Store;
use flyball_core::memory::NODE;
use flyball_core::{Object, ObjectKey, Rng, Status};
use serde_json::{Value, json};
use std::sync::Arc;

/// Sets the service account of new pods.
pub(super) struct ServiceAccount {
    store: Arc<Store>,
    rng: Rng,
}

impl ServiceAccount {
    pub(super) fn new(store: Arc<Store>, rng: Rng) -> Self {
        Self { store, rng }
    }
}

impl WriteCost for ServiceAccount {
    fn is_slow(&self, plural: &str, namespace: Option<&str>) -> bool {
        // One of them is decoded. Which one is known after the pod is decoded.
        let accounts = || self.store.list(&SERVICE_ACCOUNT.table(), namespace).entries;
        plural == POD.plural && accounts().iter().any(|account| account.body.len() >= LONG_READ_BYTES)
    }
}

impl Plugin for ServiceAccount {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        match object.filter(|_| attributes.operation == Operation::Create) {
            Some(pod) => decided(service_account(&self.store, &self.rng, attributes, pod)),
            None => pass(),
        }
    }
}

/// Memory of the mount of a token in a container: a list of four, a map, its names.
const MOUNT_WEIGHT: usize = 2 * NODE;

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Sets the service account of a pod, which must exist, and mounts the account's token.
fn service_account(store: &Store, rng: &Rng, attributes: &Attributes<'_>, pod: &mut Object) -> Result<(), Status> {
    if pod.annotation("kubernetes.io/config.mirror").is_some() {
        return Ok(());
    }
    let name = {
        let spec = spec(pod);
        let name = spec
            .get("serviceAccountName")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())
            .unwrap_or("default")
            .to_owned();
        spec.insert("serviceAccountName".into(), name.as_str().into());
        spec.insert("serviceAccount".into(), name.as_str().into());
        name
    };
    let key = ObjectKey::new(attributes.namespace, &name);
    let Some(account) = store.get(&SERVICE_ACCOUNT.table(), &key).and_then(|entry| entry.object().ok()) else {
        let namespace = attributes.namespace.unwrap_or_default();
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(attributes.forbidden(why));
    };
    let spec = spec(pod);
    let automounts = spec
        .get("automountServiceAccountToken")
        .or_else(|| account.get("automountServiceAccountToken"))
        .and_then(Value::as_bool);
    if !spec.contains_key("imagePullSecrets")
        && let Some(secrets) = account.get("imagePullSecrets")
    {
        spec.insert("imagePullSecrets".into(), secrets.clone());
    }
    if automounts == Some(false) {
        return Ok(());
    }
    check_room(pod, MOUNT_WEIGHT)?;
    let spec = self::spec(pod);
    const VOLUME: &str = "kube-api-access-";
    let known = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let known = known.filter_map(|volume| volume["name"].as_str()).find(|name| name.starts_with(VOLUME));
    let known = known.map(str::to_owned);
    let volume = known.clone().unwrap_or_else(|| format!("{VOLUME}{}", rng.suffix(5)));
    let mut mounted = false;
    for field in ["initContainers", "containers"] {
        for container in
            spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
        {
            let mounts = list(container, "volumeMounts");
            if mounts.iter().any(|mount| mount["mountPath"] == TOKEN_PATH) {
                continue;
            }
            mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
            mounted = true;
        }
    }
    if mounted && known.is_none() {
        let namespace =
            json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ]);
        list(spec, "volumes").push(json!({"name": volume, "projected": {"sources": sources, "defaultMode": 420}}));
    }
    Ok(())
}
