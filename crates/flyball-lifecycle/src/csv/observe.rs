//! Objects that the next phase of a ClusterServiceVersion depends on.

use super::index::{ByOwner, name_of};
use super::replacement::Siblings;
use crate::api::{ClusterServiceVersion, OperatorCondition, Subscription, SubscriptionConfig, WebhookType, labels};
use crate::install::{
    self, ClusterObjects, Definition, ServingCertificate, content_hash, is_available, owners, secret_name,
};
use flyball::{Context, ObjectKey, Result};
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Time for which the version of the API server is kept.
const VERSION_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// The context of a reconcile of a ClusterServiceVersion.
pub(super) type Cx = Context<ClusterServiceVersion>;

/// Returns the other ClusterServiceVersions of the namespace, without copies.
pub(super) async fn siblings(csv: &ClusterServiceVersion, cx: &Cx) -> Result<Siblings> {
    let name = csv.name_any();
    let is_sibling =
        |other: ClusterServiceVersion| (other.copied_from().is_none() && other.name_any() != name).then_some(other);
    Ok(Siblings(cx.filter_map::<ClusterServiceVersion, _>(csv.namespace().as_deref(), is_sibling).await?))
}

/// Returns the reason why an operator cannot be upgraded, from its OperatorCondition.
pub(super) async fn hold(replaced: &ClusterServiceVersion, cx: &Cx) -> Result<Option<String>> {
    let condition = cx.get::<OperatorCondition>(&cx.sibling(&replaced.name_any())).await?;
    Ok(condition.and_then(|condition| hold_of(&condition)))
}

fn hold_of(condition: &OperatorCondition) -> Option<String> {
    let upgradeable = |conditions: &[flyball::Condition]| {
        conditions.iter().find(|condition| condition.kind == "Upgradeable").cloned()
    };
    if let Some(forced) = upgradeable(&condition.spec.overrides) {
        return (forced.status != "True").then(|| format!("the operator is not upgradeable: {}", forced.message));
    }
    let reported = upgradeable(&condition.status.conditions)?;
    if reported.observed_generation != condition.metadata.generation {
        return Some(format!("the operatorcondition status {:?}={:?} is outdated", reported.kind, reported.status));
    }
    (reported.status == "False").then(|| format!("the operator is not upgradeable: {}", reported.message))
}

/// Returns the configuration of the Subscription that installed a ClusterServiceVersion. A status may be a claim of
/// somebody who may write it: a Subscription to another package does not count.
pub(super) async fn config(csv: &ClusterServiceVersion, cx: &Cx) -> Result<Option<SubscriptionConfig>> {
    let name = csv.name_any();
    let mut subscriptions = cx.list::<Subscription>(csv.namespace().as_deref()).await?;
    subscriptions.retain(|of| csv.may_be_of(&of.spec.package));
    let by = |select: fn(&Subscription) -> &str| subscriptions.iter().find(|found| select(found) == name);
    let found = by(|found| &found.status.installed_csv).or_else(|| by(|found| &found.status.current_csv));
    Ok(found.and_then(|subscription| subscription.spec.config.clone()))
}

/// Returns the serving certificates of Deployments by their names.
pub(super) async fn certificates(
    csv: &ClusterServiceVersion,
    cx: &Cx,
) -> Result<BTreeMap<String, Option<ServingCertificate>>> {
    let webhooks = csv.spec.webhook_definitions.iter().map(|webhook| &webhook.deployment_name);
    let apis = csv.spec.api_services.owned.iter().map(|api| &api.deployment_name);
    let mut found = BTreeMap::new();
    for deployment in webhooks.chain(apis).collect::<BTreeSet<_>>() {
        let secret = cx.get::<Secret>(&cx.sibling(&secret_name(deployment))).await?;
        found.insert(deployment.clone(), secret.as_ref().and_then(ServingCertificate::of));
    }
    Ok(found)
}

/// Returns the Deployments that belong to a ClusterServiceVersion or have the name of one of its Deployments.
pub(super) async fn deployments(csv: &ClusterServiceVersion, cx: &Cx) -> Result<BTreeMap<String, Deployment>> {
    let own = ObjectKey::new(csv.namespace().as_deref(), &csv.name_any());
    let names: BTreeSet<&str> = csv.spec.details().deployments.iter().map(|wanted| wanted.name.as_str()).collect();
    let select = |deployment: Deployment| {
        let is_own = owners(&deployment.metadata).contains(&own) || names.contains(deployment.name_any().as_str());
        is_own.then(|| (deployment.name_any(), deployment))
    };
    Ok(cx.filter_map(csv.namespace().as_deref(), select).await?.into_iter().collect())
}

