//! Responses of webhooks are limited in length and memory, and cannot corrupt managed fields.

use crate::growth::{Patching, define, hook};
use crate::send::send;
use bytes::Bytes;
use flyball_core::Clock;
use flyball_server::pki::Authority;
use flyball_server::{
    Body, Bounds, Caller, Dialer, Options, ResponseMemory, Server, User, WebhookCall, WebhookFuture, WebhookResponse,
};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const JSON: &str = "application/json";
const GADGETS: &str = "/apis/x.io/v1/namespaces/default/gadgets";

/// A webhook that responds with this body, in which `UID` stands for the UID of the request.
#[derive(Default)]
struct Responding(Mutex<String>);

impl Caller for Responding {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let review: Value = serde_json::from_slice(&call.body).unwrap();
        let body = self.0.lock().unwrap().replacen("UID", review["request"]["uid"].as_str().unwrap(), 1);
        Box::pin(async move { Ok(WebhookResponse { code: 200, content_type: JSON.into(), body: body.into() }) })
    }
}

/// Returns a response whose fields, besides the required ones, are this text.
fn response(fields: &str) -> String {
    format!(
        r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {{"uid": "UID", "allowed": true{fields}}}}}"#
    )
}

fn gadget(name: &str) -> String {
    let labels = json!({"hooked": "yes"});
    json!({"apiVersion": "x.io/v1", "kind": "Gadget", "metadata": {"name": name, "labels": labels}}).to_string()
}

