//! Changes of objects by admission.

use crate::growth::{Patching, define, hook};
use crate::send::send;
use flyball_core::Clock;
use flyball_server::{Options, Server};
use http::Method;
use serde_json::json;
use std::sync::{Arc, Mutex};

const GADGETS: &str = "/apis/x.io/v1/namespaces/default/gadgets";

#[tokio::test]
async fn webhooks_cannot_move_objects_to_other_namespaces() {
    let patch = json!([{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}]);
    let webhooks = Arc::new(Patching(Arc::new(Mutex::new(patch))));
    let server = Server::new(Options { webhooks, ..Options::simulated(Clock::system(), 1) });
    define(&server).await;
    hook(&server).await;
    let gadget =
        json!({"apiVersion": "x.io/v1", "kind": "Gadget", "metadata": {"name": "g", "labels": {"hooked": "yes"}}});
    let (code, response, _) = send(&server, Method::POST, GADGETS, "application/json", gadget.to_string()).await;
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((code, &response["message"]), (400, &json!(message)), "{response}");
    let path = "/apis/x.io/v1/namespaces/kube-system/gadgets/g";
    assert_eq!(send(&server, Method::GET, path, "application/json", "").await.0, 404);
}
