//! `flyball logs`: prints logs.

use crate::cluster::connection::{Connection, ConnectionArgs, block_on};
use crate::duration::parse_duration;
use crate::error::{Error, Result, ResultExt};
use crate::operator::installation::MANAGED_BY;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use futures_util::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use tokio::task::JoinSet;

/// Maximum number of pods whose logs are read concurrently.
const PODS: usize = 32;

/// Print the log of an operator or of other pods
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball logs                                      the deployed operator
  flyball logs -f --since 10m
  flyball logs deployment/site-operator-controller-manager -n site-operator-system
  flyball logs web-0 -c nginx")]
pub(crate) struct LogsArgs {
    /// Pod, or pods of a Deployment; defaults to the operator that flyball deployed
    #[arg(value_name = "POD|deployment/NAME")]
    target: Option<String>,
    /// Follow the log
    #[arg(short, long)]
    follow: bool,
    /// Print the log since this duration
    #[arg(long, value_name = "DURATION", value_parser = parse_since)]
    since: Option<i64>,
    /// Container, if a pod has several
    #[arg(short, long)]
    container: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

fn parse_since(text: &str) -> Result<i64, String> {
    let seconds =
        parse_duration(text).and_then(|time| i64::try_from(time.as_secs()).ok()).filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| "expected a duration of at least 1s, such as 30s, 10m or 1d".into())
}

pub(crate) fn cmd_logs(args: &LogsArgs) -> Result<()> {
    block_on(async {
        let connection = args.connection.connect().await?;
        let (namespace, pods) = pods(&connection, args).await?;
        let many = pods.len() > 1;
        let mut reading = JoinSet::new();
        for pod in pods {
            let api: Api<Pod> = Api::namespaced(connection.client.clone(), &namespace);
            let params = LogParams {
                container: args.container.clone(),
                follow: args.follow,
                since_seconds: args.since,
                ..LogParams::default()
            };
            reading.spawn(async move { read(api, &pod, params, many).await });
        }
        while let Some(done) = reading.join_next().await {
            done.context("cannot read a log")??;
        }
        Ok(())
    })
}

/// Returns the selected pods and their namespace.
async fn pods(connection: &Connection, args: &LogsArgs) -> Result<(String, Vec<String>)> {
    let (namespace, deployment) = match args.target.as_deref().map(|target| target.split_once('/')) {
        None => the_operator(connection, args.connection.namespace.as_deref()).await?,
        Some(None) => {
            return Ok((connection.namespace.clone(), args.target.iter().cloned().collect()));
        }
        Some(Some(("pod" | "pods" | "po", name))) => return Ok((connection.namespace.clone(), vec![name.to_owned()])),
        Some(Some(("deployment" | "deployments" | "deploy", name))) => (connection.namespace.clone(), name.to_owned()),
        Some(Some((kind, _))) => {
            return Err(Error::new(format!("{kind:?} has no logs")).hint("pass a pod, or deployment/NAME"));
        }
    };
    let what = || format!("cannot read Deployment {namespace}/{deployment}");
    let deployments: Api<Deployment> = Api::namespaced(connection.client.clone(), &namespace);
    let found = deployments.get(&deployment).await.context(what())?;
    let labels = found.spec.and_then(|spec| spec.selector.match_labels).unwrap_or_default();
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(connection.client.clone(), &namespace);
    let list = pods.list(&ListParams::default().labels(&selector.join(","))).await.context(what())?;
    let names: Vec<String> = list.items.iter().map(|pod| pod.name_any()).take(PODS).collect();
    if names.is_empty() {
        return Err(Error::new(format!("Deployment {namespace}/{deployment} has no pods"))
            .hint(format!("find out why: flyball why deployment/{deployment} -n {namespace} --timeline")));
    }
    Ok((namespace, names))
}

/// Finds the Deployment that `flyball deploy` created, if there is one.
async fn the_operator(connection: &Connection, namespace: Option<&str>) -> Result<(String, String)> {
    let client = connection.client.clone();
    let deployments: Api<Deployment> =
        namespace.map_or_else(|| Api::all(client.clone()), |name| Api::namespaced(client.clone(), name));
    let ours = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let found = deployments.list(&ours).await.context("cannot list deployments")?;
    let place = |one: &Deployment| (one.namespace().unwrap_or_default(), one.name_any());
    match &found.items[..] {
        [] => Err(Error::new("no operator deployed")
            .hint("deploy one with `flyball deploy`, or pass a pod or deployment/NAME")),
        [one] => Ok(place(one)),
        several => {
            let names: Vec<String> = several
                .iter()
                .map(place)
                .map(|(namespace, name)| format!("deployment/{name} -n {namespace}"))
                .collect();
            Err(Error::new(format!("{} operators deployed", several.len()))
                .hint(format!("choose one: {}", names.join("; or "))))
        }
    }
}

async fn read(pods: Api<Pod>, pod: &str, params: LogParams, many: bool) -> Result<()> {
    let what = || format!("cannot read the log of pod {pod}");
    let stream = pods.log_stream(pod, &params).await.context(what()).map_err(|error| match error.code() {
        Some(501) => error.hint("run the operator on this machine: flyball run"),
        _ => error,
    })?;
    let mut lines = stream.lines();
    while let Some(line) = lines.next().await {
        let line = line.context(what())?;
        if many {
            print_line(&format!("{} {line}", paint(Style::Faint, &format!("[{pod}]"))))
        } else {
            print_line(&line)
        }
    }
    Ok(())
}
