//! The lifecycle of a revision: pre-hooks, objects, post-hooks; and uninstallation.
//!
//! Steps are numbered, and the number of completed steps is stored in the Secret of the revision, so that each
//! reconcile continues after the last completed step, also after a crash.

use crate::history::{self, History, RevisionAnnotations, StoredRevision};
use crate::hooks::{self, Outcome};
use crate::kinds::Kinds;
use crate::rendering::Slots;
use crate::resources::{self, ManifestError, Owner, Resource};
use crate::stages;
use crate::status::{self, FailedOperation, ReleaseError, Report, WaitReason};
use crate::storage::{HookExecution, Revision, State};
use crate::watches::Watch;
use flyball::{Backoff, Context, Error, Event, Result};
use flyball_core::time::rfc3339;
use kube::core::DynamicObject;
use std::collections::BTreeSet;
use std::time::Duration;

/// Delays before a failed revision is retried.
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_secs(10), max_delay: Duration::from_hours(1) };

/// The progress of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All steps are done.
    Done,
    /// The operation continues later.
    Waits(WaitReason),
    /// An upgrade failed, and the deployed revision is being installed again.
    RollsBack {
        /// The cause of the failure.
        problem: String,
        /// The reason why the rollback waits.
        waits: WaitReason,
        /// Number of the failed revision.
        failed_revision: u32,
    },
    /// The operation failed.
    Failed {
        /// The failed operation.
        failed_operation: FailedOperation,
        /// The cause.
        problem: String,
        /// The delay before the next attempt.
        retry_after: Duration,
        /// Number of the failed revision, unless the operation is an uninstallation.
        failed_revision: Option<u32>,
    },
}

/// An upgrade that failed, and is rolled back.
pub(crate) struct FailedUpgrade {
    /// The digest of its inputs.
    pub(crate) inputs: String,
    /// Number of failures.
    pub(crate) failures: u32,
    /// Its revision, unless it cannot be read.
    pub(crate) revision: Option<Revision>,
}

/// A revision in progress.
pub(crate) struct Operation<'a> {
    pub(crate) cx: &'a Context<DynamicObject>,
    pub(crate) watch: &'a Watch,
    pub(crate) owner: Owner<'a>,
    pub(crate) kinds: &'a Kinds,
    pub(crate) slots: &'a Slots,
    /// CRDs of the chart, which are created first.
    pub(crate) definitions: &'a [Resource],
    pub(crate) history: History,
    pub(crate) stored: StoredRevision,
    pub(crate) revision: Revision,
    pub(crate) annotations: RevisionAnnotations,
    /// The upgrade that the revision rolls back.
    pub(crate) failed_upgrade: Option<FailedUpgrade>,
    /// The options of the release that its chart and values do not contain.
    pub(crate) options: String,
    /// Objects that cannot be changed are recreated.
    pub(crate) force: bool,
}

/// The progress of the hooks of an event.
enum Hooks {
    Done,
    /// For an object, until the end of its timeout in seconds since the Unix epoch.
    Waits(String, Option<i64>),
    Failed(String),
}

