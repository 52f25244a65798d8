//! A certificate in files that are replaced externally.

use std::io;
use std::path::Path;

/// Reads a certificate and its key in PEM, with the file names of a mounted secret.
pub(crate) fn read(directory: &Path) -> io::Result<(String, String)> {
    let read = |name: &str| {
        let path = directory.join(name);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        std::fs::read_to_string(&path).map_err(named)
    };
    Ok((read("tls.crt")?, read("tls.key")?))
}

/// Reads the authority of the certificate, if there is one, as with cert-manager.
pub(super) fn read_authority(directory: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(directory.join("ca.crt")) {
        Ok(authority) => Ok(Some(authority)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