/// Observes the objects that a ClusterServiceVersion requires. `permissions` are the desired objects of its rights.
pub(super) async fn requirements(
    csv: &ClusterServiceVersion,
    siblings: &Siblings,
    permissions: &[Value],
    version: &ServerVersion,
    cx: &Cx,
) -> Result<ClusterObjects> {
    let mut observed = ClusterObjects { replaced: siblings.ancestors_of(csv), ..ClusterObjects::default() };
    if !csv.spec.min_kube_version.is_empty() {
        observed.server_version = version.get(cx).await;
    }
    let crds = csv.spec.crds.owned.iter().chain(&csv.spec.crds.required);
    for name in crds.map(|crd| &crd.name).collect::<BTreeSet<_>>() {
        if let Some(definition) = cx.get::<Definition>(&ObjectKey::new(None, name)).await? {
            observed.definitions.insert(name.clone(), definition);
        }
    }
    observed.api_services = api_services(csv, cx).await?;
    observed.served = served(csv, cx).await;
    let (csv_accounts, foreign) = accounts(csv, siblings);
    for name in csv_accounts {
        if cx.get::<ServiceAccount>(&cx.sibling(&name)).await?.is_some() {
            observed.accounts.insert(name);
        }
    }
    observed.foreign_accounts = foreign;
    observe_roles(permissions, &mut observed, cx).await?;
    Ok(observed)
}

/// Finds the roles that exist as desired, with their bindings.
async fn observe_roles(permissions: &[Value], observed: &mut ClusterObjects, cx: &Cx) -> Result<()> {
    let hash = |labels: &BTreeMap<String, String>| labels.get(labels::PERMISSIONS_HASH).cloned();
    for pair in permissions.windows(2) {
        let [role, binding] = pair else { continue };
        let kind = role["kind"].as_str().unwrap_or_default();
        let wanted =
            |object: &Value| object["metadata"]["labels"][labels::PERMISSIONS_HASH].as_str().map(str::to_owned);
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let (own, cluster) = (cx.sibling(name), ObjectKey::new(None, name));
        let found = match kind {
            "Role" => [
                cx.get::<Role>(&own).await?.and_then(|role| hash(role.labels())),
                cx.get::<RoleBinding>(&own).await?.and_then(|binding| hash(binding.labels())),
            ],
            "ClusterRole" => [
                cx.get::<ClusterRole>(&cluster).await?.and_then(|role| hash(role.labels())),
                cx.get::<ClusterRoleBinding>(&cluster).await?.and_then(|binding| hash(binding.labels())),
            ],
            _ => continue,
        };
        if found == [wanted(role), wanted(binding)] {
            match kind {
                "Role" => observed.roles.insert(name.to_owned()),
                _ => observed.cluster_roles.insert(name.to_owned()),
            };
        }
    }
    Ok(())
}

/// Returns the service accounts of a ClusterServiceVersion, and those that another operator uses: only one of them may,
/// since an account has the rights of both.
fn accounts(csv: &ClusterServiceVersion, siblings: &Siblings) -> (BTreeSet<String>, BTreeSet<String>) {
    let names = |csv: &ClusterServiceVersion| -> BTreeSet<String> {
        let details = csv.spec.details();
        let permissions = details.permissions.iter().chain(&details.cluster_permissions);
        permissions.map(|permission| permission.service_account_name.clone()).collect()
    };
    let own = names(csv);
    let age = |csv: &ClusterServiceVersion| (csv.creation_timestamp().map(|time| time.0), csv.name_any());
    let older = siblings.unrelated_to(csv).into_iter().filter(|other| age(other) < age(csv));
    let foreign = older.flat_map(names).filter(|name| own.contains(name)).collect();
    (own, foreign)
}

/// Returns true if a service account of a ClusterServiceVersion belongs to another operator. It must not get more
/// rights.
pub(super) fn has_foreign_account(csv: &ClusterServiceVersion, siblings: &Siblings) -> bool {
    !accounts(csv, siblings).1.is_empty()
}

