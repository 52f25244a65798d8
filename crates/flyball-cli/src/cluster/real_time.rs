//! Requests of a control plane with a steppable time to other processes, whose time is real.
//!
//! They run on a runtime in real time, and the time of the control plane does not advance meanwhile. Otherwise, a step
//! would exceed their timeouts before a response arrives.

use super::steppable::TimeHold;
use flyball_cluster::{Caller, WebhookCall, WebhookFuture};
use flyball_server::{ForwardFuture, ForwardedRequest, Forwarder};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Real time for a response: the longest timeout of webhooks.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends requests on a runtime in real time.
pub(crate) struct InRealTime<T: ?Sized> {
    runtime: Handle,
    inner: Arc<T>,
}

impl<T: ?Sized> InRealTime<T> {
    /// Sends them on the current runtime.
    pub(crate) fn new(inner: Arc<T>) -> Self {
        Self { runtime: Handle::current(), inner }
    }
}

impl Caller for InRealTime<dyn Caller> {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        let inner = self.inner.clone();
        Box::pin(run(self.runtime.clone(), async move { inner.call(call).await }))
    }
}

impl Forwarder for InRealTime<dyn Forwarder> {
    fn forward(&self, request: ForwardedRequest) -> ForwardFuture {
        let inner = self.inner.clone();
        Box::pin(run(self.runtime.clone(), async move { inner.forward(request).await }))
    }
}

/// Runs a request, and holds the time of the current runtime meanwhile.
async fn run<T: Send + 'static>(
    runtime: Handle,
    request: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    let _hold = (Handle::current().id() != runtime.id()).then(TimeHold::new);
    let mut task = JoinSet::new();
    // The timeout belongs to the runtime that creates it.
    task.spawn_on(async move { timeout(TIMEOUT, request).await }, &runtime);
    match task.join_next().await {
        Some(Ok(Ok(response))) => response,
        Some(Ok(Err(_))) => Err(format!("no response within {} s", TIMEOUT.as_secs())),
        Some(Err(_)) | None => Err("the request was aborted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::steppable::{SteppableRuntime, TimeState};
    use super::*;
    use tokio::time::sleep;

    #[tokio::test]
    async fn steps_do_not_exceed_the_timeouts_of_requests() {
        let stepped = SteppableRuntime::start("2026-01-01T00:00:00Z".parse().expect("a time")).expect("a runtime");
        let real = Handle::current();
        let answered = stepped.handle().spawn(async move {
            sleep(Duration::from_secs(100)).await;
            let slow = async {
                sleep(Duration::from_millis(50)).await;
                Ok::<_, String>("answer")
            };
            // As the server does.
            timeout(Duration::from_secs(10), run(real, slow)).await
        });
        stepped.step(Duration::from_secs(3600)).expect("a step");
        let answered = timeout(Duration::from_secs(20), answered).await.expect("in time").expect("it ends");
        assert_eq!(answered.expect("no timeout"), Ok("answer"));
        while stepped.state().remaining.is_some() {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(stepped.state(), TimeState { is_paused: true, ..TimeState::default() });
    }
}
