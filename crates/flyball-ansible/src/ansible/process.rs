//! `ansible-playbook` and all that it starts: begun as a process group, and killed as one.
//!
//! The group is killed when its leader ends, and when this is dropped, as happens when a reconcile is cut off.
//! Processes that left the group are found by a variable of their environment that no other run has. Invariant: the
//! leader is reaped only after the group was killed, so its number cannot be that of another process by then.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The variable by which all processes of a run are known.
const MARK: &str = "FLYBALL_ANSIBLE_RUN";
/// Rounds of searching for processes that were started while others were killed.
const MAX_KILL_ROUNDS: usize = 5;
/// Delay after which the end of the leader is noticed if its signal is lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A process group.
pub(super) struct Group {
    child: Child,
    /// The leader; `None` once it was reaped.
    leader: Option<Pid>,
    mark: String,
}

impl Group {
    /// Starts a program as the leader of a group, marked by the folder of its run.
    pub(super) fn start(mut command: Command, folder: &Path) -> io::Result<Self> {
        let mark = folder.display().to_string();
        let child = command.env(MARK, &mark).process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, leader, mark })
    }

    /// Takes the output pipes.
    pub(super) fn output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        Some((self.child.stdout.take()?, self.child.stderr.take()?))
    }

    /// Waits for the leader to end, kills all that is left, and tells how it ended.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let mut ends = signal(SignalKind::child())?;
        while let Some(leader) = self.leader {
            // It stays a zombie until the group is dead.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            if waitid(WaitId::Pid(leader), options)?.is_some() {
                self.kill();
                break;
            }
            let _ = timeout(POLL_INTERVAL, ends.recv()).await;
        }
        self.leader = None;
        self.child.wait().await
    }

    fn kill(&self) {
        if let Some(leader) = self.leader {
            // There may be none left.
            let _ = kill_process_group(leader, Signal::KILL);
            kill_marked(&self.mark);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills the processes that have the mark of a run in their environment.
#[cfg(target_os = "linux")]
pub(super) fn kill_marked(mark: &str) {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
    let wanted = format!("{MARK}={mark}");
    for _ in 0..MAX_KILL_ROUNDS {
        let mut killed = false;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
            // The handle stands for the process whose environment is read after it was opened, and for no later one.
            let Some(Ok(handle)) = number.map(|number| pidfd_open(number, PidfdFlags::empty())) else { continue };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
                killed |= pidfd_send_signal(handle, Signal::KILL).is_ok();
            }
        }
        if !killed {
            return;
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill_marked(_mark: &str) {}