async fn api_services(csv: &ClusterServiceVersion, cx: &Cx) -> Result<BTreeMap<String, APIService>> {
    let apis = csv.spec.api_services.owned.iter().chain(&csv.spec.api_services.required);
    let mut found = BTreeMap::new();
    for name in apis.map(|api| api.api_service_name()).collect::<BTreeSet<_>>() {
        if let Some(service) = cx.get::<APIService>(&ObjectKey::new(None, &name)).await? {
            found.insert(name, service);
        }
    }
    Ok(found)
}

/// Returns the kinds that a ClusterServiceVersion depends on and that the API server serves, by discovery.
async fn served(csv: &ClusterServiceVersion, cx: &Cx) -> BTreeSet<(String, String, String)> {
    let native = csv.spec.native_apis.iter().map(|api| (&api.group, &api.version));
    let services = csv.spec.api_services.required.iter().chain(&csv.spec.api_services.owned);
    let versions: BTreeSet<_> = native.chain(services.map(|api| (&api.group, &api.version))).collect();
    let mut served = BTreeSet::new();
    for (group, version) in versions {
        let resources = match group.is_empty() {
            true => cx.client().list_core_api_resources(version).await,
            false => cx.client().list_api_group_resources(&format!("{group}/{version}")).await,
        };
        // A version that is not served is an error as well.
        for resource in resources.map(|list| list.resources).unwrap_or_default() {
            served.insert((group.clone(), version.clone(), resource.kind));
        }
    }
    served
}

/// Returns true if all aggregated APIs of a ClusterServiceVersion respond.
pub(super) fn are_apis_available(csv: &ClusterServiceVersion, observed: &ClusterObjects) -> bool {
    csv.spec.api_services.owned.iter().all(|api| {
        observed.api_services.get(&api.api_service_name()).is_some_and(is_available)
            && observed.served.contains(&(api.group.clone(), api.version.clone(), api.kind.clone()))
    })
}

/// Returns the conflict of a ClusterServiceVersion with others about the ownership of a CRD, an APIService or
/// a Deployment.
pub(super) fn owner_conflict(
    csv: &ClusterServiceVersion,
    siblings: &Siblings,
    observed: &ClusterObjects,
    deployments: &BTreeMap<String, Deployment>,
) -> Option<String> {
    let owns = |other: &ClusterServiceVersion, name: &str| other.spec.crds.owned.iter().any(|crd| crd.name == name);
    let unrelated = siblings.unrelated_to(csv);
    if csv.spec.crds.owned.iter().any(|crd| unrelated.iter().any(|other| owns(other, &crd.name))) {
        return Some("conflicting CRD owner in namespace".into());
    }
    let names: BTreeSet<String> = unrelated.iter().map(|other| other.name_any()).collect();
    for wanted in &csv.spec.details().deployments {
        let owners = deployments.get(&wanted.name).map(|found| owners(&found.metadata)).unwrap_or_default();
        if let Some(other) = owners.iter().find(|owner| names.contains(owner.name())) {
            return Some(format!("deployment {} belongs to ClusterServiceVersion {}", wanted.name, other.name()));
        }
    }
    let chain = siblings.chain_of(csv);
    let chain: Vec<&str> = chain.iter().map(String::as_str).collect();
    let namespace = csv.namespace().unwrap_or_default();
    let is_foreign = |name: String| {
        let service = observed.api_services.get(&name);
        service.is_some_and(|service| !install::belongs_to(service, &namespace, &chain))
    };
    let mut owned = csv.spec.api_services.owned.iter().map(|api| api.api_service_name());
    owned.any(is_foreign).then(|| "unable to adopt APIService".into())
}

/// Returns true if the configurations of all webhooks exist as described, and all conversions are set.
pub(super) async fn are_webhooks_installed(
    csv: &ClusterServiceVersion,
    conversions: &[(String, Value)],
    observed: &ClusterObjects,
    cx: &Cx,
) -> Result<bool> {
    let mut hashes = BTreeSet::new();
    if csv.spec.webhook_definitions.is_empty() {
        return Ok(true);
    }
    let hash = |labels: &BTreeMap<String, String>| labels.get(labels::WEBHOOK_HASH).cloned();
    let validating = cx.list_by::<ByOwner<ValidatingWebhookConfiguration>>(&name_of(csv)).await?;
    hashes.extend(validating.iter().filter_map(|found| hash(found.labels())));
    let mutating = cx.list_by::<ByOwner<MutatingWebhookConfiguration>>(&name_of(csv)).await?;
    hashes.extend(mutating.iter().filter_map(|found| hash(found.labels())));
    let mut admission =
        csv.spec.webhook_definitions.iter().filter(|webhook| webhook.webhook_type != WebhookType::Conversion);
    Ok(admission.all(|webhook| hashes.contains(&content_hash(webhook)))
        && conversions.iter().all(|(crd, _)| observed.definitions.contains_key(crd)))
}

