//! Reconciles an object: runs its role or playbook, and writes the result to the status.

use crate::executor::Execute;
use crate::finished::{FinishedRun, FinishedRuns};
use crate::job::{Job, Outcome};
use crate::metrics::{KindMetrics, RoleMetrics};
use crate::names::Names;
use crate::offload::Slots;
use crate::playbook::Kinds;
use crate::status;
use crate::template::Vars;
use crate::variables::{self, RunVariables};
use crate::watches::{Watch, parse_verbosity};
use flyball::{Action, Backoff, Context, Error, Event, Kind, ObjectKey, Reconcile, Result};
use flyball_core::time::{parse_unsigned_duration, rfc3339};
use futures_util::FutureExt;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The annotation of an object with its reconcile period.
pub(crate) const RECONCILE_PERIOD: &str = "ansible.sdk.operatorframework.io/reconcile-period";

/// The annotation of an object with the verbosity of its runs.
const VERBOSITY: &str = "ansible.sdk.operatorframework.io/verbosity";

/// Minimum reconcile period in an annotation, since users set it.
const MIN_ANNOTATED_PERIOD: Duration = Duration::from_secs(1);

/// Backoff of deferred runs.
const DEFERRAL: Backoff = Backoff { base_delay: Duration::from_secs(5), max_delay: Duration::from_secs(60) };

/// Limit of objects whose deferrals are counted.
const MAX_DEFERRED: usize = 10_000;

/// A role or playbook as a reconciler.
pub(crate) struct Roles {
    pub(crate) watch: Arc<Watch>,
    pub(crate) kind: Kind,
    pub(crate) executor: Box<dyn Execute>,
    /// The role or playbook that runs before an object is deleted.
    pub(crate) finalizer: Option<Box<dyn Execute>>,
    pub(crate) kinds: Arc<Kinds>,
    /// The field manager of patches.
    pub(crate) manager: String,
    /// Rules for fields that become variables.
    pub(crate) names: Arc<Names>,
    /// Threads for expensive work on large objects; without them, it runs inline.
    pub(crate) slots: Option<Slots>,
    pub(crate) deferrals: Deferrals,
    pub(crate) finished: FinishedRuns,
    pub(crate) metrics: KindMetrics,
    pub(crate) role_metrics: RoleMetrics,
}

/// The objects whose last runs were deferred, with the number of these runs.
#[derive(Debug, Default)]
pub(crate) struct Deferrals(Mutex<BTreeMap<ObjectKey, u32>>);

impl Deferrals {
    /// Counts a deferral, and returns its delay.
    fn next(&self, key: &ObjectKey) -> Duration {
        let mut counts = self.0.lock();
        // An object may be deleted before its next run, so its count may be left over.
        if counts.len() >= MAX_DEFERRED && !counts.contains_key(key) {
            counts.pop_first();
        }
        let count = counts.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        DEFERRAL.after(*count)
    }

