//! Tests of the test harness for operators.

use demovolume::api::demovolume_v1::{DemoVolume, DemoVolumeSpec};
use demovolume::controllers::demovolume::controller;
use flyball::webhook::{AdmissionRequest, Verdict, Webhook};
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use flyball_cluster::testing::{Test, explore_crashes};
use flyball_cluster::{
    Cluster, Controllers, Endpoint, Faults, Launch, Options, Program, ProgramState, RunningContainer, StartError,
    StartResult,
};
use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const VOLUME: &str = "
apiVersion: demo.flyball.dev/v1
kind: DemoVolume
metadata: {name: films}
spec: {name: films, size: 3}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: at-once}
provisioner: flyball.dev/simulated
";

fn volumes() -> Operator {
    Operator::new("volumes").crd(DemoVolume::crd()).controller(controller())
}

fn permissions<T: ToString>(of: impl IntoIterator<Item = T>) -> Vec<String> {
    of.into_iter().map(|permission| permission.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn sample_operator_converges_idempotently_with_declared_permissions() {
    let mut test = Test::of(volumes).start().await;
    test.apply(VOLUME).await;
    test.eventually("a claim", async || test.api::<PersistentVolumeClaim>().get_opt("films").await.unwrap().is_some())
        .await;
    test.assert_converges().await;
    let unused = permissions(test.unused_permissions());
    assert!(unused.contains(&"delete persistentvolumeclaims".to_owned()), "{unused:?}");
    let is_needed = |permission: &String| {
        permission.starts_with("watch")
            || permission.contains("/finalizers")
            || permission == "create persistentvolumeclaims"
    };
    assert!(!unused.iter().any(is_needed), "{unused:?}");

    let before = test.requests();
    test.assert_idempotent().await;
    assert!(test.requests().since(&before).total > 0, "it was restarted, and so has listed again");
    assert_eq!(test.denials(), []);
}

#[tokio::test(start_paused = true)]
async fn operator_converges_after_a_crash_during_faults() {
    let faults = Faults {
        conflict: 0.2,
        server_error: 0.2,
        lost_response: 0.2,
        broken_watch: 0.05,
        late: 0.2,
        repeated: 0.1,
        expired: 0.2,
        slow: 0.2,
    };
    for seed in 0..5 {
        let mut test = Test::of(volumes).seed(seed).faults(faults).start().await;
        test.apply(VOLUME).await;
        test.crash().await;
        let claims = test.api::<PersistentVolumeClaim>();
        let _ = claims.delete("films", &DeleteParams::default()).await;
        test.restart().await;
        let status = async || {
            let volume = test.api::<DemoVolume>().get("films").await.unwrap();
            volume.status.unwrap_or_default().name == "films"
        };
        test.eventually("a status", status).await;
        test.eventually("a claim", async || claims.get_opt("films").await.unwrap().is_some()).await;
    }
}

/// Runs a test of this binary in another process, with an environment variable that names a file.
fn run(test: &str, variable: &str, file: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(variable, file).output().unwrap()
}

#[tokio::test]
async fn test_runs_unchanged_on_an_external_cluster() {
    let endpoint = Endpoint::bind(0, &Clock::system()).await.unwrap();
    let cluster = Cluster::new(Options::system().unwrap()).with_certificate(endpoint.certificate());
    let kubeconfig = std::env::temp_dir().join(format!("flyball-testing-{}.json", std::process::id()));
    std::fs::write(&kubeconfig, endpoint.kubeconfig("elsewhere").to_string()).unwrap();
    let admin = cluster.admin();
    let running = cluster.clone();
    tokio::spawn(async move { running.run(&Controllers::all()).await });
    tokio::spawn(async move { endpoint.serve(&cluster, std::future::pending()).await });

    let test = "testing::sample_operator_converges_idempotently_with_declared_permissions";
    let named = kubeconfig.clone();
    let ran = tokio::task::spawn_blocking(move || run(test, "FLYBALL_TEST_KUBECONFIG", &named)).await.unwrap();
    let output = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && output.contains("1 passed"), "{output}\n{}", String::from_utf8_lossy(&ran.stderr));
    std::fs::remove_file(&kubeconfig).unwrap();
    // The definition existed before, and is kept.
    let definitions: Api<CustomResourceDefinition> = Api::all(admin);
    assert!(definitions.get_opt(DemoVolume::crd_name()).await.unwrap().is_some());
}

/// Calls the closure once for each labeled config map.
struct Does<F>(F);

impl<F> Reconcile for Does<F>
where
    F: AsyncDoes + Send + Sync + 'static,
{
    type Resource = ConfigMap;

    async fn reconcile(&self, object: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
        if object.labels().contains_key("watched") {
            self.0.call(object, cx).await?;
        }
        Ok(Action::done())
    }
}

trait AsyncDoes {
    fn call(&self, object: &ConfigMap, cx: &Context<ConfigMap>) -> impl Future<Output = Result<()>> + Send;
}

struct MakesASecret;

/// The line in which `MakesASecret` creates the secret.
const LINE: u32 = line!() + 6;

impl AsyncDoes for MakesASecret {
    async fn call(&self, _: &ConfigMap, cx: &Context<ConfigMap>) -> Result<()> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        let secrets: Api<Secret> = Api::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or_default());
        secrets.patch("s", &PatchParams::apply("x"), &Patch::Apply(secret)).await?;
        Ok(())
    }
}

