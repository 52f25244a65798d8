//! The program of an operator: build and description.

use crate::cluster::apply;
use crate::error::{Error, Result, ResultExt};
use crate::files::WATCHES;
use crate::operator::inputs;
use crate::operator::process::{LineSink, forward_lines};
use crate::render::terminal;
use clap::Args;
use flyball::description::Description;
use flyball_ansible::{AnsibleRequirement, Executor, Watches};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use tokio::process::Command;

/// Lines of a failed program's standard error that are printed.
const MAX_PRINTED_LINES: usize = 10;

/// Options of a build of the project in this directory.
#[derive(Clone, Default)]
pub(crate) struct Build {
    /// Binary target, if the project has several.
    pub(crate) bin: Option<String>,
    /// Cargo profile; defaults to `dev`.
    pub(crate) profile: Option<String>,
    /// Use the build of `cargo test`, whose features of dependencies may differ from those of `cargo build`.
    pub(crate) of_tests: bool,
    /// Target triple; this machine by default.
    pub(crate) target: Option<String>,
    /// Additional environment variables of cargo.
    pub(crate) variables: BTreeMap<String, String>,
    /// Sink for the output of cargo; standard error by default.
    pub(crate) sink: Option<LineSink>,
}

impl Build {
    /// Returns the build that `--bin` and `--release` mean.
    pub(crate) fn new(bin: Option<&str>, release: bool) -> Self {
        Self { bin: bin.map(Into::into), profile: release.then(|| "release".into()), ..Self::default() }
    }

    /// Builds it with cargo's messages on standard error, and returns the program.
    ///
    /// # Errors
    ///
    /// If cargo is missing or fails, or if there is not exactly one program.
    pub(crate) async fn run(&self) -> Result<PathBuf> {
        Ok(self.artifact().await?.0)
    }

    /// Builds it as [`run`](Self::run) does, and returns the program with the ID of its package.
    pub(crate) async fn artifact(&self) -> Result<(PathBuf, String)> {
        check_project()?;
        let mut cargo = cargo();
        cargo.args(if self.of_tests { &["test", "--no-run"][..] } else { &["build"] });
        cargo.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped()).kill_on_drop(true);
        // Of a program alone, cargo would build the tests.
        let bin = self.bin.as_ref().filter(|_| !self.of_tests);
        for (flag, value) in [("--bin", bin), ("--profile", self.profile.as_ref()), ("--target", self.target.as_ref())]
        {
            cargo.args(value.map(|value| format!("{flag}={value}")));
        }
        cargo.envs(&self.variables);
        if self.sink.is_some() {
            cargo.stderr(Stdio::piped());
            cargo.args(terminal::is_interactive().then_some("--color=always"));
        }
        let mut cargo = cargo
            .spawn()
            .context("cannot start cargo")
            .map_err(|error| error.hint("install Rust from https://rustup.rs, or pass --program FILE"))?;
        let relayed = self.sink.clone().and_then(|sink| Some(forward_lines(cargo.stderr.take()?, sink)));
        let built = cargo.wait_with_output().await.context("cannot run cargo")?;
        if let Some(relayed) = relayed {
            // The last output precedes the error.
            let _ = relayed.await;
        }
        if !built.status.success() {
            return Err(Error::new("the project failed to build"));
        }
        let messages = built.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let program = |message: Value| {
            let is_meant = self.bin.as_ref().is_none_or(|bin| message["target"]["name"] == **bin);
            if self.of_tests && (message["profile"]["test"] == true || !is_meant) {
                return None;
            }
            Some((message["executable"].as_str()?.to_owned(), message["package_id"].as_str()?.to_owned()))
        };
        let programs: Vec<(String, String)> = messages.filter_map(program).collect();
        match &programs[..] {
            [(program, package)] => Ok((program.into(), package.clone())),
            [] => Err(Error::new("the project has no binary target").hint("pass --program FILE")),
            several => {
                let names: Vec<&str> = several.iter().map(|(program, _)| program.as_str()).collect();
                Err(Error::new(format!("the project has several binary targets: {}", names.join(", ")))
                    .hint("pass --bin NAME"))
            }
        }
    }
}

