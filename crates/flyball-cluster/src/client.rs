//! Clients of the API server in the same process, without a socket.
//!
//! Clients of controllers have timeouts and a circuit breaker for each resource and namespace. A conversion webhook
//! that does not respond would block each read of its kind, and a worker, until the timeout of the server. Therefore
//! such a read times out earlier, and further reads of the resource in this namespace fail immediately, until one of
//! them is tried again.

use flyball_server::{Server, User};
use http::{Method, Request};
use kube::client::Body;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tower::{ServiceExt, service_fn};

/// Timeout of a read of a controller.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a write of a controller, longer than the total of its webhooks in the API server.
const WRITE_TIMEOUT: Duration = Duration::from_secs(40);
/// Retry interval of reads of an unresponsive resource in one namespace.
const READ_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum time between such retries in different namespaces.
const READ_RETRY_SPACING: Duration = Duration::from_millis(2500);
/// Time after which an overdue namespace is dropped: it may be deleted.
const UNRESPONSIVE_TTL: Duration = Duration::from_mins(10);

/// Creates a client that is authenticated as `user`.
pub(crate) fn client_of(server: &Server, user: User) -> kube::Client {
    let user = move |mut request: Request<Body>| {
        request.extensions_mut().insert(user.clone());
        request
    };
    kube::Client::new(server.clone().map_request(user), "default")
}

/// The clients of controllers, for all requests but watches.
pub(crate) struct ControllerClients {
    server: Server,
    unresponsive: UnresponsiveResources,
}

impl ControllerClients {
    pub(crate) fn new(server: &Server) -> Self {
        Self { server: server.clone(), unresponsive: UnresponsiveResources::default() }
    }

    /// Creates a client that is authenticated as `user`.
    pub(crate) fn client_of(&self, user: User) -> kube::Client {
        let (server, unresponsive) = (self.server.clone(), self.unresponsive.clone());
        let send = move |mut request: Request<Body>| {
            request.extensions_mut().insert(user.clone());
            let (server, unresponsive) = (server.clone(), unresponsive.clone());
            async move {
                let (resource, namespace) = resource_of(request.uri().path());
                if matches!(*request.method(), Method::GET | Method::HEAD) {
                    return match unresponsive.read(&resource, &namespace, server.oneshot(request)).await {
                        Some(Ok(response)) => Ok(response),
                        None => Err(NoResponse::ToRead { resource }),
                    };
                }
                let response: Result<Result<_, Infallible>, _> = timeout(WRITE_TIMEOUT, server.oneshot(request)).await;
                match response {
                    Ok(Ok(response)) => Ok(response),
                    Err(_) => Err(NoResponse::ToWrite { resource }),
                }
            }
        };
        kube::Client::new(service_fn(send), "default")
    }
}

/// A request that the API server did not respond to in time.
#[derive(Debug, thiserror::Error)]
enum NoResponse {
    #[error(
        "{resource} does not respond to reads (timeout {} s); check the conversion webhook of its CustomResourceDefinition",
        READ_TIMEOUT.as_secs()
    )]
    ToRead { resource: String },
    #[error("{resource} does not respond to writes (timeout {} s); check its admission webhooks", WRITE_TIMEOUT.as_secs())]
    ToWrite { resource: String },
}

/// Returns the resource of a request as `resource.group`, or the path if it is not that of a resource, and the
/// namespace.
fn resource_of(path: &str) -> (String, String) {
    let other = (path.to_owned(), String::new());
    let mut parts = path.split('/').skip(1);
    let group = match (parts.next(), parts.next()) {
        (Some("api"), Some(_)) => "",
        (Some("apis"), Some(group)) if parts.next().is_some() => group,
        _ => return other,
    };
    let (resource, namespace) = match (parts.next(), parts.next(), parts.next()) {
        (Some("namespaces"), Some(namespace), Some(resource)) => (resource, namespace),
        (Some(resource), ..) => (resource, ""),
        (None, ..) => return other,
    };
    let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    (resource, namespace.to_owned())
}

/// The resources of which reads timed out.
#[derive(Clone, Default)]
struct UnresponsiveResources(Arc<Mutex<BTreeMap<String, UnresponsiveResource>>>);

/// A resource of which reads timed out: in some namespaces, since there may be nothing to convert in others.
struct UnresponsiveResource {
    /// The time of the next read that is tried in any of the namespaces.
    next: Instant,
    /// The time of the next read that is tried, by namespace.
    namespaces: BTreeMap<String, Instant>,
}

impl UnresponsiveResources {
    /// Awaits the response to a read; `None` if there is none in time, or if the read is not tried.
    async fn read<T>(&self, resource: &str, namespace: &str, response: impl Future<Output = T>) -> Option<T> {
        let attempt = self.attempt(resource, namespace)?;
        let response = timeout(READ_TIMEOUT, response).await.ok();
        attempt.end();
        match &response {
            Some(_) => self.responded(resource, namespace),
            None => self.timed_out(resource, namespace),
        }
        response
    }

