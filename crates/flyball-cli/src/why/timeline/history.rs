//! Ordered history of objects, from their fields and events.

use super::super::fields::owns_only_finalizers;
use flyball_core::time::{Timestamp, parse_rfc3339};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// An object with its history and its dependents.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: String,
    #[serde(serialize_with = "write_some", skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<Timestamp>,
    /// Current state, in a word or two.
    pub(super) state: String,
    pub(super) steps: Vec<Step>,
    pub(super) children: Vec<Node>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Step {
    #[serde(serialize_with = "write")]
    pub(super) time: Timestamp,
    pub(super) what: String,
    /// Component that did or reported it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) by: String,
}

fn write<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

fn write_some<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time.map(|time| time.to_string()).unwrap_or_default())
}

/// An owner reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    controls: bool,
}

pub(super) fn owners(object: &Value) -> impl Iterator<Item = Owner<'_>> {
    items(&object["metadata"]["ownerReferences"]).map(|owner| Owner {
        api_version: text(&owner["apiVersion"]),
        kind: text(&owner["kind"]),
        name: text(&owner["name"]),
        uid: text(&owner["uid"]),
        controls: owner["controller"] == true,
    })
}

/// Finds the creator among the owners of an object: its controller, otherwise its only owner.
pub(super) fn controller(object: &Value) -> Option<Owner<'_>> {
    owners(object)
        .find(|owner| owner.controls)
        .or_else(|| owners(object).next().filter(|_| owners(object).count() == 1))
}

pub(super) fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn time(value: &Value) -> Option<Timestamp> {
    parse_rfc3339(value.as_str()?)
}

/// Builds the history of an object and its descendants among `objects`.
pub(super) fn tree_of(root: &Value, objects: &BTreeMap<String, Value>, events: &[Value]) -> Node {
    let mut children: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for object in objects.values() {
        if let Some(owner) = controller(object).filter(|owner| owner.uid != uid(object)) {
            children.entry(owner.uid).or_default().push(object);
        }
    }
    let mut events_by_uid: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in events {
        events_by_uid.entry(text(&event["involvedObject"]["uid"])).or_default().push(event);
    }
    node(root, &mut children, &events_by_uid)
}

fn node(object: &Value, children: &mut BTreeMap<&str, Vec<&Value>>, events: &BTreeMap<&str, Vec<&Value>>) -> Node {
    let metadata = &object["metadata"];
    let mut below = children.remove(uid(object)).unwrap_or_default();
    below.sort_by_key(|child| (time(&child["metadata"]["creationTimestamp"]), text(&child["metadata"]["name"])));
    Node {
        api_version: text(&object["apiVersion"]).to_owned(),
        kind: text(&object["kind"]).to_owned(),
        namespace: metadata["namespace"].as_str().map(str::to_owned),
        name: text(&metadata["name"]).to_owned(),
        uid: uid(object).to_owned(),
        created: time(&metadata["creationTimestamp"]),
        state: state(object),
        steps: steps(object, events.get(uid(object)).map(Vec::as_slice).unwrap_or_default()),
        children: below.into_iter().map(|child| node(child, children, events)).collect(),
    }
}

/// Summarizes the state of an object.
fn state(object: &Value) -> String {
    let status = &object["status"];
    if object["metadata"]["deletionTimestamp"].is_string() {
        return "being deleted".to_owned();
    }
    if let Some(phase) = status["phase"].as_str() {
        return phase.to_owned();
    }
    let desired = object["spec"]["replicas"].as_i64().or_else(|| status["desiredNumberScheduled"].as_i64());
    if let (Some(desired), true) = (desired, status.is_object()) {
        let ready = status["readyReplicas"].as_i64().or_else(|| status["numberReady"].as_i64()).unwrap_or(0);
        return format!("{ready}/{desired} ready");
    }
    let decisive = |condition: &&Value| {
        matches!(text(&condition["type"]), "Ready" | "Available" | "Complete" | "Failed")
            && condition["status"] == "True"
    };
    items(&status["conditions"]).find(decisive).map(|condition| text(&condition["type"]).to_owned()).unwrap_or_default()
}

/// Order within a second: most times have whole seconds, and causes come before effects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Created,
    Scheduled,
    TakenUp,
    Event,
    Container,
    Condition,
    Write,
    Deletion,
}

