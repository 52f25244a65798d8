//! Explanations of Subscriptions, over the recorded catalog.

use flyball_lifecycle::api::{
    CatalogSource, ClusterServiceVersion, ClusterServiceVersionPhase as Phase, InstallPlan, InstallPlanPhase,
    OperatorCondition, OperatorGroup, RequirementState, RequirementStatus, Subscription,
};
use flyball_lifecycle::content::{Blobs, Content};
use flyball_lifecycle::diagnosis::{Cause, Diagnosis, Severity, Snapshot, diagnose, diagnose_csv};
use flyball_lifecycle::source::{Loaded, read_folder};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

fn content() -> Arc<Content> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/behavior/catalog/fbc");
    Arc::new(Content::new(Blobs::parse(&read_folder(&folder).unwrap()).unwrap()))
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Returns a namespace with a catalog, an OperatorGroup and Subscriptions.
fn snapshot(subscriptions: &[Subscription]) -> Snapshot {
    let source: CatalogSource = object(json!({"metadata": {"name": "demo", "namespace": "olm", "uid": "1"}}));
    let group: OperatorGroup = object(json!({"metadata": {"name": "group", "namespace": "ns"}}));
    Snapshot {
        namespace: "ns".into(),
        global_namespace: "olm".into(),
        subscriptions: subscriptions.to_vec(),
        groups: vec![group],
        catalogs: vec![(source, Ok(Loaded { content: content(), revision: "1".into() }))],
        ..Snapshot::default()
    }
}

fn subscription(package: &str, channel: &str, installed: &str) -> Subscription {
    object(json!({
        "metadata": {"name": package, "namespace": "ns"},
        "spec": {"name": package, "channel": channel, "source": "demo", "sourceNamespace": "olm"},
        "status": {"currentCSV": installed, "installedCSV": installed},
    }))
}

/// Returns a ClusterServiceVersion of the catalog that has succeeded.
fn csv(package: &str, name: &str) -> ClusterServiceVersion {
    let content = content();
    let manifests = content.bundle(package, name).unwrap().manifests().unwrap().unwrap();
    let mut csv: ClusterServiceVersion = object(manifests.csv().clone());
    csv.metadata.namespace = Some("ns".into());
    csv.status.phase = Phase::Succeeded;
    csv
}

fn explain(snapshot: &Snapshot, name: &str) -> Diagnosis {
    diagnose(snapshot, name).unwrap()
}

fn verdicts(diagnosis: &Diagnosis) -> Vec<String> {
    let selection = diagnosis.selection.as_ref().unwrap();
    selection.candidates.iter().map(|of| format!("{}: {}", of.name, of.verdict)).collect()
}

#[test]
fn first_version_is_the_newest_of_the_channel() {
    let diagnosis = explain(&snapshot(&[subscription("memo", "stable", "")]), "memo");
    let next = diagnosis.selection.as_ref().unwrap().next.as_ref().unwrap();
    assert_eq!((&*next.name, &*next.because), ("memo.v2.0.0", "newest possible version of channel stable"));
    assert_eq!(
        verdicts(&diagnosis),
        [
            "memo.v2.0.0: newest possible version of channel stable",
            "memo.v1.1.0: older than the chosen version",
            "memo.v1.0.0: older than the chosen version"
        ]
    );
    assert!(diagnosis.healthy, "{diagnosis:?}");
}

#[test]
fn upgrade_goes_step_by_step() {
    let mut snapshot = snapshot(&[subscription("memo", "stable", "memo.v1.0.0")]);
    snapshot.csvs = vec![csv("memo", "memo.v1.0.0")];
    assert_eq!(
        verdicts(&explain(&snapshot, "memo")),
        [
            "memo.v2.0.0: no direct upgrade: replaces memo.v1.1.0, not memo.v1.0.0",
            "memo.v1.1.0: replaces memo.v1.0.0",
            "memo.v1.0.0: installed"
        ]
    );
    snapshot.subscriptions[0].spec.channel = "candidate".into();
    assert_eq!(verdicts(&explain(&snapshot, "memo")), ["memo.v2.1.0: its skipRange includes 1.0.0"]);
}

