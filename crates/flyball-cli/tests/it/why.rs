//! `flyball why`, with operators whose controllers cause each other.

use crate::run::example;
use crate::{CommandOutput, Home};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

const SHOP: &str = "apiVersion: v1
kind: Service
metadata: {name: shop, labels: {app: shop}, annotations: {size: '2'}}
spec: {ports: [{port: 80}], selector: {app: shop}}
";

const CLUSTER_UP: [&str; 4] = ["cluster", "up", "--quiet", "--data-dir=data"];

/// The operators of `examples/chain.rs`, and the cluster.
struct Operators {
    home: Home,
    process: Child,
    addresses: Vec<String>,
}

impl Drop for Operators {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Operators {
    fn start(test: &str, variables: &[(&str, &str)], before: impl FnOnce(&Home)) -> Self {
        let home = Home::new(test);
        home.run(&CLUSTER_UP).ok();
        before(&home);
        let addresses: Vec<String> = (0..4).map(|_| free_address()).collect();
        let mut command = std::process::Command::new(example("chain"));
        command.args(&addresses).env_clear().env("HOME", &home.0).envs(variables.iter().copied());
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self { home, process, addresses }
    }

    /// Runs `flyball why` with all operators.
    fn why(&self, args: &[&str]) -> CommandOutput {
        let operators = self.addresses.iter().map(|address| format!("--operator=http://{address}"));
        let args: Vec<String> = ["why"].iter().chain(args).map(ToString::to_string).chain(operators).collect();
        self.home.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.why(&args).ok().out).unwrap()
    }

    fn apply(&self, name: &str, text: &str) {
        let path = self.home.0.join(name);
        fs::write(&path, text).unwrap();
        self.home.run(&["apply", "-f", name]).ok();
    }

    /// Asks until the answer fulfills a condition.
    #[track_caller]
    fn until(&self, args: &[&str], is: impl Fn(&Value) -> bool) -> Value {
        let mut last = String::new();
        for _ in 0..100 {
            let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
            let output = self.why(&args);
            if let Some(answer) = serde_json::from_str(&output.out).ok().filter(&is) {
                return answer;
            }
            last = format!("{output:?}");
            pause();
        }
        panic!("{args:?}: {last}");
    }
}

