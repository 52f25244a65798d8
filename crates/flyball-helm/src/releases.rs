//! The reconciler: a custom resource becomes a release of a chart, with the spec as values.
//!
//! All state of a release is in the cluster: its revisions in Secrets, its objects, and the custom resource. So a
//! reconcile first compares the current revision with the desired one, and continues where the last reconcile ended.
//! A reconcile never blocks: changes of the awaited objects trigger the next one.

mod convergence;
mod rendering;
mod rollback;
mod uninstall;

use self::rollback::Rollback;
use crate::annotation::{FINALIZER, PAUSED, RECONCILE_PERIOD, ROLLBACK_FORCE, UNINSTALL_WAIT, UPGRADE_FORCE};
use crate::current::CurrentChart;
use crate::extensions::Extensions;
use crate::history::{self, History, RevisionAnnotations, StoredRevision};
use crate::install::{Operation, Progress};
use crate::kinds::Kinds;
use crate::rendering::{Share, Slots, estimate};
use crate::resources::Owner;
use crate::source::Source;
use crate::status::{self, FailedOperation, ReleaseError, Report, WaitReason};
use crate::storage::Revision;
use crate::verified::VerifiedRevisions;
use crate::watches::{DEFAULT_TIMEOUT, Watch, period};
use flyball::{Action, Context, Error, Event, Kind, Reconcile, Result};
use flyball_chart::{Seed, Values};
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Polling interval, used when no watch event arrives.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Polling interval of a paused custom resource that is being deleted. The end of the pause is a watch event.
const PAUSED_INTERVAL: Duration = Duration::from_hours(1);

/// Creates releases for the custom resources of one kind.
#[derive(Debug)]
pub(crate) struct Releases {
    pub(crate) watch: Watch,
    /// Random values are reproducible, for simulations.
    pub(crate) is_deterministic: bool,
    pub(crate) primary: Kind,
    pub(crate) chart: Arc<CurrentChart>,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) verified: VerifiedRevisions,
    pub(crate) extensions: Arc<Extensions>,
}

/// The inputs of one reconcile; reloading the chart does not change them.
struct Plan<'p> {
    watch: &'p Watch,
    is_deterministic: bool,
    kinds: &'p Arc<Kinds>,
    slots: &'p Slots,
    verified: &'p VerifiedRevisions,
    extensions: &'p Extensions,
    source: &'p Source,
    share: Share,
}

/// The desired state of a custom resource.
struct Request<'a> {
    owner: Owner<'a>,
    values: Values,
    /// The digest of chart and values.
    inputs: String,
    /// The options in annotations of the custom resource and in its entry of `watches.yaml`.
    options: String,
}

impl Reconcile for Releases {
    type Resource = DynamicObject;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, object: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
        if is_paused(object) {
            cx.set_status(&status::paused(&object.data["status"])).await?;
            return Ok(Action::done());
        }
        let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
        let uid = object.uid().unwrap_or_default();
        let owner = Owner { release: &name, namespace: &namespace, kind: &self.primary, uid: &uid };
        let (mut deployed, mut problems) = (None, Vec::new());
        let source = self.chart.get();
        let converged = self.plan(&source, &namespace).converge(object, owner, cx, &mut deployed, &mut problems).await;
        let before = &object.data["status"];
        let problems: Vec<String> = problems.iter().map(|problem| invalid(problem)).collect();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        if let Some(problem) = &problem
            && !status::has_condition(before, status::INVALID_REVISION, problem)
        {
            cx.event(Event::warning(status::INVALID_REVISION.1, problem));
        }
        let report = Report { deployed: deployed.as_ref(), invalid: problem, ..Report::default() };
        match converged {
            Ok(Progress::Done) => {
                cx.set_status(&report.status()).await?;
                if let Some(deployed) = &deployed {
                    let run = self.extensions.run_post_hooks(cx, object, deployed).await;
                    run.map_err(|error| error.context("the function after the release failed"))?;
                }
                let own = object.annotations().get(RECONCILE_PERIOD).and_then(|text| period(text));
                let period = own.or(self.watch.reconcile_period).or(source.period());
                Ok(period.map_or(Action::done(), Action::requeue_after))
            }
            // The state of the release is unknown, so its status remains.
            Ok(Progress::Waits(WaitReason::MemoryToRead | WaitReason::Cache)) => {
                Ok(Action::requeue_after(POLL_INTERVAL))
            }
            Ok(Progress::Waits(waits)) => {
                let action = poll(cx, &waits);
                let report = Report { waits: Some(waits), ..report };
                publish_waiting_event(cx, before, &report);
                cx.set_status(&report.status()).await?;
                Ok(action)
            }
            Ok(Progress::RollsBack { problem, waits, failed_revision }) => {
                warn(cx, before, FailedOperation::Upgrade, &problem);
                let failed_operation = Some((FailedOperation::Upgrade, problem));
                let (failed_revision, action) = (Some(failed_revision), poll(cx, &waits));
                let report = Report { waits: Some(waits), failed_operation, failed_revision, ..report };
                publish_waiting_event(cx, before, &report);
                cx.set_status(&report.status()).await?;
                Ok(action)
            }
            Ok(Progress::Failed { failed_operation, problem, retry_after, failed_revision }) => {
                warn(cx, before, failed_operation, &problem);
                let failed_operation = Some((failed_operation, problem));
                cx.set_status(&Report { failed_operation, failed_revision, ..report }.status()).await?;
                Ok(Action::requeue_after(retry_after))
            }
            Err(ReleaseError { failed_operation, error }) => {
                warn(cx, before, failed_operation, &error.to_string());
                let failed_operation = Some((failed_operation, error.to_string()));
                write_status(cx, &Report { failed_operation, ..report }).await;
                Err(error)
            }
        }
    }

    async fn finalize(&self, object: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
        if is_paused(object) {
            cx.set_status(&status::paused(&object.data["status"])).await?;
            return Ok(Action::requeue_after(PAUSED_INTERVAL));
        }
        let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
        let uid = object.uid().unwrap_or_default();
        let owner = Owner { release: &name, namespace: &namespace, kind: &self.primary, uid: &uid };
        let source = self.chart.get();
        match self.plan(&source, &namespace).uninstall(object, owner, cx, does_wait(object)).await {
            Ok(Progress::Done) => {
                self.verified.remove(&namespace, &name);
                Ok(Action::done())
            }
            Ok(Progress::Waits(waits) | Progress::RollsBack { waits, .. }) => Ok(poll(cx, &waits)),
            Ok(Progress::Failed { failed_operation, problem, retry_after, .. }) => {
                warn(cx, &object.data["status"], failed_operation, &problem);
                cx.set_status(
                    &Report { failed_operation: Some((failed_operation, problem)), ..Report::default() }.status(),
                )
                .await?;
                Ok(Action::requeue_after(retry_after))
            }
            Err(error) => {
                warn(cx, &object.data["status"], FailedOperation::Uninstall, &error.to_string());
                let failed_operation = Some((FailedOperation::Uninstall, error.to_string()));
                write_status(cx, &Report { failed_operation, ..Report::default() }).await;
                Err(error)
            }
        }
    }

    fn estimate_memory(&self, json: &str, _: bool) -> usize {
        estimate(json)
    }

    fn rejected_status(&self, problem: &str) -> Option<Value> {
        let failed_operation = Some((FailedOperation::Reconcile, problem.to_owned()));
        Some(Report { failed_operation, ..Report::default() }.status())
    }
}

