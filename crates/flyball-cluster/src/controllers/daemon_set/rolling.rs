//! Selection of the next outdated pods to replace.
//!
//! See <https://kubernetes.io/docs/tasks/manage-daemon/update-daemon-set/>.

use super::nodes::NodeDecision;
use super::{Daemon, Plan};
use crate::workload::pods::is_deleting;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use std::collections::BTreeMap;

/// The old and the new pod of a node.
struct NodePods<'a> {
    new: Option<&'a Pod>,
    old: Option<&'a Pod>,
}

/// Finds the pods that may be replaced within the limits of the strategy.
pub(super) fn plan(daemon: &Daemon<'_>) -> Plan {
    let run: Vec<&Node> = daemon.nodes.iter().filter(|node| daemon.decision(node) == NodeDecision::Run).collect();
    let desired = i32::try_from(run.len()).unwrap_or(i32::MAX);
    let mut nodes: BTreeMap<String, &[Pod]> = run.iter().map(|node| (node.name_any(), &[][..])).collect();
    nodes.extend(daemon.pods.iter().map(|(name, pods)| (name.clone(), &**pods)));
    let runs = |name: &str| run.iter().any(|node| node.name_any() == name);
    let (surge, unavailable) = daemon.bounds(desired);
    if surge == 0 { replaced(daemon, &nodes, unavailable) } else { surged(daemon, &nodes, surge, desired, runs) }
}

/// Returns the pods of a node; `None` if there are several of one template, which the update ignores.
fn pair<'a>(daemon: &Daemon<'_>, pods: &'a [Pod]) -> Option<NodePods<'a>> {
    let mut pair = NodePods { new: None, old: None };
    for pod in pods.iter().filter(|pod| !is_deleting(*pod)) {
        let place = if daemon.is_updated(pod) { &mut pair.new } else { &mut pair.old };
        if place.replace(pod).is_some() {
            return None;
        }
    }
    Some(pair)
}

/// Deletes old pods: all unavailable ones, and others up to `maxUnavailable`.
fn replaced(daemon: &Daemon<'_>, nodes: &BTreeMap<String, &[Pod]>, most: i32) -> Plan {
    let (mut unavailable, mut candidates, mut plan) = (0, Vec::new(), Plan::default());
    for pods in nodes.values() {
        match pair(daemon, pods) {
            Some(NodePods { new: Some(new), old: None }) => unavailable += i32::from(!daemon.is_available(new)),
            Some(NodePods { new: None, old: Some(old) }) if daemon.is_available(old) => candidates.push(old.clone()),
            Some(NodePods { new: None, old: Some(old) }) => {
                plan.delete.push(old.clone());
                unavailable += 1;
            }
            Some(_) | None => unavailable += 1,
        }
    }
    let rest = usize::try_from(most - unavailable).unwrap_or(0);
    plan.delete.extend(candidates.into_iter().take(rest));
    plan
}

/// Creates new pods beside old ones: where the old one is not available, and on at most `maxSurge` other nodes. On
/// nodes that should not run the daemon any more, old pods are deleted as far as enough others are available.
fn surged(
    daemon: &Daemon<'_>,
    nodes: &BTreeMap<String, &[Pod]>,
    most: i32,
    desired: i32,
    runs: impl Fn(&str) -> bool,
) -> Plan {
    let (mut surge, mut available, mut plan) = (0, 0, Plan::default());
    let (mut candidates, mut leaving) = (Vec::new(), Vec::new());
    for (name, pods) in nodes {
        let Some(NodePods { new, old }) = pair(daemon, pods) else {
            surge += 1;
            continue;
        };
        available += i32::from(old.or(new).is_some_and(|pod| daemon.is_available(pod)));
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (daemon.is_available(old), runs(name)) {
                (true, true) => candidates.push(name.clone()),
                (true, false) => leaving.push(old.clone()),
                (false, true) => plan.create.push(name.clone()),
                (false, false) => plan.delete.push(old.clone()),
            },
            (Some(new), Some(old)) if daemon.is_available(new) => plan.delete.push(old.clone()),
            (Some(_), Some(_)) => surge += 1,
        }
    }
    plan.delete.extend(leaving.into_iter().take(usize::try_from(available - desired).unwrap_or(0)));
    plan.create.extend(candidates.into_iter().take(usize::try_from(most - surge).unwrap_or(0)));
    plan
}
