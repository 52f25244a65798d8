//! The stages of a reconcile that converge a release to its custom resource.
//!
//! Each stage either ends the reconcile with its progress, or leaves the decision to the next stage.

use super::rendering::Rendering;
use super::rollback::{Rollback, restored_revision, rolled_back_upgrade};
use super::{Plan, Request};
use crate::history::{self, Contents, History, NoMemory, RevisionAnnotations, StoredRevision};
use crate::install::{Progress, time_to_retry};
use crate::lookup::Visibility;
use crate::resources::Owner;
use crate::status::{FailedOperation, ReleaseError, WaitReason};
use crate::storage::{Revision, State};
use crate::verified::is_same;
use flyball::{Context, Event, Result};
use flyball_chart::Seed;
use flyball_core::memory;
use kube::core::DynamicObject;
use std::ops::ControlFlow::{self, Break, Continue};

/// The stored state of a release, and the desired one, in one reconcile.
struct Attempt<'a> {
    plan: &'a Plan<'a>,
    object: &'a DynamicObject,
    cx: &'a Context<DynamicObject>,
    request: Request<'a>,
    history: History,
    /// The deployed revision in the history.
    current: Option<StoredRevision>,
    /// The last revision, if it is newer than the deployed one.
    newer: Option<Revision>,
    /// The memory of the custom resource and its revisions.
    stored_bytes: usize,
    seed: Seed,
    /// Failures of the last revision, if this attempt has the same inputs.
    failures: u32,
}

impl Plan<'_> {
    /// Advances the release as far as possible. `deployed` is the installed revision, also after a failure; `problems`
    /// are those of invalid Secrets.
    pub(super) async fn converge(
        &self,
        object: &DynamicObject,
        owner: Owner<'_>,
        cx: &Context<DynamicObject>,
        deployed: &mut Option<Revision>,
        problems: &mut Vec<String>,
    ) -> Result<Progress, ReleaseError> {
        let attempt = match self.read_history(object, owner, cx, deployed, problems).await? {
            Continue(attempt) => attempt,
            Break(progress) => return Ok(progress),
        };
        let note = match self.roll_back(cx, object, &attempt.request, &attempt.history, deployed, &attempt.seed).await?
        {
            Rollback::NotDue => String::new(),
            Rollback::Impossible(reason) => format!("; not rolled back: {reason}"),
            Rollback::Begun(progress) => return Ok(progress),
        };
        let attempt = match attempt.resume_pending_or_failed(deployed, &note).await? {
            Continue(attempt) => attempt,
            Break(progress) => return Ok(progress),
        };
        match attempt.keep_deployed_if_current(deployed.as_ref()).await? {
            Continue(()) => attempt.render_and_start(deployed).await,
            Break(progress) => Ok(progress),
        }
    }

    /// Reads the stored revisions and the desired state, and makes the custom resource the owner of the release.
    async fn read_history<'a>(
        &'a self,
        object: &'a DynamicObject,
        owner: Owner<'a>,
        cx: &'a Context<DynamicObject>,
        deployed: &mut Option<Revision>,
        problems: &mut Vec<String>,
    ) -> Result<ControlFlow<Progress, Attempt<'a>>, ReleaseError> {
        let reconcile = |what| ReleaseError::of(FailedOperation::Reconcile, what);
        let mut history = History::read(cx, &owner).await.map_err(reconcile("failed to retrieve release history"))?;
        let contents = self.contents(cx, &mut history).await.map_err(reconcile("failed to get deployed release"))?;
        let Some(Contents { deployed: found, newer }) = contents else {
            return Ok(Break(Progress::Waits(WaitReason::MemoryToRead)));
        };
        problems.clone_from(&history.problems);
        self.check_owner(cx, &owner, &mut history).await.map_err(reconcile("failed to get helm release name"))?;
        let current = history.deployed().cloned();
        let stored_bytes = contents_size(object, [found.as_ref(), newer.as_ref()]);
        *deployed = found;
        if !self.slots.may_hold(&self.share, stored_bytes) {
            return Ok(Break(Progress::Waits(WaitReason::Memory)));
        }
        history.delete_surplus_chunks(cx).await.map_err(reconcile("failed to delete obsolete chunks"))?;
        let request = self.request(object, owner).map_err(reconcile("failed to get candidate release"))?;
        let run = self.extensions.run_pre_hooks(cx, object, request.values.as_map()).await;
        run.map_err(reconcile("the function before the release failed"))?;
        let seed = match history.revisions.iter().rev().find_map(|stored| stored.annotations().seed) {
            Some(seed) => seed,
            None if self.is_deterministic => Seed::from_rng(cx.rng()),
            None => {
                let failed = ReleaseError::of(attempted(current.as_ref()), "failed to draw a seed");
                Seed::from_os().map_err(|error| failed(error.into()))?
            }
        };
        let attempt =
            Attempt { plan: self, object, cx, request, history, current, newer, stored_bytes, seed, failures: 0 };
        Ok(Continue(attempt))
    }

    /// Reads the stored revisions; `None` if there is no memory for them now.
    pub(super) async fn contents(
        &self,
        cx: &Context<DynamicObject>,
        history: &mut History,
    ) -> Result<Option<Contents>> {
        match history.contents(cx, self.slots, &self.share, self.source.chart_name()).await {
            Err(error) if error.downcast_ref::<NoMemory>().is_some() => Ok(None),
            contents => contents.map(Some),
        }
    }
}

