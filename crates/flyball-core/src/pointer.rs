//! Segments of JSON pointers (RFC 6901).
//!
//! ```
//! use flyball_core::pointer::{escape, unescape};
//! assert_eq!(escape("example.com/a~b"), "example.com~1a~0b");
//! assert_eq!(unescape("example.com~1a~0b"), "example.com/a~b");
//! assert_eq!(unescape("~01"), "~1");
//! ```

use std::borrow::Cow;

/// Escapes the name of a field as a segment of a pointer.
#[doc(alias = "EscapeJSONPointer")]
pub fn escape(name: &str) -> Cow<'_, str> {
    match name.contains(['~', '/']) {
        true => Cow::Owned(name.replace('~', "~0").replace('/', "~1")),
        false => Cow::Borrowed(name),
    }
}

/// Returns the name of the field that a segment of a pointer escapes.
pub fn unescape(segment: &str) -> Cow<'_, str> {
    match segment.contains('~') {
        // In this order: `~01` is the name `~1`.
        true => Cow::Owned(segment.replace("~1", "/").replace("~0", "~")),
        false => Cow::Borrowed(segment),
    }
}