    fn end(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

impl Reconcile for Roles {
    type Resource = DynamicObject;

    async fn reconcile(&self, object: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
        let start = Instant::now();
        let ended = tokio::select! {
            biased;
            ended = self.run_role(object, cx) => ended,
            // The finalizer runs next, if there is one.
            () = cx.deleted() => {
                self.deferrals.end(cx.key());
                self.finished.remove(cx.key());
                tracing::info!("the run is canceled: the object is being deleted");
                Ok(Action::done())
            }
        };
        self.metrics.took(start.elapsed());
        ended
    }

    async fn finalize(&self, object: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
        let start = Instant::now();
        let ended = self.run_finalizer(object, cx).await;
        self.metrics.took(start.elapsed());
        ended
    }

    fn estimate_memory(&self, json: &str, is_deleting: bool) -> usize {
        let finalizer = self.finalizer.as_ref().filter(|_| is_deleting);
        finalizer.unwrap_or(&self.executor).memory(json)
    }

    fn rejected_status(&self, problem: &str) -> Option<Value> {
        self.watch.manage_status.then(|| json!({"conditions": status::rejected(&Value::Null, problem)}))
    }
}

impl Roles {
    async fn run_role(&self, object: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
        let before = &object.data["status"];
        let period = match self.period(object) {
            Ok(period) => period,
            Err(problem) => return Err(self.rejected(object, problem, cx).await?),
        };
        let generation = object.metadata.generation.unwrap_or(0);
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let last = self.finished.get(cx.key(), &uid);
        if self.watch.manage_status
            && let Some(conditions) = status::running(before, generation, last.as_ref().map(|last| last.generation))
        {
            cx.set_status(&json!({"conditions": conditions})).await?;
        }
        let run_variables = self.variables(cx, false).await;
        let rejected = variables::explain(&run_variables.rejected);
        let outcome = self.run(object, run_variables.vars, cx, &*self.executor).await;
        if outcome.is_deferred {
            return Ok(self.deferred(cx.key()));
        }
        self.deferrals.end(cx.key());
        self.write_status(object, &outcome, rejected.as_deref(), cx).await?;
        let has_changes = outcome.failure.is_none() && outcome.changed > 0;
        self.finished.insert(cx.key(), FinishedRun { uid, generation, has_changes });
        if outcome.changed > 0 {
            // The next run replaces these counts in the status.
            let Outcome { ok, changed, skipped, failures, .. } = outcome;
            tracing::info!(ok, changed, skipped, failures, "tasks changed something");
        }
        // A run with changes is followed by another one, so that the status reflects the final state; but not if that
        // one reports changes too, as roles with commands always do.
        let is_changing = |last: FinishedRun| last.generation == generation && last.has_changes;
        let had_changes = status::has_changes(before, generation) || last.is_some_and(is_changing);
        let confirms = self.watch.manage_status && outcome.wrote && !had_changes;
        let again = outcome.requeue_after.or(period);
        self.ended(object, outcome, cx)?;
        Ok(match again {
            _ if confirms => Action::requeue(),
            Some(again) => Action::requeue_after(again),
            None => Action::done(),
        })
    }

    async fn run_finalizer(&self, object: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
        let executor = self.finalizer.as_deref().unwrap_or(&*self.executor);
        let run_variables = self.variables(cx, true).await;
        let rejected = variables::explain(&run_variables.rejected);
        let outcome = self.run(object, run_variables.vars, cx, executor).await;
        if outcome.is_deferred {
            return Ok(self.deferred(cx.key()));
        }
        self.deferrals.end(cx.key());
        self.finished.remove(cx.key());
        if outcome.failure.is_some() {
            self.write_status(object, &outcome, rejected.as_deref(), cx).await?;
        }
        self.ended(object, outcome, cx)?;
        Ok(Action::done())
    }

    /// Requeues an object whose run was deferred.
    fn deferred(&self, key: &ObjectKey) -> Action {
        tracing::info!("run deferred: no worker share is free");
        Action::requeue_after(self.deferrals.next(key))
    }

    /// Writes the reason why a run could not start to the status, and returns it as an error.
    async fn rejected(&self, object: &DynamicObject, problem: String, cx: &Context<DynamicObject>) -> Result<Error> {
        self.metrics.failed();
        if self.watch.manage_status {
            let conditions = status::rejected(&object.data["status"], &problem);
            cx.set_status(&json!({"conditions": conditions})).await?;
        }
        Ok(Error::from(problem).terminal())
    }

    async fn variables(&self, cx: &Context<DynamicObject>, finalizes: bool) -> RunVariables {
        let Some(slots) = &self.slots else { return variables::of(cx.object(), &self.watch, &self.names, finalizes) };
        let (object, watch, names) = (cx.object().clone(), self.watch.clone(), self.names.clone());
        slots.run(async move { variables::of(&object, &watch, &names, finalizes) }.boxed()).await
    }

    async fn run(
        &self,
        object: &DynamicObject,
        vars: Vars,
        cx: &Context<DynamicObject>,
        executor: &dyn Execute,
    ) -> Outcome {
        executor
            .execute(Job {
                kinds: &self.kinds,
                object,
                extra: Arc::new(vars),
                cx,
                watch: &self.watch,
                names: &self.names,
                manager: &self.manager,
                verbosity: self.verbosity(object),
                role_metrics: &self.role_metrics,
            })
            .await
    }

    /// Counts a run. A failed one is reported by an event unless the status has the same failure already, and converted
    /// to an error, which is retried unless it is permanent.
    fn ended(&self, object: &DynamicObject, outcome: Outcome, cx: &Context<DynamicObject>) -> Result<()> {
        let Some(failure) = outcome.failure else {
            self.metrics.succeeded();
            return Ok(());
        };
        self.metrics.failed();
        if !status::has_failure(&object.data["status"], &failure.message) {
            cx.event(Event::warning("TaskFailed", format!("task {}: {}", failure.task, failure.message)));
        }
        let error = failure.error.unwrap_or_else(|| Error::from(failure.message));
        let error = if failure.is_rejected { error.terminal() } else { error };
        Err(error.context(format_args!("task {}", failure.task)))
    }

    /// Returns the reconcile period of the object.
    fn period(&self, object: &DynamicObject) -> Result<Option<Duration>, String> {
        let annotation = object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RECONCILE_PERIOD));
        match annotation {
            None => Ok(self.watch.reconcile_period),
            Some(text) => annotated_period(text),
        }
    }

