//! The scheduler's view of the cluster, and the decision for a pod.
//!
//! Most pods have the same requirements as many others. For these a [`Class`] caches the results of all nodes, and only
//! evaluates nodes that have changed since: the cost of a pod depends on the number of changed nodes.

use super::neighbors::Neighbors;
use super::nodes::{Node, NodeFacts, Reason};
use super::pods::{MAX_TERMS, PendingPod, PodFacts};
use super::queue::Queue;
use super::volumes::Volumes;
use crate::workload::affinity::Labels;
use crate::workload::pods;
use flyball_core::ObjectKey;
use k8s_openapi::api::core::v1::{self, Pod};
use kube::ResourceExt;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum number of cached classes.
const CLASSES: usize = 64;
/// The default value of `schedulerName`.
pub(super) const NAME: &str = "default-scheduler";

#[derive(Debug, Default)]
pub(super) struct State {
    nodes: BTreeMap<Arc<str>, Node>,
    /// Nodes of pods, including assumed pods.
    places: BTreeMap<ObjectKey, Arc<str>>,
    /// UIDs of pods that are assumed to be on a node, but not confirmed by the watch.
    assumed: BTreeMap<ObjectKey, String>,
    pending: BTreeMap<ObjectKey, Arc<PendingPod>>,
    queue: Queue,
    /// Nodes by their last change.
    changes: BTreeMap<u64, Arc<str>>,
    changed: BTreeMap<Arc<str>, u64>,
    clock: u64,
    classes: BTreeMap<String, Class>,
    /// Number of pods with anti-affinity.
    repelling: usize,
    namespaces: BTreeMap<String, Labels>,
    volumes: Volumes,
}

/// Cached filter results for pods with equal requirements.
#[derive(Debug, Default)]
struct Class {
    seen: u64,
    used: u64,
    results: BTreeMap<Arc<str>, Result<i64, Vec<Reason>>>,
    fitting: BTreeSet<(Reverse<i64>, Arc<str>)>,
}

impl Class {
    fn set_result(&mut self, name: &Arc<str>, result: Option<Result<i64, Vec<Reason>>>) {
        if let Some(Ok(score)) = self.results.remove(name) {
            self.fitting.remove(&(Reverse(score), name.clone()));
        }
        if let Some(result) = result {
            if let Ok(score) = result {
                self.fitting.insert((Reverse(score), name.clone()));
            }
            self.results.insert(name.clone(), result);
        }
    }
}

/// Scheduling decision for a pod.
#[derive(Debug)]
pub(super) enum Decision {
    /// The pod is bound to this node.
    Bind(Arc<PendingPod>, Arc<str>),
    /// Its claims are annotated with this node; the pod is scheduled when they are bound.
    Choose(Arc<PendingPod>, Arc<str>, Vec<ObjectKey>),
    /// The pod is unschedulable, with the reason.
    Unfit(Arc<PendingPod>, String),
    /// No decision is needed.
    Nothing,
}

impl State {
    pub(super) fn put_pod(&mut self, key: ObjectKey, pod: Box<Pod>) {
        if pods::is_over(&pod) {
            return self.remove_pod(&key);
        }
        if let Some(node) = pods::node(&pod).map(Arc::from) {
            self.assumed.remove(&key);
            return self.add_to_node(key, node, Arc::new(PodFacts::new(&pod)));
        }
        let spec = pod.spec.as_ref();
        let is_ours = spec.and_then(|spec| spec.scheduler_name.as_deref()).is_none_or(|name| name == NAME);
        let is_gated = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
        if self.assumed.get(&key).is_some_and(|uid| pod.metadata.uid.as_ref() == Some(uid)) {
            return;
        }
        if !is_ours || is_gated || pods::is_deleting(&*pod) {
            return self.remove_pod(&key);
        }
        let before = self.pending.get(&key);
        let is_same = |known: &Arc<PendingPod>| {
            known.pod.spec == pod.spec
                && known.pod.metadata.labels == pod.metadata.labels
                && known.pod.metadata.uid == pod.metadata.uid
        };
        if !before.is_some_and(is_same) {
            self.queue.remove(&key);
        }
        let pending = PendingPod::new(pod);
        self.queue.add(key.clone(), pending.priority());
        self.pending.insert(key, Arc::new(pending));
    }

