//! The timeline of one object: writes, reconciles, writes of children, conditions and events, in the order of time.
//!
//! Sources: `managedFields`, conditions and events of the object, the journal of observed changes, and the ledgers. A
//! write that several sources know is one entry: the resource version identifies it. Claims of operators that were
//! merely discovered are marked, unless the API server [confirms](crate::verification) them; contradicted ones are
//! dropped.
//!
//! Invariant: an unconfirmed claim adds an entry of its own. It does not change or hide others.

use crate::claims::{ClaimStatus, is_manager};
use crate::fields;
use crate::object::ObjectRef;
use crate::operators::{Operator, Reconcile};
use crate::store::Change;
use crate::summary::{Summary, bounded, items, text, writer_name};
use crate::verification::ClaimStatuses;
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339, rfc3339_micro, saturating_add};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of entries; the oldest are omitted, claims before facts.
const MAX_ENTRIES: usize = 1_000;
/// Times of managed fields have whole seconds: a write of the same manager within this time is the observed one.
const SAME_WRITE: SignedDuration = SignedDuration::from_millis(2_500);

/// Row of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lane {
    /// Writes of the specification and the metadata.
    Spec,
    /// Writes of the status.
    Status,
    Reconciles,
    Children,
    Conditions,
    Events,
}

/// Tone of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    Neutral,
    Good,
    Warning,
    Bad,
}

/// One entry of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) lane: Lane,
    pub(crate) time: String,
    /// Duration in seconds, of reconciles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) took: Option<f64>,
    pub(crate) title: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
    /// Manager, controller or component.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) by: String,
    pub(crate) tone: Tone,
    /// ID of the reconcile that did this.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reconcile: String,
    /// Index of its operator: another operator may use the same ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fields: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) fields_omitted: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) version: String,
    /// The child that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<ObjectRef>,
    /// Origin of the entry.
    pub(crate) source: &'static str,
    /// Manager of an observed write, with the subresource.
    #[serde(skip)]
    writer: String,
    /// Field manager of the operator whose ledger contains the write.
    #[serde(skip)]
    manager: String,
    /// True for a write that is known to have created the object.
    #[serde(skip)]
    is_creation: bool,
}

/// Writes by object and version, so that each is one entry.
type Writes = BTreeMap<(ObjectRef, String), Entry>;
/// Unconfirmed claims of writes by operator and reconcile.
type Claims = BTreeMap<(usize, String, ObjectRef, String), Entry>;

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Entry {
    fn new(lane: Lane, time: &str, title: impl Into<String>, source: &'static str) -> Self {
        Self {
            lane,
            time: time.to_owned(),
            took: None,
            title: title.into(),
            detail: String::new(),
            by: String::new(),
            tone: Tone::Neutral,
            reconcile: String::new(),
            operator: None,
            fields: Vec::new(),
            fields_omitted: 0,
            version: String::new(),
            object: None,
            source,
            writer: String::new(),
            manager: String::new(),
            is_creation: false,
        }
    }
}

/// Everything that is known about an object.
pub(crate) struct Sources<'a> {
    pub(crate) object: &'a ObjectRef,
    /// The object, or null if it does not exist.
    pub(crate) body: &'a Value,
    pub(crate) events: &'a [Value],
    /// Observed changes of the object and of its children.
    pub(crate) changes: &'a [Arc<Change>],
    pub(crate) children: &'a [(ObjectRef, Arc<Summary>)],
    /// Reconciles of the object, and those that wrote it.
    pub(crate) reconciles: &'a [Reconcile],
    /// The operators of the reconciles, and the statuses of their claims.
    pub(crate) operators: &'a [Operator],
    pub(crate) statuses: &'a ClaimStatuses,
    /// Coordinates of the object of a change.
    pub(crate) refers: &'a dyn Fn(&Change) -> ObjectRef,
}

impl Sources<'_> {
    /// Returns the Deployment that claims a reconcile; empty for a fact.
    fn claimed_by(&self, reconcile: &Reconcile) -> &str {
        self.operators.get(reconcile.operator).map_or("", |operator| &operator.claimed_by)
    }
}

