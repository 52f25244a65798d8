//! Reasons for inaction: those that operators have, and those that the object itself shows.

use super::answer::Reason;
use super::operators::Operator;
use super::page::{ControllerState, Key, Object, ObjectPage, Store, time};
use flyball_core::time::{SignedDuration, Timestamp, human_duration};
use serde_json::Value;

/// The annotation that pauses an object for operators built with Flyball.
const PAUSED: &str = "flyball.dev/paused";
/// The annotation of operator-sdk's Helm operators, and of ours.
const HELM_PAUSED: &str = "helm.sdk.operatorframework.io/pause-reconcile";
/// Time after which a cache without any change is mentioned.
const QUIET: SignedDuration = SignedDuration::from_secs(600);

/// The reasons why nothing happens, and what was examined without being a reason.
#[derive(Debug, Default)]
pub(super) struct Reasons {
    pub(super) found: Vec<Reason>,
    pub(super) excluded: Vec<String>,
    /// The Deployment whose pages are added, if they are claims.
    pub(super) claimed_by: Option<String>,
    now: Timestamp,
}

impl Reasons {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    fn add(&mut self, reason: &'static str, text: String) -> &mut Reason {
        self.found.push(Reason { reason, text, operator: None, controller: None, until: None, claimed_by: None });
        self.found.last_mut().expect("it was just added")
    }

    fn of(&mut self, operator: &Operator, controller: Option<&str>, reason: &'static str, text: String) -> &mut Reason {
        let claimed_by = self.claimed_by.clone();
        let added = self.add(reason, text);
        added.operator = Some(operator.overview.operator.clone());
        added.controller = controller.map(str::to_owned);
        added.claimed_by = claimed_by;
        added
    }

    fn exclude(&mut self, text: &str) {
        let claim = self.claimed_by.as_ref().map(|by| format!(" (claimed by {by})")).unwrap_or_default();
        let text = format!("{text}{claim}");
        if !self.excluded.contains(&text) {
            self.excluded.push(text);
        }
    }

    fn in_time(&self, at: &str) -> String {
        let Some(at) = time(at) else { return String::new() };
        format!("in {}", human_duration(at.duration_since(self.now).max(SignedDuration::ZERO)))
    }

    fn ago(&self, at: &str) -> String {
        format!("{} ago", self.age(at))
    }

    fn age(&self, since: &str) -> String {
        let Some(since) = time(since) else { return "an unknown time".to_owned() };
        human_duration(self.now.duration_since(since).max(SignedDuration::ZERO))
    }

    /// Adds that an object, or one of its owners, is paused. Returns false if none is.
    pub(super) fn of_pause(&mut self, object: &Value, owners: &[Value]) -> bool {
        let known = self.found.len();
        for text in pauses(object) {
            self.add("paused", text);
        }
        for owner in owners {
            for text in pauses(owner) {
                self.add("paused", format!("its owner {} is paused: {text}", Object::of(owner)));
            }
        }
        self.found.len() > known
    }

    /// Adds what the object itself and its owners show, on any cluster.
    pub(super) fn of_object(&mut self, object: &Value, owners: &[Value]) {
        let metadata = &object["metadata"];
        if !self.of_pause(object, owners) {
            self.exclude("not paused");
        }
        if metadata["deletionTimestamp"].is_string() {
            let finalizers: Vec<&str> =
                metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let text = match finalizers.is_empty() {
                true => "it is being deleted, and its grace period is not over".to_owned(),
                false => format!("it is being deleted, and waits for the finalizers {}", finalizers.join(", ")),
            };
            self.add("deleting", text);
        }
        if let (Some(generation), Some(observed)) =
            (metadata["generation"].as_i64(), object["status"]["observedGeneration"].as_i64())
        {
            if observed < generation {
                let text =
                    format!("its controller has observed generation {observed}, and the spec is at {generation}");
                self.add("notObserved", text);
            } else {
                self.exclude("its controller has observed the newest spec");
            }
        }
    }

