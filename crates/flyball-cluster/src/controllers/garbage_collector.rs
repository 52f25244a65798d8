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

use super::discovery::{self, Served};
use flyball::{Backoff, Kind, WatchEvent, watch};
use flyball_core::{GroupVersionKind, Rng};
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

/// Timeout of the first list of a kind, after which the others continue without it.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_millis(50), max_delay: Duration::from_secs(30) };

/// State shared by the watches and the collector.
#[derive(Default)]
struct Shared {
    graph: Mutex<Graph>,
    /// Notified when an object is queued, or a kind was listed.
    notify: Notify,
    /// Notified when CRDs are created or deleted.
    kinds: Notify,
}

impl Shared {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock()
    }
}

/// Runs the garbage collector.
pub(super) async fn run(client: kube::Client, rng: Rng) {
    let shared = Arc::new(Shared::default());
    let kinds = shared.clone();
    let crd = Kind::of::<CustomResourceDefinition>();
    let definitions = watch(client.clone(), &crd, &rng, move |_| kinds.kinds.notify_one());
    let mut collector =
        Collector { client, rng: rng.clone(), shared, watches: JoinSet::new(), running: BTreeMap::new() };
    tokio::select! {
        biased;
        () = definitions => {}
        () = collector.run() => {}
    }
}

struct Collector {
    client: kube::Client,
    rng: Rng,
    shared: Arc<Shared>,
    /// Dropped with the collector, and all watches with it.
    watches: JoinSet<()>,
    running: BTreeMap<Served, AbortHandle>,
}

impl Collector {
    async fn run(&mut self) {
        let mut failures: BTreeMap<String, u32> = BTreeMap::new();
        let mut later: BTreeSet<(Instant, String)> = BTreeSet::new();
        let mut sweeps = JoinSet::new();
        loop {
            self.follow_all().await;
            loop {
                while let Some(uid) = self.next() {
                    let (client, shared) = (self.client.clone(), self.shared.clone());
                    sweeps.spawn(async move {
                        let done = Sweep { client: &client, graph: &shared.graph }.look_at(&uid).await;
                        shared.graph().done(&uid);
                        (uid, done)
                    });
                }
                let due = later.first().map(|(due, _)| *due);
                tokio::select! {
                    biased;
                    () = self.shared.kinds.notified() => break,
                    Some(done) = sweeps.join_next() => match done.expect("sweeps do not panic") {
                        (uid, Ok(())) => drop(failures.remove(&uid)),
                        (uid, Err(error)) => {
                            let failed = failures.entry(uid.clone()).or_default();
                            *failed += 1;
                            let wait = BACKOFF.after(*failed);
                            tracing::debug!(uid, %error, ?wait, "retrying after an error");
                            later.insert((Instant::now() + wait, uid));
                        }
                    },
                    () = self.shared.notify.notified() => {}
                    () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                        let (_, uid) = later.pop_first().expect("one is due");
                        self.shared.graph().look_at(uid);
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<String> {
        self.shared.graph().next()
    }

    /// Watches exactly the kinds that the server serves, and waits until all of them are listed.
    async fn follow_all(&mut self) {
        loop {
            self.follow_served().await;
            let known = async {
                while !self.shared.graph().is_complete() {
                    self.shared.notify.notified().await;
                }
            };
            tokio::select! {
                biased;
                // The awaited kind may have been deleted.
                () = self.shared.kinds.notified() => {}
                known = timeout(LIST_TIMEOUT, known) => {
                    if known.is_err() {
                        tracing::warn!("some kinds cannot be listed; garbage collection of related objects is delayed");
                    }
                    break;
                }
            }
        }
        self.shared.notify.notify_one();
    }

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
        let served: BTreeSet<Served> =
            served.into_iter().filter(|kind| kind.can(&["delete", "list", "watch"])).collect();
        self.running.retain(|kind, watch| {
            served.contains(kind) || {
                watch.abort();
                false
            }
        });
        for kind in &served {
            if !self.running.contains_key(kind) {
                self.shared.graph().expect(&kind.resource);
                let watch = self.watches.spawn(self.watch(kind.clone()));
                self.running.insert(kind.clone(), watch);
            }
        }
        self.shared.graph().serves(served);
    }

    fn watch(&self, kind: Served) -> impl Future<Output = ()> + Send + 'static {
        let (client, rng) = (self.client.clone(), self.rng.fork(&kind.resource.to_string()));
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
