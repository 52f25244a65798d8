//! Services: defaults and allocated values.

mod rules;

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::load_balancer;
use crate::kinds::printer::{self, Heading, NONE, Row, View, int};
use crate::kinds::rules::address;
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::usage::Amounts;
use flyball_core::field::FieldError;
use flyball_core::names::dns_label;
use flyball_core::time::Timestamp;
use flyball_core::{Clock, Object, Quantity};
use rules::{validate, warn};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Service", "services")
    .allocates_addresses()
    .quota_usage(quota_usage)
    .registry_path("services/specs")
    .printed(COLUMNS, row)
    .default(default)
    .name_rule(dns_label)
    .warn(warn)
    .prepare(prepare)
    .validate(validate)
    .short(&["svc"])
    .category("all")
    .create_on_update()
    .deleted_as_object()
    .subresources(&[Sub::SERVICE_PROXY, Sub::STATUS])
    .paths(&["spec.clusterIP", "spec.type"]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Type",
        "type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, \
         ClusterIP, NodePort, and LoadBalancer. \"ClusterIP\" allocates a cluster-internal IP address for \
         load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, by \
         manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is \"None\", no virtual \
         IP is allocated and the endpoints are published as a set of endpoints rather than a virtual IP. \
         \"NodePort\" builds on ClusterIP and allocates a port on every node which routes to the same endpoints as \
         the clusterIP. \"LoadBalancer\" builds on NodePort and creates an external load-balancer (if supported in \
         the current cloud) which routes to the same endpoints as the clusterIP. \"ExternalName\" aliases this \
         service to the specified externalName. Several other fields do not apply to ExternalName services. More \
         info: https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types",
    ),
    Heading::text(
        "Cluster-IP",
        "clusterIP is the IP address of the service and is usually assigned randomly. If an address is specified \
         manually, is in-range (as per system configuration), and is not in use, it will be allocated to the \
         service; otherwise creation of the service will fail. This field may not be changed through updates unless \
         the type field is also being changed to ExternalName (which requires this field to be blank) or the type \
         field is being changed from ExternalName (in which case this field may optionally be specified, as describe \
         above).  Valid values are \"None\", empty string (\"\"), or a valid IP address. Setting this to \"None\" \
         makes a \"headless service\" (no virtual IP), which is useful when direct endpoint connections are \
         preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If \
         this field is specified when creating a Service of type ExternalName, creation will fail. This field will \
         be wiped when updating a Service to type ExternalName. More info: \
         https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
    ),
    Heading::text(
        "External-IP",
        "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this \
         service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that traffic \
         arrives at a node with this IP.  A common example is external load-balancers that are not part of the \
         Kubernetes system.",
    ),
    Heading::text(
        "Port(s)",
        "The list of ports that are exposed by this service. More info: \
         https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
    ),
    Heading::AGE,
    Heading::text(
        "Selector",
        "Route service traffic to pods with label keys and values matching this selector. If empty or not present, \
         the service is assumed to have an external process managing its endpoints, which Kubernetes will not \
         modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if type is ExternalName. More \
         info: https://kubernetes.io/docs/concepts/services-networking/service/",
    )
    .wide(),
];

/// Returns the number of load balancers and node ports of a service.
fn quota_usage(service: &Object, _: Timestamp) -> Option<Amounts> {
    let field = |name: &str| service.at(&["spec", name]);
    let ty = field("type").and_then(Value::as_str).unwrap_or_default();
    let ports = field("ports").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let allocates = field("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    let assigned = ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let (balancers, node_ports) = match ty {
        "NodePort" => (0, ports.len()),
        "LoadBalancer" => (1, if allocates { ports.len() } else { assigned }),
        _ => (0, 0),
    };
    let amount = |count: usize| Quantity::from_integer(i64::try_from(count).unwrap_or(i64::MAX));
    let used = [("services.loadbalancers", amount(balancers)), ("services.nodeports", amount(node_ports))];
    Some(used.map(|(name, amount)| (name.to_owned(), amount)).into())
}

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

/// Fields of services that the server allocates.
pub(crate) struct Service;

fn text<'o>(service: &'o Object, field: &str) -> &'o str {
    service.at(&["spec", field]).and_then(Value::as_str).unwrap_or_default()
}

