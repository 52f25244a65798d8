//! The requests of an HTTP/2 connection, each of which can be ended separately.
//!
//! hyper does not poll a response body while the client's window is closed, so the body cannot end itself. So the
//! sending task is aborted: h2 then resets the stream and frees its memory.

use crate::connection::End;
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
            let end_of_stream = end.clone();
            tokio::select! {
                biased;
                () = end_of_stream.wait() => {}
                _ = STREAM.scope(end, stream) => {}
            }
        });
    }
}

/// Returns the abort handle of the current stream, if any.
pub(super) fn current() -> Option<Arc<End>> {
    STREAM.try_with(Arc::clone).ok()
}
