//! Digests of strings.

use ring::digest::{Context as Digest, SHA256};
use std::fmt::Write;

/// Returns the SHA-256 of a list of strings in hexadecimal. The length of each string is part of the input.
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
