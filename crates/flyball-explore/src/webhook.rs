//! The calls of the API server to the webhooks of the operator, as a port.

use crate::fault::Fault;
use crate::hub::{Hub, RESTART};
use crate::site::Port;
use flyball_cluster::{Caller, WebhookCall, WebhookFuture};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::time::sleep_until;

/// The transport of webhook calls in a run.
#[derive(Clone)]
pub(crate) struct WebhookPort {
    webhooks: Arc<dyn Caller>,
    hub: Arc<OnceLock<Weak<Hub>>>,
}

impl fmt::Debug for WebhookPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookPort").finish_non_exhaustive()
    }
}

impl WebhookPort {
    /// Creates the port of webhooks that are called by another transport.
    pub(crate) fn to(webhooks: Arc<dyn Caller>) -> Self {
        Self { webhooks, hub: Arc::default() }
    }

    /// Sets the hub that the calls cross. Weak, because the hub holds the server, which holds this port.
    pub(crate) fn connect(&self, hub: &Arc<Hub>) {
        // It is connected once.
        let _ = self.hub.set(Arc::downgrade(hub));
    }
}

impl Caller for WebhookPort {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let (hub, webhooks) = (self.hub.get().and_then(Weak::upgrade), self.webhooks.clone());
        Box::pin(async move {
            let Some(hub) = hub else { return webhooks.call(call).await };
            let path = call.url.split("://").last().and_then(|rest| rest.split_once('/')).map_or("", |(_, path)| path);
            let (site, faults) = hub.cross(0, Port::Webhook, path.to_owned());
            hub.trace(format_args!("{site}"), &call.body);
            let refused = || format!("dial tcp {}: connect: connection refused", call.address);
            for fault in &faults {
                match fault {
                    Fault::Delay(seconds) => {
                        sleep_until(hub.lasts(Duration::from_secs((*seconds).into()))).await;
                    }
                    Fault::Reset => return Err(refused()),
                    Fault::CrashBefore => {
                        hub.crash(0, RESTART);
                        return Err(refused());
                    }
                    _ => {}
                }
            }
            if hub.has_webhooks() { webhooks.call(call).await } else { Err(refused()) }
        })
    }
}
