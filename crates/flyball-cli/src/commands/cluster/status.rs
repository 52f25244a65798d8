//! `flyball cluster status`.

use super::ClusterNameArgs;
use super::record::{Files, Record};
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::time::Duration;

/// Timeout of the responses of a server.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Print the address and readiness of a control plane; exits with 1 if it is not ready
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball cluster status
  flyball cluster status --name ci -o json")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    named: ClusterNameArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn cmd_status(args: &StatusArgs) -> Result<()> {
    let files = Files::of(&args.named.name)?;
    let (running, record) = files.find()?;
    let record = record.filter(|_| running);
    let mut status = json!({"name": args.named.name, "running": running, "ready": false});
    if let Some(record) = &record {
        status = of(&args.named.name, record)?;
    }
    match args.output {
        Some(output) => output.print(&status)?,
        None => print(&status),
    }
    match status["ready"].as_bool() {
        Some(true) => Ok(()),
        _ if running => {
            Err(Error::new("the cluster runs but did not respond").hint(format!("see {}", files.log().display())))
        }
        _ => Err(Error::new(format!("cluster {} is not running", args.named.name))
            .hint(format!("flyball cluster up{}", args.named.flag()))),
    }
}

/// Returns the state of a running cluster, for programs.
pub(super) fn of(name: &str, record: &Record) -> Result<Value> {
    let mut status = json!({"name": name, "running": true, "ready": false});
    let known = serde_json::to_value(record).context("cannot write the record")?;
    status.as_object_mut().zip(known.as_object()).into_iter().for_each(|(all, known)| all.extend(known.clone()));
    if let Ok(server) = read_server(&record.own_kubeconfig) {
        status["ready"] = true.into();
        status["version"] = server.version.into();
        status["nodes"] = server.nodes.into();
    }
    Ok(status)
}

fn print(status: &Value) {
    let ready = status["ready"] == true;
    if !ready {
        return;
    }
    let text = |field: &str| status[field].as_str().unwrap_or("-").to_owned();
    print_line(&format!("cluster {} is {}", paint(Style::Strong, &text("name")), paint(Style::Good, "ready")));
    let mut rows = vec![
        ("server", text("url")),
        ("version", text("version")),
        ("process", status["pid"].to_string()),
        ("nodes", status["nodes"].to_string()),
        ("started", text("started")),
        ("context", status["kubeconfig"].as_str().map_or("none".into(), |path| format!("{} in {path}", text("name")))),
    ];
    rows.extend(status["recording"].as_str().map(|path| ("record", path.to_owned())));
    let replayed = &status["replayed"];
    rows.extend(replayed["recording"].as_str().map(|path| {
        let revision = replayed["revision"].as_str().unwrap_or("-");
        ("replays", format!("{path} from revision {revision}"))
    }));
    rows.extend(status["dataDir"].as_str().map(|path| ("data", path.to_owned())));
    for (what, value) in rows {
        print_line(&format!("  {what:<8} {value}"));
    }
}

/// A server that is ready.
pub(super) struct Server {
    version: String,
    /// The number of nodes, which may differ from that at the start.
    pub(super) nodes: usize,
}

/// Reads the state of a server; fails unless it is ready.
pub(super) fn read_server(path: &std::path::Path) -> Result<Server> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let read = async {
        let config = Kubeconfig::read_from(path).context("cannot read its kubeconfig")?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        let client =
            flyball::connect(config.context("cannot use its kubeconfig")?).context("cannot create a client")?;
        let ready = http::Request::get("/readyz").body(Vec::new()).context("cannot build the request")?;
        client.request_text(ready).await.context("it is not ready")?;
        let version = client.apiserver_version().await.context("cannot read its version")?.git_version;
        let nodes = Api::<Node>::all(client).list_metadata(&ListParams::default()).await;
        Ok(Server { version, nodes: nodes.context("cannot list its nodes")?.items.len() })
    };
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, read).await.context("it does not respond")? })
}
