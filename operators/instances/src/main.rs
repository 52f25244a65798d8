//! The `instances` program: the operator with a simulated cloud, see `instances --help`.
//!
//! The cloud is in the memory of the process: its machines end with it. For a real one, implement
//! [`Cloud`](instances::cloud::Cloud) and pass a constructor to [`instances::operator`].

use flyball::LeaderElection;
use instances::cloud::simulator::Simulator;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let cloud = Arc::new(Simulator::default());
    let operator = instances::operator(move || Ok::<_, Infallible>(cloud.clone()));
    operator.leader_election(LeaderElection::default()).main()
}
