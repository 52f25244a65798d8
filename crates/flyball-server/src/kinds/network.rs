//! Ways into the cluster and within it: ingresses, network policies, endpoints.

use super::Part;
use super::field::Field;
use super::rules::{address, label, port, text};
use super::service;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_label, dns_subdomain, label_value, path_segment, qualified_name};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) const ENDPOINTS_DEPRECATION: &str =
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

type Errors = Vec<FieldError>;

pub(super) fn ingress(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        return service::status(&root.at("status").at("loadBalancer"));
    }
    let spec = root.at("spec");
    let (backend, rules) = (spec.at("defaultBackend"), spec.at("rules"));
    let mut errors = Errors::new();
    if rules.is_empty() && !backend.is_set() {
        let shown = if rules.is_set() { rules.value().clone() } else { Value::Null };
        errors.push(spec.invalid_as(shown, "either `defaultBackend` or `rules` must be specified"));
    }
    if backend.is_set() {
        errors.extend(ingress_backend(&backend));
    }
    errors.extend(rules.items().flat_map(|rule| ingress_rule(&rule)));
    for tls in spec.at("tls").items() {
        errors.extend(tls.at("hosts").items().flat_map(|host| host_rule(&host)));
        errors.extend(tls.at("secretName").may_obey(dns_subdomain));
    }
    let class = spec.at("ingressClassName");
    if class.is_set() {
        errors.extend(class.obeys(dns_subdomain));
    }
    const CLASS: &str = "kubernetes.io/ingress.class";
    if let (None, Some(annotation), Some(class)) = (old, object.annotation(CLASS), class.given_text())
        && annotation != class
    {
        errors.push(FieldError::invalid(
            format!("annotations.{CLASS}"),
            annotation,
            "must match `ingressClassName` when both are specified",
        ));
    }
    errors
}

fn host_rule(host: &Field<'_>) -> Errors {
    if host.text().contains('*') { host.obeys(text::wildcard_subdomain) } else { host.obeys(dns_subdomain) }
}

fn ingress_rule(rule: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let host = rule.at("host");
    if !host.is_empty() {
        if address::parse(host.text()).is_some() {
            errors.push(host.invalid("must be a DNS name, not an IP address"));
        }
        errors.extend(host_rule(&host));
    }
    let http = rule.at("http");
    if !http.is_set() {
        return errors;
    }
    let paths = http.at("paths");
    errors.extend(paths.must_be_set());
    for item in paths.items() {
        let (path, ty) = (item.at("path"), item.at("pathType"));
        let relative = !path.text().starts_with('/');
        match ty.text() {
            _ if !ty.is_set() => {
                errors.push(ty.required("pathType must be specified"));
                continue;
            }
            "Exact" | "Prefix" => {
                if relative {
                    errors.push(path.invalid_as(path.text(), "must be an absolute path"));
                }
                for bad in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|bad| path.text().contains(**bad)) {
                    errors.push(path.invalid(format!("must not contain '{bad}'")));
                }
                for bad in ["/..", "/."].iter().filter(|bad| path.text().ends_with(**bad)) {
                    errors.push(path.invalid(format!("cannot end with '{bad}'")));
                }
            }
            "ImplementationSpecific" if relative && !path.is_empty() => {
                errors.push(path.invalid("must be an absolute path"))
            }
            "ImplementationSpecific" => {}
            _ => errors.push(ty.not_supported(&["Exact", "ImplementationSpecific", "Prefix"])),
        }
        errors.extend(ingress_backend(&item.at("backend")));
    }
    errors
}

