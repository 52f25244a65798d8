//! `flyball olm`: the lifecycle manager beside an embedded control plane.

use crate::{CommandOutput, Home};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

pub(crate) const CATALOG: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../flyball-lifecycle/tests/data/behavior/catalog/fbc");

/// A catalog that is served until this is dropped.
pub(crate) struct Catalog {
    process: Child,
    pub(crate) address: String,
}

impl Catalog {
    pub(crate) fn serve(home: &Home) -> Self {
        let mut process = home.spawn(&["catalog", "serve", CATALOG, "--listen", "127.0.0.1:0", "-o", "json"]);
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let report: Value = serde_json::from_str(&line).unwrap();
        Self { process, address: report["address"].as_str().unwrap().to_owned() }
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn json_of(output: &CommandOutput) -> Value {
    serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Repeats a command until its output is as expected.
#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
#[track_caller]
pub(crate) fn until(home: &Home, line: &str, mut expected: impl FnMut(&CommandOutput) -> bool) -> CommandOutput {
    let began = Instant::now();
    loop {
        let output = home.run(&line.split(' ').collect::<Vec<_>>());
        if expected(&output) {
            return output;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{line}: {output:?}\n{}", log(home));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn log(home: &Home) -> String {
    fs::read_to_string(home.0.join(".local/state/flyball/flyball.olm.log")).unwrap_or_default()
}

pub(crate) fn apply(home: &Home, objects: &[Value]) {
    let path = home.0.join("objects.json");
    fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()).unwrap();
    home.run(&["apply", "-f", "objects.json"]).ok();
}

pub(crate) fn namespace(home: &Home, catalog: &str) {
    let api = "operators.coreos.com";
    apply(
        home,
        &[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}),
            json!({"apiVersion": format!("{api}/v1"), "kind": "OperatorGroup",
            "metadata": {"name": "group", "namespace": "demo"}, "spec": {"targetNamespaces": ["demo"]}}),
            json!({"apiVersion": format!("{api}/v1alpha1"), "kind": "CatalogSource",
            "metadata": {"name": "demo", "namespace": "demo"}, "spec": {"sourceType": "grpc", "address": catalog}}),
        ],
    );
}

pub(crate) fn subscription(name: &str, spec: Value) -> Value {
    let mut all = json!({"name": name, "source": "demo", "sourceNamespace": "demo", "channel": "stable"});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": {"name": name, "namespace": "demo"}, "spec": all})
}

/// Returns all objects of a cluster by their keys, with their labels. Events are left out: they expire.
fn objects(home: &Home) -> BTreeMap<String, Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = kube::config::Kubeconfig::read_from(home.0.join(".kube/config")).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        let client = flyball::connect(config).unwrap();
        let get = async |path: String| -> Value {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            client.request(request).await.unwrap()
        };
        let mut paths = vec!["/api/v1".to_owned()];
        for group in get("/apis".to_owned()).await["groups"].as_array().unwrap() {
            paths.push(format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap()));
        }
        let mut found = BTreeMap::new();
        for path in paths {
            for resource in get(path.clone()).await["resources"].as_array().unwrap() {
                let name = resource["name"].as_str().unwrap();
                let lists = resource["verbs"].as_array().unwrap().contains(&"list".into());
                if !lists || name.contains('/') || name == "events" {
                    continue;
                }
                for object in get(format!("{path}/{name}")).await["items"].as_array().unwrap() {
                    let metadata = &object["metadata"];
                    let key = format!("{path}/{name} {}/{}", metadata["namespace"], metadata["name"]);
                    found.insert(key, metadata["labels"].clone());
                }
            }
        }
        found
    })
}

/// Returns all objects of a cluster when its controllers have nothing left to do, such as to label objects.
#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
fn settled(home: &Home) -> BTreeMap<String, Value> {
    let began = Instant::now();
    let mut known = objects(home);
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = objects(home);
        let changes = differences(&known, &now);
        if changes.is_empty() {
            return now;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{changes:?}");
        known = now;
    }
}

