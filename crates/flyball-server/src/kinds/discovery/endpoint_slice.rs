//! Endpoint slices.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Kind, Part};
use crate::kinds::printer::{Row, UNSET, View, first, list};
use crate::kinds::rules::{address, port, text};
use flyball_core::Object;
use flyball_core::names::{dns_label, dns_subdomain, label_value, qualified_name};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "EndpointSlice", "endpointslices")
    .printed(row)
    .default(default)
    .warn(warn)
    .validate(validate)
    .generation();

fn default(slice: &mut Object) {
    for port in slice.each("ports") {
        port.fill("name", "");
        port.fill("protocol", "TCP");
    }
}

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let family = root.at("addressType");
    let mut errors: Errors = family.must_be_one_of(&["FQDN", "IPv4", "IPv6"]).into_iter().collect();
    errors.extend(ports(&root.at("ports")));
    if old.is_none_or(|old| old.get("endpoints") != object.get("endpoints")) {
        errors.extend(endpoints(&root.at("endpoints"), family.text()));
    }
    if let Some(old) = old {
        let before = Field::root(old);
        errors.extend(family.unchanged_from(&before.at("addressType")));
    }
    errors
}

fn ports(ports: &Field<'_>) -> Errors {
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

fn endpoints(endpoints: &Field<'_>, family: &str) -> Errors {
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

fn warn(object: &Object, _: Option<&Object>) -> Vec<String> {
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

fn row(view: &View<'_>) -> Row {
    let port = |port: &Value| match (port["port"].as_i64(), port["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    let ports: Vec<String> = view.list("ports").iter().map(port).collect();
    let endpoints = view.list("endpoints").iter().flat_map(|endpoint| list(endpoint, "addresses"));
    let endpoints: Vec<String> = endpoints.filter_map(Value::as_str).map(str::to_owned).collect();
    let written =
        |texts: &[String]| Some(first(texts, 3)).filter(|text| !text.is_empty()).unwrap_or_else(|| UNSET.into());
    Row::from([
        view.name(),
        view.text("addressType").into(),
        written(&ports).into(),
        written(&endpoints).into(),
        view.age(),
    ])
}
