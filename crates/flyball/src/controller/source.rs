//! Triggers of a controller other than changes of objects: channels, timers and polls.

use super::sources::Sources;
use crate::cache::Caches;
use crate::error::Result;
use crate::kind::AnyResource;
use crate::panics::{caught, guarded};
use crate::queue::{Cause, Priority};
use flyball_core::{ObjectKey, Rng};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The shortest period of a source, so that it does not keep a controller busy.
const MIN_PERIOD: Duration = Duration::from_millis(10);

/// A trigger of reconciles of kind `K` other than changes of objects; see
/// [`Controller::source`](crate::Controller::source).
///
/// ```
/// # use flyball::{Action, Context, Controller, Reconcile, Result};
/// use flyball::{Channel, ObjectKey, Source};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use std::collections::BTreeMap;
/// use std::time::Duration;
/// # struct Sites;
/// # impl Reconcile for Sites {
/// #     type Resource = ConfigMap;
/// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
/// # }
/// # async fn ask_store(_: Vec<ObjectKey>) -> Result<BTreeMap<ObjectKey, u64>> { Ok(BTreeMap::new()) }
///
/// let uploads = Channel::new(); // clones are passed to the senders
/// let controller = Controller::new(Sites)
///     .source(&uploads)
///     .source(Source::timer(Duration::from_secs(600), |caches| caches.keys::<ConfigMap>(None)))
///     .source(Source::poll(Duration::from_secs(30), |sites| async { ask_store(sites).await }));
/// uploads.wake(&ObjectKey::new(Some("blue"), "site"));
/// ```
///
/// # Guarantees
///
/// - Keys of objects that are not in the cache are ignored; such objects are reconciled once they appear. So the queue
///   never exceeds the cache, and a key that is triggered many times is reconciled once.
/// - Sources start when the caches are filled and this replica leads, and stop with the workers. Triggers before that
///   are not needed: every object is reconciled at the start.
/// - Each period is chosen randomly between 90 and 110 percent of its value from the operator's [`Rng`], so that
///   operators do not act in step, and a simulation repeats.
/// - An error, a panic, or a poll that exceeds the controller's [deadline](crate::Controller::deadline) is logged and
///   triggers nothing; the next period is the next attempt.
#[must_use = "a source does nothing until it is added to a controller"]
pub struct Source<K> {
    pub(super) source_kind: SourceKind,
    kind: PhantomData<fn(K)>,
}

