//! Scheduler's view of a node, and the filters that depend on the node alone.

use super::pods::{HostPort, PendingPod, PodFacts};
use crate::workload::affinity::{self, Labels, NOT_READY};
use crate::workload::resources::{Amounts, Load};
use flyball_core::ObjectKey;
use k8s_openapi::api::core::v1::{self, Taint};
use kube::ResourceExt;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The pods of a node, and the node itself if it exists.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) facts: Option<NodeFacts>,
    pub(super) pods: BTreeMap<ObjectKey, Arc<PodFacts>>,
    used: Amounts,
    load: Load,
}

/// Node data used by filters.
#[derive(Debug, PartialEq)]
pub(super) struct NodeFacts {
    pub(super) labels: Labels,
    taints: Vec<Taint>,
    is_cordoned: bool,
    allocatable: Amounts,
}

impl NodeFacts {
    pub(super) fn new(node: &v1::Node) -> Self {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        Self {
            labels: node.labels().clone(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            is_cordoned: spec.and_then(|spec| spec.unschedulable) == Some(true),
            allocatable: Amounts::of(allocatable),
        }
    }

    pub(super) fn taints(&self) -> &[Taint] {
        &self.taints
    }

    /// Returns true if a kubelet runs pods.
    pub(super) fn is_alive(&self) -> bool {
        self.allocatable.get("pods") > 0 && !self.taints.iter().any(|taint| taint.key == NOT_READY)
    }
}

/// The reason why a node does not fit a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) text: Cow<'static, str>,
    /// Removing other pods would make the pod fit.
    pub(super) depends_on_pods: bool,
}

impl Reason {
    pub(super) fn lasting(text: &'static str) -> Vec<Self> {
        vec![Self { text: text.into(), depends_on_pods: false }]
    }

    pub(super) fn passing(text: &'static str) -> Vec<Self> {
        vec![Self { text: text.into(), depends_on_pods: true }]
    }
}

impl Node {
    pub(super) fn insert(&mut self, key: ObjectKey, pod: Arc<PodFacts>) {
        self.remove(&key);
        self.used.add(&pod.requests);
        self.load.add(pod.load);
        self.pods.insert(key, pod);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<PodFacts>> {
        let pod = self.pods.remove(key)?;
        self.used.subtract(&pod.requests);
        self.load.subtract(pod.load);
        Some(pod)
    }

    fn takes(&self, port: &HostPort) -> bool {
        self.pods.values().any(|pod| pod.ports.iter().any(|used| used.collides(port)))
    }

    /// Filters the node: returns its score for a pod, or the reasons why the pod does not fit.
    pub(super) fn filter(&self, name: &str, pending: &PendingPod) -> Result<i64, Vec<Reason>> {
        let (Some(node), Some(spec)) = (&self.facts, &pending.pod.spec) else { return Err(Vec::new()) };
        let tolerations = spec.tolerations.as_ref();
        if affinity::named(spec).is_some_and(|names| !names.contains(name)) {
            return Err(Reason::lasting("node(s) didn't satisfy plugin(s) [NodeAffinity]"));
        }
        let cordon = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() };
        if node.is_cordoned && !affinity::is_tolerated(tolerations, &cordon) {
            return Err(Reason::lasting("node(s) were unschedulable"));
        }
        let keeps_off = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        if node.taints.iter().filter(keeps_off).any(|taint| !affinity::is_tolerated(tolerations, taint)) {
            return Err(Reason::lasting("node(s) had untolerated taint(s)"));
        }
        if !affinity::may_be_on(spec, name, &node.labels) {
            return Err(Reason::lasting("node(s) didn't match Pod's node affinity/selector"));
        }
        if pending.facts.ports.iter().any(|port| self.takes(port)) {
            return Err(Reason::passing("node(s) didn't have free ports for the requested pod ports"));
        }
        let lacking = self.lacking(node, &pending.facts.requests);
        if !lacking.is_empty() {
            return Err(lacking);
        }
        Ok(self.score(name, node, pending))
    }

    /// Lists the requests of a pod that exceed the free resources of the node.
    fn lacking(&self, node: &NodeFacts, requests: &Amounts) -> Vec<Reason> {
        let mut lacking = Vec::new();
        let room = node.allocatable.get("pods");
        if i64::try_from(self.pods.len()).unwrap_or(i64::MAX) >= room {
            lacking.push(Reason { text: "Too many pods".into(), depends_on_pods: room > 0 });
        }
        for (name, amount) in requests.positive() {
            let all = node.allocatable.get(name);
            if amount > all.saturating_sub(self.used.get(name)) {
                lacking.push(Reason { text: format!("Insufficient {name}").into(), depends_on_pods: amount <= all });
            }
        }
        lacking
    }

    /// Scores the remaining resources of the node, and the preferences of the pod.
    fn score(&self, name: &str, node: &NodeFacts, pending: &PendingPod) -> i64 {
        // In millionths, so that one pod makes a difference.
        let free_share = |all: i64, used: i64, requested: i64| match all {
            0 => 0,
            all => {
                let free = all.saturating_sub(used).saturating_sub(requested).max(0);
                i64::try_from(i128::from(free) * 1_000_000 / i128::from(all)).unwrap_or(0)
            }
        };
        let load = pending.facts.load;
        let cpu = free_share(node.allocatable.get("cpu"), self.load.cpu, load.cpu);
        let memory = free_share(node.allocatable.get("memory"), self.load.memory, load.memory);
        let (earned, weights) =
            pending.pod.spec.as_ref().map_or((0, 0), |spec| affinity::preference(spec, name, &node.labels));
        let preferred = if weights == 0 { 0 } else { earned * 1_000_000 / weights };
        let tolerations = pending.pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
        let better_not =
            |taint: &&Taint| taint.effect == "PreferNoSchedule" && !affinity::is_tolerated(tolerations, taint);
        let unwelcome = i64::try_from(node.taints.iter().filter(better_not).count()).unwrap_or(i64::MAX);
        // The weights of kube-scheduler: least allocated 1, affinity 2, taints 3.
        (cpu + memory) / 2 + 2 * preferred + 3 * (1_000_000 / unwelcome.saturating_add(1))
    }
}
