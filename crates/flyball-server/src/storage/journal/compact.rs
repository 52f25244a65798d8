//! Compaction: a snapshot of all objects replaces the logs before it.

use super::{Kind, file_name};
use crate::data_dir::REPLACE;
use crate::storage::frame::{FRAME, Header};
use crate::storage::{Image, record};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Approximate size of a frame of a snapshot, in bytes.
const CHUNK: usize = 1 << 20;

/// Writes a snapshot of the current objects, taken at the start of the log with this number or later, and removes older
/// files; returns its size. Recovery reads the records of that log that are newer than the snapshot.
pub(super) fn compact(folder: &Path, number: u64, image: &Image) -> io::Result<u64> {
    let mut file = REPLACE.stage(&folder.join(file_name(Kind::Snapshot, number)))?;
    let size = write(&mut file, number, image)?;
    file.commit()?;
    remove_before(folder, number);
    Ok(size)
}

fn write(file: &mut impl Write, number: u64, image: &Image) -> io::Result<u64> {
    let header = Header::new(number)?;
    let head = header.write();
    file.write_all(&head)?;
    let mut at = head.len() as u64;
    let mut frame = vec![0; FRAME];
    let mut count = 0;
    let mut put_down = |frame: &mut Vec<u8>| -> io::Result<()> {
        header.seal(at, frame);
        file.write_all(frame)?;
        at += frame.len() as u64;
        frame.truncate(FRAME);
        Ok(())
    };
    for (table, entry) in image.entries() {
        record::put(&mut frame, table, entry);
        count += 1;
        if frame.len() > CHUNK {
            put_down(&mut frame)?;
        }
    }
    record::end(&mut frame, image.revision(), count);
    put_down(&mut frame)?;
    Ok(at)
}

/// Removes the files that a snapshot has replaced; files that remain after a failure are removed at the next start.
fn remove_before(folder: &Path, number: u64) {
    for older in (1..number).rev() {
        let removed = [Kind::Log, Kind::Snapshot].map(|kind| fs::remove_file(folder.join(file_name(kind, older))));
        if removed.iter().all(Result::is_err) {
            return;
        }
    }
}
