//! The JSON of queues, ledgers and caches.

use crate::cache::{Caches, LastError, Store, StoreId};
use crate::election::LeadershipState;
use crate::external::ExternalCalls;
use crate::kind::Kind;
use crate::ledger::{FilteredChange, Flap, MAX_ERROR_BYTES, Next, Read, ReconcileRecord, Target, WriteRecord};
use crate::queue::{Cause, Causes, Effect, KeySnapshot, KeyState, Trigger, Write};
use flyball_core::ObjectKey;
use flyball_core::time::{SignedDuration, Timestamp, rfc3339_micro, saturating_add};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Encodes parts of pages, at one time.
pub(super) struct Encoder<'a> {
    caches: &'a Caches,
    /// The same moment on both clocks.
    now: (Instant, Timestamp),
}

impl<'a> Encoder<'a> {
    pub(super) fn new(caches: &'a Caches, now: Timestamp) -> Self {
        Self { caches, now: (Instant::now(), now) }
    }

    /// Converts a time of the runtime into one of the clock.
    fn time(&self, at: Instant) -> Value {
        let (instant, now) = self.now;
        let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        let since = match at.checked_duration_since(instant) {
            Some(ahead) => signed(ahead),
            None => -signed(instant.saturating_duration_since(at)),
        };
        rfc3339_micro(saturating_add(now, since)).into()
    }

