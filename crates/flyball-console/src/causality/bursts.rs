//! Bursts: the connected parts of a graph, in topological order, and the drawing of one.

use super::{Edge, Graph, Node};
use crate::object::ObjectRef;
use crate::timeline::Tone;
use flyball_core::time::{Timestamp, rfc3339_micro};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Limit of bursts in the list.
const MAX_BURSTS: usize = 40;
/// Limit of nodes of the graph of one burst; the newest are omitted.
const MAX_NODES: usize = 240;

impl Graph {
    /// Returns the bursts, newest first: the nodes of each in the order of time.
    fn bursts(&self) -> Vec<Vec<usize>> {
        let mut parents: Vec<usize> = (0..self.nodes.len()).collect();
        for edge in &self.edges {
            let (a, b) = (root(&mut parents, edge.from), root(&mut parents, edge.to));
            parents[a.max(b)] = a.min(b);
        }
        let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for node in 0..self.nodes.len() {
            let root = root(&mut parents, node);
            parts.entry(root).or_default().push(node);
        }
        let latest = |burst: &Vec<usize>| burst.iter().map(|node| (self.nodes[*node].at, *node)).max();
        let mut bursts: Vec<Vec<usize>> = parts.into_values().filter(|part| part.len() > 1).collect();
        bursts.sort_by_key(|burst| Reverse(latest(burst)));
        let order = TopologicalOrder::of(self);
        bursts.iter_mut().for_each(|burst| burst.sort_by_key(|node| order.0[*node]));
        bursts
    }

    /// Describes the bursts and the graph of one: the one with this key, otherwise the newest. With an object, only
    /// bursts that it is part of.
    pub(crate) fn describe(&self, key: &str, object: Option<&ObjectRef>) -> Value {
        let is_part = |burst: &&Vec<usize>| {
            object.is_none_or(|object| burst.iter().any(|node| self.nodes[*node].object == *object))
        };
        let all = self.bursts();
        let bursts: Vec<&Vec<usize>> = all.iter().filter(is_part).collect();
        let chosen = bursts.iter().find(|burst| self.key(burst) == key).or_else(|| bursts.first());
        let listed = bursts.iter().take(MAX_BURSTS).map(|burst| self.burst(burst));
        json!({
            "bursts": listed.collect::<Vec<_>>(), "omitted": bursts.len().saturating_sub(MAX_BURSTS),
            "burst": chosen.map(|burst| self.drawing(burst)),
        })
    }

    /// Returns the key of a burst, which stays while it grows: its first node.
    fn key(&self, burst: &[usize]) -> String {
        let Some(node) = burst.first().map(|first| &self.nodes[*first]) else { return String::new() };
        format!("{}/{}/{}/{}{}", node.object.kind, node.object.namespace, node.object.name, node.version, node.id)
    }

    fn burst(&self, burst: &[usize]) -> Value {
        let nodes = || burst.iter().map(|node| &self.nodes[*node]);
        let mut controllers: Vec<&str> = nodes().filter(|node| node.reconcile).map(|node| node.by.as_str()).collect();
        controllers.sort_unstable();
        controllers.dedup();
        let first = nodes().next();
        let times = || nodes().filter_map(|node| node.at);
        let text = |time: Option<Timestamp>| time.map(rfc3339_micro);
        json!({
            "key": self.key(burst), "began": text(times().min()), "ended": text(times().max()),
            "object": first.map(|node| &node.object), "title": first.map(|node| &node.title),
            "by": first.map(|node| &node.by), "controllers": controllers,
            "reconciles": nodes().filter(|node| node.reconcile).count(),
            "changes": nodes().filter(|node| !node.reconcile).count(),
            "failed": nodes().any(|node| node.tone == Tone::Bad),
        })
    }

    /// Returns nodes with their layers, and edges by index.
    fn drawing(&self, burst: &[usize]) -> Value {
        let chosen = &burst[..burst.len().min(MAX_NODES)];
        let index: BTreeMap<usize, usize> = chosen.iter().enumerate().map(|(to, from)| (*from, to)).collect();
        let mut nodes: Vec<Node> = chosen.iter().map(|node| self.nodes[*node].clone()).collect();
        let mut edges: Vec<Edge> = Vec::new();
        for edge in &self.edges {
            if let (Some(&from), Some(&to)) = (index.get(&edge.from), index.get(&edge.to)) {
                edges.push(Edge { from, to, evidence: edge.evidence });
            }
        }
        // In the order of their sources, since each of these comes before its effects.
        edges.retain(|edge| edge.from < edge.to);
        edges.sort_unstable();
        for edge in &edges {
            nodes[edge.to].layer = nodes[edge.to].layer.max(nodes[edge.from].layer + 1);
        }
        let edges = edges.iter().map(|edge| json!([edge.from, edge.to, edge.evidence as u8]));
        json!({
            "key": self.key(burst), "nodes": nodes, "edges": edges.collect::<Vec<_>>(),
            "omitted": burst.len() - chosen.len(),
        })
    }
}

/// The position of each node: after its causes, otherwise by time.
struct TopologicalOrder(Vec<usize>);

impl TopologicalOrder {
    fn of(graph: &Graph) -> Self {
        let mut effects: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
        let mut causes = vec![0_usize; graph.nodes.len()];
        for edge in &graph.edges {
            effects[edge.from].push(edge.to);
            causes[edge.to] += 1;
        }
        let rank = |node: usize| (graph.nodes[node].at, node);
        let mut waiting: BTreeSet<_> = (0..graph.nodes.len()).map(rank).collect();
        let mut free: BTreeSet<_> = waiting.iter().filter(|(_, node)| causes[*node] == 0).copied().collect();
        let mut positions = vec![0; graph.nodes.len()];
        // In a cycle, no node is free: the earliest one begins.
        while let Some(next) = free.pop_first().or_else(|| waiting.first().copied()) {
            waiting.remove(&next);
            positions[next.1] = graph.nodes.len() - waiting.len();
            for effect in &effects[next.1] {
                causes[*effect] = causes[*effect].saturating_sub(1);
                if causes[*effect] == 0 && waiting.contains(&rank(*effect)) {
                    free.insert(rank(*effect));
                }
            }
        }
        Self(positions)
    }
}

fn root(parents: &mut [usize], mut node: usize) -> usize {
    while parents[node] != node {
        parents[node] = parents[parents[node]];
        node = parents[node];
    }
    node
}
