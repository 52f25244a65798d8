//! Conflicts between groups: an API may be provided by one operator only in each namespace.

use super::{ProvidedApi, ProvidedApis, targets};
use crate::api::{ClusterServiceVersion, OperatorGroup};
use crate::install::InstallModes;
use kube::ResourceExt;
use std::collections::BTreeSet;

/// Returns true if a group with intersecting targets provides an API of the ClusterServiceVersion, and takes
/// precedence.
pub(crate) fn has_conflict(csv: &ClusterServiceVersion, group: &OperatorGroup, groups: &[OperatorGroup]) -> bool {
    ProvidedApis::of(csv).0.iter().any(|api| is_lost(api, group, groups))
}

/// Returns the APIs of the annotation of a group: those that it has and that still have an operator, and those of
/// operators that can be installed. `csvs` are those of its namespace, without copies.
pub(crate) fn provided_by_group(
    group: &OperatorGroup,
    groups: &[OperatorGroup],
    csvs: &[ClusterServiceVersion],
) -> ProvidedApis {
    let known = ProvidedApis::annotated(group);
    if group.spec.static_provided_apis {
        return known;
    }
    let all: BTreeSet<ProvidedApi> = csvs.iter().flat_map(|csv| ProvidedApis::of(csv).0).collect();
    let mut provided = ProvidedApis(known.0.into_iter().filter(|api| all.contains(api)).collect());
    provided.0.retain(|api| !is_lost(api, group, groups));
    let namespace = group.namespace().unwrap_or_default();
    for csv in csvs {
        let modes = InstallModes::new(&csv.spec.install_modes);
        let is_supported = modes.is_ok_and(|modes| modes.check(&namespace, &group.status.namespaces).is_ok());
        if is_supported && !has_conflict(csv, group, groups) {
            provided.0.extend(ProvidedApis::of(csv).0);
        }
    }
    provided
}

/// Returns true if another group with intersecting targets has an API, and this one has it not, or is younger.
///
/// Two groups may get the same API at the same time: then the older one keeps it.
fn is_lost(api: &ProvidedApi, group: &OperatorGroup, groups: &[OperatorGroup]) -> bool {
    let own = ProvidedApis::annotated(group).0.contains(api);
    groups.iter().any(|other| {
        other.uid() != group.uid()
            && other.metadata.deletion_timestamp.is_none()
            && ProvidedApis::annotated(other).0.contains(api)
            && intersect(group, other)
            && (!own || precedence(other) < precedence(group))
    })
}

fn precedence(group: &OperatorGroup) -> (Option<flyball_core::time::Timestamp>, Option<String>, String) {
    (group.creation_timestamp().map(|time| time.0), group.namespace(), group.name_any())
}

/// Returns true if two groups have a namespace in common; the namespace of a group counts as its target.
fn intersect(one: &OperatorGroup, other: &OperatorGroup) -> bool {
    let (one, other) = (targets_of(one), targets_of(other));
    if one.contains("") || other.contains("") {
        return !one.is_empty() && !other.is_empty();
    }
    !one.is_disjoint(&other)
}

/// Returns the targets of a group with its namespace. Only those of a selector are taken from the status, which more
/// users may be able to write than the spec.
fn targets_of(group: &OperatorGroup) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = match group.spec.selector {
        Some(_) => group.status.namespaces.iter().cloned().collect(),
        None => targets(group, &[]).unwrap_or_default(),
    };
    if !names.is_empty() && !names.contains("") {
        names.extend(group.namespace());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn group(name: &str, targets: &[&str], provided: &str, created: &str) -> OperatorGroup {
        let listed: Vec<&str> = targets.iter().copied().filter(|target| !target.is_empty()).collect();
        serde_json::from_value(json!({
            "metadata": {
                "name": "g", "namespace": name, "uid": name, "creationTimestamp": created,
                "annotations": {"olm.providedAPIs": provided},
            },
            "spec": {"targetNamespaces": listed},
            "status": {"namespaces": targets},
        }))
        .unwrap()
    }

    fn csv(namespace: &str) -> ClusterServiceVersion {
        serde_json::from_value(json!({
            "metadata": {"name": "memo", "namespace": namespace},
            "spec": {
                "installModes": [{"type": "OwnNamespace", "supported": true}, {"type": "AllNamespaces", "supported": true}],
                "customresourcedefinitions": {"owned": [{"name": "memos.demo", "version": "v1", "kind": "Memo"}]},
            },
        }))
        .unwrap()
    }

    const OLD: &str = "2026-01-01T00:00:00Z";
    const NEW: &str = "2026-01-02T00:00:00Z";

    #[test]
    fn groups_that_intersect_cannot_provide_the_same_api() {
        let check = |own: &OperatorGroup, other: &OperatorGroup, expected: bool| {
            let groups = [own.clone(), other.clone()];
            assert_eq!(has_conflict(&csv("a"), own, &groups), expected);
            let provided = provided_by_group(own, &groups, &[csv("a")]).to_string();
            assert_eq!(provided.is_empty(), expected, "{provided}");
        };
        let api = "Memo.v1.demo";
        check(&group("a", &["a"], "", NEW), &group("b", &["b"], api, OLD), false);
        check(&group("a", &["a"], "", OLD), &group("b", &[""], api, NEW), true);
        check(&group("a", &[""], "", OLD), &group("b", &["b"], api, NEW), true);
        check(&group("a", &["a"], "", OLD), &group("b", &["a", "b"], "Other.v1.demo", NEW), false);
        // Both have it: the older one keeps it.
        check(&group("a", &[""], api, OLD), &group("b", &["b"], api, NEW), false);
        check(&group("a", &[""], api, NEW), &group("b", &["b"], api, OLD), true);
    }

    #[test]
    fn neither_a_dying_group_nor_a_status_takes_an_api_away() {
        let own = group("a", &["a"], "Memo.v1.demo", NEW);
        let conflicts = |other: OperatorGroup| has_conflict(&csv("a"), &own, &[own.clone(), other]);
        let other = group("b", &["a", "b"], "Memo.v1.demo", OLD);
        assert!(conflicts(other.clone()));
        let mut dying = other.clone();
        dying.metadata.deletion_timestamp = dying.metadata.creation_timestamp.clone();
        assert!(!conflicts(dying));
        let mut forged = group("b", &["b"], "Memo.v1.demo", OLD);
        forged.status.namespaces = vec![String::new()];
        assert!(!conflicts(forged));
        let mut selecting = other;
        selecting.spec.target_namespaces.clear();
        selecting.spec.selector = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector::default());
        assert!(conflicts(selecting));
    }

    #[test]
    fn annotation_keeps_apis_of_operators_that_became_unsupported() {
        let unsupported = group("a", &["a", "b"], "Memo.v1.demo", OLD);
        let provided =
            |group: &OperatorGroup, csvs: &[ClusterServiceVersion]| provided_by_group(group, &[], csvs).to_string();
        assert_eq!(provided(&unsupported, &[csv("a")]), "Memo.v1.demo");
        assert_eq!(provided(&group("a", &["a", "b"], "", OLD), &[csv("a")]), "");
        assert_eq!(provided(&unsupported, &[]), "");
        let mut fixed = unsupported;
        fixed.spec.static_provided_apis = true;
        assert_eq!(provided(&fixed, &[]), "Memo.v1.demo");
    }
}
