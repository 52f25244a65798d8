//! Compaction: a snapshot of all objects takes the place of the logs before it.

use super::frame::{FRAME, Header};
use super::{Kind, file_name, record};
use crate::data_dir::REPLACE;
use crate::storage::Image;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Bytes that a frame of a snapshot holds, roughly.
const CHUNK: usize = 1 << 20;

/// Writes a snapshot of what there is, from when the log of this number began or later, and removes what came before;
/// returns its size. Recovery takes from that log what is newer than the snapshot.
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

/// Removes the files that a snapshot has made superfluous; those left by a failure go at the next start.
fn remove_before(folder: &Path, number: u64) {
    for older in (1..number).rev() {
        let removed = [Kind::Log, Kind::Snapshot].map(|kind| fs::remove_file(folder.join(file_name(kind, older))));
        if removed.iter().all(Result::is_err) {
            return;
        }
    }
}