/// Builds the timeline, newest first, with the number of omitted entries.
pub(crate) fn entries(sources: &Sources<'_>) -> (Vec<Entry>, usize) {
    let mut writes = Writes::new();
    for change in sources.changes {
        let object = (sources.refers)(change);
        let entry = observed(sources.object, &object, change);
        let version = if change.after.is_empty() { format!("-{}", change.before) } else { change.after.clone() };
        writes.insert((object, version), entry);
    }
    let (mut entries, mut claims) = (Vec::new(), Claims::new());
    let (facts, claimed): (Vec<&Reconcile>, Vec<&Reconcile>) =
        sources.reconciles.iter().partition(|reconcile| sources.claimed_by(reconcile).is_empty());
    for reconcile in facts.into_iter().chain(claimed) {
        ledger(sources, reconcile, &mut entries, &mut writes, &mut claims);
    }
    for (child, summary) in sources.children {
        let is_known = writes.iter().any(|((object, _), entry)| object == child && entry.is_creation);
        if !is_known {
            let mut entry = Entry::new(Lane::Children, &summary.created, "create", "metadata");
            (entry.object, entry.tone) = (Some(child.clone()), Tone::Neutral);
            entries.push(entry);
        }
    }
    entries.extend(managed(sources.body, &writes));
    entries.extend(conditions(sources.body));
    entries.extend(sources.events.iter().map(event));
    entries.extend(lifecycle(sources.body, &writes));
    let is_unknown = |(_, _, object, version): &(usize, String, ObjectRef, String)| {
        writes.get(&(object.clone(), version.clone())).is_none_or(|known| known.by.is_empty())
    };
    entries.extend(claims.into_iter().filter(|(claim, _)| is_unknown(claim)).map(|(_, entry)| entry));
    entries.extend(writes.into_values());
    entries.sort_by_cached_key(|entry| (parse_rfc3339(&entry.time), entry.lane, entry.title.clone()));
    entries.reverse();
    let omitted = entries.len().saturating_sub(MAX_ENTRIES);
    let facts = entries.iter().filter(|entry| entry.source != "claim").count();
    let mut claims_left = MAX_ENTRIES.saturating_sub(facts);
    entries.retain(|entry| {
        let is_kept = entry.source != "claim" || claims_left > 0;
        claims_left -= usize::from(is_kept && entry.source == "claim");
        is_kept
    });
    entries.truncate(MAX_ENTRIES);
    (entries, omitted)
}

fn observed(of: &ObjectRef, object: &ObjectRef, change: &Change) -> Entry {
    let lane = match (object == of, change.parts[..] == ["status"]) {
        (false, _) => Lane::Children,
        (true, true) => Lane::Status,
        (true, false) => Lane::Spec,
    };
    let parts = if change.parts.is_empty() { String::new() } else { format!(" {}", change.parts.join(", ")) };
    let mut entry = Entry::new(lane, &change.time, format!("{}{parts}", change.verb), "observed");
    entry.by.clone_from(&change.writer);
    entry.writer.clone_from(&change.writer);
    entry.version.clone_from(&change.after);
    entry.object = (object != of).then(|| object.clone());
    entry.tone = if change.verb == "delete" { Tone::Warning } else { Tone::Neutral };
    entry.is_creation = change.verb == "create";
    entry
}

/// Tone of an outcome of a reconcile.
pub(crate) fn tone_of(outcome: &str) -> Tone {
    match outcome {
        "error" | "terminal" | "panic" | "deadline" => Tone::Bad,
        "wait" | "memory" | "paused" => Tone::Warning,
        _ => Tone::Good,
    }
}

/// Returns the end of a reconcile.
pub(crate) fn end_of(reconcile: &Reconcile) -> Timestamp {
    let took = reconcile.value["took"].as_f64().unwrap_or(0.0).clamp(0.0, 1e6);
    saturating_add(reconcile.began, SignedDuration::from_secs_f64(took))
}

