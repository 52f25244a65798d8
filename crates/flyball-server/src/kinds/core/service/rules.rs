//! Rules for services and their updates.

use super::{Service, is_headless, list, text};
use crate::kinds::display::internal;
use crate::kinds::field::{Errors, Field};
use crate::kinds::load_balancer;
use crate::kinds::rules::{address, label, port};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_label, dns_subdomain, qualified_name};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Validates the addresses of a service.
pub(super) fn addresses(spec: &Field<'_>, old: &[Value]) -> Errors {
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
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for family in spec.at("ipFamilies").items() {
        errors.extend(family.must_be_in(&["IPv4", "IPv6"]));
        if !seen.insert(family.text().to_owned()) {
            errors.push(family.duplicate());
        }
    }
    errors.extend(spec.at("ipFamilyPolicy").may_be_one_of(&["PreferDualStack", "RequireDualStack", "SingleStack"]));
    let old_ips: Vec<&str> = old.iter().filter_map(Value::as_str).collect();
    let mut bad = false;
    for (i, ip) in all.items().enumerate() {
        if i == 0 && ip.text() == "None" {
            if all.len() > 1 {
                bad = true;
                errors.push(all.invalid("'None' must be the first and only value"));
            }
            continue;
        }
        let wrong = address::check_new(&ip, &old_ips);
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

/// Requires allocated addresses to be unchanged.
fn retained_addresses(service: &Object, old: &Object) -> Errors {
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

pub(crate) fn validate(service: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(service);
    if part == Part::Status {
        let status_field = root.at("status");
        let balancer = status_field.at("loadBalancer");
        let ingress = balancer.at("ingress");
        if text(service, "type") != "LoadBalancer" && !ingress.is_empty() {
            return vec![ingress.forbidden("may only be used when `spec.type` is 'LoadBalancer'")];
        }
        return load_balancer::status(&balancer);
    }
    let mut errors = Errors::new();
    if let Some(old) = old {
        errors.extend(retained_addresses(service, old));
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
    let old_ips: Vec<&str> =
        old.map_or(&[][..], |old| list(old, "externalIPs")).iter().filter_map(Value::as_str).collect();
    for ip in spec.at("externalIPs").items() {
        let wrong = address::check_new(&ip, &old_ips);
        errors.extend(if wrong.is_empty() { address::check_endpoint(&ip) } else { wrong });
    }
    errors.extend(ty.must_be_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]));
    errors.extend(distinct_ports(&ports, ty.text() == "ClusterIP"));
    let ranges = spec.at_as("loadBalancerSourceRanges", "LoadBalancerSourceRanges");
    if !ranges.is_empty() {
        if ty.text() != "LoadBalancer" {
            errors.push(ranges.forbidden("may only be used when `type` is 'LoadBalancer'"));
        }
        let old_ranges: Vec<&str> = old
            .map_or(&[][..], |old| list(old, "loadBalancerSourceRanges"))
            .iter()
            .filter_map(Value::as_str)
            .map(str::trim)
            .collect();
        for range in ranges.items() {
            let trimmed = Value::from(range.text().trim());
            errors.extend(address::check_new_block(&Field::new(*range.path(), &trimmed), &old_ranges));
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
    let mut names: BTreeSet<String> = BTreeSet::new();
    for item in ports.items() {
        let name = item.at("name");
        if ports.len() > 1 && name.is_empty() {
            errors.push(name.required(""));
        } else if !name.is_empty() {
            errors.extend(name.obeys(dns_label));
            if names.contains(name.text()) {
                errors.push(name.duplicate());
            }
            names.insert(name.text().to_owned());
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
        let mut seen: BTreeSet<(i64, String)> = BTreeSet::new();
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
            seen.insert(key);
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

pub(crate) fn warn(service: &Object, old: Option<&Object>) -> Vec<String> {
    let root = Field::root(service);
    let spec = root.at("spec");
    let mut warnings = Vec::new();
    let new = old.is_none_or(|old| old.get("spec") != service.get("spec"));
    if !list(service, "externalIPs").is_empty() && new {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
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
    if text(service, "type") != "ExternalName" && !text(service, "externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if is_headless(service) && spec.at("sessionAffinity").text() == "ClientIP" {
        warnings.push("spec.SessionAffinity is ignored for headless services".into());
    }
    if text(service, "trafficDistribution") == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Object {
        let mut object = Object::try_from(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap();
        super::super::default(&mut object);
        object
    }

    fn check(new: Value, old: Option<Value>, expected: &[&str]) {
        let (new, old) = (service(new), old.map(service));
        let errors: Vec<String> = validate(&new, old.as_ref(), Part::Whole).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{new:?}");
    }

    #[test]
    fn types_require_their_fields() {
        check(json!({"ports": [{"port": 80}]}), None, &[]);
        check(json!({}), None, &["spec.ports: Required value"]);
        check(json!({"type": "ExternalName"}), None, &["spec.externalName: Required value"]);
        check(
            json!({"ports": [{"port": 80, "nodePort": 30080}]}),
            None,
            &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        );
        check(
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}),
            None,
            &[
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
            ],
        );
    }

    #[test]
    fn cluster_ips_are_immutable() {
        let at = |ip: &str| json!({"ports": [{"port": 80}], "clusterIP": ip, "clusterIPs": [ip]});
        check(at("10.0.0.1"), Some(at("10.0.0.1")), &[]);
        check(
            at("10.0.0.2"),
            Some(at("10.0.0.1")),
            &["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"],
        );
    }
}
