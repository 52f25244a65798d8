use super::Simulator;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::io;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::BoxError;

/// Maximum size of a request body.
const MAX_REQUEST: usize = 1 << 20;

impl Simulator {
    /// Serves HTTP without TLS. Sessions are not secure: listen on loopback only.
    ///
    /// It runs until it is dropped or the listener fails.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            while connections.try_join_next().is_some() {}
            let simulator = self.clone();
            let service = service_fn(move |request: Request<Incoming>| simulator.clone().respond_with_body(request));
            // A simulated loss of a response is an error of the service, which makes hyper close the connection.
            connections
                .spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    }

    async fn respond_with_body(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, BoxError> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, MAX_REQUEST).collect().await?.to_bytes();
        Ok(self.respond(Request::from_parts(head, body)).await?.map(Full::new))
    }
}
