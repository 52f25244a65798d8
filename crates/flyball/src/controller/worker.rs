//! Workers, which take keys from the queue and reconcile them one at a time.

use super::admission::Admission;
use super::escaped::Escaped;
use super::metrics::{Outcome, ReconcileMetrics};
use super::reconcile::{Action, Reconcile};
use crate::cache::Entry;
use crate::context::{Context, DeclaredTypes, Environment, Primary, ReconcileSession};
use crate::error::{Error, Result, Retry};
use crate::events::Event;
use crate::kind::Kind;
use crate::memory::MemoryCharge;
use crate::panics::{caught, guarded};
use crate::queue::{Item, NextStep, Queue, StaleReads, Work, Write};
use flyball_core::ObjectKey;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

/// A [`Reconcile`] whose type is erased.
pub(super) trait Reconciler: Send + Sync {
    /// Decodes the object, and starts the call.
    fn begin(
        &self,
        call: Call,
        entry: &Entry,
        session: &Arc<ReconcileSession>,
    ) -> serde_json::Result<BoxFuture<'_, Result<Action>>>;

    /// See [`Reconcile::estimate_memory`].
    fn estimate_memory(&self, json: &str, is_deleting: bool) -> usize;

    /// See [`Reconcile::rejected_status`].
    fn rejected_status(&self, problem: &str) -> Option<Value>;
}

/// Growth of a reconcile since it was charged that needs no further charge, such as by a finalizer or a status.
const UNCHARGED_GROWTH: usize = 1 << 20;

/// The method of the reconciler to call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Reconcile,
    Finalize,
}

impl<R: Reconcile> Reconciler for R {
    fn begin(
        &self,
        call: Call,
        entry: &Entry,
        session: &Arc<ReconcileSession>,
    ) -> serde_json::Result<BoxFuture<'_, Result<Action>>> {
        let object: R::Resource = entry.object(&session.primary.kind)?;
        let cx = Context::of(session.clone());
        let ending = async move {
            match call {
                Call::Reconcile => self.reconcile(&object, &cx).await,
                Call::Finalize => self.finalize(&object, &cx).await,
            }
        };
        Ok(ending.boxed())
    }

    fn estimate_memory(&self, json: &str, is_deleting: bool) -> usize {
        Reconcile::estimate_memory(self, json, is_deleting)
    }

    fn rejected_status(&self, problem: &str) -> Option<Value> {
        Reconcile::rejected_status(self, problem)
    }
}

/// The state that the workers of a controller share.
pub(super) struct Worker {
    pub(super) reconciler: Box<dyn Reconciler>,
    pub(super) finalizer: Option<Cow<'static, str>>,
    /// True if only metadata is decoded.
    pub(super) metadata: bool,
    pub(super) controller: String,
    pub(super) kind: Kind,
    pub(super) deadline: Duration,
    pub(super) while_deleting: bool,
    pub(super) admission: Option<Arc<Admission>>,
    pub(super) env: Arc<Environment>,
    pub(super) declared: Arc<DeclaredTypes>,
    pub(super) queue: Arc<Queue>,
    pub(super) metrics: ReconcileMetrics,
}

/// The admission of a call.
enum Admitted {
    /// It has this charge, if there is a budget.
    Now(Option<MemoryCharge>),
    /// The key is added to the queue later.
    Later,
    /// The object is too large.
    Never(String),
}

/// The outcome of a call.
enum CallOutcome {
    Returned(Result<Action>),
    Panicked(String),
    Late,
    /// Nothing was called.
    Idle,
}

/// Creates the span of a reconcile. It has the highest level, so that it exists even if only warnings are logged.
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

