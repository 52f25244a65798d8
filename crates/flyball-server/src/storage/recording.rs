//! Recordings: files with every state of all objects since a moment, and the origin of each write.
//!
//! A recording begins with all objects, continues with each write in the order of revisions, and ends when the server
//! closes it or when it reaches its limit. A thread writes it: a slow or full disk ends the recording and does not
//! delay the server. [`Recording`] reads it, and the store can be restored as of any of its revisions.
//!
//! ```text
//! file = "flyball recording 1\n"  header  frame*
//! ```
//!
//! Headers and frames are those of the [journal](super::frame), at offsets of this file. A frame follows the previous
//! one without a gap, so an incomplete frame at the end was cut off by a crash. A file may come from anyone: its
//! frames, objects and number of writes are bounded, and each record is checked.

mod file;
mod history;
mod reader;
mod recorder;
mod restore;

#[cfg(test)]
mod tests;

pub use history::{RecordedOrigin, RecordedWrite, RecordingHistory};
pub use reader::Recording;
pub(super) use recorder::Recorder;

use std::io;
use std::path::{Path, PathBuf};

/// First bytes of the file, before the number of its format.
const MAGIC: &str = "flyball recording ";
/// The format that this program reads and writes.
const FORMAT: &str = "1";
/// Maximum number of bytes of the payload of a frame. A frame ends with the object that makes it longer than 1 MiB.
const MAX_FRAME_BYTES: usize = 16 << 20;
/// Maximum number of bytes of a text of an origin.
const MAX_TEXT_BYTES: usize = 256;

/// The error of a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// An error of the operating system.
    #[error("cannot {what} {path}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file to create exists.
    #[error("{path} exists already")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The server is being recorded.
    #[error("the server is recorded already")]
    Recorded,
    /// The objects at the start exceed the limit of the file.
    #[error("the objects of the server do not fit into a recording of {limit} bytes")]
    TooSmall {
        /// The limit in bytes.
        limit: u64,
    },
    /// The file is not a recording.
    #[error("{path} is not a recording")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Another release has written the file.
    #[error("{path} has format {found:?}; this release reads format {FORMAT}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: String,
    },
    /// The file was changed after it was written.
    #[error("{path} is damaged at byte {at}: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the invalid frame.
        at: u64,
        /// The property of the frame that is invalid.
        why: &'static str,
    },
    /// A record is invalid.
    #[error("{path}: entry {entry} is invalid: {why}")]
    Entry {
        /// The file.
        path: PathBuf,
        /// The number of the record, from 1, and the object that it belongs to.
        entry: String,
        /// The reason.
        why: String,
    },
    /// The objects exceed the limit of the server.
    #[error("{path}: the objects at revision {revision} take more than {limit} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The revision.
        revision: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// There are too many writes to list them.
    #[error("{path} contains more than {limit} writes")]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The revision is not recorded.
    #[error("revision {revision} is not recorded: {path} contains revisions {first} to {last}")]
    NotRecorded {
        /// The file.
        path: PathBuf,
        /// The requested revision.
        revision: u64,
        /// The first recorded revision.
        first: u64,
        /// The last recorded revision.
        last: u64,
    },
}

/// Adds the failed operation and its path to an error.
trait RecordingContext<T> {
    fn during(self, what: &'static str, path: &Path) -> Result<T, RecordingError>;
}

impl<T> RecordingContext<T> for io::Result<T> {
    fn during(self, what: &'static str, path: &Path) -> Result<T, RecordingError> {
        self.map_err(|source| RecordingError::Io { what, path: path.to_owned(), source })
    }
}
