//! `flyball supervise`: executes a program that ends with the process that started it, even if that is killed.
//!
//! `flyball run` and `dev` start operators with it. See
//! <https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html>.

use crate::error::{Error, Result, ResultExt};
use clap::Args;
use rustix::process::getppid;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[derive(Args, Debug)]
pub(crate) struct SuperviseArgs {
    /// Process that it ends with
    parent: i32,
    program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

pub(crate) fn cmd_supervise(args: &SuperviseArgs) -> Result<()> {
    // Other systems do not support it; this command is not used there.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .context("cannot set the parent-death signal")?;
    // It may have ended before the call.
    if getppid().is_none_or(|parent| parent.as_raw_pid() != args.parent) {
        return Err(Error::new("flyball has already exited"));
    }
    let error = Command::new(&args.program).args(&args.args).exec();
    Err(error).context(format!("cannot start {}", args.program.display()))
}
