//! The `ansible-playbook` executor, a child process.
//!
//! The process gets its own folder with variables, an inventory with the single host `localhost`, and a kubeconfig
//! for a [proxy] in this process, which forwards its requests with the operator's credentials and sets owner
//! references to the reconciled object. A callback plugin reports events line by line, as ansible-runner does. The
//! folder and all processes of the run are removed at its end.

mod events;
mod folder;
mod process;
mod proxy;
mod target;
mod work_dir;

use crate::job::{Job, Outcome, TaskError};
use crate::shares::Shares;
use crate::watches::Runs;
use events::Events;
use folder::Folder;
use process::Group;
use ring::rand::SecureRandom as _;
use std::collections::BTreeSet;
use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

const PROGRAM: &str = "ansible-playbook";
/// Limit of bytes kept of a line and of the error output. All output is read, or the process would block.
const MAX_LINE_BYTES: usize = 1 << 20;
const MAX_COMPLAINT_BYTES: u64 = 4096;

/// Runs a role or a playbook with `ansible-playbook`.
pub(crate) struct AnsiblePlaybook {
    pub(crate) program: PathBuf,
    pub(crate) runs: Runs,
    pub(crate) project: PathBuf,
    /// Roles and files outside of the project with literal paths.
    pub(crate) elsewhere: BTreeSet<PathBuf>,
    /// Workers for runs, since it is unknown when they wait.
    pub(crate) shares: Shares,
}

/// Generates this number of unpredictable bytes, as hexadecimal digits. Not used in simulations.
fn random(bytes: usize) -> io::Result<String> {
    let mut drawn = vec![0; bytes];
    let source = ring::rand::SystemRandom::new();
    source.fill(&mut drawn).map_err(|_| io::Error::other("no randomness available"))?;
    Ok(drawn.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl AnsiblePlaybook {
    /// Finds the program in `PATH`.
    pub(crate) fn find() -> Option<PathBuf> {
        env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
    }

    /// Runs the playbook once.
    pub(crate) async fn run(&self, job: Job<'_>) -> Outcome {
        let Some(_share) = self.shares.acquire(job.cx.key().namespace()) else {
            return Outcome { is_deferred: true, ..Outcome::default() };
        };
        match self.events(&job).await {
            Ok(events) => events.outcome(),
            Err(problem) => {
                let task = self.program.display().to_string();
                Outcome {
                    failures: 1,
                    failure: Some(TaskError { task, ..TaskError::new(problem) }),
                    ..Outcome::default()
                }
            }
        }
    }

    async fn events(&self, job: &Job<'_>) -> Result<Events, String> {
        let proxy = proxy::serve(job).await.map_err(|error| format!("cannot serve the proxy: {error}"))?;
        let folder = Folder::new(job, self, &proxy)
            .map_err(|error| format!("cannot create the working directory of the run: {error}"))?;
        let mut command = Command::new(&self.program);
        let variables = ["-e", "@variables.json", "-e", "@connection.json"];
        command.args(["-i", "inventory"]).args(variables).arg("playbook.json").current_dir(folder.path());
        command.env_clear().envs(folder.environment(job.watch));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // If the reconcile is canceled, all processes of the run are killed before their folder is removed.
        let mut group = Group::start(command, folder.path())
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let (out, mut complaints) = group.output().ok_or("the process has no output")?;
        let read = async {
            let mut events = Events::default();
            let mut out = BufReader::new(out);
            while let Some(line) = next_line(&mut out).await? {
                events.read(&line, folder.secret());
            }
            Ok::<_, io::Error>(events)
        };
        let complain = async {
            let mut text = Vec::new();
            let _ = (&mut complaints).take(MAX_COMPLAINT_BYTES).read_to_end(&mut text).await;
            let _ = tokio::io::copy(&mut complaints, &mut tokio::io::sink()).await;
            String::from_utf8_lossy(&text).trim().to_owned()
        };
        let (events, complaint, status) = tokio::join!(read, complain, group.ended());
        let (events, status) = (events.map_err(|error| error.to_string())?, status.map_err(|error| error.to_string())?);
        // Errors of strategy plugins are not in any event.
        match events.is_complete() && (status.success() || events.has_failed()) {
            true => Ok(events),
            false => Err(format!("{PROGRAM} ended with {status}, and no task failed: {complaint}")),
        }
    }
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
