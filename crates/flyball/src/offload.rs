//! Long computations on separate threads.
//!
//! An operator's reconciles, watches and leases share few threads. A computation whose cost an object determines would
//! delay all of them, so it runs elsewhere, and at a lower priority once it has taken long: under contention, the
//! runtime and short computations go first, however many cores there are.

use std::future::pending;
use std::panic::resume_unwind;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// The niceness of a long computation: the lowest priority.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 19;

/// Runs a computation on a separate thread and returns its result.
///
/// Use it for computations of more than a few milliseconds in reconciles and webhooks, such as rendering templates or
/// hashing passwords. On Linux, the priority of the thread is lowered once the computation has taken `quick_time`.
/// Dropping the future does not stop the computation. The computation may use the runtime's timers and sockets.
/// Threads are not reproducible: in a simulation, call the computation directly.
///
/// # Panics
///
/// Panics of the computation are resumed.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let sum = flyball::offload(Duration::from_millis(5), || (1..=1_000_000_u64).sum::<u64>()).await;
/// assert_eq!(sum, 500_000_500_000);
/// # }
/// ```
#[doc(alias = "spawn_blocking")]
pub async fn offload<T: Send + 'static>(quick_time: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let runtime = Handle::current();
    let work = move || {
        let _entered = runtime.enter();
        work()
    };
    match spawn_blocking(move || run(quick_time, work)).await.map_err(|error| error.try_into_panic()) {
        Ok(result) => result,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime shuts down.
        Err(Err(_)) => pending().await,
    }
}

/// Runs a computation on a new thread, and lowers its priority after a time. A thread of the runtime would keep the low
/// priority, as raising it takes a privilege.
#[cfg(target_os = "linux")]
fn run<T: Send>(quick_time: Duration, work: impl FnOnce() -> T + Send) -> T {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    std::thread::scope(|scope| {
        let (started, thread) = channel();
        let computing = scope.spawn(move || {
            // The channel is closed when the computation ends or panics.
            let started = started;
            let _ = started.send(rustix::thread::gettid());
            work()
        });
        if let Ok(id) = thread.recv()
            && thread.recv_timeout(quick_time) == Err(RecvTimeoutError::Timeout)
        {
            // On Linux, this affects one thread. It fails if the thread has just ended.
            let _ = rustix::process::setpriority_process(Some(id), NICENESS);
        }
        computing.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(not(target_os = "linux"))]
fn run<T: Send>(_: Duration, work: impl FnOnce() -> T + Send) -> T {
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LONG_DELAY: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn results_and_panics_are_propagated() {
        let own = thread::current().id();
        assert_ne!(offload(LONG_DELAY, || thread::current().id()).await, own);
        assert!(offload(LONG_DELAY, || Handle::try_current().is_ok()).await, "the runtime can be used");
        let panicked = tokio::spawn(offload(LONG_DELAY, || panic!("a bug"))).await;
        assert!(panicked.is_err_and(|error| error.is_panic()));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn only_long_computations_run_at_a_low_priority() {
        let niceness = || rustix::process::getpriority_process(None).expect("it has one");
        let before = niceness();
        // Ends only once its priority is lowered.
        offload(Duration::ZERO, move || while niceness() != NICENESS {}).await;
        assert_eq!(offload(LONG_DELAY, niceness).await, before);
        assert_eq!(niceness(), before);
    }
}
