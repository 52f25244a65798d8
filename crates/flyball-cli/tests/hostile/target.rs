//! The target and the user of an attack.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) authority: String,
    pub(crate) account: String,
    pub(crate) token: String,
    /// Certificate and key, in place of a token.
    pub(crate) certificate: Option<(String, String)>,
}

impl Target {
    pub(crate) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match &self.certificate {
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                config
                    .with_client_auth_cert(vec![certificate], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                    .unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Opens a connection for one request after the other.
    pub(crate) async fn http(&self) -> Option<SendRequest<Full<Bytes>>> {
        let (sender, connection) = handshake(TokioIo::new(self.connect().await.ok()?)).await.ok()?;
        tokio::spawn(connection);
        Some(sender)
    }

    /// Sends a request and reads the response; `None` if the connection is closed.
    pub(crate) async fn send(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        method: &str,
        path: &str,
        media: &str,
        body: Bytes,
    ) -> Option<(u16, Bytes)> {
        let mut request = http::Request::builder().method(method).uri(path).header("host", "localhost");
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        let request = request.header("content-type", media).body(Full::new(body)).ok()?;
        let response = sender.send_request(request).await.ok()?;
        let code = response.status().as_u16();
        Some((code, response.into_body().collect().await.ok()?.to_bytes()))
    }

    /// The head of a request over HTTP/1, without the end.
    pub(crate) fn head(&self, method: &str, path: &str) -> String {
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n", self.token)
    }
}
