//! Requests that compute for long, away from the threads that serve connections.
//!
//! Takes the answer to a request as a future, and lets each of its steps run on a thread of its own, of which there
//! are as many as processors; users take turns. Administrators have as many threads of their own. What waits holds no
//! thread. In process and in simulation nothing runs apart.

use super::Components;
use super::call::Call;
use crate::bounds::Offload;
use crate::limits;
use crate::storage::Store;
use flyball_core::{GroupResource, ObjectKey};
use futures_util::future::BoxFuture;
use http::Method;
use std::future::poll_fn;
use std::task::ready;

/// A request computes for long if its body and the object that it changes have so many bytes together.
const LONG_BODY_BYTES: usize = 64 << 10;

/// A request computes for long if it is about a resource that has so many objects.
const LONG_LIST_OBJECTS: usize = 1000;

/// A list computes for long if the objects that it is made from have so many bytes: to convert them, to delete them or
/// to show them in another view means to decode them.
const LONG_LIST_BYTES: usize = 256 << 10;

/// Returns how much memory a request that computes for long takes, beside its answer; `None` if it does not compute for
/// long.
fn load(store: &Store, call: &Call) -> Option<usize> {
    let Some(path) = &call.info.resource else { return call.info.path.starts_with("/openapi").then_some(0) };
    let table = || GroupResource::new(&path.group, &path.resource);
    let computes = match (&path.name, call.info.verb) {
        (_, "watch") => false,
        (None, "list" | "deletecollection") => {
            let (table, namespace) = (table(), path.namespace.as_deref());
            let bytes = || store.list(&table, namespace).entries.iter().map(|entry| entry.body.len()).sum::<usize>();
            store.count(&table) >= LONG_LIST_OBJECTS || bytes() >= LONG_LIST_BYTES
        }
        (Some(name), _) if !matches!(call.method, Method::GET | Method::HEAD) => {
            let stored = store.get(&table(), &ObjectKey::new(path.namespace.as_deref(), name));
            let bytes = call.body.len() + stored.map_or(0, |entry| entry.body.len());
            return (bytes >= LONG_BODY_BYTES).then(|| limits::at_most(bytes));
        }
        _ => call.body.len() >= LONG_BODY_BYTES,
    };
    computes.then(|| limits::at_most(call.body.len()))
}

/// Returns the offload of a request that computes for long; `None` if there is no memory
/// for it in time.
pub(super) async fn offload(server: &Components, call: &Call) -> Option<Option<Offload>> {
    let offload = call.connection.as_ref().and_then(|_| Offload::new(&server.shared, &call.flow));
    let (Some(offload), Some(bytes)) = (offload, load(&server.registry.store, call)) else { return Some(None) };
    let memory = server.shared.memory(&call.flow, bytes).await?;
    Some(Some(offload.with_memory(memory)))
}

/// Answers a request apart.
pub(super) async fn answer<T: Send>(offload: &mut Offload, mut answer: BoxFuture<'_, T>) -> T {
    poll_fn(|cx| ready!(offload.poll(cx, |cx| answer.as_mut().poll(cx)))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Query, RequestInfo};
    use crate::server::{Options, Server, dispatch};
    use crate::{Body, User};
    use bytes::Bytes;
    use flyball_core::Clock;
    use http::Request;
    use http_body_util::Full;
    use serde_json::json;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn request(method: Method, uri: &str, body: String) -> Request<Full<Bytes>> {
        let request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
        let mut request = request.body(Full::new(Bytes::from(body))).unwrap();
        request.extensions_mut().insert(User::new("admin", &["system:masters"]));
        request
    }

    /// Returns whether the server takes a list in this view for one that computes for long.
    async fn is_long(server: &Server, view: &str) -> bool {
        let mut request = request(Method::GET, MAPS, String::new());
        request.headers_mut().insert(http::header::ACCEPT, view.parse().unwrap());
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let Ok(call) = dispatch::receive(&server.0, parts, query, info, body).await else { panic!("it is let in") };
        load(&server.0.registry.store, &call).is_some()
    }

    #[tokio::test]
    async fn a_list_of_few_large_objects_computes_for_long_in_each_view() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let views = ["application/json", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml"];
        let create = async |n: usize, bytes: usize| {
            let object = json!({"metadata": {"name": format!("map-{n}")}, "data": {"a": "a".repeat(bytes)}});
            let answer = server.handle(request(Method::POST, MAPS, object.to_string())).await;
            assert_eq!(answer.status(), 201);
            drop::<http::Response<Body>>(answer);
        };
        for n in 0..10 {
            create(n, 100).await;
        }
        for view in views {
            assert!(!is_long(&server, view).await, "{view}");
        }
        create(10, LONG_LIST_BYTES).await;
        for view in views {
            assert!(is_long(&server, view).await, "{view}");
        }
    }
}
