//! Approval of single operators: their part of an InstallPlan that waits becomes a plan of its own.
//!
//! In OLM, an InstallPlan contains everything that can be installed in a namespace, and its approval approves all of
//! it. Here, the annotation of a Subscription approves one version. The plan that it shares with others is replaced by
//! two: the approved version with its dependencies, and the rest, which still waits. The annotation is removed when the
//! plan of the version is approved: the same version needs another approval after a rollback.
//!
//! A bundle that cannot be read divides a plan as well: what does not need it is planned alone. A plan that fails is
//! divided into plans that do not depend on each other, so that a refused object holds up nothing else.

use super::selected::Selected;
use super::view::{Tracked, View};
use crate::api::labels::APPROVED;
use crate::api::{InstallPlan, InstallPlanPhase, Subscription};
use crate::catalog::Catalogs;
use crate::patch::merge_patch;
use crate::plan::Chosen;
use crate::requirement::Requirement;
use flyball::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeSet;

/// Returns true if a version is approved for a Subscription.
fn is_approved(subscription: &Subscription, csv: &str) -> bool {
    subscription.annotations().get(APPROVED).is_some_and(|approved| approved.trim() == csv)
}

/// Returns true if a waiting plan, or a part of it, is approved for a Subscription.
pub(super) fn is_partly_approved(plan: &InstallPlan, view: &View) -> bool {
    let names = &plan.spec.cluster_service_version_names;
    let approves = |csv: &String| view.subscriptions.iter().any(|tracked| is_approved(&tracked.object, csv));
    !plan.spec.approved && names.iter().any(approves)
}

/// Removes the approvals that an approved InstallPlan has taken over.
pub(super) async fn consume(view: &mut View, cx: &Context<Namespace>) -> Result<()> {
    for index in 0..view.subscriptions.len() {
        if is_used(view, &view.subscriptions[index]) {
            let patch = json!({"metadata": {"annotations": {APPROVED: null}}});
            let changed = merge_patch(cx, &view.subscriptions[index].object, "", &patch).await?;
            view.subscriptions[index].object = changed;
        }
    }
    Ok(())
}

/// Returns true if the plan of a Subscription is approved and installs the version that the Subscription approves.
fn is_used(view: &View, tracked: &Tracked) -> bool {
    let plan = view.plan_of(&tracked.status).filter(|plan| plan.spec.approved);
    let names = plan.map(|plan| &plan.spec.cluster_service_version_names);
    names.is_some_and(|names| names.iter().any(|name| is_approved(&tracked.object, name)))
}

/// The choices of one InstallPlan.
pub(super) struct Group {
    pub(super) choices: Vec<Selected>,
    /// True if a person approved them already.
    pub(super) is_approved: bool,
}

/// Returns true if a plan failed whose choices do not depend on each other.
pub(super) fn is_divisible(plan: &InstallPlan, catalogs: &Catalogs, selected: &[Selected]) -> bool {
    let names = &plan.spec.cluster_service_version_names;
    let own = selected.iter().filter(|selected| names.contains(&selected.choice.name)).cloned().collect();
    plan.status.phase == InstallPlanPhase::Failed && names.len() > 1 && components(catalogs, own).len() > 1
}

/// Divides choices into sets that do not need each other.
fn components(catalogs: &Catalogs, choices: Vec<Selected>) -> Vec<Vec<Selected>> {
    let needs = needs(catalogs, &choices);
    let mut components: Vec<(BTreeSet<usize>, Vec<Selected>)> = Vec::new();
    for (needed, selected) in needs.into_iter().zip(choices) {
        let (joined, apart): (Vec<_>, Vec<_>) =
            components.into_iter().partition(|(others, _)| !others.is_disjoint(&needed));
        let (mut all, mut members) = (needed, Vec::new());
        for (others, choices) in joined {
            all.extend(others);
            members.extend(choices);
        }
        members.push(selected);
        components = apart;
        components.push((all, members));
    }
    components.into_iter().map(|(_, members)| members).collect()
}

/// Divides the choices of a group that a failed plan contains; the others stay together.
fn divided(view: &View, catalogs: &Catalogs, group: Group) -> Vec<Group> {
    let failed: Vec<&InstallPlan> =
        view.plans.values().filter(|plan| plan.status.phase == InstallPlanPhase::Failed).collect();
    let plan_of = |selected: &Selected| {
        failed.iter().find(|plan| plan.spec.cluster_service_version_names.contains(&selected.choice.name))
    };
    let is_approved = group.is_approved;
    let (again, fresh): (Vec<_>, Vec<_>) = group.choices.into_iter().partition(|choice| plan_of(choice).is_some());
    let approved = |choices: &[Selected]| choices.iter().filter_map(plan_of).all(|plan| plan.spec.approved);
    let again = components(catalogs, again).into_iter();
    let mut groups: Vec<Group> =
        again.map(|choices| Group { is_approved: is_approved || approved(&choices), choices }).collect();
    groups.extend((!fresh.is_empty()).then_some(Group { choices: fresh, is_approved }));
    groups
}