fn is_paused(object: &DynamicObject) -> bool {
    object.annotations().get(PAUSED).is_some_and(|paused| paused == "true")
}

/// Publishes an event about a failure, unless the status already reports it: identical failures are one event.
fn warn(cx: &Context<DynamicObject>, before: &Value, failed_operation: FailedOperation, problem: &str) {
    let condition = failed_operation.condition();
    if !status::has_condition(before, condition, problem) {
        cx.event(Event::warning(condition.1, problem));
    }
}

/// Requeues a release that waits: when its timeout ends, at the latest.
fn poll(cx: &Context<DynamicObject>, waits: &WaitReason) -> Action {
    let rest = match waits {
        WaitReason::Object(_, Some(until)) => until.saturating_sub(cx.now().as_second()),
        _ => i64::MAX,
    };
    Action::requeue_after(POLL_INTERVAL.min(Duration::from_secs(rest.max(1).unsigned_abs())))
}

/// Publishes an event when a deployed release begins to wait for an upgrade or a rollback: one for the whole wait.
fn publish_waiting_event(cx: &Context<DynamicObject>, before: &Value, report: &Report<'_>) {
    let (Some(deployed), Some(waits)) = (report.deployed, &report.waits) else { return };
    let reason = report.progressing();
    // Renderings wait briefly, and all at once after a start.
    if *waits != WaitReason::Slot && !status::has_reason(before, status::PROGRESSING, reason) {
        cx.event(Event::normal(reason, format!("Release {} waits: {waits}", deployed.name)));
    }
}

/// Returns true if an annotation of a custom resource is set to true, in Go's notation.
fn is_forced(object: &DynamicObject, annotation: &str, otherwise: bool) -> bool {
    match object.annotations().get(annotation).map(String::as_str) {
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
        _ => otherwise,
    }
}

/// Returns the options of a release that its chart and values do not contain: those in annotations of the custom
/// resource and in its entry of `watches.yaml`, unless they are the defaults. A failed operation is repeated when they
/// change.
fn options(object: &DynamicObject, watch: &Watch) -> String {
    let options = [
        ("upgrade-force", is_forced(object, UPGRADE_FORCE, false)),
        ("no-rollback-force", !is_forced(object, ROLLBACK_FORCE, true)),
        ("uninstall-wait", does_wait(object)),
        ("wait", watch.wait),
        ("no-rollback", !watch.rollback_on_failure),
        ("upgrade-crds", watch.upgrade_crds),
    ];
    let mut set: Vec<String> =
        options.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned()).collect();
    if watch.timeout != DEFAULT_TIMEOUT {
        set.push(format!("timeout={}s", watch.timeout.as_secs()));
    }
    set.join(",")
}

