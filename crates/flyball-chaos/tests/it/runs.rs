//! Experiments on a control plane: injected, judged, and undone.

use crate::stage::{Behavior, Folder, NAMESPACE, PASSWORD, Stage, limits, selection, site};
use flyball_chaos::{
    Change, Cluster, Error, Event, Experiment, Fault, Journal, ObjectName, Operator, Outcome, Run, Verdict,
    check_cluster, plan, protect, suite, undo, upgrade,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

fn object(kind: &str, name: &str) -> ObjectName {
    ObjectName { group: None, kind: kind.to_owned(), namespace: None, name: name.to_owned() }
}

fn label() -> Fault {
    Fault::LabelStomping { object: object("ConfigMap", "blog"), label: "site".to_owned(), value: None }
}

fn experiment(name: &str, fault: Fault) -> Experiment {
    Experiment::new(name, fault)
}

async fn outcome(behavior: Behavior, fault: Fault) -> Outcome {
    let (stage, folder) = (Stage::start(behavior).await, Folder::new());
    let mut journal = folder.journal();
    let report = stage.run(&mut journal, &[experiment("one", fault)]).await;
    assert_eq!(journal.close().unwrap(), None, "{report:#?}");
    report.outcomes[0].clone()
}

#[tokio::test(start_paused = true)]
async fn resilient_operator_passes_the_whole_suite() {
    let (stage, folder) = (Stage::start(Behavior::Correct).await, Folder::new());
    let cluster = stage.connect().await;
    let operator = Operator::find(&cluster, &selection()).await.unwrap();
    let experiments = suite(&operator);
    let before = stage.state().await;
    let mut journal = folder.journal();
    let report = stage.run(&mut journal, &experiments).await;
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    for outcome in &report.outcomes {
        assert_eq!(outcome.verdict, Verdict::Resilient, "{outcome:#?}");
        assert!(!outcome.changes.is_empty() && outcome.undo_error.is_none(), "{outcome:#?}");
    }
    let faults: Vec<&str> = report.outcomes.iter().map(|outcome| outcome.fault.as_str()).collect();
    for fault in [
        "PodKill",
        "FieldDrift",
        "ConfigDrift",
        "LabelStomping",
        "OwnerRefOrphan",
        "FinalizerBlock",
        "ResourceDeletion",
        "SecretDeletion",
        "LeaderElectionDisrupt",
        "NetworkPartition",
        "QuotaExhaustion",
        "PDBBlock",
        "RBACRevoke",
        "WriteRejection",
        "WebhookLatency",
        "WebhookDisrupt",
        "DeploymentScaleZero",
        "ImageCorrupt",
        "CrashLoopInject",
    ] {
        assert!(faults.contains(&fault), "{fault}: {faults:?}");
    }
    for (name, effect) in [
        ("network-partition", "ConfigMap sites-system/blog: /metadata/labels/site differs"),
        ("rbac-revoked", "ConfigMap sites-system/blog: /metadata/labels/site differs"),
        ("scaled-to-zero", "Deployment sites-system/sites is scaled to zero"),
        ("quota-exhausted", "Deployment sites-system/sites has 0 of 1 pods ready"),
        ("configmap-deletion-blocked", "ConfigMap sites-system/blog: /metadata/isDeleted differs"),
    ] {
        let found = report.outcomes.iter().find(|outcome| outcome.name == name).unwrap();
        assert!(found.effects.iter().any(|text| text == effect), "{found:#?}");
    }
    assert_eq!(journal.close().unwrap(), None);
    let after = stage.state().await;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
    assert!(!json!(report).to_string().contains(PASSWORD));
}

#[tokio::test(start_paused = true)]
async fn operator_that_repairs_nothing_fails_and_is_undone() {
    let failed = outcome(Behavior::OnlyCreates, label()).await;
    assert_eq!(failed.verdict, Verdict::Failed);
    assert_eq!(
        failed.reasons,
        ["not repaired by the operator", "ConfigMap sites-system/blog: /metadata/labels/site differs"]
    );
}

#[tokio::test(start_paused = true)]
async fn late_repair_is_degraded() {
    let late = outcome(Behavior::Late, label()).await;
    assert_eq!(late.verdict, Verdict::Degraded, "{late:#?}");
    assert!(late.recovery_seconds > Some(Duration::from_secs(15)), "{late:#?}");
}

#[tokio::test(start_paused = true)]
async fn replaced_children_are_degraded() {
    let degraded = outcome(Behavior::Recreates, Fault::PodKill { all: true }).await;
    assert_eq!(degraded.verdict, Verdict::Degraded, "{degraded:#?}");
    assert_eq!(degraded.reasons, ["Secret sites-system/blog was deleted and created again"]);
}

#[tokio::test(start_paused = true)]
async fn signals_and_panics_are_followed_by_the_undo() {
    let (stage, folder) = (Stage::start(Behavior::Correct).await, Folder::new());
    let cluster = stage.connect().await;
    let before = stage.state().await;
    let experiments =
        [experiment("revoke", Fault::RBACRevoke { binding: None }), experiment("scale", Fault::DeploymentScaleZero {})];

    let operator = Operator::find(&cluster, &selection()).await.unwrap();
    let (signal, mut journal) = (Arc::new(Notify::new()), folder.journal());
    let sender = signal.clone();
    let mut listener = move |event: Event<'_>| {
        if matches!(event, Event::Injected) {
            sender.notify_one();
        }
    };
    let run = Run::new(&cluster, operator, limits(), &mut listener);
    let report = run.run(&mut journal, &experiments, async move { signal.notified().await }).await;
    assert!(report.interrupted && report.outcomes.len() == 1, "{report:#?}");
    assert_eq!(report.outcomes[0].reasons, ["interrupted"]);
    assert!(!report.outcomes[0].changes.is_empty());
    assert_eq!(journal.close().unwrap(), None);
    assert_eq!(stage.state().await, before);

    let operator = Operator::find(&cluster, &selection()).await.unwrap();
    let (panicked, mut journal) = (AtomicBool::new(false), folder.journal());
    let mut listener = move |event: Event<'_>| {
        if matches!(event, Event::Injected) && !panicked.swap(true, Ordering::Relaxed) {
            panic!("a defect of this program");
        }
    };
    let run = Run::new(&cluster, operator, limits(), &mut listener);
    let report = run.run(&mut journal, &experiments, std::future::pending()).await;
    let verdicts: Vec<Verdict> = report.outcomes.iter().map(|outcome| outcome.verdict).collect();
    assert_eq!(verdicts, [Verdict::Inconclusive, Verdict::Resilient], "{report:#?}");
    assert_eq!(report.outcomes[0].reasons, ["a panic of this program"]);
    assert_eq!(journal.close().unwrap(), None);
    assert_eq!(stage.state().await, before);
}

