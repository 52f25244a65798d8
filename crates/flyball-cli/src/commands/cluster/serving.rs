//! A control plane that this process serves to others: its context, its record, and its controllers.

use super::record::{Files, Record, Replayed};
use crate::cluster::kubeconfig;
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::print_line;
use clap::Args;
use flyball_cluster::{Cluster, Controller, Controllers, Endpoint, EndpointError};
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::task::JoinSet;

/// Flags of a control plane.
#[derive(Args, Debug)]
pub(crate) struct ServingArgs {
    /// Kubeconfig to write the context to; defaults to the first file of KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Do not write a kubeconfig context
    #[arg(long, conflicts_with = "kubeconfig")]
    pub(crate) no_kubeconfig: bool,
    /// Port on 127.0.0.1; defaults to a free one, or to the last one of the data directory
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = parse_port)]
    pub(crate) port: u16,
    /// Controllers to run, separated by commas: '*' for all, NAME to include, -NAME to exclude
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    controllers: Controllers,
    /// Controller to exclude; may be repeated
    #[arg(long, value_name = "NAME")]
    without: Vec<Controller>,
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "expected a port from 0 to 65535".into())
}

impl ServingArgs {
    pub(crate) fn controllers(&self) -> Controllers {
        self.without.iter().fold(self.controllers.clone(), |all, one| all.without(*one))
    }

    /// Adds the same flags to the command of another process, whose working directory may differ.
    pub(super) fn pass_to(&self, command: &mut Command) {
        command.args(["--port", &self.port.to_string(), "--controllers", &self.controllers().to_string()]);
        if let Some(path) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(absolute(path));
        }
        if self.no_kubeconfig {
            command.arg("--no-kubeconfig");
        }
    }
}

/// The properties of a control plane beside its address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Purpose {
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) recording: Option<PathBuf>,
    pub(crate) replayed: Option<Replayed>,
    pub(crate) nodes: u32,
}

/// Raises the limit of open files: each connection is one, and the default is low.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

/// Serves a cluster and runs its controllers until `stop` completes.
pub(crate) async fn run(
    cluster: &Cluster,
    endpoint: Endpoint,
    controllers: Controllers,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    // A task like those of requests: otherwise this thread would be woken for each change.
    let controlled = cluster.clone();
    let mut running = JoinSet::new();
    running.spawn(async move { controlled.run(&controllers).await });
    let served = tokio::select! {
        biased;
        served = endpoint.serve(cluster, stop) => served.context("cannot serve"),
        Some(result) = running.join_next() => result.context("the controllers exited"),
    };
    running.shutdown().await;
    cluster.close();
    served
}

/// Writes the kubeconfigs and the record of the cluster, which marks it as ready.
pub(crate) fn write_record(
    args: &ServingArgs,
    files: &Files,
    endpoint: &Endpoint,
    started: String,
    purpose: Purpose,
) -> Result<Record> {
    let name = files.name();
    let config = endpoint.kubeconfig(name);
    let own_kubeconfig = files.kubeconfig();
    kubeconfig::write(&own_kubeconfig, &config)?;
    let kubeconfig = match (&args.kubeconfig, args.no_kubeconfig) {
        (_, true) => None,
        (Some(path), _) => Some(absolute(path)),
        (None, _) => Some(absolute(kubeconfig::path()?)),
    };
    // A crashed cluster may have left its context; then the context before that one counts.
    let crashed = files.read().ok().flatten().filter(|record| record.kubeconfig == kubeconfig);
    let mut context_before = None;
    if let Some(path) = &kubeconfig {
        context_before = kubeconfig::add(path, &config)?.or_else(|| crashed.and_then(|record| record.context_before));
    }
    files.remove_progress();
    let Purpose { data_dir, recording, replayed, nodes } = purpose;
    let record = Record {
        name: name.to_owned(),
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        url: endpoint.url(),
        own_kubeconfig,
        kubeconfig,
        context_before,
        started,
        data_dir,
        recording,
        replayed,
        nodes,
    };
    files.write(&record)?;
    Ok(record)
}

/// Prints the context of a cluster, and a command to try.
pub(crate) fn print_context(record: &Record) {
    match &record.kubeconfig {
        Some(path) => print_line(&format!("  {:<8} {} in {}", "context", record.name, path.display())),
        None => print_line(&format!("  {:<8} none; its kubeconfig is {}", "context", record.own_kubeconfig.display())),
    }
    print_line(&format!("  {:<8} kubectl{} get namespaces", "try", record.kubectl_flags()));
}

/// Explains why an endpoint on this port cannot be created.
pub(crate) fn endpoint_error(error: EndpointError, port: u16) -> Error {
    match error {
        EndpointError::Listen { port: used, source } if source.kind() == std::io::ErrorKind::AddrInUse => {
            let error = Error::new(format!("port {used} of 127.0.0.1 is in use"));
            match port {
                // Kubeconfigs of this cluster use this port.
                0 => error.hint("pass another --port; existing kubeconfigs point to this one"),
                _ => error.hint("pass another --port, or none to use a free one"),
            }
        }
        error => Error::caused("no cluster", error),
    }
}

pub(crate) fn absolute(path: impl AsRef<Path>) -> PathBuf {
    std::path::absolute(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned())
}