const WATCHED: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {watched: ''}}}";

#[tokio::test(start_paused = true)]
async fn undeclared_request_is_denied_with_its_call_site() {
    let test = Test::of(|| Operator::new("op").controller(Controller::new(Does(MakesASecret)))).start().await;
    test.apply(WATCHED).await;
    test.eventually("a denial", async || !test.denials().is_empty()).await;
    let api: Api<Secret> = test.api();
    assert!(api.get_opt("s").await.unwrap().is_none());
    let denials = test.expect_denials();
    assert_eq!(denials.len(), 1, "{denials:?}");
    let expected = format!("patch secrets (controller configmap, object {}/a, at ", test.namespace());
    assert!(denials[0].starts_with(&expected), "{}", denials[0]);
    assert!(denials[0].ends_with(&format!("tests/it/testing.rs:{LINE})")), "{}", denials[0]);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "was denied what its controllers do not declare")]
async fn test_with_a_denial_fails() {
    let test = Test::of(|| Operator::new("op").controller(Controller::new(Does(MakesASecret)))).start().await;
    test.apply(WATCHED).await;
    test.eventually("a denial", async || !test.denials().is_empty()).await;
}

/// Counts its reconciles in a label.
struct Counts(Mutex<u32>);

impl AsyncDoes for Counts {
    async fn call(&self, object: &ConfigMap, cx: &Context<ConfigMap>) -> Result<()> {
        let count = {
            let mut count = self.0.lock().unwrap();
            *count += 1;
            *count + object.labels()["watched"].parse::<u32>().unwrap_or_default()
        };
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), &object.namespace().unwrap_or_default());
        let patch: Value = json!({"metadata": {"labels": {"watched": count.to_string()}}});
        let written = maps.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        cx.record_write(&written);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "1 writes where nothing had changed")]
async fn operator_that_writes_in_every_reconcile_is_not_idempotent() {
    let operator =
        || Operator::new("op").controller(Controller::new(Does(Counts(Mutex::default()))).owns::<ConfigMap>());
    let mut test = Test::of(operator).start().await;
    test.apply(WATCHED).await;
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing_of_a_sample_operator() {
    let crashes = explore_crashes(|| Test::of(volumes), async |test| test.apply(VOLUME).await).await;
    assert!(crashes >= 8, "{crashes}");
}

/// Creates a secret if its label is absent, and then sets the label: a crash in between causes a duplicate.
struct MakesOneEachTime;

impl AsyncDoes for MakesOneEachTime {
    async fn call(&self, object: &ConfigMap, cx: &Context<ConfigMap>) -> Result<()> {
        if object.labels().contains_key("done") {
            return Ok(());
        }
        let namespace = object.namespace().unwrap_or_default();
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), &namespace);
        let child = json!({"metadata": {"generateName": "child-"}});
        maps.create(&PostParams::default(), &serde_json::from_value(child)?).await?;
        let label = json!({"metadata": {"labels": {"done": ""}}});
        let written = maps.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(label)).await?;
        cx.record_write(&written);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "configmaps child-*: expected [{")]
