//! Operators that serve `/debug/flyball`: their state, and the ledger of their reconciles.
//!
//! Operators are those of the settings, and those that a [finder](FindOperators) finds in the cluster. Each one is
//! polled. Its newest reconciles are merged into one bounded ledger, ordered by start, so that the
//! history of the console outlives that of an operator that restarts. Answers are data of others: their size is
//! bounded, and an answer that is no JSON object is an error of that operator only.

mod ledger;
mod pages;

pub use pages::{Address, Error as PageError, Location, Origin, Pages};

use crate::claims::Claimant;
use crate::object::ObjectRef;
use crate::summary::{bounded, items, text};
use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp, rfc3339_micro, saturating_add};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ledger::{Ledger, first_complete};
use parking_lot::Mutex;
use serde_json::Value;
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
    /// That Deployment with the service account of its pod.
    pub(crate) claimant: Option<Claimant>,
    /// The last answer of `/debug/flyball`, or null.
    pub(crate) state: Arc<Value>,
    /// Time of the last answer.
    pub(crate) answered: String,
    pub(crate) error: String,
    /// Time since which the ledger has every reconcile, as far as known.
    pub(crate) complete_since: Option<Timestamp>,
}

impl Operator {
    /// Returns its field manager; for an operator that does not report it, its name.
    pub(crate) fn field_manager(&self) -> &str {
        match text(&self.state["fieldManager"]) {
            "" => text(&self.state["operator"]),
            manager => manager,
        }
    }

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

/// All operators.
pub(crate) struct Operators {
    client: kube::Client,
    entries: Mutex<Vec<Entry>>,
    /// Signals that there are more entries.
    added: Notify,
    clock: Clock,
}

/// The operators at one time, and their newest reconciles.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) operators: Vec<Operator>,
    pub(crate) reconciles: Vec<Reconcile>,
}

/// An operator with its pages and its ledger.
struct Entry {
    pages: Arc<Pages>,
    /// The last search did not find it.
    is_missing: bool,
    operator: Operator,
    ledger: Ledger,
}

impl Entry {
    fn new(address: Address) -> Self {
        let pages = Pages::new(address);
        let (address, claimed_by) = (pages.address().location.to_string(), pages.claimed_by().to_owned());
        let (is_claim, claimant) = (!claimed_by.is_empty(), pages.claimant());
        let operator = Operator { address, claimed_by, claimant, ..Operator::default() };
        Self { pages: Arc::new(pages), is_missing: false, operator, ledger: Ledger::new(is_claim) }
    }

    fn origin(&self) -> Origin {
        self.pages.address().origin
    }

    fn is_at(&self, address: &Address) -> bool {
        self.pages.address().location.is_same(&address.location)
    }

    /// Continues the ledger with another pod of the Deployment.
    fn continue_at(&mut self, address: &Address) {
        self.pages = Arc::new(Pages::new(address.clone()));
        self.operator.address = address.location.to_string();
        self.operator.claimant = self.pages.claimant();
        self.is_missing = false;
    }

    /// Returns true if the operator does not exist any more, as far as known. One that the user named may return.
    fn is_abandoned(&self) -> bool {
        self.is_missing && self.origin() != Origin::Named && !self.operator.error.is_empty()
    }
}

impl Operators {
    pub(crate) fn new(addresses: Vec<Address>, client: kube::Client, clock: Clock) -> Self {
        let entries = addresses.into_iter().map(Entry::new).collect();
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
    /// more, so that their reconciles are in one ledger. If there are too many, new ones take the places of those that
    /// neither exist nor respond any more.
    fn add(&self, found: Vec<Address>) {
        let mut entries = self.entries.lock();
        for entry in entries.iter_mut() {
            entry.is_missing = !found.iter().any(|address| entry.is_at(address));
        }
        let mut new = Vec::new();
        for address in found {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.is_at(&address)) {
                // The user named it meanwhile. Its claims do not become facts: the ledger is read again.
                if entry.origin() == Origin::Discovered && address.origin != Origin::Discovered {
                    *entry = Entry::new(address);
                }
                continue;
            }
            match entries.iter_mut().find(|entry| entry.is_missing && entry.pages.is_predecessor(&address)) {
                Some(entry) => entry.continue_at(&address),
                None => new.push(address),
            }
        }
        for address in new {
            if entries.iter().any(|entry| entry.is_at(&address)) {
                continue;
            }
            if entries.len() < MAX_OPERATORS {
                entries.push(Entry::new(address));
                continue;
            }
            let abandoned = entries.iter_mut().filter(|entry| entry.is_abandoned());
            if let Some(entry) = abandoned.min_by(|a, b| a.operator.answered.cmp(&b.operator.answered)) {
                *entry = Entry::new(address);
            }
        }
        drop(entries);
        self.added.notify_one();
    }

