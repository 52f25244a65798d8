//! What is served while CRDs are written from many sides at once.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A CRD with a schema that takes a while to read.
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
async fn a_kind_is_served_before_it_is_said_to_be_established() {
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
async fn definitions_that_are_written_at_once_are_all_served() {
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
            let gone = send(&server, Method::DELETE, &url, "application/json", json!({})).await;
            assert_eq!(gone.0, 200, "{gone:?}");
        }
    }
}
