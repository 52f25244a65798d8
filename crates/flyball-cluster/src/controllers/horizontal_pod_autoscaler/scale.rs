//! The scale subresource of scaled objects.

use crate::controllers::MANAGER;
use crate::controllers::discovery::{self, ServedResource};
use flyball::{Context, Resource};
use flyball_core::ObjectKey;
use http::{Method, Request};
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::api::DynamicObject;
use parking_lot::Mutex;
use serde_json::Value;

/// Maximum number of attempts to write a scale on conflicts.
const ATTEMPTS: usize = 5;

/// Finds objects, and their scale, by references that name a kind.
#[derive(Default)]
pub(super) struct Scales(Mutex<Vec<ServedResource>>);

/// An object that a reference may mean.
struct CandidateTarget {
    path: String,
    namespaced: bool,
}

/// The scale of an object.
pub(super) struct Scale {
    path: String,
    value: Value,
}

/// Returns the error message of the API server.
pub(super) fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl Scales {
    /// Returns the scale of an object.
    pub(super) async fn get<K: Resource>(
        &self,
        target: &CrossVersionObjectReference,
        cx: &Context<K>,
    ) -> Result<Scale, String> {
        let mut first = None;
        for CandidateTarget { path, namespaced } in self.paths(target, cx).await? {
            if !namespaced {
                // A namespaced object must not change others' objects.
                return Err(format!("kind {:?} is cluster-scoped", target.kind));
            }
            let path = format!("{path}/scale");
            match send(Method::GET, &path, Vec::new(), cx).await {
                Ok(value) => return Ok(Scale { path, value }),
                Err(error) => drop(first.get_or_insert(text(&error))),
            }
        }
        Err(first.unwrap_or_else(|| "unrecognized resource".into()))
    }

    /// Returns an object.
    pub(super) async fn describe<K: Resource>(
        &self,
        target: &CrossVersionObjectReference,
        cx: &Context<K>,
    ) -> Result<DynamicObject, String> {
        let mut first = None;
        for CandidateTarget { path, .. } in self.paths(target, cx).await? {
            match send(Method::GET, &path, Vec::new(), cx).await {
                Ok(value) => return serde_json::from_value(value).map_err(|error| error.to_string()),
                Err(error) => drop(first.get_or_insert(text(&error))),
            }
        }
        Err(first.unwrap_or_else(|| "unrecognized resource".into()))
    }

    /// Returns the candidate URLs of a reference. An unknown kind triggers a new discovery.
    async fn paths<K: Resource>(
        &self,
        target: &CrossVersionObjectReference,
        cx: &Context<K>,
    ) -> Result<Vec<CandidateTarget>, String> {
        let version = target.api_version.as_deref().unwrap_or_default();
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let find = || {
            let served = self.0.lock();
            let of = served.iter().filter(|served| *served.kind.group == *group && *served.kind.kind == target.kind);
            let found = |served: &ServedResource| {
                let namespace = cx.key().namespace().filter(|_| served.namespaced);
                let path = served.object_path(&ObjectKey::new(namespace, &target.name));
                let path = path.ok_or_else(|| format!("invalid name {:?}", target.name))?;
                Ok(CandidateTarget { path, namespaced: served.namespaced })
            };
            of.map(found).collect::<Result<Vec<_>, String>>()
        };
        let mut paths = find()?;
        if paths.is_empty() {
            let served = discovery::served(cx.client()).await.map_err(|error| text(&error))?;
            *self.0.lock() = served;
            paths = find()?;
        }
        match paths.is_empty() {
            true => Err(format!("no matches for kind {:?} in group {group:?}", target.kind)),
            false => Ok(paths),
        }
    }
}

impl Scale {
    /// Returns the desired number of replicas.
    pub(super) fn replicas(&self) -> i32 {
        self.number("/spec/replicas")
    }

    /// Returns the current number of replicas.
    pub(super) fn present(&self) -> i32 {
        self.number("/status/replicas")
    }

    /// Returns the selector of the pods.
    pub(super) fn selector(&self) -> &str {
        self.value.pointer("/status/selector").and_then(Value::as_str).unwrap_or_default()
    }

    fn number(&self, pointer: &str) -> i32 {
        let number = self.value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        i32::try_from(number).unwrap_or(i32::MAX)
    }

    /// Sets the number of replicas.
    pub(super) async fn set<K: Resource>(mut self, replicas: i32, cx: &Context<K>) -> Result<(), String> {
        let path = format!("{}?fieldManager={MANAGER}", self.path);
        let mut failure = String::new();
        for _ in 0..ATTEMPTS {
            if !self.value["spec"].is_object() {
                self.value["spec"] = serde_json::json!({});
            }
            self.value["spec"]["replicas"] = replicas.into();
            match send(Method::PUT, &path, self.value.to_string().into_bytes(), cx).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_conflict() => failure = status.message.clone(),
                Err(error) => return Err(text(&error)),
            }
            if let Ok(latest) = send(Method::GET, &self.path, Vec::new(), cx).await {
                self.value = latest;
            }
        }
        Err(failure)
    }
}

async fn send<K: Resource>(method: Method, path: &str, body: Vec<u8>, cx: &Context<K>) -> kube::Result<Value> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json").body(body);
    cx.client().request(request.map_err(kube::Error::HttpError)?).await
}
