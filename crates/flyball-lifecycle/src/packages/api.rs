//! The API of PackageManifests as a function from request to response.

use super::manifest::{CatalogSummary, GROUP, PackageManifest, RESOURCE, VERSION};
use super::open_watches::OpenWatches;
use super::openapi;
use super::table::{Include, table};
use crate::catalog::CatalogKey;
use crate::content::Content;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flyball_core::selector::{FieldSelector, LabelSelector};
use flyball_core::{Clock, GroupResource, Status};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use parking_lot::RwLock;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use url::form_urlencoded;

/// The picture of packages that have none.
const DEFAULT_ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><circle cx="32" cy="32" r="30" fill="#d1d1d1"/><path d="M20 24l12-7 12 7v16l-12 7-12-7z" fill="none" stroke="#8d8d8f" stroke-width="4"/></svg>"##;

/// The packages of a catalog, by name.
type Packages = BTreeMap<String, Arc<PackageManifest>>;

/// The packages, and their version. Both change at the same time, so that no watch misses a change.
#[derive(Debug)]
struct State {
    /// Counts the changes of packages.
    version: u64,
    catalogs: BTreeMap<CatalogKey, Arc<Packages>>,
}

/// The packages of all catalogs. Clones share them.
#[derive(Clone, Debug)]
pub struct PackageServer {
    /// The namespace whose catalogs are visible everywhere.
    global_namespace: Arc<str>,
    clock: Clock,
    state: Arc<RwLock<State>>,
    /// Notified of each change.
    changed: Arc<Notify>,
    watches: OpenWatches,
}

/// The packages that a request selects, by namespace, name and catalog.
pub(super) type SelectedPackages = BTreeMap<(String, String, CatalogKey), Arc<PackageManifest>>;

/// The objects that a request selects.
pub(super) struct Selection {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub(super) fn read(namespace: Option<&str>, query: &Query) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.text("labelSelector"))
            .map_err(|error| Status::bad_request(format!("unable to parse requirement: {error}")))?;
        let fields = FieldSelector::parse(query.text("fieldSelector"))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        Ok(Self { namespace: namespace.map(str::to_owned), labels, fields })
    }
}

impl PackageServer {
    /// Creates a server without packages.
    pub fn new(global_namespace: &str, clock: Clock) -> Self {
        // A restarted server must not repeat versions that clients know.
        let version = u64::try_from(clock.now().as_microsecond()).unwrap_or_default();
        Self {
            global_namespace: global_namespace.into(),
            clock,
            state: Arc::new(RwLock::new(State { version, catalogs: BTreeMap::new() })),
            changed: Arc::default(),
            watches: OpenWatches::default(),
        }
    }

    /// Sets the packages of a catalog.
    pub fn insert(&self, catalog: &CatalogSummary, content: &Content) {
        let manifests = content.packages().filter_map(|package| {
            let manifest = PackageManifest::new(catalog, package)?;
            Some((package.name.clone(), Arc::new(manifest)))
        });
        let packages = Arc::new(manifests.collect());
        self.change(|catalogs| {
            catalogs.insert(catalog.key.clone(), packages);
            true
        });
    }

    /// Removes the packages of a catalog.
    pub fn remove(&self, catalog: &CatalogKey) {
        self.change(|catalogs| catalogs.remove(catalog).is_some());
    }

