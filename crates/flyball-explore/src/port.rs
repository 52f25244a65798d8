//! The connection of a process of the operator to the API server: a tower service that carries out the faults of each
//! request.

use crate::actions;
use crate::fault::Fault;
use crate::frozen;
use crate::history::{Actor, Change, Meta};
use crate::hub::{Hub, IncidentKind, RESTART, name_of};
use crate::site::{Port, RequestTarget, Site, kind_name, object_name};
use crate::stream::WatchStream;
use bytes::Bytes;
use flyball_cluster::User;
use flyball_core::{Reason, Status};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, sleep_until};
use tower::service_fn;

/// Time after which a request fails while the API server is unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Latency of a request.
const LATENCY: Duration = Duration::from_millis(1);
/// Seconds in the `Retry-After` of injected responses.
const RETRY_AFTER: &str = "5";

pub(crate) type PortBody = UnsyncBoxBody<Bytes, io::Error>;

/// One start of a process of the operator.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) hub: Arc<Hub>,
    pub(crate) process: u8,
    pub(crate) generation: u32,
    pub(crate) user: User,
    pub(crate) namespace: String,
}

impl Connection {
    /// Creates a client whose requests cross the ports.
    pub(crate) fn client(self) -> kube::Client {
        let namespace = self.namespace.clone();
        let send = move |request: Request<Body>| {
            let connection = self.clone();
            async move { connection.send(request).await }
        };
        kube::Client::new(service_fn(send), namespace)
    }

    /// Sends a request of the process.
    pub(crate) async fn send<B>(&self, request: Request<B>) -> Result<Response<PortBody>, io::Error>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.fence().await;
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let mut exchange = Exchange { connection: self, method: head.method.clone(), target: None, body, name: None };
        exchange.target = RequestTarget::of(&head.method, &head.uri).filter(|target| target.resource != "events");
        let is_write = exchange.target.as_ref().is_some_and(|target| target.port.is_write() && !target.is_dry_run);
        if !self.hub.count(is_write, || format!("{} {}", head.method, head.uri)) {
            return pending().await;
        }
        let counts = |target: &RequestTarget| target.port != Port::Open && target.port != Port::Lease;
        let _flight = exchange.target.as_ref().is_some_and(counts).then(|| self.hub.begin_request());
        self.hub.latency(LATENCY).await;
        self.reach().await?;
        let (site, faults) = exchange.cross();
        if let Some(site) = &site {
            self.hub.trace(format_args!("{} {site} {}", head.method, head.uri), &exchange.body);
        }
        if let Some(response) = exchange.before(&faults, head.uri.path()).await? {
            return Ok(response);
        }
        let response = self.handle(head, exchange.body.clone()).await;
        exchange.after(response, &faults, site.as_ref()).await
    }

    /// Blocks a process that has ended.
    async fn fence(&self) {
        if !self.hub.is_alive(self.process, self.generation) {
            pending().await
        }
    }

    /// Fails if the API server is unreachable.
    async fn reach(&self) -> Result<(), io::Error> {
        if self.hub.is_partitioned(self.process) {
            sleep(self.hub.pace.of(CONNECT_TIMEOUT)).await;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "injected: the API server is unreachable"));
        }
        Ok(())
    }

    async fn handle(&self, mut head: http::request::Parts, body: Bytes) -> Response<flyball_cluster::Body> {
        if head.method == Method::GET
            && let Some(revision) = self.hub.frozen(self.process)
        {
            head.uri = frozen::at(&head.uri, revision);
        }
        head.extensions.insert(self.user.clone());
        self.hub.server.handle(Request::from_parts(head, Full::new(body))).await
    }

    /// Crashes the process, which never receives the response.
    async fn crash(&self) -> ! {
        self.hub.crash(self.process, RESTART);
        pending().await
    }
}

