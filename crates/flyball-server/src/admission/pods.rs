//! What every new pod gets: a service account with its token mounted, a priority, tolerations of nodes that fail.

use super::Attributes;
use crate::request::body;
use crate::request::weight::MAX_WEIGHT;
use crate::server::Inner;
use flyball_core::memory::{self, NODE};
use flyball_core::{GroupResource, Object, ObjectKey, Status};
use serde_json::{Map, Value, json};

pub(super) fn admit(inner: &Inner, attributes: &Attributes<'_>, pod: &mut Object) -> Result<(), Status> {
    service_account(inner, attributes, pod)?;
    tolerations(pod);
    priority(inner, attributes, pod)?;
    runtime_class(inner, attributes, pod)
}

/// Gives a changed pod again what a new one gets, where the change leaves it out.
pub(super) fn admit_change(pod: &mut Object, old: &Object) {
    tolerations(pod);
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = old.at(&["spec", field]) {
            spec(pod).entry(field).or_insert_with(|| value.clone());
        }
    }
}

fn spec(pod: &mut Object) -> &mut Map<String, Value> {
    let spec = pod.entry("spec").or_insert_with(|| json!({}));
    if !spec.is_object() {
        *spec = json!({});
    }
    spec.as_object_mut().expect("just made one")
}

fn list<'s>(spec: &'s mut Map<String, Value>, field: &str) -> &'s mut Vec<Value> {
    let list = spec.entry(field).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut().expect("just made one")
}

/// Memory that the mount of a token takes in a container: a list of four, a map, its names.
const MOUNT_WEIGHT: usize = 2 * NODE;