    /// Adds that no operator is known that reconciles an object.
    pub(super) fn without_operator(&mut self, target: &Object) {
        let text = format!(
            "no running operator with a ledger is known for the kind {}; name it with --operator URL or \
             --operator NAMESPACE/DEPLOYMENT",
            target.kind
        );
        self.add("noOperator", text);
    }

    /// Adds what an operator knows.
    pub(super) fn of_operator(&mut self, operator: &Operator, page: &ObjectPage, target: &Object, live: &Value) {
        self.leadership(operator, page);
        for store in &page.stores {
            self.store(operator, store, target);
        }
        let is_other = |store: &&Store| (&store.kind, &store.group) != (&target.kind, &target.group);
        for store in operator.overview.stores.iter().filter(is_other).filter(|s| s.absent || s.error.is_some()) {
            self.store(operator, store, target);
        }
        if !page.controllers.is_empty() && page.stores.is_empty() && target.namespace.is_some() {
            let watched = operator.overview.stores.iter().filter(|s| s.kind == target.kind && s.group == target.group);
            let namespaces: Vec<&str> = watched.filter_map(|store| store.namespace.as_deref()).collect();
            let text = format!("the operator watches only the namespaces {}", namespaces.join(", "));
            self.of(operator, None, "notSelected", text);
        }
        for controller in &page.controllers {
            self.controller(operator, controller, live);
        }
    }

    fn leadership(&mut self, operator: &Operator, page: &ObjectPage) {
        let Some(lease) = &operator.overview.lease else { return };
        if page.leading || lease.leading {
            return self.exclude(&format!("lease held by {}", lease.holder));
        }
        let holder = if lease.holder.is_empty() { "nobody".to_owned() } else { lease.holder.clone() };
        let error = lease.error.as_ref().map(|error| format!("; the last attempt failed: {}", error.message));
        let text = format!("this replica does not lead: {holder} does{}", error.unwrap_or_default());
        self.of(operator, None, "notLeading", text);
    }

    fn store(&mut self, operator: &Operator, store: &Store, target: &Object) {
        let kind = if store.resource.is_empty() { &store.kind } else { &store.resource };
        if store.absent {
            let text = format!("the kind {kind} is not installed: the operator waits for its CustomResourceDefinition");
            self.of(operator, None, "crdMissing", text);
            return;
        }
        if let Some(error) = &store.error {
            let text = format!("the watch of {kind} has failed for {}: {}", self.age(&error.since), error.message);
            self.of(operator, None, "watchFailing", text);
        } else if !store.synced {
            self.of(operator, None, "notSynced", format!("the first list of {kind} is not complete"));
        } else if store.cached {
            let quiet = store.changed.as_deref().and_then(time).map(|at| self.now.duration_since(at));
            let age = quiet
                .filter(|age| *age < QUIET)
                .map(|age| format!(" {} old", human_duration(age.max(SignedDuration::ZERO))));
            self.exclude(&format!("cache of {kind}{}", age.unwrap_or_else(|| " has it".to_owned())));
        } else {
            let text = match (&store.selection, store.may_be_selected) {
                (Some(selection), _) => format!("the cache of {kind} selects only {selection}"),
                (None, Some(false)) => format!("the cache of {kind} does not select {}", target.name),
                (None, _) => format!("the cache of {kind} does not have it yet"),
            };
            let reason = if store.selection.is_some() || store.may_be_selected == Some(false) {
                "notSelected"
            } else {
                "notCached"
            };
            self.of(operator, None, reason, text);
        }
    }

