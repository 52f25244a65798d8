//! InstallPlans whose Subscriptions no longer ask for their versions.

use super::view::View;
use crate::api::{InstallPlan, InstallPlanPhase, SubscriptionState};
use crate::plan::{is_begun, withdrawal};
use flyball::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;

/// Deletes approved InstallPlans without an executed step whose Subscriptions no longer ask for their versions: a
/// rollback was given up or requested, or the versions were pinned. Everything else in them is planned again.
pub(super) async fn delete_withdrawn(view: &mut View, cx: &Context<Namespace>) -> Result<()> {
    let plans: Vec<String> = view.plans.keys().filter(|name| is_withdrawn(view, name)).cloned().collect();
    for name in plans {
        for index in users(view, &name) {
            withdraw(view, index);
        }
        if let Some(plan) = view.plans.remove(&name) {
            cx.delete(&plan).await?;
        }
    }
    Ok(())
}

fn is_withdrawn(view: &View, name: &str) -> bool {
    let is_waiting = |plan: &&InstallPlan| {
        let names = &plan.spec.cluster_service_version_names;
        matches!(plan.status.phase, InstallPlanPhase::Installing | InstallPlanPhase::Failed)
            && !is_begun(plan)
            && !names.iter().any(|csv| view.csvs.contains_key(csv))
    };
    let Some(plan) = view.plans.get(name).filter(is_waiting) else { return false };
    users(view, name).into_iter().any(|index| {
        let subscription = &view.subscriptions[index].object;
        withdrawal(plan, &subscription.spec.package, subscription.annotations()).is_some()
    })
}

/// Returns the Subscriptions that refer to a plan.
pub(super) fn users(view: &View, plan: &str) -> Vec<usize> {
    let refers = |index: &usize| {
        let reference = view.subscriptions[*index].status.install_plan_ref.as_ref();
        reference.and_then(|reference| reference.name.as_deref()) == Some(plan)
    };
    (0..view.subscriptions.len()).filter(refers).collect()
}

/// Sets a Subscription whose plan was deleted back to its installed version.
pub(super) fn withdraw(view: &mut View, index: usize) {
    let status = &view.subscriptions[index].status;
    if view.csvs.contains_key(&status.current_csv) {
        return;
    }
    let is_installed = view.csvs.contains_key(&status.installed_csv);
    let status = &mut view.subscriptions[index].status;
    (status.install_plan_ref, status.install_plan) = (None, None);
    (status.current_csv, status.state) = match is_installed {
        true => (status.installed_csv.clone(), SubscriptionState::AtLatestKnown),
        false => (String::new(), SubscriptionState::None),
    };
}
