//! The controller of OperatorGroups: status, annotation of provided APIs, ClusterRoles.

use super::conflict::provided_by_group;
use super::roles::group_roles;
use super::{ProvidedApis, targets};
use crate::api::{ClusterServiceVersion, OperatorGroup, OperatorGroupStatus, labels};
use crate::patch::{merge_patch, object};
use crate::rules::rule;
use flyball::{Action, Condition, Context, Controller, Error, Event, ObjectKey, Predicate, Reconcile, Result};
use flyball_core::time::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeSet;

const MULTIPLE: &str = "MultipleOperatorGroup";
const NO_ACCOUNT: &str = "OperatorGroupServiceAccount";
const READY: &str = "Ready";

struct Groups;

impl Reconcile for Groups {
    type Resource = OperatorGroup;

    async fn reconcile(&self, group: &OperatorGroup, cx: &Context<OperatorGroup>) -> Result<Action> {
        // Only a selector needs all namespaces.
        let namespaces = match group.spec.selector {
            Some(_) => cx.list::<Namespace>(None).await?,
            None => Vec::new(),
        };
        let targets = targets(group, &namespaces).map_err(|error| {
            cx.event(Event::warning("InvalidTargetNamespaces", error.to_string()));
            Error::from(error).terminal()
        })?;
        let alive = |group: OperatorGroup| group.metadata.deletion_timestamp.is_none().then_some(group);
        let groups = cx.filter_map(None, alive).await?;
        let siblings = groups.iter().filter(|other| other.namespace() == group.namespace()).count();
        let account = match group.spec.service_account_name.as_str() {
            "" => None,
            name => Some(cx.get::<ServiceAccount>(&cx.sibling(name)).await?.ok_or_else(|| name.to_owned())),
        };
        let status = status(group, &targets, siblings > 1, account, cx.now());
        let mut group = group.clone();
        if status != group.status {
            // Fields that are not set any more are removed.
            let patch = json!({"status": {
                "namespaces": (!status.namespaces.is_empty()).then_some(&status.namespaces),
                "lastUpdated": status.last_updated,
                "serviceAccountRef": status.service_account_ref,
                "conditions": (!status.conditions.is_empty()).then_some(&status.conditions),
            }});
            group = merge_patch(cx, &group, "status", &patch).await?;
        }
        let group = &group;
        let groups: Vec<OperatorGroup> = groups.into_iter().filter(|other| other.uid() != group.uid()).collect();
        let csvs: Vec<ClusterServiceVersion> = cx
            .filter_map::<ClusterServiceVersion, _>(group.namespace().as_deref(), |csv| {
                (csv.copied_from().is_none() && csv.metadata.deletion_timestamp.is_none()).then_some(csv)
            })
            .await?;
        self.annotate(group, &groups, &csvs, cx).await?;
        let mut apis = ProvidedApis::annotated(group).0;
        apis.extend(csvs.iter().flat_map(|csv| ProvidedApis::of(csv).0));
        for role in group_roles(group, &apis) {
            cx.apply_unowned(&object(role)?).await?;
        }
        Ok(Action::done())
    }
}

impl Groups {
    /// Sets the annotation of provided APIs. It remains as an empty text, as in OLM.
    async fn annotate(
        &self,
        group: &OperatorGroup,
        groups: &[OperatorGroup],
        csvs: &[ClusterServiceVersion],
        cx: &Context<OperatorGroup>,
    ) -> Result<()> {
        let provided = provided_by_group(group, groups, csvs);
        if provided == ProvidedApis::annotated(group) {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {labels::PROVIDED_APIS: provided.to_string()}}});
        merge_patch(cx, group, "", &patch).await?;
        Ok(())
    }
}

/// Returns the status of a group. `account` is its service account, or the name of one that does not exist.
fn status(
    group: &OperatorGroup,
    targets: &BTreeSet<String>,
    is_multiple: bool,
    account: Option<Result<ServiceAccount, String>>,
    now: Timestamp,
) -> OperatorGroupStatus {
    let mut status = group.status.clone();
    let known: BTreeSet<String> = status.namespaces.iter().cloned().collect();
    let mut is_changed = known != *targets;
    if is_changed {
        status.namespaces = targets.iter().cloned().collect();
    }
    let reference = account.as_ref().and_then(|account| account.as_ref().ok()).map(|account| ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("ServiceAccount".into()),
        name: account.metadata.name.clone(),
        namespace: account.metadata.namespace.clone(),
        uid: account.metadata.uid.clone(),
        ..ObjectReference::default()
    });
    is_changed |= reference != status.service_account_ref;
    status.service_account_ref = reference;
    if is_changed {
        status.last_updated = Some(Time(now));
    }
    let missing = account.and_then(Result::err);
    let ready = ready(targets.is_empty(), is_multiple, missing.as_deref());
    set_condition(
        &mut status,
        is_multiple.then(|| {
            Condition::new(MULTIPLE, true, "MultipleOperatorGroupsFound")
                .message("Multiple OperatorGroup found in the same namespace")
        }),
        MULTIPLE,
        now,
    );
    set_condition(
        &mut status,
        missing.map(|name| {
            Condition::new(NO_ACCOUNT, true, "ServiceAccountNotFound")
                .message(format!("ServiceAccount {name} not found"))
        }),
        NO_ACCOUNT,
        now,
    );
    set_condition(&mut status, Some(ready), READY, now);
    // Programs that know OLM may read the first one.
    status.conditions.sort_by_key(|condition| condition.kind == READY);
    for condition in &mut status.conditions {
        condition.observed_generation = group.metadata.generation;
    }
    // The CRD requires the time.
    if status.last_updated.is_none() && !status.conditions.is_empty() {
        status.last_updated = Some(Time(now));
    }
    status
}