/// Refuses a directory that is in no cargo package: cargo's own words for it name no remedy.
pub(crate) fn check_project() -> Result<()> {
    if let Some(program) = Program::here() {
        return Err(Error::new(format!("{program} has no build; this command supports only operators in Rust"))
            .hint("charts and roles run in flyball itself: flyball run, flyball deploy"));
    }
    match is_in_package() {
        true => Ok(()),
        false => Err(missing_project("change to the project's directory, or pass --program FILE")),
    }
}

/// Returns true if this directory is in a cargo package or workspace.
fn is_in_package() -> bool {
    let folder = std::env::current_dir().unwrap_or_default();
    folder.ancestors().any(|above| above.join("Cargo.toml").is_file())
}

/// Returns the error of a command in a directory without a project.
pub(crate) fn missing_project(hint: &str) -> Error {
    let folder = std::env::current_dir().unwrap_or_default();
    Error::new(format!("no project here: no Cargo.toml or {WATCHES} found in {}", folder.display())).hint(hint)
}

/// Returns the path of cargo.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The flags for the program.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SourceArgs {
    /// Use a prebuilt program or a watches.yaml instead of the project in this directory
    #[arg(long, value_name = "FILE", conflicts_with = "bin")]
    program: Option<Program>,
    /// Binary target of the project, if it has several
    #[arg(long)]
    bin: Option<String>,
}

impl SourceArgs {
    /// Returns the flags for a program.
    pub(crate) fn of(program: Program) -> Self {
        Self { program: Some(program), bin: None }
    }

    /// Returns true if it is the program of the project.
    pub(crate) fn is_of_project(&self) -> bool {
        self.program.is_none()
    }
}

/// The program of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// A file that runs.
    File(PathBuf),
    /// This program with a watches.yaml, which maps kinds to charts, roles and playbooks.
    Watches(PathBuf),
    /// This program as the operator lifecycle manager.
    Lifecycle,
}

impl FromStr for Program {
    type Err = String;

    /// Reads the path of a program, of a `watches.yaml`, or of a directory with one.
    fn from_str(path: &str) -> Result<Self, String> {
        let watches = Path::new(path).join(WATCHES);
        if watches.is_file() {
            return Ok(Self::Watches(watches));
        }
        if Path::new(path).is_dir() {
            return Err(format!("the directory has no {WATCHES}: pass a program, or run flyball in the directory"));
        }
        Ok(Self::of(Path::new(path)))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Watches(path) => path.display().fmt(f),
            Self::Lifecycle => f.write_str("flyball olm run"),
        }
    }
}

impl Program {
    /// Distinguishes a `watches.yaml` from a program, by its name.
    pub(crate) fn of(path: &Path) -> Self {
        let is_yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        if is_yaml { Self::Watches(path.into()) } else { Self::File(path.into()) }
    }

    /// Finds the program of the project in this directory, if nothing needs to be built for it.
    pub(crate) fn here() -> Option<Self> {
        let watches = Path::new(WATCHES);
        (watches.is_file() && !Path::new("Cargo.toml").exists()).then(|| Self::Watches(watches.into()))
    }

    /// Returns true if it is a watches.yaml with roles or playbooks.
    pub(crate) fn has_roles(&self) -> bool {
        self.entries().iter().any(|entry| entry["chart"].is_null())
    }

    /// Returns the entries of its watches.yaml; none if it is a file.
    pub(crate) fn entries(&self) -> Vec<Value> {
        match self {
            Self::File(_) | Self::Lifecycle => Vec::new(),
            Self::Watches(path) => entries(path),
        }
    }

