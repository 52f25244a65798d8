//! Panics on a valid object: one of two branches requires an optional field. Seen in OT-CONTAINER-KIT/redis-operator
//! #283 and #286.

use crate::suite::Bug;
use flyball::{Action, Condition, Context, Controller, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

const SAMPLE: &str = "
apiVersion: caches.example.com/v1
kind: Cache
metadata: {name: sessions}
spec:
  mode: Standalone
  auth: {name: credentials, key: password}
  resources: {memory: 64Mi}
  storage: 1Gi
";

/// Desired state of a `Cache`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "caches.example.com", version = "v1", kind = "Cache", namespaced, status = "CacheStatus")]
pub(crate) struct CacheSpec {
    /// Number and roles of the servers.
    #[serde(default)]
    mode: Mode,
    /// Password of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    auth: Option<Auth>,
    /// Limits of each server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resources: Option<Resources>,
    /// Size of the volumes; no volumes if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage: Option<String>,
}

/// Number and roles of the servers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
enum Mode {
    /// One server.
    #[default]
    Standalone,
    /// A leader with followers.
    Replicated,
    /// Servers that share the keys.
    Cluster,
}

/// Reference to a password in a Secret.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Auth {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Key in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

/// Limits of a server.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Resources {
    /// Memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
}

/// Observed state of a `Cache`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub(crate) struct CacheStatus {
    /// The condition `Configured` is false if the spec is incomplete.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<Condition>,
}

struct Caches<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Caches<FIXED> {
    type Resource = Cache;

    async fn reconcile(&self, cache: &Cache, cx: &Context<Cache>) -> Result<Action> {
        let configured = match settings::<FIXED>(&cache.spec) {
            Ok(data) => {
                let metadata = json!({"name": cache.name_any()});
                let map: ConfigMap = serde_json::from_value(json!({"metadata": metadata, "data": data}))?;
                cx.apply(&map).await?;
                Condition::new("Configured", true, "Applied")
            }
            Err(missing) => Condition::new("Configured", false, "Incomplete").message(missing),
        };
        cx.set_status(&CacheStatus { conditions: vec![configured] }).await?;
        Ok(Action::done())
    }
}

/// Returns the configuration of the servers, or the reason why there is none.
fn settings<const FIXED: bool>(spec: &CacheSpec) -> Result<BTreeMap<&'static str, String>, &'static str> {
    let mut settings = BTreeMap::new();
    let secret = spec.auth.as_ref().and_then(|auth| auth.name.as_ref());
    let key = spec.auth.as_ref().and_then(|auth| auth.key.as_ref());
    match (spec.mode, secret) {
        (Mode::Cluster, Some(secret)) => {
            let key = match (FIXED, key) {
                (true, None) => return Err("spec.auth.key is required in mode Cluster"),
                (_, key) => key.expect("a secret has a key"),
            };
            settings.insert("masterauth", format!("{secret}/{key}"));
        }
        (Mode::Standalone | Mode::Replicated, Some(secret)) => {
            let key = key.map_or("password", |key| key);
            settings.insert("requirepass", format!("{secret}/{key}"));
        }
        (_, None) => {}
    }
    if let Some(memory) = spec.resources.as_ref().and_then(|resources| resources.memory.as_ref()) {
        settings.insert("maxmemory", memory.clone());
    }
    if let Some(storage) = &spec.storage {
        settings.insert("storage", storage.clone());
    }
    Ok(settings)
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Caches::<FIXED>).owns::<ConfigMap>();
    Operator::new("cache-operator").crd(Cache::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>).sample(SAMPLE)
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::Panic,
    object: "controller cache, object test/sessions",
    schedule: "spec/cache/mode%3dCluster%2cauth.key%3dabsent; seed=1; without=/spec/auth/key; without=/spec/resources; without=/spec/storage",
};
