//! The trace of a run: a running hash of all crossings, and their text if it is recorded.

use std::fmt::{self, Write};

/// The trace of a run. Two runs with equal hashes were equal, byte for byte.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

/// FNV-1a with a multiplication of 64 bits: stable across processes and releases.
fn mixed(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the hash of a text.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    mixed(0xcbf2_9ce4_8422_2325, bytes)
}

struct Hashing<'a>(&'a mut u64);

impl Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        *self.0 = mixed(*self.0, text.as_bytes());
        Ok(())
    }
}

impl Trace {
    /// Creates an empty trace, which records its text or only its hash.
    pub(crate) fn new(records: bool) -> Self {
        Self { hash: hash_of(b""), lines: records.then(Vec::new) }
    }

    /// Adds a line, followed by a body.
    pub(crate) fn add(&mut self, line: fmt::Arguments<'_>, body: &[u8]) {
        // Hashing cannot fail.
        let _ = Hashing(&mut self.hash).write_fmt(line);
        self.hash = mixed(self.hash, body);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{line} {}", String::from_utf8_lossy(body).trim_end()));
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
        let mut trace = Trace::new(true);
        trace.add(format_args!("get a"), b"{}\n");
        assert_eq!(trace.into_lines(), ["get a {}"]);
    }
}
