//! The way of a request: who sends it, may it, and which part of the server answers.

use super::{Inner, apart, objects, reply, upload};
use crate::auth::{self, Action, On, User};
use crate::bounds::{Flow, Hold, Sort, UNFINISHED};
use crate::link::Link;
use crate::metrics::Series;
use crate::registry::parse_version;
use crate::request::{Query, Target, accept};
use crate::response::{self, Body, Warnings};
use crate::{discovery, openapi, webhook};
use bytes::Bytes;
use flyball_core::{GroupResource, ObjectKey, Status};
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, header};
use std::sync::Arc;
use std::time::Duration;

/// How long a request may take that writes, and one that reads, as far as others are asked about it.
const DEADLINES: (Duration, Duration) = (Duration::from_secs(34), Duration::from_secs(60));

/// A request that was let in.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) body: Bytes,
    pub(crate) user: User,
    pub(crate) target: Target,
    /// What to warn the client of with the answer.
    pub(crate) warnings: Warnings,
    /// The connection that it came by.
    pub(crate) connection: Option<Link>,
    /// Whom it is counted with.
    pub(super) flow: Flow,
    /// Its slot, and what its body takes.
    _holds: [Option<Hold>; 2],
}

impl Call {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether the request may change something.
    pub(super) fn writes(&self) -> bool {
        self.target.resource.is_some() && !matches!(self.method, Method::GET | Method::HEAD)
    }

    /// Tells whether the client asks for another protocol on this connection.
    pub(crate) fn is_upgrade(&self) -> bool {
        let values = self.headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        values.into_iter().any(|value| value.to_ascii_lowercase().contains("upgrade"))
    }

    pub(crate) fn accept(&self) -> Option<&str> {
        self.header(header::ACCEPT)
    }

    /// The media type of the body, without its parameters.
    pub(crate) fn content_type(&self) -> Option<&str> {
        let full = self.header(header::CONTENT_TYPE)?;
        Some(full.split(';').next().unwrap_or_default().trim()).filter(|media| !media.is_empty())
    }

    /// The name of the program that sends the request.
    pub(crate) fn program(&self) -> &str {
        self.header(header::USER_AGENT).unwrap_or_default().split('/').next().unwrap_or_default()
    }
}

pub(super) async fn handle<B>(inner: &Arc<Inner>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let (parts, body) = request.into_parts();
    let head = parts.method == Method::HEAD;
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let target = Target::parse(&parts.method, parts.uri.path(), &query);
    let series = Series::of(inner, &parts, &query, &target);
    let received = receive(inner, parts, query, target, body).await;
    let by_master = received.as_ref().is_ok_and(|call| call.user.is_in(auth::MASTERS));
    let mut response = match received {
        Ok(call) if inner.store.is_kept() && call.writes() => carry_through(inner.clone(), call).await,
        Ok(call) => route(inner, call).await,
        Err(Refused::Status(status)) => response::status(&status),
        Err(Refused::Busy) => response::too_many_requests(),
    };
    inner.settle().await;
    let code = response.status().as_u16();
    // Administrators lack no right: the controllers of the control plane, too, are refused by admission only.
    if code == 403 && !by_master {
        inner.forbidden.count(series.clone(), code);
    }
    inner.requests.count(series, code);
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    if head {
        *response.body_mut() = Body::empty();
    }
    response
}

/// Answers a request to its end, whether or not its client waits: what follows from a write that is on disk has to
/// follow.
async fn carry_through(inner: Arc<Inner>, call: Call) -> Response<Body> {
    let answering = tokio::spawn(async move {
        let response = route(&inner, call).await;
        inner.settle().await;
        response
    });
    answering.await.unwrap_or_else(|error| response::status(&Status::internal(error)))
}

/// Why a request is not let in.
pub(super) enum Refused {
    Status(Status),
    Busy,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Finds out who sends a request and whether it may, reads its body and waits for a slot.
pub(super) async fn receive<B>(
    inner: &Inner,
    parts: Parts,
    query: Query,
    target: Target,
    body: B,
) -> Result<Call, Refused>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let user = auth::of_request(inner, &parts.headers, parts.extensions.get::<User>())?;
    let user = auth::impersonated(inner, &parts.headers, user, &target)?;
    let connection: Option<Link> = parts.extensions.get().cloned();
    let flow = Flow::of(&user.name, user.is_in(auth::MASTERS), connection.is_some());
    connection.iter().for_each(|link| link.identify(&flow));
    inner.authorize(&Action { user: &user, verb: target.verb, on: On::of(&target) })?;
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let sends = target.resource.is_some() && !reads;
    // Neither a body that comes slowly nor a version that is still to come takes a slot.
    let counted = connection.as_ref().map(|_| (&inner.shared, &flow));
    let (bytes, received) = if sends { upload::read(body, counted).await? } else { (Bytes::new(), None) };
    let awaits = match target.verb {
        "get" => target.resource.is_some(),
        "list" | "deletecollection" => query.text("continue").is_empty(),
        _ => false,
    };
    if awaits && let Ok(Some(version)) = parse_version(query.text("resourceVersion")) {
        // The answer says that it has not come.
        let _ = inner.wait_for(version).await;
    }
    let sort = match () {
        () if user.is_in(auth::MASTERS) => Sort::Exempt,
        () if reads => Sort::Read,
        () => Sort::Write,
    };
    // A watch lasts, and holds up nobody.
    let watches = reads && target.verb == "watch";
    let slot = if watches { None } else { Some(inner.shared.slot(sort, &flow).await.ok_or(Refused::Busy)?) };
    if let Some(link) = &connection {
        // Nothing is answered to one who leaves unread what there is, for as long as that is too much.
        let length = expected_length(inner, &target, bytes.len());
        link.keep_room(Some(inner.shared.room(&flow, length).await.ok_or(Refused::Busy)?));
        if watches {
            link.keep(inner.shared.watches.try_take(&flow, 1).ok_or(Refused::Busy)?);
        }
    }
    let (method, headers, warnings) = (parts.method, parts.headers, Warnings::default());
    Ok(Call { method, headers, query, body: bytes, user, target, warnings, connection, flow, _holds: [slot, received] })
}

