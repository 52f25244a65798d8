//! `flyball image load`.

use super::DIRECTORY;
use crate::cluster::connection::{block_on, config_of};
use crate::commands::cluster;
use crate::error::{Error, Result, ResultExt};
use crate::files::private::PrivateDirectory;
use crate::image::layout::Layout;
use crate::image::reference::FULL_NAME;
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use flyball_cluster::SIMULATED_NODE_ANNOTATION;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Load an image into a local cluster without a registry
///
/// In an embedded control plane, the image is added to the status of the simulated nodes, which run nothing. For kind
/// and k3d, their tools load the image.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball image load --cluster flyball
  flyball image load --cluster kind")]
pub(super) struct LoadArgs {
    /// Name of the cluster of `flyball cluster up`, kind or k3d
    #[arg(long, value_name = "NAME", default_value = "flyball")]
    cluster: String,
    /// Directory of the image
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    from: PathBuf,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of a load.
#[derive(Serialize)]
struct LoadReport {
    name: String,
    /// Tool that loaded it.
    by: &'static str,
    nodes: Vec<String>,
}

pub(super) fn cmd_load(args: &LoadArgs) -> Result<()> {
    let layout = Layout::open(&args.from)?;
    let named = layout.named()?;
    let name = named.annotations.get(FULL_NAME).cloned().unwrap_or_default();
    let loaded = match cluster::kubeconfig(&args.cluster)? {
        Some(kubeconfig) => {
            let first = layout.images(named)?.into_iter().next();
            let blobs = first.map(|image| layout.blobs(&image)).transpose()?.unwrap_or_default();
            let size = blobs.iter().fold(0_u64, |sum, blob| sum.saturating_add(blob.size));
            let repository = name.rsplit_once(':').map_or(name.as_str(), |(repository, _)| repository);
            let names = [format!("{repository}@{}", named.digest), name.clone()];
            let nodes = block_on(add_to_nodes(&kubeconfig, &names, size))?;
            if nodes.is_empty() {
                return Err(
                    Error::new(format!("cluster {} has no nodes", args.cluster)).hint("flyball cluster node add")
                );
            }
            LoadReport { name, by: "flyball", nodes }
        }
        None => LoadReport { by: load_with_tool(&layout, &args.cluster)?, name, nodes: Vec::new() },
    };
    match args.output {
        Some(output) => output.print(&loaded)?,
        None => {
            let place = match loaded.nodes.len() {
                0 => format!("cluster {}, by {}", args.cluster, loaded.by),
                1 => format!("node {} of cluster {}", loaded.nodes[0], args.cluster),
                count => format!("{count} nodes of cluster {}", args.cluster),
            };
            print_line(&format!("{} {} to {place}", paint(Style::Good, "loaded"), paint(Style::Strong, &loaded.name)));
        }
    }
    Ok(())
}

/// Adds an image to the status of all simulated nodes of a cluster, and returns their names.
async fn add_to_nodes(kubeconfig: &Path, names: &[String], size: u64) -> Result<Vec<String>> {
    let client = flyball::connect(config_of(kubeconfig, None).await?).context("cannot use its kubeconfig")?;
    let api: Api<Node> = Api::all(client);
    let mut node_names = Vec::new();
    for node in api.list(&ListParams::default()).await.context("cannot list the nodes")?.items {
        if node.annotations().get(SIMULATED_NODE_ANNOTATION.0).is_none_or(|value| value != SIMULATED_NODE_ANNOTATION.1)
        {
            continue;
        }
        let name = node.name_any();
        let mut images = node.status.and_then(|status| status.images).unwrap_or_default();
        // A tag refers to one image only.
        images.retain(|image| !image.names.iter().flatten().any(|known| names.contains(known)));
        let mut images: Vec<_> = images.iter().map(|image| json!(image)).collect();
        images.push(json!({"names": names, "sizeBytes": size}));
        let patch = json!({"status": {"images": images}});
        let done = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        done.context(format!("cannot record the image on node {name}"))?;
        node_names.push(name);
    }
    Ok(node_names)
}

/// Loads the image with the tool of another kind of cluster.
fn load_with_tool(layout: &Layout, cluster: &str) -> Result<&'static str> {
    let tools: [(&str, &[&str]); 2] = [("kind", &["get", "clusters"]), ("k3d", &["cluster", "list", "--no-headers"])];
    let mut present = Vec::new();
    for (tool, list) in tools {
        let Ok(response) = Command::new(tool).args(list).output() else { continue };
        present.push(tool);
        let clusters = String::from_utf8_lossy(&response.stdout);
        if !clusters.lines().any(|line| line.split_whitespace().next() == Some(cluster)) {
            continue;
        }
        let folder = PrivateDirectory::new("flyball-image")?;
        let archive = folder.path().join("image.tar");
        layout.archive(&archive)?;
        let mut command = Command::new(tool);
        match tool {
            "kind" => command.args(["load", "image-archive"]).arg(&archive).args(["--name", cluster]),
            _ => command.args(["image", "import"]).arg(&archive).args(["--cluster", cluster]),
        };
        let done = command.status().context(format!("cannot run {tool}"))?;
        return match done.success() {
            true => Ok(tool),
            false => Err(Error::new(format!("{tool} failed to load the image: {done}"))),
        };
    }
    let error = Error::new(format!("cluster {cluster} not found on this machine"));
    let error = error.hint(format!("flyball cluster up --name {cluster} --nodes 1"));
    Err(match present[..] {
        [] => error.hint("for a kind or k3d cluster, install kind or k3d"),
        _ => error.hint(format!("{} does not have it either", present.join(" and "))),
    })
}
