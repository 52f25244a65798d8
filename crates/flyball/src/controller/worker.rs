//! Workers, which take keys from the queue and reconcile them one at a time.

use super::admission::Admission;
use super::escaped::Escaped;
use super::failures::Failures;
use super::metrics::{Outcome, ReconcileMetrics};
use super::reconcile::{Action, Reconcile};
use super::unconfirmed::Unconfirmed;
use crate::cache::Entry;
use crate::client::within_reconcile;
use crate::context::{Context, DeclaredTypes, Environment, Primary, ReconcileSession};
use crate::error::{Error, Result, Retry};
use crate::events::Event;
use crate::external::with_external_calls;
use crate::kind::Kind;
use crate::ledger::{self, Accesses, Denial, Ledger, MAX_ERROR_BYTES, Next, ReconcileRecord, RecordedError};
use crate::memory::MemoryCharge;
use crate::offload::offload;
use crate::panics::{caught, guarded};
use crate::queue::{Item, NextStep, Queue, StaleReads, Work, Write};
use flyball_core::ObjectKey;
use flyball_core::time::Timestamp;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kube::core::Status;
use serde_json::Value;
use std::any::Any;
use std::borrow::Cow;
use std::fmt::Display;
use std::mem::take;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

/// A decoded object whose type is erased.
type Decoded = Arc<dyn Any + Send + Sync>;

/// Decodes an object of a kind.
type Decode = fn(&Entry, &Kind) -> serde_json::Result<Decoded>;

/// A [`Reconcile`] whose type is erased.
pub(super) trait Reconciler: Send + Sync {
    /// Returns the decoder of its objects.
    fn decoder(&self) -> Decode;

    /// Starts the call for an object of its decoder.
    fn begin(&self, call: Call, object: Decoded, session: &Arc<ReconcileSession>) -> BoxFuture<'_, Result<Action>>;

    /// See [`Reconcile::estimate_memory`].
    fn estimate_memory(&self, json: &str, is_deleting: bool) -> usize;

    /// See [`Reconcile::rejected_status`].
    fn rejected_status(&self, problem: &str) -> Option<Value>;
}

/// Growth of a reconcile since it was charged that needs no further charge, such as by a finalizer or a status.
const UNCHARGED_GROWTH: usize = 1 << 20;

/// Size of the JSON from which an object is decoded on another thread: decoding it takes up to a millisecond.
const LONG_JSON_BYTES: usize = 64 << 10;

/// Computation time after which decoding an object counts as slow.
const QUICK_TIME: Duration = Duration::from_millis(4);

/// The method of the reconciler to call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Reconcile,
    Finalize,
}

impl<R: Reconcile> Reconciler for R {
    fn decoder(&self) -> Decode {
        |entry, kind| Ok(Arc::new(entry.object::<R::Resource>(kind)?))
    }

    fn begin(&self, call: Call, object: Decoded, session: &Arc<ReconcileSession>) -> BoxFuture<'_, Result<Action>> {
        let object = object.downcast::<R::Resource>().expect("its decoder returned it");
        let cx = Context::of(session.clone(), object);
        let ending = async move {
            match call {
                Call::Reconcile => self.reconcile(cx.object(), &cx).await,
                Call::Finalize => self.finalize(cx.object(), &cx).await,
            }
        };
        ending.boxed()
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
    pub(super) unconfirmed: Arc<Unconfirmed>,
    pub(super) env: Arc<Environment>,
    pub(super) declared: Arc<DeclaredTypes>,
    pub(super) queue: Arc<Queue>,
    pub(super) metrics: ReconcileMetrics,
    pub(super) ledger: Arc<Ledger>,
    pub(super) failures: Failures,
}

