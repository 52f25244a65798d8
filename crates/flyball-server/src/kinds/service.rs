//! Services: their defaults, their addresses, their rules.

use super::Part;
use super::field::Field;
use super::fill::Fields;
use super::rules::{address, label, port};
use super::shown::internal;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_label, dns_subdomain, qualified_name};
use flyball_core::{Clock, Object};
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

type Errors = Vec<FieldError>;

/// What services need to be given, and what they keep.
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

    /// Tells whether a service is reached by ports of the nodes.
    pub(crate) fn is_exposed(service: &Object) -> bool {
        matches!(text(service, "type"), "NodePort" | "LoadBalancer")
    }

    pub(crate) fn needs_health_check(service: &Object) -> bool {
        text(service, "type") == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
    }

    /// Keeps what a service was given, if a change says nothing of it.
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
            let used: Vec<i64> = list(old, "ports").iter().filter_map(|port| port["nodePort"].as_i64()).collect();
            let named: Vec<i64> =
                spec.each("ports").filter_map(|port| port.get("nodePort").and_then(Value::as_i64)).collect();
            for port in spec.each("ports").filter(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) == 0)
            {
                let name = port.text("name").to_owned();
                let earlier = list(old, "ports").iter().rfind(|port| port["name"].as_str().unwrap_or_default() == name);
                if let Some(number) = earlier
                    .and_then(|port| port["nodePort"].as_i64())
                    .filter(|number| used.contains(number) && !named.contains(number))
                {
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
        // The two ways to say the address follow one another.
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

    /// Works out which families of addresses a service has.
    pub(crate) fn families(service: &mut Object, old: Option<&Object>) -> Result<(), Errors> {
        let bare = service.at(&["spec", "selector"]).and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
        let bare = text(service, "clusterIP") == "None" && bare;
        let earlier = old.map(|old| text(old, "ipFamilyPolicy").to_owned()).filter(|policy| !policy.is_empty());
        let spec = service.inner_or_new("spec");
        let default = if bare { "RequireDualStack" } else { "SingleStack" };
        spec.fill("ipFamilyPolicy", earlier.as_deref().unwrap_or(default));
        let wrong = addresses(&Field::root(service).at("spec"), old.map_or(&[], |old| list(old, "clusterIPs")));
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

/// Takes back what a service of its new type has no use for.
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
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(service, field) {
                drop(service, field);
            }
        }
    }
    let node_ports = |service: &Object| -> Vec<i64> {
        list(service, "ports").iter().filter_map(|port| port["nodePort"].as_i64()).filter(|port| *port != 0).collect()
    };
    if Service::is_exposed(old) && !Service::is_exposed(service) {
        let held = node_ports(old);
        if node_ports(service).iter().all(|port| held.contains(port)) {
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

/// Finds what is wrong with the addresses of a service.
fn addresses(spec: &Field<'_>, old: &[Value]) -> Errors {
    let mut errors = Errors::new();
    if spec.at("type").text() == "ExternalName" {
        return errors;
    }
    let (single, all) = (spec.at("clusterIP"), spec.at("clusterIPs"));
    if single.is_empty() {
        if !all.is_empty() {
            errors.push(all.invalid("must be empty when `clusterIP` is not specified"));
        }
    } else if all.is_empty() {
        errors.push(all.required(""));
    } else if all.texts().next() != Some(single.text()) {
        errors.push(all.invalid("first value must match `clusterIP`"));
    }
    let mut seen: Vec<String> = Vec::new();
    for family in spec.at("ipFamilies").items() {
        errors.extend(family.must_be_in(&["IPv4", "IPv6"]));
        if seen.iter().any(|seen| seen == family.text()) {
            errors.push(family.duplicate());
        }
        seen.push(family.text().to_owned());
    }
    errors.extend(spec.at("ipFamilyPolicy").may_be_one_of(&["PreferDualStack", "RequireDualStack", "SingleStack"]));
    let kept: Vec<&str> = old.iter().filter_map(Value::as_str).collect();
    let mut bad = false;
    for (i, ip) in all.items().enumerate() {
        if i == 0 && ip.text() == "None" {
            if all.len() > 1 {
                bad = true;
                errors.push(all.invalid("'None' must be the first and only value"));
            }
            continue;
        }
        let wrong = address::check_new(&ip, &kept);
        bad |= !wrong.is_empty();
        errors.extend(wrong);
    }
    if all.len() > 2 {
        errors.push(all.invalid("may only hold up to 2 values"));
    }
    if bad {
        return errors;
    }
    if all.len() > 1 && !address::is_dual_stack(all.texts()) {
        errors.push(all.invalid("may specify no more than one IP for each IP family"));
    }
    if all.texts().next() != Some("None") {
        for (i, (ip, family)) in all.items().zip(spec.at("ipFamilies").texts()).enumerate() {
            let own = if address::is_v6(ip.text()) { "IPv6" } else { "IPv4" };
            if own != family {
                errors.push(ip.invalid(format!("expected an {family} value as indicated by `ipFamilies[{i}]`")));
            }
        }
    }
    errors
}

/// An address that was given stays.
fn kept_addresses(service: &Object, old: &Object) -> Errors {
    let mut errors = Errors::new();
    if Service::is_external_name(service) || Service::is_external_name(old) || is_headless(service) && is_headless(old)
    {
        return errors;
    }
    let (new, before) = (list(service, "clusterIPs"), list(old, "clusterIPs"));
    let changed =
        |i: usize| FieldError::invalid(format!("spec.clusterIPs[{i}]"), Value::from(new), "may not change once set");
    if new.len() == before.len() {
        errors.extend((0..new.len()).filter(|i| new[*i] != before[*i]).map(changed));
    } else if new.is_empty() {
        errors.push(FieldError::invalid("spec.clusterIPs[0]", Value::from(new), "primary clusterIP can not be unset"));
    } else if !before.is_empty() && new[0] != before[0] {
        errors.push(changed(0));
    }
    if is_headless(service) || is_headless(old) {
        return errors;
    }
    let (new, before) = (list(service, "ipFamilies"), list(old, "ipFamilies"));
    if new.len() == before.len() {
        let changed = (0..new.len()).filter(|i| new[*i] != before[*i]);
        errors.extend(
            changed.map(|_| FieldError::invalid("spec.ipFamilies[0]", Value::from(new), "may not change once set")),
        );
    }
    errors
}

pub(super) fn validate(service: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(service);
    if part == Part::Status {
        return status(&root.at("status").at("loadBalancer"));
    }
    let mut errors = Errors::new();
    if let Some(old) = old {
        errors.extend(kept_addresses(service, old));
        let class = |service: &Object| service.at(&["spec", "loadBalancerClass"]).cloned().unwrap_or_default();
        let both = text(service, "type") == "LoadBalancer" && text(old, "type") == "LoadBalancer";
        if both && class(service) != class(old) {
            errors.push(FieldError::invalid("spec.loadBalancerClass", class(service), "may not change once set"));
        }
        errors.extend(balancer_class(&root.at("spec")));
    }
    let spec = root.at("spec");
    let ty = spec.at("type");
    let headless = is_headless(service);
    let ports = spec.at("ports");
    if ports.is_empty() && !headless && ty.text() != "ExternalName" {
        errors.push(ports.required(""));
    }
    match ty.text() {
        kind @ ("LoadBalancer" | "NodePort") if headless => {
            let why = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid("spec.clusterIPs[0]", "None", why));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let field = spec.at(field);
                if !field.is_empty() {
                    errors.push(field.forbidden("may not be set for ExternalName services"));
                }
            }
            let name = spec.at("externalName");
            let bare = name.text().strip_suffix('.').unwrap_or(name.text());
            if bare.is_empty() {
                errors.push(name.required(""));
            } else {
                errors.extend(dns_subdomain(bare).into_iter().map(|wrong| name.invalid_as(bare, wrong)));
            }
        }
        _ => {}
    }
    errors.extend(named_ports(&ports));
    errors.extend(label::labels(&spec.at("selector")));
    let affinity = spec.at("sessionAffinity");
    errors.extend(affinity.must_be_one_of(&["ClientIP", "None"]));
    let config = spec.at("sessionAffinityConfig");
    match affinity.text() {
        "ClientIP" => errors.extend(client_ip(&config)),
        "None" if config.is_set() => errors.push(config.forbidden("must not be set when session affinity is None")),
        _ => {}
    }
    errors.extend(addresses(&spec, old.map_or(&[], |old| list(old, "clusterIPs"))));
    let kept: Vec<&str> =
        old.map_or(&[][..], |old| list(old, "externalIPs")).iter().filter_map(Value::as_str).collect();
    for ip in spec.at("externalIPs").items() {
        let wrong = address::check_new(&ip, &kept);
        errors.extend(if wrong.is_empty() { address::check_endpoint(&ip) } else { wrong });
    }
    errors.extend(ty.must_be_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]));
    errors.extend(distinct_ports(&ports, ty.text() == "ClusterIP"));
    let ranges = spec.at_as("loadBalancerSourceRanges", "LoadBalancerSourceRanges");
    if !ranges.is_empty() {
        if ty.text() != "LoadBalancer" {
            errors.push(ranges.forbidden("may only be used when `type` is 'LoadBalancer'"));
        }
        let kept: Vec<&str> = old
            .map_or(&[][..], |old| list(old, "loadBalancerSourceRanges"))
            .iter()
            .filter_map(Value::as_str)
            .map(str::trim)
            .collect();
        for range in ranges.items() {
            let trimmed = Value::from(range.text().trim());
            errors.extend(address::check_new_block(&Field::new(*range.path(), &trimmed), &kept));
        }
    }
    let allocates = spec.at("allocateLoadBalancerNodePorts");
    if allocates.is_set() && ty.text() != "LoadBalancer" {
        errors.push(allocates.forbidden("may only be used when `type` is 'LoadBalancer'"));
    }
    if ty.text() == "LoadBalancer" && !allocates.is_set() {
        errors.push(FieldError::required("allocateLoadBalancerNodePorts", ""));
    }
    errors.extend(balancer_class(&spec));
    errors.extend(traffic(service, &spec));
    errors
}

