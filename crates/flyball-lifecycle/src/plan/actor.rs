//! Requests of steps, as the manager or as a service account.

use super::resources::Resource;
use crate::csv::PLAN_MANAGER as MANAGER;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Builder;
use http::{Method, Request};
use kube::core::Status;
use serde_json::Value;

/// The header that makes a request one of another user.
const IMPERSONATE: &str = "Impersonate-User";
/// The media type of an object without its spec and status.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A sender of requests.
pub(super) struct Actor<'c> {
    client: &'c kube::Client,
    user: Option<String>,
}

impl<'c> Actor<'c> {
    pub(super) fn new(client: &'c kube::Client, user: Option<String>) -> Self {
        Self { client, user }
    }

    /// Returns true if it acts as a service account.
    pub(super) fn is_limited(&self) -> bool {
        self.user.is_some()
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        let request = Request::builder().method(method).uri(path);
        match &self.user {
            Some(user) => request.header(IMPERSONATE, user),
            None => request,
        }
    }

    async fn read(&self, path: &str) -> kube::Result<Value> {
        self.send(self.request(Method::GET, path)).await
    }

    async fn send(&self, request: Builder) -> kube::Result<Value> {
        self.client.request(request.body(Vec::new()).map_err(kube::Error::HttpError)?).await
    }

    /// Returns an object.
    pub(super) async fn get(&self, path: &str) -> kube::Result<Option<Value>> {
        match self.read(path).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            read => read.map(Some),
        }
    }

    /// Returns an object, or its metadata; `None` only if the API server answers that this object does not exist. An
    /// API server that does not know the kind also answers 404, without the name of an object.
    pub(super) async fn find(&self, path: &str, only_metadata: bool) -> kube::Result<Option<Value>> {
        let is_named = |status: &Status| status.details.as_ref().is_some_and(|details| !details.name.is_empty());
        let request = self.request(Method::GET, path);
        let request = if only_metadata { request.header(ACCEPT, METADATA) } else { request };
        match self.send(request).await {
            Err(kube::Error::Api(status)) if status.is_not_found() && is_named(&status) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Applies an object, or, in a dry run, checks that it would be accepted.
    pub(super) async fn apply(&self, path: &str, object: &Value, is_dry: bool) -> kube::Result<Value> {
        let dry = if is_dry { "&dryRun=All" } else { "" };
        let request = self
            .request(Method::PATCH, &format!("{path}?fieldManager={MANAGER}&force=true{dry}"))
            .header(CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Merges a patch into an object.
    pub(super) async fn merge(&self, path: &str, patch: &Value) -> kube::Result<Value> {
        let request = self
            .request(Method::PATCH, &format!("{path}?fieldManager={MANAGER}"))
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

/// Returns the path of an object.
pub(super) fn path_of(resource: Resource, version: &str, namespace: &str, name: &str) -> String {
    format!("{}/{}", collection_of(resource, version, namespace), encoded(name))
}

/// Returns the path of a kind in a namespace, or in none.
fn collection_of(Resource { group, plural, is_namespaced, .. }: Resource, version: &str, namespace: &str) -> String {
    let version = encoded(version);
    let api = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    if is_namespaced { format!("{api}/namespaces/{namespace}/{plural}") } else { format!("{api}/{plural}") }
}

/// Encodes a segment of a path: names come from bundles.
pub(crate) fn encoded(segment: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    segment.bytes().map(encode).collect()
}

/// Returns the message of an error for users.
pub(super) fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let Status { message, .. } = &**status;
            message.clone()
        }
        error => error.to_string(),
    }
}
