//! Takes keys from the queue and reconciles them, one at a time.

use super::context::{Context, Declared, Primary};
use super::{Action, Reconcile, panic_text};
use crate::apply::Event;
use crate::cache::Entry;
use crate::error::{Error, Result, Retry};
use crate::kind::{Kind, reads_metadata};
use crate::operator::Environment;
use crate::operator::metrics::{ControllerMetrics, Outcome};
use crate::queue::{Behind, Item, Next, Queue, Work, Write};
use flyball_core::ObjectKey;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

/// What the workers of one controller share.
#[derive(Debug)]
pub(super) struct Worker<R> {
    pub(super) reconciler: R,
    pub(super) controller: String,
    pub(super) kind: Kind,
    pub(super) deadline: Duration,
    pub(super) while_deleting: bool,
    pub(super) env: Arc<Environment>,
    pub(super) declared: Arc<Declared>,
    pub(super) queue: Arc<Queue>,
    pub(super) metrics: ControllerMetrics,
}

/// What became of one call, however it ended.
enum Ending {
    Returned(Result<Action>),
    Panicked(String),
    Late,
    /// There was nothing to call for.
    Idle,
}

/// Makes what stands in every line of the log that belongs to a reconcile: of the highest level, or it would be missing
/// where only warnings are logged.
pub(crate) fn span(controller: &str, kind: &str, key: &ObjectKey, id: u64) -> tracing::Span {
    tracing::error_span!(
        "reconcile",
        controller,
        kind,
        namespace = key.namespace(),
        name = key.name(),
        id = format_args!("{id:016x}"),
    )
}

impl<R: Reconcile> Worker<R> {
    /// Works until the queue is closed.
    pub(super) async fn run(&self) {
        let mut work = self.queue.next().await;
        while let Some(Work { item, since, behind }) = work {
            self.metrics.waited(item.waited);
            let span = span(&self.controller, self.kind.name(), &item.key, self.env.rng.next());
            tracing::debug!(parent: &span, waited = item.waited.as_secs_f64(), "begun");
            // What a reconcile keeps while it waits is large; a worker that waits for a key keeps none of it.
            let (next, writes) = Box::pin(self.work(&item, since, behind)).instrument(span).await;
            self.metrics.worked(since.elapsed(), item.waited);
            let stores = self.env.caches.stores();
            let ready = self.queue.done(&item, next, writes, |store, object, uid| stores[store].is_gone(object, uid));
            // Reconciles that wait for nothing would otherwise keep the runtime from everything else.
            tokio::task::coop::consume_budget().await;
            work = match ready {
                Some(ready) => Some(ready),
                None => self.queue.next().await,
            };
        }
    }

    async fn work(&self, item: &Item, began: Instant, behind: Behind) -> (Next, Vec<Write>) {
        let unknown = behind.unknown.clone();
        let cx = match self.context(&item.key, behind).await {
            Ok(Some(cx)) => cx,
            Ok(None) => return (Next::Rest, Vec::new()),
            Err(error) => return (self.ended(item, Ending::Returned(Err(error)), began, 0), unknown),
        };
        if cx.primary.entry.is_paused() {
            tracing::info!("paused");
            return (self.ended(item, Ending::Idle, began, 0), cx.into_writes());
        }
        let call = AssertUnwindSafe(self.call(&cx)).catch_unwind();
        let ending = match timeout(self.deadline, call).await {
            Ok(Ok(Ok(Some(action)))) => Ending::Returned(Ok(action)),
            Ok(Ok(Ok(None))) => Ending::Idle,
            Ok(Ok(Err(error))) => Ending::Returned(Err(error)),
            Ok(Err(panic)) => Ending::Panicked(panic_text(&*panic)),
            Err(_) => Ending::Late,
        };
        if let Some(why) = self.stuck(item, &cx, &ending) {
            cx.show_stuck(&why).await;
        }
        let writes = cx.into_writes();
        (self.ended(item, ending, began, writes.len()), writes)
    }

    /// Reads the object, past a cache that is behind; `None` if it is gone.
    async fn context(&self, key: &ObjectKey, mut behind: Behind) -> Result<Option<Context<R::Resource>>> {
        let store = self.env.caches.store_of(&self.kind, key.namespace())?;
        let read_past = behind.is_unsure(store.id(), key) || behind.stores.contains(&store.id());
        let entry = match read_past {
            true => self.env.fetch_selected(store, key).await?,
            false => store.get(key),
        };
        let Some(mut entry) = entry else { return Ok(None) };
        behind.unknown.retain(|write| write.store != store.id() || write.object != *key);
        let withheld = entry.is_withheld() && !reads_metadata::<R::Resource>();
        if withheld {
            let Some(whole) = self.env.fetch(&self.kind, key).await? else { return Ok(None) };
            entry = whole;
        }
        tracing::debug!(version = entry.resource_version(), read_past, "read");
        let primary = Primary { kind: self.kind.clone(), key: key.clone(), entry: entry.clone() };
        let cx = Context::new(self.env.clone(), self.declared.clone(), primary, behind);
        if read_past || withheld {
            cx.relied_on(store, key, &entry);
        }
        Ok(Some(cx))
    }

