//! Environment variables and volumes of containers, from secrets, config maps, claims and the pod.
//!
//! See <https://kubernetes.io/docs/tasks/inject-data-application/>.

use crate::workload::pods;
use flyball::{Context, ObjectKey, Result};
use flyball_core::Quantity;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, KeyToPath, PersistentVolumeClaim, Pod, Secret};
use kube::ResourceExt;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum size of the environment of a container in bytes, like the `ARG_MAX` of a kernel.
const MAX_ENVIRONMENT_BYTES: usize = 1024 * 1024;
/// Bytes of a variable besides its name and value: `=`, the final zero byte, and a pointer.
const VARIABLE_OVERHEAD_BYTES: usize = 10;

/// Error of creating the environment of a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EnvironmentError {
    /// A referenced object or key does not exist.
    #[error("{0}")]
    Missing(String),
    /// The variables are too large.
    #[error("the environment variables of container {container:?} exceed {MAX_ENVIRONMENT_BYTES} bytes")]
    TooLarge { container: String },
}

impl EnvironmentError {
    /// Returns the kubelet's reason of the waiting state.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) => "CreateContainerConfigError",
            Self::TooLarge { .. } => "CreateContainerError",
        }
    }
}

/// The variables have no room.
#[derive(Debug)]
struct OutOfRoom;

/// The environment of a container while it is created. Replaced variables count as well, which also bounds the work.
struct Environment {
    variables: BTreeMap<String, String>,
    /// Remaining bytes.
    room: usize,
}

impl Environment {
    fn new() -> Self {
        Self { variables: BTreeMap::new(), room: MAX_ENVIRONMENT_BYTES }
    }

    /// Sets a variable, unless it exceeds the remaining room.
    fn set(&mut self, prefix: &str, name: &str, value: Cow<'_, str>) -> Result<(), OutOfRoom> {
        let bytes = prefix.len() + name.len() + value.len() + VARIABLE_OVERHEAD_BYTES;
        self.room = self.room.checked_sub(bytes).ok_or(OutOfRoom)?;
        self.variables.insert(format!("{prefix}{name}"), value.into_owned());
        Ok(())
    }

    /// Replaces `$(NAME)` by the values of known variables, within the remaining room; `$$` is a dollar sign.
    fn expand(&self, text: &str) -> Result<String, OutOfRoom> {
        let (mut expanded, mut rest) = (String::new(), text);
        let push = |expanded: &mut String, parts: &[&str]| {
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            if expanded.len() + bytes > self.room {
                return Err(OutOfRoom);
            }
            parts.iter().for_each(|part| expanded.push_str(part));
            Ok(())
        };
        while let Some(at) = rest.find('$') {
            push(&mut expanded, &[&rest[..at]])?;
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                push(&mut expanded, &["$"])?;
                rest = after;
            } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                match self.variables.get(name) {
                    Some(value) => push(&mut expanded, &[value])?,
                    None => push(&mut expanded, &["$(", name, ")"])?,
                }
                rest = after;
            } else {
                push(&mut expanded, &["$"])?;
            }
        }
        push(&mut expanded, &[rest])?;
        Ok(expanded)
    }
}

/// The existing objects that a pod refers to.
#[derive(Debug, Default)]
pub(super) struct ReferencedObjects {
    secrets: BTreeMap<String, Option<Secret>>,
    config_maps: BTreeMap<String, Option<ConfigMap>>,
    /// Claims by name: `None` if it does not exist, true if it is bound.
    claims: BTreeMap<String, Option<bool>>,
}

