use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use http::{Request, Response};
use hyper::body::Bytes;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, service_fn};

/// Sends a request to vCenter and returns its complete response: over the network, or to a simulator in the same
/// process.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>;

/// Maximum size of a response; a response with ten thousand virtual machines has several megabytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Connects over HTTPS, or over HTTP for `http` URLs.
///
/// Certificates are verified against the system's roots and those in `SSL_CERT_FILE`, unless `insecure`.
pub fn https(insecure: bool) -> Result<Transport, BoxError> {
    let trust = if insecure { Trust::Any } else { Trust::System };
    let client = Client::new(trust, Proxies::default())?;
    Ok(BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
        let client = client.clone();
        async move { client.fetch(request, MAX_RESPONSE_BYTES).await }
    })))
}
