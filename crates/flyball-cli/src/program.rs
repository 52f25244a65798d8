//! The program of an operator: how it is built, and what it tells of itself.

use crate::apply;
use crate::error::{Error, Result, ResultExt};
use clap::Args;
use flyball::Description;
use serde_json::{Value, json};
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

/// The flags that say which program it is.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// A program that is built already, instead of the project in this folder
    #[arg(long, value_name = "FILE", conflicts_with = "bin")]
    program: Option<PathBuf>,
    /// Which program of the project, if it has several
    #[arg(long)]
    bin: Option<String>,
}

/// The program of an operator, which is asked what the operator is.
#[derive(Debug)]
pub(crate) struct Program(PathBuf);

impl Program {
    /// Finds the program that is meant, and builds it if it is the project's.
    pub(crate) async fn find(args: &SourceArgs) -> Result<Self> {
        match &args.program {
            Some(program) => Ok(Self(program.clone())),
            None => build(args.bin.as_deref(), false).await.map(Self),
        }
    }

    /// Asks what the operator is.
    pub(crate) async fn describe(&self, args: &[String]) -> Result<Description> {
        let told = ask(&self.0, "describe", args, &BTreeMap::new()).await?;
        serde_json::from_slice(&told).when(format!("{} is no operator", self.0.display()))
    }

    /// Asks what the operator needs to be in the cluster.
    pub(crate) async fn manifests(&self, args: &[String], variables: &BTreeMap<String, String>) -> Result<Vec<Value>> {
        manifests(&self.0, args, variables).await
    }
}

/// Asks an operator for what it needs to be in the cluster.
pub(crate) async fn manifests(
    program: &Path,
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Value>> {
    let told = ask(program, "manifests", args, variables).await?;
    let list: Value = serde_json::from_slice(&told).when(format!("{} is no operator", program.display()))?;
    let mut objects = apply::flat(list);
    objects.iter_mut().filter(|object| object["kind"] == "CustomResourceDefinition").for_each(tidy);
    Ok(objects)
}

/// Runs a command of an operator's program, and returns what it said.
async fn ask(program: &Path, command: &str, args: &[String], variables: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let what = || format!("cannot run {} {command}", program.display());
    let mut process = Command::new(program);
    process.arg(command).args(args).envs(variables).stdout(Stdio::piped());
    let told = process.spawn().when(what())?.wait_with_output().await.when(what())?;
    if !told.status.success() {
        return Err(Error::new(format!("{} {command} ended with {}", program.display(), told.status))
            .hint("what the operator needs to say what it is goes behind --, such as -- --token x"));
    }
    Ok(told.stdout)
}

/// Takes the marks of the generator of schemas out of a definition, which say nothing to the API server, and names what it would name itself.
fn tidy(definition: &mut Value) {
    let names = &mut definition["spec"]["names"];
    if let (true, Some(kind)) = (names["listKind"].is_null(), names["kind"].as_str()) {
        names["listKind"] = format!("{kind}List").into();
    }
    for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let schema = &mut version["schema"]["openAPIV3Schema"];
        if let Some(root) = schema.as_object_mut() {
            root.remove("title");
            // These are of every object, and editors that read the schema should know of them.
            if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
                for (name, kind) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
                    properties.entry(name).or_insert_with(|| json!({"type": kind}));
                }
            }
        }
        // A status is there or not, but never null: null is taken out before anything is stored.
        if let Some(status) = schema.pointer_mut("/properties/status").and_then(Value::as_object_mut) {
            status.remove("nullable");
        }
        whole(schema);
    }
}

/// Writes bounds that are whole numbers as such.
fn whole(schema: &mut Value) {
    match schema {
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
            if let Some(float) = float {
                let whole = float as i64;
                *schema = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole),
        Value::Object(fields) => fields.values_mut().for_each(whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
