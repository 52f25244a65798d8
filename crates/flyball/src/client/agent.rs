//! The `User-Agent` of requests: operator, version, and the reconcile that sends the request.
//!
//! With it, audit logs tell which reconcile made a request. The API server derives the default field manager from its
//! first word, the name of the operator.

use http::HeaderValue;
use http::header::{HeaderMap, USER_AGENT};
use std::sync::Arc;
use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    /// The reconcile that the current task runs.
    static RECONCILE: u64;
}

/// Runs a future as a part of a reconcile: its requests carry the identifier.
pub(crate) fn within_reconcile<F: Future>(id: u64, future: F) -> TaskLocalFuture<u64, F> {
    RECONCILE.scope(id, future)
}

/// Returns the identifier of the reconcile that the current task runs.
pub(crate) fn current_reconcile() -> Option<u64> {
    RECONCILE.try_with(|id| *id).ok()
}

/// The program that sends requests.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    name: Arc<str>,
    header: Option<HeaderValue>,
}

impl Agent {
    /// Creates the agent of an operator.
    pub(crate) fn new(operator: &str, version: Option<&str>) -> Self {
        let name = format!("{operator}/{}", version.unwrap_or("unknown"));
        // A version that is invalid in a header is not sent.
        let header = HeaderValue::from_str(&name).ok();
        Self { name: name.into(), header }
    }

    /// Sets the header of a request, unless it has one.
    pub(super) fn sign(&self, headers: &mut HeaderMap) {
        let Some(plain) = self.header.as_ref().filter(|_| !headers.contains_key(USER_AGENT)) else { return };
        let of_reconcile = |id| HeaderValue::from_str(&format!("{} (reconcile {id:016x})", self.name)).ok();
        headers.insert(USER_AGENT, current_reconcile().and_then(of_reconcile).unwrap_or_else(|| plain.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_of_a_reconcile_name_it() {
        let signed = |agent: &Agent| {
            let mut headers = HeaderMap::new();
            agent.sign(&mut headers);
            headers.get(USER_AGENT).map(|value| value.to_str().unwrap().to_owned())
        };
        let agent = Agent::new("site-operator", Some("1.2.0"));
        assert_eq!(signed(&agent).as_deref(), Some("site-operator/1.2.0"));
        let within = within_reconcile(0xabc, async { signed(&agent) }).await;
        assert_eq!(within.as_deref(), Some("site-operator/1.2.0 (reconcile 0000000000000abc)"));
        assert_eq!(signed(&Agent::new("op", Some("1\n2"))), None);
        let mut headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static("own"))]);
        agent.sign(&mut headers);
        assert_eq!(headers[USER_AGENT], "own");
    }
}
