//! The rules for a ClusterServiceVersion.

use super::finding::Findings;
use crate::bundle::Api;
use crate::manifests::{definition_api, provided_api_services};
use flyball_core::names::{dns_subdomain, label_value};
use semver::Version;
use serde_json::Value;
use std::collections::BTreeSet;

/// Annotations whose case matters.
const CASED: [&str; 5] =
    ["olm.operatorGroup", "olm.operatorNamespace", "olm.targetNamespaces", "olm.providedAPIs", "olm.skipRange"];
/// Fields that people read.
const DESCRIBED: [(&str, &str); 6] = [
    ("description", "describe what the operator does, in Markdown"),
    ("keywords", "list words that people search for"),
    ("maintainers", "list names and e-mail addresses"),
    ("links", "list the source repository and the documentation"),
    ("maturity", "write a word such as alpha, beta or stable"),
    ("icon", "add a picture: `flyball bundle create --icon FILE`"),
];

pub(super) fn check(csv: &Value, findings: &mut Findings) {
    let spec = &csv["spec"];
    let name = csv["metadata"]["name"].as_str().unwrap_or_default();
    for (field, name) in [("metadata.name", name), ("spec.replaces", spec["replaces"].as_str().unwrap_or_default())] {
        if field == "spec.replaces" && name.is_empty() {
            continue;
        }
        // The name is the value of labels as well.
        for why in dns_subdomain(name).into_iter().chain(label_value(name)) {
            findings.error(field, format!("{name:?} is invalid: {why}"), "write a name such as etcdoperator.v0.9.4");
        }
    }
    if spec["displayName"].as_str().is_none_or(str::is_empty) {
        findings.error("spec.displayName", "it is missing", "write a display name");
    }
    for (field, remedy) in DESCRIBED {
        let is_empty = match &spec[field] {
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => true,
        };
        if is_empty {
            findings.warn(format!("spec.{field}"), "it is missing", remedy);
        }
    }
    check_install(spec, findings);
    check_install_modes(spec, findings);
    check_min_kube_version(spec, findings);
    check_annotations(csv, findings);
    check_examples(csv, findings);
}

fn check_install(spec: &Value, findings: &mut Findings) {
    const FIELD: &str = "spec.install";
    match spec["install"]["strategy"].as_str() {
        Some("deployment") => {}
        Some(other) => {
            findings.error(format!("{FIELD}.strategy"), format!("{other:?} is not supported"), "write deployment");
        }
        None => findings.error(format!("{FIELD}.strategy"), "it is missing", "write deployment"),
    }
    let deployments = spec["install"]["spec"]["deployments"].as_array();
    if deployments.is_none_or(Vec::is_empty) {
        findings.error(format!("{FIELD}.spec.deployments"), "there are none", "add the Deployment of the operator");
    }
}

fn check_install_modes(spec: &Value, findings: &mut Findings) {
    const FIELD: &str = "spec.installModes";
    let modes = spec["installModes"].as_array().map_or(&[][..], Vec::as_slice);
    if modes.is_empty() {
        return findings.error(FIELD, "there are none", "list the four modes, each with `supported`");
    }
    let kind = |mode: &Value| mode["type"].as_str().unwrap_or_default().to_owned();
    let mut seen = BTreeSet::new();
    for mode in modes {
        if !seen.insert(kind(mode)) {
            findings.error(FIELD, format!("{} is listed twice", kind(mode)), "remove one of them");
        }
        if !["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"].contains(&kind(mode).as_str()) {
            let remedy = "write OwnNamespace, SingleNamespace, MultiNamespace or AllNamespaces";
            findings.error(FIELD, format!("{:?} is unknown", kind(mode)), remedy);
        }
    }
    let is_supported = |mode: &&Value| mode["supported"] == true;
    if !modes.iter().any(|mode| is_supported(&mode)) {
        findings.error(FIELD, "none is supported", "set `supported: true` for at least one");
    }
    let webhooks = spec["webhookdefinitions"].as_array().map_or(&[][..], Vec::as_slice);
    let converts =
        webhooks.iter().any(|webhook| webhook["conversionCRDs"].as_array().is_some_and(|all| !all.is_empty()));
    let only_all = modes.iter().filter(is_supported).all(|mode| kind(mode) == "AllNamespaces");
    if converts && !only_all {
        let why = "a conversion webhook serves the whole cluster, but other modes than AllNamespaces are supported";
        findings.error(FIELD, why, "support AllNamespaces only, or remove conversionCRDs");
    }
}

