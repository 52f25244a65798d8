//! The layer of the program of an image, with a few standard files.

use super::Contents;
use super::archive::ArchiveWriter;
use super::base::{BaseFiles, LISTS};
use flyball_core::time::Timestamp;
use std::io;

/// User ID of the program, which owns no files.
const ID: &str = "65532";
const PASSWD: [&str; 2] = ["root:x:0:0:root:/:/sbin/nologin", "nonroot:x:65532:65532:nonroot:/:/sbin/nologin"];
const GROUP: [&str; 2] = ["root:x:0:", "nonroot:x:65532:"];

/// Creates the archive of the program. Its bytes depend on its contents, and on the files of a base, which remain.
pub(super) fn program_layer(contents: &Contents<'_>, base: &BaseFiles, epoch: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = ArchiveWriter::new(Vec::new(), epoch);
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
    archive.finish()
}