fn steps(object: &Value, events: &[&Value]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |order: Order, time: Option<Timestamp>, what: String, by: &str| {
        if let Some(time) = time {
            steps.push((time.as_second(), order, Step { time, what, by: by.to_owned() }));
        }
    };
    let metadata = &object["metadata"];
    let created = time(&metadata["creationTimestamp"]);
    let writers = || items(&metadata["managedFields"]).filter(|entry| entry["time"].is_string());
    // The entry of the creator vanishes when others take over its fields. A finalizer of that second is no creation.
    let has_created = |entry: &&Value| {
        let manager = text(&entry["manager"]);
        entry["subresource"].is_null() && time(&entry["time"]) == created && !owns_only_finalizers(object, manager, "")
    };
    let makers: BTreeSet<&str> = writers().filter(has_created).map(|entry| text(&entry["manager"])).collect();
    let maker = makers.first().filter(|_| makers.len() == 1);
    add(Order::Created, created, "created".into(), maker.copied().unwrap_or_default());
    if object["kind"] == "Pod" {
        pod_steps(object, &mut add);
    }
    for condition in items(&object["status"]["conditions"]) {
        let name = text(&condition["type"]);
        if object["kind"] == "Pod" && name == "PodScheduled" && condition["status"] == "True" {
            continue; // reported with the node
        }
        let since = time(&condition["lastTransitionTime"]).or_else(|| time(&condition["lastUpdateTime"]));
        let reason = condition["reason"].as_str().filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        add(Order::Condition, since, format!("{name} is {}{reason}", text(&condition["status"])), "");
    }
    for event in in_order(events) {
        let order = if event["reason"] == "Scheduled" { Order::Scheduled } else { Order::Event };
        let count = event["series"]["count"].as_u64().or_else(|| event["count"].as_u64()).unwrap_or(1);
        let times = if count > 1 { format!(" (×{count})") } else { String::new() };
        let by = event["reportingComponent"].as_str().filter(|by| !by.is_empty());
        let message = text(&event["message"]).lines().next().unwrap_or_default();
        add(
            order,
            first_time(event),
            format!("{}: {message}{times}", text(&event["reason"])),
            by.unwrap_or(text(&event["source"]["component"])),
        );
    }
    for entry in writers() {
        // Only each manager's last write is recorded; the write of the creator at the creation time is already listed.
        let last = time(&entry["time"]);
        if last > created {
            let what = match entry["subresource"].as_str() {
                Some(subresource) => format!("{subresource} last written"),
                None => "last written".to_owned(),
            };
            add(Order::Write, last, what, text(&entry["manager"]));
        }
    }
    add(Order::Deletion, time(&metadata["deletionTimestamp"]), "deletion requested".into(), "");
    steps.sort_by_key(|(second, order, _)| (*second, *order));
    steps.into_iter().map(|(_, _, step)| step).collect()
}

fn first_time(event: &Value) -> Option<Timestamp> {
    time(&event["firstTimestamp"]).or_else(|| time(&event["eventTime"]))
}

/// Sorts events by their first occurrence. Events of one second are ordered by microseconds if all of them have these,
/// otherwise by creation time.
fn in_order<'a>(events: &[&'a Value]) -> Vec<&'a Value> {
    let mut seconds: BTreeMap<Option<i64>, Vec<&Value>> = BTreeMap::new();
    for event in events {
        seconds.entry(first_time(event).map(Timestamp::as_second)).or_default().push(event);
    }
    for events in seconds.values_mut() {
        let written = |event: &&Value| text(&event["metadata"]["resourceVersion"]).parse::<u64>().ok();
        events.sort_by_key(written);
        if events.iter().all(|event| event["eventTime"].is_string()) {
            events.sort_by_key(|event| time(&event["eventTime"]));
        }
    }
    seconds.into_values().flatten().collect()
}