/// A request, and its target if it concerns objects.
struct Exchange<'a> {
    connection: &'a Connection,
    method: Method,
    target: Option<RequestTarget>,
    body: Bytes,
    /// Name of the object in the body of a creation.
    name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    metadata: Meta,
    preconditions: Preconditions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Preconditions {
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Listed {
    items: Vec<Item>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    metadata: Meta,
}

impl Exchange<'_> {
    fn hub(&self) -> &Arc<Hub> {
        &self.connection.hub
    }

    fn port(&self) -> Option<Port> {
        self.target.as_ref().map(|target| target.port)
    }

    fn kind(&self) -> String {
        self.target.as_ref().map(|target| kind_name(&target.group, &target.resource)).unwrap_or_default()
    }

    /// Crosses the port of the request.
    fn cross(&mut self) -> (Option<Site>, Vec<Fault>) {
        let Some(target) = &self.target else { return (None, Vec::new()) };
        let name = match &target.name {
            Some(name) => self.hub().alias(&self.kind(), name),
            None if target.port == Port::Create => {
                let meta = Meta::of(&self.body);
                self.name = meta.name;
                let generated = || format!("{}*", meta.generate_name.unwrap_or_default());
                self.name.clone().unwrap_or_else(generated)
            }
            None => String::new(),
        };
        let name = target.site_name(&self.method, &name);
        let (site, mut faults) = self.hub().cross(self.connection.process, target.port, name);
        if target.port.is_write() && self.hub().takes_crash(self.connection.process) {
            faults.push(Fault::CrashBefore);
        }
        (Some(site), faults)
    }

    /// Carries out the faults before the request is processed; returns the response if it is not processed.
    async fn before(&self, faults: &[Fault], path: &str) -> Result<Option<Response<PortBody>>, io::Error> {
        let (hub, process) = (self.hub(), self.connection.process);
        for fault in faults {
            match fault {
                Fault::Delay(seconds) => self.wait(*seconds).await,
                Fault::CrashBefore => self.connection.crash().await,
                Fault::CrashLoop(times) => {
                    hub.schedule_crashes(process, *times);
                    self.connection.crash().await
                }
                Fault::Terminate => hub.terminate(process),
                Fault::BlockLease(seconds) => hub.block_lease(process, Duration::from_secs((*seconds).into())),
                Fault::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
                _ => {
                    if let Some(status) = status_of(fault) {
                        return Ok(Some(self.reject(&status)));
                    }
                    let name = self.target.as_ref().and_then(|target| target.name.as_deref());
                    actions::before(hub, fault, path, name, &self.body).await;
                }
            }
        }
        // A delayed process may have ended in the meantime.
        self.connection.fence().await;
        if self.port() == Some(Port::Lease) && self.method != Method::GET && hub.blocks_lease(process) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "injected: writes of the lease are lost"));
        }
        if hub.is_server_restarting() {
            return Ok(Some(self.reject(&throttled("injected: the API server is starting"))));
        }
        Ok(None)
    }

    async fn wait(&self, seconds: u32) {
        sleep_until(self.hub().lasts(Duration::from_secs(seconds.into()))).await;
    }

    fn reject(&self, status: &Status) -> Response<PortBody> {
        self.hub().trace(format_args!("< {} {}", status.code, status.message), b"");
        let body = serde_json::to_vec(status).unwrap_or_default();
        let mut response = Response::new(full(body.into()));
        *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.code == 429 {
            response.headers_mut().insert("retry-after", HeaderValue::from_static(RETRY_AFTER));
        }
        response
    }

    /// Records the response, and carries out the faults after the request is processed.
    async fn after(
        &self,
        response: Response<flyball_cluster::Body>,
        faults: &[Fault],
        site: Option<&Site>,
    ) -> Result<Response<PortBody>, io::Error> {
        let (head, body) = response.into_parts();
        let Connection { hub, process, generation, .. } = self.connection;
        if self.port() == Some(Port::Open) && head.status.is_success() {
            let watch = WatchStream::new(hub.clone(), *process, *generation, self.kind(), body);
            return Ok(Response::from_parts(head, UnsyncBoxBody::new(StreamBody::new(Box::pin(watch.frames())))));
        }
        let mut body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if site.is_some() {
            hub.trace(format_args!("< {}", head.status.as_u16()), &body);
        }
        if head.status.is_success() {
            self.record(&body);
            self.act(faults, &body).await;
        } else if head.status == StatusCode::FORBIDDEN && !faults.contains(&Fault::Deny) {
            self.record_denial(site, &body);
        }
        for fault in faults {
            match fault {
                Fault::Truncate => {
                    body = truncated(&body);
                    hub.record_truncated(*process, self.kind());
                }
                Fault::Slow(seconds) | Fault::DelayResponse(seconds) => self.wait(*seconds).await,
                Fault::LoseResponse => return Err(io::ErrorKind::ConnectionReset.into()),
                Fault::CrashAfter => self.connection.crash().await,
                _ => {}
            }
        }
        self.connection.fence().await;
        Ok(Response::from_parts(head, full(body)))
    }

    /// Records the effects of a successful request.
    fn record(&self, body: &[u8]) {
        let Some(target) = &self.target else { return };
        let (hub, process, kind) = (self.hub(), self.connection.process, self.kind());
        match target.port {
            Port::List => {
                let listed: Listed = serde_json::from_slice(body).unwrap_or_default();
                listed.items.iter().for_each(|item| hub.record_observed(process, &kind, &item.metadata));
            }
            Port::Lease if self.method != Method::GET => self.record_lease(body),
            port if port.is_write() && !target.is_dry_run => {
                let meta = Meta::of(body);
                if let (Port::Create, Some(prefix), Some(name)) = (port, &meta.generate_name, &meta.name) {
                    hub.record_generated(&kind, prefix, name);
                }
                let name = target.name.as_ref().or(meta.name.as_ref());
                let changes =
                    hub.read_history(Actor::Operator(process), |change| self.is_own(change, name, meta.revision()));
                let unchanged = || object_name(&kind, target.namespace.as_deref(), name.map_or("", String::as_str));
                self.check_leadership(changes.first().map_or_else(unchanged, name_of));
                changes.iter().for_each(|change| self.check_deletion(change));
                hub.record_observed(process, &kind, &meta);
            }
            _ => hub.record_observed(process, &kind, &Meta::of(body)),
        }
    }

    /// Returns true if a change is an effect of the request, and not of another one to the same object.
    fn is_own(&self, change: &Change, name: Option<&String>, revision: u64) -> bool {
        let Some(target) = &self.target else { return false };
        let is_user = change.user.as_deref().is_some_and(|user| *user == *self.connection.user.name);
        let is_at = *change.resource.resource == *target.resource
            && *change.resource.group == *target.group
            && (target.port == Port::DeleteCollection || name.is_some_and(|name| change.key.name() == *name))
            && target.namespace.as_deref().is_none_or(|namespace| change.key.namespace() == Some(namespace));
        let is_effect = || match target.port {
            Port::Delete | Port::DeleteCollection => change.begins_deletion(),
            // Without its last finalizer, an object that is being deleted is removed, at another revision.
            _ => change.revision == revision || (change.is_removal && !change.begins_deletion()),
        };
        is_user && is_at && is_effect()
    }

    /// Checks that no other process holds the lease at a write, even if it changes nothing.
    fn check_leadership(&self, object: String) {
        let (hub, process) = (self.hub(), self.connection.process);
        if let Some(holder) = hub.holder().filter(|holder| *holder != process) {
            let text = format!("process {process} wrote it while process {holder} held the lease");
            hub.record_incident(IncidentKind::Trespass, object, text);
        }
    }

    /// Checks that a process deletes only objects that it has observed.
    fn check_deletion(&self, change: &Change) {
        let (hub, process) = (self.hub(), self.connection.process);
        if !matches!(self.port(), Some(Port::Delete | Port::DeleteCollection)) {
            return;
        }
        let written: Written = serde_json::from_slice(&self.body).unwrap_or_default();
        if written.preconditions.uid.is_some() {
            return;
        }
        let uid = change.meta_before().map_or("", |before| before.uid.as_str());
        if hub.has_observed_another(process, &change.resource, &change.key, uid) {
            let text = "it was deleted without a precondition by a process that had only observed an earlier object of \
                        the same name";
            hub.record_incident(IncidentKind::BlindDelete, name_of(change), text.to_owned());
        }
    }

    /// Records the holder of the lease.
    fn record_lease(&self, body: &[u8]) {
        let lease: Value = serde_json::from_slice(body).unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        self.hub().set_holder((!holder.is_empty()).then_some(self.connection.process));
    }

    fn record_denial(&self, site: Option<&Site>, body: &[u8]) {
        let Some(site) = site else { return };
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let causes = status["details"]["causes"].as_array();
        if causes.into_iter().flatten().any(|cause| cause["reason"] == "NamespaceTerminating") {
            return;
        }
        let message = status["message"].as_str().unwrap_or_default();
        self.hub().record_incident(IncidentKind::Denial, site.name.clone(), message.to_owned());
    }

    /// Performs the actions of others on the written object.
    async fn act(&self, faults: &[Fault], body: &[u8]) {
        let (Some(target), Some(path)) = (&self.target, self.written_path(body)) else { return };
        let primary = self.hub().primary().map(|(path, _)| path);
        if !target.port.is_write() || target.is_dry_run || primary.as_deref() == Some(&*path) {
            return;
        }
        for fault in faults {
            actions::after(self.hub(), fault, &path).await;
        }
    }

    /// Returns the path of the written object.
    fn written_path(&self, body: &[u8]) -> Option<String> {
        let target = self.target.as_ref()?;
        let written: Value = serde_json::from_slice(body).ok()?;
        let name = written["metadata"]["name"].as_str()?;
        let version = written["apiVersion"].as_str()?;
        let root = if target.group.is_empty() { "/api" } else { "/apis" };
        let namespace = target.namespace.as_ref().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        Some(format!("{root}/{version}{namespace}/{}/{name}", target.resource))
    }
}

