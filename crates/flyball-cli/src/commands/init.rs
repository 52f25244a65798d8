//! `flyball init`: creates a project.

use crate::error::{Error, Result, ResultExt};
use crate::project::plugins::{PluginArgs, PluginCommand};
use crate::project::scaffold::changes::{Changes, print_written};
use crate::project::scaffold::library::{Library, LibraryArgs};
use crate::project::scaffold::package;
use crate::project::scaffold::workspace::{self, Workspace};
use crate::project::{FILE, Project, names};
use crate::render::output::Output;
use crate::render::terminal::{complain, say};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// Create a project: an operator without kinds, in an empty directory
///
/// In a cargo workspace, the project becomes a member and inherits the workspace's settings.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball init --domain acme.io
  flyball init --domain acme.io --repo github.com/acme/redis-operator redis-operator
  flyball init --domain acme.io --flyball-rev v0.1.0
  flyball init --domain acme.io --flyball-path ../flyball

By default, the project uses the library from Flyball's git repository at the version of this program.
With --flyball-path, it also uses the crate versions of that source tree, so it needs no network once these are
downloaded.")]
pub(crate) struct InitArgs {
    /// Directory of the project; created if it does not exist
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
    /// Domain of the API groups, such as acme.io
    #[arg(long, value_parser = names::domain)]
    domain: String,
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

fn repo(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/:@+".contains(c);
    let good = !text.is_empty() && text.chars().all(plain) && text.trim_matches('/').contains('/');
    if good { Ok(text.into()) } else { Err("expected a repository such as github.com/acme/redis-operator".into()) }
}

pub(crate) fn cmd_init(args: &InitArgs) -> Result<()> {
    let folder = workspace::absolute(&args.folder)?;
    let folder = folder.canonicalize().unwrap_or(folder);
    check_empty(&folder)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name_of(&folder)?,
    };
    let library = Library::named(&args.library, &folder)?;
    let workspace = Workspace::around(&folder)?;
    let member = workspace.as_ref().map(|workspace| workspace.with_member(&folder)).transpose()?.flatten();
    let project = Project::new(&folder, &name, &args.domain, args.repo.as_deref());

    let mut changes = Changes::new(&folder);
    package::write(&mut changes, &project, &library, workspace.as_ref())?;
    if let (Some(workspace), Some(text)) = (&workspace, member) {
        changes.put(&workspace.manifest().display().to_string(), text)?;
    }
    let mut arguments = vec![("domain", args.domain.as_str()), ("name", name.as_str())];
    arguments.extend(args.repo.as_deref().map(|repo| ("repo", repo)));
    args.plugins.extend(PluginCommand::Init, &arguments, &mut changes)?;
    let written = changes.commit()?;
    print_written(&written, args.output)?;
    if args.output.is_none() {
        say(&format!("\nCreated project {name}. Next{}:", inside(&args.folder)));
        say("  flyball create api --group cache --version v1alpha1 --kind Redis");
    }
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::var_os("CARGO").is_none() && !std::env::split_paths(&on_path).any(|at| at.join("cargo").is_file()) {
        complain("note", "cargo not found; install it from https://rustup.rs");
    }
    Ok(())
}

fn inside(folder: &Path) -> String {
    if folder == Path::new(".") { String::new() } else { format!(", in {}", folder.display()) }
}

/// Fails if a directory has files that could be overwritten. Hidden files, such as `.git`, are allowed.
fn check_empty(folder: &Path) -> Result<()> {
    let what = || format!("cannot read {}", folder.display());
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
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).when(what())? {
        names.push(entry.when(what())?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    match names.iter().find(|name| !name.starts_with('.')) {
        None => Ok(()),
        Some(name) => Err(Error::new(format!("{} is not empty: it contains {name}", folder.display()))
            .hint("use a new directory: flyball init --domain example.com DIR")),
    }
}

fn name_of(folder: &Path) -> Result<String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    names::project(&name).map_err(|error| {
        Error::new(format!("the directory's name is not a project name: {error}"))
            .hint("name the project: --name redis-operator")
    })
}