fn balancer_class(spec: &Field<'_>) -> Errors {
    let class = spec.at("loadBalancerClass");
    if !class.is_set() {
        return Errors::new();
    }
    if spec.at("type").text() == "LoadBalancer" {
        return class.obeys(qualified_name);
    }
    vec![class.forbidden("may only be used when `type` is 'LoadBalancer'")]
}

fn client_ip(config: &Field<'_>) -> Errors {
    const AFFINITY: &str = "when session affinity type is ClientIP";
    if !config.is_set() {
        return vec![config.required(AFFINITY)];
    }
    let client = config.at("clientIP");
    if !client.is_set() {
        return vec![client.required(AFFINITY)];
    }
    let seconds = client.at("timeoutSeconds");
    if !seconds.is_set() {
        return vec![seconds.required(AFFINITY)];
    }
    let bad = !(1..=86_400).contains(&seconds.int());
    bad.then(|| seconds.invalid("must be greater than 0 and less than 86400")).into_iter().collect()
}

fn named_ports(ports: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut names: Vec<String> = Vec::new();
    for item in ports.items() {
        let name = item.at("name");
        if ports.len() > 1 && name.is_empty() {
            errors.push(name.required(""));
        } else if !name.is_empty() {
            errors.extend(name.obeys(dns_label));
            if names.iter().any(|known| known == name.text()) {
                errors.push(name.duplicate());
            }
            names.push(name.text().to_owned());
        }
        errors.extend(port::number(&item.at("port")));
        errors.extend(item.at("protocol").must_be_one_of(port::PROTOCOLS));
        errors.extend(port::number_or_name(&item.at("targetPort")));
        let protocol = item.at("appProtocol");
        if protocol.is_set() {
            errors.extend(protocol.obeys(qualified_name));
        }
    }
    errors
}

