//! Deletes objects whose owners are gone, and implements foreground deletion and orphaning.
//!
//! Metadata watches of all kinds feed a [`Graph`] of owners, which selects the objects to check. The graph alone never
//! causes a deletion: each check reads the owner from the API server by the coordinates of the reference, and deletes
//! the object with its UID and resource version as preconditions.
//!
//! See <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>.

mod graph;
mod queue;
mod sweep;

use super::discovery::{self, ServedResource};
use flyball::{Backoff, Kind, WatchEvent, watch};
use flyball_core::{GroupResource, GroupVersionKind, Rng};
use graph::Graph;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use sweep::Sweep;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Time for which a kind is expected to be listed; then others no longer wait for it.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_millis(50), max_delay: Duration::from_secs(30) };

/// Minimum interval between two discoveries of the served kinds. A steady stream of changes of CRDs must not keep the
/// collector from its other work.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// Number of times that the check of an object is deferred until all kinds are listed, about half a minute in total.
const MAX_DEFERRALS: u32 = 10;

/// State shared by the watches and the collector.
#[derive(Default)]
struct SharedState {
    graph: Mutex<Graph>,
    /// Notified when an object is queued, or a kind was listed.
    notify: Notify,
    /// Notified when CRDs are created or deleted.
    kinds: Notify,
}

impl SharedState {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock()
    }
}

/// Runs the garbage collector, with a client for watches and one for all other requests, for all resources or for some.
pub(super) async fn run(
    watches: kube::Client,
    client: kube::Client,
    rng: Rng,
    collected: Option<Arc<BTreeSet<GroupResource>>>,
) {
    let shared = Arc::new(SharedState::default());
    let changed = Arc::new(Notify::new());
    let changes = forward_paced(changed.clone(), shared.clone());
    let crd = Kind::of::<CustomResourceDefinition>();
    let mut is_listed = false;
    let definitions = watch(watches.clone(), &crd, &rng, move |event| {
        // The first list is one change.
        is_listed |= event == WatchEvent::Synced;
        if is_listed {
            changed.notify_one();
        }
    });
    let mut collector = Collector {
        client,
        watching: watches,
        rng: rng.clone(),
        shared,
        watches: JoinSet::new(),
        running: BTreeMap::new(),
        collected,
    };
    tokio::select! {
        biased;
        () = definitions => {}
        () = changes => {}
        () = collector.run() => {}
    }
}

/// Notifies the collector of changed CRDs, at most once per interval.
async fn forward_paced(changed: Arc<Notify>, shared: Arc<SharedState>) {
    loop {
        changed.notified().await;
        shared.kinds.notify_one();
        sleep(DISCOVERY_INTERVAL).await;
    }
}

/// The checks of an object that did not succeed, since the last one that did.
#[derive(Default)]
struct Failures {
    /// Checks that were deferred until all kinds are listed.
    deferrals: u32,
    errors: u32,
}

impl Failures {
    /// Counts a check, and returns the number of those with this type of error.
    fn add(&mut self, error: &sweep::Error) -> u32 {
        let count = match error {
            sweep::Error::Unlisted => &mut self.deferrals,
            sweep::Error::Request(_) => &mut self.errors,
        };
        *count = count.saturating_add(1);
        *count
    }

    /// Returns true if the next check may be put off: errors of requests do not make a kind listed.
    fn may_wait(&self) -> bool {
        self.deferrals < MAX_DEFERRALS
    }
}

struct Collector {
    client: kube::Client,
    /// The client of watches.
    watching: kube::Client,
    rng: Rng,
    shared: Arc<SharedState>,
    /// Dropped with the collector, and all watches with it.
    watches: JoinSet<()>,
    running: BTreeMap<ServedResource, AbortHandle>,
    /// The resources to watch, `None` for all.
    collected: Option<Arc<BTreeSet<GroupResource>>>,
}

