//! The debug pages of an operator, `/debug/flyball`: queues, ledgers and caches as JSON.
//!
//! They contain names, versions, paths of fields and error messages, and no values of objects. They have their own
//! non-resource URL, so that a role can allow metrics without them.

mod encoding;
mod query;

use crate::cache::{Caches, Store};
use crate::controller::Declaration;
use crate::election::LeadershipState;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::ledger::{Ledger, ReconcileRecord, WriteRecord};
use crate::queue::Queue;
use encoding::Encoder;
use flyball_core::{Clock, ObjectKey};
use http::StatusCode;
use query::{ObjectQuery, ReconcileQuery};
use serde_json::{Value, json};
use std::sync::Arc;

use flyball_core::time::{Timestamp, rfc3339_micro};

/// Path of the first page; others are below it.
const PAGE: &str = "/debug/flyball";
/// Limit of keys of a queue in the first page.
const MAX_KEYS: usize = 200;
/// Limit of filtered changes of an object.
const MAX_FILTERED: usize = 8;
/// Limit of writes to an object.
const MAX_WRITES: usize = 16;

/// Returns true if a path is that of a debug page.
pub(super) fn is_page(path: &str) -> bool {
    path.strip_prefix(PAGE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The sources of the debug pages.
#[derive(Debug)]
pub(super) struct DebugPages {
    pub(super) operator: Arc<str>,
    pub(super) instance: String,
    pub(super) field_manager: Arc<str>,
    pub(super) version: Option<&'static str>,
    pub(super) started: Timestamp,
    pub(super) clock: Clock,
    pub(super) controllers: Vec<DebuggedController>,
    pub(super) caches: Arc<Caches>,
    /// The election of a leader, if there is one.
    pub(super) leadership: Option<Arc<LeadershipState>>,
    /// Opens when the operator is shutting down.
    pub(super) stop: Arc<Latch>,
}

/// A controller whose queue and ledger are shown.
#[derive(Debug)]
pub(super) struct DebuggedController {
    name: String,
    kind: Kind,
    workers: usize,
    on_all_replicas: bool,
    queue: Arc<Queue>,
    ledger: Arc<Ledger>,
    /// The caches that it waits for.
    stores: Vec<Arc<Store>>,
}

impl DebuggedController {
    pub(super) fn new(controller: &Declaration, queue: Arc<Queue>, ledger: Arc<Ledger>, caches: &Caches) -> Self {
        Self {
            name: controller.name.clone(),
            kind: controller.primary.clone(),
            workers: controller.concurrency,
            on_all_replicas: controller.on_all_replicas,
            queue,
            ledger,
            stores: controller.required_stores(caches),
        }
    }
}

impl DebugPages {
    /// Returns the code and text of a page.
    pub(super) fn page(&self, path: &str, query: &str) -> (StatusCode, String) {
        let page = match path.strip_prefix(PAGE) {
            Some("" | "/") => Ok(self.overview()),
            Some("/reconciles") => ReconcileQuery::parse(query).map(|query| self.reconciles(&query)),
            Some("/object") => ObjectQuery::parse(query).map(|query| self.object(&query)),
            _ => return (StatusCode::NOT_FOUND, "no such page\n".into()),
        };
        match page {
            Ok(page) => (StatusCode::OK, format!("{page}\n")),
            Err(problem) => (StatusCode::BAD_REQUEST, format!("{problem}\n")),
        }
    }

    fn overview(&self) -> Value {
        let encoder = self.encoder();
        let controllers = self.controllers.iter().map(|controller| self.controller(&encoder, controller));
        let mut page = json!({
            "operator": &*self.operator,
            "instance": self.instance,
            "fieldManager": &*self.field_manager,
            "flyball": env!("CARGO_PKG_VERSION"),
            "time": rfc3339_micro(self.clock.now()),
            "started": rfc3339_micro(self.started),
            "shuttingDown": self.stop.is_open(),
            "controllers": controllers.collect::<Vec<_>>(),
            "stores": self.caches.stores().iter().map(|store| encoder.store(store)).collect::<Vec<_>>(),
        });
        if let Some(version) = self.version {
            page["version"] = version.into();
        }
        if let Some(leadership) = &self.leadership {
            page["lease"] = encoder.lease(leadership);
        }
        page
    }

    fn controller(&self, encoder: &Encoder<'_>, controller: &DebuggedController) -> Value {
        let (counts, keys) = controller.queue.snapshot(MAX_KEYS);
        let (stats, size) = (controller.queue.stats(), controller.ledger.size());
        let total = counts.ready + counts.running + counts.delayed + counts.backoff + counts.throttled + counts.held;
        let mut page = encoder.kind(&controller.kind);
        page["name"] = controller.name.as_str().into();
        page["workers"] = controller.workers.into();
        self.add_activity(controller, &mut page);
        page["queue"] = json!({
            "ready": counts.ready,
            "running": counts.running,
            "delayed": counts.delayed,
            "backoff": counts.backoff,
            "throttled": counts.throttled,
            "held": counts.held,
            "adds": stats.adds,
            "retries": stats.retries,
            "echoes": stats.echoes,
            "overdue": stats.overdue,
            "keysOmitted": total - keys.len(),
            "keys": keys.iter().map(|key| encoder.key(key)).collect::<Vec<_>>(),
        });
        page["ledger"] = json!({
            "reconciles": size.reconciles,
            "bytes": size.bytes,
            "dropped": size.dropped,
            "flaps": size.flaps,
        });
        page
    }

    /// Adds whether the workers of a controller run, and what they wait for.
    fn add_activity(&self, controller: &DebuggedController, page: &mut Value) {
        let mut waits: Vec<String> = Vec::new();
        if !controller.on_all_replicas && !self.leads() {
            waits.push("leadership".into());
        }
        let missing = controller.stores.iter().filter(|store| !store.is_synced());
        waits.extend(missing.map(|store| format!("cache {}", store.kind())));
        page["active"] = waits.is_empty().into();
        if !waits.is_empty() {
            page["waitsFor"] = waits.into();
        }
    }

    fn leads(&self) -> bool {
        self.leadership.as_ref().is_none_or(|leadership| leadership.gate.is_open())
    }

    fn reconciles(&self, query: &ReconcileQuery) -> Value {
        let encoder = self.encoder();
        let mut found: Vec<(ReconcileRecord, &DebuggedController)> = Vec::new();
        for controller in self.controllers.iter().filter(|controller| query.is_of(&controller.name)) {
            let reconciles =
                controller.ledger.reconciles(usize::MAX, |reconcile| self.matches(query, controller, reconcile));
            found.extend(reconciles.into_iter().map(|reconcile| (reconcile, controller)));
        }
        found.sort_by_key(|(reconcile, _)| std::cmp::Reverse(reconcile.began));
        let omitted = found.len().saturating_sub(query.limit);
        let shown = found.iter().take(query.limit);
        json!({
            "time": rfc3339_micro(self.clock.now()),
            "operator": &*self.operator,
            "reconciles": shown.map(|(r, c)| encoder.reconcile(&c.name, &c.kind, r)).collect::<Vec<_>>(),
            "omitted": omitted,
        })
    }

    fn matches(&self, query: &ReconcileQuery, controller: &DebuggedController, reconcile: &ReconcileRecord) -> bool {
        if query.since.is_some_and(|since| reconcile.began < since) || query.id.is_some_and(|id| reconcile.id != id) {
            return false;
        }
        let object = &query.object;
        object.matches(&controller.kind, &reconcile.key)
            || (query.involves && self.encoder().involves(reconcile, |kind, key| object.matches(kind, key)))
    }

    fn object(&self, query: &ObjectQuery) -> Value {
        let (encoder, key) = (self.encoder(), &query.key());
        let of_kind = |kind: &Kind| query.object.matches_kind(kind);
        let controllers = self.controllers.iter().filter(|controller| of_kind(&controller.kind));
        let stores = self.caches.stores().iter().filter(|store| {
            of_kind(store.kind()) && store.namespace().is_none_or(|namespace| key.namespace() == Some(namespace))
        });
        let store = |store: &Arc<Store>| {
            let (mut page, entry) = (encoder.store(store), store.get(key));
            page["cached"] = entry.is_some().into();
            page["mayBeSelected"] = store.cached_part().selection.may_select(key).into();
            if let Some(entry) = entry {
                page["resourceVersion"] = entry.resource_version().to_string().into();
            }
            page
        };
        json!({
            "time": rfc3339_micro(self.clock.now()),
            "operator": &*self.operator,
            "instance": self.instance,
            "leading": self.leads(),
            "controllers": controllers.map(|controller| self.state_of(&encoder, controller, key)).collect::<Vec<_>>(),
            "stores": stores.map(store).collect::<Vec<_>>(),
            "writes": self.writes_to(&encoder, query),
        })
    }

    /// Returns what a controller knows about an object that it reconciles.
    fn state_of(&self, encoder: &Encoder<'_>, controller: &DebuggedController, key: &ObjectKey) -> Value {
        let store = self.caches.store_of(&controller.kind, key.namespace()).ok();
        let entry = store.and_then(|store| store.get(key));
        let mut page = json!({
            "name": controller.name,
            "cached": entry.is_some(),
            "paused": entry.as_ref().is_some_and(|entry| entry.is_paused()),
            "deleting": entry.as_ref().is_some_and(|entry| entry.is_deleting()),
        });
        if let Some(entry) = &entry {
            page["resourceVersion"] = entry.resource_version().to_string().into();
        }
        self.add_activity(controller, &mut page);
        if let Some(found) = controller.queue.key_snapshot(key) {
            page["key"] = encoder.key(&found);
        }
        let filtered = controller.ledger.filtered(key, MAX_FILTERED);
        page["filtered"] = filtered.iter().map(|change| encoder.filtered(change)).collect::<Vec<_>>().into();
        if let Some(last) = controller.ledger.reconciles(1, |reconcile| reconcile.key == *key).first() {
            page["last"] = encoder.reconcile(&controller.name, &controller.kind, last);
        }
        page
    }

    /// Returns the newest writes to an object, newest first.
    fn writes_to(&self, encoder: &Encoder<'_>, query: &ObjectQuery) -> Vec<Value> {
        let mut found: Vec<(Timestamp, Value)> = Vec::new();
        for controller in &self.controllers {
            let is_to = |write: &WriteRecord| {
                encoder.kind_of(write.store).is_some_and(|kind| query.object.matches(kind, &write.object))
            };
            let has_written_it = |found: &ReconcileRecord| found.accesses.list().writes.iter().any(is_to);
            for reconcile in controller.ledger.reconciles(MAX_WRITES, has_written_it) {
                for write in &reconcile.accesses.list().writes {
                    if is_to(write) {
                        let mut page = encoder.write(write);
                        page["reconcile"] = format!("{:016x}", reconcile.id).into();
                        page["controller"] = controller.name.as_str().into();
                        page["of"] = encoder.object(&controller.kind, &reconcile.key);
                        page["began"] = rfc3339_micro(reconcile.began).into();
                        found.push((reconcile.began, page));
                    }
                }
            }
        }
        found.sort_by_key(|(began, _)| std::cmp::Reverse(*began));
        found.into_iter().take(MAX_WRITES).map(|(_, page)| page).collect()
    }

    fn encoder(&self) -> Encoder<'_> {
        Encoder::new(&self.caches, self.clock.now())
    }
}

#[cfg(test)]
pub(super) mod tests;