impl Worker {
    /// Runs until the queue is closed.
    pub(super) async fn run(&self) {
        let mut work = self.queue.next().await;
        while let Some(Work { item, since, stale }) = work {
            self.metrics.waited(item.waited);
            let span = span(&self.controller, self.kind.name(), &item.key, self.env.rng.next());
            tracing::debug!(parent: &span, waited = item.waited.as_secs_f64(), "begun");
            let (next, writes) = self.work(&item, since, stale).instrument(span).await;
            self.metrics.worked(since.elapsed(), item.waited);
            let stores = self.env.caches.stores();
            let ready = self.queue.done(&item, next, writes, |store, object, uid| stores[store].is_gone(object, uid));
            // Without this, reconciles that never wait would starve other tasks.
            tokio::task::coop::consume_budget().await;
            work = match ready {
                Some(ready) => Some(ready),
                None => self.queue.next().await,
            };
        }
    }

    async fn work(&self, item: &Item, began: Instant, stale: StaleReads) -> (NextStep, Vec<Write>) {
        let unknown = stale.unknown.clone();
        let charge = self.admission.as_ref().and_then(|admission| admission.granted(&item.key));
        let session = match self.open_session(&item.key, stale).await {
            Ok(Some(session)) => session,
            Ok(None) => {
                self.settled(&item.key);
                return (NextStep::Rest, Vec::new());
            }
            Err(error) => return (self.ended(item, CallOutcome::Returned(Err(error)), began, 0), unknown),
        };
        if session.primary.entry.is_paused() {
            tracing::info!("paused");
            return (self.ended(item, CallOutcome::Idle, began, 0), session.take_writes());
        }
        let ending = match self.admit(&session, charge) {
            Admitted::Now(charge) => {
                let charged = charge.as_ref().map(MemoryCharge::bytes);
                let call = AssertUnwindSafe(self.call(&session, charged)).catch_unwind();
                match timeout(self.deadline, call).await {
                    Ok(Ok(Ok(Some(action)))) => CallOutcome::Returned(Ok(action)),
                    Ok(Ok(Ok(None))) => CallOutcome::Idle,
                    Ok(Ok(Err(error))) => CallOutcome::Returned(Err(error)),
                    Ok(Err(panic)) => CallOutcome::Panicked(caught(
                        format_args!("controller {}, object {}", self.controller, item.key),
                        &*panic,
                    )),
                    Err(_) => CallOutcome::Late,
                }
            }
            Admitted::Later => {
                tracing::debug!("waits for memory");
                return (NextStep::Held, session.take_writes());
            }
            Admitted::Never(problem) => CallOutcome::Returned(Err(Box::pin(self.reject(&session, problem)).await)),
        };
        if let Some(why) = self.stuck(item, &session, &ending) {
            Box::pin(session.report_blocked_deletion(&why)).await;
        }
        let writes = session.take_writes();
        (self.ended(item, ending, began, writes.len()), writes)
    }

    /// Reads the object, bypassing a stale cache; `None` if it does not exist.
    async fn open_session(&self, key: &ObjectKey, mut stale: StaleReads) -> Result<Option<Arc<ReconcileSession>>> {
        let store = self.env.caches.store_of(&self.kind, key.namespace())?;
        let read_past = stale.is_uncertain(store.id(), key) || stale.stores.contains(&store.id());
        let entry = match read_past {
            true => self.env.fetch_selected(store, key).await?,
            false => store.get(key),
        };
        let Some(mut entry) = entry else { return Ok(None) };
        stale.unknown.retain(|write| write.store != store.id() || write.object != *key);
        let withheld = entry.is_withheld() && !self.metadata;
        if withheld {
            let Some(whole) = self.env.fetch(&self.kind, key).await? else { return Ok(None) };
            entry = whole;
        }
        tracing::debug!(version = entry.resource_version(), read_past, "read");
        let primary = Primary { kind: self.kind.clone(), key: key.clone(), entry: entry.clone() };
        let session = ReconcileSession::new(self.env.clone(), self.declared.clone(), primary, stale);
        if read_past || withheld {
            session.record_observed_state(store, key, &entry);
        }
        Ok(Some(Arc::new(session)))
    }

