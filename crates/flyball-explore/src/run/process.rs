//! A run with the operator as a child process, in real time.

use super::{Outcome, RunOptions, final_state, outcome};
use crate::cost::{Meter, Phase};
use crate::driver::Driver;
use crate::history::Actor;
use crate::hub::{Hub, IncidentKind, Settings};
use crate::pace::Pace;
use crate::port::Connection;
use crate::process::{Activity, Child, Endpoint, Log, OperatorCommand, ServiceCaller, describe, is_crash};
use crate::schedule::Schedule;
use crate::stage::{OPERATOR_NAMESPACE, Stage};
use crate::webhook::WebhookPort;
use flyball_cluster::Options;
use flyball_core::Clock;
use std::cell::Cell;
use std::fs::OpenOptions;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// Delay before the start of a process that ended by itself, doubled each time.
const RESTART_DELAY: Duration = Duration::from_millis(200);
/// Limit of the doublings.
const MAX_DOUBLINGS: u32 = 4;
/// Maximum time of a process to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Number of the free ports that a process gets.
const PORTS: usize = 4;
/// Number of lines of output in the message about an exit.
const LAST_LINES: usize = 8;
/// Beginnings of lines by which runtimes report that the program ends by a fault.
const PANICS: [&str; 3] = ["panic: ", "fatal error: ", "thread 'main' panicked"];

/// Observations of a run of a process beside its [`Outcome`].
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessOutcome {
    /// The last lines of its output, with its starts and ends.
    pub(crate) output: Vec<(Duration, String)>,
    /// Time from the first start to the last new request before the first write.
    pub(crate) startup: Duration,
}

