//! The console of `flyball dev`: that of `flyball console`, with the operator and its explorations.

use super::explorations::Explorations;
use crate::cluster::embedded::EmbeddedCluster;
use crate::commands::console::BoundConsole;
use crate::error::{Result, ResultExt};
use crate::operator::local::LocalOperator;
use flyball_console::{Address, Explore, Settings};
use flyball_core::Clock;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use url::Url;

/// The settings of the console.
pub(super) struct ConsoleSettings<'a> {
    /// Port on loopback; 0 selects a free one.
    pub(super) port: u16,
    pub(super) write: bool,
    /// Name of the context, for display.
    pub(super) context: String,
    /// URL of the API server, for display.
    pub(super) cluster: &'a str,
    /// Private directory for files of explorations and forks.
    pub(super) folder: &'a Path,
    /// The control plane, if it runs in this process.
    pub(super) own: Option<Arc<EmbeddedCluster>>,
}

impl ConsoleSettings<'_> {
    /// Binds the console of an operator with these metrics, and prints its address.
    pub(super) async fn start(self, operator: &mut LocalOperator, metrics_address: &str) -> Result<BoundConsole> {
        let url = format!("http://{metrics_address}");
        let url = Url::parse(&url).context(format!("{url} is not an address"))?;
        let explorations =
            Arc::new(Explorations::new(self.folder, operator.samples.clone(), operator.args.args.clone(), self.own)?);
        let programs = explorations.clone();
        operator.on_start = Some(Box::new(move |program, variables| programs.set_program(program, variables)));
        let explorer: Arc<dyn Explore> = explorations;
        let settings = Settings {
            port: self.port,
            write: self.write,
            namespace: None,
            cluster: self.cluster.to_owned(),
            context: self.context,
            operators: vec![Address::url(url)],
            finder: None,
            explorer: Some(explorer),
            clock: Clock::system(),
        };
        let client = operator.connection.client.clone();
        let console = BoundConsole::bind(client, settings, "pass another port, or none: --console").await?;
        console.print(None)?;
        Ok(console)
    }
}

/// Serves a console, if there is one. Never returns.
pub(super) async fn serve(console: Option<BoundConsole>) {
    match console {
        Some(console) => console.run().await,
        None => pending().await,
    }
}