    /// Charges the reconcile of an object that is not decoded yet. `charge` is the one for which the key waited.
    fn admit(&self, session: &ReconcileSession, charge: Option<MemoryCharge>) -> Admitted {
        let Some(admission) = &self.admission else { return Admitted::Now(None) };
        let entry = &session.primary.entry;
        let bytes = self.reconciler.estimate_memory(entry.text(), entry.is_deleting());
        let limit = admission.limit(entry.is_deleting());
        if bytes > limit {
            return match self.is_ignored(entry) {
                true => Admitted::Now(None),
                false => Admitted::Never(format!(
                    "the object takes about {bytes} bytes, more than {limit} bytes of memory: use fewer fields and items, \
                     and longer texts"
                )),
            };
        }
        match charge.filter(|charge| charge.bytes() >= bytes) {
            Some(charge) => Admitted::Now(Some(charge)),
            None => match admission.charge(&session.primary.key, bytes, &self.queue) {
                Some(charge) => Admitted::Now(Some(charge)),
                None => Admitted::Later,
            },
        }
    }

    /// Reports an object that is too large to be decoded, and returns the error.
    async fn reject(&self, session: &ReconcileSession, problem: String) -> Error {
        session.event(Event::warning("ObjectTooLarge", problem.as_str()).action("Decode"));
        match self.reconciler.rejected_status(&problem) {
            Some(status) => session.set_status(status).await.err(),
            None => None,
        }
        .unwrap_or_else(|| Error::from(problem).terminal())
    }

    /// Returns true if no method is called for an object, because it is being deleted.
    fn is_ignored(&self, entry: &Entry) -> bool {
        entry.is_deleting()
            && match self.finalizer.as_deref() {
                Some(finalizer) => !entry.finalizers().iter().any(|f| f == finalizer),
                None => !self.while_deleting,
            }
    }

    /// Calls the method that the object requires; `None` if none is required. Rare cases are boxed, since each worker
    /// reserves memory for its future, also while it waits for a key.
    async fn call(&self, session: &Arc<ReconcileSession>, charged: Option<usize>) -> Result<Option<Action>> {
        let entry = &session.primary.entry;
        let Some(finalizer) = self.finalizer.as_deref() else {
            return match entry.is_deleting() && !self.while_deleting {
                true => Ok(None),
                false => self.begin(Call::Reconcile, entry, session, charged)?.await.map(Some),
            };
        };
        let has_finalizer = entry.finalizers().iter().any(|f| f == finalizer);
        match (entry.is_deleting(), has_finalizer) {
            (false, true) => self.begin(Call::Reconcile, entry, session, charged)?.await.map(Some),
            (false, false) => match Box::pin(session.set_finalizer(finalizer, true)).await? {
                Some(entry) => self.begin(Call::Reconcile, &entry, session, charged)?.await.map(Some),
                None => Ok(None),
            },
            (true, true) => Box::pin(self.finalize(session, finalizer, charged)).await,
            (true, false) => Ok(None),
        }
    }

    async fn finalize(
        &self,
        session: &Arc<ReconcileSession>,
        finalizer: &str,
        charged: Option<usize>,
    ) -> Result<Option<Action>> {
        // The cache may still contain a deleted object with the same name.
        let Some(entry) = self.env.fetch(&self.kind, &session.primary.key).await? else { return Ok(None) };
        if entry.uid() != session.primary.entry.uid() || !entry.is_deleting() {
            return Ok(None);
        }
        session.record_observed_state(session.primary_store()?, &session.primary.key, &entry);
        let action = self.begin(Call::Finalize, &entry, session, charged)?.await?;
        if action == Action::done()
            && let Some(entry) = session.set_finalizer(finalizer, false).await?
        {
            session.withdraw_blocked_deletion(&entry).await;
        }
        Ok(Some(action))
    }

