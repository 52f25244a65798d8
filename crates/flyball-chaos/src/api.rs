//! The cluster: its kinds, and requests for objects as JSON.
//!
//! Secrets are read as metadata only, so that their contents reach neither reports nor state files. The exception is
//! [`Cluster::read_all_fields`], for the deletion of a Secret that an experiment names.

use crate::error::{Error, Result};
use crate::text::clean;
use flyball_core::names::is_path_segment;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use kube::core::ApiResource;
use kube::discovery::{ApiCapabilities, Discovery, Scope, verbs};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of objects of one page of a list.
const PAGE: usize = 250;
/// Maximum number of objects of one list.
const MAX_LISTED: usize = 5000;

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// An object of the cluster by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// API group, empty for the core group.
    #[serde(default)]
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, if the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl Reference {
    /// Creates a reference.
    pub fn new(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// Returns the reference of an object.
    pub(crate) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&object["apiVersion"]);
        let metadata = &object["metadata"];
        Self {
            group: group_of(&api_version).to_owned(),
            kind: text(&object["kind"]),
            namespace: metadata["namespace"].as_str().map(str::to_owned),
            name: text(&metadata["name"]),
        }
    }

    pub(crate) fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        match namespace {
            Some(namespace) => write!(f, "{} {}/{}", clean(kind), clean(namespace), clean(name)),
            None => write!(f, "{} {}", clean(kind), clean(name)),
        }
    }
}

/// Returns the group of an `apiVersion`.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// A kind that the cluster serves.
#[derive(Clone, Debug)]
pub(crate) struct ResourceKind {
    pub(crate) resource: ApiResource,
    pub(crate) is_namespaced: bool,
    can_list: bool,
    can_change: bool,
}

/// A connection to a cluster, with its kinds.
pub struct Cluster {
    client: Client,
    kinds: BTreeMap<(String, String), ResourceKind>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("kinds", &self.kinds.len()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Discovers the kinds of a cluster.
    ///
    /// # Errors
    ///
    /// If the API server does not respond.
    pub async fn connect(client: Client) -> Result<Self> {
        let found = match Discovery::new(client.clone()).run_aggregated().await {
            Ok(found) => found,
            Err(_) => {
                let found = Discovery::new(client.clone()).run().await;
                found.map_err(|error| Error::api("discover", "the kinds of the cluster", error))?
            }
        };
        let mut kinds = BTreeMap::new();
        for group in found.groups_alphabetical() {
            // The preferred version first; other versions are used for kinds that only they have.
            let all = group.recommended_resources().into_iter().chain(group.resources_by_stability());
            for (resource, capabilities) in all {
                let key = (resource.group.clone(), resource.kind.clone());
                kinds.entry(key).or_insert_with(|| ResourceKind::new(resource, &capabilities));
            }
        }
        Ok(Self { client, kinds })
    }

    pub(crate) fn kind(&self, group: &str, kind: &str) -> Option<&ResourceKind> {
        self.kinds.get(&(group.to_owned(), kind.to_owned()))
    }

    /// Returns the kinds whose objects can be listed and changed.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &ResourceKind> {
        self.kinds.values().filter(|kind| kind.can_list && kind.can_change)
    }

    fn path(&self, object: &Reference) -> Result<String> {
        let kind = self.kind(&object.group, &object.kind).ok_or_else(|| {
            Error::Target(format!("the cluster serves no kind {} in group {:?}", object.kind, object.group))
        })?;
        let is_valid = is_path_segment(&object.name) && object.namespace.as_deref().is_none_or(is_path_segment);
        if !is_valid {
            return Err(Error::Target(format!("{object} has a name that no path can contain")));
        }
        Ok(format!("{}/{}", kind.list_path(object.namespace.as_deref()), object.name))
    }

    async fn send(&self, request: Request<Vec<u8>>, action: &'static str, object: &str) -> Result<Value> {
        match timeout(REQUEST_TIMEOUT, self.client.request(request)).await {
            Ok(response) => response.map_err(|error| Error::api(action, object, error)),
            Err(_) => {
                let seconds = REQUEST_TIMEOUT.as_secs();
                Err(Error::Timeout { action, object: object.to_owned(), seconds })
            }
        }
    }

    /// Reads an object; `None` if it does not exist. Secrets are read as metadata.
    pub(crate) async fn get(&self, object: &Reference) -> Result<Option<Value>> {
        self.read(object, object.is_secret()).await
    }

    /// Reads an object with the contents of Secrets.
    pub(crate) async fn read_all_fields(&self, object: &Reference) -> Result<Option<Value>> {
        self.read(object, false).await
    }

