//! Responses of webhooks are limited in length and memory, and cannot corrupt managed fields.

use crate::growth::{Patching, define, hook};
use crate::send::send;
use bytes::Bytes;
use flyball_core::Clock;
use flyball_server::pki::Authority;
use flyball_server::{Caller, Dialer, Options, ResponseMemory, Server, WebhookAnswer, WebhookCall, WebhookFuture};
use http::Method;
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
        Box::pin(async move { Ok(WebhookAnswer { code: 200, content_type: JSON.into(), body: body.into() }) })
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
