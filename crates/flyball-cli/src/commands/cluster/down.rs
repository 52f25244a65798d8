//! `flyball cluster down`.

use super::record::{Files, Record};
use super::{parse_name, serving::absolute};
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::print_line;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Name of the cluster without a flag.
const DEFAULT_NAME: &str = "flyball";
/// Polls for the end of the process, every 10 ms.
const MAX_STOP_POLLS: u32 = 1000;

/// Stop a control plane; its objects are lost unless it has a data directory
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball cluster down
  flyball cluster down --name ci
  flyball cluster down --kubeconfig ci.yaml     the one that cluster up --kubeconfig ci.yaml has started")]
pub(crate) struct DownArgs {
    /// Name of the cluster; defaults to flyball, or to the cluster of --kubeconfig
    #[arg(long, value_parser = parse_name)]
    name: Option<String>,
    /// Stop the cluster that has its context in this kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

#[expect(clippy::disallowed_methods, reason = "waits for another process")]
pub(crate) fn cmd_down(args: &DownArgs) -> Result<()> {
    let files = selected(args)?;
    let (running, record) = files.find()?;
    let name = files.name();
    let quietly = |text: String| {
        if !args.quiet {
            print_line(&text);
        }
    };
    if !running {
        // Clean up after a crashed process.
        if let Some(record) = record {
            record.remove_context()?;
            files.remove();
        }
        quietly(format!("{name} is not running"));
        return Ok(());
    }
    let record = record.ok_or_else(|| Error::new(format!("cluster {name} is starting or stopping")))?;
    let pid = Pid::from_raw(record.pid).ok_or_else(|| Error::new("the cluster's record has no process"))?;
    kill_process(pid, Signal::TERM).context(format!("cannot stop process {}", record.pid))?;
    for _ in 0..MAX_STOP_POLLS {
        if files.lock()?.is_some() {
            quietly(match &record.data_dir {
                Some(path) => format!("{name} is down; its objects are in {}", path.display()),
                None => format!("{name} is down"),
            });
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let error = Error::new(format!("process {} of cluster {name} did not stop", record.pid));
    Err(error.hint(format!("kill -9 {}", record.pid)))
}

/// Returns the files of the selected cluster.
fn selected(args: &DownArgs) -> Result<Files> {
    let Some(kubeconfig) = &args.kubeconfig else {
        return Files::of(args.name.as_deref().unwrap_or(DEFAULT_NAME));
    };
    let path = absolute(kubeconfig);
    let (mut found, mut context_elsewhere) = (Vec::new(), None);
    for files in Files::all()? {
        let Some(record) = files.read()? else { continue };
        let is_named = args.name.as_ref().is_none_or(|name| *name == record.name);
        match is_in(&record, &path) {
            true if is_named => found.push(files),
            false if args.name.is_some() && is_named => {
                context_elsewhere = Some(record.kubeconfig.unwrap_or(record.own_kubeconfig));
            }
            _ => {}
        }
    }
    match (found.pop(), found.as_slice()) {
        (Some(files), []) => Ok(files),
        (Some(last), others) => {
            let mut names: Vec<&str> = others.iter().chain([&last]).map(Files::name).collect();
            names.sort_unstable();
            let error = Error::new(format!("{} has the contexts of {}", path.display(), names.join(", ")));
            Err(error.hint("select one of them: --name NAME"))
        }
        (None, _) => {
            let (path, name) = (path.display(), args.name.as_deref().unwrap_or_default());
            let error = match context_elsewhere {
                Some(other) => format!("the context of cluster {name} is in {}, and not in {path}", other.display()),
                None => format!("no cluster has its context in {path}"),
            };
            Err(Error::new(error).hint("list the clusters: flyball cluster list"))
        }
    }
}

/// Returns true if a kubeconfig is that of a cluster: the one to which its context was added, or its own.
fn is_in(record: &Record, path: &Path) -> bool {
    record.kubeconfig.as_deref() == Some(path) || record.own_kubeconfig == path
}
