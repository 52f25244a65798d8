//! Size limit of error messages.
//!
//! A message quotes arguments, and each template that calls another one adds its location, so it can exceed its causes
//! many times over. The memory of a rendering does not include messages: their limit is separate. It is high for
//! trusted charts, whose messages are exactly those of Helm.
//!
//! A rendering runs on a single thread, so the limit is thread-local.

use crate::quote::quote;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Write;

/// The part of a message that one quoted text may take: the cause, at the end of a message, is never removed.
const EXCERPTS_PER_MESSAGE: usize = 4;
/// Replaces the removed middle of a text.
const GAP: &str = " … ";

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The size limit of messages during a rendering.
pub(crate) struct Scope {
    outer: usize,
}

impl Scope {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { outer: LIMIT.replace(bytes) }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        LIMIT.set(self.outer);
    }
}

/// Returns a text for a message, without its middle if it is too long.
pub(crate) fn excerpt(text: &str) -> Cow<'_, str> {
    shortened(text, LIMIT.get() / EXCERPTS_PER_MESSAGE)
}

/// Returns a text for a message as [`excerpt`] does, in Go's quotes.
pub(crate) fn quoted(text: &str) -> String {
    quote(excerpt(text).as_bytes())
}

/// Returns true if a text of this size exceeds the limit of messages.
pub(crate) fn is_beyond_limit(bytes: usize) -> bool {
    bytes > LIMIT.get()
}

/// Writes a message within the limit.
pub(crate) fn write(message: impl std::fmt::Display) -> String {
    let mut bounded = Bounded { text: String::new(), limit: LIMIT.get() };
    // Values of this crate do not fail to be displayed.
    let _ = write!(bounded, "{message}");
    bounded.end()
}

fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return text.into();
    }
    let start = text.floor_char_boundary(limit / 2);
    let end = text.ceil_char_boundary(text.len() - limit / 2);
    format!("{}{GAP}{}", &text[..start], &text[end..]).into()
}

/// A writer that holds at most twice the limit.
struct Bounded {
    text: String,
    limit: usize,
}

impl Bounded {
    fn end(self) -> String {
        match shortened(&self.text, self.limit) {
            Cow::Borrowed(_) => self.text,
            Cow::Owned(shortened) => shortened,
        }
    }
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        let part = shortened(part, self.limit);
        if self.text.len().saturating_add(part.len()) > self.limit.saturating_mul(2) {
            self.text = shortened(&self.text, self.limit).into_owned();
        }
        self.text.push_str(&part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_keeps_its_start_and_its_end() {
        let long = format!("location: {}: cause", "é".repeat(5_000));
        assert_eq!((write(&long), excerpt(&long).as_ref()), (long.clone(), long.as_str()));
        {
            let _limit = Scope::new(101);
            let short = "a".repeat(101);
            assert_eq!(write(&short), short);
            let parts = write(format_args!("location: {}: {}", "é".repeat(5_000), "cause"));
            for found in [write(&long), parts] {
                assert!(found.starts_with("location: é") && found.ends_with("é: cause"), "{found}");
                assert!(found.contains("é … ") && found.len() <= 101 + GAP.len(), "{found}");
            }
            let nested = (0..100).fold("cause".to_owned(), |inner, at| write(format_args!("call {at}: {inner}")));
            assert!(nested.starts_with("call 99: call 98") && nested.ends_with("call 0: cause"), "{nested}");
            assert!(quoted(&"\0".repeat(1_000)).len() <= 101 + GAP.len());
        }
        assert_eq!(write(&long), long);
    }
}
