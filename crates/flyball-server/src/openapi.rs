//! OpenAPI: documents of the schemas and paths of all served resources.
//!
//! Version 3 has a document for each group version, version 2 has one in all. Schemas of built-in kinds are generated
//! from their notation, without descriptions; those of custom resources are copied from their CRD. See
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>.

mod paths;
mod protobuf;
mod schemas;

use crate::catalog::{Catalog, Resource, Version};
use crate::response::{self, Body};
use bytes::Bytes;
use flyball_core::GroupVersion;
use http::Response;
use parking_lot::Mutex;
use schemas::{Definitions, Dialect};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rendered documents, until the catalog changes: each has megabytes, and any client may request it.
#[derive(Default)]
pub(crate) struct Documents(Mutex<Option<CatalogDocuments>>);

/// Documents of a catalog, by name.
struct CatalogDocuments {
    catalog: Arc<Catalog>,
    documents: BTreeMap<String, Bytes>,
}

impl Documents {
    /// Returns a document of a catalog, which is rendered if it is not known. No lock is held meanwhile: requests for a
    /// document that is being rendered would hold their threads.
    fn get(&self, catalog: &Arc<Catalog>, name: String, render: impl FnOnce() -> Vec<u8>) -> Bytes {
        if let Some(known) = CatalogDocuments::of(&mut self.0.lock(), catalog).get(&name) {
            return known.clone();
        }
        let document = Bytes::from(render());
        CatalogDocuments::of(&mut self.0.lock(), catalog).entry(name).or_insert(document).clone()
    }
}

impl CatalogDocuments {
    /// Returns the documents of a catalog, in document_path of those of another one.
    fn of<'d>(rendered: &'d mut Option<Self>, catalog: &Arc<Catalog>) -> &'d mut BTreeMap<String, Bytes> {
        rendered.take_if(|rendered| !Arc::ptr_eq(&rendered.catalog, catalog));
        let new = || Self { catalog: catalog.clone(), documents: BTreeMap::new() };
        &mut rendered.get_or_insert_with(new).documents
    }
}

/// The resources of a version that clients may see.
fn served(version: &Version) -> Vec<&Arc<Resource>> {
    version.resources.values().filter(|resource| resource.is_served()).collect()
}

/// The path of a group version below the root, which also names its document.
fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Responds to `/openapi/v3` with the paths of the documents. Those of aggregated API servers have no hash: only their
/// servers know when they change.
pub(crate) fn root<'r>(catalog: &Catalog, remote: impl Iterator<Item = &'r GroupVersion>) -> Response<Body> {
    let of_remote = |of: &GroupVersion| {
        let path = document_path(&of.group, &of.version);
        let url = format!("/openapi/v3/{path}");
        (path, json!({"serverRelativeURL": url}))
    };
    let mut paths: Map<String, Value> = remote.map(of_remote).collect();
    for (name, group) in catalog.groups() {
        for version in group.versions.iter().filter(|version| !served(version).is_empty()) {
            let document_path = document_path(name, &version.name);
            let url = format!("/openapi/v3/{document_path}?hash={}", hash(version));
            paths.insert(document_path, json!({"serverRelativeURL": url}));
        }
    }
    // The media type is text, as in kube-apiserver.
    response::text(200, json!({"paths": paths}).to_string())
}

/// Returns the hash of the document of a group version, which changes with its content.
fn hash(version: &Version) -> String {
    use std::fmt::Write;
    let mut text = env!("CARGO_PKG_VERSION").to_owned();
    for resource in served(version) {
        let custom = resource.custom().map(|custom| custom.subresources);
        let _ = write!(text, "|{}:{}:{custom:?}", resource.plural, resource.schema_number);
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    flyball_core::hex::encode(&digest.as_ref()[..16]).to_uppercase()
}

/// Responds to `/openapi/v3/…` with the document of a group version.
pub(crate) fn document(documents: &Documents, catalog: &Arc<Catalog>, path: &[&str], hashed: bool) -> Response<Body> {
    let (group, name) = match path {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return response::new(404, "text/plain; charset=utf-8", ""),
    };
    let version = catalog.group(group).and_then(|group| group.versions.iter().find(|known| *known.name == *name));
    let Some(version) = version.filter(|version| !served(version).is_empty()) else {
        return response::new(404, "text/plain; charset=utf-8", "");
    };
    let body = documents.get(catalog, path.join("/"), || json_text(&group_version(version)));
    let mut response = response::new(200, "application/json", body);
    if hashed {
        let forever = http::HeaderValue::from_static("public, immutable");
        response.headers_mut().insert(http::header::VARY, http::HeaderValue::from_static("Accept"));
        response.headers_mut().insert(http::header::CACHE_CONTROL, forever);
    }
    response
}

/// Creates the document of a group version.
fn group_version(version: &Version) -> Value {
    let mut definitions = Definitions::new(Dialect::V3);
    let mut all = Map::new();
    for resource in served(version) {
        let schema = definitions.add(resource);
        paths::add(&mut all, resource, &schema, Dialect::V3);
    }
    let custom = served(version).iter().any(|resource| resource.custom().is_some());
    let info = if custom {
        json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
    } else {
        json!({"title": "Kubernetes", "version": "unversioned"})
    };
    json!({"openapi": "3.0.0", "info": info, "paths": all, "components": {"schemas": definitions.finish()}})
}

/// Serves `/openapi/v2`: one document for all groups, as JSON or as protobuf, by the first accepted type.
pub(crate) fn v2(documents: &Documents, catalog: &Arc<Catalog>, accept: Option<&str>) -> Response<Body> {
    let media = |clause: &str| match clause.split(';').next().unwrap_or_default().trim() {
        "application/json" | "application/*" | "*/*" | "" => Some("application/json"),
        protobuf::REQUESTED_TYPE | protobuf::RETURNED_TYPE => Some(protobuf::RETURNED_TYPE),
        _ => None,
    };
    let Some(media) = accept.unwrap_or_default().split(',').find_map(media) else {
        return response::new(406, "text/plain; charset=utf-8", "");
    };
    let body = documents.get(catalog, format!("v2 {media}"), || {
        let document = all_versions(catalog);
        if media == protobuf::RETURNED_TYPE { protobuf::document(&document) } else { json_text(&document) }
    });
    response::new(200, media, body)
}

/// Renders the document of all served resources.
fn all_versions(catalog: &Catalog) -> Value {
    let mut definitions = Definitions::new(Dialect::V2);
    let mut all = Map::new();
    for resource in catalog.resources().filter(|resource| resource.is_served()) {
        let schema = definitions.add(resource);
        paths::add(&mut all, resource, &schema, Dialect::V2);
    }
    let info = json!({"title": "Kubernetes", "version": format!("v{}.{}.0", crate::discovery::MAJOR, crate::discovery::MINOR)});
    json!({"swagger": "2.0", "info": info, "paths": all, "definitions": definitions.finish()})
}

fn json_text(document: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec(document).expect("JSON values can be written");
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendering_holds_no_lock() {
        let (documents, catalog) = (Documents::default(), Arc::new(Catalog::built_in()));
        let mut count = 0;
        for _ in 0..2 {
            let document = documents.get(&catalog, "d".into(), || {
                count += 1;
                assert!(documents.0.try_lock().is_some());
                b"text".into()
            });
            assert_eq!(document, "text");
        }
        assert_eq!(count, 1);
    }
}
