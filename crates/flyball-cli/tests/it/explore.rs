//! `flyball explore` on an operator in another language, as a process.

use crate::{CommandOutput, Home};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/explore");

/// Returns false, with a message, if there is no Python.
#[expect(clippy::print_stderr, reason = "the output reports skipped checks")]
pub(crate) fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: python3 is not installed");
    }
    found
}

impl Home {
    /// Explores a command of the shell with the definition of sites.
    fn explore(&self, exec: &str, args: &[&str]) -> CommandOutput {
        let crds = format!("{DATA}/crd.yaml");
        let mut command = self.command(&["explore", "--exec", exec, "--crds", &crds]);
        command.args(args).env("PATH", std::env::var_os("PATH").unwrap());
        CommandOutput::of(&command.output().unwrap())
    }

    fn samples(&self) -> String {
        format!("{DATA}/site.yaml")
    }
}

fn operator(variables: &str) -> String {
    format!("{variables} exec python3 -B {DATA}/operator.py")
}

#[test]
fn creation_before_recording_is_found_kept_and_replayed() {
    if !has_python() {
        return;
    }
    let home = Home::new("explore-bug");
    let samples = home.samples();
    let args = ["--samples", &samples, "--quiet", "500ms", "--wait", "jsonpath={.status.ready}=true"];
    let output = home.explore(&operator("BUG=generated"), &[&args[..], &["-o", "json", "--keep", "twice"]].concat());
    assert_eq!(output.code, Some(1), "{output:?}");
    let reports: Value = serde_json::from_str(&output.out).unwrap();
    let finding = &reports["reports"][0]["findings"][0];
    assert!(finding["object"].as_str().unwrap().starts_with("configmaps/blog-"), "{finding:#}");
    assert!(finding["rate"]["seen"].as_u64() >= Some(2), "{finding:#}");
    let schedule = finding["schedule"].as_str().unwrap();
    let kept = fs::read_to_string(home.0.join("explore.txt")).unwrap();
    assert!(kept.contains(&format!("twice: {schedule}\n")), "{kept}");

    let output = home.explore(&operator("BUG=generated"), &[&args[..], &["--replay", schedule]].concat());
    assert_eq!(output.code, Some(1), "{output:?}");
    for part in ["FAIL  ", "rule: ", "FAULT", "output of the operator"] {
        assert!(output.out.contains(part), "{part}: {}", output.out);
    }
    let output = home.explore(&operator(""), &[&args[..], &["--replay", schedule, "-o", "junit"]].concat());
    assert_eq!(output.code, Some(0), "the fixed operator: {output:?}");
    assert!(output.out.starts_with("<?xml") && output.out.trim_end().ends_with("</testsuites>"), "{}", output.out);
    assert_eq!(output.out.matches("<?xml").count(), 1);
}

#[test]
fn correct_operator_is_clean_with_its_own_permissions() {
    if !has_python() {
        return;
    }
    let home = Home::new("explore-clean");
    let (samples, rbac) = (home.samples(), format!("{DATA}/rbac.yaml"));
    let args = ["--samples", &samples, "--rbac", &rbac, "--quiet", "500ms", "--budget", "24"];
    let output = home.explore(&operator(""), &args).ok();
    assert!(output.out.contains("0 findings in 24 schedules"), "{output:?}");
    assert!(output.out.contains("crash-after"), "{output:?}");
}

#[test]
fn scenarios_are_read_from_files() {
    if !has_python() {
        return;
    }
    let home = Home::new("explore-scenario");
    let steps = "- apply: site.yaml\n- settle\n- delete: sites.example.com/blog\n- settle\n";
    fs::write(home.0.join("life.yaml"), steps).unwrap();
    fs::copy(Path::new(DATA).join("site.yaml"), home.0.join("site.yaml")).unwrap();
    let args = ["--scenario", "life.yaml", "--quiet", "300ms", "--replay"];
    home.explore(&operator(""), &[&args[..], &["life; seed=1; create:configmaps/blog#1 crash-after"]].concat()).ok();
    let unknown = home.explore(&operator(""), &[&args[..], &["default; seed=1"]].concat());
    unknown.usage();
    assert!(unknown.err.contains("no scenario \"default\""), "{unknown:?}");
    fs::write(home.0.join("life.yaml"), "- rest\n").unwrap();
    let invalid = home.explore(&operator(""), &[&args[..], &["life; seed=1"]].concat());
    invalid.usage();
    assert!(invalid.err.contains("step 1: unknown step \"rest\""), "{invalid:?}");
}

#[test]
fn operators_that_do_not_run_are_reported_with_their_output() {
    let home = Home::new("explore-errors");
    let samples = home.samples();
    let args = ["--samples", &samples, "--timeout", "2s"];
    let missing = home.explore("./no-such-operator", &args);
    missing.usage();
    assert!(missing.err.contains("command was not found") && missing.err.contains("no-such-operator"), "{missing:?}");
    let ended = home.explore("echo no configuration; exit 3", &args);
    ended.usage();
    assert!(ended.err.contains("exited with status 3") && ended.err.contains("no configuration"), "{ended:?}");
    let silent = home.explore("exec sleep 600", &args);
    silent.usage();
    assert!(silent.err.contains("no request") && silent.err.contains("KUBECONFIG"), "{silent:?}");
}

#[test]
fn wrong_inputs_are_usage_errors() {
    let home = Home::new("explore-usage");
    fs::write(home.0.join("page.yaml"), "{apiVersion: example.com/v1, kind: Page, metadata: {name: a}}").unwrap();
    for (args, why) in [
        (vec![], "no samples found"),
        (vec!["--samples", "page.yaml"], "serves no kind \"Page\""),
        (vec!["--samples", "page.yaml", "--replay", "default; watch:a#1 crash-after"], "cannot be injected"),
        (vec!["--samples", "page.yaml", "--wait", "jsonpath={a}"], "expected a dot"),
        (vec!["--samples", "page.yaml", "--budget", "soon"], "neither a duration"),
        (vec!["--samples", "page.yaml", "--quiet", "1ms"], "at least 50ms"),
    ] {
        let output = home.explore("true", &args);
        output.usage();
        assert!(output.err.contains(why), "{why}: {output:?}");
    }
}
