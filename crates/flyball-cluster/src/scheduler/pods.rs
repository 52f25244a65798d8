//! Scheduler's view of a pod.

use crate::workload::affinity::Labels;
use crate::workload::resources::{self, Amounts, Load};
use crate::workload::{owners::Selector, pods};
use flyball_core::ObjectKey;
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

const EVERYWHERE: &str = "0.0.0.0";
/// Maximum number of pod affinity terms and topology spread constraints of a pod: a decision compares each of them with
/// all placed pods.
pub(super) const MAX_TERMS: usize = 100;

/// Pod data used when later pods are scheduled.
#[derive(Clone, Debug)]
pub(super) struct PodFacts {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) labels: Labels,
    pub(super) requests: Amounts,
    pub(super) load: Load,
    pub(super) ports: Vec<HostPort>,
    /// Required anti-affinity terms.
    pub(super) repels: Vec<Term>,
    pub(super) is_deleting: bool,
}

/// A host port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct HostPort {
    address: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    pub(super) fn collides(&self, other: &Self) -> bool {
        let meets = self.address == other.address || [&self.address, &other.address].iter().any(|a| *a == EVERYWHERE);
        self.port == other.port && self.protocol == other.protocol && meets
    }
}

/// A term of pod affinity: its pods and its topology key.
#[derive(Clone, Debug)]
pub(super) struct Term {
    namespaces: BTreeSet<String>,
    namespace_selector: Option<Selector>,
    selector: Option<Selector>,
    pub(super) topology: String,
}

impl Term {
    pub(super) fn new(term: &PodAffinityTerm, pod: &Pod) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.extend(pod.namespace());
        }
        let mut selector = term.label_selector.clone();
        // See <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#matchlabelkeys>; newer API
        // servers have merged them into the selector already.
        if let Some(selector) = &mut selector {
            let labels = selector.match_labels.get_or_insert_default();
            for key in term.match_label_keys.iter().flatten() {
                if let Some(value) = pod.labels().get(key) {
                    labels.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        Self {
            namespaces,
            namespace_selector: Selector::new(term.namespace_selector.as_ref()),
            selector: Selector::new(selector.as_ref()),
            topology: term.topology_key.clone(),
        }
    }

    pub(super) fn is_about(&self, pod: &PodFacts, namespaces: &BTreeMap<String, Labels>) -> bool {
        let in_namespace = self.namespaces.contains(&pod.namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| {
                selector.is_empty()
                    || namespaces.get(&pod.namespace).is_some_and(|labels| selector.matches_labels(labels))
            });
        in_namespace && self.selector.as_ref().is_some_and(|selector| selector.matches_labels(&pod.labels))
    }
}

impl PodFacts {
    pub(super) fn new(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        Self {
            uid: pod.uid().unwrap_or_default(),
            namespace: pod.namespace().unwrap_or_default(),
            labels: pod.labels().clone(),
            requests: resources::requested(pod),
            load: resources::load(pod),
            ports: spec.map(ports).unwrap_or_default(),
            repels: anti_affinity(pod).take(MAX_TERMS).map(|term| Term::new(term, pod)).collect(),
            is_deleting: pods::is_deleting(pod),
        }
    }
}

fn ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| resources::is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let host_ports = ports.filter_map(|port| {
        Some(HostPort {
            address: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| EVERYWHERE.into()),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            port: port.host_port.filter(|port| *port > 0)?,
        })
    });
    host_ports.collect()
}

fn anti_affinity(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref())
        .into_iter()
        .flatten()
}

/// A pod that waits for a node.
#[derive(Clone, Debug)]
pub(super) struct PendingPod {
    pub(super) pod: Box<Pod>,
    pub(super) facts: PodFacts,
    /// Key of pods with equal results on every node; `None` if other pods matter as well.
    pub(super) class: Option<String>,
}

impl PendingPod {
    pub(super) fn new(pod: Box<Pod>) -> Self {
        let facts = PodFacts::new(&pod);
        let class = pod.spec.as_ref().filter(|spec| is_independent(spec)).and_then(|spec| {
            let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
            let of_spec = (&spec.node_selector, affinity, &spec.tolerations);
            serde_json::to_string(&(of_spec, &facts.requests, &facts.load, &facts.ports)).ok()
        });
        Self { pod, facts, class }
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(Some(&self.facts.namespace), self.pod.metadata.name.as_deref().unwrap_or_default())
    }

    pub(super) fn priority(&self) -> i32 {
        self.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
    }

    /// Returns the number of terms of pod affinity and of constraints of topology spread.
    pub(super) fn term_count(&self) -> usize {
        let Some(spec) = &self.pod.spec else { return 0 };
        let near = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
        let far = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let lengths = [
            near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref()).map(Vec::len),
            near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref()).map(Vec::len),
            far.and_then(|far| far.required_during_scheduling_ignored_during_execution.as_ref()).map(Vec::len),
            far.and_then(|far| far.preferred_during_scheduling_ignored_during_execution.as_ref()).map(Vec::len),
            spec.topology_spread_constraints.as_ref().map(Vec::len),
        ];
        lengths.into_iter().flatten().sum()
    }

    /// Returns the claims of the pod.
    pub(super) fn claims(&self) -> Vec<ObjectKey> {
        pods::claims(&self.pod).map(|(name, _)| ObjectKey::new(Some(&self.facts.namespace), &name)).collect()
    }
}

/// Returns true if the fit of a node does not depend on other nodes.
fn is_independent(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.as_ref();
    let among_pods =
        affinity.is_some_and(|affinity| affinity.pod_affinity.is_some() || affinity.pod_anti_affinity.is_some());
    let spreads = spec.topology_spread_constraints.as_ref().is_some_and(|constraints| !constraints.is_empty());
    let has_claims =
        spec.volumes.iter().flatten().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    !among_pods && !spreads && !has_claims
}
