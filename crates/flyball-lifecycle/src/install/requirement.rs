//! Requirements of a ClusterServiceVersion, and whether they are met.

use super::Definition;
use super::api_service::is_available;
use crate::api::{
    ClusterServiceVersion, CrdDescription, DependentStatus, Permission, RequirementState, RequirementStatus,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Annotation of a CRD that names a ClusterServiceVersion whose InstallPlan applied it.
const INSTALLED_ALONGSIDE: &str = "operatorframework.io/installed-alongside-";

/// Objects that requirements are compared with.
#[derive(Debug, Default)]
pub(crate) struct ClusterObjects {
    /// Version of Kubernetes, if the ClusterServiceVersion requires one; an error message if it is unknown.
    pub(crate) server_version: Option<String>,
    /// The CRDs that exist, by name.
    pub(crate) definitions: BTreeMap<String, Definition>,
    /// The APIServices that exist, by name.
    pub(crate) api_services: BTreeMap<String, APIService>,
    /// Kinds that the API server serves, as (group, version, kind).
    pub(crate) served: BTreeSet<(String, String, String)>,
    /// Names of service accounts that exist.
    pub(crate) accounts: BTreeSet<String>,
    /// Names of service accounts that another operator of the namespace uses.
    pub(crate) foreign_accounts: BTreeSet<String>,
    /// Names of Roles in the namespace that exist with their bindings.
    pub(crate) roles: BTreeSet<String>,
    /// Names of ClusterRoles that exist with their bindings.
    pub(crate) cluster_roles: BTreeSet<String>,
    /// Names of the ClusterServiceVersions of the namespace that this one replaces, directly or not.
    pub(crate) replaced: BTreeSet<String>,
}

/// Returns the requirements of a ClusterServiceVersion with their states, and true if all are met.
///
/// `roles` maps each permission to the name of its Role or ClusterRole. The statuses and messages are those of OLM.
pub(crate) fn requirements(
    csv: &ClusterServiceVersion,
    observed: &ClusterObjects,
    roles: &[(bool, String)],
) -> (bool, Vec<RequirementStatus>) {
    let mut statuses = Vec::new();
    statuses.extend(kube_version(csv, observed));
    statuses.extend(definitions(csv, observed));
    statuses.extend(api_services(csv, observed));
    statuses.extend(native_apis(csv, observed));
    let mut met = statuses.iter().all(|(met, _)| *met);
    let mut statuses: Vec<RequirementStatus> = statuses.into_iter().map(|(_, status)| status).collect();
    for (is_met, status) in accounts(csv, observed, roles) {
        met &= is_met;
        statuses.extend(status);
    }
    (met, statuses)
}

fn status(group: &str, version: &str, kind: &str, name: &str) -> RequirementStatus {
    RequirementStatus {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        name: name.into(),
        ..RequirementStatus::default()
    }
}

fn kube_version(csv: &ClusterServiceVersion, observed: &ClusterObjects) -> Option<(bool, RequirementStatus)> {
    let minimum = csv.spec.min_kube_version.as_str();
    if minimum.is_empty() {
        return None;
    }
    let mut status = status(crate::api::GROUP, "v1alpha1", super::owner::KIND, &csv.name_any());
    // Suffixes of distributions are not pre-releases.
    let parse = |text: &str| {
        let text = text.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default();
        semver::Version::parse(text).ok()
    };
    let server = observed.server_version.as_deref();
    let (met, message) = match (server, server.and_then(parse), parse(minimum)) {
        (None, ..) => (false, "Server version discovery error".into()),
        (_, None, _) => (false, "Server version parsing error".into()),
        (_, _, None) => (false, "CSV version parsing error".into()),
        (_, Some(server), Some(required)) if required > server => {
            (false, format!("CSV version requirement not met: minKubeVersion ({minimum}) > server version ({server})"))
        }
        (Some(server), ..) => (true, format!("CSV minKubeVersion ({minimum}) less than server version ({server})")),
    };
    status.status = if met { RequirementState::Present } else { RequirementState::PresentNotSatisfied };
    status.message = message;
    Some((met, status))
}

fn definitions(csv: &ClusterServiceVersion, observed: &ClusterObjects) -> Vec<(bool, RequirementStatus)> {
    // An owned version of a CRD takes precedence over a required one, as in OLM.
    let mut descriptions: BTreeMap<&str, (&CrdDescription, bool)> = BTreeMap::new();
    descriptions.extend(csv.spec.crds.required.iter().map(|crd| (crd.name.as_str(), (crd, false))));
    descriptions.extend(csv.spec.crds.owned.iter().map(|crd| (crd.name.as_str(), (crd, true))));
    let check = |(name, (description, owned)): (&str, (&CrdDescription, bool))| {
        let mut status = status("apiextensions.k8s.io", "v1", "CustomResourceDefinition", name);
        let (state, message) = match observed.definitions.get(name) {
            None => (RequirementState::NotPresent, "CRD is not present".into()),
            Some(definition) => {
                let others = installed_alongside(csv, definition, &observed.replaced);
                if owned && !others.is_empty() {
                    let others = others.join(", ");
                    (RequirementState::PresentNotSatisfied, format!("CRD installed alongside other CSV(s): {others}"))
                } else if !definition.serves(&description.version) {
                    (RequirementState::NotPresent, "CRD version not served".into())
                } else if definition.is_established() {
                    status.uuid = definition.uid().unwrap_or_default();
                    (RequirementState::Present, "CRD is present and Established condition is true".into())
                } else {
                    let message = "CRD is present but the Established condition is False (not available)";
                    (RequirementState::NotAvailable, message.into())
                }
            }
        };
        (status.status, status.message) = (state, message);
        (state == RequirementState::Present, status)
    };
    descriptions.into_iter().map(check).collect()
}

/// Returns the replaced ClusterServiceVersions that a CRD was applied for, if it was not yet applied for this one: then
/// its InstallPlan still has to update it.
fn installed_alongside(
    csv: &ClusterServiceVersion,
    definition: &Definition,
    replaced: &BTreeSet<String>,
) -> Vec<String> {
    let namespace = csv.namespace().unwrap_or_default();
    let annotations = definition.annotations().iter();
    let names: BTreeSet<&str> = annotations
        .filter(|(name, _)| name.starts_with(INSTALLED_ALONGSIDE))
        .filter_map(|(_, value)| value.split_once('/').filter(|(at, _)| *at == namespace).map(|(_, name)| name))
        .collect();
    if names.contains(csv.name_any().as_str()) {
        return Vec::new();
    }
    names.into_iter().filter(|name| replaced.contains(*name)).map(str::to_owned).collect()
}

fn api_services(csv: &ClusterServiceVersion, observed: &ClusterObjects) -> Vec<(bool, RequirementStatus)> {
    let services = &csv.spec.api_services;
    let owned: BTreeMap<String, _> = services.owned.iter().map(|api| (api.api_service_name(), api)).collect();
    let required: BTreeMap<String, _> = services
        .required
        .iter()
        .map(|api| (api.api_service_name(), api))
        .filter(|(name, _)| !owned.contains_key(name))
        .collect();
    let mut statuses = Vec::new();
    for (name, api) in required {
        let mut status = status("apiregistration.k8s.io", "v1", "APIService", &name);
        let key = (api.group.clone(), api.version.clone(), api.kind.clone());
        let service = observed.api_services.get(&name).filter(|service| is_available(service));
        let service = service.filter(|_| observed.served.contains(&key));
        if let Some(service) = service {
            status.status = RequirementState::Present;
            status.uuid = service.uid().unwrap_or_default();
        }
        statuses.push((service.is_some(), status));
    }
    for (name, api) in owned {
        let mut status = status("apiregistration.k8s.io", "v1", "APIService", &name);
        let found = csv.spec.details().deployments.iter().any(|deployment| deployment.name == api.deployment_name);
        status.status = if found { RequirementState::DeploymentFound } else { RequirementState::DeploymentNotFound };
        statuses.push((found, status));
    }
    statuses
}

fn native_apis(csv: &ClusterServiceVersion, observed: &ClusterObjects) -> Vec<(bool, RequirementStatus)> {
    let check = |api: &crate::api::NativeApi| {
        let mut status = status(&api.group, &api.version, &api.kind, &format!("{}.{}", api.version, api.group));
        let exists = observed.served.contains(&(api.group.clone(), api.version.clone(), api.kind.clone()));
        (status.status, status.message) = match exists {
            true => (RequirementState::Present, "Native API exists".into()),
            false => (RequirementState::NotPresent, "Native API does not exist".into()),
        };
        (exists, status)
    };
    csv.spec.native_apis.iter().map(check).collect()
}

/// Checks the service accounts and their rules.
///
/// Rules of a Role that exists are not listed, as in OLM. An account without anything to report is omitted.
fn accounts(
    csv: &ClusterServiceVersion,
    observed: &ClusterObjects,
    roles: &[(bool, String)],
) -> Vec<(bool, Option<RequirementStatus>)> {
    let details = csv.spec.details();
    let permissions = details.permissions.iter().chain(&details.cluster_permissions);
    let mut found: BTreeMap<&str, (bool, RequirementStatus)> = BTreeMap::new();
    for (permission, (cluster, role)) in permissions.zip(roles) {
        let name = permission.service_account_name.as_str();
        let (met, status) = found.entry(name).or_insert_with(|| {
            (true, RequirementStatus { status: RequirementState::Present, ..status("", "v1", "ServiceAccount", name) })
        });
        let problem = if !observed.accounts.contains(name) {
            Some((RequirementState::NotPresent, "Service account does not exist"))
        } else if observed.foreign_accounts.contains(name) {
            Some((RequirementState::PresentNotSatisfied, "Service account is owned by another ClusterServiceVersion"))
        } else {
            None
        };
        if let Some((state, message)) = problem {
            (*met, status.status, status.message) = (false, state, message.into());
            continue;
        }
        let exists = match cluster {
            true => observed.cluster_roles.contains(role),
            false => observed.roles.contains(role),
        };
        if exists && !cluster {
            continue;
        }
        status.dependents.extend(rules(permission, *cluster, exists));
        if !exists {
            (*met, status.status) = (false, RequirementState::PresentNotSatisfied);
            status.message = "Policy rule not satisfied for service account".into();
        }
    }
    let silent = |status: &RequirementStatus| {
        status.status == RequirementState::Present && status.dependents.is_empty() && status.message.is_empty()
    };
    found.into_values().map(|(met, status)| (met, (!silent(&status)).then_some(status))).collect()
}

fn rules(permission: &Permission, cluster: bool, exists: bool) -> impl Iterator<Item = DependentStatus> {
    let scope = if cluster { "cluster" } else { "namespaced" };
    let state = if exists { RequirementState::Satisfied } else { RequirementState::NotSatisfied };
    permission.rules.iter().map(move |rule| DependentStatus {
        group: "rbac.authorization.k8s.io".into(),
        version: "v1".into(),
        kind: "PolicyRule".into(),
        status: state,
        message: format!("{scope} rule:{}", rule_text(rule)),
        ..DependentStatus::default()
    })
}

/// Returns a rule as JSON with the fields in Go's order.
fn rule_text(rule: &PolicyRule) -> String {
    let fields: [(&str, Option<&Vec<String>>); 5] = [
        ("verbs", Some(&rule.verbs)),
        ("apiGroups", rule.api_groups.as_ref()),
        ("resources", rule.resources.as_ref()),
        ("resourceNames", rule.resource_names.as_ref()),
        ("nonResourceURLs", rule.non_resource_urls.as_ref()),
    ];
    let is_set =
        |(name, values): &(&str, Option<&Vec<String>>)| *name == "verbs" || values.is_some_and(|v| !v.is_empty());
    let text = |(name, values): (&str, Option<&Vec<String>>)| format!("\"{name}\":{}", json!(values));
    let fields: Vec<String> = fields.into_iter().filter(is_set).map(text).collect();
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn csv(spec: Value) -> ClusterServiceVersion {
        serde_json::from_value(json!({"metadata": {"name": "memo.v2", "namespace": "demo"}, "spec": spec})).unwrap()
    }

    fn definition(annotations: &Value, established: &str) -> Definition {
        serde_json::from_value(json!({
            "metadata": {"name": "memos.demo", "uid": "u", "annotations": annotations},
            "spec": {"versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}]},
            "status": {"conditions": [
                {"type": "Established", "status": established}, {"type": "NamesAccepted", "status": "True"},
            ]},
        }))
        .unwrap()
    }

    fn check(spec: Value, observed: &ClusterObjects, expected: &[&str]) {
        let (met, statuses) = requirements(&csv(spec), observed, &[(true, "role".into())]);
        let texts: Vec<String> =
            statuses.iter().map(|status| format!("{:?}: {}", status.status, status.message)).collect();
        assert_eq!(texts, expected);
        let is_met = |text: &&str| text.starts_with("Present:") || text.starts_with("DeploymentFound:");
        assert_eq!(met, expected.iter().all(is_met));
    }

    #[test]
    fn versions_of_kubernetes_are_compared_without_suffixes() {
        let at = |version: &str| ClusterObjects { server_version: Some(version.into()), ..ClusterObjects::default() };
        let spec = || json!({"minKubeVersion": "1.20.0"});
        check(
            spec(),
            &at("v1.36.0-gke.1"),
            &["Present: CSV minKubeVersion (1.20.0) less than server version (v1.36.0-gke.1)"],
        );
        check(
            spec(),
            &at("v1.19.3"),
            &[
                "PresentNotSatisfied: CSV version requirement not met: minKubeVersion (1.20.0) > server version (1.19.3)",
            ],
        );
        check(json!({"minKubeVersion": "x"}), &at("v1.19.3"), &["PresentNotSatisfied: CSV version parsing error"]);
        check(spec(), &ClusterObjects::default(), &["PresentNotSatisfied: Server version discovery error"]);
    }

    #[test]
    fn crds_must_be_served_and_established() {
        let with = |definition| ClusterObjects {
            definitions: [("memos.demo".to_owned(), definition)].into(),
            replaced: ["memo.v1".to_owned()].into(),
            ..ClusterObjects::default()
        };
        let owned = |version: &str| json!({"customresourcedefinitions": {"owned": [{"name": "memos.demo", "version": version}]}});
        let none = json!({});
        check(
            owned("v1"),
            &with(definition(&none, "True")),
            &["Present: CRD is present and Established condition is true"],
        );
        check(owned("v2"), &with(definition(&none, "True")), &["NotPresent: CRD version not served"]);
        check(
            owned("v1"),
            &with(definition(&none, "False")),
            &["NotAvailable: CRD is present but the Established condition is False (not available)"],
        );
        check(owned("v1"), &ClusterObjects::default(), &["NotPresent: CRD is not present"]);
        let old = json!({"operatorframework.io/installed-alongside-1": "demo/memo.v1"});
        check(
            owned("v1"),
            &with(definition(&old, "True")),
            &["PresentNotSatisfied: CRD installed alongside other CSV(s): memo.v1"],
        );
        let both = json!({
            "operatorframework.io/installed-alongside-1": "demo/memo.v1",
            "operatorframework.io/installed-alongside-2": "demo/memo.v2",
        });
        check(
            owned("v1"),
            &with(definition(&both, "True")),
            &["Present: CRD is present and Established condition is true"],
        );
    }

    #[test]
    fn rules_of_service_accounts_are_listed_if_they_are_missing_or_cluster_wide() {
        let permission = || json!([{"serviceAccountName": "memo", "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]}]);
        let spec = || json!({"install": {"spec": {"clusterPermissions": permission()}}});
        let account = || ClusterObjects { accounts: ["memo".to_owned()].into(), ..ClusterObjects::default() };
        check(spec(), &ClusterObjects::default(), &["NotPresent: Service account does not exist"]);
        check(spec(), &account(), &["PresentNotSatisfied: Policy rule not satisfied for service account"]);
        let granted = ClusterObjects { cluster_roles: ["role".to_owned()].into(), ..account() };
        check(spec(), &granted, &["Present: "]);
        let (_, statuses) = requirements(&csv(spec()), &granted, &[(true, "role".into())]);
        assert_eq!(
            statuses[0].dependents[0].message,
            r#"cluster rule:{"verbs":["get"],"apiGroups":[""],"resources":["nodes"]}"#
        );
        let own = json!({"install": {"spec": {"permissions": permission()}}});
        let granted = ClusterObjects { roles: ["role".to_owned()].into(), ..account() };
        assert_eq!(requirements(&csv(own), &granted, &[(false, "role".into())]), (true, Vec::new()));
    }

    #[test]
    fn apis_are_looked_up() {
        let apis = json!({"nativeAPIs": [{"group": "apps", "version": "v1", "kind": "Deployment"}]});
        let served = [("apps".to_owned(), "v1".to_owned(), "Deployment".to_owned())].into();
        check(apis.clone(), &ClusterObjects { served, ..ClusterObjects::default() }, &["Present: Native API exists"]);
        check(apis, &ClusterObjects::default(), &["NotPresent: Native API does not exist"]);
        let owned = json!({
            "apiservicedefinitions": {"owned": [{"group": "g", "version": "v1", "deploymentName": "d"}]},
            "install": {"spec": {"deployments": [{"name": "d"}]}},
        });
        check(owned, &ClusterObjects::default(), &["DeploymentFound: "]);
    }
}