impl Operation<'_> {
    /// Installs the revision in place of the deployed one, and returns its new state and the history with it.
    pub(crate) async fn advance(
        mut self,
        before: Option<&Revision>,
    ) -> Result<(Progress, Revision, History), ReleaseError> {
        let (failed_operation, verb, way) = match before {
            Some(_) if self.failed_upgrade.is_some() => {
                (FailedOperation::Upgrade, "failed to roll back release", ["pre-rollback", "post-rollback"])
            }
            Some(_) => (FailedOperation::Upgrade, "failed to upgrade release", ["pre-upgrade", "post-upgrade"]),
            None => (FailedOperation::Install, "failed to install release", ["pre-install", "post-install"]),
        };
        let failed = ReleaseError::of(failed_operation, verb);
        self.cx.set_desired_version(self.stored.version.into());
        let progress = match self.steps(before, way).await {
            Err(error) if before.is_some() && is_rejection(&error) => Ok(Hooks::Failed(error.to_string())),
            progress => progress,
        };
        match progress.map_err(&failed)? {
            Hooks::Done => Ok((Progress::Done, self.revision, self.history)),
            Hooks::Waits(waits, until) => {
                Ok((Progress::Waits(WaitReason::Object(waits, until)), self.revision, self.history))
            }
            Hooks::Failed(problem) => {
                self.revision.info.status = State::Failed;
                self.revision.info.description = format!("{verb}: {problem}");
                match &self.failed_upgrade {
                    // So it delays the next attempt to upgrade.
                    Some(upgrade) => {
                        self.annotations.inputs.clone_from(&upgrade.inputs);
                        self.annotations.failures = upgrade.failures;
                    }
                    None => self.annotations.failures = self.annotations.failures.saturating_add(1),
                }
                self.save().await.map_err(&failed)?;
                let problem = self.revision.info.description.clone();
                tracing::warn!(release = self.owner.release, failures = self.annotations.failures, "{problem}");
                let retry_after = backoff(self.annotations.failures);
                let failed_revision = Some(self.stored.version);
                // The cache may not contain it yet.
                self.history.revisions.retain(|stored| stored.version != self.stored.version);
                self.history.revisions.push(self.stored);
                let failed = Progress::Failed { failed_operation, problem, retry_after, failed_revision };
                Ok((failed, self.revision, self.history))
            }
        }
    }

    async fn steps(&mut self, before: Option<&Revision>, [pre, post]: [&str; 2]) -> Result<Hooks> {
        if before.is_none()
            && self.annotations.progress == 0
            && let Some(waits) = stages::create_crds(self.cx, self.kinds, self.definitions).await?
        {
            return Ok(self.wait(waits));
        }
        let first = hooks::of_event(&self.revision, pre).len();
        match self.run_hooks(pre, 0).await? {
            Hooks::Done => {}
            other => return Ok(other),
        }
        if self.annotations.progress <= first {
            let resources = objects(self.slots, &self.revision).await?;
            if let Some(waits) = self.apply(&resources).await? {
                return Ok(self.wait(waits));
            }
            let replaced = match &self.failed_upgrade {
                Some(upgrade) => upgrade.revision.as_ref(),
                None => before,
            };
            if let Some(replaced) = replaced {
                self.prune(replaced, &resources).await?;
            }
            if !hooks::of_event(&self.revision, post).is_empty() {
                self.annotations.progress = first + 1;
                self.stored = history::annotate(self.cx, &self.stored, &self.annotations).await?;
            }
        }
        match self.run_hooks(post, first + 1).await? {
            Hooks::Done => {}
            other => return Ok(other),
        }
        self.finish(before).await?;
        Ok(Hooks::Done)
    }

    /// Creates and changes the objects as far as their stages permit, and returns the condition that they wait for.
    async fn apply(&self, resources: &[Resource]) -> Result<Option<String>> {
        let applied = stages::apply(self.cx, &self.owner, self.kinds, resources, self.watch.wait).await;
        match applied {
            Err(error) if self.force => {
                let deleted = stages::delete_unchangeable(self.cx, &self.owner, self.kinds, resources, &error).await?;
                deleted.map(Some).ok_or(error)
            }
            applied => applied,
        }
    }

    /// Waits for objects, at most for the timeout. It begins with the last completed step.
    fn wait(&self, waits: String) -> Hooks {
        let timeout = self.watch.timeout;
        match hooks::is_over(self.stored.modified_at(), self.cx.now(), timeout) {
            true => Hooks::Failed(hooks::overdue(&waits, timeout)),
            false => Hooks::Waits(waits, Some(hooks::end(self.stored.modified_at(), timeout))),
        }
    }

    /// Runs the hooks of an event; the first one has this step number.
    async fn run_hooks(&mut self, event: &str, first: usize) -> Result<Hooks> {
        let indices = hooks::of_event(&self.revision, event);
        for (step, index) in (first..).zip(&indices) {
            let hook = &self.revision.hooks[*index];
            if self.annotations.progress > step || hooks::is_empty(hook) {
                continue;
            }
            match hooks::run(self.cx, &self.owner, self.kinds, hook, &self.step(step), self.watch.timeout).await? {
                Outcome::Done(started) => self.record_run(*index, started, "Succeeded"),
                Outcome::Waits(waits, until) => return Ok(Hooks::Waits(format!("{event} hook {waits}"), until)),
                Outcome::Failed(problem) => {
                    if hooks::is_deleted(hook, "hook-failed") {
                        hooks::remove(self.cx, &self.owner, self.kinds, hook, &self.step(step)).await?;
                    }
                    let done = indices.iter().take(step - first);
                    self.remove_succeeded(first, done.copied().collect()).await?;
                    self.record_run(*index, String::new(), "Failed");
                    return Ok(Hooks::Failed(format!("{event} hooks failed: {problem}")));
                }
            }
            self.annotations.progress = step + 1;
            self.save().await?;
        }
        self.remove_succeeded(first, indices).await?;
        Ok(Hooks::Done)
    }

    /// Deletes the objects of hooks with policy `hook-succeeded`.
    async fn remove_succeeded(&self, first: usize, indices: Vec<usize>) -> Result<()> {
        for (step, index) in (first..).zip(indices).collect::<Vec<_>>().into_iter().rev() {
            let hook = &self.revision.hooks[index];
            if hooks::is_deleted(hook, "hook-succeeded") {
                hooks::remove(self.cx, &self.owner, self.kinds, hook, &self.step(step)).await?;
            }
        }
        Ok(())
    }

    fn record_run(&mut self, index: usize, started: String, phase: &str) {
        let now = rfc3339(self.cx.now());
        let run = &mut self.revision.hooks[index].last_run;
        let started = if started.is_empty() { now.clone() } else { started };
        *run = HookExecution { started_at: Some(started), completed_at: Some(now), phase: phase.into() };
    }

    /// Names a step uniquely among all revisions and among installation and uninstallation.
    fn step(&self, step: usize) -> String {
        let way = if self.revision.info.status == State::Uninstalling { "-uninstall" } else { "" };
        format!("{}/{step}{way}.{}", self.stored.uid(), self.annotations.failures)
    }

    async fn save(&mut self) -> Result<()> {
        self.stored = history::update(self.cx, self.slots, &self.stored, &self.revision, &self.annotations).await?;
        Ok(())
    }

    /// Deletes the objects that only the previous revision has.
    async fn prune(&self, before: &Revision, resources: &[Resource]) -> Result<()> {
        let namespace = self.owner.namespace;
        let identity = |resource: &Resource| {
            let kind = self.kinds.kind_of(&resource.api_version, &resource.kind);
            (kind.gvk().group.to_string(), kind.name().to_owned(), resource.key(&kind, namespace))
        };
        let retained: BTreeSet<_> = resources.iter().map(identity).collect();
        // The objects of an unreadable revision cannot be determined.
        let mut surplus = objects(self.slots, before).await.unwrap_or_default();
        surplus.retain(|resource| !retained.contains(&identity(resource)) && !resource.is_kept());
        let is_known = |resource: &&Resource| self.kinds.get(&resource.api_version, &resource.kind).is_some();
        let (known, kept): (Vec<_>, Vec<_>) = surplus.iter().rev().partition(is_known);
        for resource in known {
            self.delete(resource).await?;
        }
        if !kept.is_empty() {
            self.cx.event(Event::warning("ObjectsKept", kept_note(&kept)));
        }
        Ok(())
    }

    /// Deletes an object unless it belongs to another owner now; returns true if it still existed.
    async fn delete(&self, resource: &Resource) -> Result<bool> {
        let Some(known) = self.kinds.get(&resource.api_version, &resource.kind) else {
            let name = resource.name();
            tracing::warn!(kind = resource.kind, name, "object not deleted: the operator does not watch its kind");
            return Ok(false);
        };
        let key = resource.key(&known.kind, self.owner.namespace);
        let live = self.cx.dynamic(&known.kind).get(&key).await?;
        let Some(live) = live.filter(|live| self.owner.has(live) && !resources::is_kept(live)) else {
            return Ok(false);
        };
        if live.metadata.deletion_timestamp.is_none() {
            self.cx.delete(&live).await?;
        }
        Ok(true)
    }

    /// Deletes the objects of a revision in reverse order; returns the names of those that still existed.
    async fn delete_all(&self, revision: &Revision) -> Result<Vec<String>> {
        let resources = objects(self.slots, revision).await?;
        let mut remaining = Vec::new();
        for resource in resources.iter().rev().filter(|resource| !resource.is_kept()) {
            if self.delete(resource).await? {
                remaining.push(format!("{} {}", resource.kind, resource.name()));
            }
        }
        Ok(remaining)
    }

    /// Records the revision as deployed.
    async fn finish(&mut self, before: Option<&Revision>) -> Result<()> {
        if let (Some(before), Some(stored)) = (before, self.history.deployed()) {
            let mut before = before.clone();
            before.info.status = State::Superseded;
            history::update(self.cx, self.slots, stored, &before, &stored.annotations()).await?;
        }
        self.revision.info.status = State::Deployed;
        let reason = match (&self.failed_upgrade, before) {
            (Some(_), _) => "RollbackSuccessful",
            (None, before) => {
                let done = if before.is_some() { "Upgrade complete" } else { "Install complete" };
                self.revision.info.description = done.to_owned();
                status::installed(&self.revision)
            }
        };
        self.annotations = RevisionAnnotations { progress: 0, failures: 0, ..self.annotations.clone() };
        self.save().await?;
        let Revision { name, version, info, .. } = &self.revision;
        let note = format!(
            "Release {name}, revision {version} of chart {}: {}",
            self.revision.chart_label(),
            info.description
        );
        self.cx.event(Event::normal(reason, note));
        Ok(())
    }

    /// Records why the uninstallation failed.
    async fn record_failure(mut self, problem: &str) -> Result<Progress> {
        self.revision.info.description = format!("failed to uninstall release: {problem}");
        self.annotations.failures = self.annotations.failures.saturating_add(1);
        self.annotations.options.clone_from(&self.options);
        self.save().await?;
        let (problem, retry_after) = (self.revision.info.description, BACKOFF.after(self.annotations.failures));
        let failed_operation = FailedOperation::Uninstall;
        Ok(Progress::Failed { failed_operation, problem, retry_after, failed_revision: None })
    }

    /// Uninstalls the release, and then deletes its revisions.
    ///
    /// With `waits`, the revisions are deleted only after all objects are gone.
    pub(crate) async fn uninstall(mut self, waits: bool) -> Result<Progress> {
        if self.revision.info.status != State::Uninstalling {
            self.revision.info.status = State::Uninstalling;
            self.revision.info.description = "Deletion in progress (or silently failed)".into();
            self.revision.info.deleted = Some(rfc3339(self.cx.now()));
            (self.annotations.progress, self.annotations.failures) = (0, 0);
            self.save().await?;
        } else if self.annotations.options == self.options
            && let Some(retry_after) = time_to_retry(self.cx, &self.stored, self.annotations.failures)
        {
            return Ok(Progress::Failed {
                failed_operation: FailedOperation::Uninstall,
                problem: self.revision.info.description,
                retry_after,
                failed_revision: None,
            });
        }
        let first = hooks::of_event(&self.revision, "pre-delete").len();
        match self.run_hooks("pre-delete", 0).await? {
            Hooks::Done => {}
            Hooks::Waits(waits, until) => return Ok(Progress::Waits(WaitReason::Object(waits, until))),
            Hooks::Failed(problem) => return self.record_failure(&problem).await,
        }
        if self.annotations.progress <= first {
            let mut remaining = self.delete_all(&self.revision).await?;
            // If an upgrade was in progress, objects of the previous revision may still exist.
            if let Some(deployed) = self.history.deployed().filter(|stored| stored.version != self.stored.version)
                && let Some(deployed) = history::load(self.cx, self.slots, deployed).await?
            {
                remaining.extend(self.delete_all(&deployed).await?);
            }
            if let Some(remaining) = remaining.first().filter(|_| waits) {
                return Ok(Progress::Waits(WaitReason::Object(format!("{remaining} is being deleted"), None)));
            }
            if !hooks::of_event(&self.revision, "post-delete").is_empty() {
                self.annotations.progress = first + 1;
                self.stored = history::annotate(self.cx, &self.stored, &self.annotations).await?;
            }
        }
        match self.run_hooks("post-delete", first + 1).await? {
            Hooks::Done => {}
            Hooks::Waits(waits, until) => return Ok(Progress::Waits(WaitReason::Object(waits, until))),
            Hooks::Failed(problem) => return self.record_failure(&problem).await,
        }
        // The Secret that records the progress is deleted last. The status records before that the release is
        // uninstalled: a later attempt finds no Secret.
        let History { obsolete, revisions, .. } = &self.history;
        let earlier = revisions.len().saturating_sub(1);
        for stored in obsolete.iter().chain(&revisions[..earlier]) {
            history::delete(self.cx, stored).await?;
        }
        self.cx.set_status(&Report { uninstalled: true, ..Report::default() }.status()).await?;
        if let Some(last) = revisions.last() {
            history::delete(self.cx, last).await?;
        }
        self.cx.event(Event::normal(status::UNINSTALLED, format!("Release {} is uninstalled", self.revision.name)));
        Ok(Progress::Done)
    }
}

