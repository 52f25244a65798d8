//! Installation of operators, their health, and what is put back.

use crate::fixture::*;
use flyball_cluster::Nodes;
use flyball_lifecycle::api::{ClusterServiceVersion, OperatorCondition};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn operator_passes_through_the_phases_of_olm() {
    let mut test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v2.0.0").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v2.0.0").await, SUCCEEDED);
    assert_eq!(history(&test, "memo.v2.0.0").await, usual_history());

    let csv = test.api::<ClusterServiceVersion>().get("memo.v2.0.0").await.unwrap();
    assert_eq!(csv.annotations()["olm.operatorGroup"], "group");
    assert_eq!(csv.annotations()["olm.targetNamespaces"], test.namespace());
    assert_eq!(csv.finalizers(), ["operators.coreos.com/csv-cleanup"]);
    let requirements: Vec<_> = csv.status.requirement_status.iter().map(|found| found.message.as_str()).collect();
    assert_eq!(requirements, ["CRD is present and Established condition is true", ""]);
    assert_eq!(
        csv.status.requirement_status[1].dependents[0].message,
        r#"cluster rule:{"verbs":["get","list"],"apiGroups":[""],"resources":["nodes"]}"#
    );
    let group = groups(&test).get("group").await.unwrap();
    assert_eq!(group.annotations()["olm.providedAPIs"], "Memo.v1.demo.flyball.dev,Memo.v2.demo.flyball.dev");
    assert_eq!(group.status.namespaces, [test.namespace()]);

    let deployment = test.api::<Deployment>().get("memo-controller").await.unwrap();
    let spec = deployment.spec.unwrap();
    assert_eq!(spec.revision_history_limit, Some(1));
    let container = &spec.template.spec.unwrap().containers[0];
    let names: Vec<_> = container.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["WATCH_NAMESPACE", "OPERATOR_CONDITION_NAME"]);
    let condition = test.api::<OperatorCondition>().get("memo.v2.0.0").await.unwrap();
    assert_eq!(condition.spec.deployments, ["memo-controller"]);
    let (roles, bindings) = roles(&test);
    assert_eq!(names_of(&roles, "memo").await, names_of(&bindings, "memo").await);
    assert_eq!(names_of(&roles, "memo.v2.0.0-memo-control-").await.len(), 1);
    test.assert_idempotent().await;
}

async fn names_of<K>(api: &Api<K>, part: &str) -> Vec<String>
where
    K: Clone + kube::Resource + serde::de::DeserializeOwned + std::fmt::Debug,
{
    names(api, part).await
}

#[tokio::test(start_paused = true)]
async fn missing_crd_is_named_and_awaited() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "broken.v1.0.0").await;
    test.assert_converges().await;
    assert_eq!(
        state(&test, "broken.v1.0.0").await,
        "Pending RequirementsNotMet: one or more requirements couldn't be found"
    );
    let csv = test.api::<ClusterServiceVersion>().get("broken.v1.0.0").await.unwrap();
    let missing: Vec<_> = csv
        .status
        .requirement_status
        .iter()
        .filter(|found| found.message == "CRD is not present")
        .map(|found| found.name.as_str())
        .collect();
    assert_eq!(missing, ["ghosts.demo.flyball.dev"]);
    let mut crd = bundle("memo.v1.0.0").remove(0);
    crd["metadata"]["name"] = json!("ghosts.demo.flyball.dev");
    crd["spec"]["names"] = json!({"kind": "Ghost", "plural": "ghosts", "singular": "ghost", "listKind": "GhostList"});
    test.apply(&crd.to_string()).await;
    until(&test, "broken.v1.0.0", SUCCEEDED).await;
}

