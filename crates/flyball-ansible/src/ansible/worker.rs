//! Workers: long-lived processes that have imported Ansible, and fork a process for each run of `ansible-playbook`.
//!
//! A worker runs no playbook itself, so nothing of a run remains in it. A supervisor process of each run kills the
//! others when `ansible-playbook` ends, or when the channel to this process is closed, as when a reconcile is canceled
//! or this process dies. Forked processes have the environment of the worker in `/proc`, so they are its descendants
//! that are killed; those that execute a program also have the [mark](super::process) of the run.

use super::directory::{CALLBACK, GUARD, LITERALS, WALL};
use super::process::{Group, kill_marked};
use super::work_dir::WorkDir;
use super::{complaint, next_line};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead as _, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Channel;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// The program, its modules, and the plugins of runs.
const PROGRAM: &str = "main.py";
const FILES: [(&str, &str); 7] = [
    ("callback.py", CALLBACK),
    ("guard.py", GUARD),
    ("literals.py", LITERALS),
    ("wall.py", WALL),
    (PROGRAM, include_str!("worker/main.py")),
    ("flyball_memory.py", include_str!("worker/memory.py")),
    ("flyball_modules.py", include_str!("worker/modules.py")),
];

/// The line that a worker prints when it has imported Ansible.
const READY: &str = "ready";
/// Timeout of the imports, and of the first runs.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Minimum time between two starts of a worker, which doubles with each further one, and the limit.
const RESTART_DELAY: Duration = Duration::from_secs(1);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(300);
/// Polling interval for space in the socket of a worker that has many requests.
const SEND_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout of killing the processes of a canceled run.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Length limit of a wait status.
const MAX_STATUS_BYTES: u64 = 16;

/// The workers of an operator: one for each environment.
pub(crate) struct Workers {
    interpreter: PathBuf,
    workers: Mutex<BTreeMap<Environment, Entry>>,
}

/// The environment variables of a worker, which all of its runs have.
pub(super) type Environment = Vec<(String, OsString)>;

struct Entry {
    worker: Arc<Worker>,
    started: Instant,
    /// The number of starts before.
    restarts: u32,
}

struct Worker {
    requests: OwnedFd,
    progress: Arc<Progress>,
}

struct Progress {
    phase: Mutex<Phase>,
    changed: Notify,
}

#[derive(Clone)]
enum Phase {
    Starting,
    Ready,
    Ended(String),
}

impl Workers {
    /// Creates workers with the interpreter of `ansible-playbook`.
    pub(crate) fn of(program: &Path) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("workers need Linux".to_owned());
        }
        match interpreter(program) {
            Ok(Some(interpreter)) => Ok(Self { interpreter, workers: Mutex::default() }),
            Ok(None) => Err(format!("the first lines of {} do not name a Python interpreter", program.display())),
            Err(error) => Err(format!("cannot read {}: {error}", program.display())),
        }
    }

    /// Starts a run. If there is an error, no process of it was started.
    pub(super) async fn fork(
        &self,
        environment: Environment,
        folder: Arc<WorkDir>,
        request: &Value,
    ) -> Result<Fork, String> {
        let worker = self.worker(environment)?;
        let ready = timeout(START_TIMEOUT, worker.progress.ready()).await;
        ready.map_err(|_| format!("the Ansible worker is not ready after {} s", START_TIMEOUT.as_secs()))??;
        let fork = worker.fork(folder, request).await;
        fork.map_err(|error| format!("cannot send a run to the Ansible worker: {error}"))
    }

    /// Returns the worker with this environment, after starting it if necessary.
    fn worker(&self, environment: Environment) -> Result<Arc<Worker>, String> {
        let mut workers = self.workers.lock();
        let now = Instant::now();
        let restarts = match workers.get(&environment) {
            None => 0,
            Some(entry) => match entry.worker.progress.phase() {
                Phase::Starting | Phase::Ready => return Ok(entry.worker.clone()),
                Phase::Ended(reason) => restarts(entry.restarts, now - entry.started).map_err(|delay| {
                    format!("the Ansible worker ended, and is started again in {} s: {reason}", delay.as_secs() + 1)
                })?,
            },
        };
        let started = Worker::start(&self.interpreter, &environment);
        let worker = Arc::new(started.map_err(|error| format!("cannot start the Ansible worker: {error}"))?);
        workers.insert(environment, Entry { worker: worker.clone(), started: now, restarts });
        Ok(worker)
    }
}

/// Returns the number of restarts of the next worker, if this time has passed since the last start; otherwise the
/// remaining delay.
fn restarts(before: u32, passed: Duration) -> Result<u32, Duration> {
    let delay = RESTART_DELAY.saturating_mul(1 << before.min(16)).min(MAX_RESTART_DELAY);
    match delay.checked_sub(passed) {
        Some(remaining) if !remaining.is_zero() => Err(remaining),
        // It did not end because of its start.
        _ if passed > MAX_RESTART_DELAY => Ok(0),
        _ => Ok(before + 1),
    }
}

