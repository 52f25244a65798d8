//! The progress of a Subscription: its InstallPlan, and the ClusterServiceVersion that this one installs.

use super::conditions::{INSTALL_PLAN_FAILED, INSTALL_PLAN_MISSING, INSTALL_PLAN_PENDING, set_or_remove};
use super::view::View;
use crate::api::{InstallPlan, InstallPlanPhase, SubscriptionState};
use flyball::Context;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Sets the state of each Subscription, and the conditions about its InstallPlan.
pub(super) fn report(view: &mut View, cx: &Context<Namespace>) {
    let now = Time(cx.now());
    for index in 0..view.subscriptions.len() {
        let status = &view.subscriptions[index].status;
        let plan = view.plan_of(status).cloned();
        let is_missing = status.install_plan_ref.is_some() && plan.is_none();
        let is_installed = view.csvs.contains_key(&status.current_csv);
        let status = &mut view.subscriptions[index].status;
        let phase = plan.as_ref().map(|plan| plan.status.phase);
        if !status.current_csv.is_empty() {
            status.state = match is_installed {
                true => SubscriptionState::AtLatestKnown,
                false if phase == Some(InstallPlanPhase::Failed) => SubscriptionState::UpgradeFailed,
                false => SubscriptionState::UpgradePending,
            };
            if is_installed {
                status.installed_csv = status.current_csv.clone();
            }
        }
        let missing = is_missing.then(|| ("ReferencedInstallPlanNotFound", String::new()));
        set_or_remove(status, INSTALL_PLAN_MISSING, missing, &now);
        set_or_remove(status, INSTALL_PLAN_PENDING, plan.as_ref().and_then(pending), &now);
        set_or_remove(status, INSTALL_PLAN_FAILED, plan.as_ref().and_then(failed), &now);
    }
}

/// Returns the reason why a plan is not complete, and what it waits for.
fn pending(plan: &InstallPlan) -> Option<(&'static str, String)> {
    let reason = match plan.status.phase {
        InstallPlanPhase::Planning => "Planning",
        InstallPlanPhase::RequiresApproval => "RequiresApproval",
        InstallPlanPhase::Installing => "Installing",
        InstallPlanPhase::None | InstallPlanPhase::Complete | InstallPlanPhase::Failed => return None,
    };
    Some((reason, plan.status.message.clone()))
}

/// Returns the reason why a plan failed.
fn failed(plan: &InstallPlan) -> Option<(&str, String)> {
    if plan.status.phase != InstallPlanPhase::Failed {
        return None;
    }
    let condition = plan.status.conditions.iter().find(|condition| condition.kind == "Installed");
    Some(condition.map_or(("InstallComponentFailed", plan.status.message.clone()), |condition| {
        (&condition.reason, condition.message.clone())
    }))
}