#[tokio::test(start_paused = true)]
async fn operator_that_never_becomes_ready_fails_after_five_minutes() {
    let test = setup().nodes(0).start().await;
    own_group(&test).await;
    install(&test, "memo.v2.1.0").await;
    let waiting = "Installing InstallWaiting: installing: waiting for deployment memo-controller to become ready: \
                   deployment \"memo-controller\" not available: Deployment does not have minimum availability.";
    until(&test, "memo.v2.1.0", waiting).await;
    test.eventually("it has failed once", async || {
        history(&test, "memo.v2.1.0").await.contains(&"Failed InstallCheckFailed".to_owned())
    })
    .await;
    until(&test, "memo.v2.1.0", waiting).await;
    let past = history(&test, "memo.v2.1.0").await;
    let failed = past.iter().position(|entry| entry == "Failed InstallCheckFailed").unwrap();
    assert_eq!(
        past[failed..],
        [
            "Failed InstallCheckFailed",
            "Pending NeedsReinstall",
            "InstallReady AllRequirementsMet",
            "Installing InstallSucceeded",
            "Installing InstallWaiting"
        ]
    );
    Nodes::new("late", 1).add_to(&test.client()).await.unwrap();
    until(&test, "memo.v2.1.0", SUCCEEDED).await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_edited_or_deleted_are_put_back() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v2.0.0").await;
    test.assert_converges().await;
    let (roles, bindings) = roles(&test);
    let role = names(&roles, "memo-control").await.remove(0);
    let cluster_roles: Api<ClusterRole> = Api::all(test.client());
    let cluster_bindings: Api<ClusterRoleBinding> = Api::all(test.client());
    let cluster_role = names(&cluster_roles, "memo.v2.0.0-").await.remove(0);
    let rules = roles.get(&role).await.unwrap().rules;

    delete(&roles, &role).await;
    delete(&bindings, &role).await;
    delete(&cluster_roles, &cluster_role).await;
    delete(&cluster_bindings, &cluster_role).await;
    delete(&test.api::<ServiceAccount>(), "memo-controller").await;
    delete(&test.api::<OperatorCondition>(), "memo.v2.0.0").await;
    test.assert_converges().await;
    assert_eq!(roles.get(&role).await.unwrap().rules, rules);
    bindings.get(&role).await.unwrap();
    cluster_roles.get(&cluster_role).await.unwrap();
    cluster_bindings.get(&cluster_role).await.unwrap();
    test.api::<ServiceAccount>().get("memo-controller").await.unwrap();
    test.api::<OperatorCondition>().get("memo.v2.0.0").await.unwrap();
    assert_eq!(history(&test, "memo.v2.0.0").await, usual_history(), "rights are put back without a new phase");

    patch(&roles, &role, json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})).await;
    patch(&test.api::<Deployment>(), "memo-controller", json!({"spec": {"replicas": 3}})).await;
    test.assert_converges().await;
    assert_eq!(roles.get(&role).await.unwrap().rules, rules);
    let deployment = test.api::<Deployment>().get("memo-controller").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(1));

    delete(&test.api::<Deployment>(), "memo-controller").await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    let past = history(&test, "memo.v2.0.0").await;
    assert!(past.contains(&"Failed ComponentUnhealthy".to_owned()), "{past:?}");
}

#[tokio::test(start_paused = true)]
async fn deletion_leaves_nothing_but_the_crd() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v2.0.0").await;
    test.assert_converges().await;
    delete(&test.api::<ClusterServiceVersion>(), "memo.v2.0.0").await;
    test.assert_converges().await;
    let (roles, bindings) = roles(&test);
    assert_eq!(state(&test, "memo.v2.0.0").await, "absent");
    assert_eq!(names(&roles, "memo").await, names(&bindings, "memo").await);
    assert_eq!(names(&roles, "memo").await, [""; 0]);
    assert_eq!(names(&test.api::<Deployment>(), "").await, [""; 0]);
    assert_eq!(names(&test.api::<ServiceAccount>(), "memo").await, [""; 0]);
    assert_eq!(names(&Api::<ClusterRole>::all(test.client()), "memo.v2.0.0-").await, [""; 0]);
    let group = groups(&test).get("group").await.unwrap();
    assert_eq!(group.annotations()["olm.providedAPIs"], "");
    delete(&groups(&test), "group").await;
    test.assert_converges().await;
    assert_eq!(names(&Api::<ClusterRole>::all(test.client()), "olm.og.").await, [""; 0]);
}
