//! `flyball init`: creates a project.

use super::create::chart::ChartArgs;
use super::create::exit_with_usage_error;
use super::create::watched::{self, AddedKind, NewKind};
use crate::chart::source::LocalChart;
use crate::error::{Error, Result};
use crate::files::entries;
use crate::project::plugins::{PluginArgs, PluginCommand};
use crate::project::scaffold::changes::{Changes, print_written};
use crate::project::scaffold::library::{Library, LibraryArgs};
use crate::project::scaffold::workspace::{self, Workspace};
use crate::project::scaffold::{package, watches};
use crate::project::{FILE, Project, ProjectType, names};
use crate::render::output::Output;
use crate::render::prompt;
use crate::render::terminal::{print_labeled, print_line};
use clap::Args;
use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

/// Create a project: an operator without kinds, in an empty directory
///
/// The operator is written in Rust, or consists of Helm charts (--helm) or Ansible roles (--ansible), which need no
/// build. In a cargo workspace, a project in Rust becomes a member and inherits the workspace's settings. At a
/// terminal, it prompts for type, domain and name, unless --domain, --helm or --ansible is given.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball init --domain acme.io
  flyball init --domain acme.io --repo github.com/acme/redis-operator redis-operator
  flyball init --domain acme.io --flyball-rev v0.1.0
  flyball init --domain acme.io --flyball-path ../flyball
  flyball init --helm --domain acme.io redis-operator
  flyball init --helm --chart ./memcached memcached-operator       with a kind for an existing chart
  flyball init --helm --chart redis --chart-repo https://charts.example.com --chart-version ^1.2 redis-operator
  flyball init --ansible --domain acme.io --group cache --version v1alpha1 --kind Redis redis-operator

By default, the project uses the library from Flyball's git repository at the version of this program.
With --flyball-path, it also uses the crate versions of that source tree, so it needs no network once these are
downloaded.")]
pub(crate) struct InitArgs {
    /// Directory of the project; created if it does not exist
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
    /// Create a project of Helm charts
    #[arg(long, conflicts_with_all = ["ansible", "flyball_path", "flyball_git", "flyball_rev", "flyball_version"])]
    helm: bool,
    /// Create a project of Ansible roles
    #[arg(long, conflicts_with_all = ["chart", "flyball_path", "flyball_git", "flyball_rev", "flyball_version"])]
    ansible: bool,
    #[command(flatten)]
    chart: ChartArgs,
    /// API group of the first kind of a Helm or Ansible project
    #[arg(long, value_parser = names::group)]
    group: Option<String>,
    /// API version of the first kind of a Helm or Ansible project
    #[arg(long, value_parser = names::version)]
    version: Option<String>,
    /// First kind of a Helm or Ansible project
    #[arg(long, value_parser = names::kind)]
    kind: Option<String>,
    /// Domain of the API groups, such as acme.io. Required in Rust, otherwise example.com by default
    #[arg(long, value_parser = names::domain)]
    domain: Option<String>,
    /// Repository of the project, such as github.com/acme/redis-operator
    #[arg(long, value_parser = repo)]
    repo: Option<String>,
    /// Name of the package and of the operator; defaults to the directory's name
    #[arg(long, value_parser = names::project)]
    name: Option<String>,
    #[command(flatten)]
    library: LibraryArgs,
    #[command(flatten)]
    plugins: PluginArgs,
    /// Output format for the list of written files
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Domain of the groups of charts and roles, as in the examples of Kubernetes.
const DOMAIN: &str = "example.com";

fn repo(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/:@+".contains(c);
    let good = !text.is_empty() && text.chars().all(plain) && text.trim_matches('/').contains('/');
    if good { Ok(text.into()) } else { Err("expected a repository such as github.com/acme/redis-operator".into()) }
}

impl InitArgs {
    fn project_type(&self) -> ProjectType {
        match (self.helm, self.ansible) {
            (true, _) => ProjectType::Helm,
            (_, true) => ProjectType::Ansible,
            // As in operator-sdk.
            (false, false) => self.plugins.project_type().unwrap_or_default(),
        }
    }

    /// Returns true if the project begins with a kind.
    fn has_first_kind(&self) -> bool {
        [&self.group, &self.version, &self.kind, &self.chart.chart].iter().any(|flag| flag.is_some())
    }

