//! Inter-pod affinity, anti-affinity and topology spread.
//!
//! See <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity>
//! and <https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/>. All counts are computed
//! once for a pod, so that each node only needs lookups.

use super::nodes::{Node, Reason};
use super::pods::{PendingPod, PodFacts, Term};
use crate::workload::affinity::{self, Labels};
use crate::workload::owners::Selector;
use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec, Taint, TopologySpreadConstraint};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Nodes = BTreeMap<Arc<str>, Node>;
/// Number of pods by the value of a topology label.
type Counts = BTreeMap<String, i64>;

/// Counts for the affinity terms and spread constraints of a pod.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    /// Topologies of pods whose anti-affinity excludes this pod.
    repelled: BTreeSet<(String, String)>,
    avoided: Vec<(Term, Counts)>,
    sought: Vec<(Term, Counts)>,
    /// The first pod that matches its own affinity may be scheduled anywhere.
    is_first: bool,
    preferred: Vec<(i64, Term, Counts)>,
    spread: Vec<Spread>,
}

#[derive(Debug)]
struct Spread {
    topology: String,
    max_skew: i64,
    least: i64,
    counts: Counts,
    counts_itself: bool,
    is_hard: bool,
}

impl Neighbors {
    pub(super) fn count(pending: &PendingPod, nodes: &Nodes, namespaces: &BTreeMap<String, Labels>) -> Self {
        let Some(spec) = &pending.pod.spec else { return Self::default() };
        let affinity = spec.affinity.as_ref();
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let far = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let counted = |term: &PodAffinityTerm| {
            let term = Term::new(term, &pending.pod);
            let counts = count(nodes, &term.topology, |pod| term.is_about(pod, namespaces), |_| true);
            (term, counts)
        };
        let required = |terms: Option<&Vec<PodAffinityTerm>>| terms.into_iter().flatten().map(counted).collect();
        let sought: Vec<(Term, Counts)> =
            required(near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref()));
        let nobody = sought.iter().all(|(_, counts)| counts.values().all(|count| *count == 0));
        let weighed = |sign: i64, terms: Option<&Vec<k8s_openapi::api::core::v1::WeightedPodAffinityTerm>>| {
            let weigh = |term: &k8s_openapi::api::core::v1::WeightedPodAffinityTerm| {
                let (about, counts) = counted(&term.pod_affinity_term);
                (sign * i64::from(term.weight), about, counts)
            };
            terms.into_iter().flatten().map(weigh).collect::<Vec<_>>()
        };
        let mut preferred =
            weighed(1, near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref()));
        preferred
            .extend(weighed(-1, far.and_then(|far| far.preferred_during_scheduling_ignored_during_execution.as_ref())));
        let mut repelled = BTreeSet::new();
        for node in nodes.values() {
            let Some(facts) = &node.facts else { continue };
            for term in node.pods.values().flat_map(|pod| &pod.repels) {
                if let Some(value) =
                    facts.labels.get(&term.topology).filter(|_| term.is_about(&pending.facts, namespaces))
                {
                    repelled.insert((term.topology.clone(), value.clone()));
                }
            }
        }
        Self {
            repelled,
            avoided: required(far.and_then(|far| far.required_during_scheduling_ignored_during_execution.as_ref())),
            is_first: nobody && sought.iter().all(|(term, _)| term.is_about(&pending.facts, namespaces)),
            sought,
            preferred,
            spread: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .map(|one| Spread::new(one, pending, spec, nodes))
                .collect(),
        }
    }

    /// Filters a node: returns its score for the pod, or the reasons why the pod does not fit.
    pub(super) fn filter(&self, labels: &Labels) -> Result<i64, Vec<Reason>> {
        let mut score = 0;
        for spread in &self.spread {
            let Some(value) = labels.get(&spread.topology) else {
                if spread.is_hard {
                    return Err(Reason::lasting(
                        "node(s) didn't match pod topology spread constraints (missing required label)",
                    ));
                }
                continue;
            };
            let there = spread.counts.get(value).copied().unwrap_or(0);
            if spread.is_hard && there + i64::from(spread.counts_itself) - spread.least > spread.max_skew {
                return Err(Reason::passing("node(s) didn't match pod topology spread constraints"));
            }
            let most = spread.counts.values().copied().max().unwrap_or(0).max(1);
            score += 2 * 1_000_000 * (most - there) / most;
        }
        let pods_of =
            |(term, counts): &(Term, Counts)| labels.get(&term.topology).and_then(|value| counts.get(value)).copied();
        let suits = |counted: &(Term, Counts)| match self.is_first {
            true => labels.contains_key(&counted.0.topology),
            false => pods_of(counted).is_some_and(|count| count > 0),
        };
        if !self.sought.iter().all(suits) {
            return Err(Reason::lasting("node(s) didn't match pod affinity rules"));
        }
        if self.avoided.iter().any(|counted| pods_of(counted).is_some_and(|count| count > 0)) {
            return Err(Reason::passing("node(s) didn't match pod anti-affinity rules"));
        }
        if self.repelled.iter().any(|(key, value)| labels.get(key) == Some(value)) {
            return Err(Reason::passing("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        for (weight, term, counts) in &self.preferred {
            let there = labels.get(&term.topology).and_then(|value| counts.get(value)).copied().unwrap_or(0);
            let most = counts.values().copied().max().unwrap_or(0).max(1);
            score += 2 * 10_000 * weight * there / most;
        }
        Ok(score)
    }
}

impl Spread {
    fn new(constraint: &TopologySpreadConstraint, pending: &PendingPod, spec: &PodSpec, nodes: &Nodes) -> Self {
        let mut selector = constraint.label_selector.clone();
        if let Some(selector) = &mut selector {
            let labels = selector.match_labels.get_or_insert_default();
            for key in constraint.match_label_keys.iter().flatten() {
                if let Some(value) = pending.pod.labels().get(key) {
                    labels.insert(key.clone(), value.clone());
                }
            }
        }
        let selector = Selector::new(selector.as_ref());
        let is_meant = |pod: &PodFacts| {
            let selected = selector.as_ref().is_some_and(|selector| selector.matches_labels(&pod.labels));
            !pod.is_deleting && pod.namespace == pending.facts.namespace && selected
        };
        let honors_affinity = constraint.node_affinity_policy.as_deref() != Some("Ignore");
        let honors_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
        let counts = count(nodes, &constraint.topology_key, is_meant, |(name, node)| {
            let Some(facts) = &node.facts else { return false };
            let keeps_off = |taint: &Taint| {
                matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
                    && !affinity::is_tolerated(spec.tolerations.as_ref(), taint)
            };
            (!honors_affinity || affinity::may_be_on(spec, name, &facts.labels))
                && (!honors_taints || !facts.taints().iter().any(keeps_off))
        });
        let domains = i32::try_from(counts.len()).unwrap_or(i32::MAX);
        let too_few = constraint.min_domains.is_some_and(|least| domains < least);
        Self {
            topology: constraint.topology_key.clone(),
            max_skew: constraint.max_skew.into(),
            least: if too_few { 0 } else { counts.values().copied().min().unwrap_or(0) },
            counts,
            counts_itself: is_meant(&pending.facts),
            is_hard: constraint.when_unsatisfiable == "DoNotSchedule",
        }
    }
}

/// Counts pods by the topology of their nodes; a topology without pods has no entry.
fn count(
    nodes: &Nodes,
    topology: &str,
    is_meant: impl Fn(&PodFacts) -> bool,
    matters: impl Fn((&str, &Node)) -> bool,
) -> Counts {
    let mut counts = Counts::new();
    for (name, node) in nodes {
        let Some(value) = node.facts.as_ref().and_then(|facts| facts.labels.get(topology)) else { continue };
        if matters((name, node)) {
            let pods = node.pods.values().filter(|pod| is_meant(pod)).count();
            *counts.entry(value.clone()).or_default() += i64::try_from(pods).unwrap_or(i64::MAX);
        }
    }
    counts
}