#[test]
fn pins_exclude_versions() {
    let mut pinned = subscription("memo", "stable", "");
    pinned.metadata.annotations =
        Some([("olm.flyball.dev/versions".to_owned(), "<2.0.0".to_owned())].into_iter().collect());
    let diagnosis = explain(&snapshot(&[pinned]), "memo");
    assert_eq!(
        verdicts(&diagnosis)[..2],
        [
            "memo.v2.0.0: excluded by the versions of the Subscription",
            "memo.v1.1.0: newest possible version of channel stable"
        ]
    );
    assert_eq!(diagnosis.causes.len(), 1);
    assert_eq!(diagnosis.causes[0].message, "only versions <2.0.0 are installed");
    assert!(diagnosis.healthy);
}

#[test]
fn dependencies_are_listed_with_the_bundle_that_meets_them() {
    let diagnosis = explain(&snapshot(&[subscription("front", "stable", "")]), "front");
    let requirements = &diagnosis.selection.as_ref().unwrap().requirements;
    assert!(!requirements.is_empty() && requirements.iter().all(|of| !of.met_by.is_empty()), "{requirements:?}");
    assert_eq!(requirements[0].bundle, "front.v1.0.0");
}

#[test]
fn unsatisfiable_requirement_is_named_with_a_remedy() {
    let diagnosis = explain(&snapshot(&[subscription("broken", "stable", "")]), "broken");
    assert!(!diagnosis.healthy);
    let selection = diagnosis.selection.as_ref().unwrap();
    assert_eq!(
        selection.facts,
        [
            "subscription broken requires demo/olm/stable/broken.v1.0.0",
            "bundle broken.v1.0.0 requires an operator providing an API with group: demo.flyball.dev, version: v1, \
             kind: Ghost, which no visible catalog has"
        ]
    );
    assert_eq!(selection.remedies.len(), 1);
    assert!(selection.remedies[0].starts_with("add a catalog with an operator providing"), "{selection:?}");
    assert_eq!(diagnosis.causes[0].severity, Severity::Blocking);
}

#[test]
fn remedies_were_tried() {
    let diagnosis = explain(&snapshot(&[subscription("memo", "stabel", "")]), "memo");
    let selection = diagnosis.selection.as_ref().unwrap();
    assert_eq!(
        selection.facts,
        ["no operators found in channel stabel of package memo in the catalog referenced by subscription memo"]
    );
    assert_eq!(
        selection.remedies,
        [
            "set spec.channel: candidate",
            "set spec.channel: dropping",
            "set spec.channel: stable",
            "set spec.channel: strict"
        ]
    );
    let mut missing = subscription("memos", "stable", "");
    missing.metadata.name = Some("memo".into());
    let diagnosis = explain(&snapshot(&[missing]), "memo");
    let remedies = &diagnosis.selection.as_ref().unwrap().remedies;
    assert!(remedies[0].starts_with("correct spec.name; the catalog has the packages memo, "), "{remedies:?}");
}

fn blocking(diagnosis: &Diagnosis) -> Vec<&Cause> {
    diagnosis.causes.iter().filter(|cause| cause.severity != Severity::Notice).collect()
}

#[test]
fn missing_group_catalog_and_approval_are_named() {
    let mut without_group = snapshot(&[subscription("memo", "stable", "")]);
    without_group.groups.clear();
    let diagnosis = explain(&without_group, "memo");
    assert_eq!(blocking(&diagnosis)[0].object, "Namespace ns");
    assert!(diagnosis.causes[0].message.contains("has no OperatorGroup"), "{diagnosis:?}");

    let mut dead = snapshot(&[subscription("memo", "stable", "")]);
    dead.catalogs[0].1 = Err("connection refused".into());
    let diagnosis = explain(&dead, "memo");
    assert_eq!(blocking(&diagnosis)[0].object, "CatalogSource olm/demo");
    assert!(diagnosis.selection.is_none());

    let mut elsewhere = subscription("memo", "stable", "");
    elsewhere.spec.source = "other".into();
    let diagnosis = explain(&snapshot(&[elsewhere]), "memo");
    assert_eq!(blocking(&diagnosis)[0].message, "CatalogSource olm/other does not exist");
    assert_eq!(blocking(&diagnosis)[0].remedy, "set spec.source: demo and spec.sourceNamespace: olm");

    let mut waiting = subscription("memo", "stable", "");
    waiting.status.current_csv = "memo.v2.0.0".into();
    waiting.status.install_plan_ref = Some(object(json!({"name": "install-1"})));
    let mut snapshot = snapshot(&[waiting]);
    let mut plan: InstallPlan = object(json!({
        "metadata": {"name": "install-1"},
        "spec": {"clusterServiceVersionNames": ["memo.v2.0.0"], "approval": "Manual"},
    }));
    plan.status.phase = InstallPlanPhase::RequiresApproval;
    snapshot.plans = vec![plan];
    let diagnosis = explain(&snapshot, "memo");
    let cause = blocking(&diagnosis)[0];
    assert_eq!((cause.severity, &*cause.field), (Severity::Waiting, "spec.approved"));
    assert_eq!(cause.remedy, "flyball olm approve memo -n ns");
}

