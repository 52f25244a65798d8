//! Summary of an object: identity, owner, state and health, as a row of the console shows them.
//!
//! A pure function of the object. Texts are bounded; no field of `spec` or `data` is copied.

use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339, saturating_add};
use serde::Serialize;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Limit of a text of a summary, in characters.
const MAX_TEXT_CHARS: usize = 240;
/// Times of writes that are this close have no certain order: clocks of API servers differ.
const WRITE_WINDOW: SignedDuration = SignedDuration::from_secs(2);
/// Limit of the writes in this window.
const MAX_WRITES: usize = 8;
/// Managed fields may contain any time, since clients can send them. Those later than now are ignored, except for
/// differences of clocks.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(10);
/// Annotation that pauses an object for Flyball's operators.
pub(crate) const PAUSED_ANNOTATION: &str = "flyball.dev/paused";

/// Health of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// Ready, or without a state.
    Ready,
    /// On the way.
    Progressing,
    /// Failed, and unlikely to become ready without a change.
    Failed,
    /// The object reports nothing.
    None,
}

/// A row of the view of objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// UID; for objects without one, kind, namespace and name.
    pub(crate) id: String,
    /// Index of the kind.
    pub(crate) kind: usize,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// UID of the controller, or of the only owner.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) owner: String,
    pub(crate) state: String,
    pub(crate) health: Health,
    /// Cause of a state other than ready.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    pub(crate) created: String,
    pub(crate) version: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleting: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) paused: bool,
    /// Hashes of the parts of the object, to name the part that a change concerns.
    #[serde(skip)]
    pub(crate) parts: Parts,
    /// The last writes.
    #[serde(skip)]
    pub(crate) last_writes: LastWrites,
}

/// A write in the managed fields of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagedWrite {
    pub(crate) manager: String,
    /// Subresource, empty for none.
    pub(crate) subresource: String,
    pub(crate) time: Option<Timestamp>,
}

/// The newest writes in the managed fields of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastWrites {
    /// The newest one first. Times have whole seconds.
    pub(crate) writes: Vec<ManagedWrite>,
    /// True if one of them made the version, as far as known.
    pub(crate) is_of_version: bool,
}

impl LastWrites {
    fn of(object: &Value, now: Timestamp) -> Self {
        let is_past = |entry: &&Value| parse_rfc3339(text(&entry["time"])).is_none_or(|time| !is_future(time, now));
        let mut entries: Vec<&Value> = items(&object["metadata"]["managedFields"]).filter(is_past).collect();
        entries.sort_by_key(|entry| text(&entry["time"]));
        let write = |entry: &Value| ManagedWrite {
            manager: bounded(text(&entry["manager"])),
            subresource: bounded(text(&entry["subresource"])),
            time: parse_rfc3339(text(&entry["time"])),
        };
        let newest = entries.last().and_then(|entry| parse_rfc3339(text(&entry["time"])));
        let is_last = |write: &ManagedWrite| match (newest, write.time) {
            (Some(newest), Some(time)) => saturating_add(time, WRITE_WINDOW) >= newest,
            (newest, time) => newest == time,
        };
        let mut last = entries.into_iter().rev().map(write).take_while(is_last);
        let writes: Vec<ManagedWrite> = last.by_ref().take(MAX_WRITES).collect();
        let is_of_version = !writes.is_empty() && last.next().is_none();
        Self { writes, is_of_version }
    }

    /// Returns them for the version that follows one with other writes. If the newest write is that of the version
    /// before, the one that made this version is unknown: a write that only removes fields may leave no entry.
    pub(crate) fn after(&self, before: Option<&Self>) -> Self {
        let is_known = before.is_some_and(|before| before.writes.first() == self.writes.first());
        Self { is_of_version: self.is_of_version && !is_known, ..self.clone() }
    }

