//! Subscriptions and InstallPlans on an embedded control plane, with the recorded catalog.

use crate::behavior::catalog::{ADDRESS, Server};
use crate::fixture::{SUCCEEDED, bundle, delete, names, namespace, own_group, patch, state, until};
use flyball_cluster::testing::{Setup, Test};
use flyball_lifecycle::api::{self, InstallPlan, InstallPlanPhase, Subscription};
use flyball_lifecycle::content::{Blobs, Content, PackageBundle};
use flyball_lifecycle::grpc::ConnectionError;
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::source::{CatalogClient, Loaded, Location, SourceError, read_folder};
use flyball_lifecycle::{Isolation, Settings, operator};
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Returns the setup of a test with one node, on which the namespace of the test has the global catalogs.
fn setup_with(isolation: Isolation) -> Setup {
    setup_of(|| Settings::new(Arc::new(Server::default())), isolation)
}

fn setup_of(settings: fn() -> Settings, isolation: Isolation) -> Setup {
    let make = move || {
        let global_namespace = "test".to_owned();
        operator(&Settings { global_namespace, isolation, ..settings() })
    };
    Test::of(make)
        .nodes(1)
        .allows_changes_of::<Namespace>()
        .allows_changes_of::<ClusterRole>()
        .allows_changes_of::<ClusterRoleBinding>()
        .allows_changes_of::<CustomResourceDefinition>()
        .allows_changes_of::<api::Operator>()
}

pub(crate) fn setup() -> Setup {
    setup_with(Isolation::default())
}

/// Creates the OperatorGroup and the catalog.
pub(crate) async fn begin(test: &Test) {
    own_group(test).await;
    apply(test, "CatalogSource", "demo", json!({"sourceType": "grpc", "address": ADDRESS})).await;
}

/// Creates a Subscription to a package, with further fields of its spec.
pub(crate) async fn subscribe(test: &Test, package: &str, fields: Value) {
    let mut spec = json!({"name": package, "source": "demo", "sourceNamespace": test.namespace()});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    apply(test, "Subscription", package, spec).await;
}

pub(crate) async fn apply(test: &Test, kind: &str, name: &str, spec: Value) {
    let (version, metadata) = ("operators.coreos.com/v1alpha1", json!({"name": name}));
    let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
    test.apply(&object.to_string()).await;
}

/// Applies an object of `rbac.authorization.k8s.io` with the name of the service account.
async fn apply_rbac(test: &Test, kind: &str, mut object: Value) {
    (object["apiVersion"], object["kind"]) = ("rbac.authorization.k8s.io/v1".into(), kind.into());
    object["metadata"] = json!({"name": "installer"});
    if kind.ends_with("Binding") {
        object["roleRef"]["apiGroup"] = "rbac.authorization.k8s.io".into();
        object["subjects"] = json!([{"kind": "ServiceAccount", "name": "installer", "namespace": test.namespace()}]);
    }
    test.apply(&object.to_string()).await;
}

pub(crate) async fn subscription(test: &Test, name: &str) -> Subscription {
    test.api().get(name).await.unwrap()
}

/// Returns the reason and the message of a condition of a Subscription.
pub(crate) async fn condition(test: &Test, name: &str, kind: &str) -> Option<(String, String)> {
    let conditions = subscription(test, name).await.status.conditions;
    let condition = conditions.into_iter().find(|condition| condition.kind == kind)?;
    Some((condition.reason, condition.message))
}

pub(crate) async fn plans(test: &Test) -> Vec<InstallPlan> {
    let mut plans = test.api::<InstallPlan>().list(&ListParams::default()).await.unwrap().items;
    plans.sort_by_key(|plan| plan.spec.generation);
    plans
}

/// Approves the plan of a Subscription.
pub(crate) async fn approve(test: &Test, name: &str) {
    let plan = subscription(test, name).await.status.install_plan_ref.unwrap().name.unwrap();
    patch(&test.api::<InstallPlan>(), &plan, json!({"spec": {"approved": true}})).await;
}

