//! Operators that serve `/debug/flyball`: their state, and the ledger of their reconciles.
//!
//! Operators are those of the settings, and those that a [finder](FindOperators) finds in the cluster. Each one is
//! polled. Its newest reconciles are merged into one bounded ledger, ordered by start, so that the
//! history of the console outlives that of an operator that restarts. Answers are data of others: their size is
//! bounded, and an answer that is no JSON object is an error of that operator only.

mod pages;

pub use pages::{Address, Location};

use crate::object::ObjectRef;
use crate::summary::{bounded, items, text};
use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339, rfc3339_micro, saturating_add};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use pages::{Error, Source};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of searches for operators in the cluster.
const FIND_INTERVAL: Duration = Duration::from_secs(30);
/// Limit of operators.
const MAX_OPERATORS: usize = 32;
/// Timeout of an answer that a request of the page waits for.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Limits of the ledger of one operator.
const MAX_RECONCILES: usize = 5_000;
const MAX_LEDGER_BYTES: usize = 16 << 20;
/// Reconciles that one poll requests.
const POLL_LIMIT: u32 = 1_000;
/// A reconcile is recorded when it ends: later polls also request those that began this long before the last poll.
const OVERLAP: SignedDuration = SignedDuration::from_secs(60);

/// Operators in the cluster. The caller implements the search.
pub trait FindOperators: fmt::Debug + Send + Sync + 'static {
    /// Returns the addresses of all operators that exist now.
    fn operators(&self) -> Pin<Box<dyn Future<Output = Vec<Address>> + Send + '_>>;
}

/// The known state of one operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operator {
    pub(crate) address: String,
    /// The Deployment whose claims its answers are; empty for an operator that the user named.
    pub(crate) claimed_by: String,
    /// The last answer of `/debug/flyball`, or null.
    pub(crate) state: Arc<Value>,
    /// Time of the last answer.
    pub(crate) answered: String,
    pub(crate) error: String,
    /// Time since which the ledger has every reconcile, as far as known.
    pub(crate) complete_since: Option<Timestamp>,
}

