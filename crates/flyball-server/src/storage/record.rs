//! Records: the payload format of a frame.
//!
//! ```text
//! put    = 1  revision u64  schema u64  group  resource  key  body
//! remove = 2  revision u64  group  resource  key
//! end    = 3  revision u64  count u64             (the last record of a snapshot)
//! origin = 4  revision u64  time i64  subresource  user  agent  manager  verb
//! stop   = 5  reason u8                           (the last record of a recording)
//! ```
//!
//! Origins and stops occur only in recordings; a time is in microseconds since 1970. Strings and bodies follow their
//! length, a little-endian u32. Selectable fields are not stored: they are derived from
//! the body, by rules that may differ between releases.

use super::recorded::Origin;
use super::{Change, Entry, Revision};
use flyball_core::{GroupResource, ObjectKey};

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'b> {
    Put { revision: Revision, schema: u64, table: (&'b str, &'b str), key: &'b str, body: &'b [u8] },
    Remove { revision: Revision, table: (&'b str, &'b str), key: &'b str },
    End { revision: Revision, count: u64 },
    Origin { revision: Revision, time: i64, texts: [&'b str; 5] },
    Stop { reason: u8 },
}

/// Decodes a key.
pub(super) fn key_of(text: &str) -> ObjectKey {
    match text.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(Some(namespace), name),
        None => ObjectKey::new(None, text),
    }
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("objects are bounded");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Encodes the current state of an object.
pub(super) fn put(out: &mut Vec<u8>, table: &GroupResource, entry: &Entry) {
    out.push(1);
    number(out, entry.revision);
    number(out, entry.schema);
    for text in [&*table.group, &*table.resource, entry.key.as_str()] {
        bytes(out, text.as_bytes());
    }
    bytes(out, &entry.body);
}

/// Encodes a change of an object.
pub(super) fn change(out: &mut Vec<u8>, table: &GroupResource, change: &Change) {
    match change {
        Change::Put(entry) => put(out, table, entry),
        Change::Remove(last) => {
            out.push(2);
            number(out, last.revision);
            for text in [&*table.group, &*table.resource, last.key.as_str()] {
                bytes(out, text.as_bytes());
            }
        }
    }
}

/// Encodes the end of a complete snapshot.
pub(super) fn end(out: &mut Vec<u8>, revision: Revision, count: u64) {
    out.push(3);
    number(out, revision);
    number(out, count);
}

/// Encodes the origin of a write.
pub(super) fn origin(out: &mut Vec<u8>, origin: &Origin) {
    out.push(4);
    number(out, origin.revision);
    number(out, origin.time.as_microsecond().cast_unsigned());
    for text in [origin.subresource, &origin.user, &origin.agent, &origin.manager, &origin.verb] {
        bytes(out, text.as_bytes());
    }
}

/// Encodes the end of a recording.
pub(super) fn stop(out: &mut Vec<u8>, reason: u8) {
    out.extend_from_slice(&[5, reason]);
}

/// The records of a payload, up to the first malformed one.
pub(super) struct Records<'b>(&'b [u8]);

impl<'b> Records<'b> {
    pub(super) fn of(payload: &'b [u8]) -> Self {
        Self(payload)
    }

    /// Returns true if the payload was read completely.
    pub(super) fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    fn next_bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.next_bytes(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = u32::from_le_bytes(self.next_bytes(4)?.try_into().ok()?);
        self.next_bytes(usize::try_from(length).ok()?)
    }

    fn text(&mut self) -> Option<&'b str> {
        str::from_utf8(self.bytes()?).ok()
    }

    fn read(&mut self) -> Option<Record<'b>> {
        match self.next_bytes(1)?[0] {
            1 => Some(Record::Put {
                revision: self.number()?,
                schema: self.number()?,
                table: (self.text()?, self.text()?),
                key: self.text()?,
                body: self.bytes()?,
            }),
            2 => Some(Record::Remove {
                revision: self.number()?,
                table: (self.text()?, self.text()?),
                key: self.text()?,
            }),
            3 => Some(Record::End { revision: self.number()?, count: self.number()? }),
            4 => Some(Record::Origin {
                revision: self.number()?,
                time: self.number()?.cast_signed(),
                texts: [self.text()?, self.text()?, self.text()?, self.text()?, self.text()?],
            }),
            5 => Some(Record::Stop { reason: self.next_bytes(1)?[0] }),
            _ => None,
        }
    }
}

impl<'b> Iterator for Records<'b> {
    type Item = Record<'b>;

    fn next(&mut self) -> Option<Record<'b>> {
        let before = self.0;
        let read = self.read();
        if read.is_none() {
            self.0 = before;
        }
        read
    }
}
