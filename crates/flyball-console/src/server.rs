//! The HTTP server of the console, on loopback.

use crate::access::{Access, Scope, headers};
use crate::actions::ActionRequest;
use crate::answers::{self, Answer};
use crate::assets;
use crate::explore::{Explore, ExploreError, ExploreRequest};
use crate::kind::Discover;
use crate::operators::{Address, FindOperators, Operators};
use crate::shared::Shared;
use crate::stream;
use crate::verification::Verifier;
use crate::watch::Watcher;
use crate::writers::WriteLog;
use bytes::Bytes;
use flyball::listener;
use flyball_core::Clock;
use http::header::{CONTENT_TYPE, SET_COOKIE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Limit of connections; a browser opens six.
const MAX_CONNECTIONS: usize = 64;
/// Limit of streams of objects.
const MAX_STREAMS: usize = 16;
/// Limit of requests that read from the cluster at a time.
const MAX_READS: usize = 8;
/// Size limit of the body of a request.
const MAX_BODY_BYTES: usize = 16 << 10;
/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Reason of the rejection of explorations.
const NO_EXPLORER: &str = "this console runs no explorations; start it with `flyball dev --console --write`";

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Error of starting the server of the console.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is not available.
    #[error("cannot listen on {address}")]
    Listen {
        /// The loopback address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The machine has no randomness.
    #[error("no randomness available for the token")]
    Random,
}

/// Settings of a console.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Port on loopback; 0 selects a free one.
    pub port: u16,
    /// True if the page may write.
    pub write: bool,
    /// The only namespace whose objects are shown; without it, all.
    pub namespace: Option<String>,
    /// URL of the API server, for display.
    pub cluster: String,
    /// Name of the context, for display.
    pub context: String,
    /// Operators whose ledgers are read.
    pub operators: Vec<Address>,
    /// The search for further operators.
    pub finder: Option<Arc<dyn FindOperators>>,
    /// Explorations of the operator under development, which the page may start if it may write.
    pub explorer: Option<Arc<dyn Explore>>,
    /// Clock for times and ages.
    pub clock: Clock,
}

/// The state of the server.
struct Served {
    shared: Arc<Shared>,
    access: Access,
    streams: Arc<Semaphore>,
    reads: Semaphore,
    finder: Option<Arc<dyn FindOperators>>,
}

/// A console whose server listens on loopback.
pub struct Console {
    listener: TcpListener,
    address: SocketAddr,
    served: Arc<Served>,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Console {
    /// Binds the port on loopback. Requests of the page use this client, with the rights of its user.
    ///
    /// # Errors
    ///
    /// Fails if the port is not available.
    pub async fn bind(client: kube::Client, settings: Settings) -> Result<Self, Error> {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.port));
        let failed = |source| Error::Listen { address: wanted, source };
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let Settings { write, namespace, cluster, context, operators, finder, explorer, clock, .. } = settings;
        let shared = Shared {
            operators: Operators::new(operators, client.clone(), clock.clone()),
            client,
            verifier: Verifier::default(),
            write_log: WriteLog::default(),
            store: Arc::default(),
            clock,
            cluster,
            context,
            write,
            explorer,
            namespace: namespace.unwrap_or_default(),
        };
        let served = Served {
            shared: Arc::new(shared),
            access: Access::new(address.port()).map_err(|_| Error::Random)?,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            reads: Semaphore::new(MAX_READS),
            finder,
        };
        Ok(Self { listener, address, served: Arc::new(served) })
    }

    /// Returns the address for the browser, with the token.
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.served.access.token())
    }

    /// Watches the cluster and serves the page. Never returns.
    pub async fn run(self, discover: &dyn Discover) {
        let Self { listener, served, .. } = self;
        let shared = &served.shared;
        let watcher =
            Watcher::new(shared.client.clone(), shared.store.clone(), shared.clock.clone(), shared.namespace.clone());
        let accept = listener::accept(listener, MAX_CONNECTIONS, |stream| converse(stream, served.clone()));
        tokio::join!(watcher.run(discover), shared.operators.run(served.finder.as_deref()), accept);
    }
}