#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
fn pause() {
    thread::sleep(Duration::from_millis(200));
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Returns the steps of a chain: type, object, and operator or manager.
fn steps(answer: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let step = |step: &Value| {
        let object = &step["object"];
        let who = if step["operator"].is_string() { text(&step["operator"]) } else { text(&step["manager"]) };
        format!("{} {}/{} {who}", text(&step["type"]), text(&object["kind"]), text(&object["name"]))
    };
    answer["chain"].as_array().unwrap().iter().map(step).collect()
}

fn reasons(answer: &Value) -> Vec<&str> {
    answer["reasons"].as_array().unwrap().iter().filter_map(|reason| reason["reason"].as_str()).collect()
}

fn has_reason(reason: &'static str) -> impl Fn(&Value) -> bool {
    move |answer| reasons(answer).contains(&reason)
}

#[test]
fn chain_leads_across_three_operators_to_the_person() {
    let operators = Operators::start("why-chain", &[], |_| {});
    operators.apply("shop.yaml", SHOP);
    let exists = |answer: &Value| answer["object"]["name"] == "shop";
    operators.until(&["pdb/shop"], |answer| exists(answer) && answer["chain"].as_array().is_some_and(|c| c.len() > 4));
    operators.apply("shop.yaml", &SHOP.replace("'2'", "'3'"));
    let is_three = |answer: &Value| answer["field"]["value"] == 3;
    let answer = operators.until(&["pdb/shop", "spec.maxUnavailable"], is_three);
    let expected = [
        "write PodDisruptionBudget/shop budget-operator",
        "causedBy Deployment/shop budget-operator",
        "write Deployment/shop config-operator",
        "causedBy ConfigMap/shop config-operator",
        "write ConfigMap/shop shop-operator",
        "causedBy Service/shop shop-operator",
        "origin Service/shop flyball",
    ];
    assert_eq!(steps(&answer), expected, "{answer:#}");
    let write = &answer["chain"][0];
    assert_eq!((&write["fields"][0], &write["source"]), (&"spec.maxUnavailable".into(), &"ledger".into()));
    assert_eq!(answer["chain"][2]["fields"][0], "spec.replicas");
    // Each change is the write of the step below.
    for at in [1, 3] {
        assert_eq!(answer["chain"][at]["resourceVersion"], answer["chain"][at + 1]["resourceVersion"], "{answer:#}");
    }

    // A pod has no writer with a ledger: its owners lead to one.
    let pods: Value = serde_json::from_str(&operators.home.run(&["get", "pods", "-o", "json"]).ok().out).unwrap();
    // An older pod was caused by the first size, whose writes managed fields do not contain any more.
    let newest = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .max_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str().unwrap().to_owned());
    let pod = newest.unwrap()["metadata"]["name"].as_str().unwrap();
    let answer = operators.json(&[&format!("pod/{pod}")]);
    let found = steps(&answer);
    assert!(found[0].starts_with(&format!("write Pod/{pod} ")), "{found:?}");
    assert!(found.iter().any(|step| step == "write Deployment/shop config-operator"), "{found:?}");
    assert_eq!(found.last().unwrap(), "origin Service/shop flyball");
    let text = operators.why(&[&format!("pod/{pod}")]).ok().out;
    for part in [
        &format!("pod/{pod} is "),
        "config-operator/configmap applied deployment/shop",
        "caused by",
        "origin ",
        "[writes]",
        "[ledger]",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }

    // The embedded control plane keeps the users of writes.
    let origin = answer["chain"].as_array().unwrap().last().unwrap();
    assert_eq!((&origin["source"], origin["user"].is_string()), (&"writes".into(), true), "{origin:#}");

    // Without ledgers and without the users of writes, managed fields and owners lead to the same person.
    operators.home.run(&["cluster", "down"]).ok();
    operators.home.run(&CLUSTER_UP).ok();
    let answer = operators.home.run(&["why", &format!("pod/{pod}"), "-o", "json"]).ok().out;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let from_log = answer["chain"].as_array().unwrap().iter().any(|step| step["source"] == "writes");
    assert!(!from_log, "{answer:#}");
    let found = steps(&answer);
    for step in
        ["write Deployment/shop config-operator", "write ConfigMap/shop shop-operator", "origin Service/shop flyball"]
    {
        assert!(found.iter().any(|known| known == step), "no {step} in {found:?}");
    }
    let answer = operators.home.run(&["why", "deployment/shop", "spec.replicas", "-o", "json"]).ok().out;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["field"]["value"], &answer["field"]["managers"][0]), (&3.into(), &"config-operator".into()));
}

#[test]
fn change_during_a_pause_is_the_cause_and_not_the_end_of_the_pause() {
    let operators = Operators::start("why-pause", &[], |_| {});
    operators.apply("shop.yaml", SHOP);
    let replicas = ["deployment/shop", "spec.replicas"];
    operators.until(&replicas, |answer| answer["field"]["value"] == 2);
    let pause = |value: &str| {
        let annotations = format!("annotations: {{flyball.dev/paused: '{value}'}}");
        let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: shop, {annotations}}}}}");
        operators.apply("pause.yaml", &text);
    };
    pause("true");
    operators.until(&["configmap/shop", "--not"], has_reason("paused"));
    operators.apply("shop.yaml", &SHOP.replace("'2'", "'3'"));
    operators.until(&["configmap/shop", "data.size"], |answer| answer["field"]["value"] == "3");
    pause("false");
    let answer = operators.until(&replicas, |answer| answer["field"]["value"] == 3);
    let expected = [
        "write Deployment/shop config-operator",
        "causedBy ConfigMap/shop config-operator",
        "write ConfigMap/shop shop-operator",
        "causedBy Service/shop shop-operator",
        "origin Service/shop flyball",
    ];
    assert_eq!(steps(&answer), expected, "{answer:#}");
}