    /// Returns the first kind of a Helm or Ansible project.
    fn first_kind<'a>(&'a self, chart: Option<&'a LocalChart>) -> NewKind<'a> {
        let (group, version, kind) = (self.group.as_deref(), self.version.as_deref(), self.kind.as_deref());
        let chart = self.chart.chart.as_deref().zip(chart.map(LocalChart::path));
        NewKind { group, version, kind, chart, ..NewKind::default() }
    }
}

pub(crate) fn cmd_init(args: &InitArgs) -> Result<()> {
    let mut of = args.project_type();
    if of.is_rust() && args.has_first_kind() {
        exit_with_usage_error(
            "--chart, --group, --version and --kind need --helm or --ansible; in Rust, run flyball create api",
        );
    }
    let is_prompted = args.domain.is_none() && of.is_rust();
    if is_prompted && !(prompt::is_available() && stdout().is_terminal()) {
        exit_with_usage_error("required in a project in Rust: --domain <DOMAIN>");
    }
    let folder = workspace::absolute(&args.folder)?;
    let folder = folder.canonicalize().unwrap_or(folder);
    check_empty(&folder)?;
    let (domain, name);
    if is_prompted {
        (of, domain, name) = prompt_project(args, &folder)?;
    } else {
        domain = args.domain.clone().unwrap_or_else(|| DOMAIN.to_owned());
        name = args.name.clone().map_or_else(|| name_of(&folder), Ok)?;
    }
    let mut project = Project::new(&folder, &name, &domain, of, args.repo.as_deref());
    watched::check_chart(&project, args.chart.chart.as_deref())?;
    let chart = args.chart.local()?;
    let mut changes = Changes::new(&folder);
    let mut added = None;
    if of.is_rust() {
        write_package(args, &project, &mut changes)?;
    } else {
        watches::write(&mut changes, &project)?;
        let first_kind = args.has_first_kind().then(|| args.first_kind(chart.as_ref()));
        added = first_kind.map(|kind| watched::add(&mut changes, &mut project, &kind)).transpose()?;
    }
    let mut arguments = vec![("domain", domain.as_str()), ("name", name.as_str())];
    arguments.extend(args.repo.as_deref().map(|repo| ("repo", repo)));
    args.plugins.extend(PluginCommand::Init, &arguments, &mut changes)?;
    let written = changes.commit()?;
    print_written(&written, args.output)?;
    added.iter().for_each(AddedKind::print_errors);
    if args.output.is_none() {
        print_line(&format!("\nCreated project {name}. Next{}:", directory_suffix(&args.folder)));
        print_line(match project.resources.is_empty() {
            true => "  flyball create api --group cache --version v1alpha1 --kind Redis",
            false => "  flyball run --samples",
        });
    }
    if of.is_rust() {
        check_cargo();
    }
    Ok(())
}

/// Prompts for type, domain and name of a project.
fn prompt_project(args: &InitArgs, folder: &Path) -> Result<(ProjectType, String, String)> {
    let types = [ProjectType::Rust, ProjectType::Helm, ProjectType::Ansible];
    let mut of = ProjectType::Rust;
    // With these flags, only a project in Rust is possible.
    if !args.library.is_given() && args.plugins.project_type().is_none() {
        let known = types.map(|known| known.to_string().to_lowercase());
        let check = |answer: &str| {
            let answer = answer.to_lowercase();
            let is_known = known.contains(&answer);
            if is_known { Ok(answer) } else { Err(format!("expected one of {}", known.join(", "))) }
        };
        let answer = prompt::read_text("type (rust, helm, ansible)", Some(&known[0]), check)?;
        of = types.into_iter().zip(&known).find(|(_, known)| **known == answer).map_or(of, |(of, _)| of);
    }
    let domain = prompt::read_text("domain of the API groups", Some(DOMAIN), names::domain)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => prompt::read_text("name", name_of(folder).ok().as_deref(), names::project)?,
    };
    Ok((of, domain, name))
}

/// Writes the package of a project in Rust, and its membership in a workspace.
fn write_package(args: &InitArgs, project: &Project, changes: &mut Changes) -> Result<()> {
    let library = Library::named(&args.library, &project.folder)?;
    let workspace = Workspace::find(&project.folder)?;
    let member = workspace.as_ref().map(|workspace| workspace.with_member(&project.folder)).transpose()?.flatten();
    package::write(changes, project, &library, workspace.as_ref())?;
    match (&workspace, member) {
        (Some(workspace), Some(text)) => changes.put(&workspace.manifest().display().to_string(), text),
        _ => Ok(()),
    }
}

/// Prints a note if there is no cargo.
fn check_cargo() {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::var_os("CARGO").is_none() && !std::env::split_paths(&on_path).any(|at| at.join("cargo").is_file()) {
        print_labeled("note", "cargo not found; install it from https://rustup.rs");
    }
}

fn directory_suffix(folder: &Path) -> String {
    if folder == Path::new(".") { String::new() } else { format!(", in {}", folder.display()) }
}

/// Fails if a directory has files that could be overwritten. Hidden files, such as `.git`, are allowed.
fn check_empty(folder: &Path) -> Result<()> {
    if fs::symlink_metadata(folder).is_err() {
        return Ok(());
    }
    if !folder.is_dir() {
        return Err(Error::new(format!("{} is a file, not a directory", folder.display())));
    }
    if folder.join(FILE).exists() {
        return Err(Error::new(format!("{} already exists: this is a project", folder.join(FILE).display()))
            .hint("add a kind: flyball create api --group cache --version v1alpha1 --kind Redis"));
    }
    let entries = entries(folder)?;
    let mut names = entries.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
    match names.find(|name| !name.starts_with('.')) {
        None => Ok(()),
        Some(name) => Err(Error::new(format!("{} is not empty: it contains {name}", folder.display()))
            .hint("pass a new directory as the last argument of flyball init")),
    }
}

fn name_of(folder: &Path) -> Result<String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    names::project(&name).map_err(|error| {
        Error::new(format!("the directory's name is not a project name: {error}"))
            .hint("name the project: --name redis-operator")
    })
}
