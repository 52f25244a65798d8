//! The evidence of writes: which write gave an object or a field its state at a moment, by the ledgers of operators,
//! the log of an embedded control plane, and managed fields.
//!
//! Invariant: no write is named as a cause that is newer than its effect. Revisions decide if both are known, times
//! otherwise.

use super::claims::Recorded;
use super::fields::{self, Manager, Segment};
use super::page::{Object, Write, time};
use flyball_console::{LoggedWrite, is_manager};
use flyball_core::time::{SignedDuration, Timestamp, saturating_add};
use serde_json::Value;

/// The point of an object's history whose origin is searched.
#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    /// The resource version that the write resulted in.
    pub(super) version: Option<String>,
    /// The newest revision that the effect can have read.
    pub(super) newest: Option<u64>,
    /// The write was before this time.
    pub(super) before: Option<Timestamp>,
}

impl Moment {
    /// Returns the last moment of a second, which is all that managed fields contain.
    pub(super) fn end_of_second(second: Timestamp) -> Timestamp {
        saturating_add(second, SignedDuration::from_nanos(999_999_999))
    }

    /// Returns true if the effect can have read a write with this version and time.
    pub(super) fn admits(&self, version: Option<&str>, at: Option<Timestamp>) -> bool {
        match (self.newest, version.and_then(|version| version.parse::<u64>().ok())) {
            (Some(newest), Some(revision)) => revision <= newest,
            _ => self.before.is_none_or(|before| at.is_none_or(|at| at <= before)),
        }
    }
}

/// The write that gave an object or a field its state at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Evidence<'a> {
    /// A write in a ledger.
    Ledger(&'a Recorded, &'a Write),
    /// A write that the control plane keeps.
    Logged(&'a LoggedWrite),
    /// The last write of a manager.
    Managed(&'a Manager),
    /// All known writes are later than the effect.
    OnlyLater,
    /// No write is known.
    Missing,
}

/// A question about an object at a moment, with what is known about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    pub(super) live: &'a Value,
    pub(super) object: &'a Object,
    pub(super) moment: &'a Moment,
    /// The field, if the question is about one.
    pub(super) path: Option<&'a [Segment]>,
    /// The managers of the object or of the field.
    pub(super) managers: &'a [Manager],
}

