//! Child processes: their output and shutdown.

use crate::error::{Result, ResultExt};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::future::pending;
use std::os::unix::process::ExitStatusExt;

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Longer lines are split.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// Timeout of a process to stop. An operator's own shutdown timeout is 25 seconds.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A sink for the lines of a process's output.
pub(crate) type LineSink = Arc<dyn Fn(&str) + Send + Sync>;

/// Forwards the output line by line until the end.
pub(crate) fn forward_lines(from: impl AsyncRead + Unpin + Send + 'static, sink: LineSink) -> JoinHandle<()> {
    tokio::spawn(async move {
        let (mut from, mut line) = (BufReader::new(from), Vec::new());
        loop {
            line.clear();
            match (&mut from).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => sink(String::from_utf8_lossy(&line).trim_end()),
            }
        }
    })
}

/// Builds the command of a program that is stopped, as by [`Process::stop`], when this process ends for any reason.
pub(crate) fn supervised(line: &[OsString]) -> Command {
    let line = supervised_line(line);
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    command
}

/// Returns the program and the arguments of such a command.
pub(crate) fn supervised_line(line: &[OsString]) -> Vec<OsString> {
    if !cfg!(target_os = "linux") {
        return line.to_vec();
    }
    // `/proc/self/exe` is this program even if a build replaces its file.
    let supervise = ["/proc/self/exe".into(), "supervise".into(), std::process::id().to_string().into()];
    supervise.into_iter().chain(line.iter().cloned()).collect()
}

/// A process that runs beside this one. It is killed if this is dropped.
pub(crate) struct Process {
    child: Child,
    relays: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts it in a process group of its own: Ctrl-C at the terminal reaches this process alone, which passes it on
    /// once.
    pub(crate) fn start(mut command: Command, sink: Option<LineSink>) -> Result<Self> {
        command.process_group(0).kill_on_drop(true);
        if sink.is_some() {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().context(format!("cannot start {program}"))?;
        let mut relays = Vec::new();
        if let Some(sink) = sink {
            relays.extend(child.stdout.take().map(|out| forward_lines(out, sink.clone())));
            relays.extend(child.stderr.take().map(|err| forward_lines(err, sink)));
        }
        Ok(Self { child, relays })
    }

    /// Waits until it exits, and all of its output is forwarded.
    pub(crate) async fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().await.context("cannot wait for the operator")?;
        for relay in &mut self.relays {
            // Its own child processes may still write.
            let _ = timeout(Duration::from_millis(200), relay).await;
        }
        self.relays.clear();
        Ok(status)
    }

    /// Stops the process with SIGTERM, and waits. After the timeout, or on a second signal to this process, it is
    /// killed. Returns the exit status, unless the signal ended the process: a process that has just started does not
    /// handle it yet.
    pub(crate) async fn stop(&mut self) -> Result<Option<ExitStatus>> {
        // One Ctrl-C may arrive as several signals: from the terminal, and from the parent process.
        let again = async {
            sleep(Duration::from_secs(1)).await;
            match stop_signal() {
                Ok(signal) => signal.await,
                Err(_) => pending().await,
            }
        };
        self.terminate();
        tokio::select! {
            biased;
            result = self.wait() => {
                return Ok(Some(result?).filter(|status| status.signal() != Some(Signal::TERM.as_raw())));
            }
            () = again => {}
            () = sleep(STOP_TIMEOUT) => {}
        }
        self.kill().await.map(Some)
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills it, and waits, as in a crash.
    pub(crate) async fn kill(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.wait().await
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Waits for Ctrl-C, SIGTERM, or the end of the terminal.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("cannot listen to signals");
    let mut interrupted = listen(SignalKind::interrupt())?;
    let mut terminated = listen(SignalKind::terminate())?;
    let mut hung_up = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
            _ = hung_up.recv() => {}
        }
    })
}
