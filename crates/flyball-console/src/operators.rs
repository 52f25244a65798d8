//! Operators that serve `/debug/flyball`: their state, and the ledger of their reconciles.
//!
//! Each operator is polled. Its newest reconciles are merged into one bounded ledger, ordered by start, so that the
//! history of the console outlives that of an operator that restarts. Answers are data of others: their size is
//! bounded, and an answer that is no JSON object is an error of that operator only.

use bytes::Bytes;
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339, rfc3339_micro, saturating_add};
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::object::ObjectRef;
use crate::summary::{bounded, items, text};

/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of an answer that a request of the page waits for.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Size limit of an answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Limits of the ledger of one operator.
const MAX_RECONCILES: usize = 5_000;
const MAX_LEDGER_BYTES: usize = 16 << 20;
/// Reconciles that one poll requests.
const POLL_LIMIT: u32 = 1_000;
/// A reconcile is recorded when it ends: later polls also request those that began this long before the last poll.
const OVERLAP: SignedDuration = SignedDuration::from_secs(60);

/// The address of an operator and the credentials for it.
#[derive(Clone, Debug)]
pub struct Address {
    /// Its URL, with or without the path `/debug/flyball`.
    pub url: Url,
    /// Bearer token that may `get` the non-resource URL `/debug/flyball`.
    pub token: Option<String>,
    /// CA bundle in PEM for `https`; without it, the trust store of the machine.
    pub authority: Option<Vec<u8>>,
}

/// Failures of a request to an operator.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no answer within 5 s")]
    Timeout,
    #[error("{0}")]
    Connection(String),
    #[error("{0}")]
    Status(String),
    #[error("the answer is not a JSON object: is this the metrics address of an operator built with Flyball?")]
    Content,
}

/// The known state of one operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operator {
    pub(crate) address: String,
    /// The last answer of `/debug/flyball`, or null.
    pub(crate) state: Arc<Value>,
    /// Time of the last answer.
    pub(crate) answered: String,
    pub(crate) error: String,
    /// Time since which the ledger has every reconcile, as far as known.
    pub(crate) complete_since: Option<Timestamp>,
}

impl Operator {
    /// Returns its name, or its address before the first answer.
    pub(crate) fn name(&self) -> &str {
        match text(&self.state["operator"]) {
            "" => &self.address,
            name => name,
        }
    }
}

/// A reconcile with the operator that reported it.
#[derive(Clone, Debug)]
pub(crate) struct Reconcile {
    /// Index of the operator.
    pub(crate) operator: usize,
    pub(crate) began: Timestamp,
    pub(crate) value: Arc<Value>,
}

/// Reconciles of one operator in the order of their start.
#[derive(Debug, Default)]
struct Ledger {
    reconciles: BTreeMap<(Timestamp, String), (Arc<Value>, usize)>,
    ids: BTreeSet<String>,
    bytes: usize,
    /// Start of the newest reconcile that was removed.
    removed: Option<Timestamp>,
}

impl Ledger {
    fn insert(&mut self, reconcile: &Value) {
        let id = text(&reconcile["id"]);
        let Some(began) = parse_rfc3339(text(&reconcile["began"])) else { return };
        if id.is_empty() || !self.ids.insert(id.to_owned()) {
            return;
        }
        let bytes = reconcile.to_string().len();
        self.bytes += bytes;
        self.reconciles.insert((began, id.to_owned()), (Arc::new(reconcile.clone()), bytes));
        while self.reconciles.len() > MAX_RECONCILES || self.bytes > MAX_LEDGER_BYTES {
            let Some(((began, id), (_, bytes))) = self.reconciles.pop_first() else { return };
            self.removed = self.removed.max(Some(began));
            self.ids.remove(&id);
            self.bytes -= bytes;
        }
    }
}

/// All operators.
pub(crate) struct Operators {
    addresses: Vec<Address>,
    /// Clients for the addresses; none if TLS cannot be set up.
    clients: Vec<Option<Client>>,
    operators: Mutex<Vec<(Operator, Ledger)>>,
    clock: Clock,
}

