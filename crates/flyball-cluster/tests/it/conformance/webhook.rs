//! The in-process endpoint of a scenario's webhooks.

use bytes::Bytes;
use flyball_server::{Caller, WebhookCall, WebhookFuture, WebhookResponse};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The URL of the endpoint, for `${WEBHOOK_URL}`; other addresses refuse connections.
pub(crate) const URL: &str = "https://127.0.0.1:18443";
/// Its CA bundle, for `${WEBHOOK_CA}`.
pub(crate) const CA: &str = "Q0E=";
/// Delay of a webhook that hangs.
const HANG: Duration = Duration::from_secs(40);

/// The endpoint; clones share the state.
#[derive(Clone, Default)]
pub(crate) struct Endpoint {
    state: Arc<Mutex<State>>,
    arrived: Arc<Notify>,
}

#[derive(Default)]
struct State {
    replies: BTreeMap<String, Value>,
    seen: BTreeMap<String, Vec<Value>>,
}

impl Endpoint {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    /// Sets the response from now on.
    pub(crate) fn reply(&self, path: &str, reply: Value) {
        self.state().replies.insert(path.to_owned(), reply);
    }

    /// Waits for a number of reviews, and returns all received ones.
    pub(crate) async fn received(&self, path: &str, count: usize, within: Duration) -> Vec<Value> {
        let end = Instant::now() + within;
        loop {
            let arrived = self.arrived.notified();
            let enough = self.state().seen.get(path).map_or(0, Vec::len) >= count;
            if enough || tokio::time::timeout_at(end, arrived).await.is_err() {
                return self.state().seen.remove(path).unwrap_or_default();
            }
        }
    }

    async fn answer(self, call: WebhookCall) -> Result<WebhookResponse, String> {
        let Some(rest) = call.url.strip_prefix(URL) else {
            return Err(format!("dial tcp {}: connect: connection refused", call.address));
        };
        let path = rest.split('?').next().unwrap_or_default().to_owned();
        let review: Value = serde_json::from_slice(&call.body).map_err(|error| error.to_string())?;
        let reply = {
            let mut state = self.state();
            state.seen.entry(path.clone()).or_default().push(review.clone());
            state.replies.get(&path).cloned()
        };
        self.arrived.notify_waiters();
        let Some(Value::Object(mut reply)) = reply else {
            return Ok(WebhookResponse { code: 404, content_type: String::new(), body: Bytes::new() });
        };
        if reply.remove("hang").is_some() {
            tokio::time::sleep(HANG).await;
        }
        let code = reply.remove("code").and_then(|code| code.as_u64()?.try_into().ok()).unwrap_or(200);
        let mut response = Value::Object(reply);
        response["uid"] = review["request"]["uid"].clone();
        if review["kind"] == "ConversionReview" && response.get("convertedObjects").is_none() {
            convert(&mut response, &review);
        }
        let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
        Ok(WebhookResponse { code, content_type: "application/json".into(), body: answer.to_string().into() })
    }
}

/// Performs the default conversion of scenarios: the version, and some fields of the specification.
fn convert(response: &mut Value, review: &Value) {
    let set = response["set"].take();
    response.as_object_mut().into_iter().for_each(|response| drop(response.remove("set")));
    let mut objects = review["request"]["objects"].clone();
    for object in objects.as_array_mut().into_iter().flatten() {
        object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
        for (field, value) in set.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
    }
    response["convertedObjects"] = objects;
    if response.get("result").is_none() {
        response["result"] = json!({"status": "Success"});
    }
}

impl Caller for Endpoint {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        Box::pin(self.clone().answer(call))
    }
}

/// Inserts placeholders for the endpoint.
pub(crate) fn hide(value: Value) -> Value {
    match value {
        Value::String(text) => text.replace(URL, "<webhook>").replace(CA, "<ca>").into(),
        Value::Array(items) => items.into_iter().map(hide).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, hide(value))).collect(),
        other => other,
    }
}
