//! Subscriptions that are rolled back to an earlier version.
//!
//! A rollback is an upgrade to the older version: its InstallPlan installs a ClusterServiceVersion that replaces the
//! newer one, so that checks, handover and waiting are those of any upgrade. While the annotation exists, the
//! Subscription stays at this version.

use super::selected::Selected;
use super::view::View;
use crate::api::labels::ROLLBACK;
use crate::api::{ClusterServiceVersionPhase as Phase, Subscription};
use crate::patch::merge_patch;
use crate::resolution::Choice;
use flyball::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde_json::json;

/// Returns the name of the version to roll back to.
pub(super) fn target(subscription: &Subscription) -> Option<&str> {
    subscription.annotations().get(ROLLBACK).map(|name| name.trim()).filter(|name| !name.is_empty())
}

/// Returns the names of the choices that are those of rollbacks.
pub(super) fn targets<'c>(view: &View, choices: &'c [Selected]) -> Vec<&'c str> {
    let is_target = |selected: &&Selected| {
        let subscription = selected.subscription.map(|index| &view.subscriptions[index].object);
        subscription.and_then(target) == Some(&*selected.choice.name)
    };
    choices.iter().filter(is_target).map(|selected| selected.choice.name.as_str()).collect()
}

/// Sets the current version of Subscriptions whose newer version was deleted before it replaced the older one, which is
/// being installed again.
pub(super) fn take_over(view: &mut View) {
    for tracked in &mut view.subscriptions {
        let Some(target) = target(&tracked.object) else { continue };
        let exists = |name: &str| view.csvs.get(name).is_some_and(|csv| csv.metadata.deletion_timestamp.is_none());
        let status = &tracked.status;
        let is_deleting = |name: &str| view.csvs.get(name).is_some_and(|csv| csv.status.phase == Phase::Deleting);
        if status.current_csv != target && !exists(&status.current_csv) && exists(target) && !is_deleting(target) {
            tracked.status.current_csv = target.to_owned();
        }
    }
}

/// Allows versions that a rollback installed to be replaced by the version that they replaced: otherwise each of the
/// two would replace the other.
pub(super) async fn unlink(view: &mut View, choices: &[&Choice], cx: &Context<Namespace>) -> Result<()> {
    for choice in choices {
        let installed = choice.replaces.as_ref().and_then(|name| view.csvs.get_mut(name));
        let Some(installed) = installed.filter(|csv| csv.spec.replaces == choice.name) else { continue };
        *installed = merge_patch(cx, installed, "", &json!({"spec": {"replaces": null}})).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ClusterServiceVersion;
    use crate::subscription::view::Tracked;
    use std::collections::BTreeMap;

    fn view(current: &str, csvs: &[&str]) -> View {
        let mut object = Subscription::new(Some("demo"), "memo");
        object.annotations_mut().insert(ROLLBACK.to_owned(), "memo.v1".to_owned());
        object.status.current_csv = current.to_owned();
        let csvs = csvs.iter().map(|name| ((*name).to_owned(), ClusterServiceVersion::new(Some("demo"), name)));
        View {
            namespace: "demo".to_owned(),
            subscriptions: vec![Tracked { status: object.status.clone(), object }],
            csvs: csvs.collect(),
            plans: BTreeMap::new(),
            groups: Vec::new(),
            sources: Vec::new(),
        }
    }

    #[test]
    fn older_version_is_taken_over_when_the_newer_one_is_gone() {
        let check = |current: &str, csvs: &[&str], expected: &str| {
            let mut view = view(current, csvs);
            take_over(&mut view);
            assert_eq!(view.subscriptions[0].status.current_csv, expected, "{current} {csvs:?}");
        };
        check("memo.v2", &["memo.v1"], "memo.v1");
        check("memo.v2", &["memo.v1", "memo.v2"], "memo.v2");
        check("memo.v2", &[], "memo.v2");
        check("memo.v1", &["memo.v1"], "memo.v1");
    }
}
