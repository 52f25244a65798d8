//! `flyball cluster`: runs the embedded control plane as a process.
//!
//! Each cluster has a name and a [`Record`] with its address. The process holds a lock on a file beside the record as
//! long as it runs, so that no other process can be mistaken for it.

mod down;
mod list;
mod node;
mod record;
mod serving;
mod status;
mod up;

pub(crate) use record::{Files, Record, Replayed};
pub(crate) use serving::{
    Purpose, ServingArgs, absolute, endpoint_error, print_context, raise_file_limit, run, write_record,
};

use crate::error::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Manage embedded Kubernetes control planes on this machine
#[derive(Args, Debug)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::UpArgs),
    Down(down::DownArgs),
    Status(status::StatusArgs),
    List(list::ListArgs),
    Node(node::NodeArgs),
}

#[derive(Args, Debug)]
struct ClusterNameArgs {
    /// Name of the cluster and of its kubeconfig context
    #[arg(long, default_value = "flyball", value_parser = parse_name)]
    name: String,
}

impl ClusterNameArgs {
    /// Returns the flag for a hint, with a space in front; empty for the default name.
    fn flag(&self) -> String {
        if self.name == "flyball" { String::new() } else { format!(" --name {}", self.name) }
    }
}

pub(crate) fn parse_name(name: &str) -> Result<String, String> {
    match flyball_core::names::dns_label(name).first() {
        None => Ok(name.to_owned()),
        Some(why) => Err(why.clone()),
    }
}

/// Parses a count; the error of `str::parse` does not name the expected form.
pub(super) fn parse_count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a whole number, such as 3".into())
}

/// Returns the kubeconfig of a cluster that runs on this machine; `None` if no cluster of this name runs.
pub(crate) fn kubeconfig(name: &str) -> Result<Option<PathBuf>> {
    let (is_running, record) = record::Files::of(name)?.find()?;
    Ok(record.filter(|_| is_running).map(|record| record.own_kubeconfig))
}

/// A cluster that runs on this machine.
#[derive(Clone, Debug)]
pub(crate) struct LocalCluster {
    pub(crate) name: String,
    pub(crate) pid: i32,
    /// Path of its own kubeconfig, with all permissions.
    pub(crate) kubeconfig: PathBuf,
}

/// Finds the cluster on this machine that serves at a URL.
pub(crate) fn find_by_url(url: &str) -> Result<Option<LocalCluster>> {
    let url = url.trim_end_matches('/');
    for files in record::Files::all()? {
        let (is_running, record) = files.find()?;
        if let Some(record) = record.filter(|record| is_running && record.url.trim_end_matches('/') == url) {
            return Ok(Some(LocalCluster { name: record.name, pid: record.pid, kubeconfig: record.own_kubeconfig }));
        }
    }
    Ok(None)
}

pub(crate) fn cmd_cluster(args: ClusterArgs, verbose: u8) -> Result<()> {
    match args.command {
        Command::Up(args) => up::cmd_up(args, verbose),
        Command::Down(args) => down::cmd_down(&args),
        Command::Status(args) => status::cmd_status(&args),
        Command::List(args) => list::cmd_list(&args),
        Command::Node(args) => node::cmd_node(args),
    }
}
