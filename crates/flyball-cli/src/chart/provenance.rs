//! Provenance files of charts: a signed text with the digest of the archive.
//!
//! See <https://helm.sh/docs/topics/provenance/>. The program `gpgv` of GnuPG checks signatures, so keys have the same
//! meaning as for other programs. Only the text that it has verified is read.

use super::access::Access;
use super::archive::{Archive, PROVENANCE, Signature};
use crate::error::{Error, Result, ResultExt};
use crate::files::private::PrivateDirectory;
use crate::image::digest;
use crate::render::terminal::print_labeled;
use bytes::Bytes;
use serde_json::Value;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use url::Url;

/// Media type of a provenance file in a registry.
pub(super) const MEDIA_TYPE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
/// Size limit of a provenance file.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// The line between the metadata of the chart and the digests, as Helm splits the text.
const SEPARATOR: &str = "\n...\n";
/// Prefix of machine-readable lines of `gpgv`.
const STATUS: &str = "[GNUPG:] ";

/// Adds the provenance file to a fetched archive, and verifies it, as far as the flags request it.
///
/// # Errors
///
/// If the archive is to be verified, and there is no valid provenance file.
pub(super) async fn attach(
    access: &Access,
    archive: &mut Archive,
    fetch: impl Future<Output = Result<Bytes>>,
) -> Result<()> {
    if access.keyring().is_none() && !access.keeps_provenance() {
        return Ok(());
    }
    let provenance = match (fetch.await, access.keyring()) {
        (Ok(provenance), _) => provenance,
        (Err(error), Some(_)) => return Err(error.within("failed to fetch the provenance file")),
        (Err(error), None) => {
            print_labeled("warning", &format!("no provenance file of {}: {error}", archive.file));
            return Ok(());
        }
    };
    if let Some(keyring) = access.keyring() {
        archive.signature = Some(verify(&provenance, keyring, &archive.file, &archive.bytes)?);
    }
    archive.provenance = Some(provenance);
    Ok(())
}

/// The same for an archive with a URL: that of its provenance file has a further ending.
pub(super) async fn attach_of_url(access: &Access, archive: &mut Archive, url: &Url, home: &Url) -> Result<()> {
    let mut beside = url.clone();
    beside.set_path(&format!("{}.{PROVENANCE}", url.path()));
    let what = format!("the provenance file of {}", archive.file);
    let fetch = access.download(&beside, home, MAX_BYTES, &what);
    attach(access, archive, fetch).await
}

