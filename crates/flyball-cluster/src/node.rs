//! Simulated nodes: they accept pods and report their status as a kubelet does, without running containers.
//!
//! A node is simulated if it has the annotation [`SIMULATED_NODE_ANNOTATION`]. One controller registers such nodes and
//! renews their leases, another replaces their kubelets: it queries the states of a pod's containers from a
//! [`Program`], and updates the pod's status. [`SimulatedProgram`] is the program that runs nothing.

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
pub use program::{Exit, Launch, Program, ProgramState, RunningContainer, SimulatedProgram, StartError, StartResult};
pub(crate) use registration::registration;
pub(crate) use script::Rules;
pub use script::{ContainerRule, ContainerScript, Delay};

use addresses::Addresses;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

/// The annotation of simulated nodes, with its value.
pub const SIMULATED_NODE_ANNOTATION: (&str, &str) = ("flyball.dev/node", "simulated");
/// Field manager and event source of kubelets.
const MANAGER: &str = "kubelet";
/// The annotation that stops the heartbeat of a simulated node.
const DOWN: (&str, &str) = ("flyball.dev/down", "true");

fn is_simulated(node: &Node) -> bool {
    node.annotations().get(SIMULATED_NODE_ANNOTATION.0).is_some_and(|value| value == SIMULATED_NODE_ANNOTATION.1)
}

fn is_down(node: &Node) -> bool {
    node.annotations().get(DOWN.0).is_some_and(|value| value == DOWN.1)
}