impl<'a> Search<'a> {
    /// Finds the write. The log of an embedded control plane decides which one is the newest; the ledgers of operators
    /// contain its cause.
    pub(super) fn evidence(&self, facts: &'a [Recorded], log: Option<&'a [LoggedWrite]>) -> Evidence<'a> {
        let log = log.unwrap_or_default();
        let of_ledger = || self.write_of(facts).map(|(recorded, write)| Evidence::Ledger(recorded, write));
        if let Some(version) = &self.moment.version {
            let logged = || log.iter().find(|write| write.revision == *version).map(Evidence::Logged);
            return of_ledger().or_else(logged).unwrap_or_else(|| self.newest_manager());
        }
        match self.path {
            Some(path) => self.of_field(path, log).or_else(of_ledger).unwrap_or_else(|| self.owner_of_field(log)),
            None => {
                let logged = self.newest_of_spec(facts, log);
                logged.or_else(of_ledger).unwrap_or_else(|| self.newest_manager())
            }
        }
    }

    /// Finds the write among reconciles, which are newest first: that of the version, or the newest one to the fields.
    /// Writes of the status and of finalizers explain no spec.
    pub(super) fn write_of<'r>(&self, reconciles: &'r [Recorded]) -> Option<(&'r Recorded, &'r Write)> {
        self.writes(reconciles).find(|(recorded, write)| self.is_answer(recorded, write))
    }

    /// Returns true if a write can be the one that is searched: that of the version, or an earlier one to the fields.
    pub(super) fn is_answer(&self, recorded: &Recorded, write: &Write) -> bool {
        match &self.moment.version {
            Some(version) => write.after.as_ref() == Some(version),
            None => {
                self.moment.admits(write.after.as_deref(), time(&recorded.reconcile.began))
                    && self.explains(recorded, write)
            }
        }
    }

    /// Returns the writes of the object, newest first.
    pub(super) fn writes<'r>(&self, reconciles: &'r [Recorded]) -> impl Iterator<Item = (&'r Recorded, &'r Write)> {
        let object = self.object.clone();
        let each = |found: &'r Recorded| found.reconcile.writes.iter().rev().map(move |write| (found, write));
        let is_of =
            move |write: &Write| write.object.is_same(&object) && !matches!(&*write.result, "unchanged" | "unknown");
        reconciles.iter().flat_map(each).filter(move |(_, write)| is_of(write))
    }

    fn explains(&self, recorded: &Recorded, write: &Write) -> bool {
        let Some(path) = self.path else { return write.subresource.is_empty() && write.verb != "finalizer" };
        if write.fields.iter().any(|field| fields::overlaps(field, path)) {
            return true;
        }
        // A new object has its fields from its creation, unless others own them. It has no status yet.
        let owns = self.managers.is_empty()
            || self.managers.iter().any(|manager| is_manager(&recorded.manager, &manager.name));
        let is_new = write.subresource.is_empty() && (write.verb == "create" || write.before.is_none());
        is_new && owns && !fields::begins_with(path, "status")
    }

    /// Finds the newest write of the spec in the log, and its reconcile.
    fn newest_of_spec(&self, facts: &'a [Recorded], log: &'a [LoggedWrite]) -> Option<Evidence<'a>> {
        for write in log.iter().filter(|write| self.is_admitted(write) && !is_of_part(&write.subresource)) {
            let recorded = self.writes(facts).find(|(_, known)| known.after.as_ref() == Some(&write.revision));
            match recorded {
                Some((recorded, known)) if self.explains(recorded, known) => {
                    return Some(Evidence::Ledger(recorded, known));
                }
                Some(_) => {}
                None => return Some(Evidence::Logged(write)),
            }
        }
        None
    }

    /// Finds the write of a field that has no owner in the managed fields.
    fn of_field(&self, path: &[Segment], log: &'a [LoggedWrite]) -> Option<Evidence<'a>> {
        if self.object.kind != "Pod" || !fields::is_bound_node(path) || !self.managers.is_empty() {
            return None;
        }
        let binding = log.iter().find(|write| write.subresource == "binding");
        Some(binding.map_or(Evidence::Missing, Evidence::Logged))
    }

    /// Finds the newest write of an owner of a field.
    fn owner_of_field(&self, log: &'a [LoggedWrite]) -> Evidence<'a> {
        let is_of = |write: &LoggedWrite, manager: &Manager| {
            (&write.manager, &write.subresource) == (&manager.name, &manager.subresource)
        };
        let by_owner = |write: &&LoggedWrite| self.managers.iter().any(|manager| is_of(write, manager));
        let logged = log.iter().filter(|write| self.is_admitted(write)).find(by_owner);
        let managed = || self.managers.first().map(Evidence::Managed);
        logged.map(Evidence::Logged).or_else(managed).unwrap_or(Evidence::Missing)
    }

    /// Chooses the manager that wrote the object last before the moment. Managers without a time wrote the object with
    /// `scale`, after its creation.
    fn newest_manager(&self) -> Evidence<'a> {
        let is_of_spec = |manager: &&Manager| {
            !is_of_part(&manager.subresource)
                && !fields::owns_only_finalizers(self.live, &manager.name, &manager.subresource)
        };
        let of_spec = || self.managers.iter().filter(is_of_spec);
        let timed = || of_spec().filter(|manager| manager.time.is_some());
        let created = self.live["metadata"]["creationTimestamp"].as_str().and_then(time);
        let untimed = of_spec().find(|manager| manager.time.is_none()).filter(|_| self.moment.before.is_none());
        match (timed().find(|manager| self.moment.admits(None, manager.time)), untimed) {
            (Some(known), Some(untimed)) if known.time == created => Evidence::Managed(untimed),
            (Some(known), _) => Evidence::Managed(known),
            (None, Some(untimed)) => Evidence::Managed(untimed),
            (None, None) if of_spec().next().is_some() => Evidence::OnlyLater,
            (None, None) => Evidence::Missing,
        }
    }

    fn is_admitted(&self, write: &LoggedWrite) -> bool {
        self.moment.admits(Some(&write.revision), time(&write.time))
    }
}

/// Returns true for subresources whose writes explain no spec, unlike those of `scale`.
pub(super) fn is_of_part(subresource: &str) -> bool {
    matches!(subresource, "status" | "ephemeralcontainers" | "resize" | "binding")
}

