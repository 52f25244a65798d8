//! HTTP, as far as it is not about Kubernetes: registries, and metrics of operators on this machine.

use crate::error::{Result, ResultExt};
use bytes::Bytes;
use flyball::proxy::{Connector, Proxies};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use std::time::Duration;

/// Maximum size of a response body. Manifests, indices and tokens are far smaller.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// A client that trusts whom this machine trusts, and uses the proxies of the environment.
#[derive(Clone)]
pub(crate) struct Web {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    timeout: Duration,
}

impl Web {
    /// Makes one that waits so long for each answer.
    pub(crate) fn new(timeout: Duration) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = rustls::crypto::ring::default_provider();
        let config = ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
        let config = config.when("cannot use TLS")?.with_root_certificates(roots).with_no_client_auth();
        let connector = Connector::new(Proxies::from_env()).connect_timeout(Duration::from_secs(10));
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(https.wrap_connector(connector)), timeout })
    }

    /// Sends a request and returns the whole answer.
    ///
    /// # Errors
    ///
    /// When no response, in time, or the answer is too large. An answer of whatever status is none.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let uri = request.uri();
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let work = async {
            let answer = self.client.request(request.map(Full::new)).await.when(format!("cannot reach {host}"))?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
            let body = body.when(format!("cannot read the response of {host}"))?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        tokio::time::timeout(self.timeout, work).await.when(format!("{host} did not respond"))?
    }
}
