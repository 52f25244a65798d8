//! InstallPlans: the steps of an installation, and the controller that executes them.
//!
//! The controller of Subscriptions creates a plan and lists its steps. This one waits for approval, checks all steps,
//! and then applies them: first CRDs, then ClusterServiceVersions, then the objects that these own. Nothing is changed
//! if the check finds a step that would be refused, such as a CRD that invalidates custom resources, or a
//! cluster-scoped object that belongs to an operator of another namespace, or to none. A plan that fails is retried
//! with backoff forever; after a minute its phase is Failed until it succeeds. Each attempt first checks that the
//! Subscriptions still ask for its versions; see [`reversal`].
//!
//! Each step is a server-side apply, so that a plan can be executed again after a crash at any point. A step whose
//! Subscription is gone is not executed, and what the plan has created for it is deleted; see [`requesters`]. If the
//! OperatorGroup names a service account, the steps are requests of this account, except for CRDs,
//! ClusterServiceVersions and generated Subscriptions: a Subscription cannot grant permissions that the account cannot
//! grant. CRDs that operators of other namespaces use are changed only if the account may change them.

mod actor;
mod alongside;
mod check;
mod compatibility;
mod conversion;
mod definition;
mod draft;
mod error;
mod execution;
mod manifest;
mod members;
mod ownership;
mod prepare;
mod requesters;
mod resources;
mod reversal;
mod sharing;
mod steps;

pub(crate) use actor::encoded;
pub use compatibility::{SchemaChange, schema_changes, schema_of};
pub use conversion::planned_definitions;
pub use resources::bundled_kinds;
pub use reversal::unserved_version;
pub(crate) use reversal::{is_begun, mark, withdrawal};
pub(crate) use steps::{Chosen, steps};

use crate::api::{
    CatalogSource, ClusterServiceVersion, GROUP, InstallPlan, InstallPlanCondition, InstallPlanPhase,
    InstallPlanStatus, OperatorGroup, Step, StepStatus, Subscription,
};
use crate::contents::CatalogContents;
use crate::patch::change_status;
use crate::rules::rule;
use actor::Actor;
use error::ExecutionError;
use flyball::{Action, Backoff, Caches, Context, Controller, ObjectKey, Reconcile, Result};
use flyball_core::service_account;
use flyball_core::time::SignedDuration;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use members::Members;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Time after which a plan that cannot be executed is Failed.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(1);
/// Time after which a plan without owners is executed again, unless the garbage collector has deleted it.
const OWNERLESS_PERIOD: Duration = Duration::from_secs(60);
/// Backoff of plans that cannot be executed.
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(60) };

/// The reconciler of InstallPlans.
pub(crate) struct InstallPlans {
    pub(crate) contents: Arc<CatalogContents>,
}

impl Reconcile for InstallPlans {
    type Resource = InstallPlan;

    async fn reconcile(&self, plan: &InstallPlan, cx: &Context<InstallPlan>) -> Result<Action> {
        let mut plan = plan.clone();
        match plan.status.phase {
            InstallPlanPhase::None if plan.owner_references().is_empty() => {
                let status = ownerless(&plan.status, &Time(cx.now()));
                if status != plan.status {
                    // With the fields that the CRD requires.
                    change_status(cx, &plan, &json!({}), &status).await?;
                }
                return Ok(Action::done());
            }
            // The controller of Subscriptions lists the steps.
            InstallPlanPhase::None | InstallPlanPhase::Planning | InstallPlanPhase::Complete => {
                return Ok(Action::done());
            }
            InstallPlanPhase::RequiresApproval if !plan.spec.approved => return Ok(Action::done()),
            InstallPlanPhase::RequiresApproval => {
                let mut status = plan.status.clone();
                (status.phase, status.start_time) = (InstallPlanPhase::Installing, Some(Time(cx.now())));
                plan = change_status(cx, &plan, &plan.status, &status).await?;
            }
            InstallPlanPhase::Installing | InstallPlanPhase::Failed => {}
        }
        let executed = self.run(&plan, cx).await;
        let status = match &executed {
            // The garbage collector deletes the plan.
            Ok(None) => return Ok(Action::requeue_after(OWNERLESS_PERIOD)),
            Ok(Some(statuses)) => completed(&plan.status, statuses, &Time(cx.now())),
            Err(failure) => failed(&plan.status, failure, &Time(cx.now())),
        };
        if status != plan.status {
            change_status(cx, &plan, &plan.status, &status).await?;
        }
        Ok(if executed.is_ok() { Action::done() } else { Action::requeue() })
    }
}