    /// Returns the writer of the version that follows another one: the only manager that wrote since, with the
    /// subresource. Empty if there is none: a binding or a request for deletion, for example, is no managed field.
    pub(crate) fn writer(&self, before: &Self) -> String {
        let newest = before.writes.first().and_then(|write| write.time);
        let is_new = |write: &&ManagedWrite| {
            // An older one was already there, and merely was not among the last writes.
            let is_late = newest.is_none_or(|newest| write.is_near(newest) || write.time > Some(newest));
            is_late && !before.writes.contains(write)
        };
        // With this many, the last ones are not all known.
        let is_known = before.writes.len() < MAX_WRITES;
        only(self.writes.iter().filter(|write| is_known && is_new(write)))
    }

    /// Returns the creator of an object that was created at this time; empty if it is unknown.
    pub(crate) fn creator(&self, created: &str) -> String {
        let created = parse_rfc3339(created);
        let is_creation = |write: &&ManagedWrite| {
            write.subresource.is_empty() && created.is_some_and(|created| write.is_near(created))
        };
        only(self.writes.iter().filter(is_creation))
    }
}

impl ManagedWrite {
    fn is_near(&self, time: Timestamp) -> bool {
        self.time.is_some_and(|own| own.duration_since(time).abs() <= WRITE_WINDOW)
    }
}

/// Returns the name of the only writer; empty for none and for several.
fn only<'a>(mut writes: impl Iterator<Item = &'a ManagedWrite>) -> String {
    match (writes.next(), writes.next()) {
        (Some(write), None) => writer_name(&write.manager, &write.subresource),
        _ => String::new(),
    }
}

/// Returns the name of a manager with the subresource that it wrote.
pub(crate) fn writer_name(manager: &str, subresource: &str) -> String {
    if subresource.is_empty() { manager.to_owned() } else { format!("{manager} ({subresource})") }
}

/// Returns true for times of managed fields that are no evidence, because they are later than now.
pub(crate) fn is_future(time: Timestamp, now: Timestamp) -> bool {
    time > saturating_add(now, MAX_CLOCK_SKEW)
}

/// Hashes of the parts of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    metadata: u64,
    status: u64,
    rest: u64,
}

impl Parts {
    fn of(object: &Value) -> Self {
        let mut parts = Self::default();
        for (field, value) in object.as_object().into_iter().flatten() {
            match field.as_str() {
                "apiVersion" | "kind" => {}
                "metadata" => {
                    let fields = ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"];
                    parts.metadata = hash_of(fields.map(|field| value[field].to_string()));
                }
                "status" => parts.status = hash_of(value.to_string()),
                field => parts.rest ^= hash_of((field, value.to_string())),
            }
        }
        parts
    }