/// Returns the condition that shows if operators can be installed in the namespace of the group.
fn ready(has_no_targets: bool, is_multiple: bool, missing_account: Option<&str>) -> Condition {
    match missing_account {
        _ if is_multiple => Condition::new(READY, false, "MultipleOperatorGroupsFound")
            .message("the namespace has several OperatorGroups: delete all but one"),
        _ if has_no_targets => Condition::new(READY, false, "NoTargetNamespaces")
            .message("no namespace matches spec.selector: label a namespace, or set spec.targetNamespaces"),
        Some(name) => Condition::new(READY, false, "ServiceAccountNotFound")
            .message(format!("ServiceAccount {name} of spec.serviceAccountName does not exist: create it")),
        None => Condition::new(READY, true, "TargetsSelected"),
    }
}

/// Sets or removes a condition; the time of one with the same status stays.
fn set_condition(status: &mut OperatorGroupStatus, condition: Option<Condition>, kind: &str, now: Timestamp) {
    let known = status.conditions.iter().position(|known| known.kind == kind);
    match (condition, known) {
        (None, None) => {}
        (None, Some(at)) => drop(status.conditions.remove(at)),
        (Some(mut condition), known) => {
            let same = known.map(|at| &status.conditions[at]).filter(|known| known.status == condition.status);
            condition.last_transition_time = Some(
                same.and_then(|known| known.last_transition_time.clone())
                    .unwrap_or_else(|| flyball_core::time::rfc3339(now)),
            );
            match known {
                Some(at) => status.conditions[at] = condition,
                None => status.conditions.push(condition),
            }
        }
    }
}

/// Returns the controller of OperatorGroups.
pub(crate) fn group_controller() -> Controller<impl Reconcile> {
    let in_namespace = |namespace: Option<&str>, caches: &flyball::Caches| caches.keys::<OperatorGroup>(namespace);
    Controller::new(Groups)
        .owns::<ClusterRole>()
        .dynamic(&flyball::Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole").cluster_scoped())
        .owns()
        .watches_by_key::<Namespace>(|_, caches| caches.keys::<OperatorGroup>(None))
        // Other groups may lose or gain APIs.
        .watches_by_key::<OperatorGroup>(|_, caches| caches.keys::<OperatorGroup>(None))
        .filter::<OperatorGroup>(group_changes())
        .filter::<Namespace>(Predicate::labels())
        .watches_by_key::<ClusterServiceVersion>(move |csv, caches| in_namespace(csv.namespace(), caches))
        .refers_to::<ServiceAccount>(|group| {
            let name = Some(&group.spec.service_account_name).filter(|name| !name.is_empty());
            name.map(|name| ObjectKey::new(None, name)).into_iter().collect()
        })
        .watches::<ClusterRole>(|role, _| Ok(role_group(role).into_iter().collect()))
        .allows(rule(crate::api::GROUP, &["operatorgroups", "operatorgroups/status"], &["patch"]))
}

/// Returns the changes of a group that concern other objects. A note on one must not reconcile all groups and operators
/// of the cluster.
pub(crate) fn group_changes() -> Predicate<OperatorGroup> {
    let status = Predicate::new(|old: &OperatorGroup, new: &OperatorGroup| old.status != new.status);
    Predicate::generation().or(Predicate::annotation(labels::PROVIDED_APIS)).or(status)
}

/// Returns the group of a role, whose aggregation rule is restored if it is edited.
fn role_group(role: &ClusterRole) -> Option<ObjectKey> {
    super::roles::group_of(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_changes_only_with_its_inputs() {
        let (first, second): (Timestamp, Timestamp) =
            ("2026-01-01T00:00:00Z".parse().unwrap(), "2026-01-02T00:00:00Z".parse().unwrap());
        let mut group = OperatorGroup::new(Some("demo"), "group");
        group.status = status(&group, &["demo".to_owned()].into(), true, Some(Err("sa".into())), first);
        assert_eq!(group.status.last_updated, Some(Time(first)));
        let reasons: Vec<_> = group.status.conditions.iter().map(|c| c.reason.as_str()).collect();
        assert_eq!(reasons, ["MultipleOperatorGroupsFound", "ServiceAccountNotFound", "MultipleOperatorGroupsFound"]);
        let again = status(&group, &["demo".to_owned()].into(), true, Some(Err("sa".into())), second);
        assert_eq!(again, group.status);
        let alone = status(&group, &["demo".to_owned()].into(), false, None, second);
        let [ready] = &alone.conditions[..] else { panic!("{:?}", alone.conditions) };
        assert_eq!((ready.kind.as_str(), ready.status.as_str()), ("Ready", "True"));
        assert_eq!(ready.last_transition_time.as_deref(), Some("2026-01-02T00:00:00Z"));
        assert_eq!(alone.last_updated, Some(Time(first)));
        let none = status(&OperatorGroup::default(), &BTreeSet::new(), false, None, first);
        assert_eq!(none.conditions[0].reason, "NoTargetNamespaces");
        assert!(none.namespaces.is_empty());
    }

    #[test]
    fn conditions_name_the_generation() {
        let mut group = OperatorGroup::new(Some("demo"), "group");
        group.metadata.generation = Some(3);
        let status = status(&group, &["demo".to_owned()].into(), true, None, "2026-01-01T00:00:00Z".parse().unwrap());
        assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(3)), "{status:?}");
    }
}