#[test]
fn plan_that_is_tried_again_blocks() {
    let mut subscribed = subscription("memo", "stable", "");
    subscribed.status.current_csv = "memo.v2.0.0".into();
    subscribed.status.install_plan_ref = Some(object(json!({"name": "install-1"})));
    let mut snapshot = snapshot(&[subscribed]);
    let mut plan: InstallPlan = object(json!({"metadata": {"name": "install-1"}, "spec": {"approval": "Automatic"}}));
    plan.status.phase = InstallPlanPhase::Installing;
    snapshot.plans = vec![plan];
    let severity = |snapshot: &Snapshot| explain(snapshot, "memo").causes[0].severity;
    assert_eq!(severity(&snapshot), Severity::Waiting);
    snapshot.plans[0].status.message = "retrying execution due to error: Role memo is refused".into();
    assert_eq!(severity(&snapshot), Severity::Blocking);
    assert_eq!(explain(&snapshot, "memo").causes[0].message, "Role memo is refused");
}

#[test]
fn catalog_that_the_user_may_not_read_is_a_notice() {
    let mut subscribed = subscription("memo", "stable", "");
    let failed = json!({"type": "ResolutionFailed", "status": "True", "reason": "ConstraintsNotSatisfiable",
        "message": "no operators found in channel stable"});
    let mut hidden = snapshot(&[subscribed.clone()]);
    hidden.catalogs[0].1 = Err("not permitted to read it".into());
    hidden.hidden_catalogs.insert("olm/demo".into());
    let diagnosis = explain(&hidden, "memo");
    assert!(diagnosis.healthy && diagnosis.selection.is_none(), "{diagnosis:?}");
    assert!(diagnosis.causes[0].remedy.contains("--catalog demo=REF"), "{diagnosis:?}");
    // The manager has read it.
    subscribed.status.conditions = vec![object(failed)];
    hidden.subscriptions = vec![subscribed];
    let diagnosis = explain(&hidden, "memo");
    let cause = blocking(&diagnosis)[0];
    assert_eq!(cause.message, "ConstraintsNotSatisfiable: no operators found in channel stable");
}

#[test]
fn bundle_that_cannot_be_unpacked_blocks() {
    let mut subscribed = subscription("memo", "stable", "");
    subscribed.status.conditions = vec![object(json!({"type": "BundleUnpackFailed", "status": "True", "reason": "",
        "message": "the image cannot be pulled"}))];
    let diagnosis = explain(&snapshot(&[subscribed]), "memo");
    let cause = blocking(&diagnosis)[0];
    assert_eq!((cause.severity, &*cause.message), (Severity::Blocking, "the image cannot be pulled"));
    assert!(cause.remedy.contains("flyball olm pin memo VERSION -n ns"), "{cause:?}");
}

