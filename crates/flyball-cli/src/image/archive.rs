//! Reproducible archives of files: layers of images, charts and exported images.

use super::files::ImageFile;
use flate2::{Compression, GzBuilder};
use flyball_core::time::Timestamp;
use std::collections::BTreeSet;
use std::io::{self, Write};
use tar::{Builder, EntryType, Header};

/// Archives beyond this size, such as programs with debug information, are compressed less, since it takes minutes.
const MAX_BEST_BYTES: usize = 64 << 20;

/// Packs files, which are sorted by their paths. The bytes depend on the files and the time only.
pub(crate) fn pack(files: &[ImageFile], epoch: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = ArchiveWriter::new(Vec::new(), epoch);
    files.iter().try_for_each(|file| archive.add_file(file))?;
    archive.finish()
}

/// Compresses an archive, without the time and the operating system in the header of gzip.
pub(crate) fn compress(archive: &[u8]) -> io::Result<Vec<u8>> {
    let level = if archive.len() > MAX_BEST_BYTES { Compression::fast() } else { Compression::best() };
    let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), level);
    gzip.write_all(archive)?;
    gzip.finish()
}

/// Writes an archive of files that belong to root. Folders precede their files.
pub(super) struct ArchiveWriter<W: Write> {
    builder: Builder<W>,
    folders: BTreeSet<String>,
    time: u64,
}

impl<W: Write> ArchiveWriter<W> {
    pub(super) fn new(to: W, epoch: Timestamp) -> Self {
        let time = u64::try_from(epoch.as_second()).unwrap_or_default();
        Self { builder: Builder::new(to), folders: BTreeSet::new(), time }
    }

    pub(super) fn add_file(&mut self, file: &ImageFile) -> io::Result<()> {
        self.add(&file.path, if file.is_executable { 0o755 } else { 0o644 }, &file.bytes)
    }

    /// Adds a file, and its directories if they are new.
    pub(super) fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        for (end, _) in path.match_indices('/') {
            let folder = &path[..=end];
            if self.folders.insert(folder.to_owned()) {
                self.append(folder, 0o755, EntryType::Directory, &[])?;
            }
        }
        self.append(path, mode, EntryType::Regular, bytes)
    }

    fn append(&mut self, path: &str, mode: u32, entry: EntryType, bytes: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(entry);
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.time);
        self.builder.append_data(&mut header, path, bytes)
    }

    pub(super) fn finish(self) -> io::Result<W> {
        self.builder.into_inner()
    }
}