/// Rejects a pod with so many containers that there is no memory for what each of them is about to get.
pub(super) fn check_room(pod: &Object, bytes_each: usize) -> Result<(), Status> {
    let containers = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| pod.at(&["spec", list])?.as_array())
        .map(Vec::len)
        .sum::<usize>();
    let growth = containers.saturating_mul(bytes_each);
    // The objects of almost all requests are far from the limit, and need not be weighed.
    if growth > MAX_WEIGHT / 16 && growth.saturating_add(memory::of(pod.as_value())) > MAX_WEIGHT {
        return Err(Status::too_large(body::Error::TooLarge.to_string()));
    }
    Ok(())
}

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Gives the pod its service account, which must be there, and mounts the account's token.
fn service_account(inner: &Inner, attributes: &Attributes<'_>, pod: &mut Object) -> Result<(), Status> {
    if pod.annotation("kubernetes.io/config.mirror").is_some() {
        return Ok(());
    }
    let rng = &inner.rng;
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
    let Some(account) =
        inner.store.get(&GroupResource::new("", "serviceaccounts"), &key).and_then(|entry| entry.object().ok())
    else {
        let namespace = attributes.namespace.unwrap_or_default();
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(Status::forbidden(&GroupResource::new("", "pods"), attributes.known_name(), why));
    };
    let spec = spec(pod);
    let wanted = spec
        .get("automountServiceAccountToken")
        .or_else(|| account.get("automountServiceAccountToken"))
        .and_then(Value::as_bool);
    if !spec.contains_key("imagePullSecrets")
        && let Some(secrets) = account.get("imagePullSecrets")
    {
        spec.insert("imagePullSecrets".into(), secrets.clone());
    }
    if wanted == Some(false) {
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

/// Lets the pod stay on a failing node for five minutes, unless it says otherwise.
fn tolerations(pod: &mut Object) {
    let tolerations = list(spec(pod), "tolerations");
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = |t: &Value| {
            let effect = t["effect"].as_str().unwrap_or_default();
            let tolerated = t["key"].as_str().unwrap_or_default();
            matches!(effect, "" | "NoExecute") && (tolerated == key || tolerated.is_empty())
        };
        if !tolerations.iter().any(tolerates) {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}

/// Works out the pod's priority from its class.
/// Gives a pod what its runtime class costs, and sends it where that class runs.
fn runtime_class(inner: &Inner, attributes: &Attributes<'_>, pod: &mut Object) -> Result<(), Status> {
    let refuse = |why: String| {
        let why = format!("pod rejected: {why}");
        Err(Status::forbidden(&GroupResource::new("", "pods"), attributes.known_name(), why))
    };
    let spec = spec(pod);
    let costs = |overhead: Option<&Value>| overhead.and_then(Value::as_object).is_some_and(|costs| !costs.is_empty());
    const UNFOUNDED: &str = "Pod Overhead set without corresponding RuntimeClass defined Overhead";
    let Some(name) = spec.get("runtimeClassName").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
        return if costs(spec.get("overhead")) { refuse(UNFOUNDED.into()) } else { Ok(()) };
    };
    let classes = GroupResource::new("node.k8s.io", "runtimeclasses");
    let Some(class) = inner.store.get(&classes, &ObjectKey::new(None, name)).and_then(|entry| entry.object().ok())
    else {
        return refuse(format!("RuntimeClass {name:?} not found"));
    };
    let overhead = class.at(&["overhead", "podFixed"]).filter(|overhead| overhead.is_object());
    match (overhead, spec.get("overhead")) {
        (Some(own), Some(given)) if own != given => {
            return refuse("Pod's Overhead doesn't match RuntimeClass's defined Overhead".into());
        }
        (Some(own), None) => {
            spec.insert("overhead".into(), own.clone());
        }
        (None, given) if costs(given) => return refuse(UNFOUNDED.into()),
        _ => {}
    }
    let wanted = class.at(&["scheduling", "nodeSelector"]).and_then(Value::as_object);
    for (key, value) in wanted.into_iter().flatten() {
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        let Some(selector) = selector.as_object_mut() else { continue };
        let own = selector.entry(key.clone()).or_insert_with(|| value.clone());
        if own != value {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (own, value) = (text(own), text(value));
            return refuse(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
    }
    for toleration in class.at(&["scheduling", "tolerations"]).and_then(Value::as_array).into_iter().flatten() {
        let all = list(spec, "tolerations");
        if !all.contains(toleration) {
            all.push(toleration.clone());
        }
    }
    Ok(())
}

fn priority(inner: &Inner, attributes: &Attributes<'_>, pod: &mut Object) -> Result<(), Status> {
    let spec = spec(pod);
    let classes = GroupResource::new("scheduling.k8s.io", "priorityclasses");
    let named =
        spec.get("priorityClassName").and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    let (value, policy) = match named {
        Some(name) => {
            let Some(class) =
                inner.store.get(&classes, &ObjectKey::new(None, &name)).and_then(|entry| entry.object().ok())
            else {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(Status::forbidden(&GroupResource::new("", "pods"), attributes.known_name(), why));
            };
            (class.get("value").and_then(Value::as_i64).unwrap_or(0), class.get("preemptionPolicy").cloned())
        }
        None => {
            let all = inner.store.list(&classes, None).entries;
            let default = all
                .iter()
                .filter_map(|entry| entry.object().ok())
                .find(|class| class.get("globalDefault") == Some(&Value::Bool(true)));
            match default {
                Some(class) => {
                    spec.insert("priorityClassName".into(), class.name().into());
                    (class.get("value").and_then(Value::as_i64).unwrap_or(0), class.get("preemptionPolicy").cloned())
                }
                None => (0, None),
            }
        }
    };
    if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(Status::forbidden(&GroupResource::new("", "pods"), attributes.known_name(), why));
    }
    spec.insert("priority".into(), value.into());
    let policy = policy.unwrap_or_else(|| "PreemptLowerPriority".into());
    if let Some(given) = spec.get("preemptionPolicy").filter(|given| !given.is_null() && **given != policy) {
        let (given, policy) = (given.as_str().unwrap_or_default(), policy.as_str().unwrap_or_default());
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(Status::forbidden(&GroupResource::new("", "pods"), attributes.known_name(), why));
    }
    spec.insert("preemptionPolicy".into(), policy);
    Ok(())
}