pub(crate) fn full(body: Bytes) -> PortBody {
    UnsyncBoxBody::new(Full::new(body).map_err(|never| match never {}))
}

fn throttled(message: &str) -> Status {
    Status::new(429, Reason::TooManyRequests, message)
}

/// Returns the status of a fault that rejects the request.
fn status_of(fault: &Fault) -> Option<Status> {
    let status = match fault {
        Fault::Error(503) => Status::new(503, Reason::ServiceUnavailable, "injected: the server is unavailable"),
        Fault::Error(504) => Status::new(504, Reason::Timeout, "injected: the request timed out"),
        Fault::Error(code) => Status::new(*code, Reason::InternalError, "injected: the request failed"),
        Fault::Throttle => throttled("injected: too many requests"),
        Fault::Expire => Status::new(410, Reason::Expired, "injected: the resource version has expired"),
        Fault::TooLargeVersion => {
            Status::new(504, Reason::Timeout, "injected: Too large resource version: 99999, current: 1")
        }
        Fault::Deny => Status::new(403, Reason::Forbidden, "injected: admission webhook \"policy\" denied the request"),
        _ => return None,
    };
    Some(status)
}

/// Returns a list without the second half of its items.
fn truncated(body: &Bytes) -> Bytes {
    let Ok(mut list) = serde_json::from_slice::<Value>(body) else { return body.clone() };
    let Some(items) = list["items"].as_array_mut() else { return body.clone() };
    items.truncate(items.len() / 2);
    json!(list).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_lists_lack_the_second_half() {
        let half = |items: &str| {
            let list: Value = serde_json::from_slice(&truncated(&format!("{{\"items\":{items}}}").into())).unwrap();
            list["items"].as_array().unwrap().len()
        };
        assert_eq!((half("[1,2,3,4]"), half("[1]"), half("[]")), (2, 0, 0));
        assert_eq!(truncated(&Bytes::from_static(b"x")), "x");
    }
}
