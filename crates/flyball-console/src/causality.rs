//! The graph of causes: changes of objects, and reconciles between them.
//!
//! The resource version joins them: a reconcile caused by version 7 of an object follows the write that made version 7,
//! in whichever operator that happened. Without a ledger, a change of a child shortly after a change of its owner is an
//! inferred effect. Edges of operators that were merely discovered are claims, unless the API server
//! [confirms](crate::verification) them; contradicted ones are no edges, and are counted. Connected parts of the graph
//! are bursts.
//!
//! Invariant: a drawn edge leads to a later node of the topological order, so a drawing has no cycle, whatever versions
//! and times the ledgers contain. Clocks of operators may differ: times order only nodes that no edge orders.

mod bursts;

use crate::claims::ClaimStatus;
use crate::object::ObjectRef;
use crate::operators::{Operator, Reconcile};
use crate::store::Change;
use crate::summary::{bounded, items, text};
use crate::timeline::{Tone, end_of, tone_of};
use crate::verification::ClaimStatuses;
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339, rfc3339_micro};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A change within this time after a change of the owner counts as its effect.
const EFFECT_WINDOW: SignedDuration = SignedDuration::from_secs(5);
/// A version is no cause of a reconcile that began later than this: resyncs would join everything.
const CAUSE_WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// A change or a reconcile.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Node {
    /// True for a reconcile, false for a change.
    reconcile: bool,
    pub(crate) object: ObjectRef,
    pub(crate) time: String,
    #[serde(skip)]
    at: Option<Timestamp>,
    /// Verb and subresource, or outcome.
    title: String,
    /// Manager or controller.
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    version: String,
    /// ID of a reconcile.
    #[serde(skip_serializing_if = "String::is_empty")]
    id: String,
    /// Index of its operator: another operator may use the same ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took: Option<f64>,
    tone: Tone,
    /// Number of claimed writes that the API server contradicts, of a reconcile.
    #[serde(skip_serializing_if = "is_zero")]
    contradicted: usize,
    /// Number of the column: one more than the greatest of its causes.
    layer: usize,
    /// True if only unconfirmed claims name the writer.
    #[serde(skip)]
    is_claim: bool,
    /// True for an observed change.
    #[serde(skip)]
    is_observed: bool,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The evidence for an edge. The page knows it by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    /// A resource version in the ledger of an operator, or in one that the API server confirms.
    Version = 0,
    /// An owner reference and the time.
    Inferred = 1,
    /// The ledger of an operator that was merely discovered.
    Claim = 2,
}

/// A cause and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    from: usize,
    to: usize,
    evidence: Evidence,
}

/// Changes and reconciles with their edges.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    versions: BTreeMap<(ObjectRef, String), usize>,
}

impl Graph {
    /// Builds the graph. Reconciles refer to the operators by index. `refers` returns the object of a change, and the
    /// one of its owner.
    pub(crate) fn new(
        changes: &[Arc<Change>],
        reconciles: &[Reconcile],
        operators: &[Operator],
        statuses: &ClaimStatuses,
        refers: &dyn Fn(&Change) -> (ObjectRef, Option<ObjectRef>),
    ) -> Self {
        let mut graph = Self::default();
        let mut owners = BTreeMap::new();
        for change in changes {
            let (object, owner) = refers(change);
            let at = graph.observe(object, change);
            owners.extend(owner.map(|owner| (at, owner)));
        }
        // Facts come first, so that the times of claims cannot take their places.
        let claimed_by =
            |reconcile: &Reconcile| operators.get(reconcile.operator).map_or("", |operator| &operator.claimed_by);
        let (facts, claims): (Vec<&Reconcile>, Vec<&Reconcile>) =
            reconciles.iter().partition(|reconcile| claimed_by(reconcile).is_empty());
        for reconcile in facts.into_iter().chain(claims) {
            graph.add(reconcile, claimed_by(reconcile), statuses);
        }
        graph.infer(&owners);
        let Self { edges, .. } = &mut graph;
        edges.retain(|edge| edge.from != edge.to);
        edges.sort_unstable();
        edges.dedup();
        graph
    }

