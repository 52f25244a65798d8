//! `flyball cluster node list`.

use super::{ClusterNameArgs, with_client};
use crate::error::{Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_line};
use clap::Args;
use flyball_cluster::SIMULATED_NODE_ANNOTATION;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// List nodes with their capacity and number of pods
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball cluster node list
  flyball cluster node list -o json")]
pub(super) struct ListArgs {
    #[command(flatten)]
    named: ClusterNameArgs,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Returns true if a node is ready.
pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns true if a node still has the taint of new nodes.
pub(super) fn is_new(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == "node.kubernetes.io/not-ready")
}

pub(super) fn cmd_list(args: &ListArgs) -> Result<()> {
    let (nodes, pods) = with_client(&args.named, async |client| {
        let nodes =
            Api::<Node>::all(client.clone()).list(&ListParams::default()).await.context("cannot list the nodes")?;
        let pods = Api::<Pod>::all(client).list(&ListParams::default()).await.context("cannot list the pods")?;
        Ok((nodes.items, pods.items))
    })?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in pods.into_iter().filter_map(|pod| pod.spec?.node_name) {
        *counts.entry(name).or_default() += 1;
    }
    let rows: Vec<Value> = nodes.iter().map(|node| row(node, counts.get(&node.name_any()).copied())).collect();
    match args.output {
        Some(output) => output.print(&rows)?,
        None if rows.is_empty() => print_line("no nodes found"),
        None => print(&rows),
    }
    Ok(())
}

fn row(node: &Node, pods: Option<usize>) -> Value {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default();
    let amount = |name: &str| allocatable.get(name).map(|amount| amount.0.clone());
    json!({
        "name": node.name_any(),
        "ready": is_ready(node),
        "simulated": node.annotations().get(SIMULATED_NODE_ANNOTATION.0).is_some_and(|value| value == SIMULATED_NODE_ANNOTATION.1),
        "cpu": amount("cpu"),
        "memory": amount("memory"),
        "pods": pods.unwrap_or(0),
        "maxPods": amount("pods").and_then(|pods| pods.parse::<u64>().ok()),
        "taints": node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
    })
}

fn print(rows: &[Value]) {
    let text = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), str::to_owned);
    let cells = |row: &Value| {
        let most = row["maxPods"].as_u64().map_or_else(|| "-".to_owned(), |most| most.to_string());
        let status = if row["ready"] == true { "ready" } else { "not ready" };
        let pods = format!("{}/{most}", row["pods"]);
        vec![text(&row["name"]), status.to_owned(), text(&row["cpu"]), text(&row["memory"]), pods]
    };
    let heading = ["NAME", "STATUS", "CPU", "MEMORY", "PODS"].map(|name| paint(Style::Faint, name)).to_vec();
    columns(std::iter::once(heading).chain(rows.iter().map(cells)).collect()).iter().for_each(|line| print_line(line));
}