/// Returns the differences of two sets of objects.
fn differences(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Vec<String> {
    let changed = |one: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>, sign: &str| {
        let differs = |(key, value): &(&String, &Value)| other.get(*key) != Some(*value);
        one.iter().filter(differs).map(|(key, value)| format!("{sign} {key} {value}")).collect::<Vec<_>>()
    };
    [changed(before, after, "-"), changed(after, before, "+")].concat()
}

pub(crate) fn is_succeeded(output: &CommandOutput, csv: &str) -> bool {
    let status = json_of(output);
    let all = status["csvs"].as_array().unwrap();
    all.len() == 1 && all[0]["name"] == csv && all[0]["phase"] == "Succeeded"
}

#[test]
fn uninstall_leaves_nothing() {
    let home = Home::new("olm");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["olm", "status"]).fails_with(&["the lifecycle manager is not installed", "flyball olm install"]);
    assert_eq!(home.run(&["olm", "uninstall", "--yes"]).ok().out, "nothing to remove\n");
    apply(&home, &[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}})]);
    let before = objects(&home);

    let installed = home.run(&["olm", "install"]).ok();
    assert!(installed.out.starts_with("lifecycle manager is ready\n  manager    process "), "{installed:?}");
    let again = home.run(&["olm", "install"]).ok();
    assert!(again.out.contains(" 0 created, "), "{again:?}");
    let status = home.run(&["olm", "status", "-o", "json"]).ok();
    assert_eq!(json_of(&status)["manager"]["kind"], "process");

    let catalog = Catalog::serve(&home);
    namespace(&home, &catalog.address);
    apply(&home, &[subscription("memo", json!({})), subscription("front", json!({}))]);
    until(&home, "olm status -n demo -o json", |output| {
        let status = json_of(output);
        let all = status["csvs"].as_array().unwrap();
        // The operator that front requires does not support the OperatorGroup.
        let runs = |name: &str| all.iter().any(|csv| csv["name"] == name && csv["phase"] == "Succeeded");
        runs("memo.v2.0.0") && runs("front.v1.0.0") && all.len() == 3
    });
    apply(
        &home,
        &[json!({"apiVersion": "demo.flyball.dev/v1", "kind": "Memo",
        "metadata": {"name": "note", "namespace": "demo"}, "spec": {"text": "hello"}})],
    );
    let api = "olm.operatorframework.io/v1";
    let source = json!({"source": {"type": "Image", "image": {"ref": "127.0.0.1:1/demo/catalog:latest"}}});
    let package = json!({"sourceType": "Catalog", "catalog": {"packageName": "absent"}});
    apply(
        &home,
        &[
            json!({"apiVersion": api, "kind": "ClusterCatalog", "metadata": {"name": "demo"}, "spec": source}),
            json!({"apiVersion": api, "kind": "ClusterExtension", "metadata": {"name": "absent"},
            "spec": {"namespace": "demo", "serviceAccount": {"name": "any"}, "source": package}}),
        ],
    );
    let front = home.run(&["olm", "why", "front", "-n", "demo"]).ok();
    assert!(front.out.contains("installed   front.v1.0.0"), "{front:?}");

    home.run(&["olm", "uninstall"]).fails_with(&["nothing was removed: not confirmed", "--yes"]);
    let dry = home.run(&["olm", "uninstall", "--dry-run"]).ok();
    assert!(dry.out.contains("  1 Memo with all objects") && dry.out.contains("Subscription demo/memo"), "{dry:?}");
    home.run(&["olm", "uninstall", "--yes", "--keep-crds"])
        .fails_with(&["the deletion of ClusterExtension absent deletes its CRDs", "omit --keep-crds"]);
    let removed = home.run(&["olm", "uninstall", "--yes"]).ok();
    assert!(removed.out.contains("lifecycle manager stopped"), "{removed:?}");
    assert_eq!(differences(&before, &objects(&home)), [""; 0], "{removed:?}");
    assert!(!home.0.join(".local/state/flyball/flyball.olm.json").exists());
}