/// Returns the interpreter of a script in Python: that of its first line, or, if its path is too long for that, of the
/// second one as `pip` writes it.
fn interpreter(program: &Path) -> io::Result<Option<PathBuf>> {
    let mut head = String::new();
    let mut file = io::BufReader::new(std::fs::File::open(program)?.take(4096));
    file.read_line(&mut head)?;
    file.read_line(&mut head)?;
    let mut lines = head.lines();
    let first = lines.next().and_then(|line| line.strip_prefix("#!")).unwrap_or_default();
    let mut words = first.split_whitespace();
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let found = match words.next() {
        Some(path) if name(path) == "env" => words.next().and_then(|program| {
            let paths = env::var_os("PATH")?;
            env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| path.is_file())
        }),
        Some(path) if name(path) == "sh" => {
            let command = lines.next().and_then(|line| line.strip_prefix("'''exec' ")).unwrap_or_default();
            match command.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next(),
                None => command.split_whitespace().next(),
            }
            .map(PathBuf::from)
        }
        found => found.map(PathBuf::from),
    };
    Ok(found.filter(|path| path.to_str().is_some_and(|path| name(path).starts_with("python"))))
}

impl Worker {
    fn start(interpreter: &Path, environment: &Environment) -> io::Result<Self> {
        let folder = WorkDir::new()?;
        for (name, text) in FILES {
            folder.write(name, text)?;
        }
        let (requests, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(interpreter);
        command.arg(PROGRAM).current_dir(folder.path()).env_clear().envs(environment.iter().cloned());
        command.stdin(Stdio::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let group = Group::start(command, folder.path())?;
        let progress = Arc::new(Progress { phase: Mutex::new(Phase::Starting), changed: Notify::new() });
        tokio::spawn(wait(folder, group, progress.clone()));
        Ok(Self { requests, progress })
    }

    async fn fork(&self, folder: Arc<WorkDir>, request: &Value) -> io::Result<Fork> {
        let (channel, their_channel) = Channel::pair()?;
        let (out, their_out) = io::pipe()?;
        let (complaints, their_complaints) = io::pipe()?;
        let packet = request.to_string();
        let fds = [their_channel.as_fd(), their_out.as_fd(), their_complaints.as_fd()];
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            sendmsg(&self.requests, &[IoSlice::new(packet.as_bytes())], &mut ancillary, flags)
        };
        while let Err(error) = send() {
            if error != Errno::AGAIN {
                return Err(error.into());
            }
            sleep(SEND_INTERVAL).await;
        }
        channel.set_nonblocking(true)?;
        let output = (Receiver::from_owned_fd(out.into())?, Receiver::from_owned_fd(complaints.into())?);
        Ok(Fork { channel: Some(UnixStream::from_std(channel)?), output: Some(output), folder })
    }
}

/// Waits for the end of a worker. Its processes are killed before their folder is removed.
async fn wait(_folder: WorkDir, mut group: Group, progress: Arc<Progress>) {
    let Some((out, complaints)) = group.output() else { return };
    let announce = async {
        let mut out = BufReader::new(out);
        while let Ok(Some(line)) = next_line(&mut out).await {
            if line == READY {
                progress.set(Phase::Ready);
            }
        }
    };
    let ((), complaint, status) = tokio::join!(announce, complaint(complaints), group.ended());
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    tracing::warn!("the Ansible worker ended with {status}: {complaint}");
    progress.set(Phase::Ended(format!("{status}: {complaint}")));
}

impl Progress {
    fn phase(&self) -> Phase {
        self.phase.lock().clone()
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock() = phase;
        self.changed.notify_waiters();
    }

    async fn ready(&self) -> Result<(), String> {
        loop {
            let mut changed = pin!(self.changed.notified());
            // A change after this check counts.
            changed.as_mut().enable();
            match self.phase() {
                Phase::Ready => return Ok(()),
                Phase::Ended(reason) => return Err(format!("the Ansible worker ended with {reason}")),
                Phase::Starting => changed.await,
            }
        }
    }
}

/// The processes of a run, killed on drop. Another thread waits for their end, and the folder is removed after that.
pub(super) struct Fork {
    /// The channel to the supervisor; `None` after all other processes ended.
    channel: Option<UnixStream>,
    output: Option<(Receiver, Receiver)>,
    folder: Arc<WorkDir>,
}

impl Fork {
    /// Takes the output pipes.
    pub(super) fn output(&mut self) -> Option<(Receiver, Receiver)> {
        self.output.take()
    }

