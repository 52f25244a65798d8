//! The reconciler: a custom resource becomes a release of a chart, with the spec as values.
//!
//! All state of a release is in the cluster: its revisions in Secrets, its objects, and the custom resource. So a
//! reconcile first compares the current revision with the desired one, and continues where the last reconcile ended.
//! A reconcile never blocks: changes of the awaited objects trigger the next one.

mod rendering;
mod rollback;
mod uninstall;

use self::rendering::Rendering;
use self::rollback::{Rollback, origin, rolled_back_upgrade};
use crate::annotation::{FINALIZER, PAUSED, RECONCILE_PERIOD, UNINSTALL_WAIT, UPGRADE_FORCE};
use crate::current::CurrentChart;
use crate::extensions::Extensions;
use crate::history::{self, Contents, History, NoMemory, RevisionAnnotations, StoredRevision};
use crate::install::{Operation, Progress, time_to_retry};
use crate::kinds::Kinds;
use crate::lookup::Visibility;
use crate::rendering::{Share, Slots, estimate};
use crate::resources::Owner;
use crate::source::Source;
use crate::status::{self, FailedOperation, ReleaseError, Report};
use crate::storage::{Revision, State};
use crate::verified::{VerifiedRevisions, is_same};
use crate::watches::{Watch, period};
use flyball::{Action, Context, Error, Event, Kind, Reconcile, Result};
use flyball_chart::{Seed, Values};
use flyball_core::memory;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Polling interval, used when no watch event arrives.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Polling interval of a paused custom resource that is being deleted. The end of the pause is a watch event.
const PAUSED_INTERVAL: Duration = Duration::from_hours(1);
/// Message while other long renderings occupy the slots.
const WAITING_FOR_SLOT: &str = "waiting for other releases to be rendered";
/// Message while other large releases occupy the memory, and the stored release cannot be read.
const WAITING_TO_READ: &str = "waiting for other large releases to read the stored one";
/// Message while other large releases occupy the memory.
const WAITING_FOR_MEMORY: &str = "waiting for other large releases";