    fn controller(&mut self, operator: &Operator, controller: &ControllerState, live: &Value) {
        let name = Some(&*controller.name);
        for waits in controller.waits_for.iter().filter(|_| !controller.active) {
            // Leadership and caches that fail were reported with their reason.
            if !waits.starts_with("leadership") {
                self.of(operator, name, "inactive", format!("the controller has not started: it waits for {waits}"));
            }
        }
        if controller.paused && live["metadata"]["annotations"][PAUSED] != "true" {
            let text = "the operator has not observed that the object is no longer paused".to_owned();
            self.of(operator, name, "paused", text);
        }
        match &controller.key {
            Some(key) => self.key(operator, controller, key),
            None => self.exclude("queue empty, no backoff"),
        }
        self.filtered(operator, controller, live);
        self.last(operator, controller, live);
    }

    fn key(&mut self, operator: &Operator, controller: &ControllerState, key: &Key) {
        let (name, until) = (Some(&*controller.name), key.until.as_deref().unwrap_or_default());
        let since = key.since.as_deref().map(|since| self.age(since)).unwrap_or_default();
        let failures = key.failures;
        let (reason, text) = match &*key.state {
            "held" => {
                let writes: Vec<String> = key.writes.iter().map(|write| write.object.to_string()).collect();
                let what = if writes.is_empty() { "its own writes".to_owned() } else { writes.join(", ") };
                ("barrier", format!("it is held until the cache shows {what}, at most until {until}"))
            }
            "backoff" => {
                ("backoff", format!("it failed {failures} times in a row, and is retried {}", self.in_time(until)))
            }
            "throttled" => {
                ("throttled", format!("it failed {failures} times, and waits for the rate limit of retries"))
            }
            "running" => ("running", format!("its reconcile has been running for {since}")),
            "ready" => ("ready", format!("it has been ready for {since}, and waits for a worker")),
            "delayed" => ("delayed", format!("its reconcile asked for the next one {}", self.in_time(until))),
            _ => return,
        };
        let until = time(until);
        self.of(operator, name, reason, text).until = until;
    }

    fn filtered(&mut self, operator: &Operator, controller: &ControllerState, live: &Value) {
        let version = live["metadata"]["resourceVersion"].as_str();
        let reconciled = controller.last.as_ref().and_then(|last| last.resource_version.as_deref());
        let Some(newest) = controller.filtered.first() else { return self.exclude("no change was filtered out") };
        let is_newest = newest.after.as_deref() == version && reconciled != version;
        if is_newest {
            let after = newest.after.as_deref().unwrap_or("its deletion");
            let text = format!(
                "its last change (v{after}, {}) did not pass the filters of the controller",
                self.ago(&newest.at)
            );
            self.of(operator, Some(&controller.name), "filtered", text);
        } else {
            self.exclude("its last change passed the filters");
        }
    }

    fn last(&mut self, operator: &Operator, controller: &ControllerState, live: &Value) {
        let name = Some(&*controller.name);
        let Some(last) = &controller.last else {
            if controller.cached {
                self.of(operator, name, "neverReconciled", "no reconcile of it is recorded".to_owned());
            }
            return;
        };
        let ago = self.ago(&last.began);
        let error = last.error.as_deref().unwrap_or("unknown");
        let id = last.id.get(..8).unwrap_or(&last.id);
        let problem = match &*last.outcome {
            "wait" => Some(("waiting", format!("it waits for a change: {error} ({ago})"))),
            "terminal" => {
                Some(("terminal", format!("it failed {ago}, and is not retried until the object changes: {error}")))
            }
            "error" | "panic" | "deadline" => Some(("error", format!("its last reconcile failed {ago}: {error}"))),
            "memory" => Some(("memory", "it waits for the memory budget".to_owned())),
            _ => None,
        };
        if let Some((reason, text)) = problem {
            self.of(operator, name, reason, text);
        }
        match &*last.outcome {
            "success" | "requeue" | "requeue_after" => {
                let newest = live["metadata"]["resourceVersion"].as_str();
                let target = Object::of(live);
                // Its own write, such as that of the status, is not news to it.
                let is_own = last
                    .writes
                    .iter()
                    .any(|write| newest.is_some() && write.object.is_same(&target) && write.after.as_deref() == newest);
                let has_read = last.resource_version.as_deref() == newest;
                let is_current = has_read || is_own;
                let writes = last.writes.iter().filter(|write| write.result != "unchanged").count();
                let what = match writes {
                    0 => "made no change".to_owned(),
                    1 => "made 1 write".to_owned(),
                    _ => format!("made {writes} writes"),
                };
                let text = match (has_read, is_own) {
                    (false, true) => format!("its last reconcile ({id}, {ago}) wrote the newest version"),
                    (true, _) => format!("its last reconcile ({id}, {ago}) read the newest version and {what}"),
                    (false, false) => format!("its last reconcile ({id}, {ago}) read an older version and {what}"),
                };
                let reason = if is_current { "upToDate" } else { "reconciled" };
                self.of(operator, name, reason, text);
            }
            _ => {}
        }
    }
}

