//! `ansible-playbook` and its child processes: started as a process group, and killed together.
//!
//! The group is killed when its leader ends, and on drop, as when a reconcile is canceled. Processes that left the
//! group are identified by an environment variable that is unique to the run. Invariant: the leader is reaped only
//! after the group was killed, so its process ID cannot have been reused.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The environment variable that identifies all processes of a run.
pub(super) const MARK: &str = "FLYBALL_ANSIBLE_RUN";
/// Limit of rounds that search for processes started while others were killed.
const MAX_KILL_ROUNDS: usize = 5;
/// Polling interval for the end of the leader, in case its signal is lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A process group.
pub(super) struct Group {
    child: Child,
    /// The leader; `None` after it was reaped.
    leader: Option<Pid>,
    mark: String,
}

impl Group {
    /// Starts a program as leader of a group, with the folder of its run in its environment.
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

    /// Waits for the leader to end, kills all remaining processes, and returns its exit status.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let mut ends = signal(SignalKind::child())?;
        while let Some(leader) = self.leader {
            // The leader stays a zombie until the group is dead.
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
            // The group may be empty.
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

/// Kills the processes with the environment variable of a run.
#[cfg(target_os = "linux")]
pub(super) fn kill_marked(mark: &str) {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
    let expected = format!("{MARK}={mark}");
    for _ in 0..MAX_KILL_ROUNDS {
        let mut killed = false;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
            // The pidfd refers to the process whose environment is read afterwards, never to a later process with the
            // same ID.
            let Some(Ok(handle)) = number.map(|number| pidfd_open(number, PidfdFlags::empty())) else { continue };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == expected.as_bytes()) {
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
