//! OperatorGroups: membership, targets, conflicts, copies.

use crate::fixture::*;
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{ClusterServiceVersion, Operator, OperatorGroup, Subscription};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

/// The steps of the recorded scenario 04, without Subscription.
#[tokio::test(start_paused = true)]
async fn membership_follows_the_groups_of_the_namespace() {
    let test = setup().allows_changes_in("groups-b").start().await;
    namespace(&test, "groups-b", json!({})).await;
    install(&test, "memo.v2.1.0").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v2.1.0").await, "Failed NoOperatorGroup: csv in namespace with no operatorgroups");

    own_group(&test).await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v2.1.0").await, SUCCEEDED, "it heals at once");

    group(&test, "second", json!({"targetNamespaces": [test.namespace()]})).await;
    test.assert_converges().await;
    assert_eq!(
        state(&test, "memo.v2.1.0").await,
        "Failed TooManyOperatorGroups: csv created in namespace with multiple operatorgroups, can't pick one \
         automatically"
    );
    for name in ["group", "second"] {
        let conditions = groups(&test).get(name).await.unwrap().status.conditions;
        assert_eq!(conditions[0].message, "Multiple OperatorGroup found in the same namespace");
    }
    delete(&groups(&test), "second").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v2.1.0").await, SUCCEEDED, "OLM leaves it failed");
    let conditions = groups(&test).get("group").await.unwrap().status.conditions;
    let kinds: Vec<_> = conditions.iter().map(|of| (of.kind.as_str(), of.status.as_str())).collect();
    assert_eq!(kinds, [("Ready", "True")]);

    let retarget = async |targets: Value| {
        patch(&groups(&test), "group", json!({"spec": {"targetNamespaces": targets}})).await;
        test.assert_converges().await;
    };
    retarget(json!([test.namespace(), "groups-b"])).await;
    assert_eq!(
        state(&test, "memo.v2.1.0").await,
        "Failed UnsupportedOperatorGroup: MultiNamespace InstallModeType not supported, cannot configure to watch 2 \
         namespaces"
    );
    retarget(json!(["groups-b"])).await;
    assert_eq!(state(&test, "memo.v2.1.0").await, SUCCEEDED);
    let deployment = test.api::<Deployment>().get("memo-controller").await.unwrap();
    let annotations = deployment.spec.unwrap().template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations["olm.targetNamespaces"], "groups-b");
    let labels = Api::<Namespace>::all(test.client()).get("groups-b").await.unwrap();
    let uid = groups(&test).get("group").await.unwrap().uid().unwrap();
    assert_eq!(labels.labels()[&format!("olm.operatorgroup.uid/{uid}")], "");

    let copies: Api<ClusterServiceVersion> = Api::namespaced(test.client(), "groups-b");
    assert_eq!(
        state_in(&copies, "memo.v2.1.0").await,
        format!("Succeeded Copied: The operator is running in {} but is managing this namespace", test.namespace())
    );
    let roles: Api<Role> = Api::namespaced(test.client(), "groups-b");
    assert_eq!(names(&roles, "memo-control").await.len(), 1);

    delete(&copies, "memo.v2.1.0").await;
    test.assert_converges().await;
    assert!(state_in(&copies, "memo.v2.1.0").await.starts_with("Succeeded Copied"), "a deleted copy is put back");
    assert_eq!(names(&roles, "memo-control").await.len(), 1);

    delete(&groups(&test), "group").await;
    group(&test, "byselector", json!({"selector": {"matchLabels": {"team": "red"}}})).await;
    test.assert_converges().await;
    assert_eq!(
        state(&test, "memo.v2.1.0").await,
        "Failed NoTargetNamespaces: no targetNamespaces are matched operatorgroups namespace selection"
    );
    patch(&Api::<Namespace>::all(test.client()), "groups-b", json!({"metadata": {"labels": {"team": "red"}}})).await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v2.1.0").await, SUCCEEDED);
    assert_eq!(groups(&test).get("byselector").await.unwrap().status.namespaces, ["groups-b"]);

    delete(&test.api::<ClusterServiceVersion>(), "memo.v2.1.0").await;
    test.assert_converges().await;
    assert_eq!(state_in(&copies, "memo.v2.1.0").await, "absent");
    assert_eq!(names(&roles, "memo-control").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn operator_of_all_namespaces_gets_cluster_roles_and_copies_if_enabled() {
    let test = setup().allows_changes_of::<ClusterServiceVersion>().start().await;
    namespace(&test, "all-b", json!({})).await;
    group(&test, "global", json!({})).await;
    install(&test, "memo.v2.0.0").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v2.0.0").await, SUCCEEDED);
    let cluster_roles: Api<ClusterRole> = Api::all(test.client());
    let lifted = names(&cluster_roles, "memo.v2.0.0-memo-control-").await;
    let rules = cluster_roles.get(&lifted[0]).await.unwrap().rules.unwrap();
    assert_eq!(rules.last().unwrap().resources.as_deref(), Some(&["namespaces".to_owned()][..]));
    let copies: Api<ClusterServiceVersion> = Api::namespaced(test.client(), "all-b");
    assert_eq!(state_in(&copies, "memo.v2.0.0").await, "absent", "copies are off by default");

    let config = |disabled: bool| {
        json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OLMConfig", "metadata": {"name": "cluster"},
            "spec": {"features": {"disableCopiedCSVs": disabled}},
        })
        .to_string()
    };
    test.apply(&config(false)).await;
    test.assert_converges().await;
    assert!(state_in(&copies, "memo.v2.0.0").await.starts_with("Succeeded Copied"));
    test.apply(&config(true)).await;
    test.assert_converges().await;
    assert_eq!(state_in(&copies, "memo.v2.0.0").await, "absent");
}