impl Operators {
    pub(crate) fn new(addresses: Vec<Address>, clock: Clock) -> Self {
        let known = |address: &Address| {
            let operator = Operator { address: display(&address.url), ..Operator::default() };
            (operator, Ledger::default())
        };
        let client = |address: &Address| {
            let trust = address.authority.as_deref().map_or(Trust::System, Trust::Bundle);
            Client::new(trust, Proxies::from_env()).ok()
        };
        let clients = addresses.iter().map(client).collect();
        Self { operators: Mutex::new(addresses.iter().map(known).collect()), addresses, clients, clock }
    }

    /// Polls all operators. Never returns.
    pub(crate) async fn run(&self) {
        let polls = self.addresses.iter().enumerate().map(|(index, address)| self.poll(index, address));
        futures_util::future::join_all(polls).await;
        std::future::pending().await
    }

    async fn poll(&self, index: usize, address: &Address) {
        let Some(Some(client)) = self.clients.get(index) else {
            return self.fail(index, "cannot set up TLS: is the file of --operator-ca a PEM bundle?");
        };
        let mut since = None;
        loop {
            match self.poll_once(index, client, address, since).await {
                Ok(()) => since = Some(saturating_add(self.clock.now(), -OVERLAP)),
                Err(error) => self.fail(index, &error.to_string()),
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn poll_once(
        &self,
        index: usize,
        client: &Client,
        address: &Address,
        since: Option<Timestamp>,
    ) -> Result<(), Error> {
        let state = fetch(client, address, "", "").await?;
        let since = since.map(|since| format!("&since={}", rfc3339_micro(since))).unwrap_or_default();
        let answer = fetch(client, address, "/reconciles", &format!("limit={POLL_LIMIT}{since}")).await?;
        let mut operators = self.operators.lock();
        let Some((operator, ledger)) = operators.get_mut(index) else { return Ok(()) };
        let now = self.clock.now();
        operator.complete_since.get_or_insert_with(|| first_complete(&state, &answer, now));
        operator.state = Arc::new(state);
        operator.answered = rfc3339_micro(now);
        operator.error.clear();
        items(&answer["reconciles"]).for_each(|reconcile| ledger.insert(reconcile));
        operator.complete_since = operator.complete_since.max(ledger.removed);
        Ok(())
    }

    fn fail(&self, index: usize, error: &str) {
        if let Some((operator, _)) = self.operators.lock().get_mut(index) {
            operator.error = bounded(error);
        }
    }

    /// Returns the state of all operators.
    pub(crate) fn all(&self) -> Vec<Operator> {
        self.operators.lock().iter().map(|(operator, _)| operator.clone()).collect()
    }

    /// Requests the explanations of an object from the operators that answer polls: why they act on it or do not.
    pub(crate) async fn explain(&self, object: &ObjectRef) -> Vec<Value> {
        let query = query_of(object);
        let answers: Vec<bool> = self.operators.lock().iter().map(|(operator, _)| operator.error.is_empty()).collect();
        let sources = self.addresses.iter().zip(&self.clients).zip(answers).filter(|(_, answers)| *answers);
        let explanations = sources.map(|((address, client), _)| {
            let query = &query;
            async move {
                let answer = fetch(client.as_ref()?, address, "/object", query);
                timeout(EXPLANATION_TIMEOUT, answer).await.ok()?.ok()
            }
        });
        futures_util::future::join_all(explanations).await.into_iter().flatten().collect()
    }

    /// Returns reconciles that satisfy a condition, newest first.
    pub(crate) fn reconciles(&self, limit: usize, filter: impl Fn(&Value) -> bool) -> Vec<Reconcile> {
        let operators = self.operators.lock();
        let mut found = Vec::new();
        for (operator, (_, ledger)) in operators.iter().enumerate() {
            let newest = ledger.reconciles.iter().rev().filter(|(_, (value, _))| filter(value));
            let of = |((began, _), (value, _)): (&(Timestamp, String), &(Arc<Value>, usize))| Reconcile {
                operator,
                began: *began,
                value: value.clone(),
            };
            found.extend(newest.take(limit).map(of));
        }
        found.sort_by(|a, b| b.began.cmp(&a.began).then_with(|| text(&a.value["id"]).cmp(text(&b.value["id"]))));
        found.truncate(limit);
        found
    }
}

/// Returns the time since which the first answer of an operator has every reconcile: its start, unless its ledger has
/// dropped some.
fn first_complete(state: &Value, answer: &Value, now: Timestamp) -> Timestamp {
    let has_dropped = |controller: &Value| controller["ledger"]["dropped"].as_u64() != Some(0);
    let is_complete = answer["omitted"].as_u64() == Some(0) && !items(&state["controllers"]).any(has_dropped);
    let started = parse_rfc3339(text(&state["started"])).filter(|_| is_complete);
    started.map_or(now, |started| started.min(now))
}

/// Returns the query that names an object.
fn query_of(object: &ObjectRef) -> String {
    let fields =
        [("group", &object.group), ("kind", &object.kind), ("namespace", &object.namespace), ("name", &object.name)];
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields.into_iter().filter(|(_, value)| !value.is_empty()));
    query.finish()
}

/// Returns a URL without credentials in it.
fn display(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail for URLs without a host, which have no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// Requests a page of an operator.
async fn fetch(client: &Client, address: &Address, page: &str, query: &str) -> Result<Value, Error> {
    let mut url = address.url.clone();
    let path = url.path().trim_end_matches('/').trim_end_matches("/metrics").trim_end_matches("/debug/flyball");
    let path = format!("{path}/debug/flyball{page}");
    url.set_path(&path);
    url.set_query((!query.is_empty()).then_some(query));
    let mut request = Request::get(url.as_str())
        .body(Bytes::new())
        .map_err(|error| Error::Connection(format!("not a URL: {error}")))?;
    if let Some(token) = &address.token {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let value = value.map_err(|_| Error::Connection("the token contains control characters".to_owned()))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let answer = timeout(TIMEOUT, client.fetch(request, MAX_ANSWER_BYTES)).await.map_err(|_| Error::Timeout)?;
    let answer = answer.map_err(|error| Error::Connection(error.to_string()))?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => {
            return Err(Error::Status("404: this operator does not serve /debug/flyball".to_owned()));
        }
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            let hint = "pass --operator-token FILE with a token that may get /debug/flyball";
            return Err(Error::Status(format!("{}: {hint}", status.as_u16())));
        }
        status => return Err(Error::Status(format!("status {}", status.as_u16()))),
    }
    let value: Value = serde_json::from_slice(answer.body()).map_err(|_| Error::Content)?;
    if value.is_object() { Ok(value) } else { Err(Error::Content) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ledger_is_bounded_and_has_each_reconcile_once() {
        let mut ledger = Ledger::default();
        for at in 0..MAX_RECONCILES + 10 {
            let began = format!("2026-01-01T{:02}:{:02}:{:02}.000000Z", at / 3600, at / 60 % 60, at % 60);
            let reconcile = json!({"id": at.to_string(), "began": began});
            ledger.insert(&reconcile);
            ledger.insert(&reconcile);
        }
        assert_eq!(ledger.reconciles.len(), MAX_RECONCILES);
        assert_eq!(ledger.ids.len(), MAX_RECONCILES);
        assert_eq!(ledger.removed, parse_rfc3339("2026-01-01T00:00:09Z"));
        ledger
            .insert(&json!({"id": "big", "began": "2026-01-02T00:00:00Z", "error": "x".repeat(MAX_LEDGER_BYTES - 9)}));
        assert!(ledger.bytes <= MAX_LEDGER_BYTES && ledger.reconciles.len() <= 1, "{}", ledger.reconciles.len());
        ledger.insert(&json!({"id": "without a time"}));
        assert!(!ledger.ids.contains("without a time"));
    }

    #[test]
    fn first_answer_is_complete_unless_reconciles_were_dropped() {
        let now = parse_rfc3339("2026-01-01T00:15:00Z").expect("a time");
        let first = |dropped: u64, omitted: u64| {
            let controllers = json!([{"ledger": {"dropped": 0}}, {"ledger": {"dropped": dropped}}]);
            let state = json!({"started": "2026-01-01T00:10:00Z", "controllers": controllers});
            first_complete(&state, &json!({"omitted": omitted}), now)
        };
        assert_eq!(Some(first(0, 0)), parse_rfc3339("2026-01-01T00:10:00Z"));
        assert_eq!((first(1, 0), first(0, 3)), (now, now));
        assert_eq!(first_complete(&json!({}), &json!({}), now), now);
    }

    #[test]
    fn credentials_of_addresses_are_not_shown() {
        let url = Url::parse("http://user:secret@127.0.0.1:8080/").expect("a URL");
        assert_eq!(display(&url), "http://127.0.0.1:8080/");
    }
}
