//! Missing and surplus pods of nodes.

use super::nodes::NodeDecision;
use super::{Daemon, DaemonSets, Plan};
use crate::workload::pods::{self, is_deleting, is_ready, phase};
use flyball::Context;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::time::Duration;

impl DaemonSets {
    /// Finds missing and surplus pods; also returns the delay before failed pods may be retried.
    pub(super) async fn placement(&self, daemon: &Daemon<'_>, cx: &Context<DaemonSet>) -> (Plan, Option<Duration>) {
        let (mut plan, mut wait) = (Plan::default(), None);
        for node in &daemon.nodes {
            let (name, decision) = (node.name_any(), daemon.decision(node));
            let pods = daemon.pods.get(&name).map(Vec::as_slice).unwrap_or_default();
            let present = || pods.iter().filter(|pod| !is_deleting(*pod));
            match decision {
                NodeDecision::Leave => plan.delete.extend(present().cloned()),
                NodeDecision::Run if pods.is_empty() => plan.create.push(name),
                NodeDecision::Run | NodeDecision::Stay => {
                    let mut running = Vec::new();
                    for pod in present() {
                        let event = match phase(pod) {
                            "Failed" => match self.backoffs.delay(daemon.set, &name, daemon.now) {
                                Some(delay) => {
                                    wait = Some(wait.map_or(delay, |wait: Duration| wait.min(delay)));
                                    continue;
                                }
                                None => ("failed", "kill"),
                            },
                            "Succeeded" => ("succeeded", "delete"),
                            _ => {
                                running.push(pod);
                                continue;
                            }
                        };
                        self.publish(daemon, pod, &name, event, cx).await;
                        plan.delete.push(pod.clone());
                    }
                    prune(daemon, &name, decision, &running, &mut plan);
                }
            }
        }
        // Pending pods for a node that does not exist are deleted here, since the pod garbage collector ignores them.
        let exists = |name: &String| daemon.nodes.iter().any(|node| node.metadata.name.as_ref() == Some(name));
        let stranded = daemon.pods.iter().filter(|(name, _)| !exists(name)).flat_map(|(_, pods)| pods);
        plan.delete.extend(stranded.filter(|pod| pods::node(pod).is_none() && !is_deleting(*pod)).cloned());
        (plan, wait)
    }

    async fn publish(
        &self,
        daemon: &Daemon<'_>,
        pod: &Pod,
        node: &str,
        (state, act): (&str, &str),
        cx: &Context<DaemonSet>,
    ) {
        let pod = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        let message = format!("Found {state} daemon pod {pod} on node {node}, will try to {act} it");
        match state {
            "failed" => self.events.warning(cx, daemon.set, "FailedDaemonPod", message).await,
            _ => self.events.normal(cx, daemon.set, "SucceededDaemonPod", message).await,
        }
    }
}

/// Keeps one of the pods of a node; with a surge, one of each template until the new one is available.
fn prune(daemon: &Daemon<'_>, node: &str, decision: NodeDecision, running: &[&Pod], plan: &mut Plan) {
    let surges = daemon.bounds(1).0 > 0;
    match running {
        [] if surges && decision == NodeDecision::Run => plan.create.push(node.to_owned()),
        [] | [_] => {}
        [_, excess @ ..] if !surges => plan.delete.extend(excess.iter().map(|pod| (*pod).clone())),
        _ => {
            let (new, old): (Vec<&Pod>, Vec<&Pod>) =
                running.iter().partition(|pod| pod.labels().get(super::HASH) == Some(&daemon.hash));
            let excess = new.iter().skip(1).chain(old.iter().skip(1));
            plan.delete.extend(excess.map(|pod| (*pod).clone()));
            if let (Some(new), Some(old)) = (new.first(), old.first())
                && (!is_ready(old) || daemon.is_available(new))
            {
                plan.delete.push((*old).clone());
            }
        }
    }
}
