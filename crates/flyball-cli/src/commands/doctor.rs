//! `flyball doctor`: checks the prerequisites of a project.
//!
//! All checks are independent, so a missing prerequisite hides no other.

use crate::cluster::apply;
use crate::cluster::connection::{Connection, ContextArgs, block_on};
use crate::cluster::kinds::Kinds;
use crate::error::{Error, Result};
use crate::files::{WATCHES, entries};
use crate::operator::program::Program;
use crate::project::scaffold::api::{LIB, Names, definition_path};
use crate::project::{FILE, Project};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest Rust that compiles a project.
const RUST: (u32, u32) = (1, 95);

/// Check the prerequisites of the project in this directory and print remedies
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball doctor
  flyball doctor --kubeconfig staging.yaml -o json

Exits with 1 if a check fails. Informational lines are marked with a dash.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    connection: ContextArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    Good,
    /// An optional prerequisite is missing.
    Absent,
    Wrong,
}

/// Result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    about: String,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add_success(&mut self, about: &str, found: impl Into<String>) {
        self.add(about, State::Good, found.into(), None);
    }

    fn absent(&mut self, about: &str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(about, State::Absent, found.into(), Some(remedy.into()));
    }

    fn add_failure(&mut self, about: &str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(about, State::Wrong, found.into(), Some(remedy.into()));
    }

    fn add(&mut self, about: &str, state: State, found: String, remedy: Option<String>) {
        self.0.push(Finding { about: about.into(), state, found, remedy });
    }
}

/// Manifests of a project.
struct Manifests {
    folder: PathBuf,
    /// Groups and kinds that the project defines.
    defined: BTreeSet<(String, String)>,
}

pub(crate) fn cmd_doctor(args: &DoctorArgs) -> Result<()> {
    let mut findings = Findings::default();
    let type_of_project = Project::find(Path::new(".")).ok().flatten().map(|project| project.project_type);
    let here = || Some(Manifests { folder: PathBuf::from("."), defined: BTreeSet::new() });
    let project = match (Program::here(), type_of_project) {
        // Charts, roles and playbooks run in this program, without a build.
        (Some(program), _) => {
            block_on(async {
                watches(&mut findings, &program).await;
                if let Err(error) = Project::find(Path::new(".")) {
                    findings.add_failure(FILE, error.to_string(), "fix it, or restore it from version control");
                }
                Ok(())
            })?;
            here()
        }
        (None, Some(of)) if !of.is_rust() => {
            findings.add_failure(
                WATCHES,
                format!("not found in this directory; {FILE} is that of a project of type {of}"),
                "change to the directory of the project, or restore the file from version control",
            );
            here()
        }
        (None, _) => {
            toolchain(&mut findings);
            project(&mut findings).map(|project| Manifests {
                defined: project.resources.iter().map(|one| (one.group.clone(), one.kind.clone())).collect(),
                folder: project.folder,
            })
        }
    };
    block_on(async {
        cluster(&mut findings, &args.connection, project).await;
        Ok(())
    })?;
    let Findings(findings) = findings;
    match args.output {
        Some(output) => output.print(&findings)?,
        None => findings.iter().for_each(print),
    }
    match findings.iter().filter(|finding| finding.state == State::Wrong).count() {
        0 => Ok(()),
        1 => Err(Error::new("1 problem found")),
        several => Err(Error::new(format!("{several} problems found"))),
    }
}

fn print(finding: &Finding) {
    let mark = match finding.state {
        State::Good => paint(Style::Good, "+"),
        State::Absent => paint(Style::Faint, "-"),
        State::Wrong => paint(Style::Bad, "x"),
    };
    print_line(&format!("{mark} {}: {}", finding.about, finding.found));
    if let Some(remedy) = &finding.remedy {
        print_line(&format!("    {remedy}"));
    }
}

