//! The `etcd-operator` program: the operator with the clusters of the network.

use clap::Args;
use etcd_operator::etcd::Gateway;
use etcd_operator::metrics::ClusterMetrics;
use etcd_operator::snapshots::Folder;
use flyball::{Operator, Task};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Runs etcd clusters: makes them, heals them, upgrades them, backs them up.
#[derive(Args, Debug)]
#[command(version)]
struct Flags {
    /// Folder that snapshots are kept in: a volume that outlives this program
    #[arg(long, env = "ETCD_SNAPSHOTS", default_value = "/var/lib/etcd-operator")]
    snapshots: PathBuf,
    /// Address at which members are given snapshots; let nobody else reach it
    #[arg(long, env = "ETCD_SNAPSHOTS_ADDR", default_value = "0.0.0.0:8090")]
    snapshots_addr: SocketAddr,
    /// URL by which members reach that address
    #[arg(long, env = "ETCD_SNAPSHOTS_URL", default_value = "http://etcd-operator.etcd-operator-system:8090")]
    snapshots_url: String,
    /// Largest size of a snapshot, in MiB
    #[arg(long, env = "ETCD_SNAPSHOT_LIMIT", default_value_t = 8192)]
    snapshot_limit: u64,
}

fn main() -> ExitCode {
    Operator::main_with(|flags: Flags| {
        let folder = Folder::new(flags.snapshots, flags.snapshots_url, flags.snapshot_limit << 20);
        let snapshots = Arc::new(folder.clone());
        let server = Task::new("snapshots", move |cx| async move {
            let listener = TcpListener::bind(flags.snapshots_addr).await?;
            tokio::select! {
                biased;
                () = cx.stopped() => {}
                () = folder.serve(listener) => {}
            }
            Ok(())
        });
        etcd_operator::operator(Arc::new(Gateway::default()), snapshots, ClusterMetrics::default()).task(server)
    })
}