    /// Changes the packages, unless the function returns false. The version rises under the same lock.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<CatalogKey, Arc<Packages>>) -> bool) {
        {
            let mut state = self.state.write();
            if !change(&mut state.catalogs) {
                return;
            }
            state.version += 1;
        }
        self.changed.notify_waiters();
    }

    pub(super) fn watches(&self) -> &OpenWatches {
        &self.watches
    }

    /// Returns the number of the last change.
    pub(super) fn version(&self) -> u64 {
        self.state.read().version
    }

    pub(super) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Answers a request other than a watch. The caller has authorized it.
    pub fn handle<B>(&self, request: &Request<B>) -> Response<Bytes> {
        let path = request.uri().path().trim_matches('/');
        let parts: Vec<&str> = path.split('/').collect();
        let query = Query::read(request.uri().query().unwrap_or_default());
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return status(&Status::method_not_allowed());
        }
        let mut response = self.respond(&parts, &query, request.headers());
        if request.method() == Method::HEAD {
            response.body_mut().clear();
        }
        response
    }

    fn respond(&self, parts: &[&str], query: &Query, headers: &HeaderMap) -> Response<Bytes> {
        let is_aggregated = headers
            .get_all(ACCEPT)
            .iter()
            .any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("APIGroupDiscoveryList")));
        match parts {
            ["healthz" | "livez" | "readyz"] => text("ok"),
            ["apis"] if is_aggregated => aggregated_discovery(),
            ["apis"] => value(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})),
            ["apis", GROUP] => {
                let mut group = group();
                group["kind"] = json!("APIGroup");
                group["apiVersion"] = json!("v1");
                value(200, &group)
            }
            ["apis", GROUP, VERSION] => value(200, &resources()),
            ["apis", GROUP, VERSION, RESOURCE] => self.list(None, query, headers),
            ["apis", GROUP, VERSION, "namespaces", namespace, RESOURCE] => self.list(Some(namespace), query, headers),
            ["apis", GROUP, VERSION, "namespaces", namespace, RESOURCE, name] => {
                self.get(namespace, name, query, headers)
            }
            ["apis", GROUP, VERSION, "namespaces", namespace, RESOURCE, name, "icon"] => {
                self.icon(namespace, name, headers)
            }
            ["openapi", "v3"] => value(200, &openapi::root()),
            ["openapi", "v3", "apis", GROUP, VERSION] => value(200, &openapi::document()),
            ["openapi", ..] => not_found_page(),
            ["apis", GROUP, ..] => status(&Status::unknown_resource()),
            _ => not_found_page(),
        }
    }

    /// Returns the version, and the packages that are visible in a namespace, by name and catalog.
    fn visible(&self, namespace: Option<&str>) -> (u64, Vec<(CatalogKey, Arc<Packages>)>) {
        let is_visible = |key: &CatalogKey| {
            namespace.is_none_or(|namespace| *key.namespace == *namespace || *key.namespace == *self.global_namespace)
        };
        let state = self.state.read();
        let visible = state.catalogs.iter().filter(|(key, _)| is_visible(key));
        (state.version, visible.map(|(key, packages)| (key.clone(), packages.clone())).collect())
    }

    /// Returns the version, and the packages of a selection.
    pub(super) fn selected(&self, selection: &Selection) -> (u64, SelectedPackages) {
        let mut found = SelectedPackages::new();
        let (version, visible) = self.visible(selection.namespace.as_deref());
        for (key, packages) in visible {
            for (name, manifest) in packages.iter() {
                let labeled = &manifest.object["metadata"]["labels"];
                let shown = selection.namespace.as_ref().unwrap_or(&key.namespace);
                let field = |field: &str| match field {
                    "metadata.name" => name.as_str(),
                    "metadata.namespace" => shown,
                    _ => "",
                };
                if selection.labels.matches(|label| labeled[label].as_str()) && selection.fields.matches(field) {
                    found.insert((shown.clone(), name.clone(), key.clone()), manifest.clone());
                }
            }
        }
        (version, found)
    }

    fn list(&self, namespace: Option<&str>, query: &Query, headers: &HeaderMap) -> Response<Bytes> {
        if query.flag("watch") {
            return status(&Status::method_not_allowed());
        }
        let selection = match Selection::read(namespace, query) {
            Ok(selection) => selection,
            Err(error) => return status(&error),
        };
        let (version, selected) = self.selected(&selection);
        let objects = selected.iter().map(|((namespace, ..), manifest)| shown_in(manifest, namespace, version));
        self.represent(objects.collect(), query, headers, version, |items| {
            json!({
                "kind": "PackageManifestList", "apiVersion": format!("{GROUP}/{VERSION}"),
                "metadata": {"resourceVersion": version.to_string()}, "items": items,
            })
        })
    }

    /// Returns the version, and a package.
    fn find(&self, namespace: &str, name: &str) -> Option<(u64, Arc<PackageManifest>)> {
        let (version, mut catalogs) = self.visible(Some(namespace));
        // The catalogs of the namespace come before those of the global one.
        catalogs.sort_by_key(|(key, _)| *key.namespace != *namespace);
        Some((version, catalogs.iter().find_map(|(_, packages)| packages.get(name).cloned())?))
    }

    fn get(&self, namespace: &str, name: &str, query: &Query, headers: &HeaderMap) -> Response<Bytes> {
        let Some((version, manifest)) = self.find(namespace, name) else { return status(&missing(name)) };
        let object = with_type(shown_in(&manifest, namespace, version));
        self.represent(vec![object], query, headers, version, |mut objects| objects.remove(0))
    }

    /// Returns the form of the rows of a table if the client prefers one.
    pub(super) fn table_of(&self, query: &Query, headers: &HeaderMap) -> Result<Option<Include>, Status> {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let first = accept.split(',').next().unwrap_or_default();
        if !first.contains("as=Table") {
            return Ok(None);
        }
        let invalid = || Status::bad_request("includeObject must be 'Metadata', 'Object', 'None', or empty");
        Include::read(query.text("includeObject")).map(Some).ok_or_else(invalid)
    }

    /// Returns objects as a table of this version.
    pub(super) fn table(&self, objects: &[Value], include: Include, version: u64) -> Value {
        let mut table = table(objects, include, &self.clock);
        table["metadata"]["resourceVersion"] = version.to_string().into();
        table
    }

    /// Encodes objects as a table of this version if the client prefers one.
    fn represent(
        &self,
        objects: Vec<Value>,
        query: &Query,
        headers: &HeaderMap,
        version: u64,
        plain: impl FnOnce(Vec<Value>) -> Value,
    ) -> Response<Bytes> {
        match self.table_of(query, headers) {
            Ok(None) => value(200, &plain(objects)),
            Ok(Some(include)) => value(200, &self.table(&objects, include, version)),
            Err(refusal) => status(&refusal),
        }
    }

    fn icon(&self, namespace: &str, name: &str, headers: &HeaderMap) -> Response<Bytes> {
        let Some((_, manifest)) = self.find(namespace, name) else { return status(&missing(name)) };
        let (channel, csv) = &manifest.default;
        let tag = format!("\"{name}.{channel}.{csv}\"");
        let (media_type, picture) = match &manifest.icon {
            Some((media_type, data)) => (media_type.as_str(), STANDARD.decode(data).unwrap_or_default()),
            None => ("image/svg+xml", DEFAULT_ICON.as_bytes().to_vec()),
        };
        let mut response = Response::new(Bytes::from(picture));
        if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.body_mut().clear();
        }
        // A browser must not run a script that a catalog calls a picture.
        let is_picture = media_type.starts_with("image/");
        let media_type = HeaderValue::from_str(media_type).ok().filter(|_| is_picture);
        let media_type = media_type.unwrap_or(HeaderValue::from_static("application/octet-stream"));
        response.headers_mut().insert(CONTENT_TYPE, media_type);
        response.headers_mut().insert("content-security-policy", HeaderValue::from_static("sandbox"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}

/// Returns the object of a package in a namespace, with the version of all packages: watches begin from it.
pub(super) fn shown_in(manifest: &PackageManifest, namespace: &str, version: u64) -> Value {
    let mut object = manifest.object.clone();
    object["metadata"]["namespace"] = namespace.into();
    object["metadata"]["resourceVersion"] = version.to_string().into();
    object
}

/// Adds kind and version, which items of lists lack.
pub(super) fn with_type(mut object: Value) -> Value {
    object["kind"] = json!("PackageManifest");
    object["apiVersion"] = json!(format!("{GROUP}/{VERSION}"));
    object
}

fn missing(name: &str) -> Status {
    Status::not_found(&GroupResource::new(GROUP, RESOURCE), name)
}

fn group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({"name": GROUP, "versions": [version], "preferredVersion": version})
}

