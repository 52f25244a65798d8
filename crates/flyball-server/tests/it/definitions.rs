//! Served resources during concurrent writes of CRDs.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates a CRD with a schema that is slow to read.
fn crd(plural: &str, versions: &[&str]) -> Value {
    let field = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{1,9}$"}}});
    let fields: Value = (0..60).map(|n| (format!("f{n}"), field.clone())).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let version = |name: &&str| json!({"name": name, "served": true, "storage": *name == versions[0], "schema": {"openAPIV3Schema": schema}});
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

async fn get(server: &Server, url: &str) -> (u16, Value) {
    send(server, Method::GET, url, "application/json", Value::Null).await
}

fn is_established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kind_is_served_before_it_is_established() {
    let server = server().await;
    for n in 0..100 {
        let plural = format!("widgets{n}");
        let (reader, read) = (server.clone(), plural.clone());
        let seen = tokio::spawn(async move {
            let url = format!("{ALL}/{read}.example.com");
            while !is_established(&get(&reader, &url).await.1) {
                tokio::task::yield_now().await;
            }
            let served = get(&reader, &format!("/apis/example.com/v1/namespaces/ns/{read}")).await.0;
            (served, get(&reader, "/apis/example.com/v1").await.1)
        });
        assert_eq!(post(&server, ALL, crd(&plural, &["v1"])).await.0, 201);
        let (code, discovered) = seen.await.unwrap();
        assert_eq!(code, 200, "{plural}");
        let resources = discovered["resources"].as_array().into_iter().flatten();
        assert!(resources.into_iter().any(|resource| resource["name"] == *plural), "{plural}: {discovered}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrently_written_definitions_are_all_served() {
    const WRITERS: usize = 8;
    let server = server().await;
    for round in 0..25 {
        let plurals: Vec<String> = (0..WRITERS).map(|n| format!("widgets{round}x{n}")).collect();
        let write = |plural: &String| {
            let (server, plural) = (server.clone(), plural.clone());
            tokio::spawn(async move {
                assert_eq!(post(&server, ALL, crd(&plural, &["v1"])).await.0, 201);
                let url = format!("{ALL}/{plural}.example.com");
                let versions = json!({"spec": {"versions": crd(&plural, &["v1", "v2"])["spec"]["versions"]}});
                let patched = send(&server, Method::PATCH, &url, "application/merge-patch+json", versions).await;
                assert_eq!(patched.0, 200, "{patched:?}");
            })
        };
        for writing in plurals.iter().map(write).collect::<Vec<_>>() {
            writing.await.unwrap();
        }
        for plural in &plurals {
            assert!(is_established(&get(&server, &format!("{ALL}/{plural}.example.com")).await.1), "{plural}");
            for version in ["v1", "v2"] {
                let url = format!("/apis/example.com/{version}/namespaces/ns/{plural}");
                assert_eq!(get(&server, &url).await.0, 200, "{plural} {version}");
            }
        }
        for plural in &plurals {
            let url = format!("{ALL}/{plural}.example.com");
            let deleted = send(&server, Method::DELETE, &url, "application/json", json!({})).await;
            assert_eq!(deleted.0, 200, "{deleted:?}");
        }
    }
}

/// A CRD of names in a group, which is stored in the first of its versions.
fn crd_of(group: &str, names: &Value, scope: &str, versions: &[&str]) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &&str| json!({"name": name, "served": true, "storage": *name == versions[0], "schema": {"openAPIV3Schema": schema}});
    json!({
        "metadata": {
            "name": format!("{}.{group}", names["plural"].as_str().unwrap()),
            "annotations": {"api-approved.kubernetes.io": "unapproved, x"},
        },
        "spec": {
            "group": group, "scope": scope, "names": names,
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

fn are_accepted(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "NamesAccepted" && condition["status"] == "True")
}

/// No CRD can replace a built-in kind: its objects are neither served in other versions nor deleted with the CRD.
#[tokio::test]
async fn built_in_kinds_cannot_be_replaced() {
    let server = server().await;
    let role = json!({"metadata": {"name": "r"}, "rules": []});
    assert_eq!(post(&server, "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/roles", role).await.0, 201);
    let groups = get(&server, "/apis").await.1["groups"].as_array().unwrap().clone();
    let mut tried = 0;
    for version in groups.iter().flat_map(|group| group["versions"].as_array().unwrap()) {
        let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
        let (group, name) = version["groupVersion"].as_str().unwrap().split_once('/').unwrap();
        let discovered = get(&server, &path).await.1;
        let whole = |resource: &&Value| !resource["name"].as_str().unwrap().contains('/');
        for resource in discovered["resources"].as_array().unwrap().iter().filter(whole) {
            let plural = resource["name"].as_str().unwrap();
            let kind = resource["kind"].as_str().unwrap();
            let names = json!({
                "plural": plural, "singular": resource["singularName"], "shortNames": resource["shortNames"],
                "kind": kind, "listKind": format!("{kind}List"),
            });
            let scope = if resource["namespaced"] == true { "Namespaced" } else { "Cluster" };
            let items = async || get(&server, &format!("{path}/{plural}")).await.1["items"].clone();
            let before = items().await;
            let url = format!("{ALL}/{plural}.{group}");
            for versions in [&[name][..], &["v9"], &["v9", name]] {
                let at = format!("{plural}.{group} {versions:?}");
                let (code, answer) = post(&server, ALL, crd_of(group, &names, scope, versions)).await;
                if !group.contains('.') {
                    assert_eq!(code, 422, "{at}: {answer}"); // no group that a CRD may have
                    continue;
                }
                tried += 1;
                assert_eq!(code, 201, "{at}: {answer}");
                let crd = get(&server, &url).await.1;
                assert!(!is_established(&crd) && !are_accepted(&crd), "{at}: {crd}");
                // Even if a client writes the status.
                let status = json!({"status": {"acceptedNames": names, "conditions": [
                    {"type": "NamesAccepted", "status": "True", "reason": "a", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "Established", "status": "True", "reason": "a", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]}});
                let merge = "application/merge-patch+json";
                let (code, answer) = send(&server, Method::PATCH, &format!("{url}/status"), merge, status).await;
                assert_eq!(code, 200, "{at}: {answer}");
                assert_eq!(get(&server, &format!("/apis/{group}/v9/{plural}")).await.0, 404, "{at}");
                let (code, answer) = send(&server, Method::DELETE, &url, "application/json", json!({})).await;
                assert_eq!(code, 200, "{at}: {answer}");
                assert_eq!(get(&server, &url).await.0, 404, "{at}");
                assert_eq!(items().await, before, "{at}");
                assert_eq!(get(&server, &path).await.1, discovered, "{at}");
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

/// Each name of a built-in kind is reserved in its group; all others are free.
#[tokio::test]
async fn built_in_groups_accept_unreserved_names() {
    let server = server().await;
    let cases = [
        ("networking.k8s.io", json!({"plural": "foos", "kind": "Ingress"}), false),
        ("networking.k8s.io", json!({"plural": "foos", "kind": "Foo", "singular": "ingress"}), false),
        ("networking.k8s.io", json!({"plural": "foos", "kind": "Foo", "shortNames": ["ing"]}), false),
        ("networking.k8s.io", json!({"plural": "foos", "kind": "Foo", "listKind": "IngressList"}), false),
        ("authentication.k8s.io", json!({"plural": "tokenrequests", "kind": "Foo"}), false),
        ("networking.k8s.io", json!({"plural": "foos", "kind": "Foo"}), true),
        ("gateway.networking.k8s.io", json!({"plural": "ingresses", "kind": "Ingress", "shortNames": ["ing"]}), true),
        ("snapshot.storage.k8s.io", json!({"plural": "volumesnapshots", "kind": "VolumeSnapshot"}), true),
    ];
    for (group, names, free) in cases {
        let crd = crd_of(group, &names, "Cluster", &["v1", "v9"]);
        let url = format!("{ALL}/{}", crd["metadata"]["name"].as_str().unwrap());
        assert_eq!(post(&server, ALL, crd).await.0, 201);
        let crd = get(&server, &url).await.1;
        assert_eq!((are_accepted(&crd), is_established(&crd)), (free, free), "{names}: {crd}");
        for version in ["v1", "v9"] {
            let served = get(&server, &format!("/apis/{group}/{version}/{}", names["plural"].as_str().unwrap())).await;
            assert_eq!(served.0, if free { 200 } else { 404 }, "{names} {version}: {}", served.1);
        }
        assert_eq!(send(&server, Method::DELETE, &url, "application/json", json!({})).await.0, 200);
    }
}
