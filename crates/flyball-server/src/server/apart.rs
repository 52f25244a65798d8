//! Requests that compute for long, away from the threads that serve connections.
//!
//! Takes the answer to a request as a future, and lets each of its steps run on a thread of its own, of which there
//! are as many as processors; users take turns. Administrators have as many threads of their own. What waits holds no
//! thread. In process and in simulation nothing runs apart.

use super::Inner;
use super::dispatch::Call;
use crate::bounds::{Flow, Hold, Pool, Shared};
use crate::request::weight;
use flyball_core::{GroupResource, ObjectKey};
use futures_util::future::BoxFuture;
use http::Method;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::task::{Context, Poll, ready};
use std::thread;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

/// A request computes for long if its body and the object that it changes have so many bytes together.
const LONG_BODY: usize = 64 << 10;

/// A request computes for long if it is about a resource that has so many objects.
const LONG_LIST: usize = 1000;

/// A list computes for long if the objects that it is made from have so many bytes: to convert them, to delete them or
/// to show them in another view means to decode them.
const LONG_LIST_BYTES: usize = 256 << 10;

/// How nice threads are that compute for long: they have a third of the processor where others want it as well.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Tells how much memory a request that computes for long takes, beside its answer; `None` if it does not compute for
/// long.
fn load(inner: &Inner, call: &Call) -> Option<usize> {
    let Some(path) = &call.target.resource else { return call.target.path.starts_with("/openapi").then_some(0) };
    let table = || GroupResource::new(&path.group, &path.resource);
    let computes = match (&path.name, call.target.verb) {
        (_, "watch") => false,
        (None, "list" | "deletecollection") => {
            let (table, namespace) = (table(), path.namespace.as_deref());
            let bytes =
                || inner.store.list(&table, namespace).entries.iter().map(|entry| entry.body.len()).sum::<usize>();
            inner.store.count(&table) >= LONG_LIST || bytes() >= LONG_LIST_BYTES
        }
        (Some(name), _) if !matches!(call.method, Method::GET | Method::HEAD) => {
            let stored = inner.store.get(&table(), &ObjectKey::new(path.namespace.as_deref(), name));
            let bytes = call.body.len() + stored.map_or(0, |entry| entry.body.len());
            return (bytes >= LONG_BODY).then(|| weight::at_most(bytes));
        }
        _ => call.body.len() >= LONG_BODY,
    };
    computes.then(|| weight::at_most(call.body.len()))
}

/// Returns the turns that a request is to be answered in, if it is to be answered apart; `None` if there is no memory
/// for it in time.
pub(super) async fn turns(inner: &Inner, call: &Call) -> Option<Option<Turns>> {
    let turns = call.connection.as_ref().and_then(|_| Turns::new(&inner.shared, &call.flow));
    let (Some(turns), Some(bytes)) = (turns, load(inner, call)) else { return Some(None) };
    let memory = inner.shared.memory(&call.flow, bytes).await?;
    Some(Some(Turns { _memory: Some(memory), ..turns }))
}

/// Answers a request apart.
pub(super) async fn answer<T: Send>(turns: &mut Turns, mut answer: BoxFuture<'_, T>) -> T {
    poll_fn(|cx| ready!(turns.poll(cx, |cx| answer.as_mut().poll(cx)))).await
}

/// Takes a step on a thread of its own, which takes the memory that allocators keep for threads with it.
fn step_apart<T: Send>(cx: &Context<'_>, step: impl FnOnce(&mut Context<'_>) -> T + Send) -> T {
    let (runtime, waker) = (Handle::current(), cx.waker());
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            let step = move || {
                // Threads that serve connections go first. On Linux, this is about one thread.
                #[cfg(target_os = "linux")]
                let _ = rustix::process::setpriority_process(None, NICENESS);
                let _entered = runtime.enter();
                step(&mut Context::from_waker(waker))
            };
            scope.spawn(step).join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    })
}

/// What one request does apart: each step waits for its turn at a thread.
pub(crate) struct Turns {
    threads: Pool,
    flow: Flow,
    wait: Option<BoxFuture<'static, Option<Hold>>>,
    _memory: Option<Hold>,
}

impl Turns {
    /// Has the steps of a flow's request run apart, if anything does here.
    pub(crate) fn new(shared: &Shared, flow: &Flow) -> Option<Self> {
        let has_workers = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        has_workers.then(|| Self {
            threads: shared.threads.of(flow).clone(),
            flow: flow.clone(),
            wait: None,
            _memory: None,
        })
    }

    /// Takes a step in a task of its own once it is this request's turn.
    pub(crate) fn spawn<T: Send + 'static>(&self, step: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let wait = self.threads.clone().wait(self.flow.clone(), 1);
        tokio::spawn(async move {
            let _turn = wait.await;
            tokio::task::block_in_place(step)
        })
    }

    /// Takes a step once it is this request's turn. It has to be polled whenever it is woken, as others wait for it.
    fn poll<T: Send>(&mut self, cx: &mut Context<'_>, step: impl FnOnce(&mut Context<'_>) -> T + Send) -> Poll<T> {
        let wait = self.wait.get_or_insert_with(|| Box::pin(self.threads.clone().wait(self.flow.clone(), 1)));
        let held = ready!(wait.as_mut().poll(cx));
        self.wait = None;
        let done = step_apart(cx, step);
        drop(held);
        Poll::Ready(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Query, Target};
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

    /// Tells whether the server takes a list in this view for one that computes for long.
    async fn is_long(server: &Server, view: &str) -> bool {
        let mut request = request(Method::GET, MAPS, String::new());
        request.headers_mut().insert(http::header::ACCEPT, view.parse().unwrap());
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let target = Target::parse(&parts.method, parts.uri.path(), &query);
        let Ok(call) = dispatch::receive(&server.0, parts, query, target, body).await else { panic!("it is let in") };
        load(&server.0, &call).is_some()
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
