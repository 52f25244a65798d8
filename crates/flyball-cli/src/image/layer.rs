//! Layers of an image: the program with a few standard files, and the files of a project.

use super::Contents;
use super::base::{BaseFiles, LISTS};
use super::files::ImageFile;
use flate2::{Compression, GzBuilder};
use flyball_core::time::Timestamp;
use std::collections::BTreeSet;
use std::io::{self, Write};
use tar::{Builder, EntryType, Header};

/// User ID of the program, which owns no files.
const ID: &str = "65532";
const PASSWD: [&str; 2] = ["root:x:0:0:root:/:/sbin/nologin", "nonroot:x:65532:65532:nonroot:/:/sbin/nologin"];
const GROUP: [&str; 2] = ["root:x:0:", "nonroot:x:65532:"];

/// Creates the archive of the program. Its bytes depend on its contents, and on the files of a base, which remain.
pub(super) fn archive(contents: &Contents<'_>, base: &BaseFiles, epoch: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = Archive::new(epoch);
    for (path, lines) in LISTS.iter().zip([GROUP, PASSWD]) {
        if let Some(list) = base.list(path, &(lines.join("\n") + "\n"), lines[1], ID) {
            archive.add(path.trim_start_matches('/'), 0o644, &list)?;
        }
    }
    if contents.replaces_certificates || !base.has_certificates() {
        archive.add("etc/ssl/certs/ca-certificates.crt", 0o644, contents.certificates)?;
    }
    contents.libraries.iter().try_for_each(|file| archive.add_file(file))?;
    archive.add(contents.name, 0o755, contents.program)?;
    archive.builder.into_inner()
}

/// Creates an archive of files, which are sorted by their paths.
pub(super) fn of_files(files: &[ImageFile], epoch: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = Archive::new(epoch);
    files.iter().try_for_each(|file| archive.add_file(file))?;
    archive.builder.into_inner()
}

/// An archive of files of root, each with its folders before it.
struct Archive {
    builder: Builder<Vec<u8>>,
    folders: BTreeSet<String>,
    time: u64,
}

impl Archive {
    fn new(epoch: Timestamp) -> Self {
        let time = u64::try_from(epoch.as_second()).unwrap_or_default();
        Self { builder: Builder::new(Vec::new()), folders: BTreeSet::new(), time }
    }

    fn add_file(&mut self, file: &ImageFile) -> io::Result<()> {
        self.add(&file.path, if file.is_executable { 0o755 } else { 0o644 }, &file.bytes)
    }

    fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
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
}

/// Archives beyond this size, such as programs with debug information, are compressed less, since it takes minutes.
const MAX_BEST_BYTES: usize = 64 << 20;

/// Compresses it, without the time and operating system in the gzip header.
pub(super) fn compress(archive: &[u8]) -> io::Result<Vec<u8>> {
    let level = if archive.len() > MAX_BEST_BYTES { Compression::fast() } else { Compression::best() };
    let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), level);
    gzip.write_all(archive)?;
    gzip.finish()
}
