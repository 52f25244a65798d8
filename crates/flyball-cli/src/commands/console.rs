//! `flyball console`: serves a page that shows a cluster and its operators.

use crate::cluster::connection::{ContextArgs, block_on_threads};
use crate::cluster::kinds::Kinds;
use crate::error::{Result, ResultExt};
use crate::operator::process::stop_signal;
use crate::render::output::Output;
use crate::render::terminal::{print_labeled, print_line};
use crate::why::{self, OperatorArgs};
use clap::Args;
use flyball_console::{Address, Console, Discover, FindOperators, Kind, Settings};
use flyball_core::Clock;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;

/// Show a cluster and its operators in a browser
///
/// Serves one page on loopback: objects as an owner tree with live state, the timeline of an object, controllers with
/// their queues, causes of changes, and permissions. Requests to the cluster have your own permissions. The address
/// contains a token, which ends with the command. Nothing is written without --write.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball console
  flyball console --context staging --port 8765
  flyball console --operator shop-system/shop-operator
  flyball console --operator http://127.0.0.1:8080

Operators built with Flyball serve their ledger at the address of their metrics. Those of this machine, and those that
flyball deploy installed, are found without a flag. Operators in the cluster are reached through the API server, with
your own permissions. What an operator says that was merely discovered is shown as a claim of its Deployment.")]
pub(crate) struct ConsoleArgs {
    #[command(flatten)]
    context: ContextArgs,
    /// Show only the objects of this namespace; needed if you may not list those of all namespaces
    #[arg(short, long)]
    namespace: Option<String>,
    /// Port on loopback; 0 selects a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Permit the page to request reconciles, pause, resume and delete objects
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    operators: OperatorArgs,
    /// Output format of the address
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// The address of a console.
#[derive(Serialize)]
struct Report {
    url: String,
    write: bool,
}

/// Discovery with the client of the command.
struct Discovery(kube::Client);

impl Discover for Discovery {
    fn kinds(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Kind>, String>> + Send + '_>> {
        Box::pin(async {
            let kinds = Kinds::discover(&self.0).await.map_err(|error| error.to_string())?;
            let listable = kinds.all().iter().filter(|kind| kind.can_list);
            let kind = |kind: &crate::cluster::kinds::Kind| {
                let api_version = kind.api_version();
                let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
                Kind {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    kind: kind.kind.clone(),
                    plural: kind.plural.clone(),
                    namespaced: kind.namespaced,
                }
            };
            Ok(listable.map(kind).collect())
        })
    }
}

/// The search for operators, with the client of the command.
struct OperatorSearch {
    client: kube::Client,
    /// URL of the API server.
    server: String,
    args: OperatorArgs,
    credentials: why::Credentials,
}

impl std::fmt::Debug for OperatorSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorSearch").field("args", &self.args).finish_non_exhaustive()
    }
}

impl OperatorSearch {
    fn new(client: kube::Client, server: String, args: &ConsoleArgs) -> Result<Self> {
        Ok(Self { client, server, args: args.operators.clone(), credentials: args.operators.credentials()? })
    }

    /// Returns the addresses of all operators, and those of named ones that cannot be found, with the reason.
    async fn find(&self) -> Result<(Vec<Address>, Vec<String>)> {
        let (endpoints, missing) = why::endpoints(&self.client, &self.server, &self.args).await?;
        let address = |endpoint: &why::Endpoint| endpoint.address(&self.credentials);
        let reason = |source: why::Source| format!("{}: {}", source.address, source.error.unwrap_or_default());
        Ok((endpoints.iter().map(address).collect(), missing.into_iter().map(reason).collect()))
    }
}

impl FindOperators for OperatorSearch {
    fn operators(&self) -> Pin<Box<dyn Future<Output = Vec<Address>> + Send + '_>> {
        Box::pin(async { self.find().await.map(|(addresses, _)| addresses).unwrap_or_default() })
    }
}

/// A console that listens.
pub(super) struct BoundConsole {
    console: Console,
    discovery: Discovery,
    report: Report,
}

impl BoundConsole {
    /// Binds the port on loopback. Requests have the rights of this client.
    pub(super) async fn bind(client: kube::Client, settings: Settings, hint: &str) -> Result<Self> {
        let write = settings.write;
        let console = Console::bind(client.clone(), settings).await.context("cannot serve the console");
        let console = console.map_err(|error| error.hint(hint))?;
        let report = Report { url: console.url(), write };
        Ok(Self { console, discovery: Discovery(client), report })
    }

    /// Prints the address, with the token.
    pub(super) fn print(&self, output: Option<Output>) -> Result<()> {
        if let Some(output) = output {
            return output.print_next(&self.report);
        }
        print_line(&format!("console at {}", self.report.url));
        if self.report.write {
            print_labeled("warning", "the page may write; everyone who has this address has your rights");
        }
        Ok(())
    }

    /// Serves the page. Never returns.
    pub(super) async fn run(self) {
        self.console.run(&self.discovery).await;
    }
}

pub(crate) fn cmd_console(args: &ConsoleArgs) -> Result<()> {
    block_on_threads(async {
        let stop = stop_signal()?;
        let config = args.context.config().await?;
        let cluster = config.cluster_url.to_string();
        let client = args.context.connect().await?.client;
        let search = OperatorSearch::new(client.clone(), cluster.clone(), args)?;
        let (operators, missing) = search.find().await?;
        missing.iter().for_each(|reason| print_labeled("warning", reason));
        let finder: Option<Arc<dyn FindOperators>> = Some(Arc::new(search));
        let context = args.context.context_name();
        let (port, write, explorer) = (args.port, args.write, None);
        let (namespace, clock) = (args.namespace.clone(), Clock::system());
        let settings = Settings { port, write, namespace, cluster, context, operators, finder, explorer, clock };
        let console = BoundConsole::bind(client, settings, "pass another port, or none: --port 0").await?;
        console.print(args.output)?;
        tokio::select! {
            () = console.run() => {}
            _ = stop => {}
        }
        Ok(())
    })
}
