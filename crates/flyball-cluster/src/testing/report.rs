//! What a test tells of permissions to whoever started it: `flyball test --rbac`.

use super::{Log, Permission};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// Names the file that gets a line of JSON from each test.
const FILE: &str = "FLYBALL_TEST_PERMISSIONS";

/// Adds a line about an operator if somebody asked for it: what it may do, what it did, and what it was denied.
///
/// One test alone shows little: what it leaves unused, another uses. So the lines are summed up by whoever reads them.
pub(super) fn write(operator: &str, rules: &[PolicyRule], log: &Log) -> io::Result<()> {
    let Some(path) = std::env::var_os(FILE) else { return Ok(()) };
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
