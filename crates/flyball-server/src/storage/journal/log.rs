//! The current log: appends frames to a file, and syncs each frame before the next one.

use crate::data_dir::owned;
use crate::storage::frame::{FRAME, HEADER, Header};
use flyball_files::{create_private, sync_parent};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes by which a file is extended: syncing takes half as long if the file size does not change.
const EXTENSION_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct Log {
    file: File,
    header: Header,
    /// The end of the valid part.
    pub(super) length: u64,
    /// The length of the file.
    room: u64,
}

/// The reason why a frame is not on disk.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The frame was not written, and the log is intact: the disk is full, for example.
    Rejected(io::Error),
    /// The content of the disk is unknown.
    Broken(io::Error),
}

impl Log {
    /// Starts a new log.
    pub(super) fn create(path: &Path, number: u64) -> io::Result<Self> {
        let header = Header::new(number)?;
        let mut file = create_private(path)?;
        let written = file.write_all(&header.write()).and_then(|()| file.sync_all()).and_then(|()| sync_parent(path));
        if let Err(error) = written {
            // The previous log is continued, and must be the last one.
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(Self { file, header, length: HEADER as u64, room: HEADER as u64 })
    }

    /// Opens a log for appending after its valid part of this length.
    pub(super) fn resume(path: &Path, header: Header, length: u64) -> io::Result<Self> {
        let file = owned(OpenOptions::new().write(true)).open(path)?;
        // A truncated frame must not look corrupted when other frames follow it.
        file.set_len(length)?;
        file.sync_all()?;
        Ok(Self { file, header, length, room: length })
    }

    /// Appends a frame and syncs it. The payload follows [`FRAME`] bytes that are reserved for its header.
    pub(super) fn append(&mut self, frame: &mut [u8]) -> Result<(), WriteError> {
        debug_assert!(frame.len() > FRAME);
        self.header.seal(self.length, frame);
        let end = self.length + frame.len() as u64;
        if end > self.room {
            self.room = self.make_room(end).unwrap_or(end);
        }
        let written = self.file.seek(SeekFrom::Start(self.length)).and_then(|_| self.file.write_all(frame));
        if let Err(error) = written {
            return Err(match self.file.set_len(self.length) {
                Ok(()) => {
                    self.room = self.length;
                    WriteError::Rejected(error)
                }
                Err(_) => WriteError::Broken(error),
            });
        }
        // After a failed sync the kernel may have dropped dirty pages: the state is known only after recovery.
        self.file.sync_data().map_err(WriteError::Broken)?;
        self.length = end;
        Ok(())
    }

    /// Preallocates space beyond a position; if that fails, the file grows with each write.
    #[cfg(target_os = "linux")]
    fn make_room(&self, end: u64) -> Option<u64> {
        use rustix::fs::{FallocateFlags, fallocate};
        let length = end.checked_sub(self.room)?.checked_add(EXTENSION_BYTES)?;
        fallocate(&self.file, FallocateFlags::empty(), self.room, length).ok()?;
        Some(self.room + length)
    }

    #[cfg(not(target_os = "linux"))]
    fn make_room(&self, _: u64) -> Option<u64> {
        None
    }

    /// Truncates the file to its used length.
    pub(super) fn close(self) {
        let _ = self.file.set_len(self.length);
    }
}