    fn observe(&mut self, object: ObjectRef, change: &Change) -> usize {
        let parts = if change.parts.is_empty() { String::new() } else { format!(" {}", change.parts.join(", ")) };
        let version = if change.after.is_empty() { format!("-{}", change.before) } else { change.after.clone() };
        let at = self.version(object, version, parse_rfc3339(&change.time));
        let node = &mut self.nodes[at];
        node.title = format!("{}{parts}", change.verb);
        node.by.clone_from(&change.writer);
        node.is_observed = true;
        at
    }

    /// Returns the node of a version of an object.
    fn version(&mut self, object: ObjectRef, version: String, at: Option<Timestamp>) -> usize {
        let Self { nodes, versions, .. } = self;
        *versions.entry((object.clone(), version.clone())).or_insert_with(|| {
            nodes.push(Node {
                reconcile: false,
                object,
                time: at.map(rfc3339_micro).unwrap_or_default(),
                at,
                title: "change".to_owned(),
                by: String::new(),
                version: version.strip_prefix('-').map_or(version.clone(), |_| String::new()),
                id: String::new(),
                operator: None,
                fields: Vec::new(),
                took: None,
                tone: if version.starts_with('-') { Tone::Warning } else { Tone::Neutral },
                contradicted: 0,
                layer: 0,
                is_claim: false,
                is_observed: false,
            });
            nodes.len() - 1
        })
    }

    /// Adds a reconcile with its causes and its writes. They are facts unless a Deployment claims them.
    fn add(&mut self, reconcile: &Reconcile, claimed_by: &str, statuses: &ClaimStatuses) {
        let value = &reconcile.value;
        let controller = bounded(text(&value["controller"]));
        let (evidence, by) = match claimed_by {
            "" => (Evidence::Version, controller),
            deployment => (Evidence::Claim, format!("{controller}, claimed by {deployment}")),
        };
        let (began, outcome) = (reconcile.began, text(&value["outcome"]));
        let own = self.nodes.len();
        self.nodes.push(Node {
            reconcile: true,
            object: ObjectRef::of(&value["object"]),
            time: rfc3339_micro(began),
            at: Some(began),
            title: bounded(outcome),
            by,
            version: String::new(),
            id: bounded(text(&value["id"])),
            operator: Some(reconcile.operator),
            fields: Vec::new(),
            took: value["took"].as_f64(),
            tone: tone_of(outcome),
            contradicted: 0,
            layer: 0,
            is_claim: false,
            is_observed: false,
        });
        for cause in items(&value["causes"]).filter(|cause| text(&cause["type"]) == "change") {
            let Some(version) = version_of(cause) else { continue };
            let from = self.version(ObjectRef::of(&cause["object"]), version, Some(began));
            if self.nodes[from].at.is_some_and(|at| began.duration_since(at) > CAUSE_WINDOW) {
                continue;
            }
            self.edges.push(Edge { from, to: own, evidence });
        }
        for write in items(&value["writes"]).filter(|write| text(&write["result"]) != "unchanged") {
            self.add_write(reconcile, own, write, (evidence == Evidence::Claim).then_some(statuses));
        }
    }

    /// Adds a write of the reconcile with this node. That of a claim needs a status.
    fn add_write(&mut self, reconcile: &Reconcile, own: usize, write: &Value, claims: Option<&ClaimStatuses>) {
        let Some(version) = version_of(write) else { return };
        let object = ObjectRef::of(&write["object"]);
        let status = match claims {
            Some(statuses) => statuses.of(reconcile, write),
            None => ClaimStatus::Confirmed,
        };
        let evidence = match status {
            ClaimStatus::Confirmed => Evidence::Version,
            ClaimStatus::Open => Evidence::Claim,
            ClaimStatus::Contradicted => {
                self.nodes[own].contradicted += 1;
                self.nodes[own].tone = Tone::Warning;
                return;
            }
        };
        let to = self.version(object, version, Some(end_of(reconcile)));
        self.edges.push(Edge { from: own, to, evidence });
        let (by, is_claim) = (self.nodes[own].by.clone(), status != ClaimStatus::Confirmed);
        let node = &mut self.nodes[to];
        // A claim does not take the place of what is known, and an unconfirmed one not that of another.
        if claims.is_some() && !node.by.is_empty() && (is_claim || !node.is_claim) {
            return;
        }
        (node.is_claim, node.by) = (is_claim, by);
        if is_claim && node.is_observed {
            return;
        }
        let (verb, subresource) = (text(&write["verb"]), text(&write["subresource"]));
        node.title = bounded(format!("{verb} {subresource}").trim_end());
        node.fields = items(&write["fields"]).map(|field| bounded(text(field))).collect();
    }

