//! `flyball delete`: deletes objects, by name, by selector or from files.

use crate::cluster::apply::{self, DryRunArgs};
use crate::cluster::connection::{Connection, block_on};
use crate::cluster::deletion::Deletion;
use crate::cluster::kinds::Kinds;
use crate::cluster::selection::{Selection, SelectionArgs, fail_if_missing};
use crate::duration::parse_flag;
use crate::error::{Error, Result};
use crate::render::terminal::{Style, paint, print_labeled, print_line};
use clap::{ArgAction, Args, ValueEnum};
use http::HeaderMap;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::Value;
use std::time::Duration;

/// Delete objects and wait until they no longer exist
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball delete vmgroup vg-1
  flyball delete deploy/web svc/web
  flyball delete pods -l app=web
  flyball delete vmgroups --all -n test
  flyball delete -f config/samples

Objects of files are deleted in reverse order, and CRDs last. Objects with finalizers exist until a controller has
removed these; --wait=false does not wait for them.")]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    objects: SelectionArgs,
    /// Delete the objects of a file, a directory, or - for standard input; may be repeated
    #[arg(short, long = "file", visible_alias = "filename", value_name = "FILE",
        conflicts_with_all = ["targets", "selector", "field_selector", "all_namespaces", "all"])]
    files: Vec<String>,
    /// Delete all objects of the kinds in the namespace
    #[arg(long, conflicts_with_all = ["selector", "field_selector"])]
    all: bool,
    /// Wait until the objects no longer exist
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true",
        action = ArgAction::Set)]
    wait: bool,
    /// Timeout of the wait for each object
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_flag)]
    timeout: Duration,
    /// Deletion of the dependents of the deleted objects
    #[arg(long, value_enum, default_value = "background")]
    cascade: Cascade,
    #[command(flatten)]
    dry_run: DryRunArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cascade {
    /// After the owner
    Background,
    /// Before the owner
    Foreground,
    /// Not at all
    Orphan,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Kind and name, one object per line
    Name,
}

pub(crate) fn cmd_delete(args: &DeleteArgs) -> Result<()> {
    let from_files = match &args.files[..] {
        [] => Vec::new(),
        files => {
            let mut objects = apply::read_all(files)?;
            objects.reverse();
            // Custom resources need their kind for the removal of their finalizers.
            objects.sort_by_key(|object| object["kind"] == "CustomResourceDefinition");
            objects
        }
    };
    block_on(async {
        let connection = args.objects.connection.connect().await?;
        let kinds = Kinds::discover(&connection.client).await?;
        let mut missing = Vec::new();
        let objects = match args.files.is_empty() {
            true => selected(args, &connection, &kinds, &mut missing).await?,
            false => from_files,
        };
        delete(args, &connection, &kinds, &objects, &mut missing).await?;
        fail_if_missing(missing)
    })
}

/// Finds the objects of the arguments. Names without an object are errors in `missing`.
async fn selected(
    args: &DeleteArgs,
    connection: &Connection,
    kinds: &Kinds,
    missing: &mut Vec<Error>,
) -> Result<Vec<Value>> {
    let selections = args.objects.resolve(kinds)?;
    if selections.is_empty() {
        return Err(Error::usage("no objects given").hint("pass KIND NAME, KIND/NAME or -f FILE"));
    }
    let is_limited = args.all || args.objects.has_selector();
    // A kind alone is not enough to delete all of its objects.
    let misfit = selections.iter().find(|selection| selection.names.is_empty() != is_limited);
    if let Some(Selection { kind, names }) = misfit {
        let what = if names.is_empty() { "no name given" } else { "--all cannot be combined with a name" };
        return Err(Error::usage(what).hint(format!("pass names, or -l SELECTOR or --all for several {}", kind.plural)));
    }
    let mut objects = Vec::new();
    for selection in &selections {
        let responses = args.objects.fetch(connection, selection, &HeaderMap::new(), missing).await?;
        objects.extend(responses.into_iter().flat_map(|response| selection.kind.items(response)));
    }
    if objects.is_empty() && missing.is_empty() {
        print_labeled("note", &format!("no {} found", args.objects.targets[0]));
    }
    Ok(objects)
}

/// Deletes objects, and waits for all of them afterwards: one may wait for another.
async fn delete(
    args: &DeleteArgs,
    connection: &Connection,
    kinds: &Kinds,
    objects: &[Value],
    missing: &mut Vec<Error>,
) -> Result<()> {
    let params = DeleteParams {
        propagation_policy: Some(match args.cascade {
            Cascade::Background => PropagationPolicy::Background,
            Cascade::Foreground => PropagationPolicy::Foreground,
            Cascade::Orphan => PropagationPolicy::Orphan,
        }),
        dry_run: args.dry_run.is_dry(),
        ..DeleteParams::default()
    };
    let mut deletions = Vec::new();
    for object in objects {
        match Deletion::request(connection, object, &params).await {
            Err(error) if error.is_absence() && args.objects.ignore_not_found => {}
            Err(error) => missing.push(error),
            Ok(deletion) => {
                let line =
                    format!("{} {}{}", deletion.description, paint(Style::Good, "deleted"), args.dry_run.suffix());
                print_line(&args.output.map_or(line, |Format::Name| kinds.object_name(object)));
                deletions.push(deletion);
            }
        }
    }
    if args.wait && !args.dry_run.is_dry() {
        for deletion in deletions {
            deletion.wait(args.timeout).await.map_err(|error| {
                error.hint(
                    "the controller of the object removes its finalizers: check that it runs, or pass --wait=false",
                )
            })?;
        }
    }
    Ok(())
}