impl InstallPlans {
    /// Checks and executes the steps; `None` if the owners of the plan are gone.
    async fn run(
        &self,
        plan: &InstallPlan,
        cx: &Context<InstallPlan>,
    ) -> Result<Option<Vec<StepStatus>>, ExecutionError> {
        let namespace = plan.namespace().unwrap_or_default();
        let alive = |group: OperatorGroup| group.metadata.deletion_timestamp.is_none().then_some(group);
        let groups = cx.filter_map(Some(&namespace), alive).await.map_err(|error| ExecutionError::of(&error, &[]))?;
        let [group] = &groups[..] else {
            let text = match groups.len() {
                0 => format!("namespace {namespace} has no OperatorGroup: create one"),
                _ => format!("namespace {namespace} has several OperatorGroups: delete all but one"),
            };
            return Err(ExecutionError::new(text));
        };
        let manager = Actor::new(cx.client(), None);
        let account = &group.spec.service_account_name;
        let account = (!account.is_empty()).then(|| service_account::user_name(&namespace, account));
        let installer = Actor::new(cx.client(), account);
        let mut objects = Vec::new();
        for step in &plan.status.plan {
            let object = manifest::read(step, &self.contents, cx).await;
            objects.push(object.map_err(ExecutionError::new)?);
        }
        let members = Members::of(plan);
        check::check((plan, &members), &objects, group, &manager, &installer, cx).await?;
        reversal::check((plan, &members), &objects, &manager, cx).await?;
        reversal::confirm(plan, &manager, cx).await?;
        execution::execute((plan, &members), objects, &manager, &installer, cx).await
    }
}

/// Returns the status of a plan without steps that a user created: no controller lists its steps.
fn ownerless(before: &InstallPlanStatus, now: &Time) -> InstallPlanStatus {
    const MESSAGE: &str =
        "the plan has no steps: create a Subscription, which gets a plan of its own, and delete this one";
    let mut status = before.clone();
    MESSAGE.clone_into(&mut status.message);
    set_condition(&mut status, "False", "NoSteps", MESSAGE, now);
    status
}

fn completed(before: &InstallPlanStatus, statuses: &[StepStatus], now: &Time) -> InstallPlanStatus {
    let mut status = before.clone();
    for (step, state) in status.plan.iter_mut().zip(statuses) {
        step.status = *state;
    }
    (status.phase, status.message) = (InstallPlanPhase::Complete, skipped(&status.plan));
    set_condition(&mut status, "True", "", "", now);
    status
}

/// Describes the operators of a plan that were not installed, since their Subscriptions were deleted.
fn skipped(steps: &[Step]) -> String {
    let is_skipped =
        |step: &&Step| step.resource.kind == "ClusterServiceVersion" && step.status == StepStatus::NotCreated;
    let names: Vec<&str> = steps.iter().filter(is_skipped).map(|step| step.resource.name.as_str()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("not installed, since their Subscriptions were deleted: {}", names.join(", ")),
    }
}

/// Returns the status of a plan whose execution failed.
fn failed(before: &InstallPlanStatus, failure: &ExecutionError, now: &Time) -> InstallPlanStatus {
    let mut status = before.clone();
    for (step, state) in status.plan.iter_mut().zip(&failure.statuses) {
        step.status = *state;
    }
    let began = before.start_time.as_ref().map_or(now.0, |time| time.0);
    if status.phase == InstallPlanPhase::Failed || now.0.duration_since(began) >= TIMEOUT {
        (status.phase, status.message) = (InstallPlanPhase::Failed, failure.message.clone());
        set_condition(&mut status, "False", "InstallComponentFailed", &failure.message, now);
    } else {
        status.message = format!("retrying execution due to error: {}", failure.message);
    }
    status
}

fn set_condition(status: &mut InstallPlanStatus, holds: &str, reason: &str, message: &str, now: &Time) {
    let known = status.conditions.iter().find(|condition| condition.kind == "Installed");
    if known.is_some_and(|known| (known.status.as_str(), known.message.as_str()) == (holds, message)) {
        return;
    }
    let transition = known.filter(|known| known.status == holds).and_then(|known| known.last_transition_time.clone());
    status.conditions = vec![InstallPlanCondition {
        kind: "Installed".to_owned(),
        status: holds.to_owned(),
        last_update_time: Some(now.clone()),
        last_transition_time: transition.or_else(|| Some(now.clone())),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }];
}

/// Creates the controller.
pub(crate) fn controller(reconciler: InstallPlans) -> Controller<InstallPlans> {
    let unfinished = |namespace: Option<String>, caches: &Caches| {
        let plans = caches.list::<InstallPlan>(namespace.as_deref())?;
        let waits = plans.iter().filter(|plan| plan.status.phase != InstallPlanPhase::Complete);
        Ok(waits.map(|plan| ObjectKey::new(plan.namespace().as_deref(), &plan.name_any())).collect())
    };
    let controller = Controller::new(reconciler)
        .name("installplan")
        .backoff(BACKOFF)
        .watches_by_key::<CatalogSource>(|_, _| Ok(Vec::new()))
        .watches_by_key::<ClusterServiceVersion>(|_, _| Ok(Vec::new()))
        .watches_by_key::<Subscription>(|_, _| Ok(Vec::new()))
        .allows(rule(GROUP, &["installplans/status"], &["patch"]))
        .watches::<OperatorGroup>(move |group, caches| unfinished(group.namespace(), caches));
    resources::rules().into_iter().fold(controller, Controller::allows)
}

/// Returns the rule for the kinds of the lifecycle manager that steps create.
fn own_rule() -> PolicyRule {
    rule(GROUP, &["clusterserviceversions", "subscriptions"], &["get", "create", "patch"])
}
