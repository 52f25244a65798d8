//! Reports of a test: permissions for `flyball test --rbac`, chaos for `flyball lint`.

use super::{Log, Permission};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Environment variable with the path of the file to which each test adds a line of JSON.
const PERMISSIONS: &str = "FLYBALL_TEST_PERMISSIONS";
/// Environment variable with the path of the file to which each chaos run adds a line of JSON.
const CHAOS: &str = "FLYBALL_TEST_CHAOS";

/// Fault applied to an operator.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum InjectedFault {
    /// Number of crashes, each in its own run.
    Crashes(usize),
    /// An outage of this length, with this number of pods in the namespace.
    Outage { seconds: u64, pods: usize },
}

/// A run with faults, and its outcome. The line is written when this is dropped, so that a test that panics reports a
/// failure.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChaosRun {
    operator: String,
    pub(super) done: InjectedFault,
    passed: bool,
    /// Faults that were requested but not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_tried: Option<String>,
}

impl ChaosRun {
    pub(super) fn new(operator: &str, done: InjectedFault) -> Self {
        Self { operator: operator.to_owned(), done, passed: false, not_tried: None }
    }

    /// Records faults that were requested but not tried.
    #[expect(clippy::print_stderr, reason = "the output of a test reports what was not tested")]
    pub(super) fn record_skipped(&mut self, what: String) {
        eprintln!("the operator {} is not tested with {what}", self.operator);
        self.not_tried = Some(what);
    }

    /// Records that the operator passed.
    pub(super) fn passed(mut self) {
        self.passed = true;
    }
}

impl Drop for ChaosRun {
    fn drop(&mut self) {
        let written = std::env::var_os(CHAOS).map_or(Ok(()), |path| append(Path::new(&path), &json!(self)));
        assert!(written.is_ok() || std::thread::panicking(), "{CHAOS} cannot be written: {written:?}");
    }
}

/// Reports the granted, used and denied permissions of an operator, if the environment variable is set.
///
/// The reader sums up the lines of all tests: a permission that one test does not use may be used by another.
pub(super) fn write(operator: &str, rules: &[PolicyRule], log: &Log) -> io::Result<()> {
    std::env::var_os(PERMISSIONS).map_or(Ok(()), |path| append(Path::new(&path), &line(operator, rules, log)))
}

fn line(operator: &str, rules: &[PolicyRule], log: &Log) -> Value {
    let text = |permission: &Permission| permission.to_string();
    json!({
        "operator": operator,
        "granted": Permission::granted(rules).iter().map(text).collect::<Vec<_>>(),
        "used": log.used().iter().map(text).collect::<Vec<_>>(),
        "denied": log.denials().iter().map(|denial| text(&denial.permission)).collect::<Vec<_>>(),
        "places": log.describe_denials(),
    })
}

fn append(path: &Path, line: &Value) -> io::Result<()> {
    // Tests run concurrently: a single write keeps a line whole.
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_appends_a_line() {
        let path = std::env::temp_dir().join(format!("flyball-report-{}", std::process::id()));
        let rule = json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "get"]});
        let rules: Vec<PolicyRule> = vec![serde_json::from_value(rule).expect("it is a rule")];
        for operator in ["a", "b"] {
            let line = line(operator, &rules, &Log::default());
            append(&path, &line).expect("the directory for temporary files can be written to");
        }
        let text = std::fs::read_to_string(&path).expect("it was written");
        std::fs::remove_file(&path).expect("it was written");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        assert_eq!((lines.len(), &lines[1]["operator"]), (2, &json!("b")));
        assert_eq!(lines[0]["granted"], json!(["get deployments.apps", "list deployments.apps"]));
    }
}