    /// Returns its roles and playbooks that the built-in executor does not run.
    pub(crate) fn ansible_requirements(&self) -> Vec<AnsibleRequirement> {
        match self {
            // The operator itself reports errors of the file.
            Self::Watches(path) if self.has_roles() => Watches::read(path)
                .map(|watches| flyball_ansible::ansible_requirements(&watches, Executor::Auto))
                .unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Refuses to run roles that need `ansible-playbook` if it is not installed.
    pub(crate) fn check_executors(&self) -> Result<()> {
        let on_path = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&on_path).any(|folder| folder.join("ansible-playbook").is_file()) {
            return Ok(());
        }
        match self.ansible_requirements().into_iter().next() {
            None => Ok(()),
            Some(requirement) => Err(Error::new(requirement.error.to_string()).hint(
                "install it: pip install ansible-core kubernetes, and the collections of the project: \
                 ansible-galaxy collection install -r requirements.yml; `flyball ansible coverage` lists all such tasks",
            )),
        }
    }

    /// Finds the selected program, and builds it if needed.
    pub(crate) async fn find(args: &SourceArgs) -> Result<Self> {
        match args.program.clone().or_else(Self::here) {
            Some(program) => Ok(program),
            None => Build::new(args.bin.as_deref(), false).run().await.map(Self::File),
        }
    }

    /// Returns the file to execute, and its leading arguments.
    pub(crate) fn command_line(&self) -> Vec<OsString> {
        match self {
            Self::File(path) => vec![path.into()],
            Self::Watches(path) => vec![this_program(), "operate".into(), path.into()],
            Self::Lifecycle => vec![this_program(), "olm".into(), "run".into()],
        }
    }

    /// Returns the files that it depends on, besides those that only its build reports.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::File(path) => vec![path.clone()],
            Self::Lifecycle => Vec::new(),
            Self::Watches(path) => inputs::of_watches(path, &entries(path)),
        }
    }

    /// Returns the manifests of the operator.
    pub(crate) async fn manifests(&self, args: &[String], variables: &BTreeMap<String, String>) -> Result<Vec<Value>> {
        let list: Value = self.query("manifests", args, variables).await?;
        let mut objects = apply::objects(apply::items(list), &format!("output of `{self} manifests`"))?;
        objects.iter_mut().filter(|object| object["kind"] == "CustomResourceDefinition").for_each(normalize_definition);
        Ok(objects)
    }

    /// Returns the description of the operator.
    pub(crate) async fn describe(&self, args: &[String], variables: &BTreeMap<String, String>) -> Result<Description> {
        self.query("describe", args, variables).await
    }

    /// Runs the program with arguments that make it print its help.
    pub(crate) async fn print_help(&self, args: &[String]) -> Result<()> {
        let line = self.command_line();
        let shown = [&[self.to_string()], args].concat().join(" ");
        let mut process = Command::new(&line[0]);
        // Behind a command, the arguments are not those of this program.
        process.args(&line[1..]).arg("run").args(args).stdout(Stdio::inherit()).stderr(Stdio::piped());
        let started = process.spawn().context(format!("cannot run `{shown}`"))?;
        let response = started.wait_with_output().await.context(format!("cannot run `{shown}`"))?;
        let printed = String::from_utf8_lossy(&response.stderr);
        if !response.status.success() {
            return Err(self.failed(&shown, &format!("failed with {}", response.status), &printed));
        }
        terminal::forward_stderr(&printed);
        Ok(())
    }

    /// Runs a command of the program and parses its output.
    async fn query<T: DeserializeOwned>(
        &self,
        command: &str,
        args: &[String],
        variables: &BTreeMap<String, String>,
    ) -> Result<T> {
        let shown = [&[self.to_string(), command.to_owned()], args].concat().join(" ");
        let line = self.command_line();
        let mut process = Command::new(&line[0]);
        process.args(&line[1..]).arg(command).args(args).envs(variables).stdin(Stdio::null());
        let response = process.output().await.context(format!("cannot run `{shown}`"))?;
        let printed = String::from_utf8_lossy(&response.stderr);
        if !response.status.success() {
            return Err(self.failed(&shown, &format!("failed with {}", response.status), &printed));
        }
        match serde_json::from_slice(&response.stdout) {
            Ok(read) => {
                terminal::forward_stderr(&printed);
                Ok(read)
            }
            Err(error) => {
                let what = match response.stdout.trim_ascii() {
                    [] => "printed nothing on standard output; JSON is expected".to_owned(),
                    _ => format!("did not print JSON on standard output ({error})"),
                };
                Err(self.failed(&shown, &what, &printed))
            }
        }
    }

    /// Returns the error of a command of the program, with the last lines of its standard error.
    fn failed(&self, shown: &str, what: &str, printed: &str) -> Error {
        let lines: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
        // The message of a watches.yaml's operator is complete: it names the file and the entry.
        if let (Self::Watches(_), [first, hints @ ..]) = (self, &lines[..]) {
            let hints = hints.iter().filter_map(|line| line.strip_prefix("hint: "));
            return hints.fold(Error::new(first.trim_start_matches("error: ")), Error::hint);
        }
        let printed = match &lines[lines.len().saturating_sub(MAX_PRINTED_LINES)..] {
            [] => String::new(),
            [line] => format!(": {}", line.trim_start_matches("error: ")),
            lines => format!("; it printed on standard error:\n  {}", lines.join("\n  ")),
        };
        Error::new(format!("`{shown}` {what}{printed}")).hint(
            "the program must call Operator::main of this release; pass the flags it needs after --, such as -- --token x",
        )
    }
}