/// Writes a kubeconfig with a token of a service account, and returns its path.
pub(crate) fn kubeconfig_of(home: &Home, namespace: &str, account: &str) -> PathBuf {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let token = runtime.block_on(async {
        let config = kube::config::Kubeconfig::read_from(home.0.join(".kube/config")).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options);
        let client = flyball::connect(config.await.unwrap()).unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let request = TokenRequest::default();
        let response = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        response.status.unwrap().token
    });
    let text = fs::read_to_string(home.0.join(".kube/config")).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    for user in config["users"].as_array_mut().unwrap() {
        user["user"] = json!({"token": token});
    }
    let path = home.0.join(format!("{account}.kubeconfig"));
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// A process that ends with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn deployment_of_the_manager_works_with_its_arguments_and_rights() {
    let home = Home::new("olm-deployment");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["olm", "install", "--image", "registry.example/flyball:1", "--quiet"]).ok();
    let deployment = json_of(&home.run(&["get", "deployment", "-n", "olm", "-o", "json"]).ok())["items"][0].take();
    let pod = &deployment["spec"]["template"]["spec"];
    let args = pod["containers"][0]["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    assert!(args.clone().any(|arg| arg == "--package-port=6443"), "{pod}");
    // The pod is simulated: its process runs here, at other ports than those of its address.
    let other_port = |arg: &str| match arg.split_once('=') {
        Some((flag @ ("--metrics-addr" | "--health-addr"), _)) => format!("{flag}=127.0.0.1:0"),
        Some((flag @ "--package-port", _)) => {
            let listener = TcpListener::bind("[::]:0").unwrap();
            format!("{flag}={}", listener.local_addr().unwrap().port())
        }
        _ => arg.to_owned(),
    };
    let args: Vec<String> = args.map(other_port).collect();
    let kubeconfig = kubeconfig_of(&home, "olm", pod["serviceAccountName"].as_str().unwrap());
    let log = home.0.join("manager.log");
    let mut command = home.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    command.env("KUBECONFIG", kubeconfig).stderr(fs::File::create(&log).unwrap());
    let _manager = Process(command.spawn().unwrap());

    let catalog = Catalog::serve(&home);
    namespace(&home, &catalog.address);
    apply(&home, &[subscription("memo", json!({"startingCSV": "memo.v1.0.0"}))]);
    until(&home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v2.0.0"));
    let service = "v1.packages.operators.coreos.com";
    until(&home, &format!("get apiservice {service} -o json"), |output| output.code == Some(0));
    let log = fs::read_to_string(&log).unwrap();
    assert!(!log.contains("forbidden"), "the service account has all rights that it needs: {log}");
    assert!(!log.contains("cannot map a change"), "{log}");
    let removed = home.run(&["olm", "uninstall", "--yes"]).ok();
    assert!(removed.out.contains("Namespace olm deleted"), "{removed:?}");
}

/// A sample of each kind of the manager.
const SAMPLES: &str = include_str!("data/olm-samples.yaml");

#[test]
fn manager_passes_the_scorecard() {
    let home = Home::new("olm-scorecard");
    let manager = home.0.join("manager");
    let script = format!("#!/bin/sh\nexec {} olm run \"$@\"\n", env!("CARGO_BIN_EXE_flyball"));
    fs::write(&manager, script).unwrap();
    fs::set_permissions(&manager, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(home.0.join("samples.yaml"), SAMPLES).unwrap();
    let args = ["scorecard", "--program=./manager", "--samples=samples.yaml", "--timeout=60s", "-o=json"];
    let checks = json_of(&home.run(&args).ok());
    let passed = checks.as_array().unwrap().iter().filter(|check| check["outcome"] == "passed").count();
    assert_eq!(passed, 11, "{checks:#}");
}

#[test]
fn packages_of_catalogs_are_listed() {
    let home = Home::new("olm-packages");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["olm", "install", "--quiet"]).ok();
    let catalog = Catalog::serve(&home);
    namespace(&home, &catalog.address);
    let path = "packagemanifests.packages.operators.coreos.com";
    let listed = until(&home, &format!("get {path} -n demo -o json"), |output| {
        output.code == Some(0) && output.out.contains("\"memo\"")
    });
    let list = json_of(&listed);
    let memo = list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "memo").unwrap();
    assert_eq!(
        (&memo["status"]["catalogSource"], &memo["status"]["defaultChannel"]),
        (&json!("demo"), &json!("stable"))
    );
}

#[test]
fn installation_beside_olm_is_refused() {
    let home = Home::new("olm-beside");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let labels = json!({"app": "olm-operator"});
    let template = json!({"metadata": {"labels": labels},
        "spec": {"containers": [{"name": "olm", "image": "quay.io/operator-framework/olm:v0.36.0"}]}});
    let mut olm = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "olm-operator", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}});
    apply(&home, std::slice::from_ref(&olm));
    home.run(&["olm", "install"])
        .fails_with(&["OLM runs in the cluster: Deployment default/olm-operator", "kubectl scale deployment"]);
    home.run(&["olm", "status"]).fails_with(&["the lifecycle manager is not installed"]);
    olm["spec"]["replicas"] = 0.into();
    apply(&home, std::slice::from_ref(&olm));
    home.run(&["olm", "install", "--quiet"]).ok();
    home.run(&["olm", "status", "--quiet"]).ok();

    // It was started again.
    olm["spec"]["replicas"] = 1.into();
    apply(&home, &[olm]);
    let status = home.run(&["olm", "status"]);
    let problem = "original OLM (Deployment default/olm-operator): it also runs: two managers install and remove";
    let remedy = "kubectl scale deployment -n default olm-operator --replicas 0";
    assert!(status.code == Some(1) && status.out.contains(problem) && status.out.contains(remedy), "{status:?}");
    let status = json_of(&home.run(&["olm", "status", "-o", "json"]));
    assert_eq!(status["original"]["deployments"], json!(["default/olm-operator"]));
    assert_eq!((&status["healthy"], &status["manager"]["kind"]), (&false.into(), &"process".into()));
}

