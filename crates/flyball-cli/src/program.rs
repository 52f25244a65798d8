//! The program of an operator: how it is built, and what it tells of itself.

use crate::apply;
use crate::error::{Error, Result, ResultExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// Builds the project in this folder, whose messages people see as they come, and returns the program.
pub(crate) async fn build(bin: Option<&str>, release: bool) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    cargo.args(release.then_some("--release"));
    cargo.args(bin.map(|bin| format!("--bin={bin}")));
    let built = cargo.spawn().when("cannot start cargo")?.wait_with_output().await.when("cannot run cargo")?;
    if !built.status.success() {
        return Err(Error::new("the project does not build"));
    }
    let messages = built.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let programs: Vec<String> =
        messages.filter_map(|message: Value| message["executable"].as_str().map(str::to_owned)).collect();
    match &programs[..] {
        [program] => Ok(program.into()),
        [] => Err(Error::new("the project in this folder has no program").hint("name one: --program FILE")),
        several => Err(Error::new(format!("the project has several programs: {}", several.join(", ")))
            .hint("name one: --bin NAME")),
    }
}

/// Asks an operator for what it needs to be in the cluster.
pub(crate) async fn manifests(
    program: &Path,
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Value>> {
    let what = || format!("cannot run {} manifests", program.display());
    let mut command = Command::new(program);
    command.arg("manifests").args(args).envs(variables).stdout(Stdio::piped());
    let told = command.spawn().when(what())?.wait_with_output().await.when(what())?;
    if !told.status.success() {
        return Err(Error::new(format!("{} manifests ended with {}", program.display(), told.status)));
    }
    let list: Value = serde_json::from_slice(&told.stdout).when(format!("{} is no operator", program.display()))?;
    Ok(apply::flat(list))
}