fn distinct_ports(ports: &Field<'_>, inward: bool) -> Errors {
    let mut errors = Errors::new();
    for item in ports.items().filter(|item| inward && item.at("nodePort").int() != 0) {
        errors.push(item.at("nodePort").forbidden("may not be used when `type` is 'ClusterIP'"));
    }
    for field in ["nodePort", "port"] {
        let mut seen: Vec<(i64, String)> = Vec::new();
        for item in ports.items() {
            let number = item.at(field);
            let key = (number.int(), item.at("protocol").text().to_owned());
            if field == "nodePort" && key.0 == 0 {
                continue;
            }
            if seen.contains(&key) {
                let bare = json!({"protocol": key.1, "port": key.0});
                errors.push(if field == "nodePort" {
                    number.duplicate()
                } else {
                    item.duplicate_of(internal("ServicePort", &bare))
                });
            }
            seen.push(key);
        }
    }
    errors
}

fn traffic(service: &Object, spec: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let (outer, inner) = (spec.at("externalTrafficPolicy"), spec.at("internalTrafficPolicy"));
    const POLICIES: &[&str] = &["Cluster", "Local"];
    let accessible = Service::is_exposed(service)
        || text(service, "type") == "ClusterIP" && !list(service, "externalIPs").is_empty();
    if accessible {
        errors.extend(outer.must_be_one_of(POLICIES));
    } else if !outer.is_empty() {
        errors.push(outer.invalid("may only be set for externally-accessible services"));
    }
    let port = spec.at("healthCheckNodePort");
    if !Service::needs_health_check(service) {
        if port.int() != 0 {
            errors.push(
                port.invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"),
            );
        }
    } else if port.int() == 0 {
        errors.push(port.required(""));
    } else {
        errors.extend(port::number(&port));
    }
    if inner.is_set() {
        errors.extend(inner.must_be_in(POLICIES));
    } else if matches!(text(service, "type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.push(inner.required(""));
    }
    errors.extend(spec.at("trafficDistribution").may_be_one_of(&["PreferClose", "PreferSameZone", "PreferSameNode"]));
    errors
}

/// What a load balancer tells of itself, for services and ingresses alike.
pub(super) fn status(balancer: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for ingress in balancer.at("ingress").items() {
        let (ip, name, mode) = (ingress.at("ip"), ingress.at("hostname"), ingress.at("ipMode"));
        if !ip.is_empty() {
            errors.extend(address::check(&ip));
        }
        if !ip.is_empty() && mode.is_set() {
            errors.extend(mode.must_be_in(&["Proxy", "VIP"]));
        } else if mode.is_set() && ip.is_empty() {
            errors.push(mode.forbidden("may not be specified when `ip` is not set"));
        }
        if !name.is_empty() {
            errors.extend(name.obeys(dns_subdomain));
            if address::parse(name.text()).is_some() {
                errors.push(name.invalid("must be a DNS name, not an IP address"));
            }
        }
    }
    errors
}

pub(super) fn warn(service: &Object, old: Option<&Object>) -> Vec<String> {
    let root = Field::root(service);
    let spec = root.at("spec");
    let mut warnings = Vec::new();
    let new = old.is_none_or(|old| old.get("spec") != service.get("spec"));
    if !list(service, "externalIPs").is_empty() && new {
        warnings.push(
            "spec.externalIPs is deprecated and will be removed in a future release. See https://kep.k8s.io/5707"
                .to_owned(),
        );
    }
    if !new {
        return warnings;
    }
    if text(service, "type") != "ExternalName" {
        if text(service, "clusterIP") != "None" {
            warnings.extend(spec.at("clusterIPs").items().filter_map(|ip| address::warn(&ip)));
        }
        if text(service, "type") == "LoadBalancer" {
            let ip = spec.at("loadBalancerIP");
            warnings.extend(if ip.is_empty() { None } else { address::warn(&ip) });
        }
    }
    warnings.extend(spec.at("externalIPs").items().filter_map(|ip| address::warn(&ip)));
    warnings.extend(spec.at("loadBalancerSourceRanges").items().flat_map(|range| address::warn_block(&range)));
    if text(service, "type") == "ExternalName" && !list(service, "externalIPs").is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if text(service, "type") != "LoadBalancer" {
        if spec.at("sessionAffinity").text() == "ClientIP" && is_headless(service) {
            warnings.push("spec.SessionAffinity is ignored for headless services".into());
        }
    }
    if text(service, "trafficDistribution") == "PreferClose" {
        warnings.push("spec.trafficDistribution: PreferClose is deprecated; use PreferSameZone instead".into());
    }
    warnings
}