#[test]
fn origin_of_a_field_is_the_write_that_changed_it() {
    let home = Home::new("why-field");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let apply = |metadata: &str| {
        let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{{metadata}}}, data: {{size: '2'}}}}");
        fs::write(home.0.join("c.yaml"), text).unwrap();
        home.run(&["apply", "-f", "c.yaml"]).ok();
        let live = home.run(&["get", "configmap", "c", "-o", "json"]).ok().out;
        let live: Value = serde_json::from_str(&live).unwrap();
        live["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    let origin = |args: &[&str]| {
        let answer = home.run(&[&["why", "configmap/c", "-o", "json"][..], args].concat()).ok().out;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["chain"][0]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    };
    let created = apply("name: c");
    let labeled = apply("name: c, labels: {a: b}");
    let finalized = apply("name: c, labels: {a: b}, finalizers: [example.com/a]");
    assert!(created != labeled && labeled != finalized);
    assert_eq!((origin(&["data.size"]), origin(&["metadata.labels.a"])), (created, labeled.clone()));
    assert_eq!(origin(&[]), labeled, "finalizers explain no object");
}

#[test]
fn inaction_is_explained() {
    let operators = Operators::start("why-not", &[], |_| {});
    operators.apply("shop.yaml", SHOP);
    operators.until(&["service/shop", "--not"], has_reason("upToDate"));

    operators.apply("shop.yaml", &SHOP.replace("size: '2'", "size: '2', flyball.dev/paused: 'true'"));
    operators.until(&["service/shop", "--not"], has_reason("paused"));
    let text = operators.why(&["service/shop"]).ok().out;
    assert!(text.contains("paused: the annotation flyball.dev/paused is true"), "{text}");

    operators.apply("shop.yaml", &SHOP.replace("size: '2'", "size: '2', fail: 'true'"));
    let answer = operators
        .until(&["service/shop", "--not"], |answer| has_reason("backoff")(answer) || has_reason("throttled")(answer));
    let error = answer["reasons"].as_array().unwrap().iter().find(|reason| reason["reason"] == "error");
    assert!(error.unwrap()["text"].as_str().unwrap().contains("the warehouse is closed"), "{answer:#}");

    operators.apply("other.yaml", &SHOP.replace("name: shop, labels: {app: shop}", "name: other"));
    let answer = operators.until(&["service/other", "--not"], has_reason("notSelected"));
    assert!(answer.to_string().contains("app=shop"), "{answer:#}");

    // A label does not change the generation, which the filter of the controller compares.
    let label = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, labels: {team: a}}}";
    operators.apply("label.yaml", label);
    let answer = operators.until(&["deployment/shop", "--not"], has_reason("filtered"));
    assert!(answer.to_string().contains("did not pass the filters"), "{answer:#}");

    operators.apply("key.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: key}}");
    let answer = operators.until(&["secret/key", "--not"], has_reason("watchFailing"));
    assert!(answer.to_string().contains("nobody") && reasons(&answer).contains(&"inactive"), "{answer:#}");
    let text = operators.why(&["secret/key", "--not"]).ok().out;
    assert!(text.contains("watchFailing") && text.contains("key-operator"), "{text}");
}

#[test]
fn follower_and_missing_kind_are_explained() {
    let lease = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: budget-operator}, spec: \
                 {holderIdentity: elsewhere_1, leaseDurationSeconds: 3600, leaseTransitions: 1, \
                 acquireTime: '2026-01-01T00:00:00.000000Z', renewTime: '2026-01-01T00:00:00.000000Z'}}";
    let operators = Operators::start("why-lease", &[("CHAIN_LEASE", "1")], |home| {
        fs::write(home.0.join("lease.yaml"), lease).unwrap();
        home.run(&["apply", "-f", "lease.yaml"]).ok();
    });
    operators.apply("shop.yaml", SHOP);
    let answer = operators.until(&["deployment/shop", "--not"], has_reason("notLeading"));
    assert!(answer.to_string().contains("elsewhere_1"), "{answer:#}");
    operators.why(&["gadget/a", "--not"]).fails_with(&["no kind \"gadget\"", "CustomResourceDefinition"]);
    operators.why(&["service/none"]).fails_with(&["cannot read Service none"]);
}

