//! Deletion of old InstallPlans.

use super::view::View;
use crate::api::InstallPlan;
use flyball::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use std::collections::BTreeSet;

/// Number of InstallPlans that are kept in a namespace.
const MAX_PLANS: usize = 5;

/// Deletes the oldest InstallPlans beyond the limit, except for those that Subscriptions refer to.
pub(super) async fn delete_old_plans(view: &View, cx: &Context<Namespace>) -> Result<()> {
    if view.plans.len() <= MAX_PLANS {
        return Ok(());
    }
    let referenced: BTreeSet<&str> = view
        .subscriptions
        .iter()
        .filter_map(|tracked| tracked.status.install_plan_ref.as_ref()?.name.as_deref())
        .collect();
    let mut plans: Vec<&InstallPlan> = view.plans.values().collect();
    plans.sort_by_key(|plan| plan.spec.generation);
    let surplus = plans.len() - MAX_PLANS;
    let is_old = |plan: &&&InstallPlan| !referenced.contains(plan.metadata.name.as_deref().unwrap_or_default());
    for plan in plans.iter().filter(is_old).take(surplus) {
        cx.delete(*plan).await?;
    }
    Ok(())
}
