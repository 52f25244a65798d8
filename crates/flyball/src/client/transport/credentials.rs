//! Certificates that are reloaded when their files change: the cluster's CA and the client certificate may be
//! replaced while an operator runs.
//!
//! The contents of the files are compared each time a connection is opened, which is rare. Existing connections are not
//! affected. If a file is invalid, for example half written, the last valid certificates are used. This module is
//! independent of requests.

use super::{Connect, connector};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::PathBuf;
use std::sync::Arc;
use tower::BoxError;

/// Opens connections with the certificates in the files of a configuration.
pub(super) struct Credentials {
    config: kube::Config,
    files: Vec<PathBuf>,
    latest: Mutex<LatestCredentials>,
}

struct LatestCredentials {
    contents: Vec<Option<Vec<u8>>>,
    connect: Arc<Connect>,
}

impl Credentials {
    /// Reads the files of a configuration.
    pub(super) fn new(config: &kube::Config) -> Result<Self, BoxError> {
        let auth = &config.auth_info;
        let identity = [&auth.client_certificate, &auth.client_key].into_iter().flatten().map(PathBuf::from);
        let files: Vec<PathBuf> = config.root_cert_file.clone().into_iter().chain(identity).collect();
        let latest = LatestCredentials { contents: read(&files), connect: connect(config)? };
        Ok(Self { config: config.clone(), files, latest: Mutex::new(latest) })
    }

    /// Returns the current connector.
    pub(super) fn connect(&self) -> Arc<Connect> {
        let mut latest = self.latest.lock();
        let contents = read(&self.files);
        if contents != latest.contents {
            match connect(&self.config) {
                Ok(connect) => {
                    tracing::info!(files = ?self.files, "certificates for the API server changed");
                    *latest = LatestCredentials { contents, connect };
                }
                Err(error) => {
                    tracing::warn!(files = ?self.files, error, "invalid certificates, keeping the previous ones")
                }
            }
        }
        latest.connect.clone()
    }
}

fn read(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|file| std::fs::read(file).ok()).collect()
}

fn connect(config: &kube::Config) -> Result<Arc<Connect>, BoxError> {
    let mut config = config.clone();
    if let Some(file) = config.root_cert_file.take() {
        let pem = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| format!("{}: {error}", file.display()))?;
        if certificates.is_empty() {
            return Err(format!("{} contains no certificate", file.display()).into());
        }
        config.root_cert = Some(certificates.into_iter().map(|certificate| certificate.to_vec()).collect());
    }
    Ok(connector(&config)?)
}