    pub(super) fn remove_pod(&mut self, key: &ObjectKey) {
        self.assumed.remove(key);
        self.pending.remove(key);
        self.queue.remove(key);
        if self.leave(key) {
            self.queue.something_changed();
        }
    }

    fn add_to_node(&mut self, key: ObjectKey, node: Arc<str>, pod: Arc<PodFacts>) {
        self.pending.remove(&key);
        self.queue.remove(&key);
        let known = self.places.get(&key).filter(|place| **place == node);
        let known = known.and_then(|place| self.nodes.get(place)?.pods.get(&key));
        if known.is_some_and(|known| {
            known.uid == pod.uid && known.labels == pod.labels && known.is_deleting == pod.is_deleting
        }) {
            return;
        }
        self.leave(&key);
        self.repelling += usize::from(!pod.repels.is_empty());
        self.nodes.entry(node.clone()).or_default().insert(key.clone(), pod);
        self.touch(&node);
        self.places.insert(key, node);
    }

    /// Removes a pod from its node; returns true if it was on one.
    fn leave(&mut self, key: &ObjectKey) -> bool {
        let Some(name) = self.places.remove(key) else { return false };
        if let Some(node) = self.nodes.get_mut(&name) {
            let removed = node.remove(key);
            self.repelling -= usize::from(removed.is_some_and(|pod| !pod.repels.is_empty()));
            if node.facts.is_none() && node.pods.is_empty() {
                self.nodes.remove(&name);
            }
        }
        self.touch(&name);
        true
    }

    fn touch(&mut self, name: &Arc<str>) {
        self.clock += 1;
        if let Some(before) = self.changed.insert(name.clone(), self.clock) {
            self.changes.remove(&before);
        }
        self.changes.insert(self.clock, name.clone());
    }

    pub(super) fn put_node(&mut self, node: &v1::Node) {
        let (name, facts): (Arc<str>, _) = (node.name_any().into(), NodeFacts::new(node));
        let known = self.nodes.entry(name.clone()).or_default();
        if known.facts.as_ref() != Some(&facts) {
            known.facts = Some(facts);
            self.touch(&name);
            self.queue.something_changed();
        }
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        let name: Arc<str> = name.into();
        if let Some(node) = self.nodes.get_mut(&name) {
            node.facts = None;
            if node.pods.is_empty() {
                self.nodes.remove(&name);
            }
            self.touch(&name);
            self.queue.something_changed();
        }
    }

    pub(super) fn put_namespace(&mut self, name: String, labels: Option<Labels>) {
        match labels {
            Some(labels) => drop(self.namespaces.insert(name, labels)),
            None => drop(self.namespaces.remove(&name)),
        }
    }

    /// Changes the view of volumes, after which waiting pods may be schedulable.
    pub(super) fn change_volumes(&mut self, change: impl FnOnce(&mut Volumes)) {
        change(&mut self.volumes);
        self.queue.something_changed();
    }