fn ingress_backend(backend: &Field<'_>) -> Errors {
    let (resource, service) = (backend.at("resource"), backend.at("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => vec![backend.invalid_as("", "cannot set both resource and service backends")],
        (true, false) => reference(&resource),
        (false, false) => vec![backend.invalid_as("", "resource or service backend is required")],
        (false, true) => {
            let mut errors = service.at("name").must_obey(dns_label);
            let port_field = service.at("port");
            let (name, number) = (port_field.at("name"), port_field.at("number"));
            match (name.is_empty(), number.int() == 0) {
                (false, false) => errors.push(backend.invalid_as("", "cannot set both port name & port number")),
                (false, true) => errors.extend(name.obeys(port::name)),
                (true, false) => errors.extend(port::number(&number)),
                (true, true) => errors.push(backend.required("port name or number is required")),
            }
            errors
        }
    }
}

/// A reference to an object by group, kind and name.
fn reference(reference: &Field<'_>) -> Errors {
    let group = reference.at("apiGroup");
    let mut errors = if group.is_set() { group.obeys(dns_subdomain) } else { Errors::new() };
    errors.extend(reference.at("kind").must_obey(path_segment));
    errors.extend(reference.at("name").must_obey(path_segment));
    errors
}

pub(super) fn warn_of_ingress(object: &Object, old: Option<&Object>) -> Vec<String> {
    let old_class = object.annotation("kubernetes.io/ingress.class").is_some();
    let warning =
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
    (old.is_none() && old_class).then(|| warning.to_owned()).into_iter().collect()
}

pub(super) fn ingress_class(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let controller = spec.at("controller");
    let mut errors = Errors::new();
    if let Some(old) = old {
        let before = Field::root(old);
        errors.extend(controller.unchanged_from(&before.at("spec.controller")));
    }
    if controller.text().len() > 250 {
        errors.push(controller.too_long(250));
    }
    errors.extend(text::domain_prefixed(&controller));
    let parameters = spec.at("parameters");
    if parameters.is_set() {
        errors.extend(reference(&parameters));
        let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
        match scope.text() {
            _ if !scope.is_set() => errors.push(scope.required("")),
            "Cluster" | "Namespace" => {}
            _ => errors.push(scope.not_supported(&["Cluster", "Namespace"])),
        }
        match (scope.text(), namespace.given_text()) {
            ("Namespace", None | Some("")) => {
                errors.push(namespace.required("`parameters.scope` is set to 'Namespace'"))
            }
            ("Namespace", Some(_)) => errors.extend(namespace.obeys(dns_label)),
            ("Cluster", Some(_)) => errors.push(namespace.forbidden("`parameters.scope` is set to 'Cluster'")),
            _ => {}
        }
    }
    errors
}

pub(super) fn network_policy(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let kept = old.map(blocks).unwrap_or_default();
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    let mut errors = label::selector(&spec.at("podSelector"));
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(rules).items() {
            errors.extend(rule.at("ports").items().flat_map(|port| policy_port(&port)));
            errors.extend(rule.at(peers).items().flat_map(|each| peer(&each, &kept)));
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > 2 {
        errors.push(types.invalid("may not specify more than two policyTypes"));
        return errors;
    }
    errors.extend(types.items().filter_map(|ty| ty.must_be_in(&["Ingress", "Egress"])));
    errors
}

/// Lists the blocks of addresses that a policy names.
fn blocks(policy: &Object) -> Vec<String> {
    let mut all = Vec::new();
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in policy.at(&["spec", rules]).and_then(Value::as_array).into_iter().flatten() {
            for block in rule[peers].as_array().into_iter().flatten().map(|peer| &peer["ipBlock"]) {
                let except = block["except"].as_array().into_iter().flatten();
                all.extend(std::iter::once(&block["cidr"]).chain(except).filter_map(Value::as_str).map(str::to_owned));
            }
        }
    }
    all
}

fn policy_port(item: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let (protocol, number, end) = (item.at("protocol"), item.at("port"), item.at("endPort"));
    errors.extend(protocol.may_be_one_of(&["TCP", "UDP", "SCTP"]));
    match number.value() {
        Value::Null if end.is_set() => errors.push(end.invalid("may not be specified when `port` is not specified")),
        Value::Null => {}
        Value::String(_) => {
            if end.is_set() {
                errors.push(end.invalid("may not be specified when `port` is non-numeric"));
            }
            errors.extend(number.obeys(port::name));
        }
        _ => {
            errors.extend(port::number(&number));
            if end.is_set() {
                if end.int() < number.int() {
                    errors.push(end.invalid_as(number.int(), "must be greater than or equal to `port`"));
                }
                errors.extend(port::number(&end));
            }
        }
    }
    errors
}

fn peer(peer: &Field<'_>, kept: &[&str]) -> Errors {
    let mut errors = Errors::new();
    let (pods, namespaces, block) = (peer.at("podSelector"), peer.at("namespaceSelector"), peer.at("ipBlock"));
    errors.extend(label::selector(&pods));
    errors.extend(label::selector(&namespaces));
    if block.is_set() {
        errors.extend(ip_block(&block, kept));
    }
    if !pods.is_set() && !namespaces.is_set() && !block.is_set() {
        errors.push(peer.required("must specify a peer"));
    } else if block.is_set() && (pods.is_set() || namespaces.is_set()) {
        errors.push(peer.forbidden("may not specify both ipBlock and another peer"));
    }
    errors
}

fn ip_block(block: &Field<'_>, kept: &[&str]) -> Errors {
    let whole = block.at("cidr");
    if whole.is_empty() {
        return vec![whole.required("")];
    }
    let mut errors = address::check_new_block(&whole, kept);
    let Some(outer) = address::parse_block(whole.text()) else { return errors };
    for except in block.at("except").items() {
        errors.extend(address::check_new_block(&except, kept));
        if let Some(inner) = address::parse_block(except.text())
            && (!outer.contains(inner.first()) || outer.bits >= inner.bits)
        {
            errors.push(except.invalid("must be a strict subset of `cidr`"));
        }
    }
    errors
}

pub(super) fn warn_of_policy(object: &Object, _: Option<&Object>) -> Vec<String> {
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut warnings = Vec::new();
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(rules).items() {
            for peer in rule.at(peers).items() {
                let block = peer.at("ipBlock");
                warnings.extend(address::warn_block(&block.at("cidr")));
                warnings.extend(block.at("except").items().flat_map(|except| address::warn_block(&except)));
            }
        }
    }
    warnings
}

