//! The file of a recording while it is written: frames up to a limit.

use super::{FORMAT, MAGIC, MAX_FRAME_BYTES, RecordingContext, RecordingError};
use crate::data_dir::owned;
use crate::storage::frame::{FRAME, Header};
use crate::storage::record;
use crate::storage::recorded::RecordingEnd;
use flyball_files::sync_parent;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Approximate size of a frame, in bytes.
const CHUNK: usize = 1 << 20;
/// Bytes of the last frame, which contains the reason of the end.
const END_BYTES: u64 = FRAME as u64 + 2;

/// A file that records are appended to.
#[derive(Debug)]
pub(super) struct RecordingFile {
    pub(super) path: PathBuf,
    file: File,
    header: Header,
    /// The end of the written part.
    length: u64,
    pub(super) limit: u64,
    /// The frame that is not written yet.
    frame: Vec<u8>,
}

impl RecordingFile {
    /// Creates a file, which only its owner can read.
    pub(super) fn create(path: &Path, limit: u64) -> Result<Self, RecordingError> {
        let opened = owned(OpenOptions::new().write(true).create_new(true)).open(path);
        let mut file = match opened {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(RecordingError::Exists { path: path.to_owned() });
            }
            opened => opened.during("create", path)?,
        };
        let header = Header::new(1).during("create", path)?;
        let mut head = format!("{MAGIC}{FORMAT}\n").into_bytes();
        head.extend(header.write());
        file.write_all(&head).and_then(|()| sync_parent(path)).during("write", path)?;
        let length = head.len() as u64;
        Ok(Self { path: path.to_owned(), file, header, length, limit, frame: vec![0; FRAME] })
    }

    /// Adds a record to the next frame. Returns false if it does not fit into the limit, or cannot be read again.
    pub(super) fn add(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<bool> {
        let before = self.frame.len();
        encode(&mut self.frame);
        let is_too_long = self.frame.len() - FRAME > MAX_FRAME_BYTES;
        if is_too_long || self.length + self.frame.len() as u64 + END_BYTES > self.limit {
            self.frame.truncate(before);
            return Ok(false);
        }
        if self.frame.len() > CHUNK {
            self.flush()?;
        }
        Ok(true)
    }

    /// Writes the frame, if it has a record.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.frame.len() > FRAME {
            self.header.seal(self.length, &mut self.frame);
            let written = self.file.write_all(&self.frame);
            if let Err(error) = written {
                // What remains of the frame would look like a crash.
                let _ = self.file.set_len(self.length);
                return Err(error);
            }
            self.length += self.frame.len() as u64;
            self.frame.truncate(FRAME);
            self.frame.shrink_to(2 * CHUNK);
        }
        Ok(())
    }

    /// Writes the last frame, and syncs the file.
    pub(super) fn end(&mut self, reason: RecordingEnd) -> io::Result<()> {
        self.flush()?;
        record::stop(&mut self.frame, reason.number());
        self.flush()?;
        self.file.sync_all()
    }
}
