//! `flyball cluster down`.

use super::ClusterNameArgs;
use super::record::Files;
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::print_line;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::thread;
use std::time::Duration;

/// Polls for the end of the process, every 10 ms.
const MAX_STOP_POLLS: u32 = 1000;

/// Stop a control plane; its objects are lost unless it has a data directory
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball cluster down
  flyball cluster down --name ci")]
pub(crate) struct DownArgs {
    #[command(flatten)]
    named: ClusterNameArgs,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

#[expect(clippy::disallowed_methods, reason = "waits for another process")]
pub(crate) fn cmd_down(args: &DownArgs) -> Result<()> {
    let files = Files::of(&args.named.name)?;
    let (running, record) = files.find()?;
    let name = &args.named.name;
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