    /// Begins a read if it may be tried in a namespace. Where the last one timed out, few are tried, and few at the
    /// same time in all such namespaces.
    fn attempt<'a>(&'a self, resource: &'a str, namespace: &'a str) -> Option<Attempt<'a>> {
        let attempt = |due| Some(Attempt { resources: self, resource, namespace, due });
        let mut resources = self.0.lock();
        let Some(UnresponsiveResource { next, namespaces }) = resources.get_mut(resource) else { return attempt(None) };
        let Some(due) = namespaces.get_mut(namespace) else { return attempt(None) };
        let now = Instant::now();
        if *due > now || *next > now {
            return None;
        }
        (*due, *next) = (now + READ_RETRY_INTERVAL, now + READ_RETRY_SPACING);
        attempt(Some(*due))
    }

    fn responded(&self, resource: &str, namespace: &str) {
        let mut resources = self.0.lock();
        let Some(UnresponsiveResource { next, namespaces }) = resources.get_mut(resource) else { return };
        if namespaces.remove(namespace).is_some() {
            // Another namespace may be tried at once.
            *next = Instant::now();
        }
        if namespaces.is_empty() {
            resources.remove(resource);
        }
    }

    fn timed_out(&self, resource: &str, namespace: &str) {
        let (mut resources, now) = (self.0.lock(), Instant::now());
        let new = || UnresponsiveResource { next: now, namespaces: BTreeMap::new() };
        let resource = resources.entry(resource.to_owned()).or_insert_with(new);
        resource.namespaces.retain(|_, due| now.saturating_duration_since(*due) < UNRESPONSIVE_TTL);
        resource.namespaces.insert(namespace.to_owned(), now + READ_RETRY_INTERVAL);
    }
}

/// A read that is tried. If it is canceled, another one of its namespace need not wait for the interval.
struct Attempt<'a> {
    resources: &'a UnresponsiveResources,
    resource: &'a str,
    namespace: &'a str,
    /// The time of the next read that is tried of the namespace, if the last one timed out.
    due: Option<Instant>,
}

impl Attempt<'_> {
    /// Ends a read that was not canceled.
    fn end(mut self) {
        self.due = None;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Some(own) = self.due else { return };
        let mut resources = self.resources.0.lock();
        let namespaces = resources.get_mut(self.resource).map(|resource| &mut resource.namespaces);
        // A read that ended in the meantime has set a later time.
        if let Some(due) =
            namespaces.and_then(|namespaces| namespaces.get_mut(self.namespace)).filter(|due| **due == own)
        {
            *due = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[test]
    fn resource_of_a_request() {
        for (path, resource, namespace) in [
            ("/api/v1/pods", "pods", ""),
            ("/api/v1/namespaces/a", "namespaces", ""),
            ("/api/v1/namespaces/a/pods/p/status", "pods", "a"),
            ("/apis/apps/v1/namespaces/a/deployments/d", "deployments.apps", "a"),
            ("/apis/example.com/v1/widgets/w/scale", "widgets.example.com", ""),
            ("/apis/example.com/v1", "/apis/example.com/v1", ""),
            ("/apis", "/apis", ""),
            ("", "", ""),
        ] {
            assert_eq!(resource_of(path), (resource.to_owned(), namespace.to_owned()), "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_reads_are_tried_while_a_resource_does_not_respond() {
        let resources = UnresponsiveResources::default();
        for namespace in ["a", "b"] {
            resources.timed_out("widgets", namespace);
        }
        let tried_of =
            |resource: &str, namespace: &str| resources.attempt(resource, namespace).map(Attempt::end).is_some();
        let tried = |namespace: &str| tried_of("widgets", namespace);
        assert_eq!([tried("a"), tried("b"), tried("c"), tried_of("pods", "a")], [false, false, true, true]);
        tokio::time::advance(READ_RETRY_INTERVAL).await;
        assert_eq!([tried("a"), tried("a"), tried("b"), tried("c")], [true, false, false, true]);
        resources.responded("widgets", "a");
        assert_eq!([tried("a"), tried("b"), tried("b")], [true, true, false]);
        resources.responded("widgets", "b");
        assert!(tried("b") && resources.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_read_does_not_delay_the_next_one() {
        let resources = UnresponsiveResources::default();
        let read = async |limit| timeout(limit, resources.read("widgets", "a", pending::<()>())).await;
        assert_eq!(read(2 * READ_TIMEOUT).await, Ok(None));
        let rejected = Instant::now();
        assert_eq!(read(2 * READ_TIMEOUT).await, Ok(None));
        assert_eq!(rejected.elapsed(), Duration::ZERO, "it is not tried");
        tokio::time::advance(READ_RETRY_INTERVAL).await;
        assert!(read(READ_TIMEOUT / 10).await.is_err(), "it is tried, and cancelled");
        assert!(resources.attempt("widgets", "a").is_none(), "few are tried at the same time");
        tokio::time::advance(READ_RETRY_SPACING).await;
        assert_eq!(resources.read("widgets", "a", async { 1 }).await, Some(1));
        assert!(resources.0.lock().is_empty());
    }
}