    /// Adds edges from the change of an owner to that of its child, for changes that no fact of a ledger explains.
    fn infer(&mut self, owners: &BTreeMap<usize, ObjectRef>) {
        let mut by_object: BTreeMap<&ObjectRef, Vec<(Timestamp, usize)>> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.reconcile) {
            by_object.entry(&node.object).or_default().extend(node.at.map(|time| (time, at)));
        }
        by_object.values_mut().for_each(|changes| changes.sort_unstable());
        let facts = self.edges.iter().filter(|edge| edge.evidence == Evidence::Version);
        let explained: BTreeSet<usize> = facts.map(|edge| edge.to).collect();
        let before = |object: &ObjectRef, time: Timestamp| {
            let changes = by_object.get(object)?;
            let last = changes[..changes.partition_point(|(at, _)| *at < time)].last()?;
            (time.duration_since(last.0) <= EFFECT_WINDOW).then_some(last.1)
        };
        let mut inferred = Vec::new();
        for (&child, owner) in owners {
            let Some(time) = self.nodes[child].at else { continue };
            if !explained.contains(&child)
                && let Some(from) = before(owner, time)
            {
                inferred.push(Edge { from, to: child, evidence: Evidence::Inferred });
            }
            // The owner's status follows the state of its children.
            let after = by_object
                .get(owner)
                .and_then(|changes| changes[changes.partition_point(|(at, _)| *at <= time)..].first().copied());
            if let Some((at, to)) = after
                && !explained.contains(&to)
                && self.nodes[to].title.contains("status")
                && at.duration_since(time) <= EFFECT_WINDOW
            {
                inferred.push(Edge { from: child, to, evidence: Evidence::Inferred });
            }
        }
        self.edges.extend(inferred);
    }
}

