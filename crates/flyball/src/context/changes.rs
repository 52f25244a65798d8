//! The fields that writes change, and fields that alternate between the values of two writers.

use super::ReconcileSession;
use super::session::WriteVerb;
use crate::cache::{Entry, KeptFields, Store};
use crate::events::Event;
use crate::ledger::{self, ChangedFields, Segment, Verb, WrittenObject, path_text};
use flyball_core::ObjectKey;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Path of a field.
type Path = Arc<[Segment]>;

/// Limit of managers in the text of an event.
const MAX_MANAGERS: usize = 4;

impl ReconcileSession {
    /// Returns the fields that have the values again that this controller changed for the same spec.
    pub(super) fn reverted_fields(
        &self,
        store: &Store,
        key: &ObjectKey,
        (_, subresource): WriteVerb,
        known: Option<&Arc<Entry>>,
    ) -> Vec<Path> {
        let is_compared = subresource.is_empty() && self.ledger.is_enabled();
        let Some(known) = known.filter(|_| is_compared) else { return Vec::new() };
        let reverted = self.ledger.flaps().reverted(self.written_object(store, key));
        let is_reverted = |(path, before): &(Path, u64)| ledger::value_at(known.raw(), path) == *before;
        reverted.into_iter().filter(is_reverted).map(|(path, _)| path).collect()
    }

    /// Returns the managers that own the fields. Caches do not keep them, so the object is read; this happens a few
    /// times per reconciled object at most.
    pub(super) async fn field_owners(&self, store: &Store, key: &ObjectKey, fields: &[Path]) -> Vec<Box<str>> {
        if let Some(known) = self.ledger.flaps().known_managers(&self.primary.key) {
            return known;
        }
        let Ok(managed) = self.env.fetch_managed_fields(store.kind(), key).await else { return Vec::new() };
        let mut owners: Vec<Box<str>> = Vec::new();
        for owner in fields.iter().flat_map(|field| ledger::owners_of(&managed, field)) {
            if !owners.contains(&owner) && *owner != *self.env.manager && owners.len() < MAX_MANAGERS {
                owners.push(owner);
            }
        }
        self.ledger.flaps().record_managers(&self.primary.key, &owners);
        owners
    }

    /// Compares the states before and after a write, and reports fields that alternate.
    pub(super) fn compare(
        &self,
        store: &Store,
        key: &ObjectKey,
        (verb, subresource): WriteVerb,
        known: Option<&Arc<Entry>>,
        entry: &Arc<Entry>,
        owners: Vec<Box<str>>,
    ) -> ChangedFields {
        let is_changed = |known: &&Arc<Entry>| known.resource_version() != entry.resource_version();
        let Some(known) = known.filter(|_| self.ledger.is_enabled()).filter(is_changed) else {
            return ChangedFields::default();
        };
        let is_partial = known.is_withheld() || store.cached_part().kept != KeptFields::Whole;
        let fields = ledger::changed_fields(known.raw(), entry.raw(), subresource, is_partial);
        if !subresource.is_empty() || verb == Verb::Finalizer {
            return fields;
        }
        let written = self.written_object(store, key);
        let paths = self.ledger.flaps().record(written, &fields);
        if !paths.is_empty() {
            self.report_flaps(store, written, &paths, owners);
        }
        fields
    }

    fn report_flaps(&self, store: &Store, written: WrittenObject<'_>, paths: &[Path], owners: Vec<Box<str>>) {
        let managers: Vec<Box<str>> = std::iter::once((*self.env.manager).into()).chain(owners).collect();
        let (kind, object) = (store.kind(), written.object);
        for path in paths {
            let (own, others) = (&managers[0], managers[1..].join(", "));
            let who = match managers.len() {
                1 => format!("{own} reverts its own change"),
                _ => format!("{own} and {others} set different values"),
            };
            let field = path_text(path);
            let note = format!("{field} of {kind} {object} alternates between two values: {who}");
            tracing::warn!(%kind, %object, field, managers = managers.join(", "), "a field alternates");
            self.event(Event::warning("Flapping", note));
        }
        self.ledger.count_flaps(paths.len());
        let flaps = paths.iter().map(|path| ledger::flap(written, path, managers.clone()));
        self.accesses.lock().list_mut().flaps.extend(flaps);
    }

    fn written_object<'a>(&'a self, store: &Store, object: &'a ObjectKey) -> WrittenObject<'a> {
        let entry = &self.primary.entry;
        // Kinds without a generation change with each write.
        let spec = u64::try_from(entry.generation()).ok().filter(|generation| *generation > 0);
        let spec = spec.unwrap_or_else(|| entry.resource_version());
        let spec = (spec, self.desired_version.load(Ordering::Relaxed));
        WrittenObject { key: &self.primary.key, spec, store: store.id(), object }
    }
}