/// Verifies an archive on this machine by the provenance file beside it.
///
/// # Errors
///
/// If it is not an archive with a valid provenance file.
pub(crate) fn verify_file(path: &Path, keyring: &Path) -> Result<Signature> {
    if path.is_dir() {
        return Err(Error::new("unpacked charts cannot be verified"));
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.with_file_name(format!("{file}.{PROVENANCE}"));
    let provenance = fs::read(&beside).context(format!("could not load provenance file {}", beside.display()))?;
    let archive = fs::read(path).context(format!("cannot read {}", path.display()))?;
    verify(&provenance, keyring, &file, &archive)
}

fn verify(provenance: &[u8], keyring: &Path, file: &str, archive: &[u8]) -> Result<Signature> {
    let (text, signer, fingerprint) = verified_text(provenance, keyring)?;
    let (listed, actual) = (listed_digest(&text, file)?, digest(archive));
    match listed == actual {
        true => Ok(Signature { signer, fingerprint, digest: actual }),
        false => Err(Error::new(format!("sha256 sum does not match for {file}: {listed:?} != {actual:?}"))
            .hint("the archive was changed after it was signed: contact the owner of the chart")),
    }
}

/// Returns the signed text, with user ID and fingerprint of the signer.
fn verified_text(provenance: &[u8], keyring: &Path) -> Result<(String, String, String)> {
    if !keyring.is_file() {
        return Err(Error::new(format!("keyring {} not found", keyring.display()))
            .hint("pass the public keys of the signers: gpg --export > FILE, and --keyring FILE"));
    }
    // Without a slash, the program would search the name in its own folder.
    let keyring = std::path::absolute(keyring).context(format!("--keyring: invalid path {}", keyring.display()))?;
    let folder = PrivateDirectory::new("flyball-provenance")?;
    let signed = folder.path().join("signed");
    fs::write(&signed, provenance).context("cannot write the provenance file")?;
    let Output { status, stdout, stderr } = gpgv(&keyring, &signed)?;
    let complaints = String::from_utf8_lossy(&stderr);
    let of_status = |word: &str| {
        complaints.lines().find_map(|line| line.strip_prefix(STATUS)?.strip_prefix(word)?.strip_prefix(' '))
    };
    let fingerprint = of_status("VALIDSIG").and_then(|line| line.split(' ').next());
    let signer = of_status("GOODSIG").and_then(|line| line.split_once(' '));
    match (status.success(), fingerprint, signer) {
        (true, Some(fingerprint), Some((_, signer))) => {
            let text = String::from_utf8(stdout).context("the signed text is not UTF-8")?;
            Ok((text, signer.to_owned(), fingerprint.to_owned()))
        }
        _ => {
            let reason = match (of_status("BADSIG"), of_status("NO_PUBKEY")) {
                (Some(_), _) => "the text was changed after it was signed".to_owned(),
                (None, Some(key)) => format!("key {key} is not in {}", keyring.display()),
                (None, None) => reason(&complaints),
            };
            Err(Error::new(format!("no valid signature in the provenance file: {reason}")))
        }
    }
}

/// Returns the first message for people.
fn reason(complaints: &str) -> String {
    let mut lines = complaints.lines().filter(|line| !line.starts_with(STATUS));
    let line = lines.find_map(|line| line.strip_prefix("gpgv: ")).unwrap_or("gpgv failed");
    line.to_owned()
}

fn gpgv(keyring: &Path, signed: &Path) -> Result<Output> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let program = env::split_paths(&folders).map(|folder| folder.join("gpgv")).find(|program| program.is_file());
    let Some(program) = program else {
        return Err(Error::new("--verify needs gpgv, which is not on the PATH")
            .hint("install GnuPG, for example: apt-get install gpgv"));
    };
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C");
    let keyring = [OsString::from("--keyring"), keyring.into()];
    command.args(keyring).args(["--status-fd", "2", "--output", "-", "--"]).arg(signed);
    command.stdin(Stdio::null()).output().context("cannot run gpgv")
}

/// Returns the digest of an archive in the signed text.
fn listed_digest(text: &str, file: &str) -> Result<String> {
    let Some((_, sums)) = text.split_once(SEPARATOR) else {
        return Err(Error::new("the signed text has no digests: message block must have at least two parts"));
    };
    let sums: Value =
        flyball_chart::from_yaml(sums).context("the digests in the provenance file are not valid YAML")?;
    let listed = sums["files"][file].as_str();
    listed.map(str::to_owned).ok_or_else(|| {
        Error::new(format!("provenance does not contain a SHA for a file named {file:?}"))
            .hint("the file must have the name with which it was signed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_that_of_the_file_in_the_second_part() {
        let text = "name: files\nfiles: {a.tgz: sha256:00}\n\n...\nfiles:\n  a.tgz: sha256:01\n";
        assert_eq!(listed_digest(text, "a.tgz").unwrap(), "sha256:01");
        for (text, file, words) in [
            (text, "b.tgz", "does not contain a SHA for a file named \"b.tgz\""),
            ("files: {a.tgz: sha256:00}\n", "a.tgz", "at least two parts"),
            ("a: b\n\n...\n: [", "a.tgz", "not valid YAML"),
            ("a: b\n\n...\nfiles: [a.tgz]\n", "a.tgz", "does not contain a SHA"),
        ] {
            let error = listed_digest(text, file).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
