//! The single layer of an image: the program, and a few standard files.

use super::Contents;
use flate2::{Compression, GzBuilder};
use flyball_core::time::Timestamp;
use std::io::{self, Write};
use tar::{Builder, EntryType, Header};

/// User ID of the program, which owns no files.
const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";

/// Creates the archive. Its bytes depend on its contents alone.
pub(super) fn archive(contents: &Contents<'_>, epoch: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let mut add = |path: &str, mode: u32, bytes: Option<&[u8]>| {
        let mut header = Header::new_ustar();
        header.set_entry_type(if bytes.is_some() { EntryType::Regular } else { EntryType::Directory });
        let bytes = bytes.unwrap_or_default();
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(u64::try_from(epoch.as_second()).unwrap_or_default());
        archive.append_data(&mut header, path, bytes)
    };
    add("etc/", 0o755, None)?;
    add("etc/group", 0o644, Some(GROUP.as_bytes()))?;
    add("etc/passwd", 0o644, Some(PASSWD.as_bytes()))?;
    add("etc/ssl/", 0o755, None)?;
    add("etc/ssl/certs/", 0o755, None)?;
    add("etc/ssl/certs/ca-certificates.crt", 0o644, Some(contents.certificates))?;
    add(contents.name, 0o755, Some(contents.program))?;
    archive.into_inner()
}

/// Compresses it, without the time and the system that gzip would write down.
pub(super) fn compress(archive: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    gzip.write_all(archive)?;
    gzip.finish()
}
