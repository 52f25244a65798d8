//! Webhooks of operators in the same process, as in simulations.

use flyball::webhook::Webhooks;
use flyball_server::{Caller, WebhookCall, WebhookFuture, WebhookResponse};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use http_body_util::Full;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A transport of webhook calls to operators in the same process, without sockets, TLS or threads.
///
/// Calls to other hosts fail. Clones share the hosts.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use flyball::Operator;
/// use flyball_cluster::{Cluster, LocalWebhooks, Options, simulated_clock};
/// use std::sync::Arc;
///
/// let webhooks = LocalWebhooks::default();
/// let options = Options { webhooks: Arc::new(webhooks.clone()), ..Options::simulated(simulated_clock(), 1) };
/// let cluster = Cluster::new(options);
/// let operator = Operator::new("site-operator");
/// webhooks.serve("site-operator-webhook.default.svc", operator.webhooks());
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct LocalWebhooks(Arc<Mutex<BTreeMap<String, Webhooks>>>);

impl LocalWebhooks {
    /// Serves calls to this host: that of a webhook's URL, or `name.namespace.svc` of its service.
    pub fn serve(&self, host: impl Into<String>, webhooks: Webhooks) {
        self.0.lock().insert(host.into(), webhooks);
    }

    /// Stops serving this host: calls fail, as with an operator that does not run.
    pub fn silence(&self, host: &str) {
        self.0.lock().remove(host);
    }
}

impl Caller for LocalWebhooks {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let webhooks = self.0.lock().get(&call.server_name).cloned();
        Box::pin(async move {
            let Some(webhooks) = webhooks else {
                return Err(format!("dial tcp {}: connect: connection refused", call.address));
            };
            let request =
                Request::builder().method(Method::POST).uri(&call.url).header(CONTENT_TYPE, "application/json");
            let request = request.body(Full::new(call.body)).map_err(|error| error.to_string())?;
            let (head, body) = webhooks.handle(request).await.into_parts();
            let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            Ok(WebhookResponse {
                code: head.status.as_u16(),
                content_type: content_type.unwrap_or_default().to_owned(),
                body,
            })
        })
    }
}