/// Returns true if the API server rejected an object, so that a retry cannot succeed.
fn is_rejection(error: &Error) -> bool {
    error.status().is_some_and(|status| matches!(status.code, 400 | 403 | 422))
}

/// Returns the delay after this number of failures.
pub(crate) fn backoff(failures: u32) -> Duration {
    BACKOFF.after(failures)
}

/// Returns the remaining backoff of a revision with this number of failures.
pub(crate) fn time_to_retry(cx: &Context<DynamicObject>, stored: &StoredRevision, failures: u32) -> Option<Duration> {
    let since = cx.now().as_second().saturating_sub(stored.modified_at());
    // A time in the future is forged, and must not delay the release until then.
    let since = Duration::from_secs(since.try_into().ok()?);
    if failures == 0 { None } else { BACKOFF.after(failures).checked_sub(since).filter(|rest| !rest.is_zero()) }
}

/// Corrects the objects of a release, independently of its progress.
pub(crate) async fn repair(
    cx: &Context<DynamicObject>,
    owner: &Owner<'_>,
    kinds: &Kinds,
    slots: &Slots,
    revision: &Revision,
) -> Result<()> {
    let resources = objects(slots, revision).await?;
    cx.set_desired_version(revision.version.into());
    stages::repair(cx, owner, kinds, &resources).await
}

