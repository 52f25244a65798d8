//! The manager as a process beside an embedded control plane.
//!
//! It runs as its own service account, whose token it renews with the kubeconfig of the control plane, and ends with
//! the control plane. As long as it runs, it holds a lock on a file beside the record of the control plane, so that no
//! other process can be mistaken for it.

use super::run;
use crate::cluster::account::Account;
use crate::cluster::connection::{Connection, config_of};
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::commands::cluster::LocalCluster;
use crate::error::{Error, Result, ResultExt};
use crate::files::state::StateFiles;
use crate::operator::metrics::free_address;
use crate::web::Web;
use bytes::Bytes;
use clap::Args;
use http::Request;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Interval of checks that the control plane runs.
const CLUSTER_POLL: Duration = Duration::from_secs(1);
/// Timeout of a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the manager to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The record of a manager.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) pid: i32,
    /// Address of its health checks.
    pub(super) health: String,
    pub(super) log: PathBuf,
}

/// The manager beside a control plane of this machine.
#[derive(Clone, Debug)]
pub(super) struct LocalManager(StateFiles);

const LOCK: &str = "olm-lock";
const RECORD: &str = "olm.json";
const LOG: &str = "olm.log";
const KUBECONFIG: &str = "olm.kubeconfig";

impl LocalManager {
    pub(super) fn of(cluster: &str) -> Result<Self> {
        StateFiles::of(cluster).map(Self)
    }

    /// Returns the record of the manager if it runs. It has none while it starts.
    pub(super) fn find(&self) -> Result<Option<Record>> {
        if self.0.is_locked(LOCK)? { self.0.read(RECORD) } else { Ok(None) }
    }

    /// Starts the manager in the background, and waits until it is ready.
    pub(super) async fn start(&self, cluster: &LocalCluster, args: &LocalFlags, timeout: Duration) -> Result<Record> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let (path, log) = (self.0.path(LOG), self.0.create_log(LOG)?);
        let also = log.try_clone().context("cannot share the log")?;
        let health = free_address()?;
        let mut command = Command::new(program);
        command.args(["olm", "local", self.0.name(), "--pid", &cluster.pid.to_string(), "--health", &health]);
        command.arg("--kubeconfig").arg(&cluster.kubeconfig).args([
            "--namespace",
            &args.namespace,
            "--account",
            &args.account,
        ]);
        command.arg("--").args(&args.manager);
        // As for the control plane: it outlives this command and its terminal.
        command.stdin(Stdio::null()).stdout(log).stderr(also).process_group(0).current_dir("/");
        let mut child = command.spawn().context("cannot start the lifecycle manager")?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        let record = Record { pid, health, log: path.clone() };
        let ready = poll_until(timeout, POLL_INTERVAL, async || {
            if let Some(status) = child.try_wait().context("cannot wait for the lifecycle manager")? {
                return Err(Error::new(format!("the lifecycle manager exited: {status}: {}", self.0.log_tail(LOG, 5))));
            }
            Ok(if is_ready(&record).await { Ok(()) } else { Err(()) })
        });
        ready.await?.map_err(|()| {
            Error::new(format!("the lifecycle manager is not ready after {} s", timeout.as_secs()))
                .hint(format!("see {}", path.display()))
        })?;
        Ok(record)
    }

    /// Stops the manager, if it runs, and removes its files.
    pub(super) async fn stop(&self) -> Result<bool> {
        let Some(record) = self.find()? else {
            self.remove_files();
            return Ok(false);
        };
        let pid = Pid::from_raw(record.pid).ok_or_else(|| Error::new("the manager's record has no process"))?;
        kill_process(pid, Signal::TERM).context(format!("cannot stop process {}", record.pid))?;
        let stopped = poll_until(STOP_TIMEOUT, POLL_INTERVAL, async || {
            Ok(if self.0.is_locked(LOCK)? { Err(()) } else { Ok(()) })
        });
        stopped.await?.map_err(|()| {
            Error::new(format!("process {} of the lifecycle manager did not stop", record.pid))
                .hint(format!("kill -9 {}", record.pid))
        })?;
        self.remove_files();
        Ok(true)
    }

    fn remove_files(&self) {
        self.0.remove(&[RECORD, KUBECONFIG, "olm.token", LOG, LOCK]);
    }
}

