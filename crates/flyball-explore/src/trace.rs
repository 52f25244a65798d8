//! The trace of a run: a running hash of all crossings, and their text if it is recorded.

use std::fmt::{self, Write};

/// The trace of a run. Two runs with equal hashes were equal, byte for byte.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    /// The current line, whose memory is reused.
    line: String,
    lines: Option<Vec<String>>,
}

/// Adds bytes to a hash that is stable across processes: FNV-1a over words of 64 bits, rotated so that all bits of a
/// word affect the low ones. The length is part of it, so that the last word may be padded.
fn mixed(hash: u64, bytes: &[u8]) -> u64 {
    let add = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(add(hash, bytes.len() as u64), |hash, word| add(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    add(hash, u64::from_le_bytes(last))
}

/// Returns the hash of a text.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    mixed(0xcbf2_9ce4_8422_2325, bytes)
}

impl Trace {
    /// Creates an empty trace, which records its text or only its hash.
    pub(crate) fn new(records: bool) -> Self {
        Self { hash: hash_of(b""), line: String::new(), lines: records.then(Vec::new) }
    }

    /// Adds a line, followed by a body.
    pub(crate) fn add(&mut self, line: fmt::Arguments<'_>, body: &[u8]) {
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = self.line.write_fmt(line);
        self.hash = mixed(mixed(self.hash, self.line.as_bytes()), body);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{} {}", self.line, String::from_utf8_lossy(body).trim_end()));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Takes the recorded lines.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_covers_lines_and_bodies() {
        let hash = |line: &str, body: &[u8]| {
            let mut trace = Trace::new(false);
            trace.add(format_args!("{line}"), body);
            trace.hash()
        };
        assert_eq!(hash("a", b"b"), hash("a", b"b"));
        assert_ne!(hash("a", b"b"), hash("a", b"c"));
        assert_ne!(hash("a", b"b"), hash("b", b"b"));
        assert_ne!(hash("a", b"b\0"), hash("a", b"b"), "the padding counts");
        assert_ne!(hash("12345678", b""), hash("1234567", b"8"), "the place of the bytes counts");
        let mut trace = Trace::new(true);
        trace.add(format_args!("get a"), b"{}\n");
        assert_eq!(trace.into_lines(), ["get a {}"]);
    }
}
