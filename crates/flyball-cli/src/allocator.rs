//! The allocator of all commands, and its setting for processes that serve others.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Objects are of sizes for which glibc searches lists: with its allocator, a write costs the control plane half as
/// much again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Environment variable of mimalloc for the delay before freed memory is returned, in milliseconds.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// Sets the environment of a process so that it returns freed memory to the system at once, unless its user has set
/// the delay.
///
/// With the default of 10 to 100 ms, large objects in quick succession take several times the memory of one.
pub(crate) fn purge_at_once(command: &mut Command) {
    if std::env::var_os(PURGE_DELAY).is_none() {
        command.env(PURGE_DELAY, "0");
    }
}

/// Replaces this process by itself with [`purge_at_once`]: the allocator reads its environment only at the start. If
/// that fails, the process continues with the default.
pub(crate) fn restart_with_purge_at_once() {
    if std::env::var_os(PURGE_DELAY).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1));
        purge_at_once(&mut command);
        let error = command.exec();
        tracing::debug!(%error, "cannot restart this program");
    }
}