/// The admission of a call.
enum Admitted {
    /// The call may start, with this charge if there is a budget.
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

/// A reconcile that ended.
struct Ended {
    next: NextStep,
    writes: Vec<Write>,
    /// The object as it was read; `None` if it does not exist or could not be read.
    entry: Option<Arc<Entry>>,
    from_server: bool,
    accesses: Accesses,
    outcome: ledger::Outcome,
    error: Option<RecordedError>,
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
        while let Some(Work { mut item, since, stale }) = work {
            self.metrics.waited(item.waited);
            let (id, began) = (self.env.rng.next(), self.env.clock.now());
            let span = span(&self.controller, self.kind.name(), &item.key, id);
            tracing::debug!(parent: &span, waited = item.waited.as_secs_f64(), "reconciling");
            let reconcile = within_reconcile(id, self.work(&item, id, since, stale)).instrument(span);
            let (mut ended, external) = with_external_calls(reconcile).await;
            self.metrics.called(&external);
            if !external.is_empty() {
                ended.accesses.list_mut().external = external;
            }
            let took = since.elapsed();
            self.metrics.worked(took, item.waited);
            let (next, writes) = (ended.next, self.record(&mut item, id, (began, took), ended));
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

    /// Adds a reconcile to the ledger, and returns its writes.
    fn record(&self, item: &mut Item, id: u64, (began, took): (Timestamp, Duration), ended: Ended) -> Vec<Write> {
        let Ended { next, writes, entry, from_server, accesses, outcome, error } = ended;
        if !self.ledger.is_enabled() {
            return writes;
        }
        let is_failure = next == NextStep::Retry && outcome != ledger::Outcome::Requeue;
        self.ledger.record(ReconcileRecord {
            id,
            key: item.key.clone(),
            version: entry.as_ref().map_or(0, |entry| entry.resource_version()),
            generation: entry.as_ref().map_or(0, |entry| entry.generation()),
            from_server,
            began,
            waited: item.waited,
            took,
            causes: take(&mut item.causes),
            accesses,
            outcome,
            error,
            failures: if is_failure { item.failures + 1 } else { 0 },
            next: match next {
                NextStep::Rest | NextStep::Held => Next::Change,
                NextStep::Retry => Next::Backoff,
                NextStep::After(delay) => Next::RequeueAfter(delay),
            },
        });
        if outcome == ledger::Outcome::Gone {
            self.ledger.flaps().forget(&item.key);
        }
        writes
    }

    async fn work(&self, item: &Item, id: u64, began: Instant, stale: StaleReads) -> Ended {
        let unknown = stale.unknown.clone();
        let charge = self.admission.as_ref().and_then(|admission| admission.granted(&item.key));
        let session = match self.open_session(&item.key, id, stale).await {
            Ok(Some(session)) => session,
            Ok(None) => {
                self.succeeded(&item.key);
                return Ended::without_object(NextStep::Rest, ledger::Outcome::Gone, Vec::new(), None);
            }
            Err(error) => {
                let (next, outcome, error) = self.ended(item, CallOutcome::Returned(Err(error)), began, 0);
                return Ended::without_object(next, outcome, unknown, error);
            }
        };
        if session.primary.entry.is_paused() {
            tracing::info!("paused");
            self.keep_unconfirmed(&session);
            let (next, _, error) = self.ended(item, CallOutcome::Idle, began, 0);
            return Ended::of(&session, next, ledger::Outcome::Paused, error);
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
                tracing::debug!("waiting for memory");
                self.keep_unconfirmed(&session);
                return Ended::of(&session, NextStep::Held, ledger::Outcome::Memory, None);
            }
            Admitted::Never(problem) => CallOutcome::Returned(Err(Box::pin(self.reject(&session, problem)).await)),
        };
        if !matches!(ending, CallOutcome::Returned(Ok(_))) {
            self.keep_unconfirmed(&session);
        }
        if let Some(why) = self.stuck(item, &session, &ending) {
            Box::pin(session.report_blocked_deletion(&why)).await;
        }
        let (next, outcome, error) = self.ended(item, ending, began, session.write_count());
        Ended::of(&session, next, outcome, error)
    }

    /// Reads the object, bypassing a stale cache; `None` if it does not exist.
    async fn open_session(
        &self,
        key: &ObjectKey,
        id: u64,
        mut stale: StaleReads,
    ) -> Result<Option<Arc<ReconcileSession>>> {
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
        let is_old = self.unconfirmed.must_confirm(store.id(), key, entry.resource_version());
        let is_confirmed = read_past || withheld || !is_old;
        let (env, declared) = (self.env.clone(), self.declared.clone());
        let recorded = (id, read_past, self.ledger.clone());
        let session = ReconcileSession::new(env, declared, primary, stale, is_confirmed, recorded);
        if read_past || withheld {
            session.record_observed_state(store, key, &entry);
        }
        Ok(Some(Arc::new(session)))
    }

