//! Texts within the size limit of outputs.

use super::reject;
use minijinja::Error;
use std::{fmt, io};

/// Size limit of an output: more than an API server accepts.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// A text that is written up to the size limit.
#[derive(Default)]
pub(super) struct LimitedText(Vec<u8>);

impl LimitedText {
    pub(super) fn text(self) -> Result<String, Error> {
        String::from_utf8(self.0).map_err(|error| reject(error.to_string()))
    }
}

impl io::Write for LimitedText {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.0.len() + part.len() > MAX_OUTPUT_BYTES {
            return Err(io::Error::other(format!("the output of a template exceeds {MAX_OUTPUT_BYTES} bytes")));
        }
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Write for LimitedText {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        io::Write::write_all(self, part.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Rejects a text that exceeds the size limit.
pub(super) fn check_size(what: &str, size: usize) -> Result<(), Error> {
    if size > MAX_OUTPUT_BYTES {
        Err(reject(format!("the result of {what} exceeds {MAX_OUTPUT_BYTES} bytes")))
    } else {
        Ok(())
    }
}
