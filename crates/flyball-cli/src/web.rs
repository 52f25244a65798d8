//! HTTP client for registries and for metrics of operators on this machine.

use crate::error::{Result, ResultExt};
use bytes::Bytes;
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use std::time::Duration;

/// Default maximum size of a response body. Manifests, indices and tokens are far smaller.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// A client that trusts whom this machine trusts, and uses the proxies of the environment.
#[derive(Clone)]
pub(crate) struct Web {
    client: Client,
    timeout: Duration,
    max_response: usize,
}

impl Web {
    /// Creates a client with this timeout of responses.
    pub(crate) fn new(timeout: Duration) -> Result<Self> {
        let client = Client::new(Trust::System, Proxies::from_env()).when("cannot use TLS")?;
        Ok(Self { client, timeout, max_response: MAX_RESPONSE_BYTES })
    }

    /// Sets the maximum size of a response body.
    pub(crate) fn accept(&mut self, bytes: usize) {
        self.max_response = bytes;
    }

    /// Sends a request and returns the complete response.
    ///
    /// # Errors
    ///
    /// If there is no response in time, or it is too large. Error status codes are not an error here.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let uri = request.uri();
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let work = async {
            let answer = self.client.send(request).await.when(format!("cannot reach {host}"))?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, self.max_response).collect().await;
            let body = body.when(format!("cannot read the response of {host}"))?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        tokio::time::timeout(self.timeout, work).await.when(format!("{host} did not respond"))?
    }
}