impl Attempt<'_> {
    /// Returns the operation that this attempt performs, for its errors.
    fn operation(&self) -> FailedOperation {
        attempted(self.current.as_ref())
    }

    /// Returns the deployed revision, unless its last operation failed.
    fn installed(&self) -> Option<&StoredRevision> {
        self.current.as_ref().filter(|current| current.state == State::Deployed)
    }

    /// Returns true if a revision is newer than the deployed one.
    fn is_newer(&self, stored: &StoredRevision) -> bool {
        self.current.as_ref().is_none_or(|current| current.version < stored.version)
    }

    /// Advances a pending revision; reports a failed one until it is retried.
    async fn resume_pending_or_failed(
        self,
        deployed: &mut Option<Revision>,
        note: &str,
    ) -> Result<ControlFlow<Progress, Self>, ReleaseError> {
        match self.history.last().filter(|last| self.is_newer(last)).cloned() {
            Some(last) => self.resume(last, deployed, note).await,
            None => self.keep_rolled_back(deployed.as_ref()).await,
        }
    }

    async fn resume(
        mut self,
        last: StoredRevision,
        deployed: &mut Option<Revision>,
        note: &str,
    ) -> Result<ControlFlow<Progress, Self>, ReleaseError> {
        let operation = self.operation();
        let failed = |what| ReleaseError::of(operation, what);
        let annotations = last.annotations();
        let is_same_input = annotations.inputs == self.request.inputs;
        if is_same_input
            && last.state.is_pending()
            && let Some(revision) = self.newer.clone()
        {
            let genuine =
                self.plan.is_rendered_by_chart(self.cx, &self.request, last.version, &revision, &self.seed).await;
            match genuine.map_err(failed("failed to verify the pending release"))? {
                Some(true) => return self.advance(last, revision, annotations, deployed).await.map(Break),
                Some(false) => tracing::warn!(
                    release = self.request.owner.release,
                    version = last.version,
                    "the pending revision differs from what the chart renders: creating a new one"
                ),
                None => return Ok(Break(Progress::Waits(WaitReason::Slot))),
            }
        }
        if is_same_input && last.state == State::Failed {
            self.failures = annotations.failures;
            if annotations.options == self.request.options
                && let Some(retry_after) = time_to_retry(self.cx, &last, self.failures)
            {
                let problem = self.newer.map(|revision| revision.info.description).unwrap_or_default() + note;
                let failed_revision = Some(last.version);
                return Ok(Break(Progress::Failed {
                    failed_operation: operation,
                    problem,
                    retry_after,
                    failed_revision,
                }));
            }
        }
        // The next attempt replaces revisions that were never deployed.
        let is_stale =
            |attempt: &Self, stored: &StoredRevision| stored.state != State::Superseded && attempt.is_newer(stored);
        while self.history.last().is_some_and(|last| is_stale(&self, last)) {
            self.history.delete_last(self.cx).await.map_err(failed("failed to delete stale release version"))?;
        }
        Ok(Continue(self))
    }

    /// Repairs the revision to which a failed upgrade was rolled back, until the upgrade is retried.
    async fn keep_rolled_back(
        mut self,
        deployed: Option<&Revision>,
    ) -> Result<ControlFlow<Progress, Self>, ReleaseError> {
        let Some((upgrade, rollback)) = rolled_back_upgrade(&self.history, &self.request.inputs) else {
            return Ok(Continue(self));
        };
        let failed_operation = self.operation();
        let failed = |what| ReleaseError::of(failed_operation, what);
        let (plan, cx) = (self.plan, self.cx);
        let RevisionAnnotations { failures, options, .. } = upgrade.annotations();
        if options == self.request.options
            && let (Some(retry_after), Some(revision)) = (time_to_retry(cx, rollback, failures), deployed)
        {
            let problem = plan.describe(cx, upgrade).await.map_err(failed("failed to read the failed release"))?;
            let problem = format!("{problem}; rolled back to revision {}", restored_revision(revision));
            let is_restorable = plan.is_restorable(cx, &self.request, revision, &self.seed).await;
            if is_restorable.map_err(failed("failed to verify the deployed release"))? == Some(true) {
                plan.repair(cx, &self.request, revision).await?;
            }
            let failed_revision = Some(upgrade.version);
            return Ok(Break(Progress::Failed { failed_operation, problem, retry_after, failed_revision }));
        }
        self.failures = failures;
        Ok(Continue(self))
    }

    /// Repairs the deployed revision if the chart still renders it from the same inputs.
    async fn keep_deployed_if_current(
        &self,
        deployed: Option<&Revision>,
    ) -> Result<ControlFlow<Progress>, ReleaseError> {
        let (plan, cx, request, seed) = (self.plan, self.cx, &self.request, &self.seed);
        let (Some(current), Some(revision)) = (self.installed(), deployed) else { return Ok(Continue(())) };
        if current.annotations().inputs != request.inputs {
            return Ok(Continue(()));
        }
        let genuine = plan.is_rendered_by_chart(cx, request, current.version, revision, seed).await;
        let failed = ReleaseError::of(FailedOperation::Reconcile, "failed to verify the deployed release");
        let Some(genuine) = genuine.map_err(failed)? else {
            return Ok(Break(Progress::Waits(WaitReason::Slot)));
        };
        let is_current = genuine
            && (!plan.source.looks_up() || plan.matches_deployed(cx, request, current.version, revision, seed).await);
        if is_current { plan.repair(cx, request, revision).await.map(Break) } else { Ok(Continue(())) }
    }

    /// Renders the next revision, and starts to install it unless it equals the deployed one.
    async fn render_and_start(mut self, deployed: &mut Option<Revision>) -> Result<Progress, ReleaseError> {
        let operation = self.operation();
        let failed = |what| ReleaseError::of(operation, what);
        let (plan, cx, owner) = (self.plan, self.cx, self.request.owner);
        let missing = self.missing_revision();
        if let Some(known) = missing {
            let is_behind = self.history.is_behind(cx, &owner, known).await;
            if is_behind.map_err(failed("failed to retrieve release history"))? {
                return Ok(Progress::Waits(WaitReason::Cache));
            }
        }
        let (attempted_operation, what) = match &self.current {
            Some(_) => (FailedOperation::Reconcile, "failed to get candidate release"),
            None => (FailedOperation::Install, "failed to install release"),
        };
        let rendering = Rendering {
            version: self.history.next_version(),
            seed: self.seed.clone(),
            at: cx.now(),
            visibility: Visibility::All,
        };
        let candidate = plan.candidate(cx, &self.request, deployed.as_ref(), rendering).await;
        let Some((candidate, lookups)) = candidate.map_err(ReleaseError::of(attempted_operation, what))? else {
            return Ok(Progress::Waits(WaitReason::Slot));
        };
        if !plan.slots.may_hold(&plan.share, self.stored_bytes + candidate.size()) {
            return Ok(Progress::Waits(WaitReason::Memory));
        }
        if plan.watch.upgrade_crds {
            let upgraded = crate::crds::upgrade(cx, plan.kinds, plan.source.crds()).await;
            upgraded.map_err(failed("failed to upgrade the chart's CRDs"))?;
        }
        let annotations = RevisionAnnotations {
            inputs: self.request.inputs.clone(),
            progress: 0,
            failures: self.failures,
            options: self.request.options.clone(),
            seed: Some(self.seed.clone()),
        };
        if let (Some(current), Some(revision)) = (self.installed(), &*deployed)
            && revision.manifest == candidate.manifest
            && (is_same(revision, &candidate) || plan.verified.has(owner.namespace, owner.release, revision))
        {
            // The next revision was rendered, so the lookups for this one are unknown.
            plan.verified.add(owner.namespace, owner.release, revision, Vec::new());
            // Values or chart changed, but not the rendered objects.
            let annotated = history::annotate(cx, current, &annotations).await;
            annotated.map_err(failed("failed to record the inputs of the release"))?;
            return plan.repair(cx, &self.request, revision).await;
        }
        plan.report_overridden_values(cx);
        if let Some(known) = missing {
            self.report_deleted_secrets(known);
        }
        plan.verified.add(owner.namespace, owner.release, &candidate, vec![lookups]);
        let stored = plan.create(cx, &mut self.history, &candidate, &annotations).await;
        let stored = stored.map_err(failed("failed to record the release"))?;
        self.advance(stored, candidate, annotations, deployed).await
    }

    /// Returns the revision in the status, if the history does not contain it or a later one.
    fn missing_revision(&self) -> Option<u64> {
        let known = self.object.data["status"]["release"]["revision"].as_u64()?;
        let last = self.history.last().map(|stored| u64::from(stored.version));
        // A Secret that is not valid has a condition of its own.
        (self.history.problems.is_empty() && last.is_none_or(|last| last < known)).then_some(known)
    }

    /// Publishes an event that the Secret of this revision, or of all revisions, was deleted.
    fn report_deleted_secrets(&self, known: u64) {
        let (release, next) = (self.request.owner.release, self.history.next_version());
        let (what, how) = match self.history.last().map(|stored| stored.version) {
            None => ("the Secrets of all revisions were", "installed again, and adopts its objects".to_owned()),
            Some(last) => ("the Secret of this revision was", format!("upgraded from revision {last}")),
        };
        let note = format!(
            "Release {release} was at revision {known}, but {what} deleted: it is {how}, as revision {next}; earlier \
             values and the history are lost"
        );
        tracing::warn!(release, "{note}");
        self.cx.event(Event::warning("ReleaseSecretsDeleted", note));
    }

    /// Advances a revision that is pending.
    async fn advance(
        self,
        stored: StoredRevision,
        revision: Revision,
        annotations: RevisionAnnotations,
        deployed: &mut Option<Revision>,
    ) -> Result<Progress, ReleaseError> {
        let Self { plan, object, cx, request, history, seed, .. } = self;
        let operation = plan.operation(cx, object, request.owner, history, stored, revision, annotations);
        plan.advance(operation, object, &request, deployed, &seed).await
    }
}

impl Plan<'_> {
    /// Publishes the paths of values that `watches.yaml` overrides. The values themselves may be secret.
    fn report_overridden_values(&self, cx: &Context<DynamicObject>) {
        for path in self.watch.override_values.keys() {
            let note = format!("Chart value {path:?} overridden by operator's watches.yaml");
            cx.event(Event::warning("OverrideValuesInUse", note));
        }
    }
}

/// Returns the operation of an attempt: an upgrade if a revision is deployed.
fn attempted(current: Option<&StoredRevision>) -> FailedOperation {
    if current.is_some() { FailedOperation::Upgrade } else { FailedOperation::Install }
}

/// Returns the size of a custom resource's spec with that of its revisions.
pub(super) fn contents_size(object: &DynamicObject, revisions: [Option<&Revision>; 2]) -> usize {
    memory::of(&object.data["spec"]) + revisions.into_iter().flatten().map(Revision::size).sum::<usize>()
}