async fn converse(stream: TcpStream, served: Arc<Served>) {
    let service = service_fn(move |request| {
        let served = served.clone();
        async move { Ok::<_, Infallible>(respond(request, &served).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "connection failed");
    }
}

async fn respond(request: Request<Incoming>, served: &Served) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut response = match served.access.check(&head) {
        Err((status, reason)) => failure(status, reason),
        Ok(scope) => {
            let path = head.uri.path();
            match (&head.method, assets::find(path)) {
                (&Method::GET, Some(asset)) => {
                    let mut response = Response::new(full(asset.body));
                    response.headers_mut().insert(CONTENT_TYPE, asset.content_type);
                    if let (true, Ok(cookie)) = (path == "/", HeaderValue::try_from(served.access.set_cookie())) {
                        response.headers_mut().insert(SET_COOKIE, cookie);
                    }
                    response
                }
                _ if scope != Scope::Data => failure(StatusCode::NOT_FOUND, "no such page"),
                (&Method::GET, None) => get(path, head.uri.query().unwrap_or_default(), served).await,
                (&Method::POST, None) if path == "/api/act" => act(body, &served.shared).await,
                (&Method::POST, None) if path == "/api/explore" => explore(body, &served.shared).await,
                _ => failure(StatusCode::METHOD_NOT_ALLOWED, "only GET, and POST of /api/act and /api/explore"),
            }
        }
    };
    response.headers_mut().extend(headers());
    response
}

async fn get(path: &str, query: &str, served: &Served) -> Response<Body> {
    if path == "/api/stream" {
        let Ok(permit) = served.streams.clone().try_acquire_owned() else {
            return failure(StatusCode::TOO_MANY_REQUESTS, "too many open pages");
        };
        let body = StreamBody::new(stream::body(served.shared.clone(), permit));
        let mut response = Response::new(body.boxed_unsync());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        return response;
    }
    let query: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    // The semaphore is never closed.
    let _permit = served.reads.acquire().await.ok();
    let shared = &served.shared;
    let answer = match path {
        "/api/object" => answers::object(shared, &query).await,
        "/api/controllers" => answers::controllers(shared).await,
        "/api/causality" => answers::causality(shared, &query).await,
        "/api/performance" => Ok(answers::performance(shared)),
        "/api/exploration" => match &shared.explorer {
            Some(explorer) => Ok(json!(explorer.state())),
            None => Err((StatusCode::NOT_FOUND, NO_EXPLORER.to_owned())),
        },
        "/api/permissions" => answers::permissions(shared, &query).await,
        _ => return failure(StatusCode::NOT_FOUND, "no such page"),
    };
    match answer {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err((status, message)) => failure(status, &message),
    }
}

async fn act(body: Incoming, shared: &Shared) -> Response<Body> {
    done(async { answers::act(shared, &write_request::<ActionRequest>(body, shared).await?).await }.await)
}

async fn explore(body: Incoming, shared: &Shared) -> Response<Body> {
    let request = write_request::<ExploreRequest>(body, shared).await;
    done(request.and_then(|request| {
        let explorer = shared.explorer.as_ref();
        let explorer = explorer.ok_or_else(|| (StatusCode::NOT_FOUND, NO_EXPLORER.to_owned()))?;
        explorer.request(request).map_err(|error| {
            let status = if error == ExploreError::Busy { StatusCode::CONFLICT } else { StatusCode::BAD_REQUEST };
            (status, error.to_string())
        })
    }))
}

/// Returns the response to a write.
fn done(result: Answer<()>) -> Response<Body> {
    match result {
        Ok(()) => json_response(StatusCode::OK, &json!({})),
        Err((status, message)) => failure(status, &message),
    }
}

/// Reads the body of a write, if writes are permitted.
async fn write_request<T: DeserializeOwned>(body: Incoming, shared: &Shared) -> Answer<T> {
    if !shared.write {
        return Err((StatusCode::FORBIDDEN, "this console only reads; start it with --write".to_owned()));
    }
    let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too large".to_owned()));
    };
    let parsed = serde_json::from_slice(&body.to_bytes());
    parsed.map_err(|error| (StatusCode::BAD_REQUEST, format!("invalid request: {error}")))
}

fn full(bytes: &'static [u8]) -> Body {
    Full::new(Bytes::from_static(bytes)).boxed_unsync()
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn failure(status: StatusCode, reason: &str) -> Response<Body> {
    json_response(status, &json!({"error": reason}))
}