/// Returns the writes of a live object, newest first, without those of deleted objects of that name.
pub(super) fn of_this_object(live: &Value, log: &[LoggedWrite]) -> Vec<LoggedWrite> {
    let created = live["metadata"]["creationTimestamp"].as_str().and_then(time);
    let is_deleted = live["metadata"]["deletionTimestamp"].is_string();
    let is_of = |write: &&LoggedWrite| {
        let is_since = created.is_none_or(|created| time(&write.time).is_none_or(|at| at >= created));
        is_since && (is_deleted || !is_deletion(write))
    };
    let end = log.iter().position(is_creation).map_or(log.len(), |at| at + 1);
    log[..end].iter().filter(is_of).cloned().collect()
}

/// Finds the request that deleted an object, among the writes of all objects of that name, newest first: the first
/// deletion, since the API server or a kubelet may complete it later.
pub(super) fn deletion<'a>(log: &'a [LoggedWrite], moment: &Moment) -> Option<&'a LoggedWrite> {
    let is_admitted = |write: &&LoggedWrite| moment.admits(Some(&write.revision), time(&write.time));
    let mut found = None;
    for write in log.iter().filter(is_admitted) {
        if found.is_some() && is_creation(write) {
            break;
        }
        found = if is_deletion(write) { Some(write) } else { found };
    }
    found
}

/// Returns true for the write that created an object.
pub(super) fn is_creation(write: &LoggedWrite) -> bool {
    write.verb == "create" && write.subresource.is_empty()
}

fn is_deletion(write: &LoggedWrite) -> bool {
    write.verb.starts_with("delete")
}

#[cfg(test)]
mod tests {
    use super::super::claims::{Choice, Claim, choose};
    use super::*;
    use flyball_console::Claimant;
    use serde_json::{from_value, json};

    fn at(second: u32) -> String {
        format!("2026-01-01T00:00:{second:02}Z")
    }

    fn logged_write(revision: u32, manager: &str, verb: &str, subresource: &str) -> LoggedWrite {
        LoggedWrite {
            revision: revision.to_string(),
            subresource: subresource.into(),
            time: at(revision),
            user: format!("user-of-{manager}"),
            manager: manager.into(),
            verb: verb.into(),
            ..LoggedWrite::default()
        }
    }

