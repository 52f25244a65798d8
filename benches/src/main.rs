//! Measurements, each beside a peer in the same run.
//!
//! ```console
//! $ cargo run --release -- cold-start [RUNS [N…]]           a controller, beside kube's
//! $ cargo run --release -- server FLYBALL [KUBECONFIG]      the server of this binary, beside that of a kubeconfig
//! $ cargo run --release -- in-process                       the same server as a value, without a socket
//! ```

mod cold_start;
mod in_process;
mod server;

use kube::{Client, Config};
use std::error::Error;

pub(crate) type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let measured = match words[..] {
        ["contestant", name, kubeconfig, namespace, n] => {
            runtime.block_on(cold_start::contestant(name, kubeconfig, namespace, n.parse()?))
        }
        ["cold-start"] => runtime.block_on(cold_start::compare(5, &[1_000, 10_000])),
        ["cold-start", runs] => runtime.block_on(cold_start::compare(runs.parse()?, &[1_000, 10_000])),
        ["cold-start", runs, ref sizes @ ..] => {
            let sizes = sizes.iter().map(|n| n.parse()).collect::<Result<Vec<usize>, _>>()?;
            runtime.block_on(cold_start::compare(runs.parse()?, &sizes))
        }
        ["server", flyball] => runtime.block_on(server::measure(flyball, None)),
        ["server", flyball, peer] => runtime.block_on(server::measure(flyball, Some(peer))),
        ["in-process"] => runtime.block_on(in_process::measure()),
        _ => Err("usage: cold-start [RUNS [N…]] | server FLYBALL [KUBECONFIG] | in-process".into()),
    };
    runtime.shutdown_background();
    measured
}

pub(crate) async fn connect(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)?)
}
