//! HTTP client for registries, repositories of charts, and metrics of operators on this machine.

use crate::error::{Error, Result, ResultExt};
use bytes::{Bytes, BytesMut};
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body_util::BodyExt;
use std::fmt;
use std::time::Duration;

/// Default maximum size of a response body. Manifests, indices and tokens are far smaller.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// Timeout of each part of a response body.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Observes the received bytes of a response, of a total if it is known.
pub(crate) type OnReceived<'o> = &'o mut (dyn FnMut(u64, Option<u64>) + Send);

/// Limit and observer of a response body.
pub(crate) struct Receiver<'o> {
    /// Size limit. A larger body is an error.
    pub(crate) max_bytes: usize,
    pub(crate) on_received: Option<OnReceived<'o>>,
}

impl Default for Receiver<'_> {
    fn default() -> Self {
        Self { max_bytes: MAX_RESPONSE_BYTES, on_received: None }
    }
}

impl fmt::Debug for Receiver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

/// A client that uses the proxies of the environment.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    client: Client,
    timeout: Duration,
}

impl Web {
    /// Creates a client with this timeout of responses, that uses the trust store of this machine.
    pub(crate) fn new(timeout: Duration) -> Result<Self> {
        Self::trusting(Trust::System, timeout)
    }

    /// Creates a client that trusts these servers.
    pub(crate) fn trusting(trust: Trust<'_>, timeout: Duration) -> Result<Self> {
        Ok(Self { client: Client::new(trust, Proxies::from_env()).context("cannot set up TLS")?, timeout })
    }

    /// Sends a request and returns the complete response.
    ///
    /// # Errors
    ///
    /// If there is no response in time, or it is too large. Error status codes are not an error here.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        self.receive(request, &mut Receiver::default()).await
    }

    /// Sends a request and receives the complete response within a size limit.
    ///
    /// # Errors
    ///
    /// See [`Web::send`].
    pub(crate) async fn receive(
        &self,
        request: Request<Bytes>,
        receiver: &mut Receiver<'_>,
    ) -> Result<Response<Bytes>> {
        let uri = request.uri();
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let work = async {
            let response = self.client.send(request).await.context(format!("cannot reach {host}"))?;
            let (head, mut body) = response.into_parts();
            let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
            let too_large = || {
                let limit = receiver.max_bytes >> 20;
                Error::new(format!("the response of {host} is larger than {limit} MiB"))
            };
            if length.is_some_and(|length: u64| length > receiver.max_bytes as u64) {
                return Err(too_large());
            }
            let mut bytes = BytesMut::new();
            let what = || format!("cannot read the response of {host}");
            while let Some(frame) = tokio::time::timeout(STALL_TIMEOUT, body.frame()).await.context(what())? {
                let Ok(data) = frame.context(what())?.into_data() else { continue };
                if bytes.len() + data.len() > receiver.max_bytes {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&data);
                if let Some(on_received) = &mut receiver.on_received {
                    on_received(bytes.len() as u64, length);
                }
            }
            Ok(Response::from_parts(head, bytes.freeze()))
        };
        tokio::time::timeout(self.timeout, work).await.context(format!("{host} did not respond"))?
    }
}
