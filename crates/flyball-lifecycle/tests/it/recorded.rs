//! The recorded catalog, and what OLM's package server answered for it.

use crate::behavior::catalog::{ADDRESS, Server};
use crate::fixture::delete;
use flyball_cluster::testing::Test;
use flyball_core::Clock;
use flyball_lifecycle::api::CatalogSource;
use flyball_lifecycle::content::{Blobs, Content};
use flyball_lifecycle::packages::{CatalogSummary, PackageServer};
use flyball_lifecycle::source::read_folder;
use flyball_lifecycle::{CatalogKey, Settings, operator};
use http::Request;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/behavior")
}

/// Returns the blobs of the recorded catalog.
pub(crate) fn recorded_blobs() -> Blobs {
    Blobs::parse(&read_folder(&data().join("catalog/fbc")).unwrap()).unwrap()
}

pub(crate) fn server() -> PackageServer {
    let clock = Clock::new(|| "2026-01-01T00:01:00Z".parse().unwrap());
    let server = PackageServer::new("olm", clock);
    insert(&server);
    server
}

pub(crate) fn catalog_key() -> CatalogKey {
    CatalogKey { namespace: "olm".into(), name: "demo".into() }
}

/// Adds the packages of the recorded catalog.
pub(crate) fn insert(server: &PackageServer) {
    let catalog = CatalogSummary {
        key: catalog_key(),
        display_name: "Demo".into(),
        publisher: "Flyball".into(),
        labels: Default::default(),
        created: "2026-01-01T00:00:00Z".into(),
    };
    server.insert(&catalog, &Content::new(recorded_blobs()));
}

fn get(server: &PackageServer, path: &str, accept: Option<&str>) -> (u16, Value) {
    let request = Request::get(path).header(ACCEPT, accept.unwrap_or("application/json")).body(()).unwrap();
    let response = server.handle(&request);
    let code = response.status().as_u16();
    (code, serde_json::from_slice(response.body()).unwrap_or_default())
}

/// Removes what the recordings leave out.
fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("creationTimestamp");
            if fields.contains_key("columnDefinitions") {
                for column in fields["columnDefinitions"].as_array_mut().into_iter().flatten() {
                    column.as_object_mut().unwrap().remove("description");
                }
            }
            if fields.contains_key("cells") {
                fields["cells"][2] = json!("<age>");
            }
            fields.values_mut().for_each(normalize);
        }
        Value::Array(list) => list.iter_mut().for_each(normalize),
        _ => {}
    }
}

/// Removes the version of a list and of its packages, which they must have. OLM has no watches, so it has no versions.
fn remove_versions(body: &mut Value) {
    if !["PackageManifestList", "PackageManifest", "Table"].contains(&body["kind"].as_str().unwrap_or_default()) {
        return;
    }
    let remove = |object: &mut Value| object["metadata"].as_object_mut().unwrap().remove("resourceVersion").unwrap();
    let version = remove(body);
    assert!(version.as_str().unwrap().parse::<u64>().is_ok_and(|version| version > 0), "{version}");
    let fields = body.as_object_mut().unwrap();
    for item in fields.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        assert_eq!(remove(item), version);
    }
    for row in fields.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if !row["object"].is_null() {
            assert_eq!(remove(&mut row["object"]), version);
        }
    }
}

#[test]
fn package_manifests_are_those_of_olm() {
    let scenario = std::fs::read(data().join("scenarios/19-packagemanifests.json")).unwrap();
    let scenario: Value = serde_json::from_slice(&scenario).unwrap();
    let (server, mut count) = (server(), 0);
    for step in scenario["steps"].as_array().unwrap() {
        let asked = step["do"].as_array().unwrap().iter().filter(|action| action["get"].is_string());
        let responses = step["expect"]["responses"].as_array().into_iter().flatten();
        for (action, expected) in asked.zip(responses) {
            assert_eq!(action["get"], expected["get"]);
            let path = expected["get"].as_str().unwrap();
            let (code, mut body) = get(&server, path, action["accept"].as_str());
            assert_eq!(json!(code), expected["status"], "{path}");
            remove_versions(&mut body);
            normalize(&mut body);
            similar(&body, &expected["body"], path);
            count += 1;
        }
    }
    assert_eq!(count, 9);
}

/// Compares values, and names the first path that differs.
fn similar(found: &Value, expected: &Value, path: &str) {
    match (found, expected) {
        (Value::Object(one), Value::Object(other)) => {
            let names = |map: &serde_json::Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(one), names(other), "{path}");
            one.iter().for_each(|(name, value)| similar(value, &other[name], &format!("{path} {name}")));
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs.for_each(|(at, (one, other))| similar(one, other, &format!("{path} {at}")));
        }
        _ => assert_eq!(found, expected, "{path}"),
    }
}

/// Fails unless a schema describes each field of a value.
fn described(value: &Value, schema: &Value, path: &str) {
    assert!(schema["description"].is_string() || !path.contains('.') || schema["type"] == "string", "{path}");
    match value {
        Value::Object(fields) if schema["x-kubernetes-preserve-unknown-fields"] != true => {
            for (name, field) in fields {
                let of_field = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
                let of_field = of_field.unwrap_or_else(|| panic!("{path}.{name} is not in the schema"));
                described(field, of_field, &format!("{path}.{name}"));
            }
        }
        Value::Array(list) => list.iter().for_each(|item| described(item, &schema["items"], &format!("{path}[]"))),
        _ => {}
    }
}

