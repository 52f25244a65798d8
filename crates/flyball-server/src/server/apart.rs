//! Requests that compute for long, away from the threads that serve connections.
//!
//! Takes the answer to a request as a future, and lets each of its steps run on a thread of its own, of which there
//! are as many as processors; users take turns. Administrators have as many threads of their own. What waits holds no
//! thread. In process and in simulation nothing runs apart.

use super::Inner;
use super::dispatch::Call;
use crate::auth;
use crate::bounds::Hold;
use flyball_core::{GroupResource, ObjectKey};
use futures_util::future::BoxFuture;
use http::Method;
use std::future::poll_fn;
use std::task::ready;
use tokio::runtime::{Handle, RuntimeFlavor};

/// A request computes for long if its body and the object that it changes have so many bytes together.
const LONG_BODY: usize = 64 << 10;

/// A request computes for long if it is about a resource that has so many objects.
const LONG_LIST: usize = 1000;

/// Tells whether a request is to be answered apart.
pub(super) fn belongs_apart(inner: &Inner, call: &Call) -> bool {
    if call.connection.is_none() || Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
        return false;
    }
    let Some(path) = &call.target.resource else { return call.target.path.starts_with("/openapi") };
    let table = || GroupResource::new(&path.group, &path.resource);
    match (&path.name, call.target.verb) {
        (_, "watch") => false,
        (None, "list" | "deletecollection") => inner.store.count(&table()) >= LONG_LIST,
        (Some(name), _) if !matches!(call.method, Method::GET | Method::HEAD) => {
            let stored = inner.store.get(&table(), &ObjectKey::new(path.namespace.as_deref(), name));
            call.body.len() + stored.map_or(0, |entry| entry.body.len()) >= LONG_BODY
        }
        _ => call.body.len() >= LONG_BODY,
    }
}

/// Answers a request apart.
pub(super) async fn answer<T>(inner: &Inner, call: &Call, mut answer: BoxFuture<'_, T>) -> T {
    let threads = inner.shared.threads(call.user.is_in(auth::MASTERS));
    let mut thread: Option<BoxFuture<'static, Option<Hold>>> = None;
    poll_fn(|cx| {
        let wait = thread.get_or_insert_with(|| Box::pin(threads.clone().wait(call.flow.clone(), 1)));
        let held = ready!(wait.as_mut().poll(cx));
        thread = None;
        let step = tokio::task::block_in_place(|| answer.as_mut().poll(cx));
        drop(held);
        step
    })
    .await
}
