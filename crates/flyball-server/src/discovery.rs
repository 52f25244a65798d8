//! Discovery: documents of the served groups, versions and resources, separate or aggregated.
//!
//! See <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api>.

use crate::aggregation::RemoteVersion;
use crate::auth::ISSUER;
use crate::catalog::{Catalog, Group, Resource, Version};
use crate::request::accept::{Discovery, Form, negotiate_discovery, not_acceptable};
use crate::response::{self, Body};
use bytes::Bytes;
use flyball_core::Status;
use http::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Returns the reported version of the server, such as `v1.36.0`, which is also that of kubelets.
pub fn git_version() -> String {
    format!("v{MAJOR}.{MINOR}.0-flyball-{}", env!("CARGO_PKG_VERSION"))
}

/// The version of Kubernetes whose behavior the server implements.
pub(crate) const MAJOR: &str = "1";
pub(crate) const MINOR: &str = "36";
/// The oldest version that it emulates.
const MIN_COMPATIBILITY: &str = "35";

/// The verbs of custom resources, in the order in which they are listed.
const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

fn plain(value: &Value) -> Response<Body> {
    response::value(200, Form::PLAIN, value)
}

/// Returns Go's name of the processor architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Responds to `/version`.
pub(crate) fn version() -> Response<Body> {
    let git = git_version();
    plain(&json!({
        "major": MAJOR, "minor": MINOR, "emulationMajor": MAJOR, "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR, "minCompatibilityMinor": MIN_COMPATIBILITY, "gitVersion": git, "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    }))
}

/// Responds to `/`.
pub(crate) fn paths(catalog: &Catalog) -> Option<Response<Body>> {
    let mut paths =
        vec!["/.well-known/openid-configuration".to_owned(), "/api".into(), "/api/v1".into(), "/apis".into()];
    for (name, group) in catalog.groups().into_iter().filter(|(name, _)| !name.is_empty()) {
        paths.push(format!("/apis/{name}"));
        paths.extend(served(group).map(|version| format!("/apis/{name}/{}", version.name)));
    }
    let others =
        ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"];
    paths.extend(others.map(str::to_owned));
    paths.sort();
    Some(plain(&json!({"paths": paths})))
}

/// Responds to `/.well-known/openid-configuration`.
pub(crate) fn issuer() -> Response<Body> {
    plain(&json!({
        "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/openid/v1/jwks"), "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["EdDSA"],
    }))
}

/// Responds to a path below `/api` or `/apis`; `None` if it is unknown. The groups of aggregated API servers come last.
pub(crate) fn respond(
    catalog: &Catalog,
    remote: &[RemoteVersion],
    path: &[&str],
    accept: Option<&str>,
) -> Option<Response<Body>> {
    let Some(form) = negotiate_discovery(accept) else {
        // Only the two roots have aggregated discovery; paths below them return lists.
        return Some(response::status(&not_acceptable(crate::request::accept::BUILT_IN)));
    };
    let built_in = |name: &str| catalog.group(name).is_some_and(|group| group.built_in);
    let value = match (path, form) {
        (["api"], Discovery::Aggregated) => {
            let document = catalog.discovery.core.get_or_init(|| encoded(&aggregated(catalog, |name| name.is_empty())));
            return Some(aggregated_response(document.clone()));
        }
        (["apis"], Discovery::Aggregated) => {
            let document = || aggregated(catalog, |name| !name.is_empty());
            if remote.is_empty() {
                let document = catalog.discovery.groups.get_or_init(|| encoded(&document()));
                return Some(aggregated_response(document.clone()));
            }
            let mut document = document();
            document["items"].as_array_mut().into_iter().for_each(|items| add_remote(items, remote));
            return Some(aggregated_response(encoded(&document)));
        }
        (["api"], _) => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]})
        }
        (["apis"], _) => {
            let groups =
                catalog.groups().into_iter().filter(|(name, group)| !name.is_empty() && served(group).next().is_some());
            let mut groups: Vec<Value> = groups.map(|(name, group)| describe_group(name, group)).collect();
            let names = remote_groups(remote);
            groups.extend(names.filter(|name| catalog.group(name).is_none()).map(|name| describe_remote(name, remote)));
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        (["apis", name], _) => {
            let mut value = match catalog.group(name).filter(|group| served(group).next().is_some()) {
                Some(group) => describe_group(name, group),
                None if remote_groups(remote).any(|group| group == *name) => describe_remote(name, remote),
                None => return None,
            };
            value["kind"] = "APIGroup".into();
            value["apiVersion"] = "v1".into();
            value
        }
        (["api", version], _) => resources(catalog, "", version).or(Some(Value::Null))?,
        (["apis", name, version], _) => match resources(catalog, name, version) {
            Some(value) => value,
            None if built_in(name) => Value::Null,
            None => return None,
        },
        _ => return None,
    };
    if value.is_null() {
        return Some(response::status(&Status::unknown_resource()));
    }
    Some(plain(&value))
}

fn encoded(document: &Value) -> Bytes {
    format!("{document}\n").into()
}

