//! Configurations of the webhooks of an operator.

use super::certificate::ServingCertificate;
use super::hash::content_hash;
use super::modes::InstallModes;
use super::owner::{add_labels, labels_of};
use super::service::service_name;
use crate::api::{ClusterServiceVersion, OperatorGroup, WebhookDescription, WebhookType, labels};
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of the hash that ends the name of a configuration.
const SUFFIX: usize = 5;
/// Characters before it, as in names that the API server generates.
const MAX_PREFIX: usize = 58;

/// A description of a webhook that must not be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidWebhook {
    #[error("CSV contains repeated WebhookDescription name")]
    RepeatedName,
    #[error("webhook rules cannot include all groups")]
    AllGroups,
    #[error("webhook rules cannot include the OLM group")]
    LifecycleGroup,
    #[error("webhook rules cannot include MutatingWebhookConfiguration or ValidatingWebhookConfiguration resources")]
    Webhooks,
    #[error("unable to manage conversion webhook: CSVs with conversion webhooks must support only AllNamespaces")]
    NotSingleton,
    #[error("unable to manager conversion webhook: conversion webhook must have at least one CRD specified")]
    NoCrd,
    #[error("csv {csv} does not own CRD {crd}")]
    ForeignCrd { csv: String, crd: String },
}

/// Checks the names and rules of webhooks: none may review the objects of the lifecycle manager, or webhooks, because
/// it could make its own removal impossible.
pub(crate) fn check(csv: &ClusterServiceVersion) -> Result<(), InvalidWebhook> {
    let mut names = BTreeSet::new();
    for webhook in &csv.spec.webhook_definitions {
        if !names.insert(&webhook.generate_name) {
            return Err(InvalidWebhook::RepeatedName);
        }
        for rule in &webhook.rules {
            let has = |field: &str, names: &[&str]| {
                let values = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
                values.into_iter().any(|value| names.iter().any(|name| name.eq_ignore_ascii_case(value)))
            };
            if has("apiGroups", &["*"]) {
                return Err(InvalidWebhook::AllGroups);
            }
            if has("apiGroups", &[crate::api::GROUP]) {
                return Err(InvalidWebhook::LifecycleGroup);
            }
            // OLM compares the names of the kinds; rules have those of resources.
            let kinds = ["*", "*/*", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
            let resources = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
            if has("apiGroups", &["admissionregistration.k8s.io"])
                && (has("resources", &kinds) || has("resources", &resources))
            {
                return Err(InvalidWebhook::Webhooks);
            }
        }
    }
    Ok(())
}

/// Returns the configurations of the admission webhooks of a ClusterServiceVersion, limited to the target namespaces
/// of its OperatorGroup.
///
/// A webhook without a certificate is omitted.
pub(crate) fn webhook_configurations(
    csv: &ClusterServiceVersion,
    group: &OperatorGroup,
    certificate: impl Fn(&str) -> Option<ServingCertificate>,
) -> Vec<Value> {
    let configuration = |webhook: &WebhookDescription| {
        let kind = match webhook.webhook_type {
            WebhookType::Validating => "ValidatingWebhookConfiguration",
            WebhookType::Mutating => "MutatingWebhookConfiguration",
            WebhookType::Conversion => return None,
        };
        let bundle = certificate(&webhook.deployment_name)?.authority_bundle();
        Some(self::configuration(csv, group, webhook, kind, &bundle))
    };
    csv.spec.webhook_definitions.iter().filter_map(configuration).collect()
}

fn configuration(
    csv: &ClusterServiceVersion,
    group: &OperatorGroup,
    webhook: &WebhookDescription,
    kind: &str,
    bundle: &str,
) -> Value {
    let prefix: String = format!("{}-", webhook.generate_name).chars().take(MAX_PREFIX).collect();
    // The name is the same in each attempt, so that a repeated request does not create a second configuration.
    let suffix = content_hash(&json!([csv.namespace(), csv.name_any(), webhook.generate_name])).to_lowercase();
    let mut hook: Map<String, Value> = webhook.rest.clone();
    if kind != "MutatingWebhookConfiguration" {
        hook.remove("reinvocationPolicy");
    }
    hook.extend([
        ("name".to_owned(), json!(webhook.generate_name)),
        ("rules".to_owned(), json!(webhook.rules)),
        ("admissionReviewVersions".to_owned(), json!(webhook.admission_review_versions)),
        ("namespaceSelector".to_owned(), namespace_selector(group)),
        ("clientConfig".to_owned(), json!({"caBundle": bundle, "service": service(csv, webhook, None)})),
    ]);
    let mut configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": format!("{prefix}{}", &suffix[suffix.len() - SUFFIX..]),
            "generateName": prefix,
            "labels": {
                labels::MANAGED: "true",
                labels::WEBHOOK_GENERATE_NAME: webhook.generate_name,
                labels::WEBHOOK_HASH: content_hash(webhook),
            },
        },
        "webhooks": [hook],
    });
    add_labels(&mut configuration, labels_of(csv));
    configuration
}