#[tokio::test]
async fn large_responses_fail_the_call() {
    use base64::Engine;
    let webhooks = Arc::new(Responding::default());
    let server = Server::new(Options { webhooks: webhooks.clone(), ..Options::simulated(Clock::system(), 1) });
    define(&server).await;
    hook(&server).await;
    let maps = |count: usize| format!("[{}0]", r#"{"a":0},"#.repeat(count));
    let patch = |count: usize| {
        let patch = format!(r#"[{{"op": "add", "path": "/spec", "value": {{"a": {}}}}}]"#, maps(count));
        let patch = base64::engine::general_purpose::STANDARD.encode(patch);
        response(&format!(r#", "patchType": "JSONPatch", "patch": "{patch}""#))
    };
    for (at, (body, expected)) in [
        (response(""), None),
        (response(&format!(r#", "unknown": {}"#, maps(10_000))), None),
        (patch(10_000), None),
        (response(&format!(r#", "unknown": "{}""#, "x".repeat(6 << 20))), Some("has more than 6291456 bytes")),
        (
            response(&format!(r#", "unknown": {}"#, maps(100_000))),
            Some("the response takes more than 32 MiB of memory"),
        ),
        (patch(100_000), Some("received undecodable patch in webhook response: it takes more than 32 MiB of memory")),
    ]
    .into_iter()
    .enumerate()
    {
        *webhooks.0.lock().unwrap() = body;
        let (code, answer, _) = send(&server, Method::POST, GADGETS, JSON, gadget(&format!("g{at}"))).await;
        match expected {
            None => assert_eq!(code, 201, "{at}: {answer}"),
            Some(expected) => {
                let message = answer["message"].as_str().unwrap();
                assert!(code == 500 && message.contains(expected), "{at}: {code} {message}");
            }
        }
    }
}

#[tokio::test]
async fn endless_response_is_not_kept() {
    let clock = Clock::system();
    let authority = Authority::new(&clock).unwrap();
    let identity = authority.server(&["localhost"]).unwrap();
    let tls = TlsAcceptor::from(authority.tls(&identity).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(async move {
        let mut stream = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        let mut sent = 0_usize;
        let mut piece = head.as_bytes().to_vec();
        while stream.write_all(&piece).await.is_ok() && sent < 64 << 20 {
            sent += piece.len();
            piece = vec![b' '; 64 << 10];
        }
        sent
    });
    let call = WebhookCall {
        url: format!("https://{address}/?timeout=5s"),
        address,
        server_name: "localhost".into(),
        ca_bundle: authority.certificate().into_bytes(),
        body: Bytes::from_static(b"{}"),
        memory: ResponseMemory::default(),
    };
    let refused = Dialer::default().call(call).await.unwrap_err();
    assert!(refused.contains("has more than 6291456 bytes"), "{refused}");
    assert!(serving.await.unwrap() < 32 << 20, "the connection is closed");
}

#[tokio::test]
async fn managed_fields_that_a_webhook_corrupts_are_restored_with_a_warning() {
    let patch = Arc::new(Mutex::new(Value::Null));
    let webhooks = Arc::new(Patching(patch.clone()));
    let server = Server::new(Options { webhooks, ..Options::simulated(Clock::system(), 1) });
    define(&server).await;
    hook(&server).await;
    let entry = "/metadata/managedFields/0";
    let replace = |field: &str, value: Value| {
        let label = json!({"op": "add", "path": "/metadata/labels/seen", "value": "yes"});
        json!([{"op": "add", "path": format!("{entry}/{field}"), "value": value}, label])
    };
    for (at, (change, expected)) in [
        (replace("operation", json!("Other")), "operation must be `Apply` or `Update`"),
        (replace("apiVersion", json!("")), "apiVersion must not be empty"),
        (replace("fieldsType", json!("FieldsV2")), "invalid fieldsType \\\"FieldsV2\\\" in managed fields entry 0"),
        (replace("fieldsType", json!("")), "missing fieldsType in managed fields entry 0"),
        (replace("fieldsV1", json!({"x": {}})), "error decoding versioned set"),
    ]
    .into_iter()
    .enumerate()
    {
        *patch.lock().unwrap() = change;
        let (code, stored, warnings) = send(&server, Method::POST, GADGETS, JSON, gadget(&format!("g{at}"))).await;
        assert_eq!(code, 201, "{stored}");
        assert_eq!(stored["metadata"]["labels"]["seen"], "yes", "other changes are kept");
        let managed = stored["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!((managed.len(), &managed[0]["operation"]), (1, &json!("Update")));
        assert_eq!(managed[0]["fieldsV1"]["f:metadata"]["f:labels"]["f:hooked"], json!({}), "{stored}");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let warning = "299 - \".metadata.managedFields was in an invalid state after admission; this could be caused by \
                       an outdated mutating admission controller; please fix your requests: ";
        assert!(warnings[0].starts_with(warning) && warnings[0].contains(expected), "{warnings:?}");
    }
    // As in kube-apiserver, an empty list is valid.
    *patch.lock().unwrap() = json!([{"op": "remove", "path": "/metadata/managedFields"}]);
    let (code, stored, warnings) = send(&server, Method::POST, GADGETS, JSON, gadget("empty")).await;
    assert_eq!((code, &stored["metadata"]["managedFields"], warnings.len()), (201, &Value::Null, 0));
}

/// Converts objects. It takes memory for its responses, and never responds for objects that are named `slow`.
#[derive(Default)]
struct Converting {
    /// Bytes that it adds to each object.
    grown_bytes: usize,
}

impl Caller for Converting {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let review: Value = serde_json::from_slice(&call.body).unwrap();
        let mut object = review["request"]["objects"][0].clone();
        object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
        object["grown"] = "x".repeat(self.grown_bytes).into();
        Box::pin(async move {
            call.memory.reserve(30 << 10).await?;
            if object["metadata"]["name"] == "slow" {
                std::future::pending::<()>().await;
            }
            let result = json!({"status": "Success"});
            let response = json!({"uid": review["request"]["uid"], "result": result, "convertedObjects": [object]});
            let review = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
            Ok(WebhookResponse { code: 200, content_type: JSON.into(), body: review.to_string().into() })
        })
    }
}

/// Creates a CRD whose objects are converted from v1, which is stored, to v2.
async fn define_hats(server: &Server) {
    define_versions(server, 2).await;
}

/// Creates a CRD whose objects are converted from v1, which is stored, to a number of other versions.
async fn define_versions(server: &Server, count: usize) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let client = json!({"clientConfig": {"url": "https://h/"}, "conversionReviewVersions": ["v1"]});
    let crd = json!({"metadata": {"name": "hats.x.io"}, "spec": {
        "group": "x.io", "scope": "Cluster", "names": {"plural": "hats", "kind": "Hat"},
        "versions": (1..=count).map(|n| version(&format!("v{n}"), n == 1)).collect::<Vec<_>>(),
        "conversion": {"strategy": "Webhook", "webhook": client}}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, answer, _) = send(server, Method::POST, path, JSON, crd.to_string()).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn conversions_of_a_watch_are_charged_to_its_user() {
    let bounds = Bounds { webhook_response_bytes: 64 << 10, ..Bounds::default() };
    let webhooks = Arc::new(Converting::default());
    let server = Server::new(Options { webhooks, bounds, ..Options::simulated(Clock::system(), 1) });
    define_hats(&server).await;
    let subjects =
        ["ann", "bob"].map(|name| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    for (path, object) in [
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({"metadata": {"name": "users"}, "subjects": subjects, "roleRef": role}),
        ),
        ("/apis/x.io/v1/hats", json!({"apiVersion": "x.io/v1", "kind": "Hat", "metadata": {"name": "slow"}})),
        ("/apis/x.io/v1/hats", json!({"apiVersion": "x.io/v1", "kind": "Hat", "metadata": {"name": "quick"}})),
    ] {
        let (code, answer, _) = send(&server, Method::POST, path, JSON, object.to_string()).await;
        assert_eq!(code, 201, "{answer}");
    }
    let watch = async |user: &str, name: &str| -> Body {
        let uri = format!("/apis/x.io/v2/hats?watch=1&fieldSelector=metadata.name%3D{name}");
        let mut request = Request::builder().uri(uri).body(Full::new(Bytes::new())).unwrap();
        request.extensions_mut().insert(User::new(user, &[]));
        let response = server.handle(request).await;
        assert_eq!(response.status(), 200);
        response.into_body()
    };
    let mut slow = watch("ann", "slow").await;
    let waiting = tokio::spawn(async move { slow.frame().await });
    tokio::task::yield_now().await;
    let start = tokio::time::Instant::now();
    let frame = watch("bob", "quick").await.frame().await.unwrap().unwrap().into_data().unwrap();
    let event: Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!((&event["type"], &event["object"]["apiVersion"]), (&json!("ADDED"), &json!("x.io/v2")), "{event}");
    assert!(start.elapsed().is_zero(), "he does not wait for responses to her");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn objects_that_grow_when_a_list_converts_them_are_charged() {
    const GROWN_BYTES: usize = 100_000;
    let bounds = Bounds { webhook_response_bytes: 2 << 20, ..Bounds::default() };
    let webhooks = Arc::new(Converting { grown_bytes: GROWN_BYTES });
    let server = Server::new(Options { webhooks, bounds, ..Options::simulated(Clock::system(), 1) });
    define_hats(&server).await;
    let create = async |name: String, text: usize| {
        let object =
            json!({"apiVersion": "x.io/v1", "kind": "Hat", "metadata": {"name": name}, "text": "x".repeat(text)});
        let (code, answer, _) = send(&server, Method::POST, "/apis/x.io/v1/hats", JSON, object.to_string()).await;
        assert_eq!(code, 201, "{answer}");
    };
    let list = async || send(&server, Method::GET, "/apis/x.io/v2/hats", JSON, "").await;
    // Large objects may be converted to large objects.
    for n in 0..40 {
        create(format!("large-{n}"), GROWN_BYTES).await;
    }
    let (code, listed, _) = list().await;
    assert_eq!((code, listed["items"].as_array().unwrap().len()), (200, 40));
    let (code, answer, _) = send(&server, Method::DELETE, "/apis/x.io/v1/hats", JSON, "").await;
    assert_eq!(code, 200, "{answer}");
    for n in 0..10 {
        create(format!("small-{n}"), 1).await;
    }
    assert_eq!(list().await.0, 200, "few may grow");
    for n in 10..40 {
        create(format!("small-{n}"), 1).await;
    }
    for _ in 0..2 {
        let (code, answer, _) = list().await;
        assert!(code == 429 && answer["message"].as_str().unwrap().contains("too much memory"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn conversions_for_managed_fields_are_charged() {
    const VERSIONS: usize = 20;
    let bounds = Bounds { webhook_response_bytes: 2 << 20, ..Bounds::default() };
    let webhooks = Arc::new(Converting { grown_bytes: 100_000 });
    let server = Server::new(Options { webhooks, bounds, ..Options::simulated(Clock::system(), 1) });
    define_versions(&server, VERSIONS).await;
    let apply = async |n: usize| {
        let path = format!("/apis/x.io/v{n}/hats/a?fieldManager=m{n}");
        let mut object = json!({"apiVersion": format!("x.io/v{n}"), "kind": "Hat", "metadata": {"name": "a"}});
        object[format!("f{n}")] = n.into();
        send(&server, Method::PATCH, &path, "application/apply-patch+yaml", object.to_string()).await
    };
    let mut managers = 0;
    let refused = loop {
        let (code, answer, _) = apply(managers + 1).await;
        if code > 201 {
            break (code, answer);
        }
        managers += 1;
        assert_eq!(answer["metadata"]["managedFields"].as_array().unwrap().len(), managers, "{answer}");
        assert!(managers < VERSIONS, "the conversions to all versions fit");
    };
    assert!(managers > 5, "few versions are no problem");
    assert!(refused.0 == 429 && refused.1["message"].as_str().unwrap().contains("too much memory"), "{refused:?}");
    let (code, object, _) = send(&server, Method::GET, "/apis/x.io/v1/hats/a", JSON, "").await;
    assert_eq!((code, object["metadata"]["managedFields"].as_array().unwrap().len()), (200, managers));
}
