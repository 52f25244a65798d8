//! Network policies: peers, ports and blocks of addresses.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::{address, label, port};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use serde_json::{Value, json};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "NetworkPolicy", "networkpolicies")
    .printed(COLUMNS, row)
    .default(default)
    .warn(warn)
    .validate(validate)
    .short(&["netpol"])
    .generation();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Pod-Selector",
        "podSelector selects the pods to which this NetworkPolicy object applies. The array of rules is applied to \
         any pods selected by this field. An empty selector matches all pods in the policy's namespace. Multiple \
         network policies can select the same set of pods. In this case, the ingress rules for each are combined \
         additively. This field is optional. If it is not specified, it defaults to an empty selector.",
    ),
    Heading::AGE,
];

fn default(policy: &mut Object) {
    let spec = policy.inner_or_new("spec");
    if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let outward = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
        spec.set("policyTypes", if outward { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
    for rules in ["ingress", "egress"] {
        spec.each(rules).for_each(|rule| rule.each("ports").for_each(|port| port.fill("protocol", "TCP")));
    }
}

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let old_blocks = old.map(blocks).unwrap_or_default();
    let old_blocks: Vec<&str> = old_blocks.iter().map(String::as_str).collect();
    let mut errors = label::selector(&spec.at("podSelector"));
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(rules).items() {
            errors.extend(rule.at("ports").items().flat_map(|port| port_rule(&port)));
            errors.extend(rule.at(peers).items().flat_map(|each| peer(&each, &old_blocks)));
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

fn port_rule(item: &Field<'_>) -> Errors {
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

fn peer(peer: &Field<'_>, old_blocks: &[&str]) -> Errors {
    let mut errors = Errors::new();
    let (pods, namespaces, block) = (peer.at("podSelector"), peer.at("namespaceSelector"), peer.at("ipBlock"));
    errors.extend(label::selector(&pods));
    errors.extend(label::selector(&namespaces));
    if block.is_set() {
        errors.extend(ip_block(&block, old_blocks));
    }
    if !pods.is_set() && !namespaces.is_set() && !block.is_set() {
        errors.push(peer.required("must specify a peer"));
    } else if block.is_set() && (pods.is_set() || namespaces.is_set()) {
        errors.push(peer.forbidden("may not specify both ipBlock and another peer"));
    }
    errors
}

pub(super) fn ip_block(block: &Field<'_>, old_blocks: &[&str]) -> Errors {
    let whole = block.at("cidr");
    if whole.is_empty() {
        return vec![whole.required("")];
    }
    let mut errors = address::check_new_block(&whole, old_blocks);
    let Some(outer) = address::parse_block(whole.text()) else { return errors };
    for except in block.at("except").items() {
        errors.extend(address::check_new_block(&except, old_blocks));
        if let Some(inner) = address::parse_block(except.text())
            && (!outer.contains(inner.first()) || outer.bits >= inner.bits)
        {
            errors.push(except.invalid("must be a strict subset of `cidr`"));
        }
    }
    errors
}

fn warn(object: &Object, _: Option<&Object>) -> Vec<String> {
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

/// Returns the CIDR blocks of a policy.
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

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.selector("spec.podSelector"), view.age()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::field::Path;
    use serde_json::json;

    fn check(value: Value, expected: &[&str]) {
        let errors: Vec<String> =
            ip_block(&Field::new(Path::new("x"), &value), &[]).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{value}");
    }

    #[test]
    fn exceptions_must_be_within_their_block() {
        check(json!({"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}), &[]);
        check(
            json!({"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}),
            &["x.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"],
        );
    }
}