    async fn poll(&self, index: usize) {
        let mut last: Option<(Arc<Pages>, Timestamp)> = None;
        loop {
            let entry = self.entries.lock().get(index).map(|entry| (entry.pages.clone(), entry.is_abandoned()));
            let Some((pages, is_abandoned)) = entry else { return };
            // An abandoned one is polled again when a search finds it.
            if !is_abandoned {
                let since = last.as_ref().filter(|(known, _)| Arc::ptr_eq(known, &pages)).map(|(_, since)| *since);
                match self.poll_once(index, &pages, since).await {
                    Ok(()) => last = Some((pages, saturating_add(self.clock.now(), -OVERLAP))),
                    Err(error) => self.fail(index, &pages, &error.to_string()),
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn poll_once(&self, index: usize, pages: &Arc<Pages>, since: Option<Timestamp>) -> Result<(), PageError> {
        let state = pages.get(&self.client, "", "").await?;
        let since = since.map(|since| format!("&since={}", rfc3339_micro(since))).unwrap_or_default();
        let query = format!("limit={POLL_LIMIT}{since}");
        let answer = pages.get(&self.client, "/reconciles", &query).await?;
        self.update(index, pages, |Entry { operator, ledger, .. }| {
            let now = self.clock.now();
            operator.complete_since.get_or_insert_with(|| first_complete(&state, &answer, now));
            operator.state = Arc::new(state);
            operator.answered = rfc3339_micro(now);
            operator.error.clear();
            items(&answer["reconciles"]).for_each(|reconcile| ledger.insert(reconcile));
            operator.complete_since = operator.complete_since.max(ledger.removed);
        });
        Ok(())
    }

    fn fail(&self, index: usize, pages: &Arc<Pages>, error: &str) {
        self.update(index, pages, |entry| entry.operator.error = bounded(error));
    }

    /// Changes an entry, unless its operator was replaced since these pages were requested.
    fn update(&self, index: usize, pages: &Arc<Pages>, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(index).filter(|entry| Arc::ptr_eq(&entry.pages, pages)) {
            change(entry);
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
            answering.map(|entry| (entry.pages.clone(), entry.operator.name())).collect::<Vec<_>>()
        };
        let explanations = answering.into_iter().map(|(pages, name)| {
            let query = &query;
            async move {
                let answer = pages.get(&self.client, "/object", query);
                let mut answer = timeout(EXPLANATION_TIMEOUT, answer).await.ok()?.ok()?;
                if !pages.claimed_by().is_empty() {
                    answer["operator"] = name.into();
                }
                Some(answer)
            }
        });
        futures_util::future::join_all(explanations).await.into_iter().flatten().collect()
    }

    /// Returns the state of all operators, and reconciles that satisfy a condition, newest first.
    pub(crate) fn snapshot(&self, limit: usize, filter: impl Fn(&Value) -> bool) -> Snapshot {
        let entries = self.entries.lock();
        let operators = entries.iter().map(|entry| entry.operator.clone()).collect();
        let mut found = Vec::new();
        for (operator, entry) in entries.iter().enumerate() {
            // A claim cannot take the place of a reconcile of another operator, whose id is in events.
            let is_claim = !entry.pages.claimed_by().is_empty();
            let is_known = |id: &String| {
                entries.iter().any(|other| other.pages.claimed_by().is_empty() && other.ledger.ids.contains(id))
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
        let newest_first = |a: &Reconcile, b: &Reconcile| {
            b.began.cmp(&a.began).then_with(|| text(&a.value["id"]).cmp(text(&b.value["id"])))
        };
        found.sort_by(newest_first);
        // Claims may have any time: they do not take the places of facts.
        found.sort_by_key(|reconcile| !entries[reconcile.operator].pages.claimed_by().is_empty());
        found.truncate(limit);
        found.sort_by(newest_first);
        Snapshot { operators, reconciles: found }
    }
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

    fn no_operators() -> Operators {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, kube::Error>(http::Response::new(kube::client::Body::empty()))
        });
        Operators::new(Vec::new(), kube::Client::new(service, "default"), Clock::system())
    }

    fn pod(deployment: &str, path: &str, is_claim: bool) -> Address {
        let location = Location::Pod { deployment: deployment.into(), path: path.into() };
        let origin = if is_claim { Origin::Discovered } else { Origin::Named };
        Address { location, origin, account: "op".into(), token: None, insecure_token: false, authority: None }
    }

    #[tokio::test]
    async fn claims_do_not_take_the_place_of_facts() {
        let operators = no_operators();
        operators.add(vec![pod("a/claim", "/1", true), pod("b/named", "/2", false)]);
        for (at, id) in [(0, "1"), (0, "2"), (1, "1")] {
            let reconcile = json!({"id": id, "began": "2026-01-01T00:00:00Z"});
            operators.entries.lock()[at].ledger.insert(&reconcile);
        }
        let found = operators.snapshot(9, |_| true).reconciles;
        let found: Vec<_> = found.iter().map(|found| (text(&found.value["id"]), found.operator)).collect();
        assert_eq!(found, [("1", 1), ("2", 0)]);
        let future = json!({"id": "3", "began": "2099-01-01T00:00:00Z"});
        operators.entries.lock()[0].ledger.insert(&future);
        let found = operators.snapshot(1, |_| true).reconciles;
        assert_eq!(found.iter().map(|found| text(&found.value["id"])).collect::<Vec<_>>(), ["1"]);
    }

    #[tokio::test]
    async fn pods_take_the_place_of_those_of_their_deployment() {
        let operators = no_operators();
        let shown = || -> Vec<String> { operators.all().into_iter().map(|operator| operator.address).collect() };
        operators.add(vec![pod("a/op", "/1", true), pod("a/op", "/2", true)]);
        operators.entries.lock()[0].ledger.insert(&json!({"id": "x", "began": "2026-01-01T00:00:00Z"}));
        operators.add(vec![pod("a/op", "/2", true), pod("a/op", "/3", true), pod("b/op", "/4", true)]);
        assert_eq!(shown(), ["/3", "/2", "/4"]);
        assert_eq!(operators.snapshot(9, |_| true).reconciles.len(), 1, "the ledger remains");
        // A named operator is not the successor of a claim.
        operators.add(vec![pod("b/op", "/5", false)]);
        assert_eq!(shown(), ["/3", "/2", "/4", "/5"]);
        operators.add((0..99).map(|at| pod("c/op", &format!("/c{at}"), true)).collect());
        assert_eq!(shown().len(), MAX_OPERATORS);
    }

    #[tokio::test]
    async fn abandoned_operators_give_their_places_to_new_ones() {
        let operators = no_operators();
        let shown = || -> Vec<String> { operators.all().into_iter().map(|operator| operator.address).collect() };
        let count = MAX_OPERATORS - 2;
        let claims = |from: usize| (from..count).map(|at| pod(&format!("c/{at}"), &format!("/c{at}"), true));
        let named = [pod("n/op", "/n", false), pod("m/op", "/m1", false)];
        operators.add(named.iter().cloned().chain(claims(0)).collect());
        for error in [0, 2, 4] {
            operators.entries.lock()[error].operator.error = "no answer within 5 s".into();
        }
        // The named one is gone with an error, c/0 and c/1 are gone, c/2 has an error: only c/0 is abandoned.
        let new = [pod("x/op", "/x", true), pod("y/op", "/y", true), pod("m/op", "/m2", false)];
        operators.add(new.into_iter().chain(claims(2)).collect());
        let first = shown().into_iter().take(5).collect::<Vec<_>>();
        assert_eq!(first, ["/n", "/m2", "/x", "/c1", "/c2"], "successors are adopted although there is no place");
        assert_eq!((shown().len(), operators.all()[2].error.as_str()), (MAX_OPERATORS, ""));
    }

    #[tokio::test]
    async fn operators_that_the_user_names_later_are_no_claims() {
        let operators = no_operators();
        operators.add(vec![pod("a/copy", "/1", true)]);
        operators.entries.lock()[0].ledger.insert(&json!({"id": "x", "began": "2026-01-01T00:00:00Z"}));
        operators.add(vec![pod("a/op", "/1", false)]);
        let snapshot = operators.snapshot(9, |_| true);
        assert_eq!((snapshot.operators.len(), snapshot.operators[0].claimed_by.as_str()), (1, ""));
        assert!(snapshot.reconciles.is_empty(), "claims of another Deployment do not become facts");
        operators.add(vec![pod("a/copy", "/1", true)]);
        assert_eq!(operators.all()[0].claimed_by, "", "a named operator remains one");
    }

    #[tokio::test]
    async fn answers_of_replaced_pods_are_ignored() {
        let operators = Arc::new(std::sync::OnceLock::<Arc<Operators>>::new());
        let known = operators.clone();
        // The pod is replaced between its answer and the ledger.
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let page = match request.uri().path() {
                "/1/debug/flyball" => json!({"operator": "old"}),
                _ => {
                    known.get().expect("operators").add(vec![pod("a/op", "/2", true)]);
                    json!({"reconciles": [{"id": "x", "began": "2026-01-01T00:00:00Z"}]})
                }
            };
            let response = http::Response::new(kube::client::Body::from(page.to_string().into_bytes()));
            async { Ok::<_, kube::Error>(response) }
        });
        let client = kube::Client::new(service, "default");
        let all = Arc::new(Operators::new(vec![pod("a/op", "/1", true)], client, Clock::system()));
        assert!(operators.set(all.clone()).is_ok());
        let pages = all.entries.lock()[0].pages.clone();
        all.poll_once(0, &pages, None).await.expect("pages");
        all.fail(0, &pages, "the pod is gone");
        let snapshot = all.snapshot(9, |_| true);
        let operator = &snapshot.operators[0];
        assert_eq!((operator.address.as_str(), operator.error.as_str()), ("/2", ""));
        assert!(operator.state.is_null() && snapshot.reconciles.is_empty(), "{snapshot:?}");
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
