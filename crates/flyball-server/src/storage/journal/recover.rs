//! Recovery of the objects of a directory after any crash.

use super::{Kind, file_name};
use crate::data_dir::{DataDirContext, DataDirError, OpeningStage, Progress};
use crate::storage::frame::{Frames, HEADER, Header, NextFrame};
use crate::storage::record::{Record, Records, key_of};
use crate::storage::{Entry, Objects, Revision};
use flyball_core::GroupResource;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The content of a recovered journal.
#[derive(Debug, Default)]
pub(crate) struct RecoveredContent {
    /// The revision of the last write, 0 if there was none.
    pub(crate) revision: Revision,
    /// The objects, without selectable fields.
    pub(crate) tables: BTreeMap<GroupResource, Objects>,
    pub(super) tail: Tail,
    /// Bytes of the snapshot.
    pub(super) snapshot: u64,
}

/// The end of the journal, at which writing continues.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The number of the last log.
    pub(super) number: u64,
    /// Its header and the length of its valid part, if it was started.
    pub(super) log: Option<(Header, u64)>,
    /// True if there are older logs, whose snapshot was not completed.
    pub(super) follows_others: bool,
}

/// A log file.
struct LogFile {
    number: u64,
    is_last: bool,
    /// The revision of the snapshot.
    snapshot_revision: Revision,
}

/// Recovers a directory, and removes obsolete files.
pub(super) fn recover(folder: &Path, progress: &Progress) -> Result<RecoveredContent, DataDirError> {
    let (snapshots, mut logs) = files(folder)?;
    // A log without a header is empty.
    while let Some(number) = logs.last().copied() {
        let path = folder.join(file_name(Kind::Log, number));
        let bytes = fs::read(&path).during("read", &path)?;
        if bytes.len() > HEADER && bytes[HEADER..].iter().any(|byte| *byte != 0) || Frames::of(&bytes).is_some() {
            break;
        }
        fs::remove_file(&path).during("remove", &path)?;
        logs.remove(&number);
    }
    let snapshot = snapshots.last().copied();
    let mut recovered = RecoveredContent::default();
    if let Some(number) = snapshot {
        recovered.read_snapshot(&folder.join(file_name(Kind::Snapshot, number)), number, progress)?;
    }
    let first = snapshot.unwrap_or(1);
    let last = logs.last().copied().unwrap_or(first).max(first);
    recovered.tail.number = last;
    recovered.tail.follows_others = last > first;
    let whole = recovered.revision;
    for number in first..=last {
        let path = folder.join(file_name(Kind::Log, number));
        if logs.contains(&number) {
            let log = LogFile { number, is_last: number == last, snapshot_revision: whole };
            recovered.read_log(&path, &log, progress)?;
        } else if !logs.is_empty() || snapshot.is_some() {
            return Err(DataDirError::Missing { path });
        }
    }
    // A crash may have occurred between a snapshot and the removal of obsolete files.
    for (kind, numbers) in [(Kind::Snapshot, &snapshots), (Kind::Log, &logs)] {
        for number in numbers.range(..first) {
            let path = folder.join(file_name(kind, *number));
            fs::remove_file(&path).during("remove", &path)?;
        }
    }
    Ok(recovered)
}

/// Returns the numbers of the snapshots and logs, and removes incomplete files.
fn files(folder: &Path) -> Result<(BTreeSet<u64>, BTreeSet<u64>), DataDirError> {
    let (mut snapshots, mut logs) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(folder).during("read", folder)? {
        let path = entry.during("read", folder)?.path();
        let Some((stem, ending)) = path.file_name().and_then(|name| name.to_str()?.split_once('.')) else { continue };
        let Ok(number) = stem.parse::<u64>() else { continue };
        match ending {
            "snapshot" => drop(snapshots.insert(number)),
            "log" => drop(logs.insert(number)),
            "snapshot.new" => fs::remove_file(&path).during("remove", &path)?,
            _ => {}
        }
    }
    Ok((snapshots, logs))
}

fn damaged(path: &Path, at: usize) -> DataDirError {
    DataDirError::Damaged { path: path.to_owned(), at: at as u64 }
}

impl RecoveredContent {
    fn read_snapshot(&mut self, path: &Path, number: u64, progress: &Progress) -> Result<(), DataDirError> {
        let bytes = fs::read(path).during("read", path)?;
        let frames = Frames::of(&bytes).filter(|frames| frames.header().number == number);
        let mut frames = frames.ok_or_else(|| damaged(path, 0))?;
        self.snapshot = bytes.len() as u64;
        let mut whole = false;
        loop {
            let at = frames.at;
            progress.report(OpeningStage::Reading, at as u64, bytes.len() as u64);
            match frames.next() {
                NextFrame::Frame(payload) if !whole => {
                    whole = self.read_frame(payload, 0).ok_or_else(|| damaged(path, at))?;
                }
                NextFrame::End if whole => return Ok(()),
                _ => return Err(damaged(path, at)),
            }
        }
    }

    fn read_log(&mut self, path: &Path, log: &LogFile, progress: &Progress) -> Result<(), DataDirError> {
        let &LogFile { number, is_last, snapshot_revision } = log;
        let bytes = fs::read(path).during("read", path)?;
        let frames = Frames::of(&bytes).filter(|frames| frames.header().number == number);
        let mut frames = frames.ok_or_else(|| damaged(path, 0))?;
        loop {
            let at = frames.at;
            progress.report(OpeningStage::Reading, at as u64, bytes.len() as u64);
            match frames.next() {
                NextFrame::Frame(payload) => match self.read_frame(payload, snapshot_revision) {
                    Some(false) => {}
                    _ => return Err(damaged(path, at)),
                },
                NextFrame::End => break,
                NextFrame::Torn if is_last => {
                    let bytes = bytes.len() - at;
                    tracing::warn!(path = %path.display(), at, bytes, "dropped an incomplete write at the end of the log; it was never acknowledged");
                    break;
                }
                NextFrame::Torn | NextFrame::Damaged => return Err(damaged(path, at)),
            }
        }
        if is_last {
            self.tail.log = Some((frames.header().clone(), frames.at as u64));
        }
        Ok(())
    }

    /// Reads the records of a frame after a revision; returns true if it ends a snapshot. `None` if it is malformed.
    fn read_frame(&mut self, payload: &[u8], snapshot_revision: Revision) -> Option<bool> {
        let mut records = Records::of(payload);
        let mut is_end = false;
        for record in records.by_ref() {
            match record {
                Record::Put { revision, .. } | Record::Remove { revision, .. } if revision <= snapshot_revision => {}
                Record::Put { revision, schema, table, key, body } => {
                    let entry = Entry::recovered(key_of(key), revision, schema, body);
                    self.table(table).insert(entry.key.clone(), Arc::new(entry));
                    // Snapshots are ordered by name.
                    self.revision = self.revision.max(revision);
                }
                Record::Remove { revision, table, key } => {
                    self.table(table).remove(key)?;
                    self.revision = self.revision.max(revision);
                }
                Record::End { revision, count } => {
                    let stored: usize = self.tables.values().map(Objects::len).sum();
                    is_end = revision >= self.revision && stored as u64 == count;
                    if !is_end {
                        return None;
                    }
                    self.revision = revision;
                }
                Record::Origin { .. } | Record::Stop { .. } => return None,
            }
        }
        records.is_done().then_some(is_end)
    }

    fn table(&mut self, (group, resource): (&str, &str)) -> &mut Objects {
        let name = GroupResource::new(group, resource);
        self.tables.entry(name).or_default()
    }
}
