//! Rules shared by bindings of admission policies.

use super::{default_matching, policy};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::printer::{Heading, Row, UNSET, View, text};
use crate::kinds::rules::label;
use flyball_core::Object;
use flyball_core::names::{dns_subdomain, path_segment};

pub(super) const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
    Heading::text("ParamRef", "ParamRef indicates the param resource which sets the configuration param"),
    Heading::AGE,
];

pub(super) fn default(binding: &mut Object) {
    binding.inner_or_new("spec").inner("matchResources").into_iter().for_each(default_matching);
}

pub(super) fn check(spec: &Field<'_>) -> Errors {
    let (policy, params, matched) = (spec.at("policyName"), spec.at("paramRef"), spec.at("matchResources"));
    let mut errors = policy.must_obey(dns_subdomain);
    if params.is_set() {
        errors.extend(param_ref(&params));
    }
    if matched.is_set() {
        errors.extend(policy::resources(&matched));
    }
    errors
}

fn param_ref(params: &Field<'_>) -> Errors {
    const EITHER: &str = "name and selector are mutually exclusive";
    let (name, selector, action) = (params.at("name"), params.at("selector"), params.at("parameterNotFoundAction"));
    let mut errors = Errors::new();
    if !name.is_empty() {
        errors.extend(name.obeys(path_segment));
        errors.extend(selector.is_set().then(|| name.forbidden(EITHER)));
    }
    if selector.is_set() {
        errors.extend(label::selector(&selector));
        errors.extend((!name.is_empty()).then(|| selector.forbidden(EITHER)));
    } else if name.is_empty() {
        errors.push(params.required("one of name or selector must be specified"));
    }
    errors.extend(action.must_be_one_of(&["Deny", "Allow"]));
    errors
}

pub(super) fn row(view: &View<'_>) -> Row {
    let reference = view.at("spec.paramRef");
    let shown = match (text(reference, "name"), text(reference, "namespace")) {
        ("", _) => UNSET.to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    Row::from([view.name(), view.text("spec.policyName").into(), shown.into(), view.age()])
}
