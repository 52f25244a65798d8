//! Rollback of failed upgrades: the deployed revision is installed again, as a new revision.
//!
//! The failed revision stays in the history. It records what failed, and when the upgrade is attempted again:
//!
//! ```text
//!   deployed, failed                        the rollback is due
//!   deployed, failed, pending-rollback      in progress
//!   superseded, failed, deployed            done: the next attempt to upgrade follows after the backoff
//!   deployed, failed, failed                the rollback failed as well: the next attempt is an upgrade
//! ```

use super::{Plan, Request, is_forced};
use crate::annotation::ROLLBACK_FORCE;
use crate::history::{self, History, RevisionAnnotations, StoredRevision};
use crate::install::{FailedUpgrade, Progress, backoff};
use crate::resources::Owner;
use crate::status::{FailedOperation, ReleaseError, WaitReason};
use crate::storage::{Revision, State};
use crate::verified::is_same;
use flyball::{Context, Result};
use flyball_chart::Seed;
use flyball_core::time::rfc3339;
use kube::core::DynamicObject;

/// The result of a rollback.
pub(super) enum Rollback {
    /// No upgrade is to be rolled back.
    NotDue,
    /// The deployed revision cannot be installed again, for this reason.
    Impossible(String),
    /// The rollback is in progress or done.
    Begun(Progress),
}

/// A rollback after a failed upgrade to the desired state.
struct DueRollback<'h> {
    /// The failed revision.
    upgrade: &'h StoredRevision,
    /// The revision of the rollback, if it has begun.
    pending: Option<&'h StoredRevision>,
    /// The inputs of the upgrade.
    inputs: String,
    failures: u32,
}

/// Returns the rollback to the deployed revision that the history requires.
fn find_due_rollback<'h>(history: &'h History, current: &StoredRevision, inputs: &str) -> Option<DueRollback<'h>> {
    let mut newer = history.revisions.iter().rev().take_while(|stored| stored.version > current.version);
    let pending = newer.clone().next().filter(|last| last.state == State::PendingRollback);
    if pending.is_some() {
        newer.next();
    }
    let upgrade = newer.next().filter(|upgrade| upgrade.state == State::Failed)?;
    let annotations = upgrade.annotations();
    // The custom resource may have been reverted meanwhile.
    let is_due = annotations.inputs == inputs || pending.is_some() && current.annotations().inputs == inputs;
    // After a failed rollback, the upgrade is repeated first.
    let is_over = pending.is_none() && newer.next().is_some();
    (is_due && !is_over).then_some(DueRollback {
        upgrade,
        pending,
        inputs: annotations.inputs,
        failures: annotations.failures,
    })
}

