//! The reconciler of ClusterServiceVersions: one step in each call.

use super::cleanup;
use super::copies;
use super::desired::{self, Certificates};
use super::installation::{Installation, owned_deployments};
use super::membership::{Membership, membership};
use super::observe::{self, Cx, ServerVersion};
use super::phase::{NEXT_STEP, PERMISSION_PERIOD, enter};
use super::release;
use super::status;
use super::succession::CleanUp;
use super::transition::{Step, next};
use super::write::Identity;
use crate::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, OperatorGroup, RequirementStatus, labels,
};
use crate::install::ServingCertificate;
use crate::patch::merge_patch;
use flyball::{Action, Error, Event, Reconcile, Result};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct ClusterServiceVersions {
    version: ServerVersion,
}

impl Reconcile for ClusterServiceVersions {
    type Resource = ClusterServiceVersion;

    async fn reconcile(&self, csv: &ClusterServiceVersion, cx: &Cx) -> Result<Action> {
        if copies::has_lost_label(csv) {
            copies::restore_label(csv, cx).await?;
            return Ok(Action::done());
        }
        if csv.copied_from().is_some() {
            copies::check(csv, cx).await?;
            return Ok(Action::done());
        }
        let has_finalizer = csv.finalizers().iter().any(|name| name == labels::CSV_CLEANUP);
        if csv.metadata.deletion_timestamp.is_some() {
            return match has_finalizer {
                true => clean_up(csv, cx).await,
                false => Ok(Action::done()),
            };
        }
        if !has_finalizer {
            set_finalizer(csv, true, cx).await?;
            return Ok(Action::requeue_after(NEXT_STEP));
        }
        if release::release(csv, cx).await? {
            return Ok(Action::requeue_after(NEXT_STEP));
        }
        let condition = desired::condition(csv);
        Identity::default().apply(cx, &condition, Vec::new()).await?;
        // What is being replaced does not depend on the group any more.
        let is_obsolete = matches!(csv.status.phase, Phase::Replacing | Phase::Deleting);
        match membership(csv, cx).await? {
            Membership::Member(group) => self.advance(csv, &group, &condition, cx).await,
            _ if is_obsolete => self.advance(csv, &OperatorGroup::default(), &condition, cx).await,
            Membership::Annotate(annotations) => {
                let patch = json!({"metadata": {"annotations": annotations}});
                merge_patch(cx, csv, "", &patch).await?;
                Ok(Action::requeue_after(NEXT_STEP))
            }
            Membership::Wait => Ok(Action::done()),
            Membership::Failed(step) => self.fail(csv, step, cx).await,
        }
    }
}

impl ClusterServiceVersions {
    /// Records that the group prevents the installation. If another operator provides the same APIs, the Deployments
    /// are deleted, unless the operator has run: a change of another group must not stop it.
    async fn fail(&self, csv: &ClusterServiceVersion, step: Step, cx: &Cx) -> Result<Action> {
        let Step::Enter(phase, reason, message) = step else { return Ok(Action::done()) };
        let has_run = csv.status.conditions.iter().any(|entry| entry.phase == Phase::Succeeded);
        let has_conflict =
            matches!(reason, "InterOperatorGroupOwnerConflict" | "CannotModifyStaticOperatorGroupProvidedAPIs");
        if has_conflict && !has_run {
            for deployment in owned_deployments(csv, cx).await? {
                cx.delete(&deployment).await?;
            }
        }
        if csv.status.phase == phase && csv.status.reason == reason && csv.status.message == message {
            return Ok(Action::done());
        }
        enter(csv, phase, reason, &message, None, cx).await
    }