    /// Returns the time at which the next failed pod is due, if none is ready.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.next_due()
    }

    /// Schedules the next pod; `None` if none is ready.
    pub(super) fn next(&mut self, now: Instant) -> Option<Decision> {
        let key = self.queue.next(now)?;
        let Some(pending) = self.pending.get(&key).cloned() else { return Some(Decision::Nothing) };
        // Without a ready node, pods get no condition.
        if !self.nodes.values().any(|node| node.facts.as_ref().is_some_and(NodeFacts::is_alive)) {
            self.queue.failed(key, pending.priority(), now, false);
            return Some(Decision::Nothing);
        }
        Some(self.decide(pending))
    }

    fn decide(&mut self, pending: Arc<PendingPod>) -> Decision {
        let count = pending.term_count();
        if count > MAX_TERMS {
            let why =
                format!("pod has {count} pod affinity terms and topology spread constraints, more than {MAX_TERMS}");
            let message = self.rejection(&pending, Some(why), &BTreeMap::new());
            return Decision::Unfit(pending, message);
        }
        let unbound = match self.volumes.unbound(&pending) {
            Ok(unbound) => unbound,
            Err(why) => {
                let message = self.rejection(&pending, Some(why), &BTreeMap::new());
                return Decision::Unfit(pending, message);
            }
        };
        let found = match (&pending.class, self.repelling) {
            (Some(class), 0) => self.by_class(class, &pending),
            _ => self.one_by_one(&pending),
        };
        match found {
            Ok(node) if unbound.is_empty() => Decision::Bind(pending, node),
            Ok(node) => Decision::Choose(pending, node, unbound),
            Err(message) => Decision::Unfit(pending, message),
        }
    }

    /// Finds a node by the cached results for pods of the same class.
    fn by_class(&mut self, key: &str, pending: &PendingPod) -> Result<Arc<str>, String> {
        let mut class = self.classes.remove(key).unwrap_or_default();
        for name in self.changes.range(class.seen + 1..).map(|(_, name)| name) {
            let there = self.nodes.get(name).filter(|node| node.facts.is_some());
            class.set_result(name, there.map(|node| node.filter(name, pending)));
        }
        (class.seen, class.used) = (self.clock, self.clock);
        let found = match class.fitting.first() {
            Some((_, name)) => Ok(name.clone()),
            None => Err(self.rejection(pending, None, &class.results)),
        };
        if self.classes.len() >= CLASSES {
            let oldest = self.classes.iter().min_by_key(|(_, class)| class.used).map(|(key, _)| key.clone());
            oldest.iter().for_each(|oldest| drop(self.classes.remove(oldest)));
        }
        self.classes.insert(key.to_owned(), class);
        found
    }

    /// Finds a node by evaluating all of them.
    fn one_by_one(&self, pending: &PendingPod) -> Result<Arc<str>, String> {
        let neighbors = Neighbors::count(pending, &self.nodes, &self.namespaces);
        let mut results = BTreeMap::new();
        for (name, node) in &self.nodes {
            let Some(facts) = &node.facts else { continue };
            let result = node.filter(name, pending).and_then(|score| {
                self.volumes.reach(name, &facts.labels, pending, |name| self.nodes.contains_key(name))?;
                Ok(score + neighbors.filter(&facts.labels)?)
            });
            results.insert(name.clone(), result);
        }
        let fitting = results.iter().filter_map(|(name, result)| Some((Reverse(*result.as_ref().ok()?), name)));
        match fitting.min() {
            Some((_, name)) => Ok(name.clone()),
            None => Err(self.rejection(pending, None, &results)),
        }
    }

    /// Returns the reason why no node fits a pod, with kube-scheduler's message.
    fn rejection(
        &self,
        pending: &PendingPod,
        before: Option<String>,
        results: &BTreeMap<Arc<str>, Result<i64, Vec<Reason>>>,
    ) -> String {
        let all = self.nodes.values().filter(|node| node.facts.is_some()).count();
        let (mut counts, mut evictable): (BTreeMap<&str, usize>, usize) = (BTreeMap::new(), 0);
        for reasons in results.values().filter_map(|result| result.as_ref().err()) {
            for reason in reasons {
                *counts.entry(&reason.text).or_default() += 1;
            }
            evictable += usize::from(reasons.iter().all(|reason| reason.depends_on_pods));
        }
        let summed = |counts: &BTreeMap<&str, usize>| {
            let mut texts: Vec<String> = counts.iter().map(|(text, count)| format!("{count} {text}")).collect();
            texts.sort();
            texts.join(", ")
        };
        let why = before.unwrap_or_else(|| summed(&counts));
        let policy = pending.pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
        let preemption = if policy == Some("Never") {
            "not eligible due to preemptionPolicy=Never.".to_owned()
        } else {
            let mut counts = BTreeMap::from([
                ("No preemption victims found for incoming pod", evictable),
                ("Preemption is not helpful for scheduling", all - evictable),
            ]);
            counts.retain(|_, count| *count > 0);
            format!("0/{all} nodes are available: {}.", summed(&counts))
        };
        format!("0/{all} nodes are available: {why}. no new claims to deallocate, preemption: {preemption}")
    }

    /// Assumes that a pod is bound to a node.
    pub(super) fn assume(&mut self, pending: &PendingPod, node: &Arc<str>) {
        let key = pending.key();
        self.assumed.insert(key.clone(), pending.facts.uid.clone());
        self.add_to_node(key, node.clone(), Arc::new(pending.facts.clone()));
    }

    /// Reverts the assumption for a pod whose binding failed. After a temporary failure, the pod is requeued.
    pub(super) fn forget(&mut self, pending: &Arc<PendingPod>, now: Instant) {
        let key = pending.key();
        // The watch may have reported the pod meanwhile.
        if self.assumed.remove(&key).is_some() {
            self.leave(&key);
            self.pending.insert(key.clone(), pending.clone());
            self.queue.failed(key, pending.priority(), now, true);
        }
    }

    /// Marks a pod as unschedulable until something changes.
    pub(super) fn unfit(&mut self, pending: &PendingPod, now: Instant) {
        let key = pending.key();
        if self.pending.get(&key).is_some_and(|known| known.facts.uid == pending.facts.uid) {
            self.queue.failed(key, pending.priority(), now, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, cpu: &str) -> v1::Node {
        let allocatable = json!({"cpu": cpu, "memory": "32Gi", "pods": "110"});
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}})).unwrap()
    }

    fn pod(state: &mut State, name: &str, spec: Value) {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]);
        let metadata = json!({"name": name, "namespace": "ns", "uid": name});
        let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        state.put_pod(ObjectKey::new(Some("ns"), name), pod);
    }

    /// Schedules until the queue is empty; returns the pods with their nodes.
    fn decide_all(state: &mut State, now: Instant) -> Vec<(String, String)> {
        let mut bound = Vec::new();
        while let Some(decision) = state.next(now) {
            match decision {
                Decision::Bind(pending, node) => {
                    state.assume(&pending, &node);
                    bound.push((pending.pod.name_any(), node.to_string()));
                }
                Decision::Unfit(pending, _) => state.unfit(&pending, now),
                other => panic!("{other:?}"),
            }
        }
        bound
    }

    #[tokio::test(start_paused = true)]
    async fn pods_are_spread_evenly_over_nodes() {
        let (mut state, now) = (State::default(), Instant::now());
        for n in 0..1000 {
            state.put_node(&node(&format!("n-{n}"), "8"));
        }
        for n in 0..5000 {
            pod(&mut state, &format!("p-{n}"), json!({}));
        }
        assert_eq!(decide_all(&mut state, now).len(), 5000);
        assert!(state.nodes.values().all(|node| node.pods.len() == 5));
    }

    #[tokio::test(start_paused = true)]
    async fn unschedulable_pod_is_retried_after_a_change() {
        let (mut state, now) = (State::default(), Instant::now());
        state.put_node(&node("small", "150m"));
        pod(&mut state, "a", json!({"priority": 1}));
        pod(&mut state, "b", json!({}));
        assert_eq!(decide_all(&mut state, now), [("a".into(), "small".into())]);
        state.put_node(&node("large", "8"));
        assert_eq!(decide_all(&mut state, now), []);
        let later = state.next_due().unwrap();
        assert_eq!(decide_all(&mut state, later), [("b".into(), "large".into())]);
        state.remove_pod(&ObjectKey::new(Some("ns"), "a"));
        pod(&mut state, "c", json!({"nodeSelector": {"none": "such"}}));
        pod(&mut state, "d", json!({}));
        assert_eq!(decide_all(&mut state, later), [("d".into(), "large".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn pod_with_too_many_terms_is_unschedulable() {
        let (mut state, now) = (State::default(), Instant::now());
        state.put_node(&node("n", "8"));
        let terms = |count: usize| {
            let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "none"}}});
            json!({"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": vec![term; count]}}})
        };
        pod(&mut state, "most", terms(MAX_TERMS));
        assert_eq!(decide_all(&mut state, now), [("most".into(), "n".into())]);
        pod(&mut state, "more", terms(MAX_TERMS + 1));
        let Some(Decision::Unfit(_, message)) = state.next(now) else { panic!("it is scheduled") };
        let expected =
            "0/1 nodes are available: pod has 101 pod affinity terms and topology spread constraints, more than 100.";
        assert!(message.starts_with(expected), "{message}");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_binding_is_reverted() {
        let (mut state, now) = (State::default(), Instant::now());
        state.put_node(&node("n", "150m"));
        pod(&mut state, "a", json!({}));
        let Some(Decision::Bind(pending, node)) = state.next(now) else { panic!("no node") };
        state.assume(&pending, &node);
        // A stale event of the pod without its node has no effect.
        pod(&mut state, "a", json!({}));
        assert!(state.next(now).is_none());
        state.forget(&pending, now);
        let later = state.next_due().unwrap();
        assert_eq!(decide_all(&mut state, later).len(), 1);
    }
}
