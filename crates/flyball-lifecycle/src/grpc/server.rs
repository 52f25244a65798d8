//! The registry API on a listener: HTTP/2 without TLS, as clients of catalogs expect it.

use super::MAX_MESSAGE_BYTES;
use super::frame::{Code, Frames, GrpcError};
use super::service::{Messages, Service};
use crate::connections::{self, OpenResponses, Peers};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Maximum number of connections. Further clients wait.
const MAX_CONNECTIONS: usize = 256;
/// Maximum number of connections from one address; a new one replaces the oldest.
const MAX_OF_ADDRESS: usize = 64;
/// Maximum number of concurrent calls of a connection.
const MAX_STREAMS: u32 = 64;
/// Maximum size of a request. Requests contain names only.
const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Timeout of the request of a call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of pings on a silent connection, and the timeout of their responses.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// Serves a catalog on a listener until `stop` is done.
pub async fn serve(service: Service, listener: TcpListener, stop: impl Future<Output = ()>) {
    let peers = Peers::new(MAX_OF_ADDRESS);
    let connection = |stream| connection(service.clone(), peers.clone(), stream);
    connections::accept(listener, MAX_CONNECTIONS, stop, connection).await;
}

async fn connection(service: Service, peers: Peers, stream: TcpStream) {
    let Ok(address) = stream.peer_addr() else { return };
    let peer = peers.enter(address.ip());
    tokio::select! {
        biased;
        () = peer.replaced.notified() => {}
        () = serve_connection(service, stream) => {}
    }
}

async fn serve_connection(service: Service, stream: TcpStream) {
    let called = Arc::new(Notify::new());
    let first_call = called.clone();
    let responses = OpenResponses::of_one_user();
    let open_responses = responses.clone();
    let respond = service_fn(move |request| {
        called.notify_one();
        let (service, responses) = (service.clone(), responses.clone());
        async move { Ok::<_, Infallible>(responses.track(respond(&service, request).await)) }
    });
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(MAX_STREAMS)
        .serve_connection(TokioIo::new(connections::limit_writes(stream)), respond);
    if let Some(Err(error)) = connections::drive(served, &first_call, &open_responses).await {
        tracing::debug!(%error, "a client of the catalog disconnected");
    }
}

async fn respond(service: &Service, request: Request<Incoming>) -> Response<Body> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if request.method() != Method::POST || !content_type.is_some_and(|value| value.starts_with("application/grpc")) {
        let mut response = Response::new(http_body_util::Empty::new().boxed_unsync());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let path = request.uri().path().to_owned();
    let message = timeout(REQUEST_TIMEOUT, receive(request.into_body())).await;
    let message = message.unwrap_or_else(|_| Err(GrpcError::new(Code::Unavailable, "the request is incomplete")));
    match message.and_then(|message| service.call(&path, &message)) {
        Ok(messages) => {
            let mut response = Response::new(body(messages));
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            response
        }
        // A response that contains only its status.
        Err(error) => {
            let mut response = Response::new(http_body_util::Empty::new().boxed_unsync());
            response.headers_mut().extend(GrpcError::trailers(Err(&error)));
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            response
        }
    }
}

async fn receive(mut body: Incoming) -> Result<Bytes, GrpcError> {
    let (mut frames, mut length) = (Frames::default(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| GrpcError::new(Code::Unavailable, error.to_string()))?;
        let Some(data) = frame.data_ref() else { continue };
        length += data.len();
        if length > MAX_REQUEST_BYTES {
            let why = format!("a request has at most {MAX_REQUEST_BYTES} bytes");
            return Err(GrpcError::new(Code::ResourceExhausted, why));
        }
        frames.push(data);
    }
    let missing = || GrpcError::new(Code::InvalidArgument, "the request has no message");
    frames.next()?.ok_or_else(missing)
}

/// Returns the body of a response: its messages, which are encoded when they are sent, and the status.
fn body(mut messages: Messages) -> Body {
    let mut is_done = false;
    let frames = std::iter::from_fn(move || match messages.next() {
        _ if is_done => None,
        Some(message) if message.len() > MAX_MESSAGE_BYTES => {
            is_done = true;
            Some(Frame::trailers(GrpcError::trailers(Err(&too_large(message.len())))))
        }
        Some(message) => Some(Frame::data(message)),
        None => {
            is_done = true;
            Some(Frame::trailers(GrpcError::trailers(Ok(()))))
        }
    });
    StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))).boxed_unsync()
}

fn too_large(bytes: usize) -> GrpcError {
    let why = format!("a bundle has {bytes} bytes, at most {MAX_MESSAGE_BYTES} are sent; use a bundle image");
    GrpcError::new(Code::ResourceExhausted, why)
}
