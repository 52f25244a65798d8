use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use http::{Request, Response};
use hyper::body::Bytes;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, service_fn};

/// Carries a request to vCenter and its answer back, whole: over the network, or within the process to a simulator.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>;

/// An answer of ten thousand virtual machines takes some megabytes; more than this is no answer.
const MAX_ANSWER: usize = 64 << 20;

/// Connects over HTTPS, or over HTTP where a URL says so.
///
/// Certificates are verified against the machine's roots, to which `SSL_CERT_FILE` adds, unless `insecure`.
pub fn https(insecure: bool) -> Result<Transport, BoxError> {
    let trust = if insecure { Trust::Any } else { Trust::System };
    let client = Client::new(trust, Proxies::default())?;
    Ok(BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
        let client = client.clone();
        async move { client.fetch(request, MAX_ANSWER).await }
    })))
}