    /// Returns the kind of the objects in a store.
    pub(super) fn kind_of(&self, store: StoreId) -> Option<&'a Kind> {
        self.caches.stores().get(store).map(|store| store.kind())
    }

    pub(super) fn kind(&self, kind: &Kind) -> Value {
        let gvk = kind.gvk();
        json!({"group": *gvk.group, "version": *gvk.version, "kind": *gvk.kind})
    }

    pub(super) fn object(&self, kind: &Kind, key: &ObjectKey) -> Value {
        let mut object = self.kind(kind);
        if let Some(namespace) = key.namespace() {
            object["namespace"] = namespace.into();
        }
        object["name"] = key.name().into();
        object
    }

    fn stored(&self, store: StoreId, key: &ObjectKey) -> Value {
        self.kind_of(store).map_or(Value::Null, |kind| self.object(kind, key))
    }

    pub(super) fn store(&self, store: &Store) -> Value {
        let mut page = self.kind(store.kind());
        page["resource"] = (*store.kind().resource().resource).into();
        page["objects"] = store.len().into();
        page["bytes"] = store.bytes().into();
        page["synced"] = store.is_synced().into();
        page["absent"] = store.is_absent().into();
        if let Some(namespace) = store.namespace() {
            page["namespace"] = namespace.into();
        }
        if let Some(progress) = store.progress() {
            page["revision"] = progress.revision.to_string().into();
            page["changed"] = self.time(progress.at);
        }
        let selection = &store.cached_part().selection;
        if !selection.is_empty() {
            page["selection"] = selection.describe().into();
        }
        if let Some(error) = store.last_error().filter(|_| !store.is_absent()) {
            page["error"] = self.error(&error);
        }
        page
    }

    fn error(&self, error: &LastError) -> Value {
        let mut message = error.message.clone();
        message.truncate(message.floor_char_boundary(MAX_ERROR_BYTES));
        json!({"message": message, "since": self.time(error.since)})
    }

    pub(super) fn lease(&self, leadership: &LeadershipState) -> Value {
        let (holder, error) = leadership.observed();
        let mut page = json!({
            "namespace": leadership.lease.namespace(),
            "name": leadership.lease.name(),
            "holder": holder,
            "leading": leadership.gate.is_open(),
        });
        if let Some(error) = error {
            page["error"] = self.error(&error);
        }
        page
    }

    pub(super) fn key(&self, key: &KeySnapshot) -> Value {
        let (state, time) = match key.state {
            KeyState::Ready(since) => ("ready", Some(("since", since))),
            KeyState::Running(since) => ("running", Some(("since", since))),
            KeyState::Throttled(since) => ("throttled", Some(("since", since))),
            KeyState::Delayed(until) => ("delayed", Some(("until", until))),
            KeyState::Backoff(until) => ("backoff", Some(("until", until))),
            KeyState::Held(until) => ("held", until.map(|until| ("until", until))),
        };
        let mut page = json!({"name": key.key.name(), "state": state});
        if let Some(namespace) = key.key.namespace() {
            page["namespace"] = namespace.into();
        }
        if let Some((name, at)) = time {
            page[name] = self.time(at);
        }
        if key.failures > 0 {
            page["failures"] = key.failures.into();
        }
        if key.again {
            page["again"] = true.into();
        }
        self.add_causes(&key.causes, &mut page);
        let pending = |write: &Write| {
            let mut page = self.stored(write.store, &write.object);
            if let Effect::Version(version) = write.effect {
                page["after"] = version.to_string().into();
            }
            page
        };
        if !key.writes.is_empty() {
            page["writes"] = key.writes.iter().map(pending).collect::<Vec<_>>().into();
        }
        page
    }

    fn add_causes(&self, causes: &Causes, page: &mut Value) {
        page["causes"] = causes.iter().map(|cause| self.cause(cause)).collect::<Vec<_>>().into();
        page["causesOmitted"] = causes.omitted().into();
    }

    fn cause(&self, cause: &Cause) -> Value {
        match cause {
            Cause::Change(Trigger { store, object, before, version }) => {
                let mut page = json!({"type": "change", "object": self.stored(*store, object)});
                add_versions(*before, *version, &mut page);
                page
            }
            Cause::Source(name) => json!({"type": "source", "name": name}),
            Cause::Start => json!({"type": "start"}),
            Cause::Relist => json!({"type": "relist"}),
            Cause::UnmappedChange => json!({"type": "unmappedChange"}),
            Cause::RequeueAfter => json!({"type": "requeueAfter"}),
            Cause::Backoff => json!({"type": "backoff"}),
            Cause::Memory => json!({"type": "memory"}),
        }
    }

    pub(super) fn filtered(&self, change: &FilteredChange) -> Value {
        let mut page = json!({"object": self.stored(change.store, &change.object), "at": rfc3339_micro(change.at)});
        add_versions(change.before, change.after, &mut page);
        page
    }

    pub(super) fn reconcile(&self, controller: &str, kind: &Kind, reconcile: &ReconcileRecord) -> Value {
        let accesses = reconcile.accesses.list();
        let mut page = json!({
            "id": format!("{:016x}", reconcile.id),
            "controller": controller,
            "object": self.object(kind, &reconcile.key),
            "began": rfc3339_micro(reconcile.began),
            "waited": seconds(reconcile.waited),
            "took": seconds(reconcile.took),
            "reads": accesses.reads.iter().map(|read| self.read(read)).collect::<Vec<_>>(),
            "readsOmitted": accesses.reads_omitted,
            "writes": accesses.writes.iter().map(|write| self.write(write)).collect::<Vec<_>>(),
            "writesOmitted": accesses.writes_omitted,
            "externalCalls": accesses.external.iter().map(external).collect::<Vec<_>>(),
            "outcome": reconcile.outcome.name(),
            "next": self.next(reconcile),
        });
        self.add_causes(&reconcile.causes, &mut page);
        if reconcile.version > 0 {
            page["resourceVersion"] = reconcile.version.to_string().into();
        }
        if reconcile.generation > 0 {
            page["generation"] = reconcile.generation.into();
        }
        if reconcile.from_server {
            page["fromServer"] = true.into();
        }
        if reconcile.accesses.skipped > 0 {
            page["skipped"] = reconcile.accesses.skipped.into();
        }
        if let Some(error) = &reconcile.error {
            page["error"] = (*error.message).into();
            if let Some(status) = error.status {
                page["status"] = status.into();
            }
            if let Some(denial) = error.denial {
                page["denial"] = denial.name().into();
            }
        }
        if reconcile.failures > 0 {
            page["failures"] = reconcile.failures.into();
        }
        if !accesses.flaps.is_empty() {
            page["flaps"] = accesses.flaps.iter().map(|flap| self.flap(flap)).collect::<Vec<_>>().into();
        }
        page
    }

    fn next(&self, reconcile: &ReconcileRecord) -> Value {
        match reconcile.next {
            Next::Change => json!({"type": "change"}),
            Next::Backoff => json!({"type": "backoff"}),
            Next::RequeueAfter(delay) => {
                let since = SignedDuration::try_from(reconcile.took.saturating_add(delay));
                let at = saturating_add(reconcile.began, since.unwrap_or(SignedDuration::MAX));
                json!({"type": "requeueAfter", "seconds": seconds(delay), "at": rfc3339_micro(at)})
            }
        }
    }

    fn target(&self, target: &'a Target) -> Option<&'a Kind> {
        match target {
            Target::Store(store) => self.kind_of(*store),
            Target::Kind(kind) => Some(kind),
        }
    }

    fn read(&self, read: &Read) -> Value {
        match read {
            Read::Object(target, key, version) => {
                let mut page = json!({"object": self.target(target).map(|kind| self.object(kind, key))});
                if *version > 0 {
                    page["resourceVersion"] = version.to_string().into();
                }
                page
            }
            Read::List(target, namespace, count) => {
                let mut list = self.target(target).map_or(Value::Null, |kind| self.kind(kind));
                if let (Some(namespace), true) = (namespace, list.is_object()) {
                    list["namespace"] = (**namespace).into();
                }
                json!({"list": list, "objects": count})
            }
        }
    }

    pub(super) fn write(&self, write: &WriteRecord) -> Value {
        let fields = write.fields.known.iter().map(ToString::to_string).collect::<Vec<_>>();
        let result = match &write.effect {
            Effect::Version(version) if *version == write.before => "unchanged",
            Effect::Version(_) => "changed",
            Effect::Deleted(_) => "deleted",
            Effect::Unknown => "unknown",
        };
        let mut page = json!({
            "object": self.stored(write.store, &write.object),
            "verb": write.verb.name(),
            "result": result,
            "fields": fields,
            "fieldsOmitted": write.fields.omitted,
        });
        if !write.subresource.is_empty() {
            page["subresource"] = write.subresource.into();
        }
        let after = if let Effect::Version(version) = write.effect { version } else { 0 };
        add_versions(write.before, after, &mut page);
        page
    }

    fn flap(&self, flap: &Flap) -> Value {
        let managers: Vec<&str> = flap.managers.iter().map(|name| &**name).collect();
        json!({"object": self.stored(flap.store, &flap.object), "field": *flap.field, "managers": managers})
    }

    /// Returns true if a reconcile was caused by, read or wrote an object for which `is` is true.
    pub(super) fn involves(&self, reconcile: &'a ReconcileRecord, is: impl Fn(&Kind, &ObjectKey) -> bool) -> bool {
        let stored = |store: StoreId, key: &ObjectKey| self.kind_of(store).is_some_and(|kind| is(kind, key));
        let caused = |cause: &Cause| matches!(cause, Cause::Change(trigger) if stored(trigger.store, &trigger.object));
        let read = |read: &'a Read| match read {
            Read::Object(target, key, _) => self.target(target).is_some_and(|kind| is(kind, key)),
            Read::List(..) => false,
        };
        reconcile.causes.iter().any(caused)
            || reconcile.accesses.list().writes.iter().any(|write| stored(write.store, &write.object))
            || reconcile.accesses.list().reads.iter().any(read)
    }
}

/// Adds the versions before and after a change, which are 0 if there is none.
fn add_versions(before: u64, after: u64, page: &mut Value) {
    for (name, version) in [("before", before), ("after", after)] {
        if version > 0 {
            page[name] = version.to_string().into();
        }
    }
}

fn external(of: &ExternalCalls) -> Value {
    json!({"system": of.system, "calls": of.calls, "failures": of.failures, "took": seconds(of.took)})
}

fn seconds(duration: Duration) -> Value {
    // Microseconds are sufficient.
    (duration.as_micros() as f64 / 1e6).into()
}
