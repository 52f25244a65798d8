//! Services: their defaults, their addresses, their rules.

use super::fill::Fields;
use flyball_core::Object;
use serde_json::{Value, json};

pub(super) fn default(service: &mut Object) {
    let spec = service.inner_or_new("spec");
    spec.fill("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let given = spec.get("sessionAffinityConfig").and_then(|config| config.pointer("/clientIP/timeoutSeconds"));
            if given.is_none_or(Value::is_null) {
                spec.set("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
            }
        }
        _ => {}
    }
    spec.fill("type", "ClusterIP");
    for port in spec.each("ports") {
        port.fill("protocol", "TCP");
        let unset = matches!(port.get("targetPort"), None | Some(Value::Null))
            || port["targetPort"] == 0
            || port["targetPort"] == "";
        if let (true, Some(number)) = (unset, port.get("port").cloned()) {
            port.set("targetPort", number);
        }
    }
    let balanced = spec.text("type") == "LoadBalancer";
    let exposed = balanced || spec.text("type") == "NodePort";
    let addressed = spec.text("type") == "ClusterIP"
        && spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    if exposed || addressed {
        spec.fill("externalTrafficPolicy", "Cluster");
    }
    if exposed || spec.text("type") == "ClusterIP" {
        spec.fill("internalTrafficPolicy", "Cluster");
    }
    if balanced {
        spec.fill("allocateLoadBalancerNodePorts", true);
        if let Some(status) = service.inner("status").and_then(|status| status.inner("loadBalancer")) {
            for ingress in status.each("ingress").filter(|ingress| !ingress.text("ip").is_empty()) {
                ingress.fill("ipMode", "VIP");
            }
        }
    }
}
