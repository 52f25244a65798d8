//! Nodes of a daemon, and the node affinity of its pods.

use crate::workload::affinity::{NAME, is_tolerated, may_be_on};
use crate::workload::pods;
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};
use kube::ResourceExt;

/// Decision about the daemon pod of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeDecision {
    /// A pod should run.
    Run,
    /// No pod should be created, but an existing one may continue to run.
    Stay,
    /// No pod should run.
    Leave,
}

/// Decides whether pods of a daemon should run and may continue to run on a node.
pub(super) fn decide(spec: &PodSpec, node: &Node) -> NodeDecision {
    let name = node.name_any();
    let is_chosen = spec.node_name.as_deref().is_none_or(|chosen| chosen.is_empty() || chosen == name);
    if !is_chosen || !may_be_on(spec, &name, node.labels()) {
        return NodeDecision::Leave;
    }
    let (tolerations, mut decision) = (tolerations(spec), NodeDecision::Run);
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    for taint in taints.filter(|taint| !is_tolerated(Some(&tolerations), taint)) {
        match &*taint.effect {
            "NoExecute" => return NodeDecision::Leave,
            "NoSchedule" => decision = NodeDecision::Stay,
            _ => {}
        }
    }
    decision
}

/// Returns the tolerations of a daemon's pods, which keep running on unhealthy nodes.
fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let mut added = vec![
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    if spec.host_network == Some(true) {
        added.push(("network-unavailable", "NoSchedule"));
    }
    for (key, effect) in added {
        let toleration = Toleration {
            key: Some(format!("node.kubernetes.io/{key}")),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        let same = |known: &&mut Toleration| {
            let what = |toleration: &Toleration| (toleration.key.clone(), toleration.effect.clone());
            what(known) == what(&toleration) && known.operator == toleration.operator && known.value.is_none()
        };
        match all.iter_mut().find(same) {
            Some(known) => *known = toleration,
            None => all.push(toleration),
        }
    }
    all
}

/// Sets the node affinity of a pod, so that the scheduler assigns it to this node only.
pub(super) fn tie(spec: &mut PodSpec, node: &str) {
    spec.tolerations = Some(tolerations(spec));
    let by_name =
        NodeSelectorRequirement { key: NAME.into(), operator: "In".into(), values: Some(vec![node.to_owned()]) };
    let term = NodeSelectorTerm { match_fields: Some(vec![by_name]), ..NodeSelectorTerm::default() };
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    // The replaced terms were already evaluated when the node was selected.
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// Returns the node that a pod runs on or has an affinity to.
pub(super) fn target(pod: &Pod) -> Option<String> {
    if let Some(node) = pods::node(pod) {
        return Some(node.to_owned());
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut by_name = fields.filter(|field| field.key == NAME && field.operator == "In");
    by_name.find_map(|field| field.values.as_ref()?.first().cloned())
}