/// The type of a source.
pub(super) enum SourceKind {
    Channel(Arc<ChannelListeners>),
    Task(Box<dyn FnOnce(SourceContext) -> BoxFuture<'static, ()> + Send>),
}

/// The context of the task of a source.
pub(super) struct SourceContext {
    pub(super) sources: Arc<Sources>,
    pub(super) caches: Arc<Caches>,
    pub(super) rng: Rng,
    pub(super) deadline: Duration,
}

impl SourceContext {
    /// Waits about this long.
    async fn wait(&self, period: Duration) {
        sleep(period.max(MIN_PERIOD).mul_f64(0.9 + self.rng.fraction() / 5.0)).await;
    }
}

impl<K: AnyResource> Source<K> {
    /// Triggers the objects that `select` returns at each period, such as all of them by
    /// [`Caches::keys`](crate::Caches::keys). Changed objects take precedence.
    ///
    /// For a period that depends on the object return
    /// [`Action::requeue_after`](crate::Action::requeue_after) instead.
    #[doc(alias = "SyncPeriod")]
    #[doc(alias = "kopf.timer")]
    #[doc(alias = "on.timer")]
    pub fn timer(period: Duration, select: impl Fn(&Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static) -> Self {
        Self::task(move |waking| {
            async move {
                loop {
                    waking.wait(period).await;
                    match guarded(format_args!("a timer"), || select(&waking.caches)).and_then(|keys| keys) {
                        Ok(keys) => waking.sources.wake(keys, Priority::Background, Cause::Source("timer")),
                        Err(error) => tracing::warn!(%error, "the select function of a timer failed"),
                    }
                }
            }
            .boxed()
        })
    }

    /// Queries an external system at each period, and triggers the objects whose answer is new, has changed or is
    /// missing.
    ///
    /// `ask` gets the keys of all existing objects. The first poll is at the start, each further one a period after
    /// the answer to the previous one. Answers are kept in memory as long as the objects exist.
    pub fn poll<A, F>(period: Duration, ask: impl Fn(Vec<ObjectKey>) -> F + Send + Sync + 'static) -> Self
    where
        A: PartialEq + Send + 'static,
        F: Future<Output = Result<BTreeMap<ObjectKey, A>>> + Send + 'static,
    {
        Self::task(move |waking| {
            async move {
                let mut known: BTreeMap<ObjectKey, A> = BTreeMap::new();
                loop {
                    match poll_once(&ask, waking.sources.keys_of_all(), waking.deadline).await {
                        Ok(results) => {
                            let exist: BTreeSet<ObjectKey> = waking.sources.keys_of_all().into_iter().collect();
                            known.retain(|key, _| exist.contains(key));
                            let (fresh, background) = record_results(&mut known, results, &exist);
                            waking.sources.wake(fresh, Priority::Fresh, Cause::Source("poll"));
                            waking.sources.wake(background, Priority::Background, Cause::Source("poll"));
                        }
                        Err(error) => tracing::warn!(%error, "poll failed"),
                    }
                    waking.wait(period).await;
                }
            }
            .boxed()
        })
    }

    fn task(run: impl FnOnce(SourceContext) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        Self { source_kind: SourceKind::Task(Box::new(run)), kind: PhantomData }
    }
}

/// Polls with a deadline.
async fn poll_once<A, F>(poll_fn: impl Fn(Vec<ObjectKey>) -> F, keys: Vec<ObjectKey>, deadline: Duration) -> Result<A>
where
    F: Future<Output = Result<A>>,
{
    let call = AssertUnwindSafe(guarded(format_args!("a poll"), || poll_fn(keys))?).catch_unwind();
    match timeout(deadline, call).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(format!("panicked: {}", caught(format_args!("a poll"), &*panic)).into()),
        Err(_) => Err(crate::Error::deadline(deadline)),
    }
}

/// Records answers about existing objects, and returns the keys with changed answers and those with first answers.
fn record_results<A: PartialEq>(
    known: &mut BTreeMap<ObjectKey, A>,
    mut results: BTreeMap<ObjectKey, A>,
    exist: &BTreeSet<ObjectKey>,
) -> (Vec<ObjectKey>, Vec<ObjectKey>) {
    results.retain(|key, _| exist.contains(key));
    let (first, repeated): (Vec<_>, Vec<_>) = results.keys().cloned().partition(|key| !known.contains_key(key));
    let removed = known.keys().filter(|key| !results.contains_key(*key)).cloned();
    let changed = repeated.into_iter().filter(|key| known.get(key) != results.get(key));
    let changed = changed.chain(removed).collect();
    *known = results;
    (changed, first)
}

impl<K: AnyResource> From<&Channel<K>> for Source<K> {
    fn from(channel: &Channel<K>) -> Self {
        Self { source_kind: SourceKind::Channel(channel.ends.clone()), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Source<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source_kind {
            SourceKind::Channel(_) => "Channel",
            SourceKind::Task(_) => "Task",
        })
    }
}

/// A channel that triggers objects of the kind `K` from anywhere in the process: from a server, a task, a callback.
/// See [`Source`].
///
/// Clones are the same channel. It has no buffer: a key goes directly to the queues of the controllers whose
/// [source](crate::Controller::source) it is, and is dropped if none of them runs.
#[doc(alias = "GenericEvent")]
pub struct Channel<K> {
    ends: Arc<ChannelListeners>,
    kind: PhantomData<fn(K)>,
}

/// The controllers that listen to a channel.
#[derive(Debug, Default)]
pub(super) struct ChannelListeners(Mutex<Vec<Weak<Sources>>>);

impl ChannelListeners {
    pub(super) fn attach(&self, sources: &Arc<Sources>) {
        let mut ends = self.0.lock();
        ends.retain(|end| end.strong_count() > 0);
        ends.push(Arc::downgrade(sources));
    }
}

impl<K: AnyResource> Channel<K> {
    /// Creates a channel.
    pub fn new() -> Self {
        Self { ends: Arc::default(), kind: PhantomData }
    }

    /// Triggers a reconcile of the object with this key, if it exists.
    #[doc(alias = "trigger")]
    #[doc(alias = "enqueue")]
    pub fn wake(&self, key: &ObjectKey) {
        for end in self.ends.0.lock().iter().filter_map(Weak::upgrade) {
            end.wake(vec![key.clone()], Priority::Fresh, Cause::Source("channel"));
        }
    }
}

impl<K: AnyResource> Default for Channel<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for Channel<K> {
    fn clone(&self) -> Self {
        Self { ends: self.ends.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Channel<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_poll_results_trigger() {
        let key = |name: &str| ObjectKey::new(None, name);
        let exist = ["a", "b", "c"].map(key).into();
        let mut known = BTreeMap::new();
        let mut check = |results: &[(&str, u8)], changed: &[&str], first: &[&str]| {
            let results = results.iter().map(|(name, result)| (key(name), *result)).collect();
            let names = |names: &[&str]| names.iter().map(|name| key(name)).collect::<Vec<_>>();
            assert_eq!(record_results(&mut known, results, &exist), (names(changed), names(first)));
        };
        check(&[("a", 1), ("b", 1), ("nobody", 1)], &[], &["a", "b"]);
        check(&[("a", 1), ("b", 2), ("c", 1)], &["b"], &["c"]);
        check(&[("b", 2), ("c", 3)], &["c", "a"], &[]);
        check(&[("a", 1), ("b", 2), ("c", 3)], &[], &["a"]);
    }
}
