//! Strings that mark untrusted data.
//!
//! Data are the bytes that come from a custom resource or from the cluster. They are never evaluated: `tpl` treats them
//! as plain text. Functions that build a string from others must preserve the marks with a [`Writer`]; if positions
//! cannot be tracked exactly, the whole result is marked.

use crate::memory::MemoryCharge;
use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::rc::Rc;

/// Ranges of data in a string: sorted, without overlaps.
pub(crate) type Marks = Vec<Range<usize>>;

/// Bytes, with marks for data.
#[derive(Clone)]
pub(crate) struct Text {
    chunk: Rc<Chunk>,
    data: Option<Rc<Marks>>,
}

struct Chunk {
    bytes: Box<[u8]>,
    _charge: MemoryCharge,
}

impl Text {
    pub(crate) fn new(bytes: &[u8], data: Marks) -> Self {
        let chunk = Chunk { bytes: bytes.into(), _charge: MemoryCharge::new(bytes.len() + 64 + data.len() * 16) };
        Self { chunk: Rc::new(chunk), data: (!data.is_empty()).then(|| Rc::new(data)) }
    }

    /// Returns true if any part of it is data.
    pub(crate) fn is_data(&self) -> bool {
        self.data.is_some()
    }

    /// Returns the ranges of data.
    pub(crate) fn marks(&self) -> &[Range<usize>] {
        self.data.as_ref().map_or(&[], |data| data.as_slice())
    }

    /// Returns the same string, marked completely as data.
    pub(crate) fn to_data(&self) -> Self {
        let data = (!self.is_empty()).then(|| Rc::new(Marks::from_iter(std::iter::once(0..self.len()))));
        Self { chunk: Rc::clone(&self.chunk), data }
    }

    /// Returns a part with its marks.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        let mut writer = Writer::default();
        writer.part(self, range);
        writer.text()
    }

    /// Returns a part that is a subslice of the bytes.
    pub(crate) fn found(&self, part: &[u8]) -> Self {
        let from = (part.as_ptr() as usize).saturating_sub(self.as_ptr() as usize).min(self.len());
        self.part(from..(from + part.len()).min(self.len()))
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.chunk.bytes
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// Returns a string with replacement characters for invalid UTF-8. Checking the whole string is faster than searching
/// for invalid bytes.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// A builder of strings with marks.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    data: Marks,
    charge: MemoryCharge,
}

impl Writer {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds bytes that are not data.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.charge.add(bytes.len());
        self.bytes.extend(bytes);
    }

    /// Adds bytes with ranges of data.
    pub(crate) fn marked(&mut self, bytes: &[u8], marks: &[Range<usize>]) {
        let at = self.bytes.len();
        self.add(bytes);
        marks.iter().for_each(|mark| self.mark(at + mark.start..at + mark.end));
    }

    /// Adds a string with its marks.
    pub(crate) fn text_of(&mut self, text: &Text) {
        self.part(text, 0..text.len());
    }

    /// Adds a part of a string with its marks.
    pub(crate) fn part(&mut self, text: &Text, range: Range<usize>) {
        let at = self.bytes.len();
        self.add(&text[range.clone()]);
        for mark in text.marks() {
            let (from, to) = (mark.start.max(range.start), mark.end.min(range.end));
            if from < to {
                self.mark(at + from - range.start..at + to - range.start);
            }
        }
    }

    /// Adds the written bytes, as data if `is_data`.
    pub(crate) fn written(&mut self, is_data: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.bytes.len();
        write(&mut self.bytes);
        let to = self.bytes.len();
        self.charge.add(to.saturating_sub(from));
        if is_data {
            self.mark(from..to);
        }
    }

    fn mark(&mut self, range: Range<usize>) {
        match self.data.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => {
                self.charge.add(16);
                self.data.push(range);
            }
        }
    }

    /// Marks all written bytes as data.
    pub(crate) fn mark_all(&mut self) {
        self.data.clear();
        self.mark(0..self.bytes.len());
    }

    pub(crate) fn text(self) -> Text {
        Text::new(&self.bytes, self.data)
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "marks are lists of ranges, often of one")]
mod tests {
    use super::*;

    #[test]
    fn slices_keep_their_marks() {
        let mut writer = Writer::default();
        writer.add(b"ab");
        writer.text_of(&Text::new(b"{{x}}", Marks::from_iter([0..5])));
        writer.add(b"cd");
        let text = writer.text();
        assert_eq!((&*text, text.marks()), (&b"ab{{x}}cd"[..], &[2..7][..]));
        assert_eq!(text.part(3..9).marks(), [0..4]);
        assert_eq!(text.found(text[1..].trim_ascii_end()).marks(), [1..6]);
        assert!(!text.part(0..2).is_data());
        assert_eq!(text.part(0..2).to_data().marks(), [0..2]);
    }
}
