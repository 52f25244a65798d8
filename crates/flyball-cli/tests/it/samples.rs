//! Operators that are a chart or a role, in the directories of their samples.

use crate::{CommandOutput, Home};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Runs a command in a directory of the repository's samples.
fn run_in(home: &Home, sample: &str, args: &[&str]) -> CommandOutput {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(sample);
    CommandOutput::of(&home.command(args).current_dir(folder).output().unwrap())
}

#[test]
fn operators_of_charts_and_roles_pass_the_scorecard() {
    let home = Home::new("samples");
    for sample in ["memcached-helm", "memcached-ansible", "visitors-helm", "visitors-ansible"] {
        let output = run_in(&home, sample, &["scorecard", "-o=json"]).ok();
        let checks: Vec<Value> = serde_json::from_str(&output.out).unwrap();
        assert_eq!(checks.len(), 11, "{sample}: {output:?}");
        assert!(checks.iter().all(|check| check["outcome"] == "passed"), "{sample}: {output:?}");
    }
}

/// Returns the names of the files of a directory of the repository, without their extensions.
fn files_of(directory: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
    let names = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn visitors_has_a_file_for_each_tier_in_each_form() {
    for (directory, shared) in [
        ("operators/visitors/src/controllers/visitorsapp", &["tier"][..]),
        ("samples/visitors", &[]),
        ("samples/visitors-ansible/roles/visitors/tasks", &["main"]),
        ("samples/visitors-helm/helm-charts/visitors/templates", &["NOTES", "_helpers"]),
    ] {
        let tiers = ["backend", "database", "frontend"];
        let expected = tiers.iter().chain(shared).map(ToString::to_string).collect();
        assert_eq!(files_of(directory), expected, "{directory}");
    }
}

#[test]
fn levels_of_charts_and_roles_are_proven_by_cases() {
    let home = Home::new("levelsamples");
    for sample in ["visitors-helm", "visitors-ansible"] {
        let output = run_in(&home, sample, &["levels", "-o=json"]).ok();
        let report: Value = serde_json::from_str(&output.out).unwrap();
        assert_eq!(report["level"], 2, "{sample}: {output:?}");
        assert_eq!(report["levels"][0]["proofs"][0]["test"], "level_1_install");
        let output = run_in(&home, ".", &["levels", sample, "--level=1"]).ok().out;
        assert!(output.contains("level_1_install") && !output.contains("level_2"), "{output}");
    }
    run_in(&home, "memcached-helm", &["levels"]).fails_with(&["no proofs found", "level_1_install"]);
}

#[test]
fn operators_of_charts_and_roles_describe_themselves() {
    let home = Home::new("describesamples");
    for (sample, owned) in [("memcached-helm", "statefulsets.v1.apps"), ("memcached-ansible", "deployments.v1.apps")] {
        let output = run_in(&home, sample, &["describe", "operator", "watches.yaml"]).ok().out;
        assert!(output.contains("Memcached") && output.contains(owned), "{sample}: {output}");
        let output = run_in(&home, sample, &["render", "--image", "registry.example.com/operator:1"]).ok().out;
        assert!(
            output.contains("kind: CustomResourceDefinition") && output.contains("kind: ClusterRole\n"),
            "{output}"
        );
    }
}

#[test]
fn errors_in_watches_are_named() {
    let home = Home::new("badwatches");
    let check = |text: &str, words: &[&str]| {
        fs::write(home.0.join("watches.yaml"), text).unwrap();
        let output = home.run(&["operate", "watches.yaml", "describe"]);
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(words.iter().all(|word| output.err.contains(word)), "{output:?}");
        // Other commands call it as the program of the project in the directory.
        home.run(&["manifests"]).fails_with(words);
    };
    let entry = "group: example.com, version: v1, kind: Site";
    check(&format!("[{{{entry}, chart: none}}]"), &["watches.yaml", "none"]);
    check(&format!("[{{{entry}, role: none}}]"), &["watches.yaml", "role none not found"]);
    check(
        &format!("[{{{entry}, chart: a}}, {{{entry}, role: b}}]"),
        &["charts and roles or playbooks", "separate file"],
    );
    check("{", &["watches.yaml"]);
    check("kind: Site", &["watches.yaml"]);
}

#[test]
fn chart_is_rendered_as_by_helm() {
    let home = Home::new("helm");
    let args = ["helm", "template", "site", "./helm-charts/memcached", "--set", "replicaCount=4"];
    let output = run_in(&home, "memcached-helm", &args).ok().out;
    assert!(output.starts_with("---\n# Source: memcached/templates/") && output.contains("replicas: 4\n"), "{output}");
    home.run(&["helm", "template", "site", "./none"]).fails_with(&["Error: path \"./none\" not found"]);
}
