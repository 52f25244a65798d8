//! `flyball operate`: runs the operator of a watches.yaml, with the command line of every operator.
//!
//! `flyball run`, `dev`, `manifests` and other commands start it instead of a program that cargo built.

use crate::allocator;
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::print_error;
use clap::Args;
use flyball::Operator;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const WHAT: &str = "cannot create the operator";

#[derive(Args, Debug)]
pub(crate) struct OperateArgs {
    /// Path of the watches.yaml
    watches: PathBuf,
    /// Arguments of the operator
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Fields of an entry that select the reconciler of the kind.
const SOURCES: [&str; 3] = ["chart", "role", "playbook"];

pub(crate) fn cmd_operate(args: OperateArgs) -> Result<ExitCode> {
    // The sizes of custom resources and of what is rendered from them are up to their authors.
    allocator::restart_with_purge_at_once();
    let path = args.watches;
    let prints_manifests = args.args.first().is_some_and(|command| command == "manifests");
    let arguments = |name: String| std::iter::once(name.into()).chain(args.args);
    match content(&path)? {
        Content::Charts => {
            let watches = flyball_helm::Watches::read(&path).context(WHAT)?;
            let operator = flyball_helm::operator(&watches).context(WHAT)?;
            if prints_manifests {
                // A running operator logs them.
                for unknown in flyball_helm::unknown_kinds(&watches).context(WHAT)? {
                    let _ = writeln!(std::io::stderr(), "warning: unknown kind: {unknown}");
                }
            }
            let name = watches.name();
            Ok(operator.main_from(arguments(name)))
        }
        Content::Roles => {
            let name = flyball_ansible::operator_name(&path);
            Ok(Operator::main_with_from(arguments(name), |flags: flyball_ansible::Flags| {
                flags.operator(&path).context(WHAT).unwrap_or_else(|error| {
                    print_error(&error);
                    std::process::exit(error.kind().exit_code().into())
                })
            }))
        }
    }
}

/// The kind of projects that the entries of a watches.yaml refer to.
enum Content {
    Charts,
    Roles,
}

/// Returns the content of a watches.yaml, which decides which parser reports its errors.
fn content(path: &Path) -> Result<Content> {
    let what = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(path).context(what())?;
    let read: Value = serde_saphyr::from_str(&text).unwrap_or_default();
    let entries = read.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_blank = |line: &str| matches!(line.trim(), "" | "---" | "[]") || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        // A new project has no kinds; the type of the project makes no difference.
        return Ok(Content::Charts);
    }
    check_entries(path, &read)?;
    match entries.iter().filter(|entry| !entry["chart"].is_null()).count() {
        0 => Ok(Content::Roles),
        all if all == entries.len() => Ok(Content::Charts),
        _ => Err(Error::new(format!("{} has both charts and roles or playbooks", path.display()))
            .hint("use a separate file for each")),
    }
}

/// Reports errors that neither parser can attribute; invalid YAML is null.
fn check_entries(path: &Path, read: &Value) -> Result<()> {
    let file = path.display();
    let entries = match read {
        Value::Null => return Ok(()),
        Value::Array(entries) => entries,
        _ => {
            return Err(Error::new(format!("{file}: must be a list of entries"))
                .hint("begin each entry with - group:, followed by version, kind, and chart, role or playbook"));
        }
    };
    let Some(at) =
        entries.iter().position(|entry| entry.is_object() && SOURCES.iter().all(|field| entry[*field].is_null()))
    else {
        return Ok(());
    };
    let kind = entries[at]["kind"].as_str().map(|kind| format!(" ({kind})")).unwrap_or_default();
    Err(Error::new(format!("{file}: entry {}{kind}: required: chart, role or playbook", at + 1))
        .hint("add chart: helm-charts/NAME, role: NAME or playbook: FILE to the entry"))
}