async fn duplicate_creation_after_a_crash_is_detected() {
    let operator =
        || Operator::new("op").controller(Controller::new(Does(MakesOneEachTime)).allows(may(&["create", "patch"])));
    explore_crashes(|| Test::of(operator), async |test| test.apply(WATCHED).await).await;
}

/// Increments a number outside of the cluster if its label is absent, and then sets the label.
struct AddsOutside(Arc<Mutex<u32>>);

impl AsyncDoes for AddsOutside {
    async fn call(&self, object: &ConfigMap, cx: &Context<ConfigMap>) -> Result<()> {
        if object.labels().contains_key("done") {
            return Ok(());
        }
        *self.0.lock().unwrap() += 1;
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), &object.namespace().unwrap_or_default());
        let label = json!({"metadata": {"labels": {"done": ""}}});
        let written = maps.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(label)).await?;
        cx.record_write(&written);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the scenario: expected 1\n    and found 2")]
async fn duplicate_external_effect_is_detected() {
    let number = RefCell::new(Arc::<Mutex<u32>>::default());
    let setup = || {
        let of_this_run = Arc::default();
        number.replace(Arc::clone(&of_this_run));
        let adds = move || Controller::new(Does(AddsOutside(of_this_run.clone()))).allows(may(&["patch"]));
        Test::of(move || Operator::new("op").controller(adds()))
    };
    explore_crashes(setup, async |test| {
        test.apply(WATCHED).await;
        test.assert_converges().await;
        *number.borrow().lock().unwrap()
    })
    .await;
}

/// Creates a rule with these verbs on config maps.
fn may(verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["configmaps".into()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing_of_a_sample_operator() {
    let mut test = Test::of(volumes).start().await;
    test.apply(VOLUME).await;
    test.assert_outage_is_harmless(TEN_MINUTES).await;
}

const TEN_MINUTES: Duration = Duration::from_secs(600);

/// Recreates its child in the first reconcile after each start of the operator.
#[derive(Default)]
struct BeginsAnew(Mutex<bool>);

impl AsyncDoes for BeginsAnew {
    async fn call(&self, object: &ConfigMap, cx: &Context<ConfigMap>) -> Result<()> {
        if std::mem::replace(&mut *self.0.lock().unwrap(), true) {
            return Ok(());
        }
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), &object.namespace().unwrap_or_default());
        // The first time it does not exist.
        let _ = maps.delete("child", &DeleteParams::default()).await;
        let child = serde_json::from_value(json!({"metadata": {"name": "child"}}))?;
        maps.create(&PostParams::default(), &child).await?;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(
    expected = "after the restart of the operator:\n  configmaps child was replaced by another one of its name"
)]
async fn recreation_after_an_outage_is_detected() {
    let operator = || {
        Operator::new("op").controller(Controller::new(Does(BeginsAnew::default())).allows(may(&["create", "delete"])))
    };
    let mut test = Test::of(operator).start().await;
    test.apply(WATCHED).await;
    test.assert_outage_is_harmless(TEN_MINUTES).await;
}

#[test]
fn chaos_results_are_reported() {
    let file = std::env::temp_dir().join(format!("flyball-chaos-{}", std::process::id()));
    for test in [
        "chaos_crashes_change_nothing_of_a_sample_operator",
        "chaos_an_outage_changes_nothing_of_a_sample_operator",
        "recreation_after_an_outage_is_detected",
        "samples::chaos_an_outage_changes_nothing_of_a_visitors_site",
    ] {
        let test = if test.contains("::") { test.to_owned() } else { format!("testing::{test}") };
        let ran = run(&test, "FLYBALL_TEST_CHAOS", &file);
        assert!(ran.status.success(), "{test}: {ran:?}");
    }
    let report = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let lines: Vec<Value> = report.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["done"]["crashes"].as_u64().is_some_and(|crashes| crashes >= 8), "{report}");
    let outage = |operator: &str, pods: usize, passed: bool| json!({"operator": operator, "done": {"outage": {"seconds": 600, "pods": pods}}, "passed": passed});
    assert_eq!(lines[1..], [outage("volumes", 0, true), outage("op", 0, false), outage("sample", 3, true)]);
}

