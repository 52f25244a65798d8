//! The reader of a recording, frame by frame.

use super::{FORMAT, MAGIC, MAX_FRAME_BYTES, MAX_TEXT_BYTES, RecordingContext, RecordingError};
use crate::storage::Revision;
use crate::storage::entry::MAX_BYTES;
use crate::storage::frame::{FRAME, HEADER, Header};
use crate::storage::record::{Record, Records};
use crate::storage::recorded::RecordingEnd;
use flyball_core::{GroupResource, names};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Maximum number of bytes of the first line.
const MAX_LINE_BYTES: u64 = 64;
/// Larger revisions are invalid: further ones must follow.
const MAX_REVISION: Revision = 1 << 62;
/// Bytes by which a stored object may exceed the limit of written objects: a deletion is never rejected.
const MAX_EXCESS_BYTES: usize = 64 << 10;

/// A recording of a server.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
}

/// The revisions of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedRange {
    pub(super) first: Revision,
    pub(super) last: Revision,
    pub(super) end: RecordingEnd,
}

/// The frames of a file.
struct FrameReader<'p> {
    path: &'p Path,
    file: BufReader<File>,
    header: Header,
    /// The offset of the next frame.
    at: u64,
    payload: Vec<u8>,
}

/// The part of a recording that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The objects at the start.
    Objects,
    Writes,
    /// Nothing follows.
    End,
}

/// The records that were read.
struct RecordOrder {
    part: Part,
    /// The number of records.
    entry: u64,
    range: RecordedRange,
}

impl Recording {
    /// Opens a recording. Its content is read by [`Recording::history`], and when a server is restored.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is not a recording, or has another format.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        let recording = Self { path: path.into() };
        FrameReader::open(&recording.path)?;
        Ok(recording)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all records in order, until `visit` breaks. An error of `visit` is the reason why the record is invalid.
    pub(super) fn read(
        &self,
        mut visit: impl FnMut(&Record<'_>, Part) -> Result<ControlFlow<()>, String>,
    ) -> Result<RecordedRange, RecordingError> {
        let mut frames = FrameReader::open(&self.path)?;
        let range = RecordedRange { first: 0, last: 0, end: RecordingEnd::Open };
        let mut order = RecordOrder { part: Part::Objects, entry: 0, range };
        while frames.advance()? {
            let at = frames.at;
            let mut records = Records::of(&frames.payload);
            for record in records.by_ref() {
                order.entry += 1;
                let visited = order.check(&record).and_then(|part| visit(&record, part));
                match visited {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => return Ok(order.range),
                    Err(why) => return Err(self.invalid(order.entry, &record, why)),
                }
            }
            if !records.is_done() {
                let entry = format!("{}, in the frame before byte {at},", order.entry + 1);
                let why = "it is not a record of this format".to_owned();
                return Err(RecordingError::Entry { path: self.path.clone(), entry, why });
            }
        }
        if order.part == Part::Objects {
            let why = "it ends before all objects of the start were written";
            return Err(RecordingError::Damaged { path: self.path.clone(), at: frames.at, why });
        }
        Ok(order.range)
    }

    fn invalid(&self, entry: u64, record: &Record<'_>, why: String) -> RecordingError {
        let object = match record {
            Record::Put { revision, table, key, .. } | Record::Remove { revision, table, key } => {
                let table = GroupResource::new(table.0, table.1);
                format!(" ({:?} at revision {revision})", format!("{table} {key}"))
            }
            Record::Origin { revision, .. } => format!(" (origin of revision {revision})"),
            Record::End { .. } | Record::Stop { .. } => String::new(),
        };
        RecordingError::Entry { path: self.path.clone(), entry: format!("{entry}{object}"), why }
    }
}

impl<'p> FrameReader<'p> {
    fn open(path: &'p Path) -> Result<Self, RecordingError> {
        let file = File::open(path).during("read", path)?;
        if !file.metadata().during("read", path)?.is_file() {
            return Err(RecordingError::Foreign { path: path.to_owned() });
        }
        let mut file = BufReader::with_capacity(256 << 10, file);
        let line = first_line(&mut file).during("read", path)?;
        match line.as_deref().and_then(|line| line.strip_prefix(MAGIC)) {
            Some(FORMAT) => {}
            Some(found) => return Err(RecordingError::Format { path: path.to_owned(), found: found.to_owned() }),
            None => return Err(RecordingError::Foreign { path: path.to_owned() }),
        }
        let start = (MAGIC.len() + FORMAT.len() + 1) as u64;
        let mut head = Vec::with_capacity(HEADER);
        (&mut file).take(HEADER as u64).read_to_end(&mut head).during("read", path)?;
        let Some(header) = Header::read(&head) else {
            return Err(RecordingError::Damaged { path: path.to_owned(), at: start, why: "its header is invalid" });
        };
        Ok(Self { path, file, header, at: start + HEADER as u64, payload: Vec::new() })
    }

