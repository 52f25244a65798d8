//! The program of an operator: how it is built, and what it tells of itself.

use crate::apply;
use crate::error::{Error, Result, ResultExt};
use crate::process::{Hear, relay};
use crate::terminal;
use flyball::Description;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// How to build the project in this folder.
#[derive(Clone, Default)]
pub(crate) struct Build {
    /// Which of its programs, if it has several.
    pub(crate) bin: Option<String>,
    /// Cargo's profile; `dev` unless given.
    pub(crate) profile: Option<String>,
    /// What it is to run on; this machine unless given.
    pub(crate) target: Option<String>,
    /// What cargo finds in its environment besides ours.
    pub(crate) variables: BTreeMap<String, String>,
    /// Who hears what cargo says; standard error unless given.
    pub(crate) hear: Option<Hear>,
}

impl Build {
    /// Returns the build that `--bin` and `--release` mean.
    pub(crate) fn new(bin: Option<&str>, release: bool) -> Self {
        Self { bin: bin.map(Into::into), profile: release.then(|| "release".into()), ..Self::default() }
    }

    /// Builds it, whose messages people see as they come, and returns the program.
    ///
    /// # Errors
    ///
    /// When cargo is not there or fails, and when there is not exactly one program.
    pub(crate) async fn run(&self) -> Result<PathBuf> {
        Ok(self.artifact().await?.0)
    }

    /// Builds it as [`run`](Self::run) does, and returns the program with cargo's name of the package that it is of.
    pub(crate) async fn artifact(&self) -> Result<(PathBuf, String)> {
        let mut cargo = cargo();
        cargo.args(["build", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped()).kill_on_drop(true);
        for (flag, value) in [("--bin", &self.bin), ("--profile", &self.profile), ("--target", &self.target)] {
            cargo.args(value.as_ref().map(|value| format!("{flag}={value}")));
        }
        cargo.envs(&self.variables);
        if self.hear.is_some() {
            cargo.stderr(Stdio::piped());
            cargo.args(terminal::is_lively().then_some("--color=always"));
        }
        let mut cargo = cargo.spawn().when("cannot start cargo").map_err(|error| {
            error.hint("install the Rust toolchain from https://rustup.rs, or name a program with --program")
        })?;
        let heard = self.hear.clone().and_then(|hear| Some(relay(cargo.stderr.take()?, hear)));
        let built = cargo.wait_with_output().await.when("cannot run cargo")?;
        if let Some(heard) = heard {
            // What was said last comes before what follows from it.
            let _ = heard.await;
        }
        if !built.status.success() {
            return Err(Error::new("the project does not build"));
        }
        let messages = built.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let program = |message: Value| {
            Some((message["executable"].as_str()?.to_owned(), message["package_id"].as_str()?.to_owned()))
        };
        let programs: Vec<(String, String)> = messages.filter_map(program).collect();
        match &programs[..] {
            [(program, package)] => Ok((program.into(), package.clone())),
            [] => Err(Error::new("the project in this folder has no program").hint("name one: --program FILE")),
            several => {
                let names: Vec<&str> = several.iter().map(|(program, _)| program.as_str()).collect();
                Err(Error::new(format!("the project has several programs: {}", names.join(", ")))
                    .hint("name one: --bin NAME"))
            }
        }
    }
}

/// Returns the cargo that is to be used.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds the project in this folder, whose messages people see as they come, and returns the program.
#[allow(dead_code, reason = "for commands that build and nothing more")]
pub(crate) async fn build(bin: Option<&str>, release: bool) -> Result<PathBuf> {
    Build::new(bin, release).run().await
}

/// Asks an operator for what it needs to be in the cluster.
pub(crate) async fn manifests(
    program: &Path,
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Value>> {
    Ok(apply::flat(ask(program, "manifests", args, variables).await?))
}

/// Asks an operator what it is.
pub(crate) async fn describe(
    program: &Path,
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<Description> {
    let told = ask(program, "describe", args, variables).await?;
    serde_json::from_value(told).when(format!("{} did not describe an operator", program.display()))
}

async fn ask(program: &Path, what: &str, args: &[String], variables: &BTreeMap<String, String>) -> Result<Value> {
    let doing = || format!("cannot run {} {what}", program.display());
    let mut command = Command::new(program);
    command.arg(what).args(args).envs(variables).stdout(Stdio::piped());
    let told = command.spawn().when(doing())?.wait_with_output().await.when(doing())?;
    if !told.status.success() {
        return Err(Error::new(format!("{} {what} ended with {}", program.display(), told.status)));
    }
    serde_json::from_slice(&told.stdout).when(format!("{} is no operator", program.display()))
}
