//! The operator as a process of the command, behind a proxy.

use crate::error::{Error, Result, ResultExt};
use crate::files::private::{self, PrivateDirectory};
use crate::operator::process::stop_signal;
use crate::render::terminal::print_labeled;
use flyball_chaos::{Network, Process, Proxy};
use flyball_core::service_account;
use kube::Config;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Time of a process to start, and to create its objects.
const START: Duration = Duration::from_secs(10);

/// The signal that ends a run.
type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An operator as a process, which is killed when this is dropped.
pub(super) struct RunningProcess {
    pub(super) process: Process,
    pub(super) network: Network,
    pub(super) stop: Stop,
    _tasks: JoinSet<()>,
    _folder: PrivateDirectory,
}

impl RunningProcess {
    /// Starts a command of the shell with the permissions of a user, and waits until it has created its objects.
    pub(super) async fn start(
        exec: &str,
        mut config: Config,
        user: Option<&str>,
        output: Option<PathBuf>,
    ) -> Result<Self> {
        let namespace = config.default_namespace.clone();
        if let Some(user) = user {
            config.auth_info.impersonate = Some(user.to_owned());
            config.auth_info.impersonate_groups = groups(user);
        }
        let client = flyball::connect(config).context("cannot connect for the process")?;
        let network = Network::default();
        let proxy = Proxy::bind(client, network.clone()).await.context("cannot start the proxy")?;
        let folder = PrivateDirectory::new("flyball-chaos")?;
        let kubeconfig = folder.path().join("kubeconfig");
        // JSON is YAML as well, and readable in every language.
        let config = proxy.kubeconfig(&namespace).to_string();
        let what = || format!("cannot write {}", kubeconfig.display());
        private::write(&kubeconfig, config.as_bytes()).context(what())?;
        let process = Process::new(exec, kubeconfig, &namespace, output);
        // From here on, a signal kills the process and undoes the changes.
        let stop: Stop = Box::pin(stopped(stop_signal()?));
        let (mut tasks, started) = (JoinSet::new(), process.clone());
        tasks.spawn(proxy.serve());
        tasks.spawn(async move {
            if let Err(error) = started.run().await {
                print_labeled("error", &format!("cannot start the process: {error}"));
            }
        });
        let mut running = Self { process, network, stop, _tasks: tasks, _folder: folder };
        tokio::select! {
            () = running.stop.as_mut() => Err(Error::interrupted()),
            () = sleep(START) => Ok(running),
        }
    }
}

/// Returns the groups of a service account; the API server knows those of other users.
fn groups(user: &str) -> Option<Vec<String>> {
    let (namespace, _) = service_account::split_user_name(user)?;
    let [all, own] = service_account::group_names(namespace);
    Some(vec![all, own, "system:authenticated".to_owned()])
}

/// Waits for a signal. Further signals have no effect until the changes are undone.
pub(super) async fn stopped(signal: impl Future<Output = ()>) {
    signal.await;
    print_labeled("chaos", "interrupted: undoing the changes");
}
