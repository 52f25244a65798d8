//! An operator on a control plane of its own: as a service account with the roles of its manifests and no others, as it
//! will be in its pod.

use crate::cluster::connection::Connection;
use crate::cluster::embedded::EmbeddedCluster;
use crate::cluster::wait::poll_until;
use crate::error::{Result, ResultExt};
use crate::files::private::PrivateDirectory;
use crate::operator::local::{LineSinks, LocalArgs, LocalOperator};
use crate::operator::metrics::free_address;
use crate::operator::process::Process;
use crate::web::Web;
use bytes::Bytes;
use http::Request;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Polling interval of the readiness.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A control plane and an operator for it. Everything is removed when this is dropped.
pub(crate) struct TestEnvironment {
    pub(crate) operator: LocalOperator,
    /// `None` before it is started.
    pub(crate) process: Option<Process>,
    pub(crate) web: Web,
    /// Address of its metrics.
    pub(crate) metrics: String,
    health: String,
    /// The last line of its output.
    last_line: Arc<Mutex<String>>,
    pub(crate) control_plane: EmbeddedCluster,
    _folder: PrivateDirectory,
}

impl TestEnvironment {
    /// Starts the control plane, whose files have this name, with one simulated node.
    pub(crate) async fn new(args: LocalArgs, name: &str) -> Result<Self> {
        let control_plane = EmbeddedCluster::start(name, 1).await?;
        let folder = PrivateDirectory::new(&format!("{name}-operator"))?;
        let (health, metrics) = (free_address()?, free_address()?);
        let config = &control_plane.config;
        let mut operator = LocalOperator::new(args, Connection::open(config.clone()).await?);
        operator.configure_as_pod(config.clone(), folder.path().join("kubeconfig"), &metrics, &health);
        operator.quiet = true;
        let last_line = Arc::<Mutex<String>>::default();
        let last = last_line.clone();
        // Its log goes to the log of this command.
        let sink = move |line: &str| {
            tracing::info!("{line}");
            line.clone_into(&mut last.lock());
        };
        operator.sinks = LineSinks { build: None, operator: Some(Arc::new(sink)) };
        let web = Web::new(Duration::from_secs(5))?;
        Ok(Self { operator, process: None, web, metrics, health, last_line, control_plane, _folder: folder })
    }

    /// Installs the operator, starts its process, and waits until it is ready. Returns the reason if it does not become
    /// ready.
    pub(crate) async fn launch(&mut self, timeout: Duration) -> Result<Result<(), String>> {
        let process = self.process.insert(self.operator.launch().await?);
        let page = format!("http://{}/readyz", self.health);
        let mut lacks = "no response".to_owned();
        let ready = poll_until(timeout, POLL_INTERVAL, async || {
            let request = Request::get(&page).body(Bytes::new()).context("invalid address")?;
            match self.web.send(request).await {
                Ok(response) if response.status().is_success() => return Ok(Ok(())),
                Ok(response) => lacks = failed_checks(&String::from_utf8_lossy(response.body())),
                Err(_) => {}
            }
            Ok(Err(lacks.clone()))
        });
        let ready = tokio::select! {
            biased;
            result = process.wait() => {
                let (status, last_line) = (result?, self.last_line.lock());
                let last_line = if last_line.is_empty() { "nothing" } else { &last_line };
                return Ok(Err(format!("exited with {status}; last output: {last_line}")));
            }
            ready = ready => ready?,
        };
        let seconds = timeout.as_secs();
        Ok(ready.map_err(|lacks| format!("/readyz did not report ready within {seconds} s: {lacks}")))
    }
}

/// Returns the failed checks of `/readyz`.
fn failed_checks(page: &str) -> String {
    let failures: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("[-]")).map(str::trim_start).collect();
    if failures.is_empty() { page.trim().to_owned() } else { failures.join(", ") }
}