    fn begin(
        &self,
        call: Call,
        entry: &Entry,
        session: &Arc<ReconcileSession>,
        charged: Option<usize>,
    ) -> Result<BoxFuture<'_, Result<Action>>> {
        // It was read or written again since.
        if let Some(charged) = charged
            && self.reconciler.estimate_memory(entry.text(), entry.is_deleting()) > charged + UNCHARGED_GROWTH
        {
            return Err(Error::from("the object grew since it was read"));
        }
        // A retry cannot succeed: either the object or the operator must change.
        self.reconciler.begin(call, entry, session).map_err(|error| {
            let error = Error::from(error).context("the object does not decode").terminal();
            self.metrics.undecodable();
            session.event(Event::warning("DecodeFailed", error.to_string()).action("Decode"));
            error
        })
    }

    /// Returns the reason why a deleted object still exists, if it is not a temporary failure.
    fn stuck(&self, item: &Item, session: &ReconcileSession, ending: &CallOutcome) -> Option<String> {
        if self.finalizer.is_none() || !session.primary.entry.is_deleting() {
            return None;
        }
        let again = item.failures > 0;
        match ending {
            CallOutcome::Returned(Err(error)) if again || error.retry() != Retry::Backoff => Some(error.to_string()),
            CallOutcome::Panicked(text) if again => Some(format!("panicked: {text}")),
            CallOutcome::Late if again => Some(Error::deadline(self.deadline).to_string()),
            CallOutcome::Returned(_) | CallOutcome::Panicked(_) | CallOutcome::Late | CallOutcome::Idle => None,
        }
    }

    /// Calls the hooks for settled objects.
    fn settled(&self, key: &ObjectKey) {
        for tell in self.env.on_settled.iter() {
            if let Err(panic) = guarded(format_args!("a hook for successes"), || tell(&self.controller, key)) {
                tracing::error!("a hook for successes {panic}");
            }
        }
    }

    /// Calls the hooks for errors.
    fn failed(&self, key: &ObjectKey, error: &Error) {
        for tell in self.env.on_error.iter() {
            if let Err(panic) = guarded(format_args!("a hook for errors"), || tell(&self.controller, key, error)) {
                tracing::error!("a hook for errors {panic}");
            }
        }
    }

    /// Counts and logs the outcome of a call, and returns the next step.
    fn ended(&self, item: &Item, ending: CallOutcome, began: Instant, writes: usize) -> NextStep {
        let (outcome, next) = match &ending {
            CallOutcome::Idle => {
                self.settled(&item.key);
                return NextStep::Rest;
            }
            CallOutcome::Returned(Ok(Action(next))) => match next {
                NextStep::Rest | NextStep::Held => (Outcome::Success, *next),
                NextStep::Retry => (Outcome::Requeue, *next),
                NextStep::After(_) => (Outcome::RequeueAfter, *next),
            },
            CallOutcome::Returned(Err(error)) => match error.retry() {
                Retry::Backoff => (Outcome::Error, NextStep::Retry),
                Retry::Wait => (Outcome::Wait, NextStep::Rest),
                Retry::Terminal => (Outcome::Terminal, NextStep::Rest),
            },
            CallOutcome::Panicked(_) => (Outcome::Panic, NextStep::Retry),
            CallOutcome::Late => (Outcome::Deadline, NextStep::Retry),
        };
        self.metrics.reconciled(outcome, began.elapsed());
        let failures = item.failures + 1;
        match ending {
            // Most reconciles change nothing, and are not worth logging.
            CallOutcome::Returned(Ok(_)) if writes > 0 => tracing::info!(?outcome, writes, "reconciled"),
            CallOutcome::Idle | CallOutcome::Returned(Ok(_)) => tracing::debug!(?outcome, writes, "reconciled"),
            CallOutcome::Returned(Err(error)) => {
                self.failed(&item.key, &error);
                let text = Escaped(&error);
                match outcome {
                    Outcome::Wait => tracing::info!("waiting for a change: {text}"),
                    Outcome::Terminal => tracing::error!("not retried until the object changes: {text}"),
                    _ => tracing::warn!(failures, at = error.call_site(), "failed: {text}"),
                }
            }
            CallOutcome::Panicked(text) => tracing::error!(failures, "panicked: {}", Escaped(text)),
            CallOutcome::Late => {
                let error = Error::deadline(self.deadline);
                self.failed(&item.key, &error);
                tracing::warn!(failures, "failed: {error}");
            }
        }
        if next != NextStep::Retry || matches!(outcome, Outcome::Requeue) {
            self.settled(&item.key);
        }
        next
    }
}