    fn verbosity(&self, object: &DynamicObject) -> u8 {
        let annotation = object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VERBOSITY));
        annotation.and_then(|text| parse_verbosity(text)).or(self.watch.verbosity).unwrap_or_default()
    }

    /// Writes the outcome of a run and the status fields of tasks.
    async fn write_status(
        &self,
        object: &DynamicObject,
        outcome: &Outcome,
        rejected: Option<&str>,
        cx: &Context<DynamicObject>,
    ) -> Result<()> {
        let before = &object.data["status"];
        if let Some(fields) = status::fields(before, outcome, !self.watch.manage_status)
            && let Some(fields) = status::changed(before, cx.adapted_status(&fields).await?)
        {
            self.patch_status(object, fields, cx).await?;
        }
        if let Some(rejected) = rejected.filter(|_| !self.watch.manage_status) {
            tracing::warn!("{rejected}");
            cx.event(Event::warning("NamesRefused", rejected));
        }
        if self.watch.manage_status {
            let mut conditions = status::done(before, outcome, &rfc3339(cx.now()));
            status::set_variables_condition(&mut conditions, rejected);
            cx.set_status(&json!({"conditions": conditions})).await?;
        }
        Ok(())
    }

    async fn patch_status(&self, object: &DynamicObject, fields: Value, cx: &Context<DynamicObject>) -> Result<()> {
        let (client, resource) = (cx.client().clone(), self.kind.api_resource());
        let api: Api<DynamicObject> = match cx.key().namespace() {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let params = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        // The UID prevents writing to a new object with the same name.
        let patch = Patch::Merge(json!({"metadata": {"uid": object.metadata.uid}, "status": fields}));
        cx.record_write(&api.patch_status(cx.key().name(), &params, &patch).await?);
        Ok(())
    }
}

/// Parses the period of an annotation; `None` if it is zero.
fn annotated_period(text: &str) -> Result<Option<Duration>, String> {
    match parse_unsigned_duration(text) {
        Some(period) => Ok(Some(period.max(MIN_ANNOTATED_PERIOD)).filter(|_| !period.is_zero())),
        None => Err(format!(
            "Unable to parse reconcile period annotation: {RECONCILE_PERIOD} is {text:?}, but must be a duration such as 30s"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferrals_have_growing_delays_until_a_run_ends() {
        let deferrals = Deferrals::default();
        let (key, other) = (ObjectKey::new(Some("b"), "a"), ObjectKey::new(Some("b"), "z"));
        for seconds in [5, 10, 20, 40, 60, 60] {
            assert_eq!(deferrals.next(&key), Duration::from_secs(seconds));
        }
        assert_eq!(deferrals.next(&other), DEFERRAL.base_delay);
        deferrals.end(&key);
        assert_eq!(deferrals.next(&key), DEFERRAL.base_delay);
        for number in 0..=MAX_DEFERRED {
            deferrals.next(&ObjectKey::new(Some("c"), &number.to_string()));
        }
        assert_eq!(deferrals.0.lock().len(), MAX_DEFERRED);
    }

    #[test]
    fn annotated_period_has_a_minimum() {
        for (text, seconds) in [("1ns", 1), ("999ms", 1), ("1s", 1), ("1m", 60)] {
            assert_eq!(annotated_period(text), Ok(Some(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(annotated_period("0"), Ok(None));
        assert!(annotated_period("5").is_err());
    }
}
