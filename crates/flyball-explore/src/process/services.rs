//! Services of the operator: webhook configurations name them, and the process serves them on this machine.

use crate::hub::Hub;
use crate::site::OPERATOR_NAMESPACE;
use flyball_cluster::{Caller, Dialer, Server, WebhookCall, WebhookFuture};
use serde_json::Value;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

/// Calls webhooks over the network; those of Services in the operator's namespace on the loopback interface.
#[derive(Clone, Default)]
pub(crate) struct ServiceCaller {
    dialer: Dialer,
    hub: Arc<OnceLock<Weak<Hub>>>,
}

impl fmt::Debug for ServiceCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCaller").finish_non_exhaustive()
    }
}

impl ServiceCaller {
    /// Sets the hub, whose server has the Services. Weak, because the server holds the caller.
    pub(crate) fn connect(&self, hub: &Arc<Hub>) {
        // It is connected once.
        let _ = self.hub.set(Arc::downgrade(hub));
    }
}

impl Caller for ServiceCaller {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let hub = self.hub.get().and_then(Weak::upgrade);
        let address = hub.and_then(|hub| loopback(&hub.server, &call.address)).unwrap_or_else(|| call.address.clone());
        self.dialer.call(WebhookCall { address, ..call })
    }
}

/// Returns the address at which the process serves a port of a Service, as in `name.namespace.svc:443`.
fn loopback(server: &Server, address: &str) -> Option<String> {
    let (host, port) = address.rsplit_once(':')?;
    let (name, namespace) = host.strip_suffix(".svc")?.split_once('.')?;
    if namespace != OPERATOR_NAMESPACE {
        return None;
    }
    let objects = server.stored_objects();
    let service = objects.iter().find(|object| {
        &*object.resource.resource == "services"
            && object.key.name() == name
            && object.key.namespace() == Some(namespace)
    });
    let target = service.and_then(|service| target_port(&serde_json::from_slice(&service.body).ok()?, port));
    Some(format!("127.0.0.1:{}", target.unwrap_or_else(|| port.to_owned())))
}

/// Returns the port of the pods behind a port of a Service. Named ports are unknown without pods.
fn target_port(service: &Value, port: &str) -> Option<String> {
    let ports = service["spec"]["ports"].as_array()?;
    let port: u64 = port.parse().ok()?;
    let found = ports.iter().find(|known| known["port"].as_u64() == Some(port))?;
    found["targetPort"].as_u64().map(|target| target.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_of_services_are_those_of_pods() {
        let service =
            json!({"spec": {"ports": [{"port": 443, "targetPort": 9443}, {"port": 80, "targetPort": "web"}]}});
        assert_eq!(target_port(&service, "443").as_deref(), Some("9443"));
        assert_eq!((target_port(&service, "80"), target_port(&service, "1")), (None, None));
    }
}