/// Divides choices into those that are approved, with their dependencies, and the others.
pub(super) fn groups(view: &View, catalogs: &Catalogs, choices: Vec<Selected>, divides: bool) -> Vec<Group> {
    let is_own = |selected: &Selected| {
        let subscription = selected.subscription.map(|index| &view.subscriptions[index].object);
        subscription.is_some_and(|subscription| is_approved(subscription, &selected.choice.name))
    };
    let mut approved: Vec<bool> = choices.iter().map(is_own).collect();
    // Dependencies without a Subscription follow; their chain has at most as many links as there are choices.
    for _ in 0..choices.len() {
        let needed = |index: usize| {
            choices[index].subscription.is_none()
                && (0..choices.len()).any(|of| approved[of] && requires(catalogs, &choices[of], &choices[index]))
        };
        let more: Vec<usize> = (0..choices.len()).filter(|index| !approved[*index] && needed(*index)).collect();
        if more.is_empty() {
            break;
        }
        more.into_iter().for_each(|index| approved[index] = true);
    }
    let (mut own, mut rest) = (Vec::new(), Vec::new());
    for (selected, is_approved) in choices.into_iter().zip(approved) {
        if is_approved { own.push(selected) } else { rest.push(selected) }
    }
    let group = |choices: Vec<Selected>, is_approved| (!choices.is_empty()).then_some(Group { choices, is_approved });
    let groups = [group(own, true), group(rest, false)].into_iter().flatten();
    match divides {
        true => groups.flat_map(|group| divided(view, catalogs, group)).collect(),
        false => groups.collect(),
    }
}

/// Returns true if a bundle has a requirement that another one meets.
fn requires(catalogs: &Catalogs, of: &Selected, other: &Selected) -> bool {
    let (Some(bundle), Some(other)) = (of.bundle(catalogs), other.bundle(catalogs)) else { return false };
    Requirement::of(bundle).unwrap_or_default().iter().any(|requirement| requirement.is_met_by(other))
}

/// Returns for each choice the indexes of all choices that it needs, with its own.
pub(super) fn needs(catalogs: &Catalogs, choices: &[Selected]) -> Vec<BTreeSet<usize>> {
    let direct = |of: usize| (0..choices.len()).filter(move |other| requires(catalogs, &choices[of], &choices[*other]));
    let direct: Vec<BTreeSet<usize>> = (0..choices.len()).map(|of| direct(of).collect()).collect();
    let all = |of: usize| {
        let (mut found, mut next) = (BTreeSet::from([of]), vec![of]);
        while let Some(of) = next.pop() {
            next.extend(direct[of].iter().copied().filter(|other| found.insert(*other)));
        }
        found
    };
    (0..choices.len()).map(all).collect()
}

/// Returns the choices whose bundles could be read, as all that they need. Dependencies that only others need are left
/// out.
pub(super) fn readable(group: &Group, read: Vec<Option<Chosen>>, needs: &[BTreeSet<usize>]) -> (Group, Vec<Chosen>) {
    let is_subscribed: Vec<bool> = group.choices.iter().map(|selected| selected.subscription.is_some()).collect();
    let is_read: Vec<bool> = read.iter().map(Option::is_some).collect();
    let stays = kept(&is_subscribed, &is_read, needs);
    let choices = group.choices.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(selected, _)| selected.clone());
    let chosen = read.into_iter().zip(&stays).filter_map(|(chosen, stays)| chosen.filter(|_| *stays)).collect();
    (Group { choices: choices.collect(), is_approved: group.is_approved }, chosen)
}

/// Returns for each choice whether it is planned.
fn kept(is_subscribed: &[bool], is_read: &[bool], needs: &[BTreeSet<usize>]) -> Vec<bool> {
    if is_read.iter().all(|is_read| *is_read) {
        return vec![true; is_read.len()];
    }
    let is_complete = |of: usize| needs[of].iter().all(|other| is_read[*other]);
    let wanted = (0..is_read.len()).filter(|of| is_subscribed[*of] && is_complete(*of));
    let wanted: BTreeSet<usize> = wanted.flat_map(|of| needs[of].iter().copied()).collect();
    (0..is_read.len()).map(|of| wanted.contains(&of)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_without_unreadable_bundles_are_planned() {
        // 0 needs 2, 1 needs 3 and 4, and only 0 and 1 have Subscriptions.
        let needs = [vec![0, 2], vec![1, 3, 4], vec![2], vec![3], vec![4]];
        let needs: Vec<BTreeSet<usize>> = needs.into_iter().map(BTreeSet::from_iter).collect();
        let is_subscribed = [true, true, false, false, false];
        let check = |unreadable: &[usize], expected: &[usize]| {
            let is_read: Vec<bool> = (0..5).map(|index| !unreadable.contains(&index)).collect();
            let kept = kept(&is_subscribed, &is_read, &needs);
            let kept: Vec<usize> = (0..5).filter(|index| kept[*index]).collect();
            assert_eq!(kept, expected, "{unreadable:?}");
        };
        check(&[], &[0, 1, 2, 3, 4]);
        check(&[4], &[0, 2]);
        check(&[0], &[1, 3, 4]);
        check(&[2, 3], &[]);
    }
}
