//! The objects of a recording at one of its revisions.

use super::reader::Part;
use super::{Recording, RecordingError};
use crate::limits;
use crate::storage::entry::measure;
use crate::storage::record::{Record, key_of};
use crate::storage::table::Table;
use crate::storage::{Entry, Image, Limits, Objects, Revision, Store, quarantine};
use flyball_core::GroupResource;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The objects at a revision.
struct RestoredObjects {
    revision: Revision,
    tables: BTreeMap<GroupResource, Objects>,
    /// Bytes of all objects.
    bytes: usize,
    limit: usize,
}

impl RestoredObjects {
    /// Applies a record; returns false if the objects become too large.
    fn apply(&mut self, record: &Record<'_>) -> Result<bool, String> {
        let (revision, before, after) = match *record {
            Record::Put { revision, schema, table, key, body } => {
                let entry = Arc::new(Entry::recovered(key_of(key), revision, schema, body));
                let table = self.tables.entry(GroupResource::new(table.0, table.1)).or_default();
                (revision, table.insert(entry.key.clone(), entry.clone()), Some(entry))
            }
            Record::Remove { revision, table, key } => {
                let objects = self.tables.get_mut(&GroupResource::new(table.0, table.1));
                let removed = objects.and_then(|objects| objects.remove(key));
                if removed.is_none() {
                    return Err("it removes an object that does not exist".into());
                }
                (revision, removed, None)
            }
            Record::End { revision, .. } => {
                self.revision = revision;
                return Ok(true);
            }
            Record::Origin { .. } | Record::Stop { .. } => return Ok(true),
        };
        self.revision = self.revision.max(revision);
        let size = |entry: Option<Arc<Entry>>| entry.map_or(0, |entry| entry.size());
        self.bytes = self.bytes + size(after) - size(before);
        Ok(self.bytes <= self.limit)
    }
}

impl Recording {
    fn objects_at(&self, at: Revision, limit: usize) -> Result<RestoredObjects, RecordingError> {
        let mut restored = RestoredObjects { revision: 0, tables: BTreeMap::new(), bytes: 0, limit };
        let (mut is_past, mut is_too_large) = (false, false);
        let range = self.read(|record, part| {
            if let (Part::Writes, Record::Put { revision, .. } | Record::Remove { revision, .. }) = (part, record)
                && *revision > at
            {
                is_past = true;
                return Ok(ControlFlow::Break(()));
            }
            is_too_large = !restored.apply(record)?;
            Ok(if is_too_large { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let path = self.path().to_owned();
        if is_too_large {
            return Err(RecordingError::TooLarge { path, revision: restored.revision, limit });
        }
        if at < range.first || !is_past && at > range.last {
            let range = self.read(|_, _| Ok(ControlFlow::Continue(())))?;
            return Err(RecordingError::NotRecorded { path, revision: at, first: range.first, last: range.last });
        }
        Ok(restored)
    }

    /// Checks that an object that can be decoded is the one that its entry names.
    fn check_object(&self, table: &GroupResource, entry: &Entry) -> Result<(), RecordingError> {
        let reject = |why: String| {
            let entry = format!("{:?} at revision {}", format!("{table} {}", entry.key), entry.revision);
            Err(RecordingError::Entry { path: self.path().to_owned(), entry, why })
        };
        if limits::excess(&entry.body).is_some() {
            return reject(limits::too_much_memory(entry.key.name()));
        }
        let object = match entry.object() {
            Ok(object) => object,
            // Such objects may have been stored by an earlier release. They are quarantined.
            Err(_) if measure(&entry.body).is_err() => return Ok(()),
            Err(error) => return reject(error.to_string()),
        };
        if object.key() != entry.key {
            return reject(format!("its metadata names {:?}", object.key().as_str()));
        }
        if object.resource_version() != entry.revision.to_string() {
            return reject(format!("its metadata has resource version {:?}", object.resource_version()));
        }
        Ok(())
    }
}

impl Store {
    /// Creates a store in memory, with the objects of a recording as of a revision. Later writes continue from it.
    ///
    /// Objects have no selectable fields before [`Store::select_by`] sets them.
    pub(crate) fn restore(recording: &Recording, at: Revision, limits: Limits) -> Result<Self, RecordingError> {
        let RestoredObjects { revision, tables, .. } = recording.objects_at(at, limits.stored_bytes)?;
        let (mut count, mut restored) = (0, BTreeMap::new());
        for (name, mut objects) in tables {
            objects.values().try_for_each(|entry| recording.check_object(&name, entry))?;
            let quarantine = quarantine(&name, &mut objects, &mut count);
            restored.insert(name, Table::of(objects, quarantine, revision));
        }
        Ok(Self::of(Image::new(revision, restored), limits))
    }
}
