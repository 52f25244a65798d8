//! Archives of charts: checked, unpacked, and packed from directories.

use crate::error::{Error, Result, ResultExt};
use crate::image::files::ImageFile;
use crate::image::{self, archive};
use bytes::Bytes;
use flyball_chart::{Chart, File};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use url::Url;

/// Size limit of an archive.
pub(crate) const MAX_ARCHIVE_BYTES: usize = 100 << 20;
const _: () = assert!(MAX_ARCHIVE_BYTES as u64 == Chart::MAX_BYTES, "fetched archives must be loadable");

/// The archive of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    pub(crate) name: String,
    pub(crate) version: String,
    /// File name.
    pub(crate) file: String,
    pub(crate) bytes: Bytes,
    /// Reference and digest of the manifest, if a registry has the chart.
    pub(crate) manifest: Option<(String, String)>,
    /// The provenance file, if it is kept.
    pub(crate) provenance: Option<Bytes>,
    /// The signature, if it was verified.
    pub(crate) signature: Option<Signature>,
}

/// A valid signature of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// User ID of the signer.
    pub(crate) signer: String,
    /// Fingerprint of the key.
    pub(crate) fingerprint: String,
    /// Digest of the archive.
    pub(crate) digest: String,
}

/// Ending of the name of a provenance file, after that of the archive.
pub(crate) const PROVENANCE: &str = "prov";

impl Archive {
    /// Checks that some bytes are the archive of a chart.
    ///
    /// # Errors
    ///
    /// If they are not, or exceed the limits of charts.
    pub(crate) fn new(bytes: Bytes, file: &str, from: &str) -> Result<Self> {
        let what = || format!("{from} is not a chart archive");
        let files = Chart::archive_files(&bytes).context(what())?;
        let metadata = files.iter().find(|file| file.path == "Chart.yaml");
        let metadata = metadata.ok_or_else(|| Error::new(format!("{}: Chart.yaml is missing", what())))?;
        let metadata = flyball_chart::from_yaml(&String::from_utf8_lossy(&metadata.data)).context(what())?;
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let (name, version) = (text("name"), text("version"));
        if !is_file_name(&name) {
            return Err(Error::new(format!("{}: name {name:?} in Chart.yaml is not a file name", what())));
        }
        if !is_file_name(file) {
            return Err(Error::new(format!("{}: {file:?} is not a file name", what())));
        }
        Ok(Self { name, version, file: file.to_owned(), bytes, manifest: None, provenance: None, signature: None })
    }

    /// The same for a download, whose file name is that in the URL.
    pub(crate) fn of_url(bytes: Bytes, url: &Url) -> Result<Self> {
        let last = url.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
        let decoded = decode(last);
        let file = decoded.rsplit('/').next().unwrap_or_default();
        Self::new(bytes, file, &super::access::display_url(url))
    }

    /// Writes the archive, and its provenance file if it is kept, into a directory, and returns its path.
    pub(crate) fn save(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(&self.file);
        let beside = folder.join(format!("{}.{PROVENANCE}", self.file));
        let provenance = self.provenance.as_ref().map(|provenance| (&beside, provenance));
        for (path, bytes) in [Some((&path, &self.bytes)), provenance].into_iter().flatten() {
            let written = flyball_files::Replace::default().write(path, bytes);
            written.context(format!("cannot write {}", path.display()))?;
        }
        Ok(path)
    }

    /// Unpacks the archive into a new directory of the chart's name.
    pub(crate) fn unpack(&self, into: &Path) -> Result<PathBuf> {
        let folder = into.join(&self.name);
        if fs::symlink_metadata(&folder).is_ok() {
            let exists = format!("a file or directory with the name {} already exists", folder.display());
            return Err(Error::new(format!("failed to untar: {exists}")).hint("move it away, or pass --untardir DIR"));
        }
        let what = || format!("cannot unpack {} into {}", self.file, folder.display());
        fs::create_dir_all(into).and_then(|()| fs::create_dir(&folder)).context(what())?;
        let files = Chart::archive_files(&self.bytes).context(what())?;
        let written = files.iter().try_for_each(|file| write_new(&folder, file));
        if written.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        written.context(what())?;
        Ok(folder)
    }
}

/// Writes a file of a chart into its directory, which has no links.
fn write_new(folder: &Path, file: &File) -> io::Result<()> {
    let path = folder.join(&file.path);
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    OpenOptions::new().write(true).create_new(true).open(&path)?.write_all(&file.data)
}

/// Packs the chart in a directory. The bytes depend on its files, and on `SOURCE_DATE_EPOCH` if it is set.
pub(crate) fn pack(folder: &Path) -> Result<Archive> {
    let what = || format!("cannot pack {}", folder.display());
    let chart = Chart::open(folder).context(what())?;
    let mut files = Vec::new();
    for file in Chart::read_files(folder).context(what())? {
        let path = format!("{}/{}", chart.name(), file.path);
        files.push(ImageFile { path, is_executable: false, bytes: file.data.to_vec() });
    }
    let packed = archive::pack(&files, image::epoch()?).and_then(|packed| archive::compress(&packed));
    let bytes = packed.context(what())?;
    let file = format!("{}-{}.tgz", chart.name(), chart.version());
    Archive::new(bytes.into(), &file, &folder.display().to_string())
}

/// Returns true if a string names a file in a directory.
pub(super) fn is_file_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '\\']) && !text.contains(char::is_control)
}

/// Decodes the escapes of a URL.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let (byte, next) = match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => (byte, &after[2..]),
            None => (*first, after),
        };
        bytes.push(byte);
        rest = next;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        for (text, expected) in
            [("a-1.0.0%2Bb.tgz", "a-1.0.0+b.tgz"), ("%2e%2E%2Fa", "../a"), ("100%", "100%"), ("%zz%4", "%zz%4")]
        {
            assert_eq!(decode(text), expected);
        }
    }

    #[test]
    fn file_names_stay_in_their_folder() {
        assert!(["a", "site-1.0.0+b.tgz", "..."].iter().all(|name| is_file_name(name)));
        assert!(["", ".", "..", "a/b", "a\\b", "a\n"].iter().all(|name| !is_file_name(name)));
    }
}