fn check_min_kube_version(spec: &Value, findings: &mut Findings) {
    const FIELD: &str = "spec.minKubeVersion";
    match spec["minKubeVersion"].as_str().map(str::trim) {
        None | Some("") => {
            findings.warn(
                FIELD,
                "it is missing, so that any version of Kubernetes is accepted",
                "write such as 1.28.0",
            );
        }
        Some(version) => {
            if let Err(error) = Version::parse(version) {
                let why = format!("{version:?} is not a version: {error}");
                findings.error(FIELD, why, "write a version such as 1.28.0");
            }
        }
    }
}

fn check_annotations(csv: &Value, findings: &mut Findings) {
    for name in csv["metadata"]["annotations"].as_object().into_iter().flatten().map(|(name, _)| name) {
        let field = format!("metadata.annotations[{name}]");
        if let Some(known) = CASED.iter().find(|known| known.eq_ignore_ascii_case(name) && *known != name) {
            findings.error(&field, "the case is wrong", format!("write {known}"));
        }
        if name == "olm.properties" {
            findings.warn(&field, "properties in annotations are deprecated", "write them to metadata/properties.yaml");
        }
    }
}

/// Returns the APIs that a CSV claims to own.
fn owned(csv: &Value, findings: &mut Findings) -> BTreeSet<Api> {
    let mut apis = provided_api_services(csv);
    let owned = csv["spec"]["customresourcedefinitions"]["owned"].as_array().into_iter().flatten();
    for (index, definition) in owned.enumerate() {
        match definition_api(definition) {
            Some(api) => drop(apis.insert(api)),
            None => {
                let field = format!("spec.customresourcedefinitions.owned[{index}].name");
                findings.error(field, format!("{} is not the name of a CRD", definition["name"]), "write PLURAL.GROUP");
            }
        }
    }
    apis
}

fn check_examples(csv: &Value, findings: &mut Findings) {
    const FIELD: &str = "metadata.annotations[alm-examples]";
    let annotations = &csv["metadata"]["annotations"];
    let owned = owned(csv, findings);
    let written = annotations["alm-examples"].as_str().or_else(|| annotations["olm.examples"].as_str());
    let Some(written) = written else {
        if !owned.is_empty() {
            findings.warn(
                FIELD,
                "it is missing",
                "add a sample of each kind: `flyball bundle create` takes config/samples",
            );
        }
        return;
    };
    let examples: Vec<Value> = match serde_json::from_str(if written.is_empty() { "[]" } else { written }) {
        Ok(examples) => examples,
        Err(error) => {
            let why = format!("it is not a JSON list: {error}");
            return findings.error(FIELD, why, "write a list of objects");
        }
    };
    let api = |example: &Value| {
        let (group, version) = example["apiVersion"].as_str()?.split_once('/')?;
        let kind = example["kind"].as_str()?.to_owned();
        Some(Api { group: group.to_owned(), version: version.to_owned(), kind })
    };
    let examples: BTreeSet<Api> = examples.iter().filter_map(api).collect();
    for example in examples.difference(&owned) {
        findings.error(FIELD, format!("{example} is not owned by the CSV"), "remove the example, or own the CRD");
    }
    for missing in owned.difference(&examples) {
        findings.warn(FIELD, format!("there is no example of {missing}"), "add one");
    }
}
