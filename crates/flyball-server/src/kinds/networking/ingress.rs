//! Ingresses.

use super::{GROUP, reference};
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::load_balancer;
use crate::kinds::printer::{self, Heading, NONE, Row, View};
use crate::kinds::rules::{address, port, text};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_label, dns_subdomain};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Ingress", "ingresses")
    .registry_path("ingress")
    .printed(COLUMNS, row)
    .checks(Checks::Whole)
    .warn(warn)
    .validate(validate)
    .short(&["ing"])
    .generation()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Class", "The name of the IngressClass resource that should be used for additional configuration"),
    Heading::text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
    Heading::text("Address", "Address is a list containing ingress points for the load-balancer"),
    Heading::text("Ports", "Ports of TLS configurations that open"),
    Heading::AGE,
];

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        return load_balancer::status(&root.at("status").at("loadBalancer"));
    }
    let spec = root.at("spec");
    let (backend, rules) = (spec.at("defaultBackend"), spec.at("rules"));
    let mut errors = Errors::new();
    if rules.is_empty() && !backend.is_set() {
        let shown = if rules.is_set() { rules.value().clone() } else { Value::Null };
        errors.push(spec.invalid_as(shown, "either `defaultBackend` or `rules` must be specified"));
    }
    if backend.is_set() {
        errors.extend(self::backend(&backend));
    }
    errors.extend(rules.items().flat_map(|rule| self::rule(&rule)));
    for tls in spec.at("tls").items() {
        errors.extend(tls.at("hosts").items().flat_map(|host| host_rule(&host)));
        errors.extend(tls.at("secretName").may_obey(dns_subdomain));
    }
    let class = spec.at("ingressClassName");
    if class.is_set() {
        errors.extend(class.obeys(dns_subdomain));
    }
    const CLASS: &str = "kubernetes.io/ingress.class";
    if let (None, Some(annotation), Some(class)) = (old, object.annotation(CLASS), class.text_if_set())
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

fn rule(rule: &Field<'_>) -> Errors {
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
        errors.extend(backend(&item.at("backend")));
    }
    errors
}

fn backend(backend: &Field<'_>) -> Errors {
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

fn warn(object: &Object, old: Option<&Object>) -> Vec<String> {
    let old_class = object.annotation("kubernetes.io/ingress.class").is_some();
    let warning =
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
    (old.is_none() && old_class).then(|| warning.to_owned()).into_iter().collect()
}

fn row(view: &View<'_>) -> Row {
    let ports = if view.list("spec.tls").is_empty() { "80" } else { "80, 443" };
    Row::from([
        view.name(),
        view.at("spec.ingressClassName").as_str().unwrap_or(NONE).into(),
        hosts(view.list("spec.rules")).into(),
        load_balancer::addresses(view).into(),
        ports.into(),
        view.age(),
    ])
}

fn hosts(rules: &[Value]) -> String {
    const MAX_SHOWN_HOSTS: usize = 3;
    let hosts: Vec<&str> = rules.iter().map(|rule| printer::text(rule, "host")).collect();
    // Further hosts are counted by rules, with or without a host.
    let mut shown = Vec::new();
    let mut more = false;
    for host in &hosts {
        more |= shown.len() == MAX_SHOWN_HOSTS;
        if !more && !host.is_empty() {
            shown.push(*host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".into(),
        (false, true) => format!("{} + {} more...", shown.join(","), rules.len() - MAX_SHOWN_HOSTS),
        (false, false) => shown.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::field::Path;
    use serde_json::json;

    fn check(value: Value, expected: &[&str]) {
        let errors: Vec<String> =
            backend(&Field::new(Path::new("x"), &value)).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{value}");
    }

    #[test]
    fn backends_require_a_service_or_resource() {
        let service = |port: Value| json!({"service": {"name": "s", "port": port}});
        check(service(json!({"number": 80})), &[]);
        check(service(json!({})), &["x: Required value: port name or number is required"]);
        check(json!({}), &["x: Invalid value: \"\": resource or service backend is required"]);
    }
}