/// Adds a reconcile of the object, and the writes of a reconcile. Unconfirmed claims are separate.
fn ledger(
    sources: &Sources<'_>,
    reconcile: &Reconcile,
    entries: &mut Vec<Entry>,
    writes: &mut Writes,
    claims: &mut Claims,
) {
    let (of, value) = (sources.object, &reconcile.value);
    let (operator, claimed_by) = (sources.operators.get(reconcile.operator), sources.claimed_by(reconcile));
    let (controller, source) = match (bounded(text(&value["controller"])), claimed_by) {
        (controller, "") => (controller, "ledger"),
        (controller, deployment) => (format!("{controller}, claimed by {deployment}"), "claim"),
    };
    let is_own = of.is(&value["object"]);
    let (end, id) = (rfc3339_micro(end_of(reconcile)), bounded(text(&value["id"])));
    let mut contradicted = 0_usize;
    for write in items(&value["writes"]).filter(|write| text(&write["result"]) != "unchanged") {
        let object = ObjectRef::of(&write["object"]);
        if !is_own && object != *of {
            continue;
        }
        let (after, before) = (text(&write["after"]), text(&write["before"]));
        let version = if after.is_empty() { format!("-{before}") } else { after.to_owned() };
        let status = match claimed_by {
            "" => ClaimStatus::Confirmed,
            _ => sources.statuses.of(reconcile, write),
        };
        contradicted += usize::from(status == ClaimStatus::Contradicted);
        let mut entry = written(of, &object, write, &end);
        (entry.by, entry.reconcile, entry.operator) = (controller.clone(), id.clone(), Some(reconcile.operator));
        match status {
            ClaimStatus::Contradicted => continue,
            ClaimStatus::Open => {
                entry.source = "claim";
                claims.entry((reconcile.operator, id.clone(), object, version)).or_insert(entry);
                continue;
            }
            ClaimStatus::Confirmed => {}
        }
        entry.manager = operator.map(|operator| bounded(operator.field_manager())).unwrap_or_default();
        entry.is_creation = claimed_by.is_empty() && text(&write["verb"]) == "create";
        if let Some(known) = writes.get(&(object.clone(), version.clone())) {
            // A confirmed claim does not take the place of the ledger of a named operator.
            if !claimed_by.is_empty() && known.source == "ledger" {
                continue;
            }
            // The observation is earlier than the end of the reconcile.
            (entry.time, entry.writer) = (known.time.clone(), known.writer.clone());
            entry.tone = if entry.tone == Tone::Neutral { known.tone } else { entry.tone };
            entry.is_creation |= known.is_creation;
        }
        writes.insert((object, version), entry);
    }
    if is_own {
        let outcome = text(&value["outcome"]);
        let mut entry = Entry::new(Lane::Reconciles, &rfc3339_micro(reconcile.began), outcome, source);
        entry.took = value["took"].as_f64();
        entry.detail = bounded(text(&value["error"]));
        (entry.by, entry.reconcile, entry.operator) = (controller, id, Some(reconcile.operator));
        entry.tone = tone_of(outcome);
        if contradicted > 0 {
            let text = format!("the API server contradicts {contradicted} claimed write(s)");
            entry.detail = if entry.detail.is_empty() { text } else { format!("{text}; {}", entry.detail) };
            entry.tone = Tone::Warning;
        }
        entries.push(entry);
    }
}