/// Returns true if a custom resource is kept until all objects of its release are deleted.
fn does_wait(object: &DynamicObject) -> bool {
    object.annotations().get(UNINSTALL_WAIT).is_some_and(|waits| waits == "true")
}

/// Writes the status of a failed release. If this write fails as well, the original error is returned.
async fn write_status(cx: &Context<DynamicObject>, report: &Report<'_>) {
    if let Err(error) = cx.set_status(&report.status()).await {
        tracing::warn!(%error, "cannot write the status");
    }
}

impl Releases {
    fn plan<'p>(&'p self, source: &'p Source, namespace: &str) -> Plan<'p> {
        Plan {
            watch: &self.watch,
            is_deterministic: self.is_deterministic,
            kinds: &self.kinds,
            slots: &self.slots,
            verified: &self.verified,
            extensions: &self.extensions,
            source,
            share: Share::of(namespace),
        }
    }
}

impl Plan<'_> {
    /// Creates the Secret of a new revision, after deleting old revisions beyond the limit of the entry.
    async fn create(
        &self,
        cx: &Context<DynamicObject>,
        history: &mut History,
        revision: &Revision,
        annotations: &RevisionAnnotations,
    ) -> Result<StoredRevision> {
        let retained = [history.deployed(), history.last()].map(|stored| stored.map(|stored| stored.version));
        let all = history.obsolete.iter().chain(&history.revisions);
        let surplus = (all.clone().count() + 1).saturating_sub(self.watch.max_history);
        let mut deleted = Vec::new();
        for stored in all.filter(|stored| !retained.contains(&Some(stored.version))).take(surplus) {
            history::delete(cx, stored).await?;
            deleted.push(stored.version);
        }
        history.obsolete.retain(|stored| !deleted.contains(&stored.version));
        history.revisions.retain(|stored| !deleted.contains(&stored.version));
        history.create(cx, self.slots, revision, annotations).await
    }

    #[allow(clippy::too_many_arguments, reason = "each is a part of the operation")]
    fn operation<'a>(
        &'a self,
        cx: &'a Context<DynamicObject>,
        object: &DynamicObject,
        owner: Owner<'a>,
        history: History,
        stored: StoredRevision,
        revision: Revision,
        annotations: RevisionAnnotations,
    ) -> Operation<'a> {
        let definitions = self.source.crds();
        Operation {
            cx,
            watch: self.watch,
            owner,
            kinds: self.kinds,
            slots: self.slots,
            definitions,
            history,
            stored,
            revision,
            annotations,
            failed_upgrade: None,
            options: options(object, self.watch),
            force: is_forced(object, UPGRADE_FORCE, false),
        }
    }

    /// Advances a pending revision. If it fails, a rollback begins.
    async fn advance(
        &self,
        operation: Operation<'_>,
        object: &DynamicObject,
        request: &Request<'_>,
        deployed: &mut Option<Revision>,
        seed: &Seed,
    ) -> Result<Progress, ReleaseError> {
        let cx = operation.cx;
        let (progress, revision, history) = operation.advance(deployed.as_ref()).await?;
        match progress {
            Progress::Done => {
                *deployed = Some(revision);
                Ok(Progress::Done)
            }
            Progress::Failed { failed_operation, mut problem, retry_after, failed_revision } => {
                match self.roll_back(cx, object, request, &history, deployed, seed).await? {
                    Rollback::NotDue => {
                        Ok(Progress::Failed { failed_operation, problem, retry_after, failed_revision })
                    }
                    Rollback::Impossible(reason) => {
                        problem += &format!("; not rolled back: {reason}");
                        Ok(Progress::Failed { failed_operation, problem, retry_after, failed_revision })
                    }
                    Rollback::Begun(progress) => Ok(progress),
                }
            }
            other => Ok(other),
        }
    }

    /// Corrects the objects of a release.
    async fn repair(
        &self,
        cx: &Context<DynamicObject>,
        request: &Request<'_>,
        revision: &Revision,
    ) -> Result<Progress, ReleaseError> {
        let repaired = crate::install::repair(cx, &request.owner, self.kinds, self.slots, revision).await;
        repaired.map_err(ReleaseError::of(FailedOperation::Reconcile, "failed to reconcile release"))?;
        Ok(Progress::Done)
    }

    /// Rejects a release of another chart or another custom resource, and makes the custom resource its owner.
    async fn check_owner(&self, cx: &Context<DynamicObject>, owner: &Owner<'_>, history: &mut History) -> Result<()> {
        let release = owner.release;
        // Besides revisions of this chart, one of another chart is forged.
        if let (None, Some(chart)) = (history.last(), &history.other_chart) {
            let text =
                format!("duplicate release name: found existing release with name {release:?} for chart {chart:?}");
            return Err(Error::from(text).terminal());
        }
        if let Some(other) = history.conflicting_owner(owner) {
            let text = format!(
                "duplicate release name: release {release:?} belongs to {other}: rename one of the custom resources"
            );
            return Err(text.into());
        }
        history.claim(cx, owner).await
    }
}

/// Describes a Secret that is not a revision of the release, and the remedy.
fn invalid(problem: &str) -> String {
    format!("{problem}: delete the Secret")
}
