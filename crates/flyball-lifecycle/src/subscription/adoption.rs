//! Subscriptions that take over an existing ClusterServiceVersion.
//!
//! A generated Subscription belongs to the version that its InstallPlan installs. Any other Subscription without a
//! version adopts one of its package that no Subscription refers to, as after a Subscription was deleted and created
//! again; in OLM, this is a conflict. A Subscription also takes over an InstallPlan that was made for it before the
//! manager crashed.

use super::view::View;
use crate::api::labels::GENERATED_BY;
use crate::api::{
    ClusterServiceVersion, InstallPlan, InstallPlanPhase, InstallPlanReference, SubscriptionState, is_requester,
};
use crate::contents::CatalogContents;
use crate::installed::bundle_of;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use std::collections::BTreeSet;

/// Sets the current version of Subscriptions that have none.
pub(super) fn adopt(view: &mut View, contents: &CatalogContents) {
    take_over_plans(view);
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for tracked in &view.subscriptions {
        taken.extend([tracked.status.current_csv.clone(), tracked.status.installed_csv.clone()]);
    }
    for index in 0..view.subscriptions.len() {
        let tracked = &view.subscriptions[index];
        if !tracked.status.current_csv.is_empty() {
            continue;
        }
        let generated = tracked.object.annotations().get(GENERATED_BY);
        let plan = generated.and_then(|name| view.plans.get(name)).map(references);
        let starting = tracked.object.spec.starting_csv.clone();
        // The annotation is a claim of everyone who may write Subscriptions.
        let is_of_package =
            |csv: &ClusterServiceVersion| bundle_of(csv).packages().any(|of| of == tracked.object.spec.package);
        let is_free = !taken.contains(&starting) && view.csvs.get(&starting).is_some_and(is_of_package);
        if let Some((reference, old_reference)) = plan.filter(|_| is_free) {
            taken.insert(starting.clone());
            let status = &mut view.subscriptions[index].status;
            (status.install_plan_ref, status.install_plan) = (Some(reference), Some(old_reference));
            (status.current_csv, status.state) = (starting, SubscriptionState::UpgradePending);
            continue;
        }
        if let Some(csv) = adoptable(view, index, contents, &taken) {
            taken.insert(csv.clone());
            view.subscriptions[index].status.current_csv = csv;
        }
    }
}

/// Sets the InstallPlan and the version of Subscriptions that own a newer plan than they refer to.
fn take_over_plans(view: &mut View) {
    let mut plans: Vec<&InstallPlan> = view.plans.values().collect();
    plans.sort_by_key(|plan| plan.spec.generation);
    for tracked in &mut view.subscriptions {
        let uid = tracked.object.uid().unwrap_or_default();
        let is_newer = |plan: &&&InstallPlan| {
            let owners = plan.metadata.owner_references.iter().flatten();
            plan.spec.generation > tracked.status.install_plan_generation
                && plan.status.phase != InstallPlanPhase::None
                && owners.into_iter().any(|owner| owner.uid == uid)
        };
        let Some(plan) = plans.iter().rfind(is_newer) else { continue };
        let csvs = plan.status.plan.iter().filter(|step| step.resource.kind == "ClusterServiceVersion");
        let mut parsed = csvs.filter_map(|step| serde_json::from_str(&step.resource.manifest).ok());
        let package = tracked.object.spec.package.as_str();
        let csv = parsed.find(|csv: &ClusterServiceVersion| bundle_of(csv).packages().any(|of| of == package));
        let Some(csv) = csv else { continue };
        let (reference, old_reference) = references(plan);
        let status = &mut tracked.status;
        (status.install_plan_ref, status.install_plan) = (Some(reference), Some(old_reference));
        (status.current_csv, status.install_plan_generation) = (csv.name_any(), plan.spec.generation);
    }
}

/// Returns the name of the version that a Subscription may adopt.
fn adoptable(view: &View, index: usize, contents: &CatalogContents, taken: &BTreeSet<String>) -> Option<String> {
    let subscription = &view.subscriptions[index].object;
    let uid = subscription.uid();
    let content = contents.state(view.source_of(subscription)?).content?;
    let package = content.package(&subscription.spec.package)?;
    // A plan for another requester is creating it, or that one is gone and the garbage collector deletes it.
    let is_of_another = |csv: &ClusterServiceVersion| {
        let is_other = |owner: &OwnerReference| is_requester(owner) && Some(&owner.uid) != uid.as_ref();
        csv.owner_references().iter().any(is_other)
    };
    let replaced: BTreeSet<&str> = view.csvs.values().map(|csv| csv.spec.replaces.as_str()).collect();
    let mut free = view.csvs.iter().filter(|(name, csv)| {
        let is_alive = csv.metadata.deletion_timestamp.is_none() && !replaced.contains(name.as_str());
        is_alive && !is_of_another(csv) && package.bundles.contains_key(*name) && !taken.contains(*name)
    });
    free.next().map(|(name, _)| name.clone())
}

/// Returns the references of a status to an InstallPlan.
pub(super) fn references(plan: &InstallPlan) -> (ObjectReference, InstallPlanReference) {
    let (api_version, kind) = (InstallPlan::api_version(&()).into_owned(), InstallPlan::kind(&()).into_owned());
    let reference = ObjectReference {
        api_version: Some(api_version.clone()),
        kind: Some(kind.clone()),
        name: plan.metadata.name.clone(),
        namespace: plan.metadata.namespace.clone(),
        uid: plan.uid(),
        resource_version: plan.resource_version(),
        ..ObjectReference::default()
    };
    let uid = plan.uid().unwrap_or_default();
    (reference, InstallPlanReference { api_version, kind, name: plan.name_any(), uid })
}