#[test]
fn openapi_describes_all_fields() {
    let server = server();
    let (code, root) = get(&server, "/openapi/v3", None);
    let url = &root["paths"]["apis/packages.operators.coreos.com/v1"]["serverRelativeURL"];
    assert!(code == 200 && url.is_string(), "{root}");
    let (code, document) = get(&server, url.as_str().unwrap(), None);
    assert_eq!((code, &document["openapi"]), (200, &json!("3.0.0")));
    let schema = &document["components"]["schemas"]["com.coreos.operators.packages.v1.PackageManifest"];
    let kind = json!([{"group": "packages.operators.coreos.com", "version": "v1", "kind": "PackageManifest"}]);
    assert_eq!(schema["x-kubernetes-group-version-kind"], kind, "kubectl explain searches for it");
    let (_, list) = get(&server, "/apis/packages.operators.coreos.com/v1/packagemanifests", None);
    let items = list["items"].as_array().unwrap();
    assert!(items.len() == 8);
    items.iter().for_each(|item| described(item, schema, "manifest"));
}

#[test]
fn packages_are_visible_in_their_namespace_and_from_the_global_one() {
    let server = server();
    let names = |path: &str| {
        let (code, list) = get(&server, &format!("/apis/packages.operators.coreos.com/v1/{path}"), None);
        assert_eq!(code, 200, "{list}");
        let field = |item: &Value, field: &str| item["metadata"][field].as_str().unwrap().to_owned();
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| format!("{}/{}", field(item, "namespace"), field(item, "name"))).collect::<Vec<_>>()
    };
    let own = CatalogSummary {
        key: CatalogKey { namespace: "demo-a".into(), name: "own".into() },
        display_name: "Own".into(),
        publisher: String::new(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        created: "2026-01-01T00:00:00Z".into(),
    };
    let mut blobs = recorded_blobs();
    blobs.packages.retain(|package| package.name == "memo");
    let content = Content::unchecked(blobs);
    server.insert(&own, &content);
    assert_eq!(names("namespaces/demo-a/packagemanifests?labelSelector=team%3Da"), ["demo-a/memo"]);
    assert_eq!(names("namespaces/demo-b/packagemanifests?labelSelector=team%3Da").len(), 0);
    assert_eq!(names("namespaces/demo-b/packagemanifests").len(), 8);
    assert_eq!(names("namespaces/demo-a/packagemanifests").len(), 9);
    assert_eq!(names("packagemanifests?fieldSelector=metadata.name%3Dmemo"), ["demo-a/memo", "olm/memo"]);
    let (_, memo) =
        get(&server, "/apis/packages.operators.coreos.com/v1/namespaces/demo-a/packagemanifests/memo", None);
    assert_eq!(memo["status"]["catalogSource"], "own", "the namespace's own catalog is preferred");
    server.remove(&own.key);
    assert_eq!(names("namespaces/demo-a/packagemanifests").len(), 8);
}

#[tokio::test(start_paused = true)]
async fn packages_of_the_last_deleted_catalog_are_removed() {
    let packages = PackageServer::new("test", Clock::new(|| "2026-01-01T00:01:00Z".parse().unwrap()));
    let filled = packages.clone();
    let make = move || {
        let settings = Settings::new(Arc::new(Server::default()));
        operator(&Settings { global_namespace: "test".to_owned(), packages: Some(filled.clone()), ..settings })
    };
    let test = Test::of(make).nodes(1).allows_changes_of::<Namespace>().start().await;
    let spec = json!({"sourceType": "grpc", "address": ADDRESS});
    let metadata = json!({"name": "demo"});
    let version = "operators.coreos.com/v1alpha1";
    let source = json!({"apiVersion": version, "kind": "CatalogSource", "metadata": metadata, "spec": spec});
    test.apply(&source.to_string()).await;
    let count = || {
        let path = "/apis/packages.operators.coreos.com/v1/namespaces/test/packagemanifests";
        get(&packages, path, None).1["items"].as_array().map(Vec::len)
    };
    test.eventually("the packages are listed", async || count() == Some(8)).await;
    delete(&test.api::<CatalogSource>(), "demo").await;
    test.eventually("the packages are removed", async || count() == Some(0)).await;
}

#[test]
fn only_reads_are_answered() {
    let server = server();
    let path = "/apis/packages.operators.coreos.com/v1/namespaces/olm/packagemanifests";
    let code = |request: Request<()>| server.handle(&request).status().as_u16();
    assert_eq!(code(Request::post(path).body(()).unwrap()), 405);
    assert_eq!(code(Request::delete(format!("{path}/memo")).body(()).unwrap()), 405);
    assert_eq!(code(Request::get(format!("{path}?watch=true")).body(()).unwrap()), 405);
    assert_eq!(code(Request::get(format!("{path}?labelSelector=%3D%3D")).body(()).unwrap()), 400);
    assert_eq!(code(Request::get("/apis/packages.operators.coreos.com/v2").body(()).unwrap()), 404);
    assert_eq!(code(Request::get("/other").body(()).unwrap()), 404);
    let icon = server.handle(&Request::get(format!("{path}/memo/icon")).body(()).unwrap());
    assert_eq!(icon.headers()["content-type"], "image/svg+xml");
}