    async fn read(&self, object: &Reference, is_partial: bool) -> Result<Option<Value>> {
        let accept = if is_partial { METADATA } else { "application/json" };
        let request = build(Method::GET, &self.path(object)?, accept, None, Vec::new());
        match self.send(request, "get", &object.to_string()).await {
            Ok(mut found) => {
                self.set_type(&mut found, object);
                Ok(Some(found))
            }
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the kind of an object, which a response as metadata lacks.
    fn set_type(&self, found: &mut Value, object: &Reference) {
        if let (Some(kind), Some(fields)) = (self.kind(&object.group, &object.kind), found.as_object_mut()) {
            fields.insert("apiVersion".into(), kind.resource.api_version.clone().into());
            fields.insert("kind".into(), kind.resource.kind.clone().into());
        }
    }

    /// Lists the objects of a kind with these labels, page by page, up to a maximum.
    pub(crate) async fn list(
        &self,
        kind: &ResourceKind,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Vec<Value>> {
        let is_secret = kind.resource.group.is_empty() && kind.resource.kind == "Secret";
        let accept = if is_secret { METADATA_LIST } else { "application/json" };
        let (mut found, mut next) = (Vec::new(), String::new());
        let selector = labels.map(|labels| format!("&labelSelector={}", encode(labels))).unwrap_or_default();
        loop {
            let path = format!("{}?limit={PAGE}{selector}{next}", kind.list_path(namespace));
            let request = build(Method::GET, &path, accept, None, Vec::new());
            let mut page = self.send(request, "list", &kind.resource.plural).await?;
            let token = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty());
            next = token.map(|token| format!("&continue={}", encode(token))).unwrap_or_default();
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                found.extend(items.into_iter().map(|mut item| {
                    if let Some(fields) = item.as_object_mut() {
                        fields.insert("apiVersion".into(), kind.resource.api_version.clone().into());
                        fields.insert("kind".into(), kind.resource.kind.clone().into());
                    }
                    item
                }));
            }
            if next.is_empty() || found.len() >= MAX_LISTED {
                found.truncate(MAX_LISTED);
                return Ok(found);
            }
        }
    }

    /// Lists the objects of a built-in kind; none if the cluster does not serve it.
    pub(crate) async fn list_of(&self, group: &str, kind: &str, namespace: Option<&str>) -> Result<Vec<Value>> {
        match self.kind(group, kind) {
            Some(kind) => self.list(kind, namespace, None).await,
            None => Ok(Vec::new()),
        }
    }

    /// Creates an object. With `is_dry`, the API server only checks it.
    pub(crate) async fn create(&self, object: &Value, is_dry: bool) -> Result<Value> {
        let reference = Reference::of(object);
        let path = self.path(&reference)?;
        let list = path.rsplit_once('/').map_or("", |(list, _)| list);
        let query = if is_dry { "&dryRun=All" } else { "" };
        let path = format!("{list}?fieldManager=flyball-chaos{query}");
        let accept = if reference.is_secret() { METADATA } else { "application/json" };
        let request = build(Method::POST, &path, accept, Some("application/json"), bytes(object));
        self.send(request, "create", &reference.to_string()).await
    }

    /// Applies a JSON patch: a failed test is an error with the code 422. With `is_dry`, the API server stores nothing.
    pub(crate) async fn patch(&self, object: &Reference, operations: &[Value], is_dry: bool) -> Result<Value> {
        let accept = if object.is_secret() { METADATA } else { "application/json" };
        let query = if is_dry { "&dryRun=All" } else { "" };
        let path = format!("{}?fieldManager=flyball-chaos{query}", self.path(object)?);
        let body = bytes(&json!(operations));
        let request = build(Method::PATCH, &path, accept, Some("application/json-patch+json"), body);
        self.send(request, "patch", &object.to_string()).await
    }

    /// Deletes the object with this UID. Returns false if it does not exist anymore.
    pub(crate) async fn delete(&self, object: &Reference, uid: &str, is_immediate: bool) -> Result<bool> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": uid}});
        if is_immediate {
            options["gracePeriodSeconds"] = json!(0);
        }
        let body = bytes(&options);
        let accept = if object.is_secret() { METADATA } else { "application/json" };
        let request = build(Method::DELETE, &self.path(object)?, accept, Some("application/json"), body);
        match self.send(request, "delete", &object.to_string()).await {
            Ok(_) => Ok(true),
            // Another object has the name.
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the UID of the namespace `kube-system`, which identifies a cluster.
    ///
    /// # Errors
    ///
    /// If the API server does not respond.
    pub async fn uid(&self) -> Result<String> {
        Ok(self.identity().await?.0)
    }

    /// Returns the UID of the namespace `kube-system`, which identifies a cluster, and its annotations.
    pub(crate) async fn identity(&self) -> Result<(String, Value)> {
        let system = self.get(&Reference::new("", "Namespace", None, "kube-system")).await?.unwrap_or_default();
        let uid = system["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok((uid, system["metadata"]["annotations"].clone()))
    }
}

impl ResourceKind {
    fn new(resource: ApiResource, capabilities: &ApiCapabilities) -> Self {
        Self {
            is_namespaced: capabilities.scope == Scope::Namespaced,
            can_list: capabilities.supports_operation(verbs::LIST),
            can_change: capabilities.supports_operation(verbs::PATCH),
            resource,
        }
    }

    fn list_path(&self, namespace: Option<&str>) -> String {
        let ApiResource { api_version, plural, group, .. } = &self.resource;
        let root = if group.is_empty() { "api" } else { "apis" };
        match namespace.filter(|_| self.is_namespaced) {
            Some(namespace) => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}"),
            None => format!("/{root}/{api_version}/{plural}"),
        }
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn build(method: Method, path: &str, accept: &str, content: Option<&str>, body: Vec<u8>) -> Request<Vec<u8>> {
    let mut builder = Request::builder().method(method).uri(path).header(ACCEPT, accept);
    if let Some(content) = content {
        builder = builder.header(CONTENT_TYPE, content);
    }
    // Paths consist of checked segments, encoded queries and names of discovery.
    builder.body(body).unwrap_or_default()
}

/// Encodes a value of a query.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        assert_eq!(encode("app=a,b in (c)"), "app%3Da%2Cb%20in%20%28c%29");
    }

    #[test]
    fn references_name_objects_without_control_characters() {
        let object =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "a", "name": "b\x1b"}});
        let reference = Reference::of(&object);
        assert_eq!((reference.group.as_str(), reference.to_string().as_str()), ("apps", "Deployment a/b\u{fffd}"));
    }
}