/// Default number of seeds, see `FLYBALL_SEEDS`.
const SEEDS: u64 = 40;

#[tokio::test(start_paused = true)]
async fn order_of_events_does_not_change_the_result() {
    let seeds = std::env::var("FLYBALL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let faults = Faults { broken_watch: 0.1, late: 0.5, repeated: 0.3, expired: 0.2, slow: 0.3, ..Faults::NONE };
    let mut expected = None;
    for seed in 0..seeds {
        let test =
            Test::of(volumes).seed(seed).faults(if seed == 0 { Faults::default() } else { faults }).start().await;
        test.apply(VOLUME).await;
        for size in 4..8 {
            let larger = json!({"spec": {"name": format!("films-{size}")}});
            let volumes: Api<DemoVolume> = test.api();
            volumes.patch("films", &PatchParams::default(), &Patch::Merge(larger)).await.unwrap();
        }
        test.assert_converges().await;
        let state = test.state().await;
        assert_eq!(&state, expected.get_or_insert_with(|| state.clone()), "seed {seed}");
    }
}

struct Panics;

impl AsyncDoes for Panics {
    async fn call(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<()> {
        panic!("of the reconcile")
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "controller configmap, object test/a: of the reconcile")]
async fn panicking_operator_does_not_converge() {
    let test = Test::of(|| Operator::new("op").controller(Controller::new(Does(Panics)))).start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "object test/a: of the reconcile")]
async fn crashes_of_a_panicking_operator_are_not_harmless() {
    let operator = || Operator::new("op").controller(Controller::new(Does(Panics)));
    explore_crashes(|| Test::of(operator), async |test| test.apply(WATCHED).await).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "a mapping function of controller configmap, change of test/s: of the map")]
async fn panic_of_a_mapping_function_fails_the_test() {
    let map = |_: &Secret, _: &flyball::Caches| -> Result<Vec<flyball::ObjectKey>> { panic!("of the map") };
    let operator = move || Operator::new("op").controller(Controller::new(Does(Fails)).watches(map));
    let test = Test::of(operator).start().await;
    test.apply("{apiVersion: v1, kind: Secret, metadata: {name: s}}").await;
    tokio::time::sleep(TEN_MINUTES).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "a predicate, update of test/a: of the predicate")]
async fn panic_of_a_predicate_fails_the_test() {
    let panics = |_: &ConfigMap, _: &ConfigMap| -> bool { panic!("of the predicate") };
    let operator = move || {
        let predicate = flyball::Predicate::<ConfigMap>::new(panics);
        Operator::new("op").controller(Controller::new(Does(Counts(Mutex::new(1)))).filter::<ConfigMap>(predicate))
    };
    let test = Test::of(operator).start().await;
    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").await;
    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {b: c}}").await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "of the task")]
async fn panic_of_a_task_fails_the_test() {
    let task = || flyball::Task::new("t", |_| async { panic!("of the task") });
    let test = Test::of(move || Operator::new("op").task(task())).start().await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn expected_panic_does_not_fail_the_test() {
    let test = Test::of(|| Operator::new("op").controller(Controller::new(Does(Panics)))).start().await;
    test.apply(WATCHED).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut test = test;
    test.crash().await;
    assert_eq!(test.expect_panics().first().unwrap(), "controller configmap, object test/a: of the reconcile");
}

const OTHER: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: other}}";

async fn create_in_other(test: &Test, name: &str) -> kube::Result<ConfigMap> {
    let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::namespaced(test.client(), "other").create(&PostParams::default(), &map).await
}

/// A program that panics when it starts a container.
struct PanickingProgram;

impl Program for PanickingProgram {
    fn start(&self, _: &Launch<'_>) -> Result<StartResult, StartError> {
        panic!("of the program")
    }

    fn observe(&self, _: &RunningContainer<'_>, _: Timestamp) -> ProgramState {
        unreachable!("nothing was started")
    }