fn resources() -> Value {
    let resource = |name: String, singular: &str, verbs: &[&str]| json!({"name": name, "singularName": singular, "namespaced": true, "kind": "PackageManifest", "verbs": verbs});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [
            resource(RESOURCE.into(), "packagemanifest", &["get", "list"]),
            resource(format!("{RESOURCE}/icon"), "", &["get"]),
        ],
    })
}

fn aggregated_discovery() -> Response<Bytes> {
    let kind = json!({"group": GROUP, "version": VERSION, "kind": "PackageManifest"});
    let resource = json!({
        "resource": RESOURCE, "responseKind": kind, "scope": "Namespaced", "singularResource": "packagemanifest",
        "verbs": ["get", "list"],
        "subresources": [{"subresource": "icon", "responseKind": kind, "verbs": ["get"]}],
    });
    let versions = json!([{"version": VERSION, "resources": [resource], "freshness": "Current"}]);
    let mut response = value(
        200,
        &json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
            "items": [{"metadata": {"name": GROUP}, "versions": versions}],
        }),
    );
    let full = HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    response.headers_mut().insert(CONTENT_TYPE, full);
    response
}

fn value(code: u16, value: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{value}\n")));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn status(status: &Status) -> Response<Bytes> {
    let mut body = serde_json::to_value(status).unwrap_or_default();
    body["kind"] = json!("Status");
    body["apiVersion"] = json!("v1");
    body["metadata"] = json!({});
    body["status"] = json!("Failure");
    value(status.code, &body)
}

fn text(text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn not_found_page() -> Response<Bytes> {
    let mut response = text("404 page not found\n");
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// The parameters of a URL.
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn read(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1")
    }
}
