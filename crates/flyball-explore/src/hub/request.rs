//! Requests of the scenario and of faults, with all permissions.

use super::Hub;
use crate::history::{Actor, Change};
use bytes::Bytes;
use flyball_cluster::User;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

/// A request with all permissions.
pub(crate) struct AdminRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) content_type: &'static str,
    pub(crate) body: &'a Value,
}

impl<'a> AdminRequest<'a> {
    /// Creates a request with a body in JSON, or without one if it is null.
    pub(crate) fn json(method: Method, path: &'a str, body: &'a Value) -> Self {
        Self { method, path, content_type: "application/json", body }
    }

    /// Creates a merge patch.
    pub(crate) fn merge(path: &'a str, body: &'a Value) -> Self {
        Self { method: Method::PATCH, path, content_type: "application/merge-patch+json", body }
    }
}

impl Hub {
    /// Sends a request with all permissions to the API server.
    pub(crate) async fn request(&self, actor: Actor, request: AdminRequest<'_>) -> (u16, Value) {
        let AdminRequest { method, path, content_type, body } = request;
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let is_write = method != Method::GET;
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let Ok(mut request) = request.body(Full::new(bytes)) else { return (400, Value::Null) };
        request.extensions_mut().insert(User::new("kubernetes-admin", &["system:masters"]));
        // Earlier writes are not of this actor.
        self.read_history(Actor::ControlPlane, |_| false);
        let response = self.server.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if is_write && code < 300 {
            let object = path.split('?').next().unwrap_or(path);
            self.read_history(actor, |change| is_at(object, change));
        }
        (code, value)
    }
}

/// Returns true if a change concerns the object, or the collection, of a path.
fn is_at(path: &str, change: &Change) -> bool {
    let path = path.trim_end_matches("/status");
    let (resource, name) = (&*change.resource.resource, change.key.name());
    path.ends_with(&format!("/{resource}/{name}")) || path.ends_with(&format!("/{resource}"))
}