/// Returns true if a manager answers that it is ready.
pub(super) async fn is_ready(record: &Record) -> bool {
    let Ok(web) = Web::new(HEALTH_TIMEOUT) else { return false };
    let Ok(request) = Request::get(format!("http://{}/readyz", record.health)).body(Bytes::new()) else { return false };
    web.send(request).await.is_ok_and(|response| response.status().is_success())
}

/// The identity and the flags of a manager.
#[derive(Clone, Debug)]
pub(super) struct LocalFlags {
    pub(super) namespace: String,
    pub(super) account: String,
    pub(super) manager: Vec<String>,
}

#[derive(Args, Debug)]
pub(super) struct LocalArgs {
    /// Name of the control plane
    cluster: String,
    /// Process of the control plane
    #[arg(long)]
    pid: i32,
    /// Address of health checks
    #[arg(long)]
    health: String,
    /// Kubeconfig of the control plane
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Namespace of the manager
    #[arg(long)]
    namespace: String,
    /// Service account of the manager
    #[arg(long)]
    account: String,
    /// Arguments of the manager
    #[arg(last = true)]
    args: Vec<OsString>,
}

pub(super) fn cmd_local(args: &LocalArgs) -> Result<ExitCode> {
    let manager = LocalManager::of(&args.cluster)?;
    let lock = manager.0.lock(LOCK)?.ok_or_else(|| Error::new("the lifecycle manager is already running"))?;
    let kubeconfig = manager.0.path(KUBECONFIG);
    renew_tokens(args, kubeconfig.clone())?;
    end_with(args.pid)?;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let record = Record { pid, health: args.health.clone(), log: manager.0.path(LOG) };
    manager.0.write(RECORD, &record)?;
    let mut flags: Vec<OsString> = vec!["--kubeconfig".into(), kubeconfig.into()];
    flags.push(format!("--operator-namespace={}", args.namespace).into());
    flags.push(format!("--health-addr={}", args.health).into());
    flags.push("--metrics-addr=0".into());
    flags.extend(args.args.iter().cloned());
    let code = run::run(flags);
    drop(lock);
    Ok(code)
}

/// Writes a kubeconfig of the service account, and renews its token in another thread.
fn renew_tokens(args: &LocalArgs, kubeconfig: PathBuf) -> Result<()> {
    let (ready, is_ready) = mpsc::channel();
    let (path, namespace, name) = (args.kubeconfig.clone(), args.namespace.clone(), args.account.clone());
    let renew = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error).context("cannot start the runtime"))),
        };
        runtime.block_on(async move {
            let account = async {
                let mut config = config_of(&path, None).await?;
                config.default_namespace = namespace;
                let connection = Connection::open(config.clone()).await?;
                let account = Account::new(&connection.client, &config, &name, &kubeconfig)?;
                account.renew().await?;
                Ok(account)
            };
            match account.await {
                Ok(account) => {
                    let _ = ready.send(Ok(()));
                    account.keep_renewing().await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
    };
    thread::Builder::new().name("tokens".to_owned()).spawn(renew).context("cannot start a thread")?;
    is_ready.recv().context("the thread of tokens ended")?
}

/// Stops this process when another one has ended.
#[expect(clippy::disallowed_methods, reason = "waits for another process")]
fn end_with(pid: i32) -> Result<()> {
    let pid = Pid::from_raw(pid).ok_or_else(|| Error::usage("--pid 0 is not a process"))?;
    let watch = move || {
        while test_kill_process(pid).is_ok() {
            thread::sleep(CLUSTER_POLL);
        }
        // Its requests fail from now on; an orderly end would wait for them.
        std::process::exit(0);
    };
    thread::Builder::new().name("cluster".to_owned()).spawn(watch).context("cannot start a thread")?;
    Ok(())
}