/// Runs a program and returns its output.
fn output_of(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn toolchain(findings: &mut Findings) {
    let install = "install Rust from https://rustup.rs";
    match output_of("rustc", &["--version"]) {
        None => findings.add_failure("rust", "rustc not found", install),
        Some(output) => {
            let mut numbers = output.split([' ', '.']).filter_map(|word| word.parse::<u32>().ok());
            let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            match version >= RUST {
                true => findings.add_success("rust", output),
                false => findings.add_failure(
                    "rust",
                    format!("{output}; at least {}.{} is required", RUST.0, RUST.1),
                    "rustup update stable",
                ),
            }
        }
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    match output_of(&cargo, &["--version"]) {
        None => findings.add_failure("cargo", "cargo not found", install),
        Some(output) => findings.add_success("cargo", output),
    }
    match output_of("cc", &["--version"]) {
        None => findings.add_failure(
            "C compiler",
            "no cc found; cargo needs it to link programs",
            "install a C compiler, such as with apt-get install gcc",
        ),
        Some(output) => findings.add_success("C compiler", output.lines().next().unwrap_or_default()),
    }
    for (tool, component) in [("rustfmt", "rustfmt"), ("cargo-clippy", "clippy")] {
        if output_of(tool, &["--version"]).is_none() {
            findings.absent(component, "not installed", format!("install it: rustup component add {component}"));
        }
    }
    for target in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"] {
        let library = output_of("rustc", &["--print", "target-libdir", "--target", target]);
        let about = format!("target {target}");
        match library.is_some_and(|folder| Path::new(&folder).is_dir()) {
            true => findings.add_success(&about, "installed"),
            false => {
                let remedy = format!("optional: rustup target add {target}; without it, images contain glibc");
                findings.absent(&about, "not installed", remedy);
            }
        }
    }
}

/// Checks the watches.yaml of a Helm or Ansible project, with its charts, roles and playbooks.
async fn watches(findings: &mut Findings, program: &Program) {
    let mut kinds = Vec::new();
    match program.describe(&[], &BTreeMap::new()).await {
        Err(error) => {
            let remedy = match error.hints() {
                [] => "fix it; the operator starts when `flyball describe operator` succeeds".to_owned(),
                hints => hints.join("; "),
            };
            findings.add_failure(WATCHES, error.to_string(), remedy);
        }
        Ok(described) => {
            kinds.extend(described.controllers.into_iter().map(|controller| controller.reconciles));
            findings.add_success("project", format!("{} in {WATCHES}", described.name));
            match kinds.is_empty() {
                true => findings.absent(
                    "kinds",
                    "none",
                    "add one: flyball create api --group cache --version v1alpha1 --kind Redis",
                ),
                false => findings.add_success("kinds", kinds.join(", ")),
            }
        }
    }
    let text = fs::read_to_string(WATCHES).unwrap_or_default();
    let entries: Vec<Value> = serde_saphyr::from_str(&text).unwrap_or_default();
    if entries.iter().any(|entry| !entry["role"].is_null() || !entry["playbook"].is_null()) {
        match output_of("ansible-playbook", &["--version"]) {
            Some(output) => findings.add_success("ansible-playbook", output.lines().next().unwrap_or_default()),
            None => ansible_playbook_missing(findings, program),
        }
    }
    // The CRD of a kind is in the project or comes from another operator.
    let mut files = Vec::new();
    manifests(Path::new("config/crd"), &mut files);
    let objects = files.iter().filter_map(|file| apply::read(file).ok()).flatten();
    let defined: BTreeSet<String> = objects
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    for kind in kinds {
        let mut parts = kind.splitn(3, '.');
        let (Some(plural), Some(_), Some(group)) = (parts.next(), parts.next(), parts.next()) else { continue };
        if group.contains('.') && !group.ends_with(".k8s.io") && !defined.contains(&format!("{plural}.{group}")) {
            let remedy = "add its CustomResourceDefinition there, or apply it to the cluster before the operator runs";
            findings.absent("CRD", format!("{plural}.{group} is not in config/crd"), remedy);
        }
    }
}

/// Reports that `ansible-playbook` is not installed: a problem if a role needs it.
fn ansible_playbook_missing(findings: &mut Findings, program: &Program) {
    const INSTALL: &str = "pip install ansible-core kubernetes";
    let required = program.ansible_requirements();
    let Some(first) = required.first() else {
        let remedy = format!("optional, for roles with modules that are not built in: {INSTALL}");
        return findings.absent("ansible-playbook", "not installed", remedy);
    };
    let more = match required.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let found = format!("not installed, but {} needs it ({}){more}", first.runs, first.feature);
    let remedy = format!("{INSTALL}; `flyball ansible coverage` lists all such tasks");
    findings.add_failure("ansible-playbook", found, remedy);
}

fn project(findings: &mut Findings) -> Option<Project> {
    let project = match Project::find(Path::new(".")) {
        Err(error) => {
            findings.add_failure(FILE, error.to_string(), "fix it, or restore it from version control");
            return None;
        }
        Ok(None) => {
            findings.absent(
                "project",
                "no project in this directory",
                "create one: flyball init --domain example.com DIRECTORY",
            );
            return None;
        }
        Ok(Some(project)) => project,
    };
    findings.add_success("project", format!("{} in {}", project.project_name, project.folder.display()));
    let mut parts = BTreeMap::new();
    for path in ["Cargo.toml", LIB, "src/main.rs"] {
        parts.insert(path.to_owned(), "restore it from version control".to_owned());
    }
    for resource in &project.resources {
        let names = Names::new(&project, resource);
        let group = resource.group.strip_suffix(&format!(".{}", project.domain)).unwrap_or(&resource.group);
        let create = format!("--group {group} --version {} --kind {}", resource.version, resource.kind);
        let again =
            format!("restore it from version control, or regenerate all files: flyball create api {create} --force");
        if resource.resource {
            parts.insert(format!("src/api/{}.rs", names.module()), again.clone());
            parts.insert(format!("config/samples/{}", names.sample), again.clone());
        }
        if resource.controller {
            parts.insert(format!("src/controllers/{}.rs", names.part()), again.clone());
        }
        let webhooks = resource.webhooks;
        if webhooks.defaulting || webhooks.validation || webhooks.conversion {
            let again =
                format!("restore it from version control, or regenerate it: flyball create webhook {create} --force");
            parts.insert(format!("src/webhooks/{}.rs", names.part()), again);
        }
        if resource.foreign && project.folder.join(format!("src/api/{}.rs", names.module())).exists() {
            parts.insert(definition_path(&names), "the tests need it; restore it from version control".into());
        }
    }
    let missing: Vec<(String, String)> =
        parts.into_iter().filter(|(path, _)| !project.folder.join(path).is_file()).collect();
    match missing.is_empty() {
        true => findings.add_success("files", "all files exist"),
        false => missing
            .into_iter()
            .for_each(|(path, remedy)| findings.add_failure("file", format!("{path} not found"), remedy)),
    }
    anchors(findings, &project);
    Some(project)
}

/// Checks the anchors at which commands insert lines.
fn anchors(findings: &mut Findings, project: &Project) {
    let text = fs::read_to_string(project.folder.join(LIB)).unwrap_or_default();
    for anchor in ["api", "controllers", "webhooks", "operator"] {
        let line = format!("// +flyball:{anchor}");
        if !text.is_empty() && !text.lines().any(|known| known.trim() == line) {
            let remedy = "without it, `flyball create` prints what to add by hand";
            findings.absent("anchor", format!("{LIB} has no line `{line}`"), remedy);
        }
    }
}

async fn cluster(findings: &mut Findings, connection: &ContextArgs, project: Option<Manifests>) {
    let connection = match connection.connect().await {
        Ok(connection) => connection,
        Err(error) => {
            let remedy = "start one with `flyball cluster up`, or pass --kubeconfig FILE";
            return findings.add_failure("cluster", error.to_string(), remedy);
        }
    };
    let version = connection.client.apiserver_version().await.map(|info| info.git_version).unwrap_or_default();
    findings.add_success("cluster", format!("version {version}"));
    if let Some(project) = project {
        served(findings, &connection, project, &version).await;
    }
}

/// Checks that the cluster serves the API versions of the project's manifests.
async fn served(findings: &mut Findings, connection: &Connection, project: Manifests, version: &str) {
    let Manifests { folder, mut defined } = project;
    let mut files = Vec::new();
    manifests(&folder.join("config"), &mut files);
    let mut used: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let shown = file.strip_prefix(&folder).unwrap_or(file).display().to_string();
        // A list of JSON patches of kustomize is not an object.
        let objects = match apply::read_documents(file) {
            Ok(objects) => objects,
            Err(error) => {
                findings.add_failure("manifest", error.to_string(), "it must contain Kubernetes objects in YAML");
                continue;
            }
        };
        for object in objects {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if object["kind"].is_null() {
                continue;
            }
            if object["kind"] == "CustomResourceDefinition" {
                defined.insert((text(&object["spec"]["group"]), text(&object["spec"]["names"]["kind"])));
            }
            used.entry((text(&object["apiVersion"]), text(&object["kind"]))).or_default().insert(shown.clone());
        }
    }
    let kinds = Kinds::discover(&connection.client).await.ok();
    let mut wrong = 0;
    for ((api_version, kind), files) in used {
        let (group, one) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        // Files of kustomize and of operator-sdk's scorecard are not applied. The project's kinds are served once their
        // definitions are applied.
        let is_read = matches!(group, "kustomize.config.k8s.io" | "scorecard.operatorframework.io");
        let is_ours = is_read || defined.contains(&(group.to_owned(), kind.clone()));
        let found = pinned_kind(&connection.client, &GroupVersionKind::gvk(group, one, &kind)).await;
        if is_ours || found.is_ok() {
            continue;
        }
        wrong += 1;
        let files = files.into_iter().collect::<Vec<_>>().join(", ");
        let instead = kinds.as_ref().and_then(|kinds| kinds.of(&api_version, &kind)).map(|kind| kind.api_version());
        let found = format!("{api_version} {kind} is not served by Kubernetes {version}");
        let is_kubernetes = !group.contains('.') || group.ends_with(".k8s.io");
        match instead {
            Some(instead) => {
                let remedy = format!("use {instead}, which this cluster serves, in {files}");
                findings.add_failure("manifest", found, remedy);
            }
            None if is_kubernetes => findings.add_failure("manifest", found, format!("applying {files} will fail")),
            // Such as the kinds of the Prometheus operator, which not every cluster has.
            None => findings.absent("manifest", found, format!("install the kind before {files}")),
        }
    }
    if wrong == 0 {
        findings.add_success("manifests", "every kind in config is served");
    }
}

/// Finds all YAML and JSON files below a directory, in the order of their names.
fn manifests(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in entries(folder).unwrap_or_default() {
        if path.is_dir() {
            manifests(&path, found);
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") {
            found.push(path);
        }
    }
}