impl Collector {
    async fn run(&mut self) {
        let mut failures: BTreeMap<String, Failures> = BTreeMap::new();
        let mut later: BTreeSet<(Instant, String)> = BTreeSet::new();
        let mut sweeps = JoinSet::new();
        // The first list of CRDs calls for a discovery as well.
        let _ = timeout(DISCOVERY_INTERVAL, self.shared.kinds.notified()).await;
        self.follow_served().await;
        self.await_lists().await;
        loop {
            while let Some(uid) = self.next() {
                let (client, shared) = (self.client.clone(), self.shared.clone());
                let may_wait = failures.get(&uid).is_none_or(Failures::may_wait);
                sweeps.spawn(async move {
                    let done = Sweep { client: &client, graph: &shared.graph, may_wait }.process_item(&uid).await;
                    shared.graph().done(&uid);
                    (uid, done)
                });
            }
            let due = later.first().map(|(due, _)| *due);
            tokio::select! {
                biased;
                () = self.shared.kinds.notified() => self.follow_served().await,
                Some(done) = sweeps.join_next() => match done.expect("sweeps do not panic") {
                    (uid, Ok(())) => drop(failures.remove(&uid)),
                    (uid, Err(error)) => {
                        let wait = BACKOFF.after(failures.entry(uid.clone()).or_default().add(&error));
                        tracing::debug!(uid, %error, ?wait, "retrying after an error");
                        later.insert((Instant::now() + wait, uid));
                    }
                },
                () = self.shared.notify.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let (_, uid) = later.pop_first().expect("one is due");
                    self.shared.graph().enqueue(uid);
                }
            }
        }
    }

    fn next(&self) -> Option<String> {
        self.shared.graph().next()
    }

    /// Waits until all kinds are listed, once: a kind that appears later, or cannot be listed, delays only the
    /// deletions that need all dependents.
    async fn await_lists(&mut self) {
        let end = Instant::now() + LIST_TIMEOUT;
        while !self.shared.graph().is_complete(Instant::now()) {
            tokio::select! {
                biased;
                // The awaited kind may have been deleted.
                () = self.shared.kinds.notified() => self.follow_served().await,
                () = self.shared.notify.notified() => {}
                () = sleep_until(end) => {
                    tracing::warn!("some kinds cannot be listed; garbage collection of related objects is delayed");
                    return;
                }
            }
        }
    }

    /// Watches exactly the kinds that the server serves.
    async fn follow_served(&mut self) {
        let mut failures = 0;
        let served = loop {
            match discovery::served(&self.client).await {
                Ok(served) => break served,
                Err(error) => tracing::warn!(%error, "cannot discover the served resources"),
            }
            failures += 1;
            sleep(BACKOFF.after(failures)).await;
        };
        let is_collected = |kind: &ServedResource| {
            let is_selected = self.collected.as_ref().is_none_or(|collected| collected.contains(&kind.resource));
            is_selected && kind.can(&["delete", "list", "watch"])
        };
        let served: BTreeSet<ServedResource> = served.into_iter().filter(is_collected).collect();
        self.running.retain(|kind, watch| {
            served.contains(kind) || {
                watch.abort();
                false
            }
        });
        for kind in &served {
            if !self.running.contains_key(kind) {
                self.shared.graph().expect(&kind.resource, Instant::now() + LIST_TIMEOUT);
                let watch = self.watches.spawn(self.watch(kind.clone()));
                self.running.insert(kind.clone(), watch);
            }
        }
        self.shared.graph().serves(served);
    }

    fn watch(&self, kind: ServedResource) -> impl Future<Output = ()> + Send + 'static {
        let (client, rng) = (self.watching.clone(), self.rng.fork(&kind.resource.to_string()));
        let (shared, served) = (self.shared.clone(), Arc::new(kind));
        async move {
            let GroupVersionKind { group, version, kind } = &served.kind;
            let kind = Kind::new(group, version, kind).plural(&served.resource.resource);
            let tell = move |seen| {
                match seen {
                    WatchEvent::Applied(key, meta) => shared.graph().put(&served, key, &meta),
                    WatchEvent::Deleted { uid, .. } => shared.graph().remove(&uid),
                    WatchEvent::Synced => shared.graph().listed(&served.resource),
                    _ => {}
                }
                shared.notify.notify_one();
            };
            watch(client, &kind, &rng, tell).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn served_kinds_are_discovered_at_most_once_per_second() {
        let (changed, shared) = (Arc::new(Notify::new()), Arc::new(SharedState::default()));
        let (changes, discoveries) = (changed.clone(), shared.clone());
        let started = Instant::now();
        let changing = async {
            loop {
                changes.notify_one();
                sleep(Duration::from_millis(10)).await;
            }
        };
        let discovering = async {
            discoveries.kinds.notified().await;
            assert_eq!(started.elapsed(), Duration::ZERO, "the first change is seen at once");
            for _ in 0..5 {
                discoveries.kinds.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = forward_paced(changed, shared) => {}
            () = changing => {}
            () = discovering => {}
        }
        assert!(started.elapsed() >= 5 * DISCOVERY_INTERVAL, "{:?}", started.elapsed());
    }

    #[test]
    fn errors_of_requests_are_no_deferrals() {
        let mut failures = Failures::default();
        for n in 1..=2 * MAX_DEFERRALS {
            assert_eq!(failures.add(&sweep::Error::Request(kube::Error::LinesCodecMaxLineLengthExceeded)), n);
        }
        for n in 1..=MAX_DEFERRALS {
            assert!(failures.may_wait());
            assert_eq!(failures.add(&sweep::Error::Unlisted), n, "with a backoff of their own");
        }
        assert!(!failures.may_wait());
    }
}