/// Renames a binding of a server if an operator of another namespace has one of this name. These names have no
/// namespace, as in OLM, where the last operator takes the binding of the others.
pub(super) async fn avoid_foreign_binding(csv: &ClusterServiceVersion, binding: &mut Value, cx: &Cx) -> Result<()> {
    let name = binding["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let Some(suffix) = ["-system:auth-delegator", "-auth-reader"].into_iter().find(|end| name.ends_with(end)) else {
        return Ok(());
    };
    let subjects = match binding["kind"].as_str() {
        Some("ClusterRoleBinding") => {
            let key = ObjectKey::new(None, &name);
            cx.get::<ClusterRoleBinding>(&key).await?.and_then(|found| found.subjects)
        }
        Some("RoleBinding") => {
            let key = ObjectKey::new(binding["metadata"]["namespace"].as_str(), &name);
            cx.get::<RoleBinding>(&key).await?.and_then(|found| found.subjects)
        }
        _ => None,
    };
    let is_foreign = subjects.iter().flatten().any(|subject| subject.namespace != csv.namespace());
    if is_foreign {
        let start = name.strip_suffix(suffix).unwrap_or_default();
        let namespace = csv.namespace().unwrap_or_default();
        binding["metadata"]["name"] = format!("{start}-{namespace}{suffix}").into();
    }
    Ok(())
}

/// Returns the reason why the install strategy of a ClusterServiceVersion cannot be executed.
pub(super) fn invalid_strategy(csv: &ClusterServiceVersion) -> Option<String> {
    let strategy = &csv.spec.install.strategy;
    if strategy != "deployment" {
        return Some(format!("spec.install.strategy {strategy:?} is unknown: only deployment is supported"));
    }
    let (mut deployments, mut repeated) = (BTreeSet::new(), csv.spec.details().deployments.iter());
    let repeated = repeated.find(|deployment| !deployments.insert(&deployment.name))?;
    Some(format!("spec.install.spec.deployments has {} twice", repeated.name))
}

/// The version of the API server, which changes rarely.
#[derive(Debug, Default)]
pub(super) struct ServerVersion(Mutex<Option<(Timestamp, String)>>);

impl ServerVersion {
    async fn get(&self, cx: &Cx) -> Option<String> {
        let now = cx.now();
        if let Some((at, version)) = self.0.lock().clone()
            && now.duration_since(at) < VERSION_PERIOD
        {
            return Some(version);
        }
        let version = cx.client().apiserver_version().await.ok()?.git_version;
        *self.0.lock() = Some((now, version.clone()));
        Some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn overrides_precede_reported_conditions() {
        let check = |spec: Value, status: Value, expected: Option<&str>| {
            let condition: OperatorCondition = serde_json::from_value(json!({
                "metadata": {"name": "a", "generation": 2}, "spec": spec, "status": status,
            }))
            .unwrap();
            assert_eq!(hold_of(&condition).as_deref(), expected);
        };
        let upgradeable = |status: &str, generation: i64| json!([{"type": "Upgradeable", "status": status, "reason": "r", "message": "busy", "observedGeneration": generation}]);
        check(json!({}), json!({}), None);
        check(json!({}), json!({"conditions": upgradeable("True", 2)}), None);
        check(json!({}), json!({"conditions": upgradeable("False", 2)}), Some("the operator is not upgradeable: busy"));
        check(
            json!({}),
            json!({"conditions": upgradeable("True", 1)}),
            Some("the operatorcondition status \"Upgradeable\"=\"True\" is outdated"),
        );
        check(json!({"overrides": upgradeable("True", 0)}), json!({"conditions": upgradeable("False", 2)}), None);
        check(json!({"overrides": upgradeable("False", 0)}), json!({}), Some("the operator is not upgradeable: busy"));
    }
}