/// Returns the annotation that pauses an object.
pub(super) fn pause_annotation(object: &Value) -> Option<&'static str> {
    [PAUSED, HELM_PAUSED].into_iter().find(|name| object["metadata"]["annotations"][*name] == "true")
}

/// Returns why an object is paused.
fn pauses(object: &Value) -> Vec<String> {
    let annotations =
        [PAUSED, HELM_PAUSED].into_iter().filter(|name| object["metadata"]["annotations"][*name] == "true");
    let mut pauses: Vec<String> =
        annotations.map(|name| format!("the annotation {name} is true: remove it to continue")).collect();
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let is_paused = |condition: &&Value| condition["type"] == "Paused" && condition["status"] == "True";
    pauses.extend(conditions.filter(is_paused).map(|condition| {
        let reason = condition["reason"].as_str().filter(|reason| !reason.is_empty());
        format!("the condition Paused is True{}", reason.map(|reason| format!(": {reason}")).unwrap_or_default())
    }));
    pauses
}

/// Returns true for a pod without a node, about which no scheduler has reported anything.
pub(super) fn is_unscheduled(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let is_pod = object["kind"] == "Pod" && object["apiVersion"] == "v1";
    let is_pending = matches!(object["status"]["phase"].as_str(), None | Some("" | "Pending"));
    let has_node = object["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty());
    let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
    is_pod && is_pending && !has_node && !is_deleted && !conditions.any(|condition| condition["type"] == "PodScheduled")
}

/// Returns what an object reports about its own waiting: conditions that are not met, and the newest warning.
pub(super) fn waits(object: &Value, events: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut waits = Vec::new();
    for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
        let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
        // These conditions are good if they are true.
        let is_unmet = status == "False"
            && matches!(
                &*kind,
                "Ready"
                    | "Available"
                    | "Progressing"
                    | "PodScheduled"
                    | "ContainersReady"
                    | "Initialized"
                    | "CleanedUp"
            );
        let is_trouble =
            status == "True" && matches!(&*kind, "Degraded" | "Failed" | "Failure" | "ReplicaFailure" | "Stalled");
        if is_unmet || is_trouble {
            let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
            let detail = [reason, message].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
            waits.push(format!("condition {kind} is {status}{}{detail}", if detail.is_empty() { "" } else { ": " }));
        }
    }
    let uid = &object["metadata"]["uid"];
    let of_object = events.iter().filter(|event| event["involvedObject"]["uid"] == *uid && event["type"] == "Warning");
    let at = |event: &&Value| {
        ["lastTimestamp", "eventTime", "firstTimestamp"].iter().find_map(|name| time(event[*name].as_str()?))
    };
    if let Some(event) = of_object.max_by_key(at) {
        let message = text(&event["message"]);
        waits.push(format!("event {}: {}", text(&event["reason"]), message.lines().next().unwrap_or_default()));
    }
    waits.dedup();
    waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the reasons of an operator with these pages, and the texts.
    fn reasons(overview: Value, page: Value, live: &Value) -> Vec<(&'static str, String)> {
        let operator = Operator::with_overview(serde_json::from_value(overview).expect("an overview"), None);
        let page: ObjectPage = serde_json::from_value(page).expect("a page");
        let mut reasons = Reasons::new("2026-01-01T00:01:00Z".parse().expect("a time"));
        reasons.of_object(live, &[]);
        reasons.of_operator(&operator, &page, &Object::of(live), live);
        reasons.found.into_iter().map(|reason| (reason.reason, reason.text)).collect()
    }

    fn live() -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Site",
            "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "7", "generation": 2}})
    }

    fn page(store: Value, key: Value, more: Value) -> Value {
        let mut site =
            json!({"group": "example.com", "kind": "Site", "resource": "sites", "synced": true, "cached": true});
        let mut controller = json!({"name": "site", "active": true, "cached": true, "key": key});
        for (to, from) in [(&mut site, store), (&mut controller, more)] {
            let (to, from) = (to.as_object_mut().expect("an object"), from);
            to.extend(from.as_object().cloned().unwrap_or_default());
        }
        json!({"leading": true, "controllers": [controller], "stores": [site]})
    }

    #[test]
    fn each_reason_is_found() {
        let none = || json!({});
        let find = |overview: Value, page: Value| reasons(overview, page, &live());
        let check = |found: Vec<(&'static str, String)>, reason: &str, part: &str| {
            let matches = found.iter().any(|(known, text)| *known == reason && text.contains(part));
            assert!(matches, "no {reason} with {part:?} in {found:?}");
        };
        let held = json!({"state": "held", "until": "2026-01-01T00:01:09Z", "writes": [{"kind": "Pod", "name": "p"}]});
        check(find(none(), page(none(), held, none())), "barrier", "pod/p");
        let failed = json!({"state": "backoff", "until": "2026-01-01T00:01:30Z", "failures": 3});
        check(
            find(none(), page(none(), failed, none())),
            "backoff",
            "it failed 3 times in a row, and is retried in 30s",
        );
        let absent = json!({"absent": true, "cached": false});
        check(find(none(), page(absent, Value::Null, none())), "crdMissing", "sites is not installed");
        let cut = json!({"error": {"message": "connection refused", "since": "2026-01-01T00:00:30Z"}});
        check(find(none(), page(cut, Value::Null, none())), "watchFailing", "for 30s: connection refused");
        let other = json!({"stores": [{"kind": "Pod", "resource": "pods", "error": {"message": "403", "since": ""}}]});
        check(find(other, page(none(), Value::Null, none())), "watchFailing", "pods");
        let unselected = json!({"cached": false, "selection": "app=x"});
        check(find(none(), page(unselected, Value::Null, none())), "notSelected", "app=x");
        let elsewhere = json!({"leading": false, "controllers": [{"name": "site"}]});
        let stores =
            json!({"lease": {"holder": "b"}, "stores": [{"group": "example.com", "kind": "Site", "namespace": "x"}]});
        let found = find(stores, elsewhere);
        check(found.clone(), "notLeading", "b does");
        check(found, "notSelected", "only the namespaces x");
        let last =
            json!({"id": "0123456789", "resourceVersion": "6", "outcome": "success", "began": "2026-01-01T00:00:00Z"});
        let filtered = json!({"filtered": [{"after": "7", "at": "2026-01-01T00:00:50Z"}], "last": last});
        check(find(none(), page(none(), Value::Null, filtered)), "filtered", "v7, 10s ago");
        let paused = json!({"metadata": {"annotations": {PAUSED: "true"}}});
        assert_eq!(reasons(none(), none(), &paused)[0].0, "paused");
        let paused = json!({"metadata": {"annotations": {HELM_PAUSED: "true"}},
            "status": {"conditions": [{"type": "Paused", "status": "True", "reason": "ByUser"}]}});
        let found = reasons(none(), none(), &paused);
        assert!(
            found[..2].iter().all(|(reason, _)| *reason == "paused") && found[1].1.ends_with("True: ByUser"),
            "{found:?}"
        );
        let waits =
            json!({"last": {"outcome": "wait", "error": "there is no secret", "began": "2026-01-01T00:00:50Z"}});
        check(find(none(), page(none(), Value::Null, waits)), "waiting", "there is no secret (10s ago)");
    }

    #[test]
    fn own_writes_are_no_news() {
        let last = |object: Value| {
            json!({"id": "0123456789", "resourceVersion": "6", "outcome": "success", "began": "2026-01-01T00:00:00Z",
                "writes": [{"object": object, "verb": "apply", "subresource": "status", "before": "6", "after": "7"}]})
        };
        let find = |object: Value| {
            let page = page(json!({}), Value::Null, json!({"last": last(object)}));
            reasons(json!({}), page, &live()).pop().expect("a reason")
        };
        let own = find(json!({"group": "example.com", "kind": "Site", "namespace": "ns", "name": "a"}));
        assert_eq!(own, ("upToDate", "its last reconcile (01234567, 60s ago) wrote the newest version".to_owned()));
        let (reason, text) = find(json!({"kind": "ConfigMap", "namespace": "ns", "name": "a"}));
        assert_eq!(reason, "reconciled");
        assert!(text.ends_with("read an older version and made 1 write"), "{text}");
    }

    #[test]
    fn pods_without_a_scheduler_are_recognized() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"}});
        assert!(is_unscheduled(&pod));
        for (path, value) in [
            ("/status", json!({"phase": "Running"})),
            ("/status", json!({"conditions": [{"type": "PodScheduled", "status": "False"}]})),
            ("/kind", json!("Deployment")),
        ] {
            let mut other = pod.clone();
            *other.pointer_mut(path).expect("a field") = value;
            assert!(!is_unscheduled(&other), "{other}");
        }
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "node-1"}});
        assert!(!is_unscheduled(&bound));
    }

    #[test]
    fn conditions_that_report_a_failure_are_shown() {
        let status = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        for kind in ["Failure", "Failed", "Degraded", "Stalled"] {
            assert_eq!(waits(&status(kind, "True"), &[]), [format!("condition {kind} is True")]);
            assert!(waits(&status(kind, "False"), &[]).is_empty(), "{kind}");
        }
    }

    #[test]
    fn pause_of_an_owner_is_found() {
        let owner = json!({"kind": "Memcached", "metadata": {"name": "m", "annotations": {PAUSED: "true"}}});
        let mut reasons = Reasons::new("2026-01-01T00:01:00Z".parse().expect("a time"));
        reasons.of_object(&live(), &[owner]);
        let texts: Vec<_> = reasons.found.iter().map(|reason| (reason.reason, &*reason.text)).collect();
        let expected =
            "its owner memcached/m is paused: the annotation flyball.dev/paused is true: remove it to continue";
        assert_eq!((texts, reasons.excluded.contains(&"not paused".to_owned())), (vec![("paused", expected)], false));
    }

    #[test]
    fn unmet_conditions_and_the_newest_warning_are_shown() {
        let pod = json!({"metadata": {"uid": "u"}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"},
            {"type": "Initialized", "status": "True"},
        ]}});
        let event = |uid: &str, text: &str, second: u32| {
            json!({"type": "Warning", "reason": "Failed", "message": text, "involvedObject": {"uid": uid},
                "lastTimestamp": format!("2026-01-01T00:00:0{second}Z")})
        };
        let events = [event("u", "old", 1), event("u", "new\nline", 2), event("other", "x", 3)];
        let expected = ["condition PodScheduled is False: Unschedulable: no nodes", "event Failed: new"];
        assert_eq!(waits(&pod, &events), expected);
    }
}