/// Returns the version that a cause or a write made; for a deletion, the one before with a minus sign.
fn version_of(value: &Value) -> Option<String> {
    match (text(&value["after"]), text(&value["before"])) {
        ("", "") => None,
        ("", before) => Some(format!("-{before}")),
        (after, _) => Some(after.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::LastWrites;
    use serde_json::json;

    fn object(kind: &str, name: &str) -> Value {
        json!({"group": "", "kind": kind, "namespace": "ns", "name": name})
    }

    fn reconcile(operator: usize, id: &str, began: &str, of: Value, rest: Value) -> Reconcile {
        let mut value = json!({"id": id, "controller": id, "object": of, "took": 0.01, "outcome": "success"});
        for (name, field) in rest.as_object().into_iter().flatten() {
            value[name] = field.clone();
        }
        let began = parse_rfc3339(began).expect("a time");
        Reconcile { operator, began, value: Arc::new(value) }
    }

    fn lines(described: &Value) -> Vec<String> {
        let nodes = &described["burst"]["nodes"];
        let name = |at: &Value| {
            let node = &nodes[usize::try_from(at.as_u64().expect("an index")).expect("an index")];
            let kind = if node["reconcile"] == true { "reconcile of " } else { "" };
            format!("{kind}{} {}", text(&node["object"]["name"]), text(&node["version"])).trim_end().to_owned()
        };
        let arrow = |evidence: &Value| match evidence.as_u64() {
            Some(0) => " -> ",
            Some(1) => " ~> ",
            Some(2) => " ?> ",
            _ => panic!("{evidence}"),
        };
        items(&described["burst"]["edges"])
            .map(|edge| format!("{}{}{}", name(&edge[0]), arrow(&edge[2]), name(&edge[1])))
            .collect()
    }

    #[test]
    fn versions_join_reconciles_of_different_operators() {
        let first = reconcile(
            0,
            "one",
            "2026-01-01T00:00:01Z",
            object("Shop", "a"),
            json!({
                "causes": [{"type": "change", "object": object("Shop", "a"), "before": "4", "after": "5"}],
                "writes": [{"object": object("Db", "b"), "verb": "create", "after": "7", "result": "changed"}],
            }),
        );
        let second = reconcile(
            1,
            "two",
            "2026-01-01T00:00:02Z",
            object("Db", "b"),
            json!({
                "causes": [{"type": "change", "object": object("Db", "b"), "after": "7"}, {"type": "start"}],
                "writes": [{"object": object("Pod", "p"), "verb": "delete", "before": "3", "result": "deleted"}],
            }),
        );
        let unrelated = reconcile(1, "three", "2026-01-01T00:00:03Z", object("Db", "z"), json!({}));
        let none = |_: &Change| (ObjectRef::default(), None);
        let graph = Graph::new(&[], &[second, first, unrelated], &[], &ClaimStatuses::default(), &none);
        let described = graph.describe("", None);
        let expected =
            ["a 5 -> reconcile of a", "reconcile of a -> b 7", "b 7 -> reconcile of b", "reconcile of b -> p"];
        assert_eq!(lines(&described), expected);
        assert_eq!(described["bursts"].as_array().map(Vec::len), Some(1));
        let layers: Vec<_> = items(&described["burst"]["nodes"]).map(|node| node["layer"].as_u64()).collect();
        assert_eq!(layers, [0, 1, 2, 3, 4].map(Some));
        let other = ObjectRef::of(&object("Pod", "other"));
        assert_eq!(graph.describe("", Some(&other))["burst"], Value::Null);
    }

    #[test]
    fn claims_are_other_edges_and_do_not_take_the_place_of_facts() {
        let write = |to: &str, after: &str| json!({"object": object("Db", to), "verb": "apply", "after": after});
        let ledger = |operator, id, writes: Value| {
            reconcile(operator, id, "2026-01-01T00:00:01Z", object("Shop", "a"), json!({"writes": writes}))
        };
        let fact = ledger(0, "fact", json!([write("b", "7")]));
        let claim = ledger(1, "claim", json!([write("b", "7"), write("c", "8")]));
        let claimant = Operator { claimed_by: "team-a/op".into(), ..Operator::default() };
        let operators = [Operator::default(), claimant];
        for reconciles in [[fact.clone(), claim.clone()], [claim, fact]] {
            let graph =
                Graph::new(&[], &reconciles, &operators, &ClaimStatuses::default(), &|_| (ObjectRef::default(), None));
            let described = graph.describe("", None);
            let mut found = lines(&described);
            found.sort();
            let expected = ["reconcile of a -> b 7", "reconcile of a ?> b 7", "reconcile of a ?> c 8"];
            assert_eq!(found, expected);
            let changes = items(&described["burst"]["nodes"]).filter(|node| node["reconcile"] == false);
            let mut writers: Vec<_> = changes.map(|node| text(&node["by"])).collect();
            writers.sort_unstable();
            assert_eq!(writers, ["claim, claimed by team-a/op", "fact"]);
        }
    }

    #[test]
    fn confirmed_claims_are_edges_by_version_and_contradicted_ones_are_counted() {
        let write = |to: &str| json!({"object": object("Db", to), "verb": "apply", "after": "7"});
        let writes = ["yes", "no", "open"].map(write);
        let cause = json!({"type": "change", "object": object("Shop", "a"), "after": "5"});
        let rest = json!({"causes": [cause], "writes": writes});
        let claim = reconcile(0, "claim", "2026-01-01T00:00:01Z", object("Shop", "a"), rest);
        let operators = [Operator { claimed_by: "team-a/op".into(), ..Operator::default() }];
        let (yes, no) = (write("yes"), write("no"));
        let statuses = [(&claim, &yes, ClaimStatus::Confirmed), (&claim, &no, ClaimStatus::Contradicted)];
        let statuses = ClaimStatuses::from_iter(statuses);
        let graph = Graph::new(&[], &[claim], &operators, &statuses, &|_| (ObjectRef::default(), None));
        let described = graph.describe("", None);
        let mut found = lines(&described);
        found.sort();
        // Only the operator knows the cause.
        assert_eq!(found, ["a 5 ?> reconcile of a", "reconcile of a -> yes 7", "reconcile of a ?> open 7"]);
        let node = items(&described["burst"]["nodes"]).find(|node| node["reconcile"] == true).expect("a reconcile");
        assert_eq!((&node["contradicted"], &node["tone"]), (&json!(1), &json!("warning")));
    }

    #[test]
    fn times_and_edges_of_claims_do_not_change_those_of_facts() {
        let write = |after: &str| json!([{"object": object("Db", "b"), "verb": "apply", "after": after}]);
        let ledger = |operator, id, began, writes: Value| {
            reconcile(operator, id, began, object("Shop", "a"), json!({"writes": writes}))
        };
        let fact = ledger(0, "fact", "2026-01-01T00:00:01Z", write("7"));
        let claim = ledger(1, "claim", "2099-01-01T00:00:00Z", write("7"));
        let operators = [Operator::default(), Operator { claimed_by: "team-a/op".into(), ..Operator::default() }];
        // Newest first, as the ledgers return them.
        let reconciles = [claim, fact];
        let none = |_: &Change| (ObjectRef::default(), None);
        let graph = Graph::new(&[], &reconciles, &operators, &ClaimStatuses::default(), &none);
        let described = graph.describe("", None);
        let change = items(&described["burst"]["nodes"]).find(|node| node["reconcile"] == false).expect("a change");
        assert_eq!((text(&change["time"]), text(&change["by"])), ("2026-01-01T00:00:01.010000Z", "fact"));
    }

    #[test]
    fn hostile_versions_make_no_cycle() {
        let causes = |version: &str| json!([{"type": "change", "object": object("Shop", "a"), "after": version}]);
        let writes = |version: &str| json!([{"object": object("Shop", "a"), "verb": "apply", "after": version}]);
        let first = json!({"causes": causes("1"), "writes": writes("2")});
        let second = json!({"causes": causes("2"), "writes": writes("1")});
        let own = json!({"causes": causes("9"), "writes": writes("9")});
        let reconciles = [first, second, own]
            .map(|rest| reconcile(0, &rest.to_string(), "2026-01-01T00:00:01Z", object("Shop", "a"), rest));
        let graph = Graph::new(&[], &reconciles, &[], &ClaimStatuses::default(), &|_| (ObjectRef::default(), None));
        let described = graph.describe("", None);
        assert_eq!(described["bursts"].as_array().map(Vec::len), Some(2));
        for edge in items(&described["burst"]["edges"]) {
            assert!(edge[0].as_u64() < edge[1].as_u64(), "{edge}");
        }
    }

    #[test]
    fn changes_of_children_follow_their_owner_without_a_ledger() {
        let change = |name: &str, owner: &str, second: u32, parts: Vec<&'static str>| {
            Arc::new(Change {
                sequence: 0,
                time: format!("2026-01-01T00:00:{second:02}Z"),
                id: name.into(),
                kind: 0,
                namespace: "ns".into(),
                name: name.into(),
                owner: owner.into(),
                verb: "change",
                before: "0".into(),
                after: second.to_string(),
                parts,
                writer: "w".into(),
                last_writes: LastWrites::default(),
            })
        };
        let refers = |change: &Change| {
            let of = |name: &str| ObjectRef { name: name.into(), ..ObjectRef::default() };
            (of(&change.name), Some(of(&change.owner)).filter(|owner| !owner.name.is_empty()))
        };
        let changes = [
            change("web", "", 1, vec!["spec"]),
            change("rs", "web", 2, vec!["spec"]),
            change("web", "", 4, vec!["status"]),
            change("rs", "web", 40, vec!["spec"]),
        ];
        let graph = Graph::new(&changes, &[], &[], &ClaimStatuses::default(), &refers);
        assert_eq!(lines(&graph.describe("", None)), ["web 1 ~> rs 2", "rs 2 ~> web 4"]);
    }
}