#[test]
fn operator_that_is_not_ready_is_explained() {
    let mut snapshot = snapshot(&[subscription("memo", "stable", "memo.v1.1.0")]);
    let mut new = csv("memo", "memo.v1.1.0");
    new.spec.replaces = "memo.v1.0.0".into();
    (new.status.phase, new.status.reason) = (Phase::Pending, "OperatorConditionNotUpgradeable".into());
    snapshot.csvs = vec![new];
    let condition: OperatorCondition = object(json!({
        "metadata": {"name": "memo.v1.0.0", "namespace": "ns"},
        "spec": {"conditions": [
            {"type": "Upgradeable", "status": "False", "reason": "Busy", "message": "a migration runs"},
        ]},
    }));
    snapshot.conditions = vec![condition];
    let causes = diagnose_csv(&snapshot, "memo.v1.1.0").unwrap();
    assert_eq!(causes[0].object, "OperatorCondition ns/memo.v1.0.0");
    assert_eq!(causes[0].message, "memo.v1.0.0 is not upgradeable to memo.v1.1.0: Busy: a migration runs");

    let unmet = RequirementStatus {
        kind: "CustomResourceDefinition".into(),
        name: "ghosts.demo.flyball.dev".into(),
        status: RequirementState::NotPresent,
        message: "CRD is not present".into(),
        ..RequirementStatus::default()
    };
    let status = &mut snapshot.csvs[0].status;
    (status.reason, status.requirement_status) = ("RequirementsNotMet".into(), vec![unmet]);
    let causes = diagnose_csv(&snapshot, "memo.v1.1.0").unwrap();
    assert_eq!(causes[0].object, "CustomResourceDefinition ghosts.demo.flyball.dev");
    assert_eq!(causes[0].remedy, "install an operator that provides ghosts.demo.flyball.dev");
    assert!(diagnose_csv(&snapshot, "other").is_none() && diagnose(&snapshot, "other").is_none());
}

#[test]
fn missing_catalog_is_named_once() {
    let mut elsewhere = subscription("memo", "stable", "");
    elsewhere.spec.source = "other".into();
    let diagnosis = explain(&snapshot(&[elsewhere.clone()]), "memo");
    assert_eq!(blocking(&diagnosis).len(), 1, "{diagnosis:?}");
    assert_eq!(diagnosis.causes[0].remedy, "set spec.source: demo and spec.sourceNamespace: olm");
    assert!(diagnosis.selection.is_none());
    elsewhere.spec.package = "unknown".into();
    let diagnosis = explain(&snapshot(&[elsewhere]), "memo");
    assert_eq!(blocking(&diagnosis)[0].remedy, "use one of olm/demo");
}

#[test]
fn untrusted_content_has_its_own_remedy() {
    let mut untrusted = snapshot(&[subscription("memo", "stable", "")]);
    untrusted.catalogs[0].0 = object(json!({
        "metadata": {"name": "demo", "namespace": "olm", "uid": "1"},
        "spec": {"sourceType": "internal", "configMap": "content"}, "status": {"reason": "UntrustedContent"},
    }));
    untrusted.catalogs[0].1 = Err("ConfigMap olm/content lacks the label".into());
    let remedy = |snapshot: &Snapshot| blocking(&explain(snapshot, "memo"))[0].remedy.clone();
    let command = "kubectl label configmap content -n olm olm.flyball.dev/catalog=true";
    assert!(remedy(&untrusted).ends_with(command), "{}", remedy(&untrusted));
    untrusted.catalogs[0].0.status.reason.clear();
    assert!(remedy(&untrusted).starts_with("check spec.configMap"), "{}", remedy(&untrusted));
    untrusted.catalogs[0].0.spec.source_type = "grpc".into();
    assert!(remedy(&untrusted).starts_with("check that its address"), "{}", remedy(&untrusted));
}

#[test]
fn supported_install_modes_are_the_remedy() {
    let mut snapshot = snapshot(&[subscription("memo", "stable", "memo.v1.1.0")]);
    let mut unsupported = csv("memo", "memo.v1.1.0");
    (unsupported.status.phase, unsupported.status.reason) = (Phase::Failed, "UnsupportedOperatorGroup".into());
    unsupported.spec.install_modes =
        object(json!([{"type": "OwnNamespace", "supported": true}, {"type": "AllNamespaces", "supported": false}]));
    snapshot.csvs = vec![unsupported];
    assert_eq!(
        diagnose_csv(&snapshot, "memo.v1.1.0").unwrap()[0].remedy,
        "change OperatorGroup ns/group: the operator supports OwnNamespace (spec.targetNamespaces: [ns])"
    );
}