/// Runs a schedule on a thread of its own, with a runtime in real time.
pub(super) fn run(stage: &Stage, command: &OperatorCommand, schedule: &Schedule, options: RunOptions<'_>) -> Outcome {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the system has descriptors for a runtime");
        runtime.block_on(run_on_runtime(stage, command, schedule, options))
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

async fn run_on_runtime(
    stage: &Stage,
    command: &OperatorCommand,
    schedule: &Schedule,
    options: RunOptions<'_>,
) -> Outcome {
    let began = Instant::now();
    let (caller, log, activity) = (ServiceCaller::default(), Log::new(began), Arc::<Activity>::default());
    let webhooks = WebhookPort::to(Arc::new(caller.clone()));
    let server = Options { webhooks: Arc::new(webhooks.clone()), ..Options::simulated(Clock::system(), schedule.seed) };
    let cluster = stage.fork(server);
    let hub = Arc::new(Hub::new(Settings {
        server: cluster.server().clone(),
        began,
        offset: Duration::ZERO,
        schedule,
        replicas: 1,
        records: options.records,
        max_requests: options.max_requests,
        pace: Pace::real(command.quiet, command.timeout, command.startup),
        meter: Meter::start(Phase::Fork),
        on_crossing: options.on_crossing.cloned(),
    }));
    webhooks.connect(&hub);
    caller.connect(&hub);
    let (controlled, controllers) = (cluster.clone(), stage.controllers.clone());
    let control_plane = tokio::spawn(async move { controlled.run(&controllers).await });
    let supervisor = Supervisor {
        hub: hub.clone(),
        command: command.clone(),
        user: stage.user.clone(),
        activity: activity.clone(),
        log: log.clone(),
        is_undisturbed: schedule.injections.is_empty(),
    };
    let process = tokio::spawn(supervisor.run());

    let driver = Driver { stage, schedule, hub: &hub, activity: Some(activity.clone()), noticed: Cell::default() };
    let has_started = driver.wait_for_start(&activity).await;
    let startup = activity.last_new().map_or(Duration::ZERO, |last| last.saturating_duration_since(began));
    let rejections = if has_started { driver.play().await } else { Vec::new() };
    let view = || final_state(stage, &hub, &[]);
    let is_quiet = has_started && driver.calm_down(options.expected.is_some(), || options.is_expected(&view().0)).await;
    let (state, objects) = view();
    let restart_writes = if options.restarts { driver.restart().await } else { Vec::new() };
    for task in [process, control_plane] {
        task.abort();
        // An aborted task returns an error.
        let _ = task.await;
    }
    hub.read_history(Actor::ControlPlane, |_| false);
    let records = hub.into_records();
    let mut outcome = outcome(records, (state, objects), is_quiet, rejections, restart_writes);
    outcome.process = ProcessOutcome { output: log.lines(), startup };
    outcome
}

/// Starts the process, again and again.
struct Supervisor {
    hub: Arc<Hub>,
    command: OperatorCommand,
    user: flyball_cluster::User,
    activity: Arc<Activity>,
    log: Log,
    is_undisturbed: bool,
}

/// The reason why a process no longer runs.
enum End {
    /// A fault ended it.
    Injected,
    /// The process exited without a fault.
    Exit(ExitStatus),
}

impl Supervisor {
    async fn run(self) {
        let mut exits = 0;
        for number in 1.. {
            match self.run_once(number).await {
                Ok(End::Injected) => {
                    exits = 0;
                    sleep(self.hub.downtime(0)).await;
                }
                Ok(End::Exit(status)) => {
                    self.activity.reset();
                    self.activity.record_exit();
                    self.record_exit(status);
                    sleep(RESTART_DELAY * 2_u32.pow(exits)).await;
                    exits = (exits + 1).min(MAX_DOUBLINGS);
                }
                Err(error) => {
                    let program = self.command.program.first().cloned().unwrap_or_default();
                    let text = format!("{} cannot be started: {error}", program.display());
                    return self.hub.record_incident(IncidentKind::End, "the process".to_owned(), text);
                }
            }
        }
    }

    async fn run_once(&self, number: u32) -> io::Result<End> {
        let (generation, crash, stop) = self.hub.start(0);
        self.activity.reset();
        let connection = Connection {
            hub: self.hub.clone(),
            process: 0,
            generation,
            user: self.user.clone(),
            namespace: OPERATOR_NAMESPACE.to_owned(),
        };
        let endpoint = Endpoint::bind(connection, self.activity.clone()).await?;
        let folder = Folder::below(&self.command.folder)?;
        let kubeconfig = folder.write("kubeconfig", &endpoint.kubeconfig().to_string())?;
        let mut child = Child::start(self.command(&kubeconfig)?, &self.log)?;
        self.log.add(format!("— process {number} started —"));
        let end = async {
            tokio::select! {
                biased;
                () = crash.notified() => {
                    self.activity.reset();
                    child.kill().await;
                    self.log.add("— killed by the fault —".to_owned());
                    Ok(End::Injected)
                }
                () = stop.notified() => {
                    self.activity.reset();
                    child.terminate(TERM_GRACE).await;
                    self.log.add("— stopped by SIGTERM —".to_owned());
                    Ok(End::Injected)
                }
                status = child.wait() => status.map(End::Exit),
            }
        };
        tokio::select! {
            biased;
            end = end => end,
            () = endpoint.serve() => Ok(End::Injected),
        }
    }

    fn command(&self, kubeconfig: &Path) -> io::Result<Command> {
        let OperatorCommand { program, variables, directory, .. } = &self.command;
        let (program, arguments) = program.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", kubeconfig).env("POD_NAMESPACE", OPERATOR_NAMESPACE);
        for (n, port) in (1..).zip(free_ports()?) {
            command.env(format!("PORT{n}"), port.to_string());
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = directory {
            command.current_dir(directory);
        }
        Ok(command)
    }

    /// Records that the process ended by itself. In Kubernetes it is started again, so that this is a fault of its own
    /// only without cause.
    fn record_exit(&self, status: ExitStatus) {
        let text = describe(status);
        let last = self.log.tail(LAST_LINES);
        self.log.add(format!("— {text} —"));
        let has_panicked = last.lines().any(|line| PANICS.iter().any(|panic| line.starts_with(panic)));
        let kind = match is_crash(status) || has_panicked {
            true => IncidentKind::Panic,
            false if self.is_undisturbed => IncidentKind::End,
            false => return,
        };
        let text = format!("it {text}; its last output:\n{last}");
        self.hub.record_incident(kind, "the process".to_owned(), text);
    }
}

/// Returns ports on which nothing listens.
fn free_ports() -> io::Result<Vec<u16>> {
    // All are open at the same time, so that they differ.
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = (0..PORTS).map(bind).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// A private folder, which is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn below(folder: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("flyball-explored-{}-{count}", std::process::id()));
        // It fails if it exists: another user may have created it.
        flyball_files::private_directory().create(&path)?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        let mut file = flyball_files::private(OpenOptions::new().write(true).create_new(true)).open(&path)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What the process left there is removed as well.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn kubeconfigs_are_private() {
        let folder = Folder::below(&std::env::temp_dir()).unwrap();
        let path = folder.write("kubeconfig", "{}").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn ports_differ() {
        let ports: std::collections::BTreeSet<u16> = free_ports().unwrap().into_iter().collect();
        assert_eq!(ports.len(), PORTS);
    }
}
