//! Long computations on separate threads, so that the server can serve connections in the meantime.

use super::{Flow, Hold, Pool, SharedBounds};
use futures_util::future::BoxFuture;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, JoinHandle};

/// The niceness of these threads: under contention they have a third of the processor.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Runs a step on a new thread, so that the memory that the allocator caches per thread is freed with it.
fn step_apart<T: Send>(cx: &Context<'_>, step: impl FnOnce(&mut Context<'_>) -> T + Send) -> T {
    let (runtime, waker) = (Handle::current(), cx.waker());
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            let step = move || {
                // Threads that serve connections have a higher priority. On Linux, niceness is per thread.
                #[cfg(target_os = "linux")]
                let _ = rustix::process::setpriority_process(None, NICENESS);
                let _entered = runtime.enter();
                step(&mut Context::from_waker(waker))
            };
            scope.spawn(step).join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    })
}

/// A step in a task, which is cancelled if it is dropped before its turn.
pub(crate) struct SpawnedStep<T>(JoinHandle<T>);

impl<T> Future for SpawnedStep<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for SpawnedStep<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The steps of one request on threads of their own: each waits for its turn at a thread.
pub(crate) struct Offload {
    threads: Pool,
    flow: Flow,
    wait: Option<BoxFuture<'static, Option<Hold>>>,
}

impl Offload {
    /// Creates the offload of a request, if the runtime has threads for it.
    pub(crate) fn new(shared: &SharedBounds, flow: &Flow) -> Option<Self> {
        let has_workers = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        has_workers.then(|| Self { threads: shared.threads.of(flow).clone(), flow: flow.clone(), wait: None })
    }

    /// Runs a step in a new task once it is this request's turn.
    pub(crate) fn spawn<T: Send + 'static>(&self, step: impl FnOnce() -> T + Send + 'static) -> SpawnedStep<T> {
        let wait = self.threads.clone().wait(self.flow.clone(), 1);
        SpawnedStep(tokio::spawn(async move {
            let _turn = wait.await;
            tokio::task::block_in_place(step)
        }))
    }

    /// Runs a step once it is this request's turn. It must be polled when it is woken, since others wait for it.
    pub(crate) fn poll<T: Send>(
        &mut self,
        cx: &mut Context<'_>,
        step: impl FnOnce(&mut Context<'_>) -> T + Send,
    ) -> Poll<T> {
        let wait = self.wait.get_or_insert_with(|| Box::pin(self.threads.clone().wait(self.flow.clone(), 1)));
        let hold = ready!(wait.as_mut().poll(cx));
        self.wait = None;
        let done = step_apart(cx, step);
        drop(hold);
        Poll::Ready(done)
    }
}