/// Returns the path of this program.
fn this_program() -> OsString {
    std::env::current_exe().unwrap_or_else(|_| "flyball".into()).into()
}

/// Returns the entries of a watches.yaml, none if it is invalid: the operator itself reports errors.
fn entries(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_saphyr::from_str(&text).unwrap_or_default()
}

/// Removes attributes of the schema generator, which the API server ignores, from a definition, and sets its default
/// names. Parts of other types remain: the API server rejects them.
fn normalize_definition(definition: &mut Value) {
    if let Some(names) = definition.pointer_mut("/spec/names").and_then(Value::as_object_mut)
        && names.get("listKind").is_none_or(Value::is_null)
        && let Some(kind) = names.get("kind").and_then(Value::as_str).map(str::to_owned)
    {
        names.insert("listKind".into(), format!("{kind}List").into());
    }
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") else { continue };
        if let Some(root) = schema.as_object_mut() {
            root.remove("title");
            // All objects have these fields, and editors use the schema.
            if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
                for (name, kind) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
                    properties.entry(name).or_insert_with(|| json!({"type": kind}));
                }
            }
        }
        // A status is present or absent, but never null: null is removed before storage.
        if let Some(status) = schema.pointer_mut("/properties/status").and_then(Value::as_object_mut) {
            status.remove("nullable");
        }
        write_integers(schema);
    }
}

/// Writes integral bounds as integers.
fn write_integers(schema: &mut Value) {
    match schema {
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
            if let Some(float) = float {
                let whole = float as i64;
                *schema = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_integers),
        Value::Object(fields) => fields.values_mut().for_each(write_integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_definitions_remain() {
        for spec in [json!("x"), json!([]), json!({"names": 1, "versions": [1, {"schema": "x"}]}), Value::Null] {
            let mut definition = json!({"kind": "CustomResourceDefinition", "spec": spec});
            let before = definition.clone();
            normalize_definition(&mut definition);
            assert_eq!(definition, before);
        }
        let schema = json!({"title": "Site", "properties": {"status": {"nullable": true, "minimum": 1.0}}});
        let spec = json!({"names": {"kind": "Site"}, "versions": [{"schema": {"openAPIV3Schema": schema}}]});
        let mut definition = json!({"spec": spec});
        normalize_definition(&mut definition);
        assert_eq!(definition["spec"]["names"]["listKind"], "SiteList");
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(schema["properties"]["status"], json!({"minimum": 1}));
        assert!(schema["title"].is_null() && schema["properties"]["kind"]["type"] == "string");
    }
}
