//! Attacks by a tenant who may write Subscriptions in one namespace, and nothing else.
//!
//! The service account of the OperatorGroup may do nothing, unless a test says otherwise, so that every right that
//! appears was gained by the tenant.

use crate::behavior::catalog::ADDRESS;
use crate::fixture::{SUCCEEDED, delete, names, namespace, patch, state, until};
use crate::subscriptions::{begin, condition, plans, setup, subscribe};
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{self, InstallPlan, InstallPlanPhase, Subscription};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn rule(group: &str, resources: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(resources.iter().map(ToString::to_string).collect()),
        verbs: vec!["*".into()],
        ..PolicyRule::default()
    }
}

/// Returns a client of the tenant.
async fn tenant(test: &Test) -> Client {
    test.account("tenant", &[rule("operators.coreos.com", &["subscriptions", "subscriptions/status"])]).await
}

/// Limits the operators of the namespace to what a service account without rights may do.
async fn limit(test: &Test) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer"}});
    test.apply(&account.to_string()).await;
    patch(&test.api::<api::OperatorGroup>(), "group", json!({"spec": {"serviceAccountName": "installer"}})).await;
    test.assert_converges().await;
}

async fn create(tenant: &Client, test: &Test, name: &str, annotations: Value, fields: Value) -> kube::Result<()> {
    let mut spec = json!({"name": "memo", "channel": "stable", "source": "demo", "sourceNamespace": test.namespace()});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let object = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
    let object: Subscription = serde_json::from_value(object).unwrap();
    Api::<Subscription>::namespaced(tenant.clone(), test.namespace()).create(&PostParams::default(), &object).await?;
    Ok(())
}

/// The objects that give rights, or run something.
async fn rights(test: &Test) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut add = |kind: &str, names: Vec<String>| found.extend(names.into_iter().map(|name| format!("{kind} {name}")));
    add("ClusterRole", names(&Api::<ClusterRole>::all(test.client()), "").await);
    add("ClusterRoleBinding", names(&Api::<ClusterRoleBinding>::all(test.client()), "").await);
    add("RoleBinding", names(&test.api::<RoleBinding>(), "").await);
    add("ServiceAccount", names(&test.api::<ServiceAccount>(), "").await);
    add("Deployment", names(&test.api::<Deployment>(), "").await);
    add("ClusterServiceVersion", names(&test.api::<api::ClusterServiceVersion>(), "").await);
    found
}