    fn deployment(managers: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
            "name": "d", "namespace": "ns", "creationTimestamp": at(1), "managedFields": managers,
        }})
    }

    fn entry(manager: &str, second: Option<u32>, subresource: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "time": second.map(at), "subresource": subresource,
            "fieldsV1": fields})
    }

    /// Returns the evidence in a word: the source and the version or the manager.
    fn find(
        live: &Value,
        moment: &Moment,
        path: Option<&str>,
        facts: &[Recorded],
        log: Option<&[LoggedWrite]>,
    ) -> String {
        let path = path.map(|path| fields::parse(path).unwrap());
        let (object, managers) = (Object::of(live), fields::managers(live, path.as_deref()));
        let search = Search { live, object: &object, moment, path: path.as_deref(), managers: &managers };
        match search.evidence(facts, log) {
            Evidence::Ledger(recorded, write) => {
                format!("ledger {} {}", recorded.operator, write.after.as_deref().unwrap_or_default())
            }
            Evidence::Logged(write) => format!("log {} {}", write.manager, write.revision),
            Evidence::Managed(manager) => format!("managed {}", manager.name),
            Evidence::OnlyLater => "later".to_owned(),
            Evidence::Missing => "missing".to_owned(),
        }
    }

    fn read(newest: u64) -> Moment {
        Moment { newest: Some(newest), before: time(&at(u32::try_from(newest).unwrap())), version: None }
    }

    fn fact(operator: &str, object: &Value, write: Value) -> Recorded {
        let mut write = write;
        write["object"] = serde_json::to_value(Object::of(object)).unwrap();
        let reconcile = json!({"id": "0123456789", "controller": "c", "began": at(2), "writes": [write]});
        let reconcile = from_value(reconcile).unwrap();
        Recorded { operator: operator.into(), manager: operator.into(), claimant: None, reconcile }
    }

    #[test]
    fn scale_is_the_newest_write_of_a_spec() {
        let replicas = || json!({"f:spec": {"f:replicas": {}}});
        let live = deployment(json!([
            entry("kubectl", None, "scale", replicas()),
            entry("kubectl-create", Some(1), "", json!({"f:spec": {"f:selector": {}}})),
            entry("kube-controller-manager", Some(9), "status", json!({"f:status": {}})),
        ]));
        let log = [
            logged_write(9, "kube-controller-manager", "update", "status"),
            logged_write(5, "kubectl", "patch", "scale"),
            logged_write(1, "kubectl-create", "create", ""),
        ];
        let now = Moment::default();
        assert_eq!(find(&live, &now, None, &[], Some(&log)), "log kubectl 5");
        // A pod of before was caused by the creation.
        assert_eq!(find(&live, &read(4), None, &[], Some(&log)), "log kubectl-create 1");
        // Without a log, the entry of the scale has no time: it is later than the creation.
        assert_eq!(find(&live, &now, None, &[], None), "managed kubectl");
        assert_eq!(find(&live, &read(4), None, &[], None), "managed kubectl-create");
    }

    #[test]
    fn managers_of_finalizers_are_no_origin() {
        let finalizers = || entry("op", Some(2), "", json!({"f:metadata": {"f:finalizers": {}}}));
        let live = deployment(json!([finalizers(), entry("kubectl", Some(2), "", json!({"f:spec": {}}))]));
        assert_eq!(find(&live, &Moment::default(), None, &[], None), "managed kubectl");
        assert_eq!(find(&deployment(json!([finalizers()])), &Moment::default(), None, &[], None), "missing");
    }

    #[test]
    fn writes_that_are_newer_than_their_effect_are_no_cause() {
        let live = deployment(json!([entry("kubectl-patch", Some(20), "", json!({"f:spec": {"f:paused": {}}}))]));
        assert_eq!(find(&live, &Moment::default(), None, &[], None), "managed kubectl-patch");
        assert_eq!(find(&live, &read(19), None, &[], None), "later");
        let log = [logged_write(20, "kubectl-patch", "patch", ""), logged_write(3, "kubectl-create", "create", "")];
        assert_eq!(find(&live, &read(19), None, &[], Some(&log)), "log kubectl-create 3");
        assert_eq!(find(&live, &read(2), None, &[], Some(&log)), "later");
        // The ledger of an operator that was restarted: its reconcile read version 19.
        let facts = [fact("op", &live, json!({"verb": "apply", "after": "20", "before": "3"}))];
        assert_eq!(find(&live, &read(19), None, &facts, None), "later");
        assert_eq!(find(&live, &read(20), None, &facts, None), "ledger op 20");
        assert_eq!(find(&deployment(json!([])), &Moment::default(), None, &[], None), "missing");
    }

    #[test]
    fn claims_to_one_version_are_found_together() {
        let live = deployment(json!([]));
        let claim = |name: &str, after: &str| Recorded {
            claimant: Some(Claimant { deployment: name.into(), ..Claimant::default() }),
            ..fact(name, &live, json!({"verb": "apply", "after": after, "before": "3"}))
        };
        let choice = |moment: &Moment, claims: &[Recorded], confirmed: &[&str]| {
            let object = Object::of(&live);
            let search = Search { live: &live, object: &object, moment, path: None, managers: &[] };
            let claims = search.writes(claims).map(|(recorded, write)| Claim {
                recorded,
                claimant: recorded.claimant.as_ref().unwrap(),
                write,
                is_answer: search.is_answer(recorded, write),
                is_confirmed: confirmed.contains(&&*recorded.operator),
            });
            let chosen = choose(&claims.collect::<Vec<_>>(), false);
            chosen.map(|Choice { claim, others, omitted }| {
                (std::iter::once(claim.claimant.deployment.clone()).chain(others).collect::<Vec<_>>(), omitted)
            })
        };
        let some = |names: &[&str], omitted| Some((names.iter().map(ToString::to_string).collect(), omitted));
        let now = Moment::default();
        let claims = [claim("a", "7"), claim("b", "7"), claim("b", "7"), claim("c", "6")];
        assert_eq!(choice(&now, &claims, &[]), some(&["a", "b"], 0));
        assert_eq!(choice(&read(6), &claims, &[]), some(&["c"], 0));
        assert_eq!(choice(&now, &[], &[]), None);
        // An invented version hides no confirmed one, nor do many claims.
        assert_eq!(choice(&now, &claims, &["c"]), some(&["c"], 0));
        assert_eq!(choice(&now, &claims, &["b", "c"]), some(&["b"], 0));
        let many: Vec<Recorded> = (0..20).map(|number| claim(&format!("op-{number:02}"), "7")).collect();
        let (names, omitted) = choice(&now, &many, &[]).unwrap();
        assert_eq!((names.len() + omitted, &*names[0]), (20, "op-00"));
        assert_eq!(choice(&now, &many, &["op-19"]), some(&["op-19"], 0));
    }

    #[test]
    fn log_decides_which_write_is_the_newest() {
        let live = deployment(json!([]));
        let facts = [
            fact("op", &live, json!({"verb": "finalizer", "after": "6", "before": "5"})),
            fact("op", &live, json!({"verb": "apply", "after": "4", "before": "3"})),
        ];
        let op = [logged_write(6, "op", "patch", ""), logged_write(4, "op", "patch", "")];
        assert_eq!(find(&live, &Moment::default(), None, &facts, Some(&op)), "ledger op 4");
        let edited: Vec<_> = [logged_write(7, "kubectl-edit", "patch", "")].into_iter().chain(op).collect();
        assert_eq!(find(&live, &Moment::default(), None, &facts, Some(&edited)), "log kubectl-edit 7");
    }

    #[test]
    fn fields_of_status_and_binding_have_their_own_writes() {
        let mut live = deployment(json!([
            entry("op", Some(2), "", json!({"f:spec": {"f:replicas": {}}})),
            entry("kube-controller-manager", Some(9), "status", json!({"f:status": {"f:readyReplicas": {}}})),
            entry("other", Some(9), "", json!({"f:spec": {"f:paused": {}}})),
        ]));
        let facts = [fact("op", &live, json!({"verb": "create", "after": "2"}))];
        let log = [
            logged_write(9, "kube-controller-manager", "update", "status"),
            logged_write(4, "kube-scheduler", "create", "binding"),
            logged_write(2, "op", "create", ""),
        ];
        let (now, ready) = (Moment::default(), Some("status.readyReplicas"));
        assert_eq!(find(&live, &now, ready, &facts, Some(&log)), "log kube-controller-manager 9");
        assert_eq!(find(&live, &now, ready, &facts, None), "managed kube-controller-manager");
        assert_eq!(find(&live, &now, Some("spec.replicas"), &facts, Some(&log)), "ledger op 2");
        assert_eq!(find(&live, &now, Some("spec.paused"), &facts, None), "managed other");
        live["kind"] = "Pod".into();
        assert_eq!(find(&live, &now, Some("spec.nodeName"), &facts, Some(&log)), "log kube-scheduler 4");
        assert_eq!(find(&live, &now, Some("spec.nodeName"), &facts, None), "missing");
        // Two writes of one second.
        let both = json!({"f:data": {"f:x": {}}});
        let live = deployment(json!([entry("a", Some(3), "", both.clone()), entry("b", Some(3), "", both)]));
        let log = [("4", "b"), ("3", "a")].map(|(revision, manager)| LoggedWrite {
            revision: revision.into(),
            ..logged_write(3, manager, "patch", "")
        });
        assert_eq!(find(&live, &now, Some("data.x"), &[], Some(&log)), "log b 4");
    }

    #[test]
    fn deletions_are_those_of_users() {
        let log = [
            logged_write(9, "op", "create", ""),
            logged_write(8, "kubelet", "delete", ""),
            logged_write(7, "kubelet", "patch", "status"),
            logged_write(6, "kubectl", "delete", ""),
            logged_write(4, "op", "create", ""),
            logged_write(3, "old", "delete", ""),
        ];
        let found = |moment: &Moment| deletion(&log, moment).map(|write| write.revision.as_str());
        assert_eq!((found(&Moment::default()), found(&read(8)), found(&read(2))), (Some("6"), Some("6"), None));
        let mut live = deployment(json!([]));
        live["metadata"]["creationTimestamp"] = at(9).into();
        let own = |live: &Value, log| of_this_object(live, log).into_iter().map(|w| w.revision).collect::<Vec<_>>();
        assert_eq!(own(&live, &log), ["9"]);
        live["metadata"]["creationTimestamp"] = at(4).into();
        assert_eq!(own(&live, &log[1..]), ["7", "4"], "deletions are not those of an object that exists");
        live["metadata"]["deletionTimestamp"] = at(6).into();
        assert_eq!(own(&live, &log[1..]), ["8", "7", "6", "4"]);
    }
}