    /// Reads the next frame; returns false at the end of the file, or before a frame that was cut off there.
    fn advance(&mut self) -> Result<bool, RecordingError> {
        let damaged = |why| Err(RecordingError::Damaged { path: self.path.to_owned(), at: self.at, why });
        self.payload.clear();
        (&mut self.file).take(FRAME as u64).read_to_end(&mut self.payload).during("read", self.path)?;
        let Ok(head) = <[u8; FRAME]>::try_from(&self.payload[..]) else {
            return Ok(false);
        };
        let Some(length) = self.header.payload_length(&head) else {
            return damaged("no frame of this recording begins there");
        };
        if length > MAX_FRAME_BYTES {
            return damaged("the frame is longer than 16 MiB");
        }
        self.payload.clear();
        (&mut self.file).take(length as u64).read_to_end(&mut self.payload).during("read", self.path)?;
        if self.payload.len() < length {
            // The salt is random: objects do not contain it.
            if self.payload.windows(8).any(|bytes| *bytes == self.header.salt[..8]) {
                return damaged("the length of the frame is wrong");
            }
            return Ok(false);
        }
        if !self.header.is_valid(self.at, &head, &self.payload) {
            return damaged("the checksum of the frame is wrong");
        }
        self.at += (FRAME + length) as u64;
        Ok(true)
    }
}

/// Reads the first line; `None` if there is no short one.
fn first_line(file: &mut BufReader<File>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    file.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    Ok(line.strip_suffix(b"\n").and_then(|line| String::from_utf8(line.to_vec()).ok()))
}

impl RecordOrder {
    /// Checks a record by itself, and that it may follow the previous one; returns its part of the recording.
    fn check(&mut self, record: &Record<'_>) -> Result<Part, String> {
        let part = self.part;
        match (part, record) {
            (Part::Objects, Record::Put { revision, table, key, body, .. }) => {
                check_object(*table, key)?;
                check_body(body)?;
                check_revision(*revision)?;
                self.range.last = self.range.last.max(*revision);
            }
            (Part::Objects, Record::End { revision, count }) => {
                check_revision(*revision)?;
                if *revision < self.range.last || *count + 1 != self.entry {
                    return Err("it contradicts the objects before it".into());
                }
                (self.range.first, self.range.last) = (*revision, *revision);
                self.part = Part::Writes;
            }
            (Part::Writes, Record::Put { revision, table, key, .. } | Record::Remove { revision, table, key }) => {
                check_object(*table, key)?;
                check_revision(*revision)?;
                if *revision <= self.range.last {
                    return Err(format!("its revision does not follow {}", self.range.last));
                }
                if let Record::Put { body, .. } = record {
                    check_body(body)?;
                }
                self.range.last = *revision;
            }
            (Part::Writes, Record::Origin { revision, texts, .. }) => {
                if *revision > self.range.last || *revision <= self.range.first {
                    return Err("it is not the origin of a write before it".into());
                }
                if texts.iter().any(|text| text.len() > MAX_TEXT_BYTES) {
                    return Err(format!("a text has more than {MAX_TEXT_BYTES} bytes"));
                }
            }
            (Part::Writes, Record::Stop { reason }) => {
                self.range.end = RecordingEnd::of(*reason).ok_or("its reason of the end is unknown")?;
                self.part = Part::End;
            }
            _ => return Err("it is out of place".into()),
        }
        Ok(part)
    }
}

fn check_revision(revision: Revision) -> Result<(), String> {
    if revision < MAX_REVISION { Ok(()) } else { Err("its revision is too large".into()) }
}

fn check_object((group, resource): (&str, &str), key: &str) -> Result<(), String> {
    if !(group.is_empty() || names::is_subdomain(group)) || !names::is_subdomain(resource) {
        return Err("its resource has no valid name".into());
    }
    let (namespace, name) = key.split_once('/').map_or((None, key), |(namespace, name)| (Some(namespace), name));
    let is_name = names::is_path_segment(name) && name.len() <= 1024 && !name.chars().any(char::is_control);
    if !is_name || namespace.is_some_and(|namespace| !names::dns_label(namespace).is_empty()) {
        return Err("it has no valid name".into());
    }
    Ok(())
}

fn check_body(body: &[u8]) -> Result<(), String> {
    if body.len() > MAX_BYTES + MAX_EXCESS_BYTES {
        return Err(format!("it has {} bytes; at most {MAX_BYTES} are stored", body.len()));
    }
    Ok(())
}