    /// Returns the parts that differ.
    pub(crate) fn difference(self, before: Self) -> Vec<&'static str> {
        let parts = [
            ("metadata", self.metadata != before.metadata),
            ("spec", self.rest != before.rest),
            ("status", self.status != before.status),
        ];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part).collect()
    }
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Summary {
    /// Summarizes an object of the kind with this index, which was read now.
    pub(crate) fn of(kind: usize, object: &Value, now: Timestamp) -> Self {
        let metadata = &object["metadata"];
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        let (state, health, reason) = state(object);
        Self {
            id: match text(&metadata["uid"]) {
                "" => format!("{kind}/{namespace}/{name}"),
                uid => uid.to_owned(),
            },
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            owner: owner(object).to_owned(),
            state: bounded(&state),
            health,
            reason: bounded(&reason),
            created: text(&metadata["creationTimestamp"]).to_owned(),
            version: text(&metadata["resourceVersion"]).to_owned(),
            deleting: metadata["deletionTimestamp"].is_string(),
            paused: metadata["annotations"][PAUSED_ANNOTATION] == "true",
            parts: Parts::of(object),
            last_writes: LastWrites::of(object, now),
        }
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Shortens a text to the limit.
pub(crate) fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the UID of the controller, or of the only owner.
fn owner(object: &Value) -> &str {
    let owners = &object["metadata"]["ownerReferences"];
    let controller = items(owners).find(|owner| owner["controller"] == true);
    let only = || items(owners).next().filter(|_| items(owners).count() == 1);
    controller.or_else(only).map(|owner| text(&owner["uid"])).unwrap_or_default()
}

/// State, health and reason.
type State = (String, Health, String);

fn state(object: &Value) -> State {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    if metadata["deletionTimestamp"].is_string() {
        let finalizers: Vec<&str> = items(&metadata["finalizers"]).map(text).collect();
        let reason = match finalizers[..] {
            [] => String::new(),
            _ => format!("waits for finalizers: {}", finalizers.join(", ")),
        };
        return ("Terminating".into(), Health::Progressing, reason);
    }
    if object["kind"] == "Pod" || status["containerStatuses"].is_array() {
        return pod_state(status);
    }
    let failed = condition(status, &["Failed", "Failure", "Stalled", "Degraded", "ReplicaFailure"], "True");
    if let Some(failed) = failed {
        return (text(&failed["type"]).to_owned(), Health::Failed, explanation(failed));
    }
    if let Some(state) = replicas(object) {
        return state;
    }
    let (generation, observed) = (metadata["generation"].as_i64(), status["observedGeneration"].as_i64());
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        let reason = format!("generation {observed} of {generation} is observed");
        return ("Updating".into(), Health::Progressing, reason);
    }
    let decisive = ["Ready", "Available", "Complete", "Succeeded", "Established"];
    if let Some(ready) = condition(status, &decisive, "True") {
        return (text(&ready["type"]).to_owned(), Health::Ready, String::new());
    }
    if let Some(waits) = condition(status, &decisive, "False").or_else(|| condition(status, &decisive, "Unknown")) {
        let state = if waits["status"] == "False" { "Not" } else { "Unknown" };
        let state = format!("{state} {}", text(&waits["type"]).to_lowercase());
        return (state, Health::Progressing, explanation(waits));
    }
    match text(&status["phase"]) {
        "" => (String::new(), Health::None, String::new()),
        phase => (phase.to_owned(), phase_health(phase), bounded(text(&status["message"]))),
    }
}

fn phase_health(phase: &str) -> Health {
    match phase {
        "Active" | "Available" | "Bound" | "Complete" | "Completed" | "Ready" | "Running" | "Succeeded" => {
            Health::Ready
        }
        "Error" | "Failed" | "Lost" => Health::Failed,
        "Creating" | "Deleting" | "Installing" | "Pending" | "Progressing" | "Terminating" | "Updating" => {
            Health::Progressing
        }
        _ => Health::None,
    }
}

fn condition<'o>(status: &'o Value, types: &[&str], value: &str) -> Option<&'o Value> {
    let is_of = |name: &str| items(&status["conditions"]).find(|each| each["type"] == name && each["status"] == value);
    types.iter().find_map(|name| is_of(name))
}

/// Returns reason and message of a condition.
fn explanation(condition: &Value) -> String {
    match (text(&condition["reason"]), text(&condition["message"])) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// State of a kind with replicas.
fn replicas(object: &Value) -> Option<State> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let count = |fields: [&str; 2]| fields.iter().find_map(|field| status[*field].as_i64());
    let desired = spec["replicas"].as_i64().or_else(|| status["desiredNumberScheduled"].as_i64())?;
    // Kinds that merely have a field of this name report readiness by conditions.
    let counts = ["readyReplicas", "numberReady", "replicas", "unavailableReplicas"];
    if !counts.iter().any(|field| status[*field].is_i64()) {
        return None;
    }
    let ready = count(["readyReplicas", "numberReady"]).unwrap_or(0);
    let health = if ready >= desired { Health::Ready } else { Health::Progressing };
    let waits = condition(status, &["Ready", "Available", "Progressing"], "False").map(explanation);
    let reason = if health == Health::Ready { None } else { waits };
    Some((format!("{ready}/{desired}"), health, reason.unwrap_or_default()))
}