impl Operator {
    /// Returns its name, or its address before the first answer. The name of an operator that was merely discovered
    /// contains who claims it, so that it cannot pass for another one.
    pub(crate) fn name(&self) -> String {
        match (text(&self.state["operator"]), &*self.claimed_by) {
            ("", _) => self.address.clone(),
            (name, "") => name.to_owned(),
            (name, deployment) => format!("{}, claimed by {deployment}", bounded(name)),
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
    client: kube::Client,
    entries: Mutex<Vec<Entry>>,
    /// Signals that there are more entries.
    added: Notify,
    clock: Clock,
}

/// An operator with its source and its ledger.
struct Entry {
    source: Arc<Source>,
    operator: Operator,
    ledger: Ledger,
}

impl Entry {
    fn new(source: Source) -> Self {
        let (address, claimed_by) = (source.to_string(), source.claimed_by().to_owned());
        let operator = Operator { address, claimed_by, ..Operator::default() };
        Self { source: Arc::new(source), operator, ledger: Ledger::default() }
    }
}

impl Operators {
    pub(crate) fn new(addresses: Vec<Address>, client: kube::Client, clock: Clock) -> Self {
        let entries = addresses.into_iter().map(|address| Entry::new(Source::new(address))).collect();
        Self { client, entries: Mutex::new(entries), added: Notify::new(), clock }
    }

    /// Polls all operators, and searches for others. Never returns.
    pub(crate) async fn run(&self, finder: Option<&dyn FindOperators>) {
        let find = async {
            let Some(finder) = finder else { return std::future::pending().await };
            loop {
                self.add(finder.operators().await);
                sleep(FIND_INTERVAL).await;
            }
        };
        let poll = async {
            let mut polls = FuturesUnordered::new();
            loop {
                // A poll never ends, so that there is one for each of the first entries.
                let known = self.entries.lock().len();
                polls.extend((polls.len()..known).map(|index| self.poll(index)));
                tokio::select! {
                    Some(()) = polls.next() => {}
                    () = self.added.notified() => {}
                }
            }
        };
        tokio::join!(find, poll);
    }

    /// Adds operators that are not known. A pod takes the place of one of the same Deployment that does not exist any
    /// more, so that their reconciles are in one ledger.
    fn add(&self, found: Vec<Address>) {
        let mut entries = self.entries.lock();
        for address in &found {
            if entries.iter().any(|entry| entry.source.is_at(address)) {
                continue;
            }
            let is_gone = |entry: &Entry| {
                entry.source.is_predecessor(address) && !found.iter().any(|other| entry.source.is_at(other))
            };
            let replaced = entries.iter().position(is_gone);
            match replaced {
                Some(at) => {
                    let entry = &mut entries[at];
                    entry.source = Arc::new(Source::new(address.clone()));
                    entry.operator.address = entry.source.to_string();
                }
                None if entries.len() < MAX_OPERATORS => entries.push(Entry::new(Source::new(address.clone()))),
                None => break,
            }
        }
        drop(entries);
        self.added.notify_one();
    }

    async fn poll(&self, index: usize) {
        let mut last: Option<(Arc<Source>, Timestamp)> = None;
        loop {
            let Some(source) = self.entries.lock().get(index).map(|entry| entry.source.clone()) else { return };
            let since = last.as_ref().filter(|(known, _)| Arc::ptr_eq(known, &source)).map(|(_, since)| *since);
            match self.poll_once(index, &source, since).await {
                Ok(()) => last = Some((source, saturating_add(self.clock.now(), -OVERLAP))),
                Err(error) => self.fail(index, &error.to_string()),
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn poll_once(&self, index: usize, source: &Source, since: Option<Timestamp>) -> Result<(), Error> {
        let state = source.fetch(&self.client, "", "").await?;
        let since = since.map(|since| format!("&since={}", rfc3339_micro(since))).unwrap_or_default();
        let query = format!("limit={POLL_LIMIT}{since}");
        let answer = source.fetch(&self.client, "/reconciles", &query).await?;
        let mut entries = self.entries.lock();
        let Some(Entry { operator, ledger, .. }) = entries.get_mut(index) else { return Ok(()) };
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
        if let Some(entry) = self.entries.lock().get_mut(index) {
            entry.operator.error = bounded(error);
        }
    }

    /// Returns the state of all operators.
    pub(crate) fn all(&self) -> Vec<Operator> {
        self.entries.lock().iter().map(|entry| entry.operator.clone()).collect()
    }

    /// Requests the explanations of an object from the operators that answer polls: why they act on it or do not.
    pub(crate) async fn explain(&self, object: &ObjectRef) -> Vec<Value> {
        let query = query_of(object);
        let answering = {
            let entries = self.entries.lock();
            let answering = entries.iter().filter(|entry| entry.operator.error.is_empty());
            answering.map(|entry| (entry.source.clone(), entry.operator.name())).collect::<Vec<_>>()
        };
        let explanations = answering.into_iter().map(|(source, name)| {
            let query = &query;
            async move {
                let answer = source.fetch(&self.client, "/object", query);
                let mut answer = timeout(EXPLANATION_TIMEOUT, answer).await.ok()?.ok()?;
                if !source.claimed_by().is_empty() {
                    answer["operator"] = name.into();
                }
                Some(answer)
            }
        });
        futures_util::future::join_all(explanations).await.into_iter().flatten().collect()
    }

    /// Returns reconciles that satisfy a condition, newest first.
    pub(crate) fn reconciles(&self, limit: usize, filter: impl Fn(&Value) -> bool) -> Vec<Reconcile> {
        let entries = self.entries.lock();
        let mut found = Vec::new();
        for (operator, entry) in entries.iter().enumerate() {
            // A claim cannot take the place of a reconcile of another operator, whose id is in events.
            let is_claim = !entry.source.claimed_by().is_empty();
            let is_known = |id: &String| {
                entries.iter().any(|other| other.source.claimed_by().is_empty() && other.ledger.ids.contains(id))
            };
            let newest = entry.ledger.reconciles.iter().rev();
            let newest = newest.filter(|((_, id), (value, _))| filter(value) && !(is_claim && is_known(id)));
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

    fn no_operators() -> Operators {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, kube::Error>(http::Response::new(kube::client::Body::empty()))
        });
        Operators::new(Vec::new(), kube::Client::new(service, "default"), Clock::system())
    }

    #[tokio::test]
    async fn claims_do_not_take_the_place_of_facts() {
        let operators = no_operators();
        let pod = |deployment: &str, is_claim| {
            let location = Location::Pod { deployment: deployment.into(), path: format!("/{deployment}") };
            Address { location, token: None, authority: None, is_claim }
        };
        operators.add(vec![pod("a/claim", true), pod("b/named", false)]);
        for (at, id) in [(0, "1"), (0, "2"), (1, "1")] {
            let reconcile = json!({"id": id, "began": "2026-01-01T00:00:00Z"});
            operators.entries.lock()[at].ledger.insert(&reconcile);
        }
        let found = operators.reconciles(9, |_| true);
        let found: Vec<_> = found.iter().map(|found| (text(&found.value["id"]), found.operator)).collect();
        assert_eq!(found, [("1", 1), ("2", 0)]);
    }

    #[tokio::test]
    async fn pods_take_the_place_of_those_of_their_deployment() {
        let operators = no_operators();
        let pod = |deployment: &str, path: &str, is_claim| {
            let location = Location::Pod { deployment: deployment.into(), path: path.into() };
            Address { location, token: None, authority: None, is_claim }
        };
        let shown = || -> Vec<String> { operators.all().into_iter().map(|operator| operator.address).collect() };
        operators.add(vec![pod("a/op", "/1", true), pod("a/op", "/2", true)]);
        operators.entries.lock()[0].ledger.insert(&json!({"id": "x", "began": "2026-01-01T00:00:00Z"}));
        operators.add(vec![pod("a/op", "/2", true), pod("a/op", "/3", true), pod("b/op", "/4", true)]);
        assert_eq!(shown(), ["/3", "/2", "/4"]);
        assert_eq!(operators.reconciles(9, |_| true).len(), 1, "the ledger remains");
        // A named operator is not the successor of a claim.
        operators.add(vec![pod("b/op", "/5", false)]);
        assert_eq!(shown(), ["/3", "/2", "/4", "/5"]);
        operators.add((0..99).map(|at| pod("c/op", &format!("/c{at}"), true)).collect());
        assert_eq!(shown().len(), MAX_OPERATORS);
    }

    #[test]
    fn names_of_discovered_operators_contain_their_deployment() {
        let state = Arc::new(json!({"operator": "shop-operator"}));
        let named = Operator { state, ..Operator::default() };
        let claimed = Operator { claimed_by: "team-a/op".into(), ..named.clone() };
        assert_eq!(
            (named.name(), claimed.name()),
            ("shop-operator".into(), "shop-operator, claimed by team-a/op".into())
        );
    }
}
