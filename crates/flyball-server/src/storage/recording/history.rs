//! The writes of a recording.

use super::{Recording, RecordingError};
use crate::storage::Revision;
use crate::storage::record::{Record, key_of};
use crate::storage::recorded::RecordingEnd;
use flyball_core::time::Timestamp;
use flyball_core::{GroupResource, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Maximum number of writes.
const MAX_WRITES: usize = 2 << 20;

/// The writes of a recording, in the order of their revisions.
#[derive(Clone, Debug)]
pub struct RecordingHistory {
    /// The revision of the objects at the start.
    pub first: u64,
    /// The revision of the last write.
    pub last: u64,
    /// The reason of the end.
    pub end: RecordingEnd,
    /// The writes after the start.
    pub writes: Vec<RecordedWrite>,
}

/// A write of a recording.
#[derive(Clone, Debug)]
pub struct RecordedWrite {
    /// The revision.
    pub revision: u64,
    /// The resource.
    pub resource: GroupResource,
    /// Namespace and name.
    pub key: ObjectKey,
    /// True if the object was removed.
    pub is_removal: bool,
    /// The origin; `None` for writes of the server itself.
    pub origin: Option<Box<RecordedOrigin>>,
}

/// The origin of a recorded write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedOrigin {
    /// The time of the write.
    pub time: Timestamp,
    /// The subresource, empty if it was the object itself.
    pub subresource: Arc<str>,
    /// The user.
    pub user: Arc<str>,
    /// The program, as its `User-Agent`.
    pub agent: Arc<str>,
    /// The field manager.
    pub manager: Arc<str>,
    /// The verb of the request.
    pub verb: Arc<str>,
}

/// Texts and resources, of which recordings contain few different ones.
#[derive(Default)]
struct Interner {
    texts: BTreeSet<Arc<str>>,
    resources: BTreeMap<String, GroupResource>,
}

impl Interner {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }

    fn resource(&mut self, (group, resource): (&str, &str)) -> GroupResource {
        let name = format!("{resource}.{group}");
        self.resources.entry(name).or_insert_with(|| GroupResource::new(group, resource)).clone()
    }
}

impl Recording {
    /// Reads the writes of the recording, and verifies the whole file.
    ///
    /// # Errors
    ///
    /// If the file is damaged, an entry is invalid, or there are more than two million writes.
    pub fn history(&self) -> Result<RecordingHistory, RecordingError> {
        let (mut interner, mut writes, mut is_too_long) = (Interner::default(), Vec::<RecordedWrite>::new(), false);
        let range = self.read(|record, part| {
            match *record {
                _ if part == super::reader::Part::Objects => {}
                Record::Put { revision, table, key, .. } | Record::Remove { revision, table, key } => {
                    if writes.len() >= MAX_WRITES {
                        is_too_long = true;
                        return Ok(ControlFlow::Break(()));
                    }
                    let is_removal = matches!(record, Record::Remove { .. });
                    let resource = interner.resource(table);
                    writes.push(RecordedWrite { revision, resource, key: key_of(key), is_removal, origin: None });
                }
                Record::Origin { revision, time, texts } => {
                    let origin = origin_of(time, texts, &mut interner).ok_or("its time is out of range")?;
                    let write = position(&writes, revision).ok_or("it is not the origin of a write before it")?;
                    writes[write].origin = Some(Box::new(origin));
                }
                Record::End { .. } | Record::Stop { .. } => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if is_too_long {
            return Err(RecordingError::TooMany { path: self.path().to_owned(), limit: MAX_WRITES });
        }
        Ok(RecordingHistory { first: range.first, last: range.last, end: range.end, writes })
    }
}

fn position(writes: &[RecordedWrite], revision: Revision) -> Option<usize> {
    writes.binary_search_by_key(&revision, |write| write.revision).ok()
}

fn origin_of(time: i64, texts: [&str; 5], interner: &mut Interner) -> Option<RecordedOrigin> {
    let time = Timestamp::from_microsecond(time).ok()?;
    let [subresource, user, agent, manager, verb] = texts.map(|text| interner.text(text));
    Some(RecordedOrigin { time, subresource, user, agent, manager, verb })
}
