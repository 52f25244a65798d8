//! The real `ansible-playbook`, as a child process.
//!
//! It gets a folder of its own with variables, an inventory of the one host `localhost`, and a kubeconfig that leads to a [proxy] in this
//! process, through which it is the operator and makes objects that belong to the object which is reconciled. It tells what it does as
//! ansible-runner would, line by line, by a callback plugin. The folder goes when the run is over, and the process with it.

mod events;
mod folder;
mod proxy;

use crate::run::{Failure, Job, Outcome};
use crate::watches::Runs;
use events::Events;
use folder::Folder;
use ring::rand::SecureRandom as _;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

const PROGRAM: &str = "ansible-playbook";
/// How long a line, and how much of the error output, is read.
const LONGEST: u64 = 16 << 20;
const LONGEST_COMPLAINT: u64 = 4096;

/// Runs a role or a playbook by `ansible-playbook`.
pub(crate) struct AnsiblePlaybook {
    program: PathBuf,
    runs: Runs,
    project: PathBuf,
}

/// Draws so many bytes that nobody can guess, as hexadecimal digits. No simulation comes here.
fn random(bytes: usize) -> io::Result<String> {
    let mut drawn = vec![0; bytes];
    let source = ring::rand::SystemRandom::new();
    source.fill(&mut drawn).map_err(|_| io::Error::other("there is no randomness"))?;
    Ok(drawn.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl AnsiblePlaybook {
    /// Finds the program on the `PATH`.
    pub(crate) fn find() -> Option<PathBuf> {
        env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
    }

    pub(crate) fn new(program: PathBuf, runs: &Runs, project: &Path) -> Self {
        Self { program, runs: runs.clone(), project: project.to_owned() }
    }

    /// Runs it once.
    pub(crate) async fn run(&self, job: Job<'_>) -> Outcome {
        match self.events(&job).await {
            Ok(events) => events.outcome(),
            Err(problem) => {
                let task = self.program.display().to_string();
                Outcome { failures: 1, failure: Some(Failure { task, ..Failure::new(problem) }), ..Outcome::default() }
            }
        }
    }

    async fn events(&self, job: &Job<'_>) -> Result<Events, String> {
        let proxy = proxy::serve(job).await.map_err(|error| format!("cannot serve the proxy: {error}"))?;
        let folder =
            Folder::new(job, &self.runs, &proxy).map_err(|error| format!("cannot write the run's folder: {error}"))?;
        let mut command = Command::new(&self.program);
        command.args(["-i", "inventory", "-e", "@variables.json", "playbook.json"]).current_dir(folder.path());
        for (name, value) in folder.environment(&self.project) {
            command.env(name, value);
        }
        // When the reconcile is cut off, so is the process.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let (Some(out), Some(complaints)) = (child.stdout.take(), child.stderr.take()) else {
            return Err("the process has no output".to_owned());
        };
        let read = async {
            let mut lines = BufReader::new(out.take(LONGEST)).lines();
            let mut events = Events::default();
            while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
                events.read(&line);
            }
            Ok::<_, String>(events)
        };
        let complain = async {
            let mut text = Vec::new();
            let mut complaints = complaints;
            // The pipe is read to its end, or the process could not go on.
            let _ = (&mut complaints).take(LONGEST_COMPLAINT).read_to_end(&mut text).await;
            let _ = tokio::io::copy(&mut complaints, &mut tokio::io::sink()).await;
            String::from_utf8_lossy(&text).trim().to_owned()
        };
        let (events, complaint) = tokio::join!(read, complain);
        let status = child.wait().await.map_err(|error| error.to_string())?;
        let events = events?;
        match events.is_complete() {
            true => Ok(events),
            false => Err(format!("{PROGRAM} ended with {status} and told nothing of its tasks: {complaint}")),
        }
    }
}
