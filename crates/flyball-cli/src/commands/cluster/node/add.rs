//! `flyball cluster node add`.

use super::super::parse_count;
use super::{ClusterNameArgs, with_client};
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use flyball_cluster::Nodes;
use flyball_core::{Quantity, names};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Timeout of nodes to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Add simulated nodes and return when they are ready
///
/// Pods on simulated nodes become ready, but nothing runs. Annotations of the pods set delays and failures, see
/// docs/nodes.md.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball cluster node add
  flyball cluster node add --count 1000 --cpu 4 --memory 16Gi
  flyball cluster node add --name-prefix gpu --resource example.com/gpu=2 --label disk=ssd --taint gpu=yes:NoSchedule")]
pub(super) struct AddArgs {
    #[command(flatten)]
    named: ClusterNameArgs,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// CPUs of each node
    #[arg(long, value_name = "QUANTITY", default_value = "8", value_parser = parse_quantity)]
    cpu: String,
    /// Memory of each node
    #[arg(long, value_name = "QUANTITY", default_value = "32Gi", value_parser = parse_quantity)]
    memory: String,
    /// Maximum number of pods on each node
    #[arg(long, value_name = "N", default_value_t = 110, value_parser = parse_count)]
    pods: u32,
    /// Further resource of each node; may be repeated
    #[arg(long = "resource", value_name = "NAME=QUANTITY", value_parser = parse_resource)]
    resources: Vec<(String, String)>,
    /// Label of each node; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Taint of each node; may be repeated
    #[arg(long = "taint", value_name = "KEY[=VALUE]:EFFECT", value_parser = parse_taint)]
    taints: Vec<Taint>,
    /// Name prefix, followed by a free number
    #[arg(long, value_name = "PREFIX", default_value = "node", value_parser = parse_prefix)]
    name_prefix: String,
    /// Return without waiting for readiness
    #[arg(long)]
    no_wait: bool,
    /// Output format for the node names
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// Print only errors
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
}

fn parse_quantity(text: &str) -> Result<String, String> {
    let parsed = text.parse::<Quantity>().map_err(|error| error.to_string())?;
    if parsed.is_negative() { Err("must not be negative".into()) } else { Ok(text.to_owned()) }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    match names::qualified_name(key).first() {
        None => Ok((key.to_owned(), value.to_owned())),
        Some(why) => Err(why.clone()),
    }
}

fn parse_resource(text: &str) -> Result<(String, String), String> {
    let (name, amount) = parse_pair(text)?;
    Ok((name, parse_quantity(&amount)?))
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = parse_pair(text)?;
    match names::label_value(&value).first() {
        None => Ok((key, value)),
        Some(why) => Err(why.clone()),
    }
}

fn parse_taint(text: &str) -> Result<Taint, String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let (what, effect) = text.rsplit_once(':').ok_or("write KEY=VALUE:EFFECT or KEY:EFFECT")?;
    if !EFFECTS.contains(&effect) {
        return Err(format!("invalid effect; use one of {}", EFFECTS.join(", ")));
    }
    let (key, value) = if what.contains('=') { parse_label(what)? } else { parse_label(&format!("{what}="))? };
    let value = Some(value).filter(|value| !value.is_empty());
    Ok(Taint { key, value, effect: effect.to_owned(), ..Taint::default() })
}

fn parse_prefix(text: &str) -> Result<String, String> {
    match names::dns_subdomain(&format!("{text}-1")).first() {
        None => Ok(text.to_owned()),
        Some(why) => Err(why.clone()),
    }
}

pub(super) fn cmd_add(args: AddArgs) -> Result<()> {
    let mut nodes = Nodes::new(&args.name_prefix, usize::try_from(args.count).unwrap_or(usize::MAX))
        .capacity("cpu", &args.cpu)
        .capacity("memory", &args.memory)
        .capacity("pods", args.pods.to_string());
    for (name, amount) in &args.resources {
        nodes = nodes.capacity(name, amount);
    }
    for (key, value) in &args.labels {
        nodes = nodes.label(key, value);
    }
    for taint in &args.taints {
        nodes = nodes.taint(taint.clone());
    }
    let added = with_client(&args.named, async |client| {
        let added = nodes.add_to(&client).await.context("cannot add the nodes")?;
        if !args.no_wait {
            let ready = ready(&client, &added).await?;
            let late = || {
                Error::new(format!("timed out after {} s waiting for all nodes to be ready", READY_TIMEOUT.as_secs()))
            };
            let hint = "check that the controllers kubelet and node-lifecycle-controller are not excluded";
            ready.map_err(|()| late().hint(hint))?;
        }
        Ok(added)
    })?;
    match args.output {
        Some(output) => output.print(&json!({"nodes": added}))?,
        None if args.quiet => {}
        None => {
            let word = if args.no_wait { paint(Style::Busy, "added") } else { paint(Style::Good, "ready") };
            match &added[..] {
                [one] => print_line(&format!("{word} {one}")),
                all => print_line(&format!("{word} {} to {}, {} nodes", all[0], all[all.len() - 1], all.len())),
            }
        }
    }
    Ok(())
}

/// Waits until nodes are ready and accept pods.
async fn ready(client: &kube::Client, names: &[String]) -> Result<Result<(), ()>> {
    let mut waiting: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let api = Api::<Node>::all(client.clone());
    poll_until(READY_TIMEOUT, POLL_INTERVAL, async || {
        for node in api.list(&ListParams::default()).await.context("cannot list the nodes")? {
            if super::list::is_ready(&node) && !super::list::is_new(&node) {
                waiting.remove(node.metadata.name.as_deref().unwrap_or_default());
            }
        }
        Ok(if waiting.is_empty() { Ok(()) } else { Err(()) })
    })
    .await
}