/// Reads the objects of a revision; large manifests are parsed on another thread.
async fn objects(slots: &Slots, revision: &Revision) -> Result<Vec<Resource>> {
    let manifest = revision.manifest.clone();
    slots.offload(move || resources::of_manifest(&manifest)).await?.map_err(terminal)
}

/// Checks that all objects of a revision can be created.
pub(crate) fn check(revision: &Revision, kinds: &Kinds, namespace: &str) -> Result<(), ManifestError> {
    let mut seen = BTreeSet::new();
    for resource in resources::of_manifest(&revision.manifest)? {
        let kind = kinds.declared(&resource)?;
        let key = resource.key(kind, namespace);
        if !seen.insert((kind.clone(), key)) {
            let name = resource.name().to_owned();
            return Err(ManifestError::Duplicate { path: resource.path, kind: resource.kind, name });
        }
    }
    // The operator does not run tests, as operator-sdk does not: their kinds need not be known.
    let mut run = revision.hooks.iter().filter(|hook| !hooks::is_test(hook));
    run.try_for_each(|hook| hooks::object(hook, kinds).map(drop))
}

/// Creates an error without a retry: the manifest does not change, so a retry cannot succeed.
fn terminal(error: ManifestError) -> Error {
    Error::from(error).terminal()
}

/// Describes objects of the previous revision whose kinds the chart no longer contains: the operator has no permission
/// to delete them.
fn kept_note(kept: &[&Resource]) -> String {
    const NAMED: usize = 5;
    let mut names: Vec<String> =
        kept.iter().take(NAMED).map(|resource| format!("{} {}", resource.kind, resource.name())).collect();
    if kept.len() > NAMED {
        names.push(format!("{} more", kept.len() - NAMED));
    }
    format!(
        "not deleted, since the chart no longer contains objects of their kinds: {}; delete them with kubectl",
        names.join(", ")
    )
}