fn list<'o>(service: &'o Object, field: &str) -> &'o [Value] {
    service.at(&["spec", field]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_headless(service: &Object) -> bool {
    list(service, "clusterIPs").first().is_some_and(|ip| ip == "None")
}

impl Service {
    pub(crate) fn is_external_name(service: &Object) -> bool {
        text(service, "type") == "ExternalName"
    }

    /// Returns true if a service has an address, or is headless.
    pub(crate) fn has_address(service: &Object) -> bool {
        !list(service, "clusterIPs").is_empty()
    }

    /// Returns true if a service uses node ports.
    pub(crate) fn is_exposed(service: &Object) -> bool {
        matches!(text(service, "type"), "NodePort" | "LoadBalancer")
    }

    pub(crate) fn needs_health_check(service: &Object) -> bool {
        text(service, "type") == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
    }

    /// Preserves allocated values that an update omits.
    pub(crate) fn keep(service: &mut Object, old: Option<&Object>) {
        let single = text(service, "clusterIP").to_owned();
        let all = list(service, "clusterIPs").to_vec();
        let Some(old) = old else {
            if !single.is_empty() && all.is_empty() {
                service.inner_or_new("spec").set("clusterIPs", json!([single]));
            }
            return;
        };
        let (old_single, old_all) = (text(old, "clusterIP"), list(old, "clusterIPs"));
        let (exposed, checked) = (
            Self::is_exposed(old) && Self::is_exposed(service),
            Self::needs_health_check(old) && Self::needs_health_check(service),
        );
        let addressed = !Self::is_external_name(old) && !Self::is_external_name(service);
        let spec = service.inner_or_new("spec");
        if addressed {
            if single.is_empty() && !old_single.is_empty() {
                spec.set("clusterIP", old_single);
            }
            if all.is_empty() && !old_all.is_empty() {
                spec.set("clusterIPs", old_all);
            }
        }
        if exposed {
            // The last port of each name counts.
            let earlier: BTreeMap<&str, Option<i64>> = list(old, "ports")
                .iter()
                .map(|port| (port["name"].as_str().unwrap_or_default(), port["nodePort"].as_i64()))
                .collect();
            let requested: BTreeSet<i64> =
                spec.each("ports").filter_map(|port| port.get("nodePort").and_then(Value::as_i64)).collect();
            for port in spec.each("ports").filter(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) == 0)
            {
                let number = earlier.get(port.text("name")).copied().flatten();
                if let Some(number) = number.filter(|number| !requested.contains(number)) {
                    port.set("nodePort", number);
                }
            }
        }
        if checked {
            let port = old.at(&["spec", "healthCheckNodePort"]).cloned();
            if let (Some(port), false) =
                (port, spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) != 0)
            {
                spec.set("healthCheckNodePort", port);
            }
        }
        // The two fields for addresses are synchronized.
        let single = spec.text("clusterIP").to_owned();
        let same = spec.get("clusterIPs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) == old_all;
        if single != old_single && same {
            if single.is_empty() {
                spec.remove("clusterIPs");
            } else {
                spec.set("clusterIPs", json!([single]));
            }
        }
    }

    /// Determines the IP families of a service.
    pub(crate) fn families(service: &mut Object, old: Option<&Object>) -> Result<(), Errors> {
        let bare = service.at(&["spec", "selector"]).and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
        let bare = text(service, "clusterIP") == "None" && bare;
        let earlier = old.map(|old| text(old, "ipFamilyPolicy").to_owned()).filter(|policy| !policy.is_empty());
        let spec = service.inner_or_new("spec");
        let default = if bare { "RequireDualStack" } else { "SingleStack" };
        spec.fill("ipFamilyPolicy", earlier.as_deref().unwrap_or(default));
        let wrong = rules::addresses(&Field::root(service).at("spec"), old.map_or(&[], |old| list(old, "clusterIPs")));
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let policy = text(service, "ipFamilyPolicy").to_owned();
        let single = policy == "SingleStack";
        let mut errors = Errors::new();
        let at = |field: &str| format!("spec.{field}");
        if let Some(old) = old.filter(|_| single) {
            for field in ["clusterIPs", "ipFamilies"] {
                if list(old, field) == list(service, field) && list(service, field).len() > 1 {
                    let first = list(service, field)[..1].to_vec();
                    service.inner_or_new("spec").set(field, first);
                }
            }
        }
        for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if single && list(service, field).len() == 2 {
                let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                errors.push(FieldError::invalid(at("ipFamilyPolicy"), policy.as_str(), why));
            }
        }
        let mut families = list(service, "ipFamilies").to_vec();
        for (i, ip) in list(service, "clusterIPs").iter().filter_map(Value::as_str).enumerate() {
            if ip == "None" {
                break;
            }
            let family = if address::is_v6(ip) { "IPv6" } else { "IPv4" };
            if i >= families.len() {
                if family == "IPv6" {
                    let shown = Value::from(list(service, "clusterIPs"));
                    errors.push(FieldError::invalid(
                        format!("spec.clusterIPs[{i}]"),
                        shown,
                        "IPv6 is not configured on this cluster",
                    ));
                } else {
                    families.push(family.into());
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        if families.is_empty() {
            families.push("IPv4".into());
        }
        if bare {
            if families.len() < 2 && !single {
                families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }.into());
            }
        } else {
            if policy == "RequireDualStack" {
                errors.push(FieldError::invalid(
                    at("ipFamilyPolicy"),
                    policy.as_str(),
                    "this cluster is not configured for dual-stack services",
                ));
            }
            for (i, family) in families.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
                errors.push(FieldError::invalid(
                    format!("spec.ipFamilies[{i}]"),
                    family.clone(),
                    "not configured on this cluster",
                ));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        service.inner_or_new("spec").set("ipFamilies", families);
        Ok(())
    }
}

/// Releases allocated values that the new type of a service does not use.
pub(super) fn prepare(service: &mut Object, old: Option<&Object>, part: Part, _: &Clock) {
    let Some(old) = old.filter(|_| part == Part::Whole) else { return };
    let same = |service: &Object, field: &str| service.at(&["spec", field]) == old.at(&["spec", field]);
    let drop = |service: &mut Object, field: &str| {
        service.inner_or_new("spec").remove(field);
    };
    if Service::is_external_name(service) && !Service::is_external_name(old) {
        if same(service, "clusterIP") && same(service, "clusterIPs") {
            drop(service, "clusterIP");
            drop(service, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            if same(service, field) {
                drop(service, field);
            }
        }
    }
    let node_ports = |service: &Object| -> Vec<i64> {
        list(service, "ports").iter().filter_map(|port| port["nodePort"].as_i64()).filter(|port| *port != 0).collect()
    };
    if Service::is_exposed(old) && !Service::is_exposed(service) {
        let old_ports = node_ports(old);
        if node_ports(service).iter().all(|port| old_ports.contains(port)) {
            service.inner_or_new("spec").each("ports").for_each(|port| {
                port.remove("nodePort");
            });
        }
    }
    if Service::needs_health_check(old) && !Service::needs_health_check(service) && same(service, "healthCheckNodePort")
    {
        drop(service, "healthCheckNodePort");
    }
    let balanced = |service: &Object| text(service, "type") == "LoadBalancer";
    if balanced(old) && !balanced(service) {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(service, field) {
                drop(service, field);
            }
        }
    }
    let accessible = |service: &Object| {
        Service::is_exposed(service) || text(service, "type") == "ClusterIP" && !list(service, "externalIPs").is_empty()
    };
    if accessible(old) && !accessible(service) && same(service, "externalTrafficPolicy") {
        drop(service, "externalTrafficPolicy");
    }
    if !balanced(service) {
        service.inner_or_new("status").set("loadBalancer", json!({}));
    }
}

fn row(view: &View<'_>) -> Row {
    let ports: Vec<String> = view.list("spec.ports").iter().map(port_cell).collect();
    let address = view.list("spec.clusterIPs").first().and_then(Value::as_str).unwrap_or(NONE);
    Row::from([
        view.name(),
        view.text("spec.type").into(),
        address.into(),
        external(view).into(),
        if ports.is_empty() { NONE.into() } else { ports.join(",").into() },
        view.age(),
        view.labels("spec.selector"),
    ])
}

fn port_cell(port: &Value) -> String {
    let (number, protocol) = (int(port, "port"), printer::text(port, "protocol"));
    match int(port, "nodePort") {
        node_port if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

/// Returns the external addresses of a service.
fn external(view: &View<'_>) -> String {
    let external_ips: Vec<&str> = view.list("spec.externalIPs").iter().filter_map(Value::as_str).collect();
    match view.text("spec.type") {
        "ClusterIP" | "NodePort" if external_ips.is_empty() => NONE.into(),
        "ClusterIP" | "NodePort" => external_ips.join(","),
        "LoadBalancer" => {
            let balanced = load_balancer::addresses(view);
            let all: Vec<&str> =
                Some(balanced.as_str()).filter(|text| !text.is_empty()).into_iter().chain(external_ips).collect();
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        "ExternalName" => view.text("spec.externalName").into(),
        _ => printer::UNKNOWN.into(),
    }
}