/// Tells how many bytes of an answer are made at once, roughly.
fn expected_length(inner: &Inner, target: &Target, sent: usize) -> usize {
    const SMALL: usize = 16 << 10;
    const SCHEMAS: usize = 4 << 20;
    let Some(path) = &target.resource else {
        return if target.path.starts_with("/openapi/") { SCHEMAS } else { SMALL };
    };
    match &path.name {
        None if target.verb == "list" => reply::MADE_AT_ONCE,
        None => SMALL + sent,
        Some(name) => {
            let (table, key) =
                (GroupResource::new(&path.group, &path.resource), ObjectKey::new(path.namespace.as_deref(), name));
            SMALL + sent + inner.store.get(&table, &key).map_or(0, |entry| entry.body.len())
        }
    }
}

/// Answers a request that was let in.
async fn route(inner: &Arc<Inner>, call: Call) -> Response<Body> {
    let deadline = if call.writes() { DEADLINES.0 } else { DEADLINES.1 };
    let answer = webhook::within(deadline, answer(inner, &call));
    let response = match apart::turns(inner, &call).await {
        Some(Some(mut turns)) => apart::answer(&mut turns, Box::pin(answer)).await,
        Some(None) => answer.await,
        None => response::too_many_requests(),
    };
    // A write has come to pass, and its client learns that.
    if call.writes() { response } else { fitted(inner, &call, response).await }
}

/// Has an answer that is longer than was expected wait for room, with the slot of its request.
async fn fitted(inner: &Inner, call: &Call, response: Response<Body>) -> Response<Body> {
    let Some(link) = &call.connection else { return response };
    let length = response.body().made() + UNFINISHED;
    match link.keep_room(None) {
        Some(room) if room.amount() < length => drop(room),
        room => {
            link.keep_room(room);
            return response;
        }
    }
    let room = inner.shared.room(&call.flow, length).await;
    let fits = room.is_some();
    link.keep_room(room);
    if fits { response } else { response::too_many_requests() }
}

/// Answers a request. The future is boxed so that it is compiled here: as it is, it would be compiled once more for
/// each type of body, in the crates that have them.
fn answer<'c>(inner: &'c Arc<Inner>, call: &'c Call) -> BoxFuture<'c, Response<Body>> {
    Box::pin(async move {
        if call.target.resource.is_some() {
            return objects::answer(inner, call).await;
        }
        let path = call.target.path.clone();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let answer = match parts[..] {
            [""] => discovery::paths(&inner.catalog()),
            ["healthz" | "livez" | "readyz"] => Some(response::text(200, "ok")),
            // What the real server checks and this one cannot but have.
            ["healthz" | "livez" | "readyz", "ping" | "log" | "etcd"] => Some(response::text(200, "ok")),
            ["version"] => Some(discovery::version()),
            ["metrics"] => Some(crate::metrics::page(inner)),
            [".well-known", "openid-configuration"] => Some(discovery::issuer()),
            ["openid", "v1", "jwks"] => Some(response::value(200, accept::Form::PLAIN, &inner.issuer.jwks())),
            ["openapi", "v2"] => Some(openapi::v2(&inner.openapi, &inner.catalog(), call.accept())),
            ["openapi", "v3"] => Some(openapi::root(&inner.catalog())),
            ["openapi", "v3", ref rest @ ..] => {
                Some(openapi::document(&inner.openapi, &inner.catalog(), rest, call.query.get("hash").is_some()))
            }
            ["api" | "apis", ..] => discovery::answer(&inner.catalog(), &parts, call.accept()),
            _ => None,
        };
        match answer {
            Some(_) if !matches!(call.method, Method::GET | Method::HEAD) => {
                response::status(&Status::method_not_allowed())
            }
            Some(answer) => answer,
            None => response::page_not_found(),
        }
    })
}