    /// Records that the next reconcile must confirm the object as well, if this one has not.
    fn keep_unconfirmed(&self, session: &ReconcileSession) {
        if !session.is_confirmed() {
            self.unconfirmed.insert(&session.primary.key);
        }
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
                    "the object needs about {bytes} bytes of memory, the limit is {limit}: use fewer fields and list items"
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
                false => self.begin(Call::Reconcile, entry, session, charged).await?.await.map(Some),
            };
        };
        let has_finalizer = entry.finalizers().iter().any(|f| f == finalizer);
        match (entry.is_deleting(), has_finalizer) {
            (false, true) => self.begin(Call::Reconcile, entry, session, charged).await?.await.map(Some),
            (false, false) => match Box::pin(session.set_finalizer(finalizer, true)).await? {
                Some(entry) => self.begin(Call::Reconcile, &entry, session, charged).await?.await.map(Some),
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
        let action = self.begin(Call::Finalize, &entry, session, charged).await?.await?;
        if action == Action::done()
            && let Some(entry) = session.set_finalizer(finalizer, false).await?
        {
            session.withdraw_blocked_deletion(&entry).await;
        }
        Ok(Some(action))
    }

    async fn begin(
        &self,
        call: Call,
        entry: &Arc<Entry>,
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
        let decoded = self.decode(entry).await.map_err(|error| {
            let error = Error::from(error).context("cannot decode the object").terminal();
            self.metrics.undecodable();
            session.event(Event::warning("DecodeFailed", error.to_string()).action("Decode"));
            error
        })?;
        Ok(self.reconciler.begin(call, decoded, session))
    }

    /// Decodes an object; a large one on another thread, since users determine its size.
    async fn decode(&self, entry: &Arc<Entry>) -> serde_json::Result<Decoded> {
        let decode = self.reconciler.decoder();
        if !self.env.has_threads || entry.text().len() < LONG_JSON_BYTES {
            return decode(entry, &self.kind);
        }
        let (entry, kind) = (entry.clone(), self.kind.clone());
        Box::pin(offload(QUICK_TIME, move || decode(&entry, &kind))).await
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

    /// Calls the hooks for successes.
    fn succeeded(&self, key: &ObjectKey) {
        for hook in self.env.on_success.iter() {
            if let Err(panic) = guarded(format_args!("an on_success hook"), || hook(&self.controller, key)) {
                tracing::error!("an on_success hook {panic}");
            }
        }
    }

    /// Logs a failure: as a warning, unless there were many for this cause.
    fn log_failure(&self, key: &ObjectKey, failures: u32, error: &Error, text: &str) {
        match self.failures.admit(key, text, Instant::now()) {
            Some(0) => tracing::warn!(failures, at = error.call_site(), "failed: {text}"),
            Some(omitted) => tracing::warn!(failures, at = error.call_site(), omitted, "failed: {text}"),
            None => tracing::debug!(failures, at = error.call_site(), "failed: {text}"),
        }
    }

    /// Calls the hooks for errors.
    fn failed(&self, key: &ObjectKey, error: &Error) {
        for hook in self.env.on_error.iter() {
            if let Err(panic) = guarded(format_args!("an on_error hook"), || hook(&self.controller, key, error)) {
                tracing::error!("an on_error hook {panic}");
            }
        }
    }

    /// Counts and logs the outcome of a call, and returns the next step, the outcome and the error.
    fn ended(
        &self,
        item: &Item,
        ending: CallOutcome,
        began: Instant,
        writes: usize,
    ) -> (NextStep, ledger::Outcome, Option<RecordedError>) {
        let (outcome, next) = match &ending {
            CallOutcome::Idle => {
                self.succeeded(&item.key);
                return (NextStep::Rest, ledger::Outcome::Ignored, None);
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
        let mut shown = None;
        match ending {
            // Most reconciles change nothing, and are not worth logging.
            CallOutcome::Returned(Ok(_)) if writes > 0 => tracing::info!(?outcome, writes, "reconciled"),
            CallOutcome::Idle | CallOutcome::Returned(Ok(_)) => tracing::debug!(?outcome, writes, "reconciled"),
            CallOutcome::Returned(Err(error)) => {
                self.failed(&item.key, &error);
                let text = Escaped(&error);
                shown = Some(recorded(&text, error.response()));
                match outcome {
                    Outcome::Wait => tracing::info!("waiting for a change: {text}"),
                    Outcome::Terminal => tracing::error!("not retried until the object changes: {text}"),
                    _ => self.log_failure(&item.key, failures, &error, &text.to_string()),
                }
            }
            CallOutcome::Panicked(text) => {
                let text = Escaped(text);
                shown = Some(recorded(&text, None));
                tracing::error!(failures, "panicked: {text}");
            }
            CallOutcome::Late => {
                let error = Error::deadline(self.deadline);
                self.failed(&item.key, &error);
                shown = Some(recorded(&error, None));
                tracing::warn!(failures, "failed: {error}");
            }
        }
        if next != NextStep::Retry || matches!(outcome, Outcome::Requeue) {
            self.succeeded(&item.key);
        }
        (next, outcome.recorded(), shown)
    }
}

impl Ended {
    fn of(session: &ReconcileSession, next: NextStep, outcome: ledger::Outcome, error: Option<RecordedError>) -> Self {
        let (writes, accesses) = session.end();
        let entry = Some(session.primary.entry.clone());
        Self { next, writes, entry, from_server: session.is_from_server(), accesses, outcome, error }
    }

    fn without_object(
        next: NextStep,
        outcome: ledger::Outcome,
        writes: Vec<Write>,
        error: Option<RecordedError>,
    ) -> Self {
        let accesses = Accesses::default();
        Self { next, writes, entry: None, from_server: false, accesses, outcome, error }
    }
}

/// Formats an error for the ledger, with the response that caused it.
fn recorded(error: &impl Display, response: Option<&Status>) -> RecordedError {
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES));
    let (status, denial) = (response.map(|status| status.code), response.and_then(Denial::of));
    RecordedError { message: text.into(), status, denial }
}
