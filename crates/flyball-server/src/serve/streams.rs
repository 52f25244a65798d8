//! The requests of an HTTP/2 connection, each of which can be ended alone.
//!
//! hyper asks an answer for no more as long as the client's window is shut, so that the answer cannot say that it has
//! ended. Here the task is ended that sends it: h2 then resets the stream and frees what it holds.

use crate::link::End;
use hyper::rt::Executor;
use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static STREAM: Arc<End>;
}

/// Runs the streams of a connection.
#[derive(Clone)]
pub(super) struct Streams;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let end = Arc::<End>::default();
        tokio::spawn(async move {
            let ended = end.clone();
            tokio::select! {
                biased;
                () = ended.wait() => {}
                _ = STREAM.scope(end, stream) => {}
            }
        });
    }
}

/// Returns what ends the stream that runs now, if one does.
pub(super) fn current() -> Option<Arc<End>> {
    STREAM.try_with(Arc::clone).ok()
}
