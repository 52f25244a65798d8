//! The `etcd-operator` program.

use clap::Args;
use etcd_operator::etcd::Gateway;
use etcd_operator::metrics::ClusterMetrics;
use etcd_operator::snapshots::SnapshotDirectory;
use flyball::{Operator, Task};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Runs etcd clusters: creates, repairs, upgrades and backs them up.
#[derive(Args, Debug)]
#[command(version)]
struct Flags {
    /// Directory for snapshots, on a volume that outlives this program
    #[arg(long, env = "ETCD_SNAPSHOTS", default_value = "/var/lib/etcd-operator")]
    snapshots: PathBuf,
    /// Address at which members fetch snapshots; restrict access to members
    #[arg(long, env = "ETCD_SNAPSHOTS_ADDR", default_value = "0.0.0.0:8090")]
    snapshots_addr: SocketAddr,
    /// URL of that address for members
    #[arg(long, env = "ETCD_SNAPSHOTS_URL", default_value = "http://etcd-operator.etcd-operator-system:8090")]
    snapshots_url: String,
    /// Maximum size of a snapshot, in MiB
    #[arg(long, env = "ETCD_SNAPSHOT_LIMIT", default_value_t = 8192)]
    snapshot_limit: u64,
}

fn main() -> ExitCode {
    Operator::main_with(|flags: Flags| {
        let folder = SnapshotDirectory::new(flags.snapshots, flags.snapshots_url, flags.snapshot_limit << 20);
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
