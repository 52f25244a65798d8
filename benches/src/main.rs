//! Benchmarks, each compared with a peer in the same run.
//!
//! | `cargo run --release --` | Measures |
//! |---|---|
//! | `cold-start [RUNS [N…]]` | a controller without work, compared with kube's |
//! | `writes [RUNS [N…]]` | a controller that writes a child and a status for each object |
//! | `server FLYBALL [KUBECONFIG]` | the server of this binary, compared with that of a kubeconfig |
//! | `in-process` | the same server as a library, without a socket |
//! | `ledger [RUNS [WORK]]` | the record of a reconcile in a ledger, and operators with and without one |

mod contest;
mod in_process;
mod ledger;
mod server;

use contest::Work;
use kube::{Client, Config};
use std::error::Error;
use tokio::runtime::Runtime;

pub(crate) type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let measured = match words[..] {
        ["contestant", work, name, kubeconfig, namespace, n] => {
            runtime.block_on(contest::contestant(work, name, kubeconfig, namespace, n.parse()?))
        }
        ["cold-start", ref how @ ..] => compare(&runtime, Work::Nothing, how, &[1_000, 10_000]),
        ["writes", ref how @ ..] => compare(&runtime, Work::Writes, how, &[1_000]),
        ["server", flyball] => runtime.block_on(server::measure(flyball, None)),
        ["server", flyball, peer] => runtime.block_on(server::measure(flyball, Some(peer))),
        ["in-process"] => runtime.block_on(in_process::measure()),
        ["ledger"] => runtime.block_on(ledger::measure(15, None)),
        ["ledger", runs] => runtime.block_on(ledger::measure(runs.parse()?, None)),
        ["ledger", runs, work] => runtime.block_on(ledger::measure(runs.parse()?, Some(work))),
        ["ledger-operator", ref words @ ..] => runtime.block_on(ledger::operator(words)),
        _ => {
            Err("usage: cold-start [RUNS [N…]] | writes [RUNS [N…]] | server FLYBALL [KUBECONFIG] | in-process | ledger [RUNS [WORK]]".into())
        }
    };
    runtime.shutdown_background();
    measured
}

/// Runs a contest with the number of runs and objects of the command line.
fn compare(runtime: &Runtime, work: Work, how: &[&str], usual: &[usize]) -> Result<()> {
    let (runs, sizes) = how.split_first().map_or((Ok(5), usual.to_vec()), |(runs, sizes)| {
        let sizes: Vec<usize> = sizes.iter().filter_map(|n| n.parse().ok()).collect();
        (runs.parse(), if sizes.is_empty() { usual.to_vec() } else { sizes })
    });
    runtime.block_on(contest::compare(work, runs?, &sizes))
}

pub(crate) async fn connect(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)?)
}
