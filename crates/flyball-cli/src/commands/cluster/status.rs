//! `flyball cluster status`.

use super::ClusterNameArgs;
use super::record::Files;
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

/// Print the address and readiness of a control plane; exits with 1 if it is not ready
#[derive(Args, Debug)]
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
        let ready = read_version(&record.own_kubeconfig);
        status["ready"] = ready.is_ok().into();
        if let Ok(version) = &ready {
            status["version"] = version.clone().into();
        }
        let known = serde_json::to_value(record).context("cannot write the record")?;
        status.as_object_mut().zip(known.as_object()).into_iter().for_each(|(all, known)| all.extend(known.clone()));
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
        ("started", text("started")),
        ("context", status["kubeconfig"].as_str().map_or("none".into(), |path| format!("{} in {path}", text("name")))),
    ];
    rows.extend(status["dataDir"].as_str().map(|path| ("data", path.to_owned())));
    for (what, value) in rows {
        print_line(&format!("  {what:<8} {value}"));
    }
}

/// Returns the version of the server, once it is ready.
fn read_version(path: &std::path::Path) -> Result<String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(async {
        let config = Kubeconfig::read_from(path).context("cannot read its kubeconfig")?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        let client =
            flyball::connect(config.context("cannot use its kubeconfig")?).context("cannot create a client")?;
        let ready = http::Request::get("/readyz").body(Vec::new()).context("cannot build the request")?;
        client.request_text(ready).await.context("it is not ready")?;
        Ok(client.apiserver_version().await.context("cannot read its version")?.git_version)
    })
}