impl Plan<'_> {
    /// Installs the deployed revision again, as a new revision, if an upgrade to the desired state failed.
    ///
    /// Its objects are installed only if this process rendered them, or if the chart renders them from the values in
    /// the Secret: others may have written it.
    pub(super) async fn roll_back(
        &self,
        cx: &Context<DynamicObject>,
        object: &DynamicObject,
        request: &Request<'_>,
        history: &History,
        deployed: &mut Option<Revision>,
        seed: &Seed,
    ) -> Result<Rollback, ReleaseError> {
        let failed = |what| ReleaseError::of(FailedOperation::Upgrade, what);
        let (Some(current), Some(before)) = (history.deployed().cloned(), deployed.clone()) else {
            return Ok(Rollback::NotDue);
        };
        let due = find_due_rollback(history, &current, &request.inputs).filter(|_| self.watch.rollback_on_failure);
        let Some(DueRollback { upgrade, pending, inputs, failures }) = due else { return Ok(Rollback::NotDue) };
        let load = |stored| history::load(cx, self.slots, stored);
        let failed_revision = upgrade.version;
        let upgraded = load(upgrade).await.map_err(failed("failed to read the failed release"))?;
        let revision = match pending {
            Some(pending) => load(pending).await.map_err(failed("failed to read the pending release"))?,
            None => Some(rollback_to(&before, &request.owner, history.next_version(), rfc3339(cx.now()))),
        };
        let Some(revision) = revision else { return Ok(Rollback::NotDue) };
        let number = restored_revision(&revision);
        match self.is_restorable(cx, request, &revision, seed).await {
            Ok(Some(true)) => {}
            Ok(None) => return Ok(Rollback::Begun(Progress::Waits(WaitReason::Slot))),
            Ok(Some(false)) => {
                return Ok(Rollback::Impossible(format!(
                    "the chart does not render revision {number} from its values"
                )));
            }
            Err(error) => return Err(failed("failed to verify the deployed release")(error)),
        }
        let annotations =
            RevisionAnnotations { failures: 0, options: request.options.clone(), ..current.annotations() };
        let mut history = history.clone();
        let (stored, annotations) = match pending {
            Some(pending) => (pending.clone(), pending.annotations()),
            None => {
                let created = self.create(cx, &mut history, &revision, &annotations).await;
                (created.map_err(failed("failed to record the release"))?, annotations)
            }
        };
        let problem = upgraded.as_ref().map(|revision| revision.info.description.clone()).unwrap_or_default();
        let mut operation = self.operation(cx, object, request.owner, history, stored, revision, annotations);
        operation.force = is_forced(object, ROLLBACK_FORCE, true);
        operation.failed_upgrade = Some(FailedUpgrade { inputs: inputs.clone(), failures, revision: upgraded });
        let (progress, revision, _) = operation.advance(Some(&before)).await?;
        Ok(Rollback::Begun(match progress {
            Progress::Done => {
                *deployed = Some(revision);
                match inputs == request.inputs {
                    true => Progress::Failed {
                        failed_operation: FailedOperation::Upgrade,
                        problem: format!("{problem}; rolled back to revision {number}"),
                        retry_after: backoff(failures),
                        failed_revision: Some(failed_revision),
                    },
                    false => Progress::Done,
                }
            }
            Progress::Waits(waits) => Progress::RollsBack {
                problem: format!("{problem}; rolling back to revision {number}"),
                waits,
                failed_revision,
            },
            other => other,
        }))
    }

    /// Returns the description of a stored revision.
    pub(super) async fn describe(&self, cx: &Context<DynamicObject>, stored: &StoredRevision) -> Result<String> {
        let revision = history::load(cx, self.slots, stored).await?;
        Ok(revision.map(|revision| revision.info.description).unwrap_or_default())
    }

    /// Returns true if the operator may install an earlier revision again: this process rendered it, or the chart
    /// renders it from the values in its Secret; `None` if all slots are occupied.
    pub(super) async fn is_restorable(
        &self,
        cx: &Context<DynamicObject>,
        request: &Request<'_>,
        revision: &Revision,
        seed: &Seed,
    ) -> Result<Option<bool>> {
        let Owner { release, namespace, .. } = request.owner;
        if self.verified.has_rendered(namespace, release, revision) {
            return Ok(Some(true));
        }
        let values = self.values(revision.config.clone())?;
        let request = Request { owner: request.owner, values, inputs: String::new(), options: String::new() };
        let is_same = |rendered: &Revision| is_same(revision, rendered);
        match self.renders(cx, &request, restored_revision(revision), revision, seed, is_same).await {
            Ok(rendered) => Ok(rendered.map(|(is_same, _)| is_same)),
            Err(error) if error.downcast_ref::<kube::Error>().is_some() => Err(error),
            // The chart renders nothing for these values.
            Err(_) => Ok(Some(false)),
        }
    }
}

/// Returns the failed upgrade to these inputs, and the deployed revision that rolled it back.
pub(super) fn rolled_back_upgrade<'h>(
    history: &'h History,
    inputs: &str,
) -> Option<(&'h StoredRevision, &'h StoredRevision)> {
    let [.., upgrade, deployed] = &*history.revisions else { return None };
    let is_failed = deployed.state == State::Deployed && upgrade.state == State::Failed;
    (is_failed && upgrade.annotations().inputs == inputs).then_some((upgrade, deployed))
}

/// Returns the number of the revision for which the objects of a revision were rendered.
pub(super) fn restored_revision(revision: &Revision) -> u32 {
    match revision.info.rollback_revision {
        0 => revision.version,
        restored_revision => restored_revision,
    }
}

/// Returns the revision that installs the objects of a deployed one again, as by `helm rollback`.
fn rollback_to(deployed: &Revision, owner: &Owner<'_>, version: u32, now: String) -> Revision {
    // Others may have written the deployed one.
    let (name, namespace) = (owner.release.to_owned(), owner.namespace.to_owned());
    let mut revision = Revision { name, namespace, version, ..deployed.clone() };
    let restored_revision = restored_revision(deployed);
    revision.info.last_deployed = now;
    revision.info.status = State::PendingRollback;
    revision.info.description = format!("Rollback to {restored_revision}");
    revision.info.rollback_revision = restored_revision;
    revision
}