pub(super) fn endpoints(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let subsets = root.at("subsets");
    if old.is_some_and(|old| old.get("subsets") == object.get("subsets")) {
        return Errors::new();
    }
    let mut errors = Errors::new();
    for subset in subsets.items() {
        let (ready, other) = (subset.at("addresses"), subset.at("notReadyAddresses"));
        if ready.is_empty() && other.is_empty() {
            errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        for item in ready.items().chain(other.items()) {
            let ip = item.at("ip");
            errors.extend(address::check(&ip));
            errors.extend(item.at("hostname").may_obey(dns_label));
            let node = item.at("nodeName");
            if node.is_set() {
                errors.extend(node.obeys(dns_subdomain));
            }
            errors.extend(address::check_endpoint(&ip));
        }
        let ports = subset.at("ports");
        for item in ports.items() {
            let name = item.at("name");
            errors.extend(if ports.len() > 1 { name.must_obey(dns_label) } else { name.may_obey(dns_label) });
            errors.extend(port::number(&item.at("port")));
            errors.extend(item.at("protocol").must_be_one_of(port::PROTOCOLS));
            let protocol = item.at("appProtocol");
            if protocol.is_set() {
                errors.extend(protocol.obeys(qualified_name));
            }
        }
    }
    errors
}

pub(super) fn endpoint_slice(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let family = root.at("addressType");
    let mut errors: Errors = family.must_be_one_of(&["FQDN", "IPv4", "IPv6"]).into_iter().collect();
    errors.extend(slice_ports(&root.at("ports")));
    if old.is_none_or(|old| old.get("endpoints") != object.get("endpoints")) {
        errors.extend(slice_endpoints(&root.at("endpoints"), family.text()));
    }
    if let Some(old) = old {
        let before = Field::root(old);
        errors.extend(family.unchanged_from(&before.at("addressType")));
    }
    errors
}

fn slice_ports(ports: &Field<'_>) -> Errors {
    if ports.len() > 20_000 {
        return vec![ports.too_many(20_000)];
    }
    let mut errors = Errors::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for item in ports.items() {
        let name = item.at("name");
        errors.extend(name.may_obey(dns_label));
        if names.contains(name.text()) {
            errors.push(name.duplicate_of(name.text()));
        }
        names.insert(name.text().to_owned());
        errors.extend(item.at("protocol").must_be_in(port::PROTOCOLS));
        let protocol = item.at("appProtocol");
        if protocol.is_set() {
            errors.extend(protocol.obeys(qualified_name));
        }
    }
    errors
}

fn slice_endpoints(endpoints: &Field<'_>, family: &str) -> Errors {
    if endpoints.len() > 1000 {
        return vec![endpoints.too_many(1000)];
    }
    let mut errors = Errors::new();
    for endpoint in endpoints.items() {
        let addresses = endpoint.at("addresses");
        if addresses.is_empty() {
            errors.push(addresses.required("must contain at least 1 address"));
        } else if addresses.len() > 100 {
            errors.push(addresses.too_many(100));
        }
        for item in addresses.items() {
            match family {
                "IPv4" | "IPv6" => {
                    let wrong = if family == "IPv4" { address::check(&item) } else { address::check_canonical(&item) };
                    if !wrong.is_empty() {
                        errors.extend(wrong);
                        continue;
                    }
                    if address::is_v6(item.text()) != (family == "IPv6") {
                        errors.push(addresses.invalid_as(item.text(), format!("must be an {family} address")));
                    }
                    errors.extend(address::check_endpoint(&item));
                }
                "FQDN" => errors.extend(text::fully_qualified(&item, 2)),
                _ => {}
            }
        }
        for (field, rule) in [("nodeName", dns_subdomain as fn(&str) -> Vec<String>), ("hostname", dns_label)] {
            let field = endpoint.at(field);
            if field.is_set() {
                errors.extend(field.obeys(rule));
            }
        }
        let hints = endpoint.at("hints");
        for (list, rule) in [("forZones", label_value as fn(&str) -> Vec<String>), ("forNodes", dns_subdomain)] {
            let list = hints.at(list);
            if list.len() > 8 {
                errors.push(list.too_many(8));
                continue;
            }
            let mut names: BTreeSet<String> = BTreeSet::new();
            for item in list.items() {
                let name = item.at("name");
                if names.contains(name.text()) {
                    errors.push(name.duplicate());
                }
                names.insert(name.text().to_owned());
                errors.extend(name.obeys(rule));
            }
        }
    }
    errors
}

pub(super) fn warn_of_slice(object: &Object, _: Option<&Object>) -> Vec<String> {
    let root = Field::root(object);
    if root.at("addressType").text() == "FQDN" {
        return vec!["spec.addressType: FQDN endpoints are deprecated".into()];
    }
    let mut warnings = Vec::new();
    for endpoint in root.at("endpoints").items() {
        warnings.extend(endpoint.at("addresses").items().filter_map(|item| address::warn(&item)));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::field::Path;
    use serde_json::json;

    fn check(rule: fn(&Field<'_>) -> Errors, value: Value, expected: &[&str]) {
        let errors: Vec<String> = rule(&Field::new(Path::new("x"), &value)).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{value}");
    }

    #[test]
    fn backends_are_one_thing() {
        let service = |port: Value| json!({"service": {"name": "s", "port": port}});
        check(ingress_backend, service(json!({"number": 80})), &[]);
        check(ingress_backend, service(json!({})), &["x: Required value: port name or number is required"]);
        check(ingress_backend, json!({}), &["x: Invalid value: \"\": resource or service backend is required"]);
    }

    #[test]
    fn exceptions_lie_within_their_block() {
        let rule = |field: &Field<'_>| ip_block(field, &[]);
        check(rule, json!({"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}), &[]);
        check(
            rule,
            json!({"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}),
            &["x.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"],
        );
    }
}