    /// Waits until all processes have ended, and returns the exit status of `ansible-playbook`.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let mut status = String::new();
        if let Some(channel) = &mut self.channel {
            channel.take(MAX_STATUS_BYTES).read_to_string(&mut status).await?;
        }
        let status = status.parse().map_err(|_| io::Error::other("the Ansible worker ended during the run"))?;
        self.channel = None;
        Ok(ExitStatus::from_raw(status))
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        let Some(channel) = self.channel.take() else { return };
        let closed = channel.into_std().and_then(|channel| channel.shutdown(Shutdown::Write).map(|()| channel));
        let folder = self.folder.clone();
        // The drop of a canceled reconcile must not block a worker thread of the runtime.
        let reaps = std::thread::Builder::new().name("flyball-reaper".to_owned()).spawn(move || {
            if let Err(error) = closed.and_then(killed) {
                tracing::warn!("the processes of a canceled run are still running: {error}");
            }
            // In case the supervisor was killed.
            kill_marked(&folder.path().display().to_string());
        });
        if let Err(error) = reaps {
            tracing::warn!("cannot wait for the processes of a canceled run: {error}");
        }
    }
}

/// Waits until the supervisor has killed the processes of the run. It does so when the channel is closed.
fn killed(mut channel: Channel) -> io::Result<()> {
    channel.set_nonblocking(false)?;
    channel.set_read_timeout(Some(KILL_TIMEOUT))?;
    channel.read_to_end(&mut Vec::new())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    fn folder() -> Arc<WorkDir> {
        Arc::new(WorkDir::new().unwrap())
    }

    #[test]
    fn restarts_are_delayed_until_a_worker_lasts() {
        let seconds = Duration::from_secs;
        assert_eq!(restarts(0, Duration::ZERO), Err(seconds(1)));
        assert_eq!(restarts(0, seconds(1)), Ok(1));
        assert_eq!(restarts(3, seconds(5)), Err(seconds(3)));
        assert_eq!(restarts(3, seconds(8)), Ok(4));
        assert_eq!(restarts(99, seconds(299)), Err(seconds(1)));
        assert_eq!(restarts(99, seconds(300)), Ok(100));
        assert_eq!(restarts(99, seconds(301)), Ok(0));
    }

    #[tokio::test]
    async fn worker_that_cannot_start_is_not_started_again_at_once() {
        let workers = Workers { interpreter: "/bin/false".into(), workers: Mutex::default() };
        let fork = async || {
            let forked = workers.fork(Vec::new(), folder(), &Value::Null).await;
            forked.err().unwrap_or_default()
        };
        let problem = fork().await;
        assert!(problem.contains("ended with exit status: 1"), "{problem}");
        workers.workers.lock().values_mut().for_each(|entry| entry.restarts = 16);
        let problem = fork().await;
        assert!(problem.contains("is started again in") && problem.contains("exit status: 1"), "{problem}");
    }

    #[tokio::test]
    async fn folder_of_a_canceled_run_is_removed_after_its_processes_without_blocking() {
        let (channel, mut theirs) = Channel::pair().unwrap();
        channel.set_nonblocking(true).unwrap();
        let channel = UnixStream::from_std(channel).unwrap();
        let folder = folder();
        let path = folder.path().to_owned();
        // Nobody has closed the other side yet, so a drop that waits for this would take until the timeout.
        drop(Fork { channel: Some(channel), output: None, folder });
        let mut text = Vec::new();
        theirs.read_to_end(&mut text).unwrap();
        assert!(path.is_dir(), "the supervisor has not ended");
        drop(theirs);
        while path.exists() {
            sleep(SEND_INTERVAL).await;
        }
    }

    #[tokio::test]
    async fn status_is_that_of_the_supervisor() {
        for (text, code) in [("0", Some(0)), ("512", Some(2)), ("9", None), ("", None)] {
            let (mut theirs, channel) = UnixStream::pair().unwrap();
            theirs.write_all(text.as_bytes()).await.unwrap();
            drop(theirs);
            let mut fork = Fork { channel: Some(channel), output: None, folder: folder() };
            let ended = fork.ended().await;
            assert_eq!((ended.is_err(), ended.ok().and_then(|status| status.code())), (text.is_empty(), code));
        }
    }

    #[test]
    fn interpreter_is_that_of_the_script() {
        let path = env::temp_dir().join(format!("flyball-interpreter-{}", std::process::id()));
        let check = |text: &str, expected: Option<&str>| {
            std::fs::write(&path, text).unwrap();
            assert_eq!(interpreter(&path).unwrap().as_deref(), expected.map(Path::new), "{text}");
        };
        check("#!/usr/bin/python3.11 -I\nimport re\n", Some("/usr/bin/python3.11"));
        check("#!/bin/sh\n'''exec' /long/path/python \"$0\" \"$@\"\n' '''\n", Some("/long/path/python"));
        check("#!/bin/sh\n'''exec' \"/long path/python3\" \"$0\" \"$@\"\n' '''\n", Some("/long path/python3"));
        check("#!/bin/sh\nexec ansible-playbook-2.19 \"$@\"\n", None);
        check("#!/bin/bash\n", None);
        check("#!", None);
        check("", None);
        check("\u{7f}ELF", None);
        std::fs::remove_file(&path).unwrap();
    }
}