#[test]
fn permissions_of_the_manager_are_in_the_docs() {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/olm.md")).unwrap();
    let operator = operator(&Settings::new(Arc::new(Server::default())));
    let mut verbs: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for rule in operator.rules() {
        let resources = rule.resources.unwrap_or_default();
        for group in rule.api_groups.unwrap_or_default() {
            for resource in &resources {
                verbs.entry((group.clone(), resource.clone())).or_default().extend(rule.verbs.clone());
            }
        }
    }
    let mut resources: BTreeMap<(String, BTreeSet<String>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs {
        resources.entry((group, verbs)).or_default().push(resource);
    }
    let quoted = |text: &String| format!("`{text}`");
    let row = |((group, verbs), resources): ((String, BTreeSet<String>), Vec<String>)| {
        let resources: Vec<String> = resources.iter().map(quoted).collect();
        let verbs: Vec<String> = verbs.iter().map(quoted).collect();
        format!("| `{group}` | {} | {} |", resources.join(", "), verbs.join(", "))
    };
    let rows: Vec<String> = resources.into_iter().map(row).collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !docs.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/olm.md has to contain these rows:\n{}", rows.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn restart_writes_nothing() {
    let mut test = setup().start().await;
    begin(&test).await;
    subscribe(&test, "memo", json!({"channel": "stable"})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn failed_plan_succeeds_when_its_cause_is_gone() {
    let test = setup().start().await;
    begin(&test).await;
    subscribe(
        &test,
        "memo",
        json!({"channel": "strict", "startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual"}),
    )
    .await;
    test.assert_converges().await;
    approve(&test, "memo").await;
    until(&test, "memo.v1.0.0", SUCCEEDED).await;
    test.assert_converges().await;
    let (spec, metadata) = (json!({"text": "a long text"}), json!({"name": "note"}));
    let note = json!({"apiVersion": "demo.flyball.dev/v1", "kind": "Memo", "metadata": metadata, "spec": spec});
    test.apply(&note.to_string()).await;
    approve(&test, "memo").await;
    test.eventually("the plan fails", async || plans(&test).await[1].status.phase == InstallPlanPhase::Failed).await;
    assert_eq!(state(&test, "memo.v1.0.0").await, SUCCEEDED, "the installed version stays");
    assert_eq!(state(&test, "memo.v1.9.0").await, "absent");
    let (reason, message) = condition(&test, "memo", "InstallPlanFailed").await.unwrap();
    assert_eq!(reason, "InstallComponentFailed");
    assert!(message.contains("Memo \"test/note\": updated validation is too restrictive"), "{message}");
    let memos = ApiResource::from_gvk(&GroupVersionKind::gvk("demo.flyball.dev", "v1", "Memo"));
    let memos: Api<DynamicObject> = Api::namespaced_with(test.client(), test.namespace(), &memos);
    memos.delete("note", &Default::default()).await.unwrap();
    until(&test, "memo.v1.9.0", SUCCEEDED).await;
    assert_eq!(plans(&test).await[1].status.phase, InstallPlanPhase::Complete);
}

#[tokio::test(start_paused = true)]
async fn one_failure_blocks_the_namespace_if_the_settings_ask_for_it() {
    for (isolation, expected) in [(Isolation::Subscription, SUCCEEDED), (Isolation::Namespace, "absent")] {
        let test = setup_with(isolation).start().await;
        begin(&test).await;
        subscribe(&test, "broken", json!({"channel": "stable"})).await;
        test.assert_converges().await;
        subscribe(&test, "worn", json!({"channel": "new"})).await;
        test.assert_converges().await;
        assert_eq!(state(&test, "worn.v1.1.0").await, expected, "{isolation:?}");
        let (reason, message) = condition(&test, "broken", "ResolutionFailed").await.unwrap();
        assert_eq!(reason, "ConstraintsNotSatisfiable");
        assert!(message.contains("kind: Ghost"), "{message}");
        delete(&test.api::<Subscription>(), "broken").await;
        until(&test, "worn.v1.1.0", SUCCEEDED).await;
        assert_eq!(condition(&test, "worn", "ResolutionFailed").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn range_of_versions_limits_upgrades() {
    let test = setup().start().await;
    begin(&test).await;
    subscribe(
        &test,
        "memo",
        json!({"channel": "stable", "startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual"}),
    )
    .await;
    patch(
        &test.api::<Subscription>(),
        "memo",
        json!({"metadata": {"annotations": {"olm.flyball.dev/versions": "<2.0.0"}}}),
    )
    .await;
    patch(&test.api::<Subscription>(), "memo", json!({"spec": {"installPlanApproval": "Automatic"}})).await;
    test.assert_converges().await;
    approve(&test, "memo").await;
    until(&test, "memo.v1.1.0", SUCCEEDED).await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v1.1.0").await, SUCCEEDED, "2.0.0 is excluded");
    patch(
        &test.api::<Subscription>(),
        "memo",
        json!({"metadata": {"annotations": {"olm.flyball.dev/versions": "two"}}}),
    )
    .await;
    test.assert_converges().await;
    let (reason, message) = condition(&test, "memo", "ResolutionFailed").await.unwrap();
    assert_eq!(reason, "ErrorPreventedResolution");
    assert!(message.starts_with("annotation olm.flyball.dev/versions is not a range of versions"), "{message}");
    patch(
        &test.api::<Subscription>(),
        "memo",
        json!({"metadata": {"annotations": {"olm.flyball.dev/versions": null}}}),
    )
    .await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
}

#[tokio::test(start_paused = true)]
async fn new_subscription_adopts_the_installed_version_and_upgrades_it() {
    let test = setup().start().await;
    begin(&test).await;
    subscribe(
        &test,
        "memo",
        json!({"channel": "stable", "startingCSV": "memo.v1.1.0", "installPlanApproval": "Manual"}),
    )
    .await;
    test.assert_converges().await;
    approve(&test, "memo").await;
    until(&test, "memo.v1.1.0", SUCCEEDED).await;
    delete(&test.api::<Subscription>(), "memo").await;
    test.assert_converges().await;
    assert!(plans(&test).await.is_empty(), "plans are deleted with their Subscription");
    assert_eq!(state(&test, "memo.v1.1.0").await, SUCCEEDED);
    subscribe(&test, "memo", json!({"channel": "stable"})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    assert_eq!(state(&test, "memo.v1.1.0").await, "absent");
}

#[tokio::test(start_paused = true)]
async fn another_choice_replaces_the_waiting_plan() {
    let test = setup().start().await;
    begin(&test).await;
    subscribe(
        &test,
        "memo",
        json!({"channel": "stable", "startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual"}),
    )
    .await;
    test.assert_converges().await;
    assert_eq!(plans(&test).await[0].spec.cluster_service_version_names, ["memo.v1.0.0"]);
    patch(&test.api::<Subscription>(), "memo", json!({"spec": {"startingCSV": "memo.v1.1.0"}})).await;
    test.assert_converges().await;
    let plans = plans(&test).await;
    assert_eq!(plans.len(), 1, "the plan that nobody wants any more cannot be approved");
    assert_eq!(plans[0].spec.cluster_service_version_names, ["memo.v1.1.0"]);
    assert_eq!(subscription(&test, "memo").await.status.install_plan_generation, plans[0].spec.generation);
}

#[tokio::test(start_paused = true)]
async fn subscription_gains_no_right_that_the_service_account_lacks() {
    let test = setup().start().await;
    begin(&test).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer"}});
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    test.apply(&account.to_string()).await;
    let rules = json!({"rules": [
        rule("operators.coreos.com", &["clusterserviceversions"]),
        rule("", &["serviceaccounts", "services", "configmaps"]),
        rule("apps", &["deployments"]),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"]),
    ]});
    apply_rbac(&test, "Role", rules).await;
    apply_rbac(&test, "RoleBinding", json!({"roleRef": {"kind": "Role", "name": "installer"}})).await;
    patch(&test.api::<api::OperatorGroup>(), "group", json!({"spec": {"serviceAccountName": "installer"}})).await;
    test.assert_converges().await;
    subscribe(&test, "memo", json!({"channel": "stable"})).await;
    test.eventually("the plan fails", async || {
        plans(&test).await.first().is_some_and(|plan| plan.status.phase == InstallPlanPhase::Failed)
    })
    .await;
    let (_, message) = condition(&test, "memo", "InstallPlanFailed").await.unwrap();
    assert!(message.contains("is forbidden: User \"system:serviceaccount:test:installer\" cannot patch"), "{message}");
    assert_eq!(state(&test, "memo.v2.0.0").await, "absent");
    let crds: Api<CustomResourceDefinition> = Api::all(test.client());
    assert!(crds.get_opt("memos.demo.flyball.dev").await.unwrap().is_none(), "nothing is changed before the check");
    let all = json!({"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}});
    apply_rbac(&test, "ClusterRoleBinding", all).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    // The requests of the service account were refused, not those of the manager.
    test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn subscription_gives_the_cluster_rights_of_its_bundle() {
    // As in OLM: only a service account of the OperatorGroup limits them.
    let test = setup().start().await;
    begin(&test).await;
    let rule = PolicyRule {
        api_groups: Some(vec!["operators.coreos.com".into()]),
        resources: Some(vec!["subscriptions".into()]),
        verbs: vec!["create".into()],
        ..PolicyRule::default()
    };
    let tenant = test.account("tenant", &[rule]).await;
    let wanted = json!({
        "metadata": {"name": "memo"},
        "spec": {"name": "memo", "channel": "stable", "source": "demo", "sourceNamespace": test.namespace()},
    });
    let wanted: Subscription = serde_json::from_value(wanted).unwrap();
    Api::<Subscription>::namespaced(tenant, test.namespace()).create(&PostParams::default(), &wanted).await.unwrap();
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    test.api::<ServiceAccount>().get("memo-controller").await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(test.client());
    assert!(!names(&bindings, "memo.v2.0.0-").await.is_empty(), "a pod of the tenant can use its service account");
}

#[tokio::test(start_paused = true)]
async fn pin_withdraws_the_waiting_plan() {
    let test = setup().start().await;
    begin(&test).await;
    subscribe(
        &test,
        "memo",
        json!({"channel": "stable", "startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual"}),
    )
    .await;
    test.assert_converges().await;
    approve(&test, "memo").await;
    until(&test, "memo.v1.0.0", SUCCEEDED).await;
    let waits = async || {
        let waiting = plans(&test).await.into_iter().filter(|plan| plan.status.phase != InstallPlanPhase::Complete);
        let mut names = waiting.flat_map(|plan| plan.spec.cluster_service_version_names);
        names.any(|name| name == "memo.v1.1.0")
    };
    test.eventually("the upgrade waits", async || waits().await).await;
    let pin = |range: Value| json!({"metadata": {"annotations": {"olm.flyball.dev/versions": range}}});
    patch(&test.api::<Subscription>(), "memo", pin("<1.1.0".into())).await;
    test.eventually("the upgrade cannot be approved", async || !waits().await).await;
    test.assert_converges().await;
    let status = subscription(&test, "memo").await.status;
    assert_eq!((&*status.current_csv, status.install_plan_ref), ("memo.v1.0.0", None));
    assert_eq!(condition(&test, "memo", "InstallPlanMissing").await, None);
    patch(&test.api::<Subscription>(), "memo", pin(Value::Null)).await;
    test.eventually("the upgrade waits again", async || waits().await).await;
}

/// The recorded catalog, with a package whose image cannot be pulled.
struct Lossy(Arc<Content>);

impl Lossy {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/behavior/catalog/fbc");
        let mut files = read_folder(&folder).unwrap();
        let lost = "schema: olm.package\nname: lost\ndefaultChannel: stable\n---\n\
                    schema: olm.channel\npackage: lost\nname: stable\nentries: [{name: lost.v1.0.0}]\n---\n\
                    schema: olm.bundle\npackage: lost\nname: lost.v1.0.0\nimage: registry.example/lost:v1\n\
                    properties: [{type: olm.package, value: {packageName: lost, version: 1.0.0}}]\n";
        files.insert("lost/catalog.yaml", lost.as_bytes().to_vec()).unwrap();
        Self(Arc::new(Content::new(Blobs::parse(&files).unwrap())))
    }
}

impl CatalogClient for Lossy {
    fn load<'c>(&'c self, _: &'c Location, _: Option<&'c str>) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        Box::pin(async move { Ok(Some(Loaded { content: self.0.clone(), revision: "1".into() })) })
    }

    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        _: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        let address = bundle.name().to_owned();
        Box::pin(async move { Err(SourceError::from(ConnectionError::Connect { address, why: "lost".to_owned() })) })
    }
}

#[tokio::test(start_paused = true)]
async fn bundle_that_cannot_be_read_blocks_no_other() {
    let test = setup_of(|| Settings::new(Arc::new(Lossy::new())), Isolation::default()).start().await;
    begin(&test).await;
    subscribe(&test, "lost", json!({"channel": "stable"})).await;
    test.eventually("the failure is reported", async || condition(&test, "lost", "BundleUnpackFailed").await.is_some())
        .await;
    subscribe(&test, "memo", json!({"channel": "stable"})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    assert_eq!(condition(&test, "memo", "BundleUnpackFailed").await, None);
    let (reason, message) = condition(&test, "lost", "BundleUnpackFailed").await.unwrap();
    assert!(reason == "BundleUnpackFailed" && message.starts_with("bundle lost.v1.0.0: "), "{message}");
    assert_eq!(state(&test, "lost.v1.0.0").await, "absent");
}

#[tokio::test(start_paused = true)]
async fn missing_upgrade_path_is_a_condition() {
    let test = setup().start().await;
    begin(&test).await;
    subscribe(&test, "memo", json!({"channel": "stable"})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    let missing = async || condition(&test, "memo", "UpgradePathMissing").await;
    assert_eq!(missing().await, None);
    // Its newest version replaces an older one than the installed one.
    patch(&test.api::<Subscription>(), "memo", json!({"spec": {"channel": "dropping"}})).await;
    test.eventually("the condition is set", async || missing().await.is_some()).await;
    let (reason, message) = missing().await.unwrap();
    assert_eq!(reason, "NoSuccessor");
    let expected = "channel dropping contains memo.v3.0.0, but no upgrade of memo.v2.0.0: ";
    assert!(message.starts_with(expected) && message.ends_with(" with 2.0.0"), "{message}");
    patch(&test.api::<Subscription>(), "memo", json!({"spec": {"channel": "stable"}})).await;
    test.eventually("the condition is removed", async || missing().await.is_none()).await;
}

/// The recorded catalog, and another one whose load takes a minute.
#[derive(Clone)]
struct Slow(Server);

/// The address of the slow catalog.
const SLOW: &str = "slow:50051";
const SLOW_LOAD: Duration = Duration::from_secs(60);

impl CatalogClient for Slow {
    fn load<'c>(
        &'c self,
        location: &'c Location,
        known: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        Box::pin(async move {
            let fast = Location::Grpc { address: ADDRESS.to_owned(), source: String::new() };
            if location.to_string() != fast.to_string() {
                tokio::time::sleep(SLOW_LOAD).await;
            }
            self.0.load(&fast, known).await
        })
    }

    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        secrets: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        self.0.manifests(bundle, secrets)
    }
}

#[tokio::test(start_paused = true)]
async fn first_load_of_a_slow_catalog_holds_up_its_own_subscriptions_only() {
    let test = setup_of(|| Settings::new(Arc::new(Slow(Server::default()))), Isolation::default()).start().await;
    let began = tokio::time::Instant::now();
    begin(&test).await;
    apply(&test, "CatalogSource", "slow", json!({"sourceType": "grpc", "address": SLOW})).await;
    subscribe(&test, "memo", json!({"channel": "stable"})).await;
    subscribe(&test, "worn", json!({"channel": "new", "source": "slow"})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    assert!(began.elapsed() < SLOW_LOAD, "{:?}", began.elapsed());
    let (reason, message) = condition(&test, "worn", "ResolutionFailed").await.unwrap();
    assert_eq!(reason, "ErrorPreventedResolution");
    assert!(message.ends_with("/slow: its first load has not ended"), "{message}");
    until(&test, "worn.v1.1.0", SUCCEEDED).await;
    assert_eq!(condition(&test, "worn", "ResolutionFailed").await, None);
}

#[tokio::test(start_paused = true)]
async fn refused_crd_holds_up_no_other_operator_of_the_plan() {
    for approval in ["Automatic", "Manual"] {
        let test = setup().start().await;
        own_group(&test).await;
        let mut foreign = bundle("memo.v2.0.0").remove(0);
        foreign["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "of others".into();
        test.apply(&foreign.to_string()).await;
        let manual = json!({"channel": "stable", "installPlanApproval": approval});
        subscribe(&test, "memo", manual).await;
        subscribe(&test, "worn", json!({"channel": "new"})).await;
        apply(&test, "CatalogSource", "demo", json!({"sourceType": "grpc", "address": ADDRESS})).await;
        test.eventually("one plan is for both", async || {
            let plans = plans(&test).await;
            plans.first().is_some_and(|plan| plan.spec.cluster_service_version_names.len() == 2)
        })
        .await;
        if approval == "Manual" {
            test.assert_converges().await;
            approve(&test, "memo").await;
        }
        // The approval of the shared plan is one of its parts as well.
        until(&test, "worn.v1.1.0", SUCCEEDED).await;
        test.eventually("the refusal is reported", async || {
            condition(&test, "memo", "InstallPlanFailed").await.is_some()
        })
        .await;
        let (_, message) = condition(&test, "memo", "InstallPlanFailed").await.unwrap();
        assert!(message.contains("was not installed by the lifecycle manager, and differs"), "{message}");
        assert_eq!(state(&test, "memo.v2.0.0").await, "absent");
        assert_eq!(condition(&test, "worn", "InstallPlanFailed").await, None);
        delete(&Api::<CustomResourceDefinition>::all(test.client()), "memos.demo.flyball.dev").await;
        until(&test, "memo.v2.0.0", SUCCEEDED).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tenant_with_subscriptions_only_gains_no_right_in_a_limited_namespace() {
    let test = setup().allows_changes_in("elsewhere").start().await;
    begin(&test).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer"}});
    test.apply(&account.to_string()).await;
    patch(&test.api::<api::OperatorGroup>(), "group", json!({"spec": {"serviceAccountName": "installer"}})).await;
    let rule = PolicyRule {
        api_groups: Some(vec!["operators.coreos.com".into()]),
        resources: Some(vec!["subscriptions".into()]),
        verbs: vec!["*".into()],
        ..PolicyRule::default()
    };
    let tenant = test.account("tenant", &[rule]).await;
    let subscriptions: Api<Subscription> = Api::namespaced(tenant.clone(), test.namespace());
    let wanted = |name: &str, fields: Value| -> Subscription {
        let mut spec = json!({"name": name, "source": "demo", "sourceNamespace": test.namespace()});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        // Annotations of the manager give no way around the account.
        let annotations = json!({"olm.flyball.dev/approved": "memo.v2.0.0", "olm.flyball.dev/rollback": "memo.v2.0.0"});
        let metadata = json!({"name": name, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    // A pod with a file of the node, and a catalog that the namespace does not see.
    let host = json!({"volumes": [{"name": "node", "hostPath": {"path": "/"}}]});
    let memo = json!({"channel": "stable", "installPlanApproval": "Manual"});
    let mut configured = memo.clone();
    configured["config"] = host;
    assert!(subscriptions.create(&PostParams::default(), &wanted("memo", configured)).await.is_err());
    subscriptions.create(&PostParams::default(), &wanted("memo", memo)).await.unwrap();
    namespace(&test, "elsewhere", json!({})).await;
    let foreign = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
        "metadata": {"name": "demo", "namespace": "elsewhere"}, "spec": {"sourceType": "grpc", "address": ADDRESS},
    });
    test.apply(&foreign.to_string()).await;
    let elsewhere = json!({"channel": "new", "sourceNamespace": "elsewhere"});
    subscriptions.create(&PostParams::default(), &wanted("worn", elsewhere)).await.unwrap();

    test.eventually("the plan fails", async || {
        plans(&test).await.first().is_some_and(|plan| plan.status.phase == InstallPlanPhase::Failed)
    })
    .await;
    let (_, message) = condition(&test, "memo", "InstallPlanFailed").await.unwrap();
    assert!(message.contains("is forbidden: User \"system:serviceaccount:test:installer\" cannot"), "{message}");
    let (reason, _) = condition(&test, "worn", "ResolutionFailed").await.unwrap();
    assert_eq!(reason, "ConstraintsNotSatisfiable");
    assert_eq!(state(&test, "memo.v2.0.0").await, "absent");
    assert_eq!(state(&test, "worn.v1.1.0").await, "absent");
    // Nothing was created for the tenant, and the other kinds are not its own.
    let deployments = test.api::<k8s_openapi::api::apps::v1::Deployment>().list(&ListParams::default()).await.unwrap();
    assert!(deployments.items.is_empty());
    let roles: Api<ClusterRole> = Api::all(test.client());
    assert_eq!(names(&roles, "memo.v2.0.0-").await, [""; 0]);
    let plan: Api<InstallPlan> = Api::namespaced(tenant, test.namespace());
    let approve = Patch::Merge(json!({"spec": {"approved": true}}));
    let name = plans(&test).await[0].metadata.name.clone().unwrap();
    let error = plan.patch(&name, &PatchParams::default(), &approve).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
    test.expect_denials();
}