    /// Calls what the object needs; `None` if it needs nothing.
    async fn call(&self, cx: &Context<R::Resource>) -> Result<Option<Action>> {
        let entry = &cx.primary.entry;
        let Some(finalizer) = R::FINALIZER else {
            return match entry.is_deleting() && !self.while_deleting {
                true => Ok(None),
                false => self.reconciler.reconcile(&self.decode(cx, entry)?, cx).await.map(Some),
            };
        };
        let kept = entry.finalizers().iter().any(|f| f == finalizer);
        match (entry.is_deleting(), kept) {
            (false, true) => self.reconciler.reconcile(&self.decode(cx, entry)?, cx).await.map(Some),
            (false, false) => match cx.set_finalizer(finalizer, true).await? {
                Some(entry) => self.reconciler.reconcile(&self.decode(cx, &entry)?, cx).await.map(Some),
                None => Ok(None),
            },
            (true, true) => self.finalize(cx, finalizer).await,
            (true, false) => Ok(None),
        }
    }

    async fn finalize(&self, cx: &Context<R::Resource>, finalizer: &str) -> Result<Option<Action>> {
        // The cache may tell of an object of the same name that is long gone.
        let Some(entry) = self.env.fetch(&self.kind, cx.key()).await? else { return Ok(None) };
        if entry.uid() != cx.primary.entry.uid() || !entry.is_deleting() {
            return Ok(None);
        }
        cx.relied_on(cx.primary_store()?, cx.key(), &entry);
        let action = self.reconciler.finalize(&self.decode(cx, &entry)?, cx).await?;
        if action == Action::done()
            && let Some(entry) = cx.set_finalizer(finalizer, false).await?
        {
            cx.show_cleaned_up(&entry).await;
        }
        Ok(Some(action))
    }

    /// Says why an object that is to go is still there, if that is more than a moment's trouble.
    fn stuck(&self, item: &Item, cx: &Context<R::Resource>, ending: &Ending) -> Option<String> {
        if R::FINALIZER.is_none() || !cx.primary.entry.is_deleting() {
            return None;
        }
        let again = item.failures > 0;
        match ending {
            Ending::Returned(Err(error)) if again || error.retry() != Retry::Backoff => Some(error.to_string()),
            Ending::Panicked(text) if again => Some(format!("panicked: {text}")),
            Ending::Late if again => Some(Error::deadline(self.deadline).to_string()),
            Ending::Returned(_) | Ending::Panicked(_) | Ending::Late | Ending::Idle => None,
        }
    }

    fn decode(&self, cx: &Context<R::Resource>, entry: &Entry) -> Result<R::Resource> {
        // No retry makes it fit: either the object changes, or the operator does.
        entry.object(&self.kind).map_err(|error| {
            let error = Error::from(error).context("the object does not decode").terminal();
            self.metrics.undecodable();
            cx.event(Event::warning("DecodeFailed", error.to_string()).action("Decode"));
            error
        })
    }

    /// Counts and logs how a call ended, and says what follows.
    fn ended(&self, item: &Item, ending: Ending, began: Instant, writes: usize) -> Next {
        let (outcome, next) = match &ending {
            Ending::Idle => return Next::Rest,
            Ending::Returned(Ok(Action(next))) => match next {
                Next::Rest => (Outcome::Success, *next),
                Next::Retry => (Outcome::Requeue, *next),
                Next::After(_) => (Outcome::RequeueAfter, *next),
            },
            Ending::Returned(Err(error)) => match error.retry() {
                Retry::Backoff => (Outcome::Error, Next::Retry),
                Retry::Wait => (Outcome::Wait, Next::Rest),
                Retry::Terminal => (Outcome::Terminal, Next::Rest),
            },
            Ending::Panicked(_) => (Outcome::Panic, Next::Retry),
            Ending::Late => (Outcome::Deadline, Next::Retry),
        };
        self.metrics.reconciled(outcome, began.elapsed());
        let failures = item.failures + 1;
        match ending {
            // Most reconciles find all as it should be, and of them nobody wants to read.
            Ending::Returned(Ok(_)) if writes > 0 => tracing::info!(?outcome, writes, "reconciled"),
            Ending::Idle | Ending::Returned(Ok(_)) => tracing::debug!(?outcome, writes, "reconciled"),
            Ending::Returned(Err(error)) => {
                for tell in self.env.on_error.iter() {
                    tell(&self.controller, &item.key, &error);
                }
                match outcome {
                    Outcome::Wait => tracing::info!("waiting for a change: {error}"),
                    Outcome::Terminal => tracing::error!("given up until a change: {error}"),
                    _ => tracing::warn!(failures, at = error.call_site(), "failed: {error}"),
                }
            }
            Ending::Panicked(text) => tracing::error!(failures, "panicked: {text}"),
            Ending::Late => tracing::warn!(failures, "failed: {}", Error::deadline(self.deadline)),
        }
        next
    }
}
