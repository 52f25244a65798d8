//! A digest of a content, for catalogs without a revision.

use crate::content::Content;
use ring::digest::{Context, SHA256};
use std::fmt::{self, Write};

/// Returns a digest that differs for different contents.
pub(crate) fn content_digest(content: &Content) -> String {
    let mut digest = Digest(Context::new(&SHA256));
    // Digests accept all text.
    let _ = write!(digest, "{content:?}");
    digest.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Digest(Context);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
