//! Calls to systems outside of the cluster, counted for the reconcile that makes them.

use std::cell::RefCell;
use std::time::Duration;
use tokio::time::Instant;

/// Limit of systems that are told apart in a reconcile; [`OTHERS`] is one of them.
const MAX_SYSTEMS: usize = 8;
/// Name for the systems beyond the limit.
const OTHERS: &str = "others";

tokio::task_local! {
    /// The calls of the reconcile that the current task runs.
    static CALLS: RefCell<Vec<ExternalCalls>>;
}

/// The calls of a reconcile to one system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExternalCalls {
    pub(crate) system: &'static str,
    pub(crate) calls: u32,
    /// Calls that returned an error, or were canceled.
    pub(crate) failures: u32,
    pub(crate) took: Duration,
}

/// Awaits a call to a system outside of the cluster, such as `"vcenter"`, and counts it with its time.
///
/// The calls of a reconcile are in the ledger of its controller, which metering reads, and in the metrics
/// `flyball_external_calls_total` and `flyball_external_call_seconds_total` of the controller, by system. A call that
/// returns an error or is canceled has the result `error`. A reconcile tells seven systems apart, and counts further
/// ones as `others`: names are those of systems, and not of machines or customers. Concurrent calls add up beyond the
/// time that has passed.
///
/// The best place is the client of the system, around the exchange of one request. Outside of a reconcile, and in tasks
/// that a reconcile spawns, calls are not counted.
///
/// ```
/// # async fn send(request: &str) -> std::io::Result<String> { Ok(request.to_owned()) }
/// async fn power_on(machine: &str) -> std::io::Result<String> {
///     flyball::external_call("vcenter", send(machine)).await
/// }
/// ```
pub async fn external_call<T, E>(system: &'static str, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let mut pending = Pending { system, began: Instant::now(), is_failed: true };
    let result = call.await;
    pending.is_failed = result.is_err();
    result
}

/// Runs a future as a part of a reconcile, and returns its external calls, each system once.
pub(crate) async fn with_external_calls<F: Future>(future: F) -> (F::Output, Vec<ExternalCalls>) {
    let counted = async {
        let output = future.await;
        (output, CALLS.with(RefCell::take))
    };
    CALLS.scope(RefCell::default(), counted).await
}

/// A call that is counted when it ends, also by cancellation.
struct Pending {
    system: &'static str,
    began: Instant,
    is_failed: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Outside of a reconcile, there is nothing to count for.
        let _ = CALLS.try_with(|calls| {
            let mut calls = calls.borrow_mut();
            let find = |calls: &[ExternalCalls], system| calls.iter().position(|known| known.system == system);
            let known = find(&calls, self.system);
            let system = if known.is_none() && calls.len() >= MAX_SYSTEMS - 1 { OTHERS } else { self.system };
            let at = known.or_else(|| find(&calls, system)).unwrap_or(calls.len());
            if at == calls.len() {
                calls.push(ExternalCalls { system, calls: 0, failures: 0, took: Duration::ZERO });
            }
            let of = &mut calls[at];
            of.calls = of.calls.saturating_add(1);
            of.failures = of.failures.saturating_add(self.is_failed.into());
            of.took = of.took.saturating_add(self.began.elapsed());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{sleep, timeout};

    async fn call(system: &'static str, seconds: u64, result: Result<u8, u8>) -> Result<u8, u8> {
        let work = async {
            sleep(Duration::from_secs(seconds)).await;
            result
        };
        external_call(system, work).await
    }

    #[tokio::test(start_paused = true)]
    async fn calls_count_for_their_reconcile() {
        let (output, calls) = with_external_calls(async {
            let cancelled = timeout(Duration::from_secs(2), call("vcenter", 60, Ok(0))).await;
            assert!(cancelled.is_err());
            assert_eq!(call("etcd", 1, Err(7)).await, Err(7));
            call("vcenter", 3, Ok(5)).await
        })
        .await;
        assert_eq!(output, Ok(5));
        let of = |system, calls, failures, seconds| ExternalCalls {
            system,
            calls,
            failures,
            took: Duration::from_secs(seconds),
        };
        assert_eq!(calls, [of("vcenter", 2, 1, 5), of("etcd", 1, 1, 1)]);
        assert_eq!(call("vcenter", 1, Ok(5)).await, Ok(5), "outside of a reconcile");
    }

    #[tokio::test(start_paused = true)]
    async fn systems_are_bounded() {
        let names: Vec<&'static str> =
            (0..20).map(|number| &*Box::leak(format!("s{number}").into_boxed_str())).collect();
        let all = async {
            for name in names {
                let _ = call(name, 1, Ok(0)).await;
            }
        };
        let ((), calls) = with_external_calls(all).await;
        let counts: Vec<_> = calls.iter().map(|of| (of.system, of.calls)).collect();
        assert_eq!((counts.len(), counts[0], counts[6], counts[7]), (MAX_SYSTEMS, ("s0", 1), ("s6", 1), (OTHERS, 13)));
    }
}
