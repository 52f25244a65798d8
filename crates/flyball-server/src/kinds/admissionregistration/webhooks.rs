//! Rules shared by webhook configurations.

use super::{conditions, default_matching, rule};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::{label, text};
use crate::kinds::webhook_client;
use flyball_core::Object;
use std::collections::BTreeSet;

pub(super) const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::number("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"),
    Heading::AGE,
];

pub(super) fn default(configuration: &mut Object) {
    for hook in configuration.each("webhooks") {
        hook.fill("failurePolicy", "Fail");
        hook.fill("timeoutSeconds", 10);
        default_matching(hook);
        hook.each("rules").for_each(|rule| rule.fill("scope", "*"));
        if let Some(service) = hook.inner("clientConfig").and_then(|client| client.inner("service")) {
            service.fill("port", 443);
        }
    }
}

pub(super) fn check(object: &Object, mutates: bool) -> Errors {
    let root = Field::root(object);
    let mut errors = Errors::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for hook in root.at("webhooks").items() {
        errors.extend(webhook(&hook, mutates));
        errors.extend(versions(&hook.at("admissionReviewVersions")));
        let name = hook.at("name");
        if !name.is_empty() && names.contains(name.text()) {
            errors.push(name.duplicate());
        }
        names.insert(name.text().to_owned());
    }
    errors
}

fn webhook(hook: &Field<'_>, mutates: bool) -> Errors {
    let mut errors: Errors = text::fully_qualified(&hook.at("name"), 3).into_iter().collect();
    errors.extend(hook.at("rules").items().flat_map(|each| rule(&each)));
    errors.extend(hook.at("failurePolicy").may_be_one_of(&["Fail", "Ignore"]));
    errors.extend(hook.at("matchPolicy").may_be_one_of(&["Equivalent", "Exact"]));
    let effects = hook.at("sideEffects");
    if effects.is_set() {
        errors.extend(effects.must_be_in(&["None", "NoneOnDryRun"]));
    } else {
        errors.push(effects.required("must specify one of None, NoneOnDryRun"));
    }
    let seconds = hook.at("timeoutSeconds");
    if seconds.is_set() && !(1..=30).contains(&seconds.int()) {
        errors.push(seconds.invalid("the timeout value must be between 1 and 30 seconds"));
    }
    errors.extend(label::selector(&hook.at("namespaceSelector")));
    errors.extend(label::selector(&hook.at("objectSelector")));
    if mutates {
        errors.extend(hook.at("reinvocationPolicy").may_be_one_of(&["IfNeeded", "Never"]));
    }
    errors.extend(webhook_client::check(&hook.at("clientConfig")));
    errors.extend(conditions(&hook.at("matchConditions"), false));
    errors
}

fn versions(versions: &Field<'_>) -> Errors {
    if versions.is_empty() {
        return vec![versions.required("must specify one of v1, v1beta1")];
    }
    webhook_client::review_versions(versions)
}

pub(super) fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.list("webhooks").len().into(), view.age()])
}