    fn stop(&self, _: &RunningContainer<'_>, _: Timestamp, _: SignedDuration, _: Timestamp) -> ProgramState {
        unreachable!("nothing was started")
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "or the control plane, panicked (Test::expect_panics accepts it):\n  control plane, ")]
async fn panic_of_the_control_plane_fails_the_test() {
    let test = Test::of(|| Operator::new("op")).nodes(1).program(PanickingProgram).start().await;
    test.apply("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}").await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn account_has_its_rules_in_the_namespace_of_the_test() {
    let test = Test::of(|| Operator::new("op")).start().await;
    test.apply(OTHER).await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]);
    let client = test.account("tenant", &serde_json::from_value::<Vec<PolicyRule>>(rules).unwrap()).await;
    // The leader remains the same for a while.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), test.namespace());
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap().name_any(), "a");
    let refused = maps.delete("a", &DeleteParams::default()).await.unwrap_err().to_string();
    let denial = format!("User \"system:serviceaccount:{}:tenant\" cannot delete", test.namespace());
    assert!(refused.contains(&denial), "{refused}");
    let elsewhere: Api<ConfigMap> = Api::namespaced(client, "other");
    assert!(elsewhere.create(&PostParams::default(), &map).await.is_err());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "webhook /validate--v1-configmap: of the webhook")]
async fn panic_of_a_webhook_fails_the_test() {
    let judge = |_: &AdmissionRequest<ConfigMap>| -> Result<Verdict> { panic!("of the webhook") };
    let webhook = move || Webhook::<ConfigMap>::new().validates(judge);
    let test = Test::of(move || Operator::new("op").webhook(webhook())).start().await;
    test.apply(OTHER).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    create_in_other(&test, "a").await.unwrap_err();
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn webhooks_of_a_crashed_operator_refuse_connections() {
    let allow = |_: &AdmissionRequest<ConfigMap>| Ok(Verdict::allow());
    let operator = move || {
        let webhook = Webhook::<ConfigMap>::new().validates(allow);
        Operator::new("op").webhook(webhook).controller(Controller::new(Does(Fails)))
    };
    let test = Test::of(operator).crash_before(1).start().await;
    test.apply(OTHER).await;
    while !test.crashed() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let refused = create_in_other(&test, "a").await.unwrap_err().to_string();
    assert!(refused.contains("connection refused"), "{refused}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    create_in_other(&test, "a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn apply_waits_for_the_webhooks_of_a_crashed_operator() {
    let allow = |_: &AdmissionRequest<ConfigMap>| Ok(Verdict::allow());
    let operator = move || {
        let webhook = Webhook::<ConfigMap>::new().validates(allow);
        Operator::new("op").webhook(webhook).controller(Controller::new(Does(Fails)))
    };
    let test = Test::of(operator).crash_before(1).start().await;
    test.apply(OTHER).await;
    while !test.crashed() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: other}}").await;
}

struct Fails;

impl AsyncDoes for Fails {
    async fn call(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<()> {
        Err("no such luck".into())
    }
}

fn fails() -> Operator {
    Operator::new("op").controller(Controller::new(Does(Fails)))
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "object test/a, ")]
async fn failing_operator_does_not_converge() {
    let test = Test::of(fails).start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
}

struct Hangs;

impl AsyncDoes for Hangs {
    async fn call(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<()> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "times: the reconcile exceeded its deadline of 1 s")]
async fn operator_past_its_deadline_does_not_converge() {
    let hangs = || Controller::new(Does(Hangs)).deadline(Duration::from_secs(1));
    let test = Test::of(move || Operator::new("op").controller(hangs())).start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
}

/// Fails every other time.
#[derive(Default)]
struct Alternates(Mutex<bool>);

impl Reconcile for Alternates {
    type Resource = ConfigMap;

    async fn reconcile(&self, object: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> {
        if !object.labels().contains_key("watched") {
            return Ok(Action::done());
        }
        let mut fails = self.0.lock().unwrap();
        *fails = !*fails;
        if *fails { Err("now and then".into()) } else { Ok(Action::requeue_after(Duration::from_secs(5))) }
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "times: now and then")]
async fn alternately_failing_operator_does_not_converge() {
    let operator = || Operator::new("op").controller(Controller::new(Alternates::default()));
    let test = Test::of(operator).start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
}

/// Returns an error that waits, in each reconcile.
struct Waits;

impl AsyncDoes for Waits {
    async fn call(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<()> {
        Err(flyball::Error::from("not yet").wait())
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_errors_do_not_repeat() {
    let test = Test::of(|| Operator::new("op").controller(Controller::new(Does(Waits)))).start().await;
    for value in 0..4 {
        test.apply(&WATCHED.replace("''", &format!("'{value}'"))).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "still fails without further changes")]
async fn test_with_repeating_errors_fails() {
    let test = Test::of(fails).start().await;
    test.apply(WATCHED).await;
    tokio::time::sleep(TEN_MINUTES).await;
}

#[tokio::test(start_paused = true)]
async fn errors_of_expected_denials_are_expected() {
    let test = Test::of(|| Operator::new("op").controller(Controller::new(Does(MakesASecret)))).start().await;
    test.apply(WATCHED).await;
    tokio::time::sleep(TEN_MINUTES).await;
    assert_eq!(test.expect_denials().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn expected_or_resolved_errors_do_not_fail_the_test() {
    let test = Test::of(fails).start().await;
    test.apply(WATCHED).await;
    test.expect_errors("no such luck");
    test.assert_converges().await;

    let mut test = Test::of(fails).start().await;
    test.apply(WATCHED).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {}}}").await;
    test.assert_converges().await;
    test.assert_idempotent().await;
}

/// Writes to the place that the closure returns.
struct Meddles;

impl AsyncDoes for Meddles {
    async fn call(&self, _: &ConfigMap, cx: &Context<ConfigMap>) -> Result<()> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"a": "b"}});
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "default");
        maps.patch("theirs", &PatchParams::apply("x"), &Patch::Apply(map)).await?;
        Ok(())
    }
}

