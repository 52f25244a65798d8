//! `flyball chaos` on a cluster: a Deployment of simulated pods, and an operator as a process.

use crate::{CommandOutput, Home};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/explore");

const OPERATOR: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: sites-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: sites, namespace: sites-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sites, namespace: sites-system}
spec:
  selector: {matchLabels: {app: sites}}
  template:
    metadata: {labels: {app: sites}}
    spec: {serviceAccountName: sites, containers: [{name: manager, image: sites}]}
";

const BASE: [&str; 7] = ["chaos", "-n", "sites-system", "--recovery", "10s", "--failure", "20s"];

impl Home {
    fn with_operator(test: &str) -> Self {
        let home = Self::new(test);
        home.run(&["cluster", "up", "--quiet", "--nodes", "1"]).ok();
        fs::write(home.0.join("operator.yaml"), OPERATOR).unwrap();
        home.run(&["apply", "-f", "operator.yaml"]).ok();
        home.until("the operator", || {
            let args = ["get", "deployments", "sites", "-n", "sites-system", "-o", "json"];
            let deployment: Value = serde_json::from_str(&home.run(&args).ok().out).unwrap();
            deployment["status"]["readyReplicas"] == 1
        });
        home
    }

    fn chaos(&self, args: &[&str]) -> CommandOutput {
        self.run(&[&BASE[..], args].concat())
    }

    fn policies(&self) -> String {
        self.run(&["get", "networkpolicies", "-n", "sites-system", "-o", "json"]).ok().out
    }

    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "waits for another process")]
    fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < Duration::from_secs(60), "timeout: {what}");
            sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn experiments_are_planned_run_and_judged() {
    let home = Home::with_operator("chaos-run");
    let dry = home.chaos(&["--dry-run"]).ok().out;
    let kill = "pod-kill (PodKill, risk medium)\n  delete Pod sites-system/sites-";
    for part in [kill, "  create NetworkPolicy sites-system/"] {
        assert!(dry.contains(part), "{part}: {dry}");
    }
    assert!(!dry.contains("quota-exhausted"), "of a high risk: {dry}");
    home.chaos(&[]).fails_with(&["not confirmed", "confirm with --yes"]);
    home.chaos(&["--yes", "--only", "pod-kil"]).fails_with(&["no experiment or fault of the name \"pod-kil\""]);

    let suite = home.chaos(&["--dry-run", "-o", "yaml", "--only", "PodKill,evictions-blocked"]).ok().out;
    fs::write(home.0.join("suite.yaml"), &suite).unwrap();
    let report = home.chaos(&["-f", "suite.yaml", "--yes", "--hold", "1s", "-o", "json"]).ok();
    let report: Value = serde_json::from_str(&report.out).unwrap();
    let verdicts: Vec<&Value> = report["outcomes"].as_array().unwrap().iter().map(|one| &one["verdict"]).collect();
    assert_eq!(verdicts, ["Resilient", "Resilient"], "{report:#}");
    assert!(report["outcomes"][0]["recoverySeconds"].as_f64() > Some(0.0), "{report:#}");
    let junit = home.chaos(&["--yes", "--only", "evictions-blocked", "--hold", "1s", "-o", "junit"]).ok().out;
    assert!(junit.contains("tests=\"1\" failures=\"0\""), "{junit}");
    let state = home.0.join(".local/state/flyball/chaos");
    assert_eq!(fs::read_dir(state).unwrap().count(), 0, "the state files are removed");
}