#[test]
fn operator_is_approved_explained_and_taken_back() {
    let home = Home::new("olm-day2");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["olm", "install", "--quiet"]).ok();
    let catalog = Catalog::serve(&home);
    namespace(&home, &catalog.address);
    let spec = json!({"startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual"});
    apply(&home, &[subscription("memo", spec), subscription("broken", json!({}))]);

    let why = until(&home, "olm why memo -n demo", |output| output.out.contains("waits for approval"));
    assert_eq!(why.code, Some(0), "waiting is no failure: {why:?}");
    assert!(why.out.contains("remedy: flyball olm approve memo -n demo"), "{why:?}");
    let broken = home.run(&["olm", "why", "broken", "-n", "demo", "-o", "json"]);
    let explained = json_of(&broken);
    assert_eq!((broken.code, &explained["healthy"]), (Some(1), &false.into()));
    let fact = explained["selection"]["facts"][1].as_str().unwrap();
    assert!(fact.contains("kind: Ghost, which no visible catalog has"), "{fact}");
    home.run(&["olm", "why", "nobody", "-n", "demo"]).fails_with(&["has no Subscription", "it has broken, memo"]);

    let dry = home.run(&["olm", "approve", "memo", "-n", "demo", "--dry-run"]).ok();
    assert!(dry.out.contains("CustomResourceDefinition") && dry.out.contains("not approved"), "{dry:?}");
    home.run(&["olm", "approve", "memo", "-n", "demo"]).ok();
    until(&home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v1.0.0"));
    until(&home, "olm why memo -n demo", |output| output.out.contains("waits for approval to install memo.v1.1.0"));
    rehearse(&home);
    home.run(&["olm", "approve", "memo", "-n", "demo", "--quiet"]).ok();
    until(&home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v1.1.0"));

    home.run(&["olm", "rollback", "memo", "-n", "demo", "--to", "memo.v9"])
        .fails_with(&["package memo of the catalog has no memo.v9", "it has memo.v1.0.0"]);
    let dry = home.run(&["olm", "rollback", "memo", "-n", "demo", "--dry-run"]).ok();
    assert!(dry.out.contains("can be rolled back (dry run) from memo.v1.1.0 to memo.v1.0.0"), "{dry:?}");
    let back = home.run(&["olm", "rollback", "memo", "-n", "demo"]).ok();
    assert!(back.out.contains("rolled back from memo.v1.1.0 to memo.v1.0.0"), "{back:?}");
    until(&home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v1.0.0"));
    let why = home.run(&["olm", "why", "memo", "-n", "demo"]);
    assert!(why.out.contains("it stays at memo.v1.0.0 after a rollback"), "{why:?}");
    let status = home.run(&["olm", "status", "-n", "demo"]);
    assert!(status.out.contains("Subscription demo/memo stays at memo.v1.0.0 after a rollback"), "{status:?}");

    assert_eq!(home.run(&["olm", "pin", "memo", "newest", "-n", "demo"]).code, Some(2));
    home.run(&["olm", "pin", "memo", "--remove", "-n", "demo"]).ok();
    home.run(&["olm", "pin", "memo", "<1.1.0", "-n", "demo"]).ok();
    // Without the pin, an upgrade was planned, and nothing is selected until its plan is listed.
    until(&home, "olm why memo -n demo", |why| why.out.contains("excluded by the versions of the Subscription"));
    let status = home.run(&["olm", "status", "-n", "demo"]);
    assert!(status.out.contains("Subscription demo/memo installs only versions <1.1.0"), "{status:?}");
}

/// Plays upgrades of an installed version on copies.
fn rehearse(home: &Home) {
    apply(
        home,
        &[json!({"apiVersion": "demo.flyball.dev/v1", "kind": "Memo",
        "metadata": {"name": "note", "namespace": "demo"}, "spec": {"pinned": true}})],
    );
    let before = settled(home);
    let played = home.run(&["olm", "rehearse", "memo", "-n", "demo"]).ok();
    assert!(
        played.out.starts_with("Subscription demo/memo: the upgrade from memo.v1.0.0 to memo.v1.1.0 works\n"),
        "{played:?}"
    );
    assert!(played.out.contains("-   ClusterServiceVersion demo/memo.v1.0.0"), "{played:?}");
    assert!(played.out.contains("1 custom resources were validated"), "{played:?}");
    assert!(!played.out.contains("installPlanApproval"), "the rehearsal sets it: {played:?}");
    let refused = home.run(&["olm", "rehearse", "memo", "-n", "demo", "--channel", "strict", "-o", "json"]);
    let report = json_of(&refused);
    assert_eq!(
        (refused.code, &report["succeeded"], &report["outcome"]["to"]),
        (Some(1), &false.into(), &"memo.v1.9.0".into())
    );
    let message = report["outcome"]["message"].as_str().unwrap();
    assert!(message.contains("demo/note"), "{message}");
    assert_eq!(differences(&before, &objects(home)), [""; 0], "nothing is changed in the cluster");
    home.run(&["delete", "memo", "note", "-n", "demo"]).ok();

    // Pods that fit no node.
    let config = |selector: Value| {
        json!({"startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual",
        "config": {"nodeSelector": selector}})
    };
    apply(home, &[subscription("memo", config(json!({"disk": "none"})))]);
    let failed = home.run(&["olm", "rehearse", "memo", "-n", "demo", "-o", "json"]);
    let report = json_of(&failed);
    let message = report["outcome"]["message"].as_str().unwrap();
    let why = "it waits until memo.v1.0.0 is ready: Deployment memo-controller: pod";
    // After the timeout, the message would begin with it.
    assert!(message.starts_with(why) && message.contains("is not scheduled"), "{message}");
    apply(home, &[subscription("memo", config(json!({})))]);
    until(home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v1.0.0"));
}

#[test]
fn rollback_that_loses_data_is_refused() {
    let home = Home::new("olm-guard");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["olm", "install", "--quiet"]).ok();
    let catalog = Catalog::serve(&home);
    namespace(&home, &catalog.address);
    apply(&home, &[subscription("memo", json!({}))]);
    until(&home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v2.0.0"));
    apply(
        &home,
        &[json!({"apiVersion": "demo.flyball.dev/v2", "kind": "Memo",
        "metadata": {"name": "note", "namespace": "demo"}, "spec": {"text": "hello"}})],
    );
    let refused = home.run(&["olm", "rollback", "memo", "-n", "demo", "--to", "memo.v1.1.0"]);
    refused.fails_with(&["the rollback would break stored objects", "memos.demo.flyball.dev"]);
    let nothing = home.run(&["olm", "rehearse", "memo", "-n", "demo"]).ok();
    assert!(
        nothing.out.contains("channel stable has no version that upgrades memo.v2.0.0: there is nothing to rehearse"),
        "{nothing:?}"
    );
    let nothing = json_of(&home.run(&["olm", "rehearse", "memo", "-n", "demo", "-o", "json"]).ok());
    assert_eq!((&nothing["upgrade"], &nothing["from"]), (&Value::Null, &json!("memo.v2.0.0")));
    let back = home.run(&["olm", "rehearse", "memo", "-n", "demo", "--to", "memo.v1.1.0"]);
    assert!(
        back.code == Some(1) && back.out.contains("flyball crd migrate memos.demo.flyball.dev --to v1"),
        "{back:?}"
    );
    assert!(back.out.contains("the rollback is refused: the rollback would break stored objects"), "{back:?}");
    // The storage version of the newer CRD is in the way.
    let migrate = "flyball crd migrate memos.demo.flyball.dev --to v1";
    refused.fails_with(&["no longer has the storage version v2", migrate]);
    let why = home.run(&["olm", "why", "memo", "-n", "demo"]).ok();
    assert!(!why.out.contains("after a rollback"), "nothing was changed: {why:?}");
    assert!(why.out.contains("next        none: the newest version of the channel is installed"), "{why:?}");
    home.run(&["crd", "migrate", "memos.demo.flyball.dev", "--to", "v1", "--dry-run"]).ok();
    home.run(&["crd", "migrate", "memos.demo.flyball.dev", "--to", "v9"])
        .fails_with(&["has no version", "it has v1, v2"]);
    home.run(&["crd", "migrate", "memos.demo.flyball.dev", "--to", "v1"]).ok();
    home.run(&["olm", "rollback", "memo", "-n", "demo", "--to", "memo.v1.1.0", "--quiet"]).ok();
    until(&home, "olm status -n demo -o json", |output| is_succeeded(output, "memo.v1.1.0"));
}
