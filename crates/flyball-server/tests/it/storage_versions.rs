//! Custom resources that are stored in one version and read in another.

use crate::facts::{post, send, server};
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use flyball_server::{Caller, Options, Server, WebhookCall, WebhookFuture, WebhookResponse};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";

fn version(name: &str, storage: bool, default: Option<&str>) -> Value {
    let mut fields = json!({"size": {"type": "integer"}, "a": {"type": "string"}, "b": {"type": "string"}});
    if let Some(field) = default {
        fields[field]["default"] = name.into();
    }
    let spec = json!({"type": "object", "properties": fields});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

/// Creates a CRD or changes its versions.
async fn define(server: &Server, versions: Value) {
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let spec = json!({"group": "e.com", "scope": "Namespaced", "names": names, "versions": versions});
    let (code, created) = post(server, CRDS, json!({"metadata": {"name": "widgets.e.com"}, "spec": spec})).await;
    if code != 201 {
        let change = json!({"spec": {"versions": versions}});
        let (code, answer) = send(server, Method::PATCH, &format!("{CRDS}/widgets.e.com"), MERGE, change).await;
        assert_eq!(code, 200, "{created} {answer}");
    }
}

fn path(version: &str, name: &str) -> String {
    format!("/apis/e.com/{version}/namespaces/ns/widgets/{name}")
}

async fn make(server: &Server, version: &str, name: &str) -> Value {
    let collection = path(version, "").trim_end_matches('/').to_owned();
    let object = json!({"apiVersion": format!("e.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}});
    let (code, created) = post(server, &collection, object).await;
    assert_eq!(code, 201, "{created}");
    created
}

async fn read(server: &Server, version: &str, name: &str) -> Value {
    send(server, Method::GET, &path(version, name), MERGE, json!({})).await.1
}

fn spec(object: &Value) -> &Value {
    &object["spec"]
}

fn state(object: &Value) -> (i64, u64) {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    (object["metadata"]["generation"].as_i64().unwrap(), version)
}

#[tokio::test]
async fn reads_add_defaults_of_the_storage_version_only() {
    let server = server().await;
    define(&server, json!([version("v1", true, None), version("v2", false, None)])).await;
    make(&server, "v1", "x").await;
    define(&server, json!([version("v1", true, Some("a")), version("v2", false, Some("b"))])).await;
    for read_as in ["v1", "v2"] {
        assert_eq!(spec(&read(&server, read_as, "x").await), &json!({"size": 1, "a": "v1"}), "{read_as}");
    }
    // The storage version changes, stored objects do not.
    define(&server, json!([version("v1", false, Some("a")), version("v2", true, Some("b"))])).await;
    for read_as in ["v1", "v2"] {
        assert_eq!(spec(&read(&server, read_as, "x").await), &json!({"size": 1, "a": "v1"}), "{read_as}");
        let list = path(read_as, "").trim_end_matches('/').to_owned();
        let (_, list) = send(&server, Method::GET, &list, MERGE, json!({})).await;
        assert_eq!(spec(&list["items"][0]), &json!({"size": 1, "a": "v1"}), "{read_as}");
    }
    // Objects that are stored in a version that is no longer served can still be decoded.
    let mut hidden = version("v1", false, Some("a"));
    hidden["served"] = false.into();
    define(&server, json!([hidden, version("v2", true, Some("b"))])).await;
    assert_eq!(spec(&read(&server, "v2", "x").await), &json!({"size": 1, "a": "v1"}));
}

#[tokio::test]
async fn empty_patch_adds_defaults_and_migrates_the_storage_version() {
    let server = server().await;
    define(&server, json!([version("v1", true, None), version("v2", false, None)])).await;
    let before = state(&make(&server, "v1", "x").await);
    define(&server, json!([version("v1", false, Some("a")), version("v2", true, Some("b"))])).await;
    let (code, patched) = send(&server, Method::PATCH, &path("v2", "x"), MERGE, json!({})).await;
    assert_eq!((code, spec(&patched)), (200, &json!({"size": 1, "a": "v1", "b": "v2"})));
    let after = state(&patched);
    assert!(after.0 == before.0 + 1 && after.1 > before.1, "{patched}");
    // Now it is stored as v2 with the defaults of both versions: another patch changes nothing.
    let (_, again) = send(&server, Method::PATCH, &path("v2", "x"), MERGE, json!({})).await;
    assert_eq!(state(&again), after);
    assert_eq!(spec(&read(&server, "v1", "x").await), &json!({"size": 1, "a": "v1", "b": "v2"}));
}

#[tokio::test]
async fn writes_in_another_version_are_defaulted_on_read() {
    let server = server().await;
    define(&server, json!([version("v1", false, Some("a")), version("v2", true, Some("b"))])).await;
    let created = make(&server, "v1", "x").await;
    assert_eq!(spec(&created), &json!({"size": 1, "a": "v1", "b": "v2"}));
    // The default is applied on reads, not stored: a new default replaces it.
    let mut later = version("v2", true, Some("b"));
    later["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"]["default"] = "later".into();
    define(&server, json!([version("v1", false, Some("a")), later])).await;
    for read_as in ["v1", "v2"] {
        let spec = spec(&read(&server, read_as, "x").await).clone();
        assert_eq!(spec, json!({"size": 1, "a": "v1", "b": "later"}), "{read_as}");
    }
}

#[tokio::test]
async fn updates_that_violate_a_new_schema_drop_managed_fields() {
    let server = server().await;
    define(&server, json!([version("v1", true, None)])).await;
    make(&server, "v1", "x").await;
    let mut strict = version("v1", true, None);
    strict["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"] = json!({"type": "string"});
    define(&server, json!([strict])).await;
    let change = json!({"spec": {"a": "changed"}});
    let (code, changed) = send(&server, Method::PATCH, &path("v1", "x"), MERGE, change).await;
    assert_eq!((code, spec(&changed)), (200, &json!({"size": 1, "a": "changed"})), "{changed}");
    assert_eq!(changed["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn custom_resources_retain_duplicate_finalizers() {
    let server = server().await;
    define(&server, json!([version("v1", true, None)])).await;
    let twice = json!(["e.com/a", "e.com/a"]);
    make(&server, "v1", "x").await;
    let change = json!({"metadata": {"finalizers": twice}});
    let (code, changed) = send(&server, Method::PATCH, &path("v1", "x"), MERGE, change).await;
    assert_eq!((code, &changed["metadata"]["finalizers"]), (200, &twice), "{changed}");
    let object = json!({"apiVersion": "e.com/v1", "kind": "Widget", "metadata": {"name": "y", "finalizers": twice}});
    let (code, created) = post(&server, path("v1", "").trim_end_matches('/'), object).await;
    assert_eq!((code, &created["metadata"]["finalizers"]), (201, &twice), "{created}");
}

/// Converts by changing the version only, unless it is set to fail.
#[derive(Default)]
struct Converter {
    refuses: AtomicBool,
}

impl Caller for Converter {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let review: Value = serde_json::from_slice(&call.body).unwrap();
        let request = &review["request"];
        let mut objects = request["objects"].clone();
        for object in objects.as_array_mut().unwrap() {
            object["apiVersion"] = request["desiredAPIVersion"].clone();
        }
        let refuses = self.refuses.load(Ordering::Relaxed);
        let result = if refuses { json!({"status": "Failure", "message": "no"}) } else { json!({"status": "Success"}) };
        let response = json!({"uid": request["uid"], "convertedObjects": objects, "result": result});
        let review = json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response});
        let (content_type, body) = ("application/json".to_owned(), review.to_string().into());
        Box::pin(async move { Ok(WebhookResponse { code: 200, content_type, body }) })
    }
}

#[tokio::test]
async fn lists_use_conversions_from_before_the_webhook_failed() {
    let converter = Arc::new(Converter::default());
    let clock = Clock::new(|| Timestamp::from_second(1_800_000_000).unwrap());
    let server = Server::new(Options { webhooks: converter.clone(), ..Options::simulated(clock, 1) });
    post(&server, "/api/v1/namespaces", json!({"metadata": {"name": "ns"}})).await;
    define(&server, json!([version("v1", true, None), version("v2", false, None)])).await;
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}});
    let change = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}});
    assert_eq!(send(&server, Method::PATCH, &format!("{CRDS}/widgets.e.com"), MERGE, change).await.0, 200);
    make(&server, "v1", "x").await;
    let list = async || send(&server, Method::GET, "/apis/e.com/v2/namespaces/ns/widgets", MERGE, json!({})).await;
    let before = list().await;
    assert_eq!((before.0, &before.1["items"][0]["apiVersion"]), (200, &json!("e.com/v2")));

    converter.refuses.store(true, Ordering::Relaxed);
    assert_eq!(list().await, before);
    let get = async |name: &str| send(&server, Method::GET, &path("v2", name), MERGE, json!({})).await.0;
    assert_eq!(get("x").await, 500);
    // Objects that are new or changed since were never converted.
    make(&server, "v1", "y").await;
    assert_eq!(list().await.0, 500);
}