/// Runs an experiment whose future is dropped in the middle of the fault, without an undo.
async fn run_and_die(cluster: &Cluster, operator: Operator, journal: &mut Journal, experiment: Experiment) {
    let injected = Arc::new(Notify::new());
    let sender = injected.clone();
    let mut listener = move |event: Event<'_>| {
        if matches!(event, Event::Injected) {
            sender.notify_one();
        }
    };
    let (run, experiments) = (Run::new(cluster, operator, limits(), &mut listener), [experiment]);
    tokio::select! {
        report = run.run(journal, &experiments, std::future::pending()) => panic!("{report:#?}"),
        () = async { injected.notified().await; sleep(Duration::from_secs(6)).await; } => {}
    }
}

#[tokio::test(start_paused = true)]
async fn undo_after_the_death_of_the_process_restores_everything() {
    let (stage, folder) = (Stage::start(Behavior::OnlyCreates).await, Folder::new());
    let cluster = stage.connect().await;
    let before = stage.state().await;
    for fault in [
        label(),
        Fault::OwnerRefOrphan { object: object("Secret", "blog") },
        Fault::FinalizerBlock { object: object("ConfigMap", "blog") },
        Fault::RBACRevoke { binding: None },
        Fault::NetworkPartition {},
        Fault::WriteRejection { operations: vec!["CREATE".to_owned()] },
        Fault::QuotaExhaustion {},
        Fault::DeploymentScaleZero {},
        Fault::CrashLoopInject { container: None },
        Fault::WebhookDisrupt { action: flyball_chaos::WebhookAction::Remove, name: None },
    ] {
        let name = fault.name();
        {
            let operator = Operator::find(&cluster, &selection()).await.unwrap();
            let mut journal = folder.journal();
            run_and_die(&cluster, operator, &mut journal, experiment("one", fault)).await;
        }
        let mut journal = Journal::open(&folder.path()).unwrap();
        assert!(journal.state().entries.iter().any(|entry| entry.experiment == "one"), "{name}");
        undo(&cluster, &mut journal, 0).await.unwrap();
        assert_eq!(journal.close().unwrap(), None, "{name}");
        // The operator creates what is missing.
        sleep(Duration::from_secs(10)).await;
        let after = stage.state().await;
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before, after, "{name}");
        }
        assert_eq!(before.len(), after.len(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_others_survive_the_undo() {
    let (stage, folder) = (Stage::start(Behavior::OnlyCreates).await, Folder::new());
    let cluster = stage.connect().await;
    let operator = Operator::find(&cluster, &selection()).await.unwrap();
    let fault = Fault::ConfigDrift { name: "blog".into(), namespace: None, key: "title".into(), value: "x".into() };
    {
        let mut journal = folder.journal();
        run_and_die(&cluster, operator, &mut journal, experiment("one", fault)).await;
    }
    let maps = crate::stage::api(&stage.admin, "v1", "ConfigMap", Some(NAMESPACE));
    let edited = maps.get("blog").await.unwrap();
    assert_eq!(edited.data["data"]["title"], "x");
    assert!(edited.metadata.annotations.as_ref().unwrap()[flyball_chaos::UNDO_ANNOTATION].contains("Hello"));
    let patch = kube::api::Patch::Merge(json!({"data": {"title": "by a person", "other": "y"}}));
    maps.patch("blog", &kube::api::PatchParams::default(), &patch).await.unwrap();

    let mut journal = Journal::open(&folder.path()).unwrap();
    let notes = undo(&cluster, &mut journal, 0).await.unwrap();
    assert_eq!(notes, ["ConfigMap sites-system/blog: /data/title has a value of another client, which stays"]);
    let after = maps.get("blog").await.unwrap();
    assert_eq!(after.data["data"], json!({"title": "by a person", "other": "y"}));
    assert_eq!(after.metadata.annotations, None);
}

#[tokio::test(start_paused = true)]
async fn objects_of_others_are_refused() {
    let stage = Stage::start(Behavior::Correct).await;
    for object in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "others", "namespace": "default"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": NAMESPACE,
            "annotations": {"kubernetes.io/service-account.name": "sites"}},
            "type": "kubernetes.io/service-account-token"}),
    ] {
        stage.create(&object).await;
    }
    let cluster = stage.connect().await;
    let operator = Operator::find(&cluster, &selection()).await.unwrap();
    let mut others = object("ConfigMap", "others");
    others.namespace = Some("default".to_owned());
    let drift = |object: ObjectName, path: &str| Fault::FieldDrift { object, path: path.to_owned(), value: None };
    for (fault, expected) in [
        (drift(others, "/data"), "belongs to another"),
        (drift(object("ConfigMap", "kube-root-ca.crt"), "/data/ca.crt"), "belongs to another"),
        (drift(object("Secret", "blog"), "/data/password"), "contents of Secrets are not read"),
        (Fault::ResourceDeletion { object: object("Secret", "blog") }, "use SecretDeletion"),
        (Fault::ResourceDeletion { object: object("Site", "blog") }, "is a custom resource"),
        (Fault::ResourceDeletion { object: object("Pod", "none") }, "does not exist"),
        (Fault::SecretDeletion { name: "token".into(), namespace: None }, "is the token of a service account"),
        (Fault::RBACRevoke { binding: Some("cluster-admin".into()) }, "no binding names the service account"),
        (drift(object("Deployment", "../../nodes"), "/spec/replicas"), "no path can contain"),
    ] {
        let error = plan(&cluster, &operator, &experiment("one", fault), "r1").await.unwrap_err();
        assert!(error.text().contains(expected), "{expected}: {}", error.text());
    }
    // Another workload with the same account.
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "other", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "other"}}, "template": {"metadata": {"labels": {"app": "other"}},
            "spec": {"serviceAccountName": "sites", "containers": [{"name": "a", "image": "b"}]}}}});
    stage.create(&deployment).await;
    let operator = Operator::find(&cluster, &selection()).await.unwrap();
    for fault in [Fault::RBACRevoke { binding: None }, Fault::QuotaExhaustion {}] {
        let error = plan(&cluster, &operator, &experiment("one", fault), "r1").await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn marked_clusters_and_namespaces_are_refused() {
    let stage = Stage::start(Behavior::Correct).await;
    let cluster = stage.connect().await;
    let uid = check_cluster(&cluster, [NAMESPACE]).await.unwrap();
    assert!(!uid.is_empty());
    for namespace in ["kube-system", "openshift-operators", "none"] {
        assert!(check_cluster(&cluster, [namespace]).await.is_err(), "{namespace}");
    }
    for namespace in [NAMESPACE, "kube-system"] {
        assert!(protect(&cluster, namespace, true).await.unwrap());
        assert!(!protect(&cluster, namespace, true).await.unwrap());
        let error = check_cluster(&cluster, [NAMESPACE]).await.unwrap_err();
        assert!(error.text().contains("chaos.flyball.dev/protected"), "{}", error.text());
        assert!(protect(&cluster, namespace, false).await.unwrap());
    }
    check_cluster(&cluster, [NAMESPACE]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hostile_contents_reach_neither_reports_nor_decisions() {
    let (stage, folder) = (Stage::start(Behavior::OnlyCreates).await, Folder::new());
    let mut hostile = site("evil");
    hostile["spec"]["title"] = json!("\u{1b}[2J\u{202e}$(reboot)");
    hostile["metadata"]["annotations"] = json!({"chaos.flyball.dev/experiment": "r9/\u{1b}[2Jx",
        "chaos.flyball.dev/undo": "[{\"edit\": \"field\", \"path\": \"/spec\"}]"});
    stage.create(&hostile).await;
    sleep(Duration::from_secs(5)).await;
    let drift =
        Fault::FieldDrift { object: object("Site", "evil"), path: "/spec/title".into(), value: Some(json!("a")) };
    let key = Fault::ConfigDrift { name: "evil".into(), namespace: None, key: "title".into(), value: "a".into() };
    let mut journal = folder.journal();
    let report = stage.run(&mut journal, &[experiment("marked", drift), experiment("key", key)]).await;
    assert_eq!(report.outcomes[0].verdict, Verdict::Skipped, "{report:#?}");
    assert!(report.outcomes[0].reasons[0].contains("is part of the experiment r9/\u{fffd}[2Jx"), "{report:#?}");
    assert_eq!(report.outcomes[1].verdict, Verdict::Failed);
    let text = json!(report).to_string();
    for part in ["\\u001b", "\u{202e}", "reboot"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    let map = stage.get("v1", "ConfigMap", Some(NAMESPACE), "evil").await.unwrap();
    assert_eq!(map["data"]["title"], "\u{1b}[2J\u{202e}$(reboot)", "restored as it was");
    assert_eq!(journal.close().unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn secrets_are_in_the_state_file_only_if_named() {
    let (stage, folder) = (Stage::start(Behavior::OnlyCreates).await, Folder::new());
    let cluster = stage.connect().await;
    for (fault, expected) in [
        (Fault::LabelStomping { object: object("Secret", "blog"), label: "site".into(), value: None }, false),
        (Fault::SecretDeletion { name: "blog".into(), namespace: None }, true),
    ] {
        let operator = Operator::find(&cluster, &selection()).await.unwrap();
        let mut journal = folder.journal();
        let path = folder.path();
        let content = Arc::new(std::sync::Mutex::new(String::new()));
        let recorded = content.clone();
        let mut listener = move |event: Event<'_>| {
            if matches!(event, Event::Injected) {
                recorded.lock().unwrap().push_str(&std::fs::read_to_string(&path).unwrap());
            }
        };
        let run = Run::new(&cluster, operator, limits(), &mut listener);
        let report = run.run(&mut journal, &[experiment("one", fault)], std::future::pending()).await;
        assert!(content.lock().unwrap().contains("\"experiment\":\"one\""), "{report:#?}");
        assert_eq!(content.lock().unwrap().contains(PASSWORD), expected);
        assert!(!json!(report).to_string().contains(PASSWORD));
        assert_eq!(journal.close().unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn upgrades_are_rolled_out_and_back() {
    let (stage, folder) = (Stage::start(Behavior::Correct).await, Folder::new());
    let cluster = stage.connect().await;
    let operator = Operator::find(&cluster, &selection()).await.unwrap();
    let before = stage.state().await;
    let mut next = stage.get("apps/v1", "Deployment", Some(NAMESPACE), "sites").await.unwrap();
    next["spec"]["template"]["spec"]["containers"][0]["image"] = json!("sites:2");
    let manifests = [next.clone()];
    let found = upgrade(&operator, &manifests);
    let names: Vec<&str> = found.experiments.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        ["upgrade", "upgrade-interrupted", "upgrade-without-webhooks-sites", "upgrade-without-binding-sites"]
    );
    let mut journal = folder.journal();
    let report = stage.run(&mut journal, &found.experiments).await;
    for outcome in &report.outcomes {
        assert_eq!(outcome.verdict, Verdict::Resilient, "{outcome:#?}");
    }
    let effect = "Deployment sites-system/sites: /spec/template/spec/containers/0/image differs";
    assert!(report.outcomes[0].effects.iter().any(|text| text == effect), "{report:#?}");
    assert_eq!(journal.close().unwrap(), None);
    assert_eq!(stage.state().await, before);

    next["metadata"]["name"] = json!("sites-controller");
    let renamed = upgrade(&operator, &[next.clone()]);
    assert_eq!(renamed.experiments[0].spec.fault, Fault::PodKill { all: true });
    next["metadata"] = json!({"name": "sites", "namespace": "elsewhere"});
    assert_eq!(upgrade(&operator, &[next]).experiments[0].spec.fault, Fault::NetworkPartition {});
}

#[tokio::test(start_paused = true)]
async fn plans_change_nothing() {
    let stage = Stage::start(Behavior::Correct).await;
    let cluster = stage.connect().await;
    let operator = Operator::find(&cluster, &selection()).await.unwrap();
    let before = stage.state().await;
    for experiment in suite(&operator) {
        let planned = plan(&cluster, &operator, &experiment, "r1").await.unwrap();
        assert!(!planned.changes.is_empty(), "{experiment:?}");
        for change in &planned.changes {
            let text = json!(change).to_string();
            let read: Change = serde_json::from_str::<Value>(&text).map(serde_json::from_value).unwrap().unwrap();
            assert_eq!(read, *change);
        }
    }
    assert_eq!(stage.state().await, before);
}