impl ReferencedObjects {
    /// Reads the objects that a pod refers to.
    pub(super) async fn gather(pod: &Pod, cx: &Context<Pod>) -> Result<Self> {
        let (mut secrets, mut config_maps) = (BTreeSet::new(), BTreeSet::new());
        let Some(spec) = &pod.spec else { return Ok(Self::default()) };
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            for from in container.env_from.iter().flatten() {
                secrets.extend(from.secret_ref.as_ref().map(|from| from.name.clone()));
                config_maps.extend(from.config_map_ref.as_ref().map(|from| from.name.clone()));
            }
            for from in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
                secrets.extend(from.secret_key_ref.as_ref().map(|from| from.name.clone()));
                config_maps.extend(from.config_map_key_ref.as_ref().map(|from| from.name.clone()));
            }
        }
        for volume in spec.volumes.iter().flatten() {
            secrets.extend(volume.secret.as_ref().and_then(|from| from.secret_name.clone()));
            config_maps.extend(volume.config_map.as_ref().map(|from| from.name.clone()));
            for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
                secrets.extend(source.secret.as_ref().map(|from| from.name.clone()));
                config_maps.extend(source.config_map.as_ref().map(|from| from.name.clone()));
            }
        }
        let mut referenced = Self::default();
        for name in secrets {
            let found = cx.get(&cx.sibling(&name)).await?;
            referenced.secrets.insert(name, found);
        }
        for name in config_maps {
            let found = cx.get(&cx.sibling(&name)).await?;
            referenced.config_maps.insert(name, found);
        }
        for (name, _) in pods::claims(pod) {
            let key = ObjectKey::new(cx.key().namespace(), &name);
            let claim = cx.get::<PersistentVolumeClaim>(&key).await?;
            let phase = |claim: PersistentVolumeClaim| claim.status.and_then(|status| status.phase);
            referenced.claims.insert(name, claim.map(|claim| phase(claim).as_deref() == Some("Bound")));
        }
        Ok(referenced)
    }

    /// Disables the check for `kube-root-ca.crt`, which is not published without a server certificate.
    pub(super) fn ignore_root_ca(&mut self) {
        if let Some(missing) = self.config_maps.get_mut("kube-root-ca.crt") {
            let data = Some([("ca.crt".to_owned(), String::new())].into());
            missing.get_or_insert_with(|| ConfigMap { data, ..ConfigMap::default() });
        }
    }

    /// Returns the reason why the volumes of a pod cannot be mounted, with the kubelet's message.
    pub(super) fn unmounted_volume_reason(&self, pod: &Pod) -> Option<String> {
        let namespace = pod.namespace().unwrap_or_default();
        for (claim, volume) in pods::claims(pod) {
            let why = match self.claims.get(&claim) {
                Some(Some(true)) => continue,
                Some(Some(false)) => "PVC is not bound".to_owned(),
                _ => format!("failed to fetch PVC from API server: persistentvolumeclaim {claim:?} not found"),
            };
            return Some(format!(
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process \
                 volumes=[{volume}]: error processing PVC {namespace}/{claim}: {why}"
            ));
        }
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let mut why = None;
            if let Some(from) = &volume.secret {
                let name = from.secret_name.as_deref().unwrap_or_default();
                why = self.missing_secret_reason(name, from.items.as_deref(), from.optional);
            }
            if let Some(from) = &volume.config_map {
                why = self.missing_config_map_reason(&from.name, from.items.as_deref(), from.optional);
            }
            for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
                let secret = source.secret.as_ref();
                let secret = secret
                    .and_then(|from| self.missing_secret_reason(&from.name, from.items.as_deref(), from.optional));
                let map = source.config_map.as_ref();
                let map = map
                    .and_then(|from| self.missing_config_map_reason(&from.name, from.items.as_deref(), from.optional));
                why = why.or(secret).or(map);
            }
            if let Some(why) = why {
                return Some(format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name));
            }
        }
        None
    }

    fn missing_secret_reason(&self, name: &str, items: Option<&[KeyToPath]>, optional: Option<bool>) -> Option<String> {
        if optional == Some(true) {
            return None;
        }
        let Some(Some(secret)) = self.secrets.get(name) else { return Some(format!("secret {name:?} not found")) };
        let has = |key: &str| secret.data.as_ref().is_some_and(|data| data.contains_key(key));
        let missing = items.into_iter().flatten().find(|item| !has(&item.key))?;
        Some(format!("references non-existent secret key: {}", missing.key))
    }

    fn missing_config_map_reason(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Option<String> {
        if optional == Some(true) {
            return None;
        }
        let Some(Some(map)) = self.config_maps.get(name) else { return Some(format!("configmap {name:?} not found")) };
        let has = |key: &str| {
            map.data.as_ref().is_some_and(|data| data.contains_key(key))
                || map.binary_data.as_ref().is_some_and(|data| data.contains_key(key))
        };
        let missing = items.into_iter().flatten().find(|item| !has(&item.key))?;
        Some(format!("configmap references non-existent config key: {}", missing.key))
    }

    /// Creates the environment of a container, or returns the kubelet's error.
    pub(super) fn environment(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<BTreeMap<String, String>, EnvironmentError> {
        let too_large = |_: OutOfRoom| EnvironmentError::TooLarge { container: container.name.clone() };
        let missing = |why: String| Err(EnvironmentError::Missing(why));
        let mut env = Environment::new();
        for from in container.env_from.iter().flatten() {
            let prefix = from.prefix.as_deref().unwrap_or_default();
            if let Some(source) = &from.config_map_ref {
                match self.config_maps.get(&source.name) {
                    Some(Some(map)) => {
                        for (key, value) in map.data.iter().flatten() {
                            env.set(prefix, key, value.into()).map_err(too_large)?;
                        }
                    }
                    _ if source.optional == Some(true) => {}
                    _ => return missing(format!("configmap {:?} not found", source.name)),
                }
            }
            if let Some(source) = &from.secret_ref {
                match self.secrets.get(&source.name) {
                    Some(Some(secret)) => {
                        for (key, value) in secret.data.iter().flatten() {
                            env.set(prefix, key, String::from_utf8_lossy(&value.0)).map_err(too_large)?;
                        }
                    }
                    _ if source.optional == Some(true) => {}
                    _ => return missing(format!("secret {:?} not found", source.name)),
                }
            }
        }
        for var in container.env.iter().flatten() {
            let value = match &var.value_from {
                Some(from) => self.value(pod, container, from).map_err(EnvironmentError::Missing)?,
                None => Some(env.expand(var.value.as_deref().unwrap_or_default()).map_err(too_large)?),
            };
            match value {
                Some(value) => env.set("", &var.name, value.into()).map_err(too_large)?,
                None => drop(env.variables.remove(&var.name)),
            }
        }
        Ok(env.variables)
    }

    fn value(&self, pod: &Pod, container: &Container, from: &EnvVarSource) -> Result<Option<String>, String> {
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(source) = &from.config_map_key_ref {
            let map = self.config_maps.get(&source.name).and_then(Option::as_ref);
            let value = map.and_then(|map| map.data.as_ref()?.get(&source.key).cloned());
            return match (value, map) {
                (None, _) if source.optional == Some(true) => Ok(None),
                (None, None) => Err(format!("configmap {:?} not found", source.name)),
                (None, Some(_)) => {
                    Err(format!("couldn't find key {} in ConfigMap {namespace}/{}", source.key, source.name))
                }
                (value, _) => Ok(value),
            };
        }
        if let Some(source) = &from.secret_key_ref {
            let secret = self.secrets.get(&source.name).and_then(Option::as_ref);
            let value = secret.and_then(|secret| secret.data.as_ref()?.get(&source.key).map(|value| text(&value.0)));
            return match (value, secret) {
                (None, _) if source.optional == Some(true) => Ok(None),
                (None, None) => Err(format!("secret {:?} not found", source.name)),
                (None, Some(_)) => {
                    Err(format!("couldn't find key {} in Secret {namespace}/{}", source.key, source.name))
                }
                (value, _) => Ok(value),
            };
        }
        if let Some(source) = &from.field_ref {
            return Ok(field(pod, &source.field_path));
        }
        if let Some(source) = &from.resource_field_ref {
            let (list, name) = source.resource.split_once('.').unwrap_or(("", &source.resource));
            let spec = pod.spec.as_ref();
            let mut all = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
            let named = source.container_name.as_deref().filter(|name| !name.is_empty());
            let container = named.map_or(Some(container), |named| all.find(|container| container.name == named));
            let resources = container.and_then(|container| container.resources.as_ref());
            let amounts = resources.and_then(|resources| match list {
                "requests" => resources.requests.as_ref(),
                _ => resources.limits.as_ref(),
            });
            let amount = amounts.and_then(|amounts| amounts.get(name)?.0.parse::<Quantity>().ok());
            let divisor = source.divisor.as_ref().and_then(|divisor| divisor.0.parse::<Quantity>().ok());
            let divisor = divisor.map_or(1000, |divisor| divisor.milli_value()).max(1);
            let milli = amount.map_or(0, |amount| amount.milli_value());
            return Ok(Some((milli / divisor + i64::from(milli % divisor != 0)).to_string()));
        }
        Ok(None)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads a field of a pod, see <https://kubernetes.io/docs/concepts/workloads/pods/downward-api/>.
fn field(pod: &Pod, path: &str) -> Option<String> {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let inner = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']").map(str::to_owned);
    if let Some(key) = inner("metadata.labels['") {
        return Some(pod.labels().get(&key).cloned().unwrap_or_default());
    }
    if let Some(key) = inner("metadata.annotations['") {
        return Some(pod.annotations().get(&key).cloned().unwrap_or_default());
    }
    match path {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        "metadata.uid" => pod.metadata.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.hostIP" | "status.hostIPs" => status.and_then(|status| status.host_ip.clone()),
        "status.podIP" | "status.podIPs" => status.and_then(|status| status.pod_ip.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(container: Value, expected: Result<&[(&str, &str)], &str>) {
        let mut referenced = ReferencedObjects::default();
        let secret = json!({"metadata": {"name": "s"}, "data": {"PASSWORD": "aHVudGVyMg=="}});
        referenced.secrets.insert("s".into(), serde_json::from_value(secret).unwrap());
        let map = json!({"metadata": {"name": "m"}, "data": {"A": "1"}});
        referenced.config_maps.insert("m".into(), serde_json::from_value(map).unwrap());
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [container]},
        }))
        .unwrap();
        let found = referenced.environment(&pod, &pod.spec.as_ref().unwrap().containers[0]);
        let expected = expected.map(|all| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn environments_are_resolved() {
        check(
            json!({"name": "c", "envFrom": [{"prefix": "X_", "configMapRef": {"name": "m"}}], "env": [
                {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "PASSWORD"}}},
                {"name": "U", "value": "$(P)/$(X_A)/$(NONE)/$$(P)"},
                {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                {"name": "O", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": true}}},
                {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            ], "resources": {"limits": {"memory": "1Gi"}}}),
            Ok(&[("L", "web"), ("M", "1024"), ("P", "hunter2"), ("U", "hunter2/1/$(NONE)/$(P)"), ("X_A", "1")]),
        );
    }

    #[test]
    fn missing_references_are_named() {
        let key = |name: &str, key: &str| json!({"name": "c", "env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}]});
        check(key("none", "k"), Err("secret \"none\" not found"));
        check(key("s", "k"), Err("couldn't find key k in Secret ns/s"));
        check(
            json!({"name": "c", "envFrom": [{"configMapRef": {"name": "none"}}]}),
            Err("configmap \"none\" not found"),
        );
    }

    #[test]
    fn large_environments_are_rejected() {
        const TOO_LARGE: Result<&[(&str, &str)], &str> =
            Err("the environment variables of container \"c\" exceed 1048576 bytes");
        let mut env = vec![json!({"name": "V0", "value": "0123456789"})];
        for n in 0..9 {
            let value = format!("$(V{n})").repeat(10);
            env.push(json!({"name": format!("V{}", n + 1), "value": value}));
        }
        check(json!({"name": "c", "env": env}), TOO_LARGE);
        let from = |n: usize| json!({"prefix": format!("{n:02000}_"), "configMapRef": {"name": "m"}});
        let all: Vec<Value> = (0..1000).map(from).collect();
        check(json!({"name": "c", "envFrom": all}), TOO_LARGE);
        let same = vec![from(0); 1000];
        check(json!({"name": "c", "envFrom": same}), TOO_LARGE);
        let unknown = format!("$({})", "x".repeat(MAX_ENVIRONMENT_BYTES));
        check(json!({"name": "c", "env": [{"name": "V", "value": unknown}]}), TOO_LARGE);
    }

    #[test]
    fn environments_may_have_the_maximum_size() {
        let largest = |over: usize| {
            let value = "x".repeat(MAX_ENVIRONMENT_BYTES - VARIABLE_OVERHEAD_BYTES - 1 + over);
            let container = json!({"name": "c", "env": [{"name": "V", "value": value}]});
            let container = serde_json::from_value(container).unwrap();
            ReferencedObjects::default().environment(&Pod::default(), &container)
        };
        assert!(largest(0).is_ok());
        assert_eq!(largest(1).unwrap_err().reason(), "CreateContainerError");
    }
}
