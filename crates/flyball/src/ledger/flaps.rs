//! Detection of fields that alternate between two values while the reconciled object stays the same.
//!
//! A controller is level-based: for one spec it writes a field once. If it writes the same change a second time
//! although it has not reverted the first one, another writer has: both disagree. If it reverts its own changes again
//! and again, it disagrees with itself. Status is not compared, since it follows the observed state.

use super::fields::{ChangedField, ChangedFields, Segment, path_text};
use crate::cache::StoreId;
use flyball_core::ObjectKey;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Limit of reconciled objects whose writes are compared; the oldest one is dropped.
const MAX_OBJECTS: usize = 512;
/// Limit of changed fields that are compared for one reconciled object.
const MAX_CHANGES: usize = 32;

/// Limit of requests for the managers of alternating fields of one reconciled object.
const MAX_LOOKUPS: u32 = 3;
/// Number of own reversals of a field after which it counts as alternating.
const MIN_REVERSALS: usize = 3;

/// A field that alternates between two values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flap {
    pub(crate) store: StoreId,
    pub(crate) object: ObjectKey,
    pub(crate) field: Box<str>,
    /// The writers: the field manager of the operator, and the others that owned the field.
    pub(crate) managers: Vec<Box<str>>,
}

impl Flap {
    pub(super) fn bytes(&self) -> usize {
        let names = self.managers.iter().map(|name| size_of::<Box<str>>() + name.len()).sum::<usize>();
        size_of::<Self>() + self.object.as_str().len() + self.field.len() + names
    }
}

/// An object that is written for another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenObject<'a> {
    /// The reconciled object.
    pub(crate) key: &'a ObjectKey,
    /// Numbers that change with its desired state: the generation, or the resource version if it has none; and the
    /// version that the reconciler sets.
    pub(crate) spec: (u64, u64),
    pub(crate) store: StoreId,
    pub(crate) object: &'a ObjectKey,
}

/// The newest changes of fields, by reconciled object.
#[derive(Debug, Default)]
pub(crate) struct FlapDetector {
    objects: BTreeMap<ObjectKey, Track>,
    /// Reconciled objects, oldest first.
    order: VecDeque<ObjectKey>,
}

/// The newest changes for one reconciled object.
#[derive(Debug, Default)]
struct Track {
    changes: VecDeque<Change>,
    /// The other managers of the fields that alternated last.
    managers: Vec<Box<str>>,
    /// Number of times that managers were looked up.
    lookups: u32,
}

#[derive(Debug)]
struct Change {
    spec: (u64, u64),
    store: StoreId,
    object: ObjectKey,
    field: ChangedField,
}

impl FlapDetector {
    /// Returns the paths of fields that were changed for the same spec, each with the hash of the value before: if the
    /// field has that value again, another writer has reverted the change.
    pub(crate) fn reverted(&self, written: WrittenObject<'_>) -> Vec<(Arc<[Segment]>, u64)> {
        let changes = self.objects.get(written.key).into_iter().flat_map(|track| &track.changes);
        let same = changes.filter(|change| change.is_of(written));
        same.map(|change| (change.field.path.clone(), change.field.before)).collect()
    }

    /// Returns the other managers of the fields that alternate, if they were looked up often enough.
    pub(crate) fn known_managers(&self, key: &ObjectKey) -> Option<Vec<Box<str>>> {
        self.objects.get(key).filter(|track| track.lookups >= MAX_LOOKUPS).map(|track| track.managers.clone())
    }

    /// Records the other managers of the fields that alternate.
    pub(crate) fn record_managers(&mut self, key: &ObjectKey, managers: &[Box<str>]) {
        if let Some(track) = self.objects.get_mut(key) {
            track.lookups += 1;
            track.managers = managers.to_vec();
        }
    }

    /// Records the fields that a write changed, and returns the paths of those that alternate.
    pub(crate) fn record(&mut self, written: WrittenObject<'_>, fields: &ChangedFields) -> Vec<Arc<[Segment]>> {
        if fields.known.is_empty() {
            return Vec::new();
        }
        if !self.objects.contains_key(written.key) {
            if self.order.len() >= MAX_OBJECTS
                && let Some(oldest) = self.order.pop_front()
            {
                self.objects.remove(&oldest);
            }
            self.order.push_back(written.key.clone());
        }
        let Track { changes, .. } = self.objects.entry(written.key.clone()).or_default();
        changes.retain(|change| change.spec == written.spec);
        let mut flapping = Vec::new();
        for field in &fields.known {
            let earlier = changes.iter().filter(|change| change.is_of(written) && change.field.path == field.path);
            if alternates(earlier.map(|change| &change.field), field) {
                flapping.push(field.path.clone());
            }
            if changes.len() >= MAX_CHANGES {
                changes.pop_front();
            }
            let (spec, store, object) = (written.spec, written.store, written.object.clone());
            changes.push_back(Change { spec, store, object, field: field.clone() });
        }
        flapping
    }

    /// Drops the changes for an object that was deleted.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        if self.objects.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }
}

/// Returns true if a change of a field, after these earlier ones, alternates between two values.
fn alternates<'a>(earlier: impl Iterator<Item = &'a ChangedField>, change: &ChangedField) -> bool {
    let (mut last, mut is_repeated, mut reversals) = (None, false, 0);
    for known in earlier {
        is_repeated |= (known.before, known.after) == (change.before, change.after);
        reversals += usize::from(
            last.is_some_and(|last: &ChangedField| (last.before, last.after) == (known.after, known.before)),
        );
        last = Some(known);
    }
    let Some(last) = last else { return false };
    let is_foreign = last.after != change.before;
    let is_reversal = (last.before, last.after) == (change.after, change.before);
    (is_foreign && is_repeated) || (is_reversal && reversals + 1 >= MIN_REVERSALS)
}

impl Change {
    fn is_of(&self, written: WrittenObject<'_>) -> bool {
        (self.spec, self.store, &self.object) == (written.spec, written.store, written.object)
    }
}

/// Returns the managers of `managedFields` that own the field at a path, in order.
pub(crate) fn owners_of(managed_fields: &serde_json::Value, path: &[Segment]) -> Vec<Box<str>> {
    let mut owners: Vec<Box<str>> = Vec::new();
    for entry in managed_fields.as_array().into_iter().flatten() {
        let manager = entry["manager"].as_str().unwrap_or_default();
        if owns(&entry["fieldsV1"], path) && !owners.iter().any(|known| **known == *manager) {
            owners.push(manager.into());
        }
    }
    owners
}

fn owns(fields: &serde_json::Value, path: &[Segment]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let Some(fields) = fields.as_object() else { return false };
    // An atomic field is owned as a whole.
    if fields.keys().all(|key| key == ".") {
        return true;
    }
    fields.iter().any(|(key, below)| {
        let is_next = match first {
            Segment::Field(name) => key.strip_prefix("f:") == Some(name),
            Segment::Element(field, name) => key.strip_prefix("k:").is_some_and(|key| {
                let key: serde_json::Value = serde_json::from_str(key).unwrap_or_default();
                let text = key[*field].as_str().map_or_else(|| key[*field].to_string(), str::to_owned);
                *text == **name
            }),
        };
        is_next && owns(below, rest)
    })
}

/// Creates the description of a flap.
pub(crate) fn flap(written: WrittenObject<'_>, path: &[Segment], managers: Vec<Box<str>>) -> Flap {
    let (store, object) = (written.store, written.object.clone());
    Flap { store, object, field: path_text(path).into(), managers }
}