/// Returns an aggregated document. Clients check its type by the header.
fn aggregated_response(document: Bytes) -> Response<Body> {
    response::new(200, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", document)
}

/// Returns the groups of aggregated API servers, each once.
fn remote_groups(remote: &[RemoteVersion]) -> impl Iterator<Item = &str> {
    let is_first = |at: &usize| remote[..*at].iter().all(|before| before.of.group != remote[*at].of.group);
    (0..remote.len()).filter(is_first).map(|at| &*remote[at].of.group)
}

/// Describes a group of aggregated API servers.
fn describe_remote(name: &str, remote: &[RemoteVersion]) -> Value {
    let versions = remote.iter().filter(|version| &*version.of.group == name).map(|version| &version.of.version);
    let version = |version: &Arc<str>| json!({"groupVersion": format!("{name}/{version}"), "version": &**version});
    let versions: Vec<Value> = versions.map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

/// Adds the groups of aggregated API servers to an aggregated document.
fn add_remote(items: &mut Vec<Value>, remote: &[RemoteVersion]) {
    for name in remote_groups(remote) {
        let versions: Vec<Value> =
            remote.iter().filter(|version| &*version.of.group == name).map(RemoteVersion::to_json).collect();
        match items.iter_mut().find(|item| item["metadata"]["name"] == *name) {
            Some(item) => item["versions"].as_array_mut().into_iter().for_each(|known| known.extend(versions.clone())),
            None => items.push(json!({"metadata": {"name": name}, "versions": versions})),
        }
    }
}

/// The versions of a group that serve something.
fn served(group: &Group) -> impl Iterator<Item = &Version> {
    group.versions.iter().filter(|version| version.resources.values().any(|resource| resource.is_served()))
}

fn describe_group(name: &str, group: &Group) -> Value {
    let version =
        |version: &Version| json!({"groupVersion": format!("{name}/{}", version.name), "version": &*version.name});
    let versions: Vec<Value> = served(group).map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn verbs(resource: &Resource) -> Vec<&'static str> {
    match resource.custom() {
        None => resource.verbs().names().to_vec(),
        Some(custom) => CUSTOM_VERBS.into_iter().filter(|verb| !custom.terminating || *verb != "create").collect(),
    }
}

/// Lists the resources of a group version.
fn resources(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let found = catalog.group(group)?;
    let version = served(found).find(|known| &*known.name == version)?;
    let mut list = Vec::new();
    for resource in version.resources.values().filter(|resource| resource.is_served()) {
        let mut entry = Map::new();
        entry.insert("name".into(), (*resource.plural).into());
        entry.insert("singularName".into(), resource.singular.as_str().into());
        entry.insert("namespaced".into(), resource.namespaced.into());
        entry.insert("kind".into(), (*resource.kind.kind).into());
        entry.insert("verbs".into(), verbs(resource).into());
        if !resource.short_names.is_empty() {
            entry.insert("shortNames".into(), json!(resource.short_names));
        }
        if !resource.categories.is_empty() {
            entry.insert("categories".into(), json!(resource.categories));
        }
        entry.insert("storageVersionHash".into(), hash(resource).into());
        list.push(Value::Object(entry));
        for sub in resource.subresources() {
            let mut entry = Map::new();
            entry.insert("name".into(), format!("{}/{}", resource.plural, sub.name).into());
            entry.insert("singularName".into(), "".into());
            entry.insert("namespaced".into(), resource.namespaced.into());
            let (group, version) = sub.group_version.unwrap_or_default();
            if !version.is_empty() && (*resource.kind.group != *group || *resource.kind.version != *version) {
                entry.insert("group".into(), group.into());
                entry.insert("version".into(), version.into());
            }
            entry.insert("kind".into(), sub.kind.unwrap_or(&resource.kind.kind).into());
            entry.insert("verbs".into(), sub.verbs.into());
            list.push(Value::Object(entry));
        }
    }
    let name = if group.is_empty() { version.name.to_string() } else { format!("{group}/{}", version.name) };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list}))
}

/// Returns the hash of a resource's storage version, by which clients detect its change.
fn hash(resource: &Resource) -> String {
    use base64::Engine;
    let version = resource.custom().map_or(&*resource.kind.version, |custom| custom.storage_version.as_str());
    let text = format!("{}/{version}/{}", resource.table.group, resource.kind.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// Returns the aggregated document of all groups.
fn aggregated(catalog: &Catalog, is_selected: impl Fn(&str) -> bool) -> Value {
    let groups =
        catalog.groups().into_iter().filter(|(name, group)| is_selected(name) && served(group).next().is_some());
    let items: Vec<Value> = groups
        .map(|(name, group)| {
            let versions: Vec<Value> = served(group)
                .map(|version| {
                    let resources = version.resources.values().filter(|resource| resource.is_served());
                    let resources: Vec<Value> = resources.map(aggregated_resource).collect();
                    json!({"version": &*version.name, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": &**name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(resource: &Arc<Resource>) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let own = match resource.custom() {
        Some(_) => kind(&resource.kind.group, &resource.kind.version, &resource.kind.kind),
        // Built-in kinds omit group and version if they are those of the document.
        None => kind("", "", &resource.kind.kind),
    };
    let mut entry = Map::new();
    entry.insert("resource".into(), (*resource.plural).into());
    entry.insert("responseKind".into(), own.clone());
    entry.insert("scope".into(), if resource.namespaced { "Namespaced" } else { "Cluster" }.into());
    entry.insert("singularResource".into(), resource.singular.as_str().into());
    entry.insert("verbs".into(), verbs(resource).into());
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".into(), json!(resource.categories));
    }
    let subs: Vec<Value> = resource
        .subresources()
        .iter()
        .map(|sub| {
            let (group, version) = sub.group_version.unwrap_or_default();
            let response = sub.kind.map_or_else(|| own.clone(), |name| kind(group, version, name));
            json!({"subresource": sub.name, "responseKind": response, "verbs": sub.verbs})
        })
        .collect();
    if !subs.is_empty() {
        entry.insert("subresources".into(), subs.into());
    }
    Value::Object(entry)
}
