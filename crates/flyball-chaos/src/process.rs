//! An operator that runs as a process, and is restarted when it ends.

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// Time until the process is started again.
const RESTART: Duration = Duration::from_secs(1);

/// A process; clones share it.
#[derive(Clone, Debug)]
pub struct Process(Arc<State>);

#[derive(Debug)]
struct State {
    command: String,
    kubeconfig: PathBuf,
    namespace: String,
    output: Option<PathBuf>,
    group: Mutex<Option<Pid>>,
    is_running: AtomicBool,
    /// Ends that no experiment has caused.
    crashes: AtomicU64,
    is_killed: AtomicBool,
}

impl Process {
    /// Creates a process from a command of the shell. Its output goes to a file, or is discarded.
    pub fn new(command: &str, kubeconfig: PathBuf, namespace: &str, output: Option<PathBuf>) -> Self {
        Self(Arc::new(State {
            command: command.to_owned(),
            kubeconfig,
            namespace: namespace.to_owned(),
            output,
            group: Mutex::new(None),
            is_running: AtomicBool::new(false),
            crashes: AtomicU64::new(0),
            is_killed: AtomicBool::new(false),
        }))
    }

    /// Runs the process, and again whenever it ends, until the future is dropped, which kills it.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub async fn run(&self) -> io::Result<()> {
        let _guard = KillOnDrop(self);
        loop {
            let mut child = self.spawn()?;
            self.0.is_killed.store(false, Ordering::Relaxed);
            self.0.is_running.store(true, Ordering::Relaxed);
            let _ = child.wait().await;
            self.0.is_running.store(false, Ordering::Relaxed);
            // Children of it must not go on.
            self.signal();
            *self.0.group.lock() = None;
            if !self.0.is_killed.swap(false, Ordering::Relaxed) {
                self.0.crashes.fetch_add(1, Ordering::Relaxed);
            }
            sleep(RESTART).await;
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new("sh");
        command.args(["-c", &self.0.command]).process_group(0).kill_on_drop(true).stdin(Stdio::null());
        command.env("KUBECONFIG", &self.0.kubeconfig).env("POD_NAMESPACE", &self.0.namespace);
        let (out, err) = match &self.0.output {
            Some(path) => {
                let file = File::options().create(true).append(true).open(path)?;
                (Stdio::from(file.try_clone()?), Stdio::from(file))
            }
            None => (Stdio::null(), Stdio::null()),
        };
        let child = command.stdout(out).stderr(err).spawn()?;
        *self.0.group.lock() = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(child)
    }

    /// Kills the process and its children.
    pub(crate) fn kill(&self) {
        self.0.is_killed.store(true, Ordering::Relaxed);
        self.0.is_running.store(false, Ordering::Relaxed);
        self.signal();
    }

    fn signal(&self) {
        if let Some(group) = *self.0.group.lock() {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.is_running.load(Ordering::Relaxed)
    }

    /// Returns the number of ends that no experiment has caused.
    pub(crate) fn crashes(&self) -> u64 {
        self.0.crashes.load(Ordering::Relaxed)
    }
}

struct KillOnDrop<'a>(&'a Process);

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        self.0.signal();
    }
}

#[cfg(test)]
mod tests;