/// Adds the steps of a pod: scheduling, and states of containers.
fn pod_steps(pod: &Value, add: &mut impl FnMut(Order, Option<Timestamp>, String, &str)) {
    let (status, node) = (&pod["status"], text(&pod["spec"]["nodeName"]));
    let scheduled = items(&status["conditions"]).find(|condition| condition["type"] == "PodScheduled");
    if let Some(condition) = scheduled.filter(|condition| condition["status"] == "True") {
        add(
            Order::Scheduled,
            time(&condition["lastTransitionTime"]),
            format!("scheduled to {node}"),
            text(&pod["spec"]["schedulerName"]),
        );
    }
    add(Order::TakenUp, time(&status["startTime"]), "acknowledged by the kubelet".into(), node);
    for container in items(&status["initContainerStatuses"]).chain(items(&status["containerStatuses"])) {
        let (name, state) = (text(&container["name"]), &container["state"]);
        let restarts = match container["restartCount"].as_u64().unwrap_or(0) {
            0 => String::new(),
            count => format!(", restarted {count} times"),
        };
        add(
            Order::Container,
            time(&state["running"]["startedAt"]),
            format!("container {name} running{restarts}"),
            node,
        );
        let terminated = &state["terminated"];
        add(
            Order::Container,
            time(&terminated["finishedAt"]),
            format!("container {name} exited with {}{restarts}", terminated["exitCode"]),
            node,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(kind: &str, name: &str, owner: Option<&str>, rest: Value) -> (String, Value) {
        let mut object = json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        if let Some(owner) = owner {
            object["metadata"]["ownerReferences"] =
                json!([{"uid": owner, "kind": "x", "name": "x", "apiVersion": "v1", "controller": true}]);
        }
        for (key, value) in rest.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        (name.to_owned(), object)
    }

    #[test]
    fn pod_is_listed_below_its_owner_with_its_steps() {
        let pod = json!({
            "spec": {"nodeName": "n1", "schedulerName": "default-scheduler"},
            "status": {
                "phase": "Running", "startTime": "2026-01-01T00:00:02Z",
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
                "containerStatuses": [{"name": "web", "state": {"running": {"startedAt": "2026-01-01T00:00:03Z"}}}],
            },
        });
        let objects = BTreeMap::from([
            object("Deployment", "d", None, json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 1}})),
            object("ReplicaSet", "r", Some("d"), json!({})),
            object("Pod", "p", Some("r"), pod),
            object("Pod", "other", None, json!({})),
        ]);
        let event = json!({"involvedObject": {"uid": "p"}, "reason": "Pulled", "message": "m\nn", "count": 3,
            "firstTimestamp": "2026-01-01T00:00:02Z", "source": {"component": "kubelet"}});
        let tree = tree_of(&objects["d"], &objects, &[event]);
        assert_eq!((tree.state.as_str(), tree.children.len()), ("1/2 ready", 1));
        let pod = &tree.children[0].children[0];
        let steps: Vec<String> = pod.steps.iter().map(|step| format!("{} [{}]", step.what, step.by)).collect();
        let expected = [
            "created []",
            "scheduled to n1 [default-scheduler]",
            "acknowledged by the kubelet [n1]",
            "Pulled: m (×3) [kubelet]",
            "container web running [n1]",
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn creator_is_named_only_with_proof() {
        let created_by = |entries: &[(&str, u32, Value)]| {
            let entries = entries.iter().map(|(manager, second, fields)| {
                json!({"manager": manager, "time": format!("2026-01-01T00:00:{second:02}Z"), "fieldsV1": fields})
            });
            let mut object = object("ConfigMap", "c", None, json!({})).1;
            object["metadata"]["managedFields"] = entries.collect();
            steps(&object, &[]).remove(0).by
        };
        let (data, finalizers) = (json!({"f:data": {}}), json!({"f:metadata": {"f:finalizers": {}}}));
        assert_eq!(created_by(&[("kubectl", 0, data.clone()), ("op", 9, data.clone())]), "kubectl");
        assert_eq!(created_by(&[("kubectl", 0, data.clone()), ("op", 0, finalizers.clone())]), "kubectl");
        assert_eq!(created_by(&[("op", 9, data.clone())]), "", "the entry of the creator is gone");
        assert_eq!(created_by(&[("op", 0, finalizers)]), "");
        assert_eq!(created_by(&[("a", 0, data.clone()), ("b", 0, data)]), "");
    }

    #[test]
    fn steps_within_a_second_are_ordered_by_resource_version() {
        let second = "2026-01-01T00:00:01Z";
        let classic = |reason: &str, version: &str| {
            json!({"metadata": {"resourceVersion": version}, "involvedObject": {"uid": "p"}, "reason": reason,
                "message": "m", "firstTimestamp": second})
        };
        let exact = |reason: &str, micros: &str, version: &str| {
            json!({"metadata": {"resourceVersion": version}, "involvedObject": {"uid": "p"}, "reason": reason,
                "message": "m", "eventTime": format!("2026-01-01T00:00:01.{micros}Z"), "series": {"count": 2}})
        };
        let steps_of = |events: [Value; 4]| {
            let mut pod = object(
                "Pod",
                "p",
                None,
                json!({"status": {
                    "startTime": second,
                    "containerStatuses": [{"name": "web", "state": {"running": {"startedAt": second}}}],
                }}),
            );
            pod.1["metadata"]["creationTimestamp"] = second.into();
            let objects = BTreeMap::from([pod]);
            let steps = tree_of(&objects["p"], &objects, &events).steps;
            steps.iter().map(|step| step.what.split([':', ' ']).next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let expected = ["created", "Scheduled", "acknowledged", "Pulled", "Created", "Started", "container"];
        let listed =
            [classic("Started", "13"), classic("Created", "12"), classic("Pulled", "9"), classic("Scheduled", "8")];
        assert_eq!(steps_of(listed), expected, "resource versions are numbers");
        // The version of an event that is repeated is that of its last time.
        let listed = [
            exact("Created", "000300", "12"),
            exact("Started", "000400", "13"),
            exact("Scheduled", "000100", "11"),
            exact("Pulled", "000200", "99"),
        ];
        assert_eq!(steps_of(listed), expected);
    }

    #[test]
    fn cycle_of_owners_terminates() {
        let objects = BTreeMap::from([object("A", "a", Some("b"), json!({})), object("A", "b", Some("a"), json!({}))]);
        let tree = tree_of(&objects["a"], &objects, &[]);
        assert_eq!((tree.children.len(), tree.children[0].children.len()), (1, 1));
        assert!(tree.children[0].children[0].children.is_empty());
    }
}