fn meddles() -> Operator {
    Operator::new("op").controller(Controller::new(Does(Meddles)).allows(may(&["create", "patch"])))
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "PATCH /api/v1/namespaces/default/configmaps/theirs")]
async fn change_in_another_namespace_is_detected() {
    let test = Test::of(meddles).start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
}

/// Writes a custom resource of the operator's own kind.
struct MeddlesWithItsKind;

impl AsyncDoes for MeddlesWithItsKind {
    async fn call(&self, _: &ConfigMap, cx: &Context<ConfigMap>) -> Result<()> {
        let spec = DemoVolumeSpec { name: "theirs".into(), size: 1 };
        let volumes: Api<DemoVolume> = Api::namespaced(cx.client().clone(), "default");
        volumes.patch("theirs", &PatchParams::apply("x"), &Patch::Apply(DemoVolume::new("theirs", spec))).await?;
        Ok(())
    }
}

fn meddles_with_its_kind() -> Operator {
    let may = PolicyRule {
        api_groups: Some(vec!["demo.flyball.dev".into()]),
        resources: Some(vec!["demovolumes".into()]),
        ..may(&["create", "patch"])
    };
    Operator::new("op").crd(DemoVolume::crd()).controller(Controller::new(Does(MeddlesWithItsKind)).allows(may))
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "PATCH /apis/demo.flyball.dev/v1/namespaces/default/demovolumes/theirs")]
async fn change_of_an_own_kind_in_another_namespace_is_detected() {
    let test = Test::of(meddles_with_its_kind).start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn declared_change_of_an_own_kind_is_expected() {
    let test = Test::of(meddles_with_its_kind).allows_changes_of::<DemoVolume>().start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn declared_changes_of_neighbors_are_expected_and_part_of_the_state() {
    let path = "/api/v1/namespaces/default/configmaps theirs";
    let test = Test::of(meddles).allows_changes_in("default").start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
    assert_eq!(test.state().await[path]["data"], json!({"a": "b"}));

    let test = Test::of(meddles).allows_changes_of::<ConfigMap>().start().await;
    test.apply(WATCHED).await;
    test.assert_converges().await;

    // The test created the object.
    let test = Test::of(meddles).start().await;
    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: default}}").await;
    test.apply(WATCHED).await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the operator op could not run: two controllers are named")]
async fn operator_that_cannot_start_does_not_converge() {
    let twice = || Controller::new(Does(MakesASecret));
    let test = Test::of(move || Operator::new("op").controller(twice()).controller(twice())).start().await;
    test.assert_converges().await;
}