    /// Executes the next step of a member of a group.
    async fn advance(
        &self,
        csv: &ClusterServiceVersion,
        group: &OperatorGroup,
        condition: &Value,
        cx: &Cx,
    ) -> Result<Action> {
        let identity = Identity::of(group).map_err(|why| {
            cx.event(Event::warning("ServiceAccountNotFound", why.clone()));
            Error::from(why).wait()
        })?;
        let siblings = observe::siblings(csv, cx).await?;
        let hold = match siblings.replaced_by(csv) {
            Some(replaced) if csv.status.phase == Phase::Pending => observe::hold(replaced, cx).await?,
            _ => None,
        };
        let installation = Installation { csv, group, condition, identity: &identity, cx };
        let rights = desired::rights(csv, group, &siblings);
        let denied = match hold.is_some() || observe::has_foreign_account(csv, &siblings) {
            true => None,
            false => installation.grant(&rights).await?,
        };
        if identity.wrote() {
            return Ok(Action::requeue_after(NEXT_STEP));
        }
        let observed = observe::requirements(csv, &siblings, &rights, &self.version, cx).await?;
        let certificates = observe::certificates(csv, cx).await?;
        let config = observe::config(csv, cx).await?;
        let workloads = desired::workloads(csv, config.as_ref(), &certificates);
        let facts = installation.facts(&siblings, hold, &observed, &certificates, &workloads).await?;
        if is_running(csv) && !facts.certificate_due {
            installation.serve(&certificates, &observed).await?;
        }
        if !matches!(csv.status.phase, Phase::None | Phase::Replacing | Phase::Deleting) {
            copies::copy(csv, group, &identity, condition, cx).await?;
        }
        let requirements = facts.requirements.1.clone();
        match next(csv, &facts) {
            Step::Enter(phase, reason, message) => enter(csv, phase, reason, &message, Some(requirements), cx).await,
            Step::Install => installation.install(certificates, config.as_ref(), &observed).await,
            Step::InstallAgain => {
                installation.apply(workloads).await?;
                Ok(Action::requeue())
            }
            Step::Delete => {
                cx.delete(csv).await?;
                Ok(Action::done())
            }
            Step::Wait(time) => {
                let mut denied = denied;
                if csv.status.phase == Phase::Succeeded {
                    denied = denied.or(installation.maintain(&observed, workloads).await?);
                }
                let time = if identity.wrote() { Some(NEXT_STEP) } else { time };
                self.rest(csv, requirements, time, denied, &certificates, cx).await
            }
        }
    }

    /// Waits for a change, and for times at which something is due.
    async fn rest(
        &self,
        csv: &ClusterServiceVersion,
        requirements: Vec<RequirementStatus>,
        time: Option<Duration>,
        denied: Option<String>,
        certificates: &Certificates,
        cx: &Cx,
    ) -> Result<Action> {
        let is_checked = matches!(csv.status.phase, Phase::Pending | Phase::Succeeded);
        if is_checked && csv.status.requirement_status != requirements {
            let mut wanted = csv.status.clone();
            wanted.requirement_status = requirements;
            merge_patch(cx, csv, "status", &status::patch(&wanted)).await?;
        }
        if let Some(why) = &denied {
            cx.event(Event::warning("PermissionsDenied", why.clone()));
        }
        // A certificate that is due now is renewed by the step of its phase, if there is one.
        let renewals = certificates.values().flatten().filter_map(ServingCertificate::renewal);
        let renewal = renewals.filter_map(|at| Duration::try_from(at.duration_since(cx.now())).ok()).min();
        let retry = denied.map(|_| PERMISSION_PERIOD);
        let next = [time, renewal, retry].into_iter().flatten().min();
        Ok(next.map_or_else(Action::done, |time| Action::requeue_after(time.max(NEXT_STEP))))
    }
}

/// Returns true if the components of an operator exist.
fn is_running(csv: &ClusterServiceVersion) -> bool {
    matches!(csv.status.phase, Phase::Installing | Phase::Succeeded)
}

async fn clean_up(csv: &ClusterServiceVersion, cx: &Cx) -> Result<Action> {
    match cleanup::clean_up(csv, cx).await? {
        CleanUp::Complete => set_finalizer(csv, false, cx).await?,
        CleanUp::Waits => {}
        CleanUp::Again => return Ok(Action::requeue_after(NEXT_STEP)),
        CleanUp::Conflict => return Ok(Action::requeue()),
    }
    Ok(Action::done())
}

async fn set_finalizer(csv: &ClusterServiceVersion, wanted: bool, cx: &Cx) -> Result<()> {
    let mut finalizers: Vec<&str> =
        csv.finalizers().iter().map(String::as_str).filter(|name| *name != labels::CSV_CLEANUP).collect();
    let mut metadata = json!({});
    if wanted {
        finalizers.push(labels::CSV_CLEANUP);
        metadata["labels"] = json!({labels::MANAGED: "true"});
    }
    metadata["finalizers"] = json!(finalizers);
    merge_patch(cx, csv, "", &json!({"metadata": metadata})).await?;
    Ok(())
}
