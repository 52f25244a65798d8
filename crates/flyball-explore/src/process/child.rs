//! A child process in a process group of its own, so that it ends with all of its children.

use super::log::Log;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// Maximum time of the end of the output after that of the process.
const DRAIN: Duration = Duration::from_millis(100);

/// A running process, which is killed with its group when this is dropped.
pub(crate) struct Child {
    child: tokio::process::Child,
    group: Option<Pid>,
    output: Vec<tokio::task::JoinHandle<()>>,
}

impl Child {
    /// Starts a process whose output goes to the log.
    pub(crate) fn start(mut command: Command, log: &Log) -> io::Result<Self> {
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let mut output = Vec::new();
        output.extend(child.stdout.take().map(|pipe| tokio::spawn(log.clone().follow(pipe))));
        output.extend(child.stderr.take().map(|pipe| tokio::spawn(log.clone().follow(pipe))));
        Ok(Self { child, group, output })
    }

    /// Waits until it exits. Its children are killed, and the rest of its output is read.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.signal(Signal::KILL);
        self.group = None;
        for output in std::mem::take(&mut self.output) {
            // Output of processes that left the group is not awaited.
            let _ = timeout(DRAIN, output).await;
        }
        Ok(status)
    }

    /// Kills it, as in a crash.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        // It ends in any case.
        let _ = self.wait().await;
    }

    /// Stops it with SIGTERM, and kills it after a time.
    pub(crate) async fn terminate(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        if timeout(grace, self.wait()).await.is_err() {
            self.kill().await;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended meanwhile.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Describes how a process ended.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(127), _) => "exited with status 127: its command was not found".to_owned(),
        (Some(code), _) => format!("exited with status {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "ended".to_owned(),
    }
}

/// Returns true if a fault of the program ended it, such as an invalid memory access.
pub(crate) fn is_crash(status: ExitStatus) -> bool {
    let expected = [Signal::KILL, Signal::TERM, Signal::INT, Signal::PIPE, Signal::HUP].map(Signal::as_raw);
    status.signal().is_some_and(|signal| !expected.contains(&signal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn output_and_status_are_recorded() {
        let log = Log::new(Instant::now());
        let mut child = Child::start(shell("echo out; echo err >&2; exit 3"), &log).unwrap();
        let status = child.wait().await.unwrap();
        assert_eq!(describe(status), "exited with status 3");
        let mut lines: Vec<String> = log.lines().into_iter().map(|(_, line)| line).collect();
        lines.sort();
        assert_eq!(lines, ["err", "out"]);
        let mut child = Child::start(shell("kill -SEGV $$"), &log).unwrap();
        assert!(is_crash(child.wait().await.unwrap()));
    }

    #[tokio::test]
    async fn children_end_with_their_process() {
        let log = Log::new(Instant::now());
        let mut child = Child::start(shell("sleep 600 & echo $!; wait"), &log).unwrap();
        while log.lines().is_empty() {
            tokio::task::yield_now().await;
        }
        child.kill().await;
        let pid = log.tail(1).parse().ok().and_then(Pid::from_raw).unwrap();
        let status = || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        // A killed process is scheduled once more, and then removed by the init process.
        let is_over = || status().is_empty() || status().contains(") Z ");
        let since = Instant::now();
        while !is_over() {
            assert!(since.elapsed() < Duration::from_secs(10), "{}", status());
            sleep(Duration::from_millis(1)).await;
        }
    }
}
