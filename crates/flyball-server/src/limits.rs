//! Limits of bodies and stored objects: their bytes, and the memory of their decoded JSON.
//!
//! Decoded JSON uses far more memory than its text: a map with one short key uses ninety times as much. So both are
//! limited, and requests with large bodies wait until memory is available.

pub(crate) use flyball_core::memory::{ITEM, entry};
use flyball_core::memory::{NODE, of_text};

/// Maximum number of bytes of a request body, as in kube-apiserver, and of a stored object.
pub(crate) const MAX_BODY_BYTES: usize = 3 << 20;

/// Maximum number of bytes of memory of a decoded body or stored object. Ordinary objects of 1.5 MiB, etcd's limit, use
/// half of it.
pub(crate) const MAX_DECODED_BYTES: usize = 32 << 20;

/// Maximum number of bytes of a webhook response: enough for a patch that replaces the largest object, in base64.
pub(crate) const MAX_WEBHOOK_RESPONSE_BYTES: usize = 2 * MAX_BODY_BYTES;

/// Bodies up to this size are not measured: decoded, they take at most 90 times as much.
const SMALL_BODY_BYTES: usize = 64 << 10;

/// Returns an approximate upper bound of the memory of decoded JSON with this many bytes of text.
pub(crate) fn at_most(bytes: usize) -> usize {
    bytes.saturating_mul(NODE / 8).min(MAX_DECODED_BYTES)
}

/// Returns the approximate memory of decoded JSON, by its structure; at most the limit, beyond which it is rejected.
pub(crate) fn weigh(text: &[u8]) -> usize {
    of_text(text).min(MAX_DECODED_BYTES)
}

/// Returns the memory of decoded JSON, if it exceeds the limit.
pub(crate) fn excess(text: &[u8]) -> Option<usize> {
    // Most objects are short, and need no check.
    (text.len() > SMALL_BODY_BYTES).then(|| of_text(text)).filter(|weight| *weight > MAX_DECODED_BYTES)
}

/// Returns the reason to reject an object that exceeds [`MAX_DECODED_BYTES`] with its managed fields.
pub(crate) fn too_much_memory(name: &str) -> String {
    let most = MAX_DECODED_BYTES >> 20;
    format!("{name:?} is too large: with its managed fields it takes more than {most} MiB of memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_reject_dense_structures_and_accept_ordinary_objects() {
        let container = r#"{"name":"container-12345","value":"some value","ports":[1,2,3]}"#;
        let text = format!("{{\"a\":[{}0]}}", format!("{container},").repeat((3 << 19) / (container.len() + 1)));
        assert_eq!(excess(text.as_bytes()), None);
        assert!(excess(format!("[{}0]", "{\"a\":{}},".repeat(100_000)).as_bytes()).is_some());
    }
}
