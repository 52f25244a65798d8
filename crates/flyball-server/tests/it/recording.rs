//! Recordings of a server, and servers that are restored from them.

use bytes::Bytes;
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use flyball_server::{Options, RecordedWrite, Recording, Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const HATS: &str = "/apis/x.io/v1/namespaces/default/hats";

/// A temporary file, removed at the end of the test.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flyball-replay-{}-{test}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn options(seed: u64) -> Options {
    Options::simulated(Clock::new(|| Timestamp::from_second(1_800_000_000).unwrap()), seed)
}

async fn send(server: &Server, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.header("user-agent", "kubectl/v1").extension(User::new("anna", &["system:masters"]));
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let response = server.handle(request.body(Full::new(body)).unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn get(server: &Server, path: &str) -> (u16, Value) {
    send(server, Method::GET, path, &Value::Null).await
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hats.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "hats", "kind": "Hat"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}},
        ]},
    })
}

#[tokio::test(start_paused = true)]
async fn replayed_server_has_the_objects_versions_and_revision_of_a_moment() {
    let file = TemporaryFile::new("moment");
    let server = Server::new(options(1));
    server.record(&file.0, 64 << 20).unwrap();
    let map = json!({"metadata": {"name": "a"}, "data": {"n": "1"}});
    assert_eq!(send(&server, Method::POST, MAPS, &map).await.0, 201);
    assert_eq!(send(&server, Method::POST, CRDS, &definition()).await.0, 201);
    let hat = json!({"apiVersion": "x.io/v1", "kind": "Hat", "metadata": {"name": "h", "labels": {"a": "b"}}, "spec": {"size": 1}});
    assert_eq!(send(&server, Method::POST, HATS, &hat).await.0, 201);
    let path = format!("{MAPS}/a");
    let manager = format!("{path}?fieldManager=edit");
    let (_, middle) = send(&server, Method::PATCH, &manager, &json!({"data": {"n": "2"}})).await;
    let (_, hats) = get(&server, &format!("{HATS}?labelSelector=a%3Db")).await;
    let (_, third) = send(&server, Method::PATCH, &manager, &json!({"data": {"n": "3"}})).await;
    assert_eq!(send(&server, Method::DELETE, &path, &Value::Null).await.0, 200);
    assert_eq!(send(&server, Method::DELETE, &format!("{HATS}/h"), &Value::Null).await.0, 200);
    server.close();

    let recording = Recording::open(&file.0).unwrap();
    let at = version(&middle);
    let replayed = Server::replay(options(2), &recording, at).unwrap();
    assert_eq!(replayed.revision(), at);
    assert_eq!(get(&replayed, &path).await, (200, middle));
    let (code, found) = get(&replayed, &format!("{HATS}?labelSelector=a%3Db")).await;
    assert_eq!((code, &found["items"], version(&found)), (200, &hats["items"], at), "labels select as before");
    let (code, expired) =
        get(&replayed, &format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion={}", at - 1)).await;
    assert_eq!((code, &expired["reason"]), (410, &"Expired".into()), "there is no history");
    let (code, next) = send(&replayed, Method::PATCH, &manager, &json!({"data": {"n": "4"}})).await;
    assert_eq!((code, version(&next), next["data"]["n"].as_str()), (200, at + 1, Some("4")), "later writes follow");
    let (_, wrong) = send(
        &replayed,
        Method::POST,
        HATS,
        &json!({"apiVersion": "x.io/v1", "kind": "Hat",
        "metadata": {"name": "i"}, "spec": {"size": "large"}}),
    )
    .await;
    assert_eq!(wrong["reason"], "Invalid", "the schema of the CRD applies");

    let history = recording.history().unwrap();
    let of = |write: &RecordedWrite| {
        let origin = write.origin.as_deref()?;
        let texts = [&origin.user, &origin.agent, &origin.manager, &origin.verb].map(|text| text.to_string());
        Some((write.revision, write.is_removal, texts))
    };
    let written: Vec<_> =
        history.writes.iter().filter(|write| write.key.as_str() == "default/a").filter_map(of).collect();
    let expected = |revision: u64, manager: &str, verb: &str| {
        (revision, verb == "delete", ["anna", "kubectl/v1", manager, verb].map(str::to_owned))
    };
    let first = written[0].0;
    assert_eq!(written[0], expected(first, "kubectl", "create"));
    assert_eq!(written[1..3], [expected(at, "edit", "patch"), expected(version(&third), "edit", "patch")]);
    assert_eq!((written.len(), written[3].1, &*written[3].2[3]), (4, true, "delete"), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn recorded_server_is_not_affected() {
    let file = TemporaryFile::new("unaffected");
    let (server, other) = (Server::new(options(1)), Server::new(options(1)));
    server.record(&file.0, 64 << 20).unwrap();
    for n in 0..20 {
        let map = json!({"metadata": {"generateName": "m-"}, "data": {"n": n.to_string()}});
        let (one, two) = (send(&server, Method::POST, MAPS, &map).await, send(&other, Method::POST, MAPS, &map).await);
        assert_eq!(one, two);
    }
    assert_eq!(get(&server, MAPS).await, get(&other, MAPS).await);
}
