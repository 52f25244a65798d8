//! `flyball chaos undo`: undoes the changes of a run that was killed.

use super::{connect, error, state_files};
use crate::cluster::connection::{ContextArgs, block_on};
use crate::error::{Error, Result};
use crate::files::entries;
use crate::render::terminal::{print_labeled, print_line};
use clap::Args;
use flyball_chaos::{Cluster, Journal, Progress, undo};
use std::path::{Path, PathBuf};

/// Undo the changes of a run that was killed
///
/// Reads the state file of the run. A field is restored only if it still has the injected value; objects that the
/// operator has created again stay. Without a file, undoes all runs in the cluster.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball chaos undo --dry-run
  flyball chaos undo
  flyball chaos undo state.json --kubeconfig K")]
pub(super) struct UndoArgs {
    /// State files; default to those below ~/.local/state/flyball/chaos
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    connection: ContextArgs,
    /// Print the changes without undoing them
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn cmd_undo(args: &UndoArgs) -> Result<()> {
    let is_named = !args.files.is_empty();
    let files = match is_named {
        true => args.files.clone(),
        false => {
            let mut files = entries(&state_files()?)?;
            files.retain(|file| file.extension().is_some_and(|end| end == "json"));
            files
        }
    };
    if files.is_empty() {
        print_labeled("note", "nothing to undo");
        return Ok(());
    }
    block_on(async {
        let connection = args.connection.connect().await?;
        let cluster = connect(connection.client).await?;
        let mut last = None;
        for file in &files {
            if let Err(error) = undo_file(&cluster, file, args.dry_run, is_named).await {
                last.iter().for_each(crate::render::terminal::print_error);
                last = Some(error);
            }
        }
        last.map_or(Ok(()), Err)
    })
}

async fn undo_file(cluster: &Cluster, file: &Path, dry_run: bool, is_named: bool) -> Result<()> {
    let mut journal = Journal::open(file).map_err(error)?;
    let uid = cluster.uid().await.map_err(error)?;
    if journal.state().cluster != uid {
        let message = format!("{} is of another cluster", file.display());
        if is_named {
            return Err(Error::new(message).hint("pass the kubeconfig of the run"));
        }
        print_labeled("note", &format!("{message}: skipped"));
        return Ok(());
    }
    let pending: Vec<_> =
        journal.state().entries.iter().filter(|entry| entry.progress != Progress::Undone).cloned().collect();
    let suffix = if dry_run { " (dry run)" } else { "" };
    if !dry_run {
        let notes = undo(cluster, &mut journal, 0).await.map_err(error)?;
        notes.iter().for_each(|note| print_labeled("note", note));
    }
    for entry in pending.iter().rev() {
        print_line(&format!("{}: {} undone{suffix}", entry.experiment, entry.change));
    }
    if pending.is_empty() {
        print_labeled("note", &format!("nothing to undo in {}", file.display()));
    }
    if !dry_run {
        journal.close().map_err(error)?;
    }
    Ok(())
}