#[tokio::test(start_paused = true)]
async fn intersecting_groups_cannot_provide_the_same_api() {
    let test = setup().allows_changes_in("clash-b").start().await;
    namespace(&test, "clash-b", json!({})).await;
    own_group(&test).await;
    install(&test, "memo.v2.0.0").await;
    test.assert_converges().await;
    let other = json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
        "metadata": {"name": "other", "namespace": "clash-b"}, "spec": {},
    });
    test.apply(&other.to_string()).await;
    let mut clash = bundle("clash.v1.0.0").pop().unwrap();
    clash["metadata"]["namespace"] = "clash-b".into();
    test.apply(&clash.to_string()).await;
    test.assert_converges().await;
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(test.client(), "clash-b");
    let conflict = "Failed InterOperatorGroupOwnerConflict: intersecting operatorgroups provide the same apis";
    assert_eq!(state_in(&csvs, "clash.v1.0.0").await, conflict);
    assert_eq!(state(&test, "memo.v2.0.0").await, SUCCEEDED, "the first one keeps its API");
    delete(&test.api::<ClusterServiceVersion>(), "memo.v2.0.0").await;
    test.assert_converges().await;
    assert_eq!(state_in(&csvs, "clash.v1.0.0").await, SUCCEEDED, "the conflict has ended");
}

#[tokio::test(start_paused = true)]
async fn operator_that_has_run_keeps_its_deployments_in_a_conflict() {
    let test = setup().allows_changes_in("clash-b").start().await;
    namespace(&test, "clash-b", json!({})).await;
    let other = json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
        "metadata": {
            "name": "other", "namespace": "clash-b", "finalizers": ["example.com/hold"],
            "annotations": {"olm.providedAPIs": "Memo.v1.demo.flyball.dev"},
        },
        "spec": {"targetNamespaces": ["clash-b"], "staticProvidedAPIs": true},
    });
    test.apply(&other.to_string()).await;
    test.assert_converges().await;
    own_group(&test).await;
    install(&test, "memo.v2.1.0").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v2.1.0").await, SUCCEEDED);

    let others: Api<OperatorGroup> = Api::namespaced(test.client(), "clash-b");
    patch(&others, "other", json!({"spec": {"targetNamespaces": ["clash-b", test.namespace()]}})).await;
    test.assert_converges().await;
    let conflict = "Failed InterOperatorGroupOwnerConflict: intersecting operatorgroups provide the same apis";
    assert_eq!(state(&test, "memo.v2.1.0").await, conflict);
    assert_eq!(names(&test.api::<Deployment>(), "").await, ["memo-controller"]);

    delete(&others, "other").await;
    test.assert_converges().await;
    assert!(others.get("other").await.unwrap().metadata.deletion_timestamp.is_some());
    assert_eq!(state(&test, "memo.v2.1.0").await, SUCCEEDED, "a group that is being deleted provides nothing");
}

/// Installs an operator with a copy in another namespace, and returns the copies.
async fn with_copy(test: &Test) -> Api<ClusterServiceVersion> {
    namespace(test, "copy-b", json!({})).await;
    group(test, "group", json!({"targetNamespaces": ["copy-b"]})).await;
    install(test, "memo.v2.1.0").await;
    test.assert_converges().await;
    let copies = Api::namespaced(test.client(), "copy-b");
    assert!(state_in(&copies, "memo.v2.1.0").await.starts_with("Succeeded Copied"));
    copies
}

