//! Digests of texts.

use ring::digest::{Context as Digest, SHA256};
use std::fmt::Write;

/// Returns the SHA-256 of a list of texts as hexadecimal digits. The length of each text is part of it.
pub(crate) fn hex(texts: &[&[u8]]) -> String {
    let mut digest = Digest::new(&SHA256);
    for text in texts {
        digest.update(&(text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    digest.finish().as_ref().iter().fold(String::new(), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