#[test]
fn killed_and_interrupted_runs_are_undone() {
    let home = Home::with_operator("chaos-undo");
    let args = [&BASE[..], &["--yes", "--only", "network-partition", "--hold", "2m"]].concat();
    let mut run = home.spawn(&args);
    home.until("the partition", || home.policies().contains("flyball-chaos"));
    // SIGKILL.
    run.kill().unwrap();
    run.wait().unwrap();
    home.chaos(&["--yes"]).fails_with(&["an earlier run has left changes", "flyball chaos undo"]);
    let dry = home.run(&["chaos", "undo", "--dry-run"]).ok().out;
    assert!(dry.starts_with("network-partition: create NetworkPolicy sites-system/flyball-chaos-"), "{dry}");
    assert!(home.policies().contains("flyball-chaos"));
    let undone = home.run(&["chaos", "undo"]).ok().out;
    assert!(undone.contains("network-partition: create NetworkPolicy") && undone.contains(" undone\n"), "{undone}");
    assert!(!home.policies().contains("flyball-chaos"));
    assert_eq!(home.run(&["chaos", "undo"]).ok().err, "note: nothing to undo\n");

    let mut run = home.spawn(&args);
    home.until("the partition", || home.policies().contains("flyball-chaos"));
    let pid = run.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert!(!home.policies().contains("flyball-chaos"));
    assert_eq!(home.run(&["chaos", "undo"]).ok().err, "note: nothing to undo\n");
}

#[test]
fn protected_targets_and_wrong_inputs_are_refused() {
    let home = Home::with_operator("chaos-refused");
    home.run(&["chaos", "-n", "kube-system", "--dry-run"]).fails_with(&["kube-system is a namespace of the system"]);
    home.run(&["chaos", "-n", "none", "--dry-run"]).fails_with(&["the namespace none does not exist"]);
    home.run(&["chaos", "-n", "default", "--dry-run"]).fails_with(&["no Deployment found in namespace default"]);
    assert_eq!(home.run(&["chaos", "protect"]).ok().out, "cluster refuses experiments\n");
    home.chaos(&["--dry-run"]).fails_with(&["the cluster is marked", "chaos.flyball.dev/protected"]);
    assert_eq!(home.run(&["chaos", "protect", "--off"]).ok().out, "cluster accepts experiments\n");
    home.chaos(&["--dry-run"]).ok();
    home.chaos(&["--operator", "pod/a"]).usage();
    home.chaos(&["-o", "yaml"]).usage();
    home.chaos(&["--failure", "1s"]).usage();
    let kind = "apiVersion: chaos.flyball.dev/v1alpha1\nkind: ChaosExperiment\nmetadata: {name: a}\n";
    for (spec, expected) in [
        ("spec: {fault: {type: NamespaceDeletion}}", "cannot be undone"),
        ("spec: {fault: {type: PodKill, every: 3}}", "unknown field `every`"),
    ] {
        fs::write(home.0.join("wrong.yaml"), format!("{kind}{spec}")).unwrap();
        let output = home.chaos(&["-f", "wrong.yaml", "--dry-run"]);
        output.usage();
        assert!(output.err.contains(expected), "{output:?}");
    }
    fs::write(home.0.join("state.json"), "{}").unwrap();
    home.run(&["chaos", "undo", "state.json"]).fails_with(&["the state file state.json is not valid"]);
}

#[test]
fn process_is_killed_and_its_requests_are_disturbed() {
    if !crate::explore::has_python() {
        return;
    }
    let home = Home::new("chaos-process");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.run(&["apply", "-f", &format!("{DATA}/crd.yaml")]).ok();
    home.run(&["apply", "-f", &format!("{DATA}/site.yaml")]).ok();
    let exec = format!("exec python3 -B {DATA}/operator.py");
    let only = "process-kill,network-partition,api-errors-500,lost-responses,watch-cut,configmap-drift";
    let args = ["chaos", "-n", "default", "--exec", &exec, "--kind", "Site", "--yes", "--hold", "2s", "--only", only];
    let mut command = home.command(&[&args[..], &["--exec-output", "log", "-o", "json"]].concat());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let output = CommandOutput::of(&command.output().unwrap());
    let log = fs::read_to_string(home.0.join("log")).unwrap_or_default();
    assert_eq!(output.code, Some(0), "{output:?} {log}");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    let outcomes = report["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), only.split(',').count());
    for outcome in outcomes {
        assert!(["Resilient", "Degraded"].iter().any(|one| outcome["verdict"] == *one), "{outcome:#} {log}");
    }
    let partition = outcomes.iter().find(|one| one["name"] == "network-partition").unwrap();
    assert!(partition["effects"].to_string().contains("/data/title differs"), "{partition:#}");
}