/// Reasons of a waiting container that do not resolve by themselves.
const FAILED_REASONS: &[&str] = &[
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

fn pod_state(status: &Value) -> State {
    let containers = || items(&status["initContainerStatuses"]).chain(items(&status["containerStatuses"]));
    for container in containers() {
        let (name, waiting) = (text(&container["name"]), &container["state"]["waiting"]);
        if FAILED_REASONS.contains(&text(&waiting["reason"])) {
            let reason = format!("container {name}: {}", text(&waiting["message"]));
            return (text(&waiting["reason"]).to_owned(), Health::Failed, reason);
        }
    }
    let phase = text(&status["phase"]);
    match phase {
        "Succeeded" => (phase.into(), Health::Ready, String::new()),
        "Failed" => (phase.into(), Health::Failed, explanation(status)),
        "Running" if condition(status, &["Ready"], "True").is_some() => (phase.into(), Health::Ready, String::new()),
        "Running" => {
            let waits = condition(status, &["Ready"], "False").map(explanation).unwrap_or_default();
            ("Not ready".into(), Health::Progressing, waits)
        }
        _ => {
            let unscheduled = condition(status, &["PodScheduled"], "False").map(explanation).unwrap_or_default();
            let state = if phase.is_empty() { "Pending" } else { phase };
            (state.into(), Health::Progressing, unscheduled)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn check(object: &Value, expected: (&str, Health, &str)) {
        let (state, health, reason) = state(object);
        assert_eq!((state.as_str(), health, reason.as_str()), expected, "{object}");
    }

    #[test]
    fn state_depends_on_the_kind() {
        let crashing = json!({"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "exit 1"}}, "name": "c"});
        let ready = json!({"type": "Ready", "status": "True"});
        let waits = json!({"type": "Ready", "status": "False", "reason": "Wait", "message": "for two"});
        check(&json!({}), ("", Health::None, ""));
        check(&json!({"status": {"conditions": [ready]}}), ("Ready", Health::Ready, ""));
        check(&json!({"status": {"conditions": [waits]}}), ("Not ready", Health::Progressing, "Wait: for two"));
        check(
            &json!({"kind": "Pod", "status": {"phase": "Running", "containerStatuses": [crashing]}}),
            ("CrashLoopBackOff", Health::Failed, "container c: exit 1"),
        );
        check(
            &json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 1, "conditions": [waits]}}),
            ("1/3", Health::Progressing, "Wait: for two"),
        );
        check(
            &json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 2, "conditions": [ready]}}),
            ("Updating", Health::Progressing, "generation 2 of 3 is observed"),
        );
        check(
            &json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b", "c"]}}),
            ("Terminating", Health::Progressing, "waits for finalizers: a/b, c"),
        );
        check(&json!({"spec": {"replicas": 3}, "status": {"replicas": 3}}), ("0/3", Health::Progressing, ""));
        check(&json!({"spec": {"replicas": 3}, "status": {"conditions": [ready]}}), ("Ready", Health::Ready, ""));
        let failure = json!({"type": "Failure", "status": "True", "reason": "NoData", "message": "no source"});
        check(&json!({"status": {"conditions": [failure]}}), ("Failure", Health::Failed, "NoData: no source"));
        check(&json!({"status": {"phase": "Bound"}}), ("Bound", Health::Ready, ""));
    }

    #[test]
    fn changed_parts_are_named() {
        let object = json!({"metadata": {"resourceVersion": "1"}, "spec": {"a": 1}, "status": {"b": 1}, "data": {}});
        let changed = |path: &str, value: Value| {
            let mut other = object.clone();
            *other.pointer_mut(path).expect("the path exists") = value;
            Parts::of(&other).difference(Parts::of(&object))
        };
        assert_eq!(changed("/metadata/resourceVersion", json!("2")), Vec::<&str>::new());
        assert_eq!(changed("/spec/a", json!(2)), ["spec"]);
        assert_eq!(changed("/data", json!({"x": 1})), ["spec"]);
        assert_eq!(changed("/status/b", json!(2)), ["status"]);
    }

    #[test]
    fn writes_of_the_last_seconds_are_kept() {
        let writes = |entries: &[(&str, u32)]| {
            let entry = |(manager, second): &(&str, u32)| json!({"manager": manager, "time": format!("2026-01-01T00:00:{second:02}Z")});
            let entries: Vec<Value> = entries.iter().map(entry).collect();
            LastWrites::of(&json!({"metadata": {"managedFields": entries}}), time("2026-01-01T00:01:00Z"))
        };
        let managers =
            |last: &LastWrites| last.writes.iter().map(|write| write.manager.clone()).collect::<Vec<_>>().join(" ");
        let last = writes(&[("a", 1), ("b", 8), ("c", 10), ("d", 9)]);
        assert_eq!((managers(&last).as_str(), last.is_of_version), ("c d b", true));
        // The next version has the same newest write, or another one.
        assert!(!writes(&[("c", 10)]).after(Some(&last)).is_of_version);
        assert!(writes(&[("c", 11)]).after(Some(&last)).is_of_version && last.after(None).is_of_version);
        let many: Vec<(String, u32)> = (0..20).map(|number| (number.to_string(), 10)).collect();
        let many: Vec<(&str, u32)> = many.iter().map(|(name, second)| (name.as_str(), *second)).collect();
        assert_eq!((writes(&many).writes.len(), writes(&many).is_of_version), (MAX_WRITES, false));
        assert_eq!(LastWrites::of(&json!({}), Timestamp::UNIX_EPOCH), LastWrites::default());
    }

    #[test]
    fn writer_of_a_version_is_the_manager_that_wrote_since_the_version_before() {
        type Entry = (&'static str, &'static str, u32);
        let writes = |entries: &[Entry]| {
            let entry = |(manager, subresource, second): &Entry| {
                let time = format!("2026-01-01T00:00:{second:02}Z");
                json!({"manager": manager, "subresource": subresource, "time": time})
            };
            let entries: Vec<Value> = entries.iter().map(entry).collect();
            LastWrites::of(&json!({"metadata": {"managedFields": entries}}), time("2026-01-01T00:00:20Z"))
        };
        let pod = writes(&[("kubectl-run", "", 1), ("kubelet", "status", 5)]);
        // A binding or a request for deletion leaves no entry.
        assert_eq!(pod.writer(&pod), "");
        let cases: &[(&[Entry], &str)] = &[
            (&[("kubectl-run", "", 1), ("kubelet", "status", 6)], "kubelet (status)"),
            (&[("kubectl-run", "", 1), ("kubelet", "status", 5), ("edit", "", 5)], "edit"),
            (&[("kubectl-run", "", 1), ("kubelet", "status", 5), ("edit", "", 6), ("other", "", 7)], ""),
            // An entry was removed, which brings an old one to light.
            (&[("kubectl-run", "", 1)], ""),
            // A client may send any time.
            (&[("kubectl-run", "", 1), ("kubelet", "status", 5), ("mallory", "", 59)], ""),
            (&[("kubectl-run", "", 1), ("kubelet", "status", 6), ("mallory", "", 59)], "kubelet (status)"),
        ];
        for (entries, expected) in cases {
            assert_eq!(writes(entries).writer(&pod), *expected, "{entries:?}");
        }
        assert_eq!(writes(&[("run", "", 1), ("kubelet", "status", 2)]).creator("2026-01-01T00:00:01Z"), "run");
        assert_eq!(writes(&[("run", "", 1), ("kubelet", "status", 9)]).creator("2026-01-01T00:00:01Z"), "");
        assert_eq!(writes(&[("edit", "", 9)]).creator("2026-01-01T00:00:01Z"), "");
    }

    #[test]
    fn texts_are_bounded() {
        let message = "ü".repeat(10_000);
        let object = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": message}]}});
        assert_eq!(Summary::of(0, &object, Timestamp::UNIX_EPOCH).reason.chars().count(), MAX_TEXT_CHARS + 1);
    }
}