#[tokio::test(start_paused = true)]
async fn annotations_give_no_way_around_the_service_account() {
    let test = setup().start().await;
    begin(&test).await;
    limit(&test).await;
    let tenant = tenant(&test).await;
    let before = rights(&test).await;
    for (name, annotations) in [
        // 1: an approval of its own. 2: a rollback, which ignores the channel. 3: a dependency of a plan.
        ("approved", json!({"olm.flyball.dev/approved": "memo.v2.0.0"})),
        ("rolled", json!({"olm.flyball.dev/rollback": "memo.v1.0.0"})),
        ("generated", json!({"olm.generated-by": "install-any"})),
        // 4: no check of CRDs. 5: another target.
        ("unsafe", json!({"olm.flyball.dev/crd-upgrade-safety": "None"})),
        ("targets", json!({"olm.targetNamespaces": "", "olm.operatorGroup": "other"})),
    ] {
        create(&tenant, &test, name, annotations, json!({})).await.unwrap();
        test.eventually("the plan fails", async || {
            plans(&test).await.iter().any(|plan| plan.status.phase == InstallPlanPhase::Failed)
        })
        .await;
        delete(&test.api::<Subscription>(), name).await;
        test.assert_converges().await;
        assert_eq!(rights(&test).await, before, "{name}");
    }
    test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn status_of_a_subscription_is_no_proof() {
    let test = setup().start().await;
    begin(&test).await;
    // An operator of the administrator, installed before the account was limited.
    subscribe(&test, "worn", json!({"channel": "new"})).await;
    until(&test, "worn.v1.1.0", SUCCEEDED).await;
    limit(&test).await;
    let tenant = tenant(&test).await;
    let deployer = [rule("operators.coreos.com", &["subscriptions"]), rule("apps", &["deployments"])];
    let deployer = test.account("deployer", &deployer).await;
    let before = rights(&test).await;
    // 6: a status that names the version of another package, with a volume of the node.
    let host = json!({"config": {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}, "channel": "stabel"});
    create(&deployer, &test, "aaa", json!({}), host).await.unwrap();
    let own: Api<Subscription> = Api::namespaced(tenant.clone(), test.namespace());
    let claim = json!({"status": {
        "currentCSV": "worn.v1.1.0", "installedCSV": "worn.v1.1.0", "state": "AtLatestKnown",
        "lastUpdated": "2026-01-01T00:00:00Z",
    }});
    own.patch_status("aaa", &PatchParams::default(), &Patch::Merge(claim)).await.unwrap();
    test.assert_converges().await;
    assert_eq!(rights(&test).await, before);
    assert_eq!(state(&test, "worn.v1.1.0").await, SUCCEEDED);
    for deployment in test.api::<Deployment>().list(&ListParams::default()).await.unwrap() {
        let pod = deployment.spec.unwrap().template.spec.unwrap();
        let has_host = pod.volumes.iter().flatten().any(|volume| volume.host_path.is_some());
        assert!(!has_host, "the configuration of a Subscription to another package is applied");
    }
    test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn configuration_requires_the_permission_to_deploy() {
    let test = setup().start().await;
    begin(&test).await;
    let tenant = tenant(&test).await;
    // 12: the pods of an operator of the catalog, with a program of the tenant.
    let tool = json!({"name": "tool", "image": {"reference": "registry.example.com/tool:1"}});
    for config in [
        json!({"env": [{"name": "LD_PRELOAD", "value": "/x/tool.so"}]}),
        json!({"volumes": [tool], "volumeMounts": [{"name": "tool", "mountPath": "/manager", "subPath": "manager"}]}),
        json!({"annotations": {"example.com/inject": "tool"}}),
    ] {
        let refused = create(&tenant, &test, "memo", json!({}), json!({"config": config})).await.unwrap_err();
        assert!(refused.to_string().contains("spec.config becomes a part of the operator's pods"), "{refused}");
    }
    create(&tenant, &test, "memo", json!({}), json!({})).await.unwrap();
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    let own: Api<Subscription> = Api::namespaced(tenant.clone(), test.namespace());
    let later = json!({"spec": {"config": {"env": [{"name": "LD_PRELOAD", "value": "/x/tool.so"}]}}});
    assert!(own.patch("memo", &PatchParams::default(), &Patch::Merge(later)).await.is_err());
    let other = json!({"spec": {"installPlanApproval": "Manual"}});
    own.patch("memo", &PatchParams::default(), &Patch::Merge(other)).await.expect("the configuration is unchanged");
    // An administrator's configuration stays with its package.
    let by_admin = json!({"spec": {"config": {"env": [{"name": "MODE", "value": "quiet"}]}}});
    patch(&test.api::<Subscription>(), "memo", by_admin).await;
    let package = json!({"spec": {"name": "worn", "channel": "new"}});
    assert!(own.patch("memo", &PatchParams::default(), &Patch::Merge(package)).await.is_err());
    test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn other_objects_of_the_manager_are_out_of_reach() {
    let test = setup().start().await;
    begin(&test).await;
    limit(&test).await;
    let tenant = tenant(&test).await;
    create(&tenant, &test, "memo", json!({}), json!({"installPlanApproval": "Manual"})).await.unwrap();
    test.eventually("a plan waits", async || !plans(&test).await.is_empty()).await;
    let is_forbidden = |error: kube::Error| assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
    let name = plans(&test).await[0].metadata.name.clone().unwrap();
    let params = PatchParams::default();
    // 7: its plan, approved or with other steps. 8: the group and its account. 9: the tokens of operators.
    let plans: Api<InstallPlan> = Api::namespaced(tenant.clone(), test.namespace());
    let approve = Patch::Merge(json!({"spec": {"approved": true}}));
    is_forbidden(plans.patch(&name, &params, &approve).await.unwrap_err());
    let groups: Api<api::OperatorGroup> = Api::namespaced(tenant.clone(), test.namespace());
    let unlimited = Patch::Merge(json!({"spec": {"serviceAccountName": null}}));
    is_forbidden(groups.patch("group", &params, &unlimited).await.unwrap_err());
    let secrets: Api<Secret> = Api::namespaced(tenant.clone(), test.namespace());
    is_forbidden(secrets.list(&ListParams::default()).await.unwrap_err());
    let accounts: Api<ServiceAccount> = Api::namespaced(tenant, test.namespace());
    let request = k8s_openapi::api::authentication::v1::TokenRequest::default();
    is_forbidden(accounts.create_token_request("installer", &PostParams::default(), &request).await.unwrap_err());
    test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn rollout_shows_nothing_of_other_namespaces() {
    let test = setup().allows_changes_in("secret").start().await;
    begin(&test).await;
    limit(&test).await;
    namespace(&test, "secret", json!({})).await;
    let object = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": {"name": "memo", "namespace": "secret"},
        "spec": {"name": "memo", "channel": "stable", "source": "demo", "sourceNamespace": test.namespace()},
    });
    test.apply(&object.to_string()).await;
    let tenant = tenant(&test).await;
    // 10: an existing Subscription elsewhere, and one that does not exist, look alike.
    let mut messages = Vec::new();
    for leader in ["secret/memo", "secret/none"] {
        let after = json!({"olm.flyball.dev/rollout-after": leader});
        create(&tenant, &test, "memo", after, json!({})).await.unwrap();
        test.eventually("it is held back", async || condition(&test, "memo", "RolloutHeld").await.is_some()).await;
        let (reason, message) = condition(&test, "memo", "RolloutHeld").await.unwrap();
        messages.push((reason, message.replace(leader, "LEADER")));
        delete(&test.api::<Subscription>(), "memo").await;
        test.assert_converges().await;
    }
    assert_eq!(messages[0], messages[1]);
    test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn catalogs_of_other_namespaces_install_nothing() {
    let test = setup().allows_changes_in("secret").start().await;
    begin(&test).await;
    namespace(&test, "secret", json!({})).await;
    let catalog = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
        "metadata": {"name": "theirs", "namespace": "secret"}, "spec": {"sourceType": "grpc", "address": ADDRESS},
    });
    test.apply(&catalog.to_string()).await;
    test.assert_converges().await;
    let tenant = tenant(&test).await;
    let before = rights(&test).await;
    // 11: a catalog that an administrator added for another namespace.
    let other = json!({"source": "theirs", "sourceNamespace": "secret"});
    create(&tenant, &test, "memo", json!({}), other).await.unwrap();
    test.assert_converges().await;
    assert_eq!(rights(&test).await, before);
    let (_, message) = condition(&test, "memo", "ResolutionFailed").await.unwrap();
    let none = json!({"source": "none", "sourceNamespace": "secret"});
    delete(&test.api::<Subscription>(), "memo").await;
    create(&tenant, &test, "memo", json!({}), none).await.unwrap();
    test.assert_converges().await;
    let (_, absent) = condition(&test, "memo", "ResolutionFailed").await.unwrap();
    assert_eq!(message.replace("theirs", "none"), absent, "it looks like one that does not exist");
}
