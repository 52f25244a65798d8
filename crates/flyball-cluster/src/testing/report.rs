//! What a test tells of permissions to whoever started it: `flyball test --rbac`.

use super::{Log, Permission};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Names the file that gets a line of JSON from each test.
const FILE: &str = "FLYBALL_TEST_PERMISSIONS";

/// Adds a line about an operator if somebody asked for it: what it may do, what it did, and what it was denied.
///
/// One test alone shows little: what it leaves unused, another uses. So the lines are summed up by whoever reads them.
pub(super) fn write(operator: &str, rules: &[PolicyRule], log: &Log) -> io::Result<()> {
    std::env::var_os(FILE).map_or(Ok(()), |path| append(Path::new(&path), operator, rules, log))
}

fn append(path: &Path, operator: &str, rules: &[PolicyRule], log: &Log) -> io::Result<()> {
    let told = |permission: &Permission| permission.to_string();
    let line = json!({
        "operator": operator,
        "granted": Permission::granted(rules).iter().map(told).collect::<Vec<_>>(),
        "used": log.requests().counts.keys().map(told).collect::<Vec<_>>(),
        "denied": log.denials().iter().map(|denial| told(&denial.permission)).collect::<Vec<_>>(),
        "places": log.describe_denials(),
    });
    // Tests end at the same time; a line written at once stays one.
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn each_test_adds_a_line() {
        let path = std::env::temp_dir().join(format!("flyball-report-{}", std::process::id()));
        let rule = json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "get"]});
        let rules: Vec<PolicyRule> = vec![serde_json::from_value(rule).expect("it is a rule")];
        for operator in ["a", "b"] {
            append(&path, operator, &rules, &Log::default()).expect("the folder for temporary files can be written to");
        }
        let text = std::fs::read_to_string(&path).expect("it was written");
        std::fs::remove_file(&path).expect("it was written");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        assert_eq!((lines.len(), &lines[1]["operator"]), (2, &json!("b")));
        assert_eq!(lines[0]["granted"], json!(["get deployments.apps", "list deployments.apps"]));
    }
}
