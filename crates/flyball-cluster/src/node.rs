//! Simulated nodes: they take pods and tell of them what a kubelet would tell, while nothing runs.
//!
//! A node is simulated if it says so by its annotation, [`SIMULATED`]. One controller introduces such nodes and keeps
//! their leases, another stands in for their kubelets: it looks at a pod, asks a [`Program`] how its containers are,
//! and writes down what follows. What a program is, is nobody else's business; [`Simulated`] is the one that runs
//! nothing.

mod addresses;
mod containers;
mod environment;
mod kubelet;
mod nodes;
mod pod_sync;
mod program;
mod registration;
mod script;
mod status;

pub(crate) use kubelet::Kubelet;
pub use nodes::Nodes;
pub use program::{Exit, Launch, Observed, Program, Running, Simulated, Start, StartError};
pub(crate) use registration::registration;
pub(crate) use script::Rules;
pub use script::{ContainerScript, Delay, Rule};

use addresses::Addresses;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

/// The annotation of simulated nodes, with its value.
pub const SIMULATED: (&str, &str) = ("flyball.dev/node", "simulated");
/// Field manager and event source of kubelets.
const MANAGER: &str = "kubelet";
/// The annotation by which a simulated node falls silent.
const DOWN: (&str, &str) = ("flyball.dev/down", "true");

fn is_simulated(node: &Node) -> bool {
    node.annotations().get(SIMULATED.0).is_some_and(|value| value == SIMULATED.1)
}

fn is_down(node: &Node) -> bool {
    node.annotations().get(DOWN.0).is_some_and(|value| value == DOWN.1)
}