/// Creates releases for the custom resources of one kind.
#[derive(Debug)]
pub(crate) struct Releases {
    pub(crate) watch: Watch,
    /// Random values are reproducible, for simulations.
    pub(crate) repeats: bool,
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
    repeats: bool,
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
            Ok(Progress::Waits(waits)) if waits == WAITING_TO_READ => Ok(Action::requeue_after(POLL_INTERVAL)),
            Ok(Progress::Waits(waits)) => {
                let report = Report { waits: Some(waits), ..report };
                announce(cx, before, &report);
                cx.set_status(&report.status()).await?;
                Ok(Action::requeue_after(POLL_INTERVAL))
            }
            Ok(Progress::RollsBack { problem, waits }) => {
                warn(cx, before, FailedOperation::Upgrade, &problem);
                let failed_operation = Some((FailedOperation::Upgrade, problem));
                let report = Report { waits: Some(waits), failed_operation, ..report };
                announce(cx, before, &report);
                cx.set_status(&report.status()).await?;
                Ok(Action::requeue_after(POLL_INTERVAL))
            }
            Ok(Progress::Failed { failed_operation, problem, retry_after }) => {
                warn(cx, before, failed_operation, &problem);
                cx.set_status(&Report { failed_operation: Some((failed_operation, problem)), ..report }.status())
                    .await?;
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
        let waits = object.annotations().get(UNINSTALL_WAIT).is_some_and(|waits| waits == "true");
        match self.plan(&source, &namespace).uninstall(object, owner, cx, waits).await {
            Ok(Progress::Done) => {
                self.verified.remove(&namespace, &name);
                Ok(Action::done())
            }
            Ok(Progress::Waits(_) | Progress::RollsBack { .. }) => Ok(Action::requeue_after(POLL_INTERVAL)),
            Ok(Progress::Failed { failed_operation, problem, retry_after }) => {
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

/// Publishes an event when a deployed release begins to wait for an upgrade or a rollback: one for the whole wait.
fn announce(cx: &Context<DynamicObject>, before: &Value, report: &Report<'_>) {
    let (Some(deployed), Some(waits)) = (report.deployed, &report.waits) else { return };
    let reason = report.progressing();
    // Renderings wait briefly, and all at once after a start.
    if waits != WAITING_FOR_SLOT && !status::has_reason(before, status::PROGRESSING, reason) {
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
            repeats: self.repeats,
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
    /// Advances the release as far as possible. `deployed` is the installed revision, also after a failure; `problems`
    /// are those of invalid Secrets.
    async fn converge(
        &self,
        object: &DynamicObject,
        owner: Owner<'_>,
        cx: &Context<DynamicObject>,
        deployed: &mut Option<Revision>,
        problems: &mut Vec<String>,
    ) -> Result<Progress, ReleaseError> {
        let reconcile = |what| ReleaseError::of(FailedOperation::Reconcile, what);
        let mut history = History::read(cx, &owner).await.map_err(reconcile("failed to retrieve release history"))?;
        let contents = self.contents(cx, &mut history).await.map_err(reconcile("failed to get deployed release"))?;
        let Some(Contents { deployed: found, newer }) = contents else {
            return Ok(Progress::Waits(WAITING_TO_READ.to_owned()));
        };
        problems.clone_from(&history.problems);
        let current = history.deployed().cloned();
        let failed_operation = if current.is_some() { FailedOperation::Upgrade } else { FailedOperation::Install };
        let failed = |what| ReleaseError::of(failed_operation, what);
        self.check_owner(cx, &owner, &mut history).await.map_err(reconcile("failed to get helm release name"))?;
        // It may have got an owner.
        let current = history.deployed().cloned();
        let stored = contents_size(object, [found.as_ref(), newer.as_ref()]);
        *deployed = found;
        if !self.slots.may_hold(&self.share, stored) {
            return Ok(Progress::Waits(WAITING_FOR_MEMORY.to_owned()));
        }
        history.delete_surplus_chunks(cx).await.map_err(reconcile("failed to delete obsolete chunks"))?;
        let request = self.request(object, owner).map_err(reconcile("failed to get candidate release"))?;
        let run = self.extensions.run_pre_hooks(cx, object, request.values.as_map()).await;
        run.map_err(reconcile("the function before the release failed"))?;

        let seed = match history.revisions.iter().rev().find_map(|stored| stored.annotations().seed) {
            Some(seed) => seed,
            None if self.repeats => Seed::from_rng(cx.rng()),
            None => Seed::from_os().map_err(|error| failed("failed to draw a seed")(error.into()))?,
        };
        let mut failures = 0;
        let mut note = String::new();
        match self.roll_back(cx, object, &request, &history, deployed, &seed).await? {
            Rollback::NotDue => {}
            Rollback::Impossible(reason) => note = format!("; not rolled back: {reason}"),
            Rollback::Begun(progress) => return Ok(progress),
        }
        if let Some(last) =
            history.last().filter(|last| current.as_ref().is_none_or(|current| current.version < last.version))
        {
            let (last, annotations) = (last.clone(), last.annotations());
            let same = annotations.inputs == request.inputs;
            if same
                && last.state.is_pending()
                && let Some(revision) = newer.clone()
            {
                let genuine = self.is_genuine(cx, &request, last.version, &revision, &seed).await;
                match genuine.map_err(failed("failed to verify the pending release"))? {
                    Some(true) => {
                        let operation = self.operation(cx, object, owner, history, last, revision, annotations);
                        return self.advance(operation, object, &request, deployed, &seed).await;
                    }
                    Some(false) => tracing::warn!(
                        release = owner.release,
                        version = last.version,
                        "the pending revision differs from what the chart renders: creating a new one"
                    ),
                    None => return Ok(Progress::Waits(WAITING_FOR_SLOT.to_owned())),
                }
            }
            if same && last.state == State::Failed {
                failures = annotations.failures;
                if let Some(retry_after) = time_to_retry(cx, &last, failures) {
                    let problem = newer.map(|revision| revision.info.description).unwrap_or_default() + &note;
                    return Ok(Progress::Failed { failed_operation, problem, retry_after });
                }
            }
            // The next attempt replaces revisions that were never deployed.
            let is_stale = |stored: &StoredRevision| {
                stored.state != State::Superseded
                    && current.as_ref().is_none_or(|current| current.version < stored.version)
            };
            while history.last().is_some_and(is_stale) {
                history.delete_last(cx).await.map_err(failed("failed to delete stale release version"))?;
            }
        } else if let Some((upgrade, rollback)) = rolled_back_upgrade(&history, &request.inputs) {
            failures = upgrade.annotations().failures;
            if let (Some(retry_after), Some(revision)) = (time_to_retry(cx, rollback, failures), &*deployed) {
                let problem = self.describe(cx, upgrade).await.map_err(failed("failed to read the failed release"))?;
                let problem = format!("{problem}; rolled back to revision {}", origin(revision));
                if self
                    .is_restorable(cx, &request, revision, &seed)
                    .await
                    .map_err(failed("failed to verify the deployed release"))?
                    == Some(true)
                {
                    self.repair(cx, &request, revision).await?;
                }
                return Ok(Progress::Failed { failed_operation, problem, retry_after });
            }
        }
        let installed = current.as_ref().filter(|current| current.state == State::Deployed);
        if let (Some(current), Some(revision)) = (installed, &*deployed)
            && current.annotations().inputs == request.inputs
        {
            let genuine = self
                .is_genuine(cx, &request, current.version, revision, &seed)
                .await
                .map_err(ReleaseError::of(FailedOperation::Reconcile, "failed to verify the deployed release"))?;
            let Some(genuine) = genuine else { return Ok(Progress::Waits(WAITING_FOR_SLOT.to_owned())) };
            if genuine
                && (!self.source.looks_up()
                    || self.is_as_deployed(cx, &request, current.version, revision, &seed).await)
            {
                return self.repair(cx, &request, revision).await;
            }
        }
        let (attempted_operation, what) = match &current {
            Some(_) => (FailedOperation::Reconcile, "failed to get candidate release"),
            None => (FailedOperation::Install, "failed to install release"),
        };
        let rendering = Rendering {
            version: history.next_version(),
            seed: seed.clone(),
            at: cx.now(),
            visibility: Visibility::All,
        };
        let candidate = self.candidate(cx, &request, deployed.as_ref(), rendering).await;
        let Some((candidate, lookups)) = candidate.map_err(ReleaseError::of(attempted_operation, what))? else {
            return Ok(Progress::Waits(WAITING_FOR_SLOT.to_owned()));
        };
        if !self.slots.may_hold(&self.share, stored + candidate.size()) {
            return Ok(Progress::Waits(WAITING_FOR_MEMORY.to_owned()));
        }
        if self.watch.upgrade_crds && current.is_some() {
            let upgraded = crate::crds::upgrade(cx, self.kinds, self.source.crds()).await;
            upgraded.map_err(failed("failed to upgrade the chart's CRDs"))?;
        }
        let annotations =
            RevisionAnnotations { inputs: request.inputs.clone(), progress: 0, failures, seed: Some(seed.clone()) };
        if let (Some(current), Some(revision)) = (installed, &*deployed)
            && revision.manifest == candidate.manifest
            && (is_same(revision, &candidate) || self.verified.has(owner.namespace, owner.release, revision))
        {
            // The next revision was rendered, so the lookups for this one are unknown.
            self.verified.add(owner.namespace, owner.release, revision, Vec::new());
            // Values or chart changed, but not the rendered objects.
            history::annotate(cx, current, &annotations)
                .await
                .map_err(failed("failed to record the inputs of the release"))?;
            return self.repair(cx, &request, revision).await;
        }
        // Without the values, which may be secret.
        for path in self.watch.override_values.keys() {
            let note = format!("Chart value {path:?} overridden by operator's watches.yaml");
            cx.event(Event::warning("OverrideValuesInUse", note));
        }
        self.verified.add(owner.namespace, owner.release, &candidate, vec![lookups]);
        let stored = self
            .create(cx, &mut history, &candidate, &annotations)
            .await
            .map_err(failed("failed to record the release"))?;
        let operation = self.operation(cx, object, owner, history, stored, candidate, annotations);
        self.advance(operation, object, &request, deployed, &seed).await
    }

    /// Reads the stored revisions; `None` if there is no memory for them now.
    async fn contents(&self, cx: &Context<DynamicObject>, history: &mut History) -> Result<Option<Contents>> {
        match history.contents(cx, self.slots, &self.share, self.source.chart_name()).await {
            Err(error) if error.downcast_ref::<NoMemory>().is_some() => Ok(None),
            contents => contents.map(Some),
        }
    }

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
            Progress::Failed { failed_operation, problem, retry_after } => {
                match self.roll_back(cx, object, request, &history, deployed, seed).await? {
                    Rollback::NotDue => Ok(Progress::Failed { failed_operation, problem, retry_after }),
                    Rollback::Impossible(reason) => {
                        let problem = format!("{problem}; not rolled back: {reason}");
                        Ok(Progress::Failed { failed_operation, problem, retry_after })
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

/// Returns the size of a custom resource's spec with that of its revisions.
fn contents_size(object: &DynamicObject, revisions: [Option<&Revision>; 2]) -> usize {
    memory::of(&object.data["spec"]) + revisions.into_iter().flatten().map(Revision::size).sum::<usize>()
}

/// Describes a Secret that is not a revision of the release, and the remedy.
fn invalid(problem: &str) -> String {
    format!("{problem}: delete the Secret")
}