/// Returns the selector of the target namespaces of a group; all namespaces if it is empty.
fn namespace_selector(group: &OperatorGroup) -> Value {
    match &group.spec.selector {
        _ if !group.spec.target_namespaces.is_empty() => {
            let label = format!("{}{}", labels::OPERATOR_GROUP_UID_PREFIX, group.uid().unwrap_or_default());
            json!({"matchLabels": {label: ""}})
        }
        Some(selector) => json!(selector),
        None => json!({}),
    }
}

fn service(csv: &ClusterServiceVersion, webhook: &WebhookDescription, default_path: Option<&str>) -> Value {
    let port = if webhook.container_port > 0 { webhook.container_port } else { 443 };
    let mut service =
        json!({"name": service_name(&webhook.deployment_name), "namespace": csv.namespace(), "port": port});
    if let Some(path) = webhook.webhook_path.as_deref().or(default_path) {
        service["path"] = path.into();
    }
    service
}

/// Returns the CRDs that webhooks of a ClusterServiceVersion convert, each with its webhook.
///
/// # Errors
///
/// When the operator may be installed more than once, or does not own the CRD: conversion applies to the objects of
/// all namespaces.
fn converters(csv: &ClusterServiceVersion) -> Result<Vec<(&str, &WebhookDescription)>, InvalidWebhook> {
    let mut converters = Vec::new();
    let webhooks = csv.spec.webhook_definitions.iter();
    for webhook in webhooks.filter(|webhook| webhook.webhook_type == WebhookType::Conversion) {
        if !InstallModes::new(&csv.spec.install_modes).is_ok_and(|modes| modes.is_singleton()) {
            return Err(InvalidWebhook::NotSingleton);
        }
        if webhook.conversion_crds.is_empty() {
            return Err(InvalidWebhook::NoCrd);
        }
        for crd in &webhook.conversion_crds {
            if csv.spec.crds.owned.iter().all(|owned| owned.name != *crd) {
                return Err(InvalidWebhook::ForeignCrd { csv: csv.name_any(), crd: crd.clone() });
            }
            converters.push((crd.as_str(), webhook));
        }
    }
    Ok(converters)
}

/// Returns the CRDs that webhooks of a ClusterServiceVersion convert after its installation.
///
/// # Errors
///
/// When a webhook is invalid, so that none of them is installed.
pub(crate) fn converted_crds(csv: &ClusterServiceVersion) -> Result<BTreeSet<&str>, InvalidWebhook> {
    check(csv)?;
    Ok(converters(csv)?.into_iter().map(|(crd, _)| crd).collect())
}