#[tokio::test(start_paused = true)]
async fn copy_without_its_label_is_not_installed() {
    let test = setup().allows_changes_in("copy-b").start().await;
    let copies = with_copy(&test).await;
    patch(&copies, "memo.v2.1.0", json!({"metadata": {"labels": {"olm.copiedFrom": null}}})).await;
    test.assert_converges().await;
    assert!(state_in(&copies, "memo.v2.1.0").await.starts_with("Succeeded Copied"));
    let copy = copies.get("memo.v2.1.0").await.unwrap();
    assert_eq!(copy.labels()["olm.copiedFrom"], test.namespace());
    assert!(copy.finalizers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn finalizer_of_a_copy_does_not_hold_the_original() {
    let test = setup().allows_changes_in("copy-b").start().await;
    let copies = with_copy(&test).await;
    patch(&copies, "memo.v2.1.0", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    delete(&test.api::<ClusterServiceVersion>(), "memo.v2.1.0").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v2.1.0").await, "absent");
    assert!(copies.get("memo.v2.1.0").await.unwrap().metadata.deletion_timestamp.is_some());
}

/// Subscribes to the package `memo`, which no catalog resolves here.
async fn subscribe(test: &Test) {
    let subscription = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": {"name": "memo"},
        "spec": {"name": "memo", "source": "demo", "sourceNamespace": test.namespace()},
    });
    test.apply(&subscription.to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn number_of_operators_is_limited() {
    let test = setup().start().await;
    let operator = |index: usize| {
        json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "Operator",
            "metadata": {"name": format!("p{index}.{}", test.namespace())}, "spec": {},
        })
        .to_string()
    };
    test.apply(&(0..51).map(operator).collect::<Vec<_>>().join("\n---\n")).await;
    test.assert_converges().await;
    subscribe(&test).await;
    test.assert_converges().await;
    let operators: Api<Operator> = Api::all(test.client());
    assert_eq!(names(&operators, "memo.").await, [""; 0]);
    delete(&operators, &format!("p0.{}", test.namespace())).await;
    test.assert_converges().await;
    assert_eq!(names(&operators, "memo.").await, [format!("memo.{}", test.namespace())]);
}

#[tokio::test(start_paused = true)]
async fn crd_belongs_to_an_operator_only_if_its_plan_installed_it() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v2.1.0").await;
    subscribe(&test).await;
    let installed = json!({"status": {"installedCSV": "memo.v2.1.0", "lastUpdated": "2026-01-01T00:00:00Z"}});
    let subscriptions = test.api::<Subscription>();
    subscriptions.patch_status("memo", &PatchParams::default(), &Patch::Merge(installed)).await.unwrap();
    test.assert_converges().await;
    let label = format!("operators.coreos.com/memo.{}", test.namespace());
    let csv = test.api::<ClusterServiceVersion>().get("memo.v2.1.0").await.unwrap();
    assert!(csv.labels().contains_key(&label));
    let (crds, name) = (Api::<CustomResourceDefinition>::all(test.client()), "memos.demo.flyball.dev");
    assert!(!crds.get(name).await.unwrap().labels().contains_key(&label));
    let csv = format!("{}/memo.v2.1.0", test.namespace());
    let alongside = json!({"metadata": {"annotations": {"operatorframework.io/installed-alongside-1": csv}}});
    patch(&crds, name, alongside).await;
    test.assert_converges().await;
    assert!(crds.get(name).await.unwrap().labels().contains_key(&label));
}

#[tokio::test(start_paused = true)]
async fn operator_object_goes_with_its_last_component() {
    let test = setup().start().await;
    own_group(&test).await;
    let by_hand = json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "Operator", "metadata": {"name": "memo.elsewhere"}, "spec": {},
    });
    test.apply(&by_hand.to_string()).await;
    subscribe(&test).await;
    test.assert_converges().await;
    let (operators, name) = (Api::<Operator>::all(test.client()), format!("memo.{}", test.namespace()));
    let label = format!("operators.coreos.com/{name}");
    install(&test, "memo.v2.1.0").await;
    let (crds, crd) = (Api::<CustomResourceDefinition>::all(test.client()), "memos.demo.flyball.dev");
    patch(&crds, crd, json!({"metadata": {"labels": {label: ""}}})).await;
    delete(&test.api::<Subscription>(), "memo").await;
    test.assert_converges().await;
    assert_eq!(names(&operators, "memo.").await, ["memo.elsewhere", &name], "its CRD is left");
    delete(&test.api::<ClusterServiceVersion>(), "memo.v2.1.0").await;
    delete(&crds, crd).await;
    test.assert_converges().await;
    assert_eq!(names(&operators, "memo.").await, ["memo.elsewhere"], "one without components was made by a user");
}
