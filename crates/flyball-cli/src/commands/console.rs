//! `flyball console`: serves a page that shows a cluster and its operators.

use crate::cluster::connection::{ContextArgs, block_on_threads};
use crate::cluster::kinds::Kinds;
use crate::error::{Error, Result, ResultExt};
use crate::operator::process::stop_signal;
use crate::operator::registry::{self, cluster_id};
use crate::render::output::Output;
use crate::render::terminal::{print_labeled, print_line};
use crate::why::TokenArgs;
use clap::Args;
use flyball_console::{Address, Console, Discover, Kind, Settings};
use flyball_core::Clock;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::pin::Pin;
use url::Url;

/// Show a cluster and its operators in a browser
///
/// Serves one page on loopback: objects as an owner tree with live state, the timeline of an object, controllers with
/// their queues, causes of changes, and permissions. Requests to the cluster have your own permissions. The address
/// contains a token, which ends with the command. Nothing is written without --write.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball console
  flyball console --context staging --port 8765
  flyball console --operator http://127.0.0.1:8080

Operators built with Flyball serve their ledger at the address of their metrics. For an operator in a cluster, forward
the port:
  kubectl port-forward deployment/my-operator 8080")]
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
    /// Address of the metrics of an operator, whose ledger is shown; repeatable. Defaults to the operators that
    /// `flyball run` and `flyball dev` run on this machine
    #[arg(long, value_name = "URL")]
    operator: Vec<String>,
    #[command(flatten)]
    token: TokenArgs,
    /// File with the CA of operators that serve https
    #[arg(long, value_name = "FILE")]
    operator_ca: Option<PathBuf>,
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
        let mut operators = addresses(args)?;
        let config = args.context.config().await?;
        let cluster = config.cluster_url.to_string();
        let client = args.context.connect().await?.client;
        if operators.is_empty() {
            operators = local_addresses(&client).await;
        }
        let context = args.context.context.clone().unwrap_or_default();
        let (port, write, explorer) = (args.port, args.write, None);
        let (namespace, clock) = (args.namespace.clone(), Clock::system());
        let settings = Settings { port, write, namespace, cluster, context, operators, explorer, clock };
        let console = BoundConsole::bind(client, settings, "pass another port, or none: --port 0").await?;
        console.print(args.output)?;
        tokio::select! {
            () = console.run() => {}
            _ = stop => {}
        }
        Ok(())
    })
}

/// Returns the addresses of the operators that `flyball run` and `flyball dev` run on this machine.
async fn local_addresses(client: &kube::Client) -> Vec<Address> {
    let cluster = cluster_id(client).await;
    let texts = cluster.map(|cluster| registry::addresses(&cluster)).unwrap_or_default();
    let urls = texts.iter().filter_map(|text| Url::parse(&format!("http://{text}")).ok());
    urls.map(|url| Address { url, token: None, authority: None }).collect()
}

fn addresses(args: &ConsoleArgs) -> Result<Vec<Address>> {
    let read = |path: &PathBuf| fs::read(path).context(format!("cannot read {}", path.display()));
    let token = args.token.token()?;
    let authority = args.operator_ca.as_ref().map(read).transpose()?;
    let address = |text: &String| {
        let invalid = || Error::usage(format!("--operator {text:?} is not an address of HTTP"));
        let hint = "pass the address of the metrics, such as --operator http://127.0.0.1:8080";
        let url = Url::parse(text).map_err(|_| invalid().hint(hint))?;
        match matches!(url.scheme(), "http" | "https") && url.has_host() {
            true => Ok(Address { url, token: token.clone(), authority: authority.clone() }),
            false => Err(invalid().hint(hint)),
        }
    };
    args.operator.iter().map(address).collect()
}
