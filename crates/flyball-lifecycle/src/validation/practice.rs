//! Good practices: warnings.

use super::finding::Findings;
use crate::manifests::BundleFolder;
use semver::Version;
use serde_json::Value;

pub(super) fn check(folder: &BundleFolder, findings: &mut Findings) {
    let csv = folder.manifests.csv();
    check_resources(csv, findings);
    check_channels(folder, findings);
    check_descriptions(csv, findings);
    check_rules(csv, findings);
    check_name(csv, findings);
}

fn check_resources(csv: &Value, findings: &mut Findings) {
    let deployments = csv.pointer("/spec/install/spec/deployments").and_then(Value::as_array);
    for deployment in deployments.into_iter().flatten() {
        for container in deployment["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten() {
            let requests = &container["resources"]["requests"];
            if requests["cpu"].is_null() || requests["memory"].is_null() {
                let field = format!("container {} of deployment {}", container["name"], deployment["name"]);
                findings.warn(field, "it requests no CPU or no memory", "set resources.requests");
            }
        }
    }
}

fn check_channels(folder: &BundleFolder, findings: &mut Findings) {
    let channels = folder.annotations.channels.iter().chain(&folder.annotations.default_channel);
    let is_usual = |channel: &&String| ["candidate", "fast", "stable"].iter().any(|usual| channel.starts_with(usual));
    for channel in channels.filter(|channel| !is_usual(channel)) {
        let why = format!("the channel {channel:?} has no usual name");
        findings.warn("metadata/annotations.yaml", why, "name channels candidate, fast or stable, with a version");
    }
}

fn check_descriptions(csv: &Value, findings: &mut Findings) {
    for list in ["owned", "required"] {
        let definitions = csv["spec"]["customresourcedefinitions"][list].as_array();
        for (index, definition) in definitions.into_iter().flatten().enumerate() {
            if definition["description"].as_str().is_none_or(|text| text.trim().is_empty()) {
                let field = format!("spec.customresourcedefinitions.{list}[{index}].description");
                findings.warn(field, "it is missing", "describe the purpose of the kind");
            }
        }
    }
}

/// Returns true if a rule allows one of the verbs for one of the resources of a group.
fn allows(rule: &Value, group: &str, resource: &str, verbs: &[&str]) -> bool {
    let has = |field: &str, wanted: &[&str]| {
        let listed = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        listed.into_iter().any(|listed| wanted.contains(&listed))
    };
    has("apiGroups", &[group]) && has("resources", &[resource, "*"]) && has("verbs", verbs)
}

fn check_rules(csv: &Value, findings: &mut Findings) {
    for list in ["permissions", "clusterPermissions"] {
        let field = format!("spec.install.spec.{list}");
        let permissions = csv["spec"]["install"]["spec"][list].as_array().into_iter().flatten();
        for rule in permissions.flat_map(|permission| permission["rules"].as_array().into_iter().flatten()) {
            if allows(rule, "apiextensions.k8s.io", "customresourcedefinitions", &["create", "patch", "*"]) {
                let why = "the operator may create CRDs, which the lifecycle manager installs";
                findings.warn(&field, why, "add the CRDs to the bundle, or require the operator that owns them");
            }
            if allows(rule, "policy", "poddisruptionbudgets", &["create", "update", "patch", "*"]) {
                let why = "the operator may write PodDisruptionBudgets, which can prevent that nodes are drained";
                findings.warn(&field, why, "check that its budgets allow disruptions");
            }
            let names = rule["resourceNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let is_default = |name: &str| {
                [
                    "anyuid",
                    "hostaccess",
                    "hostmount-anyuid",
                    "hostnetwork",
                    "node-exporter",
                    "nonroot",
                    "privileged",
                    "restricted",
                ]
                .contains(&name)
            };
            if allows(rule, "security.openshift.io", "securitycontextconstraints", &["delete", "update", "patch", "*"])
                && names.into_iter().any(is_default)
            {
                let why = "the operator may change default SecurityContextConstraints";
                findings.error(&field, why, "remove the rule, or use constraints of its own");
            }
        }
    }
}

fn check_name(csv: &Value, findings: &mut Findings) {
    let name = csv["metadata"]["name"].as_str().unwrap_or_default();
    let version = name.split_once(".v").map(|(_, version)| version);
    if version.is_none_or(|version| Version::parse(version).is_err()) {
        findings.warn("metadata.name", format!("{name:?} has no usual form"), "write NAME.vVERSION");
    }
}
