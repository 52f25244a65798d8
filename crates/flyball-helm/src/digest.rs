//! Digests of strings.

use flyball_core::hex;
use ring::digest::{Context as Digest, SHA256};

/// Returns the SHA-256 of a list of strings in hexadecimal. The length of each string is part of the input.
pub(crate) fn sha256(texts: &[&[u8]]) -> String {
    let mut digest = Digest::new(&SHA256);
    for text in texts {
        digest.update(&(text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    hex::encode(digest.finish().as_ref())
}