#[test]
fn missing_definition_and_barrier_are_explained() {
    let operators = Operators::start("why-late", &[("CHAIN_ABSENT", "1"), ("CHAIN_LATE", "1")], |_| {});
    operators.apply("shop.yaml", SHOP);
    let absent = "the kind gadgets is not installed: the operator waits for its CustomResourceDefinition";
    let answer = operators.until(&["service/shop", "--not"], has_reason("crdMissing"));
    assert!(answer.to_string().contains(absent), "{answer:#}");
    let text = operators.why(&["service/shop", "--not"]).ok().out;
    assert!(text.contains("crdMissing") && text.contains("shop-operator"), "{text}");

    // The Deployment that the reconcile created has not reached the cache yet.
    let answer = operators.until(&["configmap/shop", "--not"], has_reason("barrier"));
    let reason = answer["reasons"].as_array().unwrap().iter().find(|reason| reason["reason"] == "barrier").unwrap();
    assert!(reason["text"].as_str().unwrap().contains("until the cache shows deployment/shop"), "{answer:#}");
    assert_eq!((&reason["operator"], &reason["controller"]), (&"config-operator".into(), &"configmap".into()));
    assert!(reason["until"].is_string(), "{answer:#}");
    let is_over = |answer: &Value| has_reason("upToDate")(answer) && !has_reason("barrier")(answer);
    operators.until(&["configmap/shop", "--not"], is_over);

    let definition = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: \
                      gadgets.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: gadgets, \
                      kind: Gadget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: \
                      {type: object}}}]}}";
    operators.apply("gadgets.yaml", definition);
    operators.until(&["service/shop", "--not"], |answer| !has_reason("crdMissing")(answer));
}

#[test]
fn invalid_questions_are_usage_errors() {
    let home = Home::new("why-usage");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["why", "web"]).usage();
    home.run(&["why", "deployment/web", "spec.replicas", "--not"]).usage();
    home.run(&["why", "namespace/default", "spec..x"]).usage();
    home.run(&["why", "namespace/default", "namespace/kube-system"]).usage();
    home.run(&["why", "namespace/default", "spec.bogus"])
        .usage_with(&["the schema of Namespace has no field spec.bogus"]);
    home.run(&["why", "namespace/default", "metadata.labels[a/b]"]).ok();
    home.run(&["why", "namespace/default", "--operator", "ftp://x"]).usage();
    let output = home.run(&["why", "namespace/default", "--operator", "http://127.0.0.1:1"]).ok();
    assert!(output.out.contains("not reached: operator at http://127.0.0.1:1"), "{output:?}");
}

#[test]
fn users_of_writes_without_managed_fields_are_named() {
    let home = Home::new("why-log");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let why = |args: &[&str]| home.run(&[&["why"][..], args].concat()).ok().out;
    let stateful_set = "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 1, \
                        serviceName: db, selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, \
                        spec: {containers: [{name: db, image: registry.example.com/db}]}}}}";
    fs::write(home.0.join("db.yaml"), stateful_set).unwrap();
    home.run(&["apply", "-f", "db.yaml"]).ok();
    let until = |args: &[&str], part: &str| {
        for _ in 0..100 {
            let output = home.run(&[&["why"][..], args].concat());
            if output.out.contains(part) {
                return output.out;
            }
            pause();
        }
        panic!("no {part:?} in {:?}", home.run(&[&["why"][..], args].concat()));
    };
    until(&["pod/db-0"], "waiting    not scheduled: the cluster has no nodes");
    home.run(&["cluster", "node", "add"]).ok();
    until(&["pod/db-0", "spec.nodeName"], "origin   user system:kube-scheduler, kube-scheduler (create binding)");
    until(&["pod/db-0"], "pod/db-0 is Running");
    let status = why(&["statefulset/db", "status.replicas"]);
    assert!(status.contains("origin") && status.contains("(update status)"), "{status}");
    home.run(&["delete", "pod", "db-0"]).ok();
    let text = until(&["pod/db-0"], "the previous pod/db-0 was deleted: user kubernetes-admin, ");
    assert!(text.contains("owned by") && text.contains("statefulset/db"), "{text}");
    let not = why(&["statefulset/db", "--not"]);
    assert!(not.contains("no running operator with a ledger is known for the kind StatefulSet"), "{not}");
}