/// Describes a write of a reconcile.
fn written(of: &ObjectRef, object: &ObjectRef, write: &Value, end: &str) -> Entry {
    let (verb, subresource) = (text(&write["verb"]), text(&write["subresource"]));
    let lane = match (object == of, subresource == "status") {
        (false, _) => Lane::Children,
        (true, true) => Lane::Status,
        (true, false) => Lane::Spec,
    };
    let title = if subresource.is_empty() { verb.to_owned() } else { format!("{verb} {subresource}") };
    let mut entry = Entry::new(lane, end, bounded(&title), "ledger");
    entry.fields = items(&write["fields"]).map(|field| bounded(text(field))).collect();
    entry.fields_omitted = usize::try_from(write["fieldsOmitted"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    text(&write["after"]).clone_into(&mut entry.version);
    entry.object = (object != of).then(|| object.clone());
    if text(&write["result"]) == "unknown" {
        (entry.tone, entry.detail) = (Tone::Warning, "the result is unknown".to_owned());
    }
    entry
}

/// Returns the last write of each manager, unless it was observed.
fn managed<'a>(body: &'a Value, writes: &'a Writes) -> impl Iterator<Item = Entry> + 'a {
    items(&body["metadata"]["managedFields"]).filter_map(|managed| {
        let (manager, time) = (bounded(text(&managed["manager"])), text(&managed["time"]));
        let at = parse_rfc3339(time)?;
        let subresource = text(&managed["subresource"]);
        let lane = if subresource == "status" { Lane::Status } else { Lane::Spec };
        let name = writer_name(&manager, &bounded(subresource));
        let is_same = |entry: &Entry| {
            let since = parse_rfc3339(&entry.time).map(|time| time.duration_since(at).abs());
            let is_writer = entry.writer == name || entry.writer == manager || is_manager(&entry.manager, &manager);
            entry.lane == lane && since.is_some_and(|since| since <= SAME_WRITE) && is_writer
        };
        if writes.values().any(is_same) {
            return None;
        }
        let verb = if text(&managed["operation"]) == "Apply" { "last apply" } else { "last update" };
        let title = if subresource.is_empty() { verb.to_owned() } else { format!("{verb} {subresource}") };
        let mut entry = Entry::new(lane, time, bounded(&title), "managedFields");
        (entry.fields, entry.fields_omitted) = fields::paths(&managed["fieldsV1"]);
        entry.by = manager;
        Some(entry)
    })
}

fn conditions(body: &Value) -> impl Iterator<Item = Entry> {
    items(&body["status"]["conditions"]).filter_map(|condition| {
        let since = [&condition["lastTransitionTime"], &condition["lastUpdateTime"]];
        let time = since.into_iter().map(text).find(|time| !time.is_empty())?;
        let title = format!("{} is {}", text(&condition["type"]), text(&condition["status"]));
        let mut entry = Entry::new(Lane::Conditions, time, bounded(&title), "conditions");
        entry.detail = match (text(&condition["reason"]), text(&condition["message"])) {
            (reason, "") => bounded(reason),
            ("", message) => bounded(message),
            (reason, message) => bounded(&format!("{reason}: {message}")),
        };
        entry.tone = if condition["status"] == "True" { Tone::Good } else { Tone::Neutral };
        Some(entry)
    })
}

fn event(event: &Value) -> Entry {
    let times = [&event["lastTimestamp"], &event["series"]["lastObservedTime"], &event["eventTime"]];
    let created = text(&event["metadata"]["creationTimestamp"]);
    let time = times.into_iter().map(text).find(|time| !time.is_empty()).unwrap_or(created);
    let count = event["series"]["count"].as_u64().or_else(|| event["count"].as_u64()).unwrap_or(1);
    let times = if count > 1 { format!(" ×{count}") } else { String::new() };
    let mut entry = Entry::new(Lane::Events, time, bounded(&format!("{}{times}", text(&event["reason"]))), "events");
    entry.detail = bounded(text(&event["message"]));
    let component = [&event["reportingComponent"], &event["source"]["component"]];
    entry.by = component.into_iter().map(text).find(|by| !by.is_empty()).map(bounded).unwrap_or_default();
    entry.tone = if event["type"] == "Warning" { Tone::Bad } else { Tone::Neutral };
    entry.reconcile = bounded(text(&event["metadata"]["annotations"]["flyball.dev/reconcile"]));
    entry
}

/// Creation and requested deletion.
fn lifecycle(body: &Value, writes: &Writes) -> Vec<Entry> {
    let metadata = &body["metadata"];
    let mut entries = Vec::new();
    let is_created = writes.values().any(|entry| entry.object.is_none() && entry.is_creation);
    if let (Some(time), false) = (metadata["creationTimestamp"].as_str(), is_created) {
        entries.push(Entry::new(Lane::Spec, time, "created", "metadata"));
    }
    if let Some(time) = metadata["deletionTimestamp"].as_str() {
        let mut entry = Entry::new(Lane::Spec, time, "deletion requested", "metadata");
        entry.tone = Tone::Warning;
        entries.push(entry);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::LastWrites;
    use serde_json::json;

    fn reference(kind: &str, name: &str) -> ObjectRef {
        ObjectRef { group: String::new(), kind: kind.into(), namespace: "ns".into(), name: name.into() }
    }

    fn reconcile(value: Value) -> Reconcile {
        let began = parse_rfc3339("2026-01-01T00:00:10Z").expect("a time");
        Reconcile { operator: 0, began, value: Arc::new(value) }
    }

    fn change(id: &str, after: &str, verb: &'static str, parts: Vec<&'static str>) -> Arc<Change> {
        Arc::new(Change {
            sequence: 1,
            time: "2026-01-01T00:00:10.400000Z".into(),
            id: id.into(),
            kind: 0,
            namespace: "ns".into(),
            name: id.into(),
            owner: String::new(),
            verb,
            before: String::new(),
            after: after.into(),
            parts,
            writer: "op".into(),
            last_writes: LastWrites::default(),
        })
    }

    #[test]
    fn write_that_several_sources_have_is_one_entry() {
        let body = json!({"metadata": {"managedFields": [
            {"manager": "op", "operation": "Apply", "subresource": "status", "time": "2026-01-01T00:00:10Z"},
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:00:09Z",
             "fieldsV1": {"f:spec": {"f:size": {}}}},
        ]}});
        let object = |kind: &str, name: &str| json!({"group": "", "kind": kind, "namespace": "ns", "name": name});
        let own = reconcile(json!({
            "id": "7", "controller": "shop", "object": object("Shop", "a"), "outcome": "success", "took": 0.5,
            "writes": [
                {"object": object("Pod", "p"), "verb": "create", "after": "12", "result": "changed"},
                {"object": object("Shop", "a"), "verb": "apply", "subresource": "status", "after": "13",
                 "result": "changed", "fields": ["status.ready"]},
                {"object": object("Pod", "q"), "verb": "apply", "after": "9", "result": "unchanged"},
            ],
        }));
        let changes = [change("a", "13", "change", vec!["status"]), change("p", "12", "create", vec![])];
        let refers = |change: &Change| reference(if change.id == "a" { "Shop" } else { "Pod" }, &change.id);
        let (entries, omitted) = entries(&Sources {
            object: &reference("Shop", "a"),
            body: &body,
            events: &[],
            changes: &changes,
            children: &[],
            reconciles: &[own],
            operators: &[],
            statuses: &ClaimStatuses::default(),
            refers: &refers,
        });
        let texts: Vec<String> = entries
            .iter()
            .map(|entry| format!("{:?} {} {} {:?} {}", entry.lane, entry.title, entry.by, entry.fields, entry.source))
            .collect();
        let expected = [
            "Children create shop [] ledger",
            r#"Status apply status shop ["status.ready"] ledger"#,
            "Reconciles success shop [] ledger",
            r#"Spec last update kubectl-edit ["spec.size"] managedFields"#,
        ];
        // The observed times precede the end of the reconcile.
        assert_eq!(texts, expected);
        assert_eq!(omitted, 0);
    }
    #[test]
    fn claims_are_marked_unless_the_api_server_confirms_or_contradicts_them() {
        let object = |kind: &str, name: &str| json!({"group": "", "kind": kind, "namespace": "ns", "name": name});
        let write = |name: &str| json!({"object": object("Pod", name), "verb": "create", "after": "12"});
        let names = ["yes", "no", "open", "known"];
        let claim = reconcile(json!({
            "id": "7", "controller": "shop", "object": object("Shop", "a"), "outcome": "success",
            "writes": names.map(write),
        }));
        let changes = ["yes", "no", "known"].map(|name| change(name, "12", "change", vec!["spec"]));
        let operators = [Operator { claimed_by: "team-a/op".into(), ..Operator::default() }];
        let (yes, no) = (write("yes"), write("no"));
        let statuses = [(&claim, &yes, ClaimStatus::Confirmed), (&claim, &no, ClaimStatus::Contradicted)];
        let statuses = ClaimStatuses::from_iter(statuses);
        let (entries, _) = entries(&Sources {
            object: &reference("Shop", "a"),
            body: &Value::Null,
            events: &[],
            changes: &changes,
            children: &[],
            reconciles: &[claim],
            operators: &operators,
            statuses: &statuses,
            refers: &|change| reference("Pod", &change.id),
        });
        let mut texts: Vec<String> = entries
            .iter()
            .map(|entry| {
                let name = entry.object.as_ref().map_or("", |object| object.name.as_str());
                format!("{name}: {}, {} by {}: {}", entry.source, entry.title, entry.by, entry.detail)
            })
            .collect();
        texts.sort();
        let expected = [
            ": claim, success by shop, claimed by team-a/op: the API server contradicts 1 claimed write(s)",
            "known: observed, change spec by op: ",
            "no: observed, change spec by op: ",
            "open: claim, create by shop, claimed by team-a/op: ",
            "yes: ledger, create by shop, claimed by team-a/op: ",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn claims_do_not_hide_or_change_facts() {
        let object = |kind: &str, name: &str| json!({"group": "", "kind": kind, "namespace": "ns", "name": name});
        let metadata = json!({"creationTimestamp": "2026-01-01T00:00:10Z", "managedFields": [
            {"manager": "mallory", "operation": "Apply", "time": "2026-01-01T00:00:10Z"},
        ]});
        let (shop, pod) = (reference("Shop", "a"), reference("Pod", "p"));
        let write = |kind: &str, name: &str, verb: &str, after: &str| {
            let object = object(kind, name);
            json!({"object": object, "verb": verb, "after": after, "result": "unknown"})
        };
        let writes =
            [write("Shop", "a", "create", "5"), write("Pod", "p", "create", "6"), write("Shop", "a", "apply", "7")];
        let claim = reconcile(json!({"id": "claim", "controller": "bad", "object": object("Job", "j"),
            "outcome": "success", "writes": writes}));
        // Claims may have any time, and are before facts if they are newer.
        let began = parse_rfc3339("2099-01-01T00:00:00Z").expect("a time");
        let future = Reconcile { began, ..claim.clone() };
        let mut write = write("Shop", "a", "apply", "7");
        write["result"] = "changed".into();
        let fact = Reconcile {
            operator: 1,
            ..reconcile(json!({"id": "fact", "controller": "shop", "object": object("Job", "j"), "took": 0.5,
                "outcome": "success", "writes": [write]}))
        };
        let body = json!({"apiVersion": "v1", "metadata": {"uid": "u", "creationTimestamp": "2026-01-01T00:00:09Z"}});
        let child = Arc::new(Summary::of(0, &body, began));
        let claimant = Operator { claimed_by: "team-a/op".into(), ..Operator::default() };
        let operators = [claimant, Operator::default()];
        let texts = |reconciles: &[Reconcile]| -> Vec<String> {
            let (entries, _) = entries(&Sources {
                object: &shop,
                body: &json!({"metadata": metadata}),
                events: &[],
                changes: &[],
                children: &[(pod.clone(), child.clone())],
                reconciles,
                operators: &operators,
                statuses: &ClaimStatuses::default(),
                refers: &|change| reference("Pod", &change.id),
            });
            let facts = entries.iter().filter(|entry| entry.source != "claim");
            facts.map(|entry| format!("{} {} {} {:?}", entry.time, entry.title, entry.by, entry.tone)).collect()
        };
        let expected = [
            "2026-01-01T00:00:10.500000Z apply shop Neutral",
            "2026-01-01T00:00:10Z last apply mallory Neutral",
            "2026-01-01T00:00:10Z created  Neutral",
            "2026-01-01T00:00:09Z create  Neutral",
        ];
        for reconciles in [vec![fact.clone()], vec![future, fact.clone()], vec![claim, fact]] {
            let (mut found, mut expected) = (texts(&reconciles), expected.to_vec());
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}