/// Returns the `spec.conversion` of each CRD that a webhook of the ClusterServiceVersion converts. If several convert
/// the same CRD, it is the last one, as in OLM: each of them would be replaced by the others endlessly.
///
/// # Errors
///
/// When the operator may be installed more than once, or does not own the CRD: conversion applies to the objects of
/// all namespaces.
pub(crate) fn conversions(
    csv: &ClusterServiceVersion,
    certificate: impl Fn(&str) -> Option<ServingCertificate>,
) -> Result<Vec<(String, Value)>, InvalidWebhook> {
    let mut conversions = BTreeMap::new();
    for (crd, webhook) in converters(csv)? {
        let Some(certificate) = certificate(&webhook.deployment_name) else { continue };
        let client = json!({"service": service(csv, webhook, Some("/")), "caBundle": certificate.authority_bundle()});
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": webhook.admission_review_versions});
        conversions.insert(crd.to_owned(), json!({"strategy": "Webhook", "webhook": webhook}));
    }
    Ok(conversions.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(webhook: Value) -> ClusterServiceVersion {
        serde_json::from_value(json!({
            "metadata": {"name": "hooked.v1", "namespace": "demo", "uid": "u"},
            "spec": {"webhookdefinitions": [webhook], "customresourcedefinitions": {"owned": [{"name": "hooks.demo"}]}},
        }))
        .unwrap()
    }

    fn issued() -> Option<ServingCertificate> {
        Some(ServingCertificate::issue("hooked", "demo", "2026-01-01T00:00:00Z".parse().unwrap()).unwrap())
    }

    #[test]
    fn webhooks_must_not_review_the_lifecycle_manager() {
        let check = |groups: &[&str], resources: &[&str], expected: Result<(), InvalidWebhook>| {
            let csv = csv(json!({"generateName": "v", "rules": [{"apiGroups": groups, "resources": resources}]}));
            assert_eq!(super::check(&csv), expected, "{groups:?} {resources:?}");
        };
        check(&["demo"], &["*"], Ok(()));
        check(&["*"], &["pods"], Err(InvalidWebhook::AllGroups));
        check(&["operators.coreos.com"], &["subscriptions"], Err(InvalidWebhook::LifecycleGroup));
        check(&["admissionregistration.k8s.io"], &["*"], Err(InvalidWebhook::Webhooks));
        check(&["admissionregistration.k8s.io"], &["validatingwebhookconfigurations"], Err(InvalidWebhook::Webhooks));
    }

    #[test]
    fn configuration_is_limited_to_the_targets_of_the_group() {
        let group: OperatorGroup = serde_json::from_value(json!({
            "metadata": {"name": "g", "namespace": "demo", "uid": "g1"}, "spec": {"targetNamespaces": ["demo"]},
        }))
        .unwrap();
        let csv = csv(json!({
            "generateName": "vhook.demo", "type": "ValidatingAdmissionWebhook", "deploymentName": "hooked",
            "containerPort": 443, "webhookPath": "/validate", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }));
        let [configuration] = &webhook_configurations(&csv, &group, |_| issued())[..] else { panic!() };
        let hook = &configuration["webhooks"][0];
        assert_eq!(hook["namespaceSelector"], json!({"matchLabels": {"olm.operatorgroup.uid/g1": ""}}));
        assert_eq!(hook["sideEffects"], "None");
        assert_eq!(hook["clientConfig"]["service"]["path"], "/validate");
        assert!(configuration["metadata"]["name"].as_str().unwrap().starts_with("vhook.demo-"));
        assert!(webhook_configurations(&csv, &group, |_| None).is_empty());
    }

    #[test]
    fn last_webhook_converts_a_crd_of_several() {
        let webhook = |path: &str| {
            json!({
                "generateName": "c", "type": "ConversionWebhook", "deploymentName": "hooked", "webhookPath": path,
                "conversionCRDs": ["hooks.demo"],
            })
        };
        let mut both = csv(webhook("/one"));
        both.spec.webhook_definitions.push(serde_json::from_value(webhook("/two")).unwrap());
        let found = conversions(&both, |_| issued()).unwrap();
        let paths: Vec<&Value> =
            found.iter().map(|(_, conversion)| &conversion["webhook"]["clientConfig"]["service"]["path"]).collect();
        assert_eq!(paths, ["/two"]);
    }

    #[test]
    fn conversion_requires_a_single_installation_and_an_owned_crd() {
        let webhook = |crds: &[&str]| json!({"generateName": "c", "type": "ConversionWebhook", "deploymentName": "hooked", "conversionCRDs": crds});
        let [(crd, conversion)] = &conversions(&csv(webhook(&["hooks.demo"])), |_| issued()).unwrap()[..] else {
            panic!()
        };
        assert_eq!((crd.as_str(), &conversion["strategy"]), ("hooks.demo", &json!("Webhook")));
        assert_eq!(conversions(&csv(webhook(&[])), |_| issued()), Err(InvalidWebhook::NoCrd));
        let foreign = conversions(&csv(webhook(&["other.demo"])), |_| issued()).unwrap_err();
        assert_eq!(foreign.to_string(), "csv hooked.v1 does not own CRD other.demo");
        let mut own = csv(webhook(&["hooks.demo"]));
        own.spec.install_modes =
            vec![crate::api::InstallMode { mode: crate::api::InstallModeType::OwnNamespace, supported: true }];
        assert_eq!(conversions(&own, |_| issued()), Err(InvalidWebhook::NotSingleton));
    }
}
