//! The executor with `ansible-playbook`: a child process of this one, or a process that a [worker] forks.
//!
//! The process gets its own directory with variables, an inventory with the single host `localhost`, and a kubeconfig
//! for a [proxy] in this process, which forwards its requests with the operator's credentials and sets owner
//! references to the reconciled object. A callback plugin reports events line by line, as ansible-runner does. The
//! directory and all processes of the run are removed at its end.

mod directory;
mod events;
mod process;
mod proxy;
mod setup;
mod target;
mod work_dir;
mod worker;

use crate::job::{Job, Outcome, TaskError};
use crate::shares::Shares;
use crate::watches::{Runs, Watch};
use directory::{RunDirectory, environment};
use events::Events;
use process::Group;
use ring::rand::SecureRandom as _;
use setup::with_remedy;
use std::collections::BTreeSet;
use std::env;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;
use worker::Fork;

pub(crate) use setup::INSTALL;
pub(crate) use worker::Workers;

const PROGRAM: &str = "ansible-playbook";
const ARGUMENTS: [&str; 7] = ["-i", "inventory", "-e", "@variables.json", "-e", "@connection.json", "playbook.json"];
/// Limit of bytes kept of a line and of the error output. All output is read, or the process would block.
const MAX_LINE_BYTES: usize = 1 << 20;
const MAX_STDERR_BYTES: u64 = 4096;

/// Runs a role or a playbook with `ansible-playbook`.
pub(crate) struct AnsiblePlaybook {
    pub(crate) program: PathBuf,
    pub(crate) start: Start,
    pub(crate) runs: Runs,
    pub(crate) project: PathBuf,
    /// Roles and files outside of the project with literal paths.
    pub(crate) external_paths: BTreeSet<PathBuf>,
    /// Shares of all runs, since it is unknown when they wait.
    pub(crate) shares: Shares,
}

/// The way to start its process.
pub(crate) enum Start {
    /// As a child process.
    Process,
    /// By a worker.
    Worker(Arc<Workers>),
    /// By a worker, or, if there is none now, as a child process.
    WorkerOrProcess(Arc<Workers>),
}

/// The processes of a run, killed on drop.
enum Processes {
    Children(Group),
    Forks(Fork),
}

type Output = Box<dyn AsyncRead + Send + Unpin>;

impl Processes {
    /// Takes the output pipes.
    fn output(&mut self) -> Option<(Output, Output)> {
        fn boxed(
            output: (impl AsyncRead + Send + Unpin + 'static, impl AsyncRead + Send + Unpin + 'static),
        ) -> (Output, Output) {
            (Box::new(output.0), Box::new(output.1))
        }
        match self {
            Self::Children(group) => group.output().map(boxed),
            Self::Forks(fork) => fork.output().map(boxed),
        }
    }

    /// Waits until all processes have ended, and returns the exit status of `ansible-playbook`.
    async fn ended(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Children(group) => group.ended().await,
            Self::Forks(fork) => fork.ended().await,
        }
    }
}

/// Generates this number of unpredictable bytes, as hexadecimal digits. Not used in simulations.
fn random(bytes: usize) -> io::Result<String> {
    let mut drawn = vec![0; bytes];
    let source = ring::rand::SystemRandom::new();
    source.fill(&mut drawn).map_err(|_| io::Error::other("no randomness available"))?;
    Ok(flyball_core::hex::encode(&drawn))
}

impl AnsiblePlaybook {
    /// Finds the program in `PATH`.
    pub(crate) fn find() -> Option<PathBuf> {
        env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
    }

    /// Runs the playbook once.
    pub(crate) async fn run(&self, job: Job<'_>) -> Outcome {
        let _share = self.shares.acquire_when_released(job.cx.key().namespace()).await;
        match self.events(&job).await {
            Ok(events) => {
                let mut outcome = events.outcome();
                if let Some(failure) = &mut outcome.failure {
                    failure.message = with_remedy(std::mem::take(&mut failure.message), &self.project);
                }
                outcome
            }
            Err(problem) => {
                let problem = with_remedy(problem, &self.project);
                let task = self.program.display().to_string();
                Outcome {
                    failures: 1,
                    failure: Some(TaskError { task, ..TaskError::new(problem) }),
                    ..Outcome::default()
                }
            }
        }
    }

    async fn start(&self, watch: &Watch, folder: &RunDirectory) -> Result<Processes, String> {
        let passed = environment(watch);
        if let Start::Worker(workers) | Start::WorkerOrProcess(workers) = &self.start {
            match workers.fork(passed.clone(), folder.work_dir(), &folder.request(&ARGUMENTS)?).await {
                Ok(fork) => return Ok(Processes::Forks(fork)),
                Err(problem) => match self.start {
                    Start::WorkerOrProcess(_) => tracing::warn!("{PROGRAM} runs without a worker: {problem}"),
                    _ => return Err(problem),
                },
            }
        }
        let mut command = Command::new(&self.program);
        command.args(ARGUMENTS).current_dir(folder.path()).env_clear().envs(passed).envs(folder.environment());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let group = Group::start(command, folder.path());
        group.map(Processes::Children).map_err(|error| format!("cannot start {}: {error}", self.program.display()))
    }

    async fn events(&self, job: &Job<'_>) -> Result<Events, String> {
        let proxy = proxy::serve(job).await.map_err(|error| format!("cannot serve the proxy: {error}"))?;
        let folder = RunDirectory::new(job, self, &proxy)
            .map_err(|error| format!("cannot create the working directory of the run: {error}"))?;
        let written = folder.write_variables(job.extra.clone()).await;
        written.map_err(|error| format!("cannot write the variables of the run: {error}"))?;
        // If the reconcile is canceled, all processes of the run are killed before their directory is removed.
        let mut processes = self.start(job.watch, &folder).await?;
        let (out, complaints) = processes.output().ok_or("the process has no output")?;
        let read = async {
            let mut events = Events::of(job.watch.log_events.unwrap_or_default());
            let mut out = BufReader::new(out);
            while let Some(line) = next_line(&mut out).await? {
                events.read(&line, folder.secret());
            }
            Ok::<_, io::Error>(events)
        };
        let (events, complaint, status) = tokio::join!(read, complaint(complaints), processes.ended());
        let (events, status) = (events.map_err(|error| error.to_string())?, status.map_err(|error| error.to_string())?);
        // Errors of strategy plugins are not in any event.
        match events.is_complete() && (status.success() || events.has_failed()) {
            true => Ok(events),
            false => Err(format!("{PROGRAM} ended with {status}, and no task failed: {complaint}")),
        }
    }
}

/// Reads all error output, and returns the beginning.
async fn complaint(mut from: impl AsyncRead + Unpin) -> String {
    let mut text = Vec::new();
    let _ = (&mut from).take(MAX_STDERR_BYTES).read_to_end(&mut text).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Reads a line, truncated to the limit; `None` at the end.
async fn next_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let read = from.fill_buf().await?;
        if read.is_empty() {
            return Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()));
        }
        let end = read.iter().position(|byte| *byte == b'\n');
        let part = &read[..end.unwrap_or(read.len())];
        line.extend_from_slice(&part[..part.len().min(MAX_LINE_BYTES - line.len())]);
        let consumed = end.map_or(read.len(), |end| end + 1);
        from.consume(consumed);
        if end.is_some() {
            return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
        }
    }
}

#[cfg(test)]
mod tests;
