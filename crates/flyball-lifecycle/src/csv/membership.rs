//! The OperatorGroup of a ClusterServiceVersion.

use super::observe::Cx;
use super::transition::Step;
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, OperatorGroup, labels};
use crate::group::{ProvidedApis, has_conflict, targets};
use crate::install::InstallModes;
use flyball::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

/// The relation of a ClusterServiceVersion to the OperatorGroups of its namespace.
#[derive(Debug)]
pub(super) enum Membership {
    /// The ClusterServiceVersion belongs to this group, and may be installed.
    Member(Box<OperatorGroup>),
    /// The annotations have to be set first.
    Annotate(Map<String, Value>),
    /// The group has to be processed first.
    Wait,
    /// The ClusterServiceVersion cannot be installed.
    Failed(Step),
}

fn failure(reason: &'static str, message: impl Into<String>) -> Membership {
    Membership::Failed(Step::Enter(Phase::Failed, reason, message.into()))
}

/// Returns the group of a ClusterServiceVersion, or what prevents its membership.
pub(super) async fn membership(csv: &ClusterServiceVersion, cx: &Cx) -> Result<Membership> {
    let groups = cx.list::<OperatorGroup>(None).await?;
    // Only selectors need all namespaces.
    let selects = |group: &OperatorGroup| group.namespace() == csv.namespace() && group.spec.selector.is_some();
    let namespaces = match groups.iter().any(selects) {
        true => cx.list::<Namespace>(None).await?,
        false => Vec::new(),
    };
    Ok(decide(csv, &groups, &namespaces))
}

fn decide(csv: &ClusterServiceVersion, groups: &[OperatorGroup], namespaces: &[Namespace]) -> Membership {
    let is_local =
        |group: &&OperatorGroup| group.namespace() == csv.namespace() && group.metadata.deletion_timestamp.is_none();
    let local: Vec<&OperatorGroup> = groups.iter().filter(is_local).collect();
    let group = match local[..] {
        [group] => group,
        [] => return failure("NoOperatorGroup", "csv in namespace with no operatorgroups"),
        _ => {
            return failure(
                "TooManyOperatorGroups",
                "csv created in namespace with multiple operatorgroups, can't pick one automatically",
            );
        }
    };
    let targets = match targets(group, namespaces) {
        Ok(targets) => targets,
        Err(error) => return failure("NoTargetNamespaces", error.to_string()),
    };
    let mut names = group.status.namespaces.clone();
    names.sort();
    let annotations = annotations(csv, group, targets.is_empty());
    if !targets.iter().eq(&names) {
        return Membership::Wait;
    }
    if !annotations.is_empty() {
        return Membership::Annotate(annotations);
    }
    if targets.is_empty() {
        let message = "no targetNamespaces are matched operatorgroups namespace selection";
        return failure("NoTargetNamespaces", message);
    }
    let modes = match InstallModes::new(&csv.spec.install_modes) {
        Ok(modes) => modes,
        Err(error) => return failure("InvalidInstallModes", error.to_string()),
    };
    if let Err(error) = modes.check(&csv.namespace().unwrap_or_default(), &names) {
        return failure("UnsupportedOperatorGroup", error.to_string());
    }
    provided(csv, group, groups)
}

/// Checks that no other group provides the APIs, and that its own group has them in its annotation.
fn provided(csv: &ClusterServiceVersion, group: &OperatorGroup, groups: &[OperatorGroup]) -> Membership {
    let is_granted = ProvidedApis::of(csv).0.is_subset(&ProvidedApis::annotated(group).0);
    if group.spec.static_provided_apis && !is_granted {
        return failure(
            "CannotModifyStaticOperatorGroupProvidedAPIs",
            "static provided api operatorgroup cannot be modified by these apis",
        );
    }
    if has_conflict(csv, group, groups) {
        return failure("InterOperatorGroupOwnerConflict", "intersecting operatorgroups provide the same apis");
    }
    match is_granted {
        true => Membership::Member(Box::new(group.clone())),
        // The controller of groups adds them.
        false => Membership::Wait,
    }
}

/// Returns the annotations of a member that are missing. Those of target namespaces stay if there are none, as in OLM.
fn annotations(csv: &ClusterServiceVersion, group: &OperatorGroup, is_empty: bool) -> Map<String, Value> {
    let mut wanted = vec![
        (labels::OPERATOR_GROUP, group.name_any()),
        (labels::OPERATOR_NAMESPACE, group.namespace().unwrap_or_default()),
    ];
    if !is_empty {
        wanted.push((labels::TARGET_NAMESPACES, group.targets()));
    }
    let known = csv.annotations();
    wanted.retain(|(name, value)| known.get(*name) != Some(value));
    wanted.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, spec: Value, status: Value) -> OperatorGroup {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "demo", "uid": name, "annotations": {
                "olm.providedAPIs": "Memo.v1.demo",
            }},
            "spec": spec,
            "status": status,
        }))
        .unwrap()
    }

    fn check(groups: &[OperatorGroup], annotations: Value, expected: &str) {
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "memo", "namespace": "demo", "annotations": annotations},
            "spec": {
                "installModes": [{"type": "OwnNamespace", "supported": true}],
                "customresourcedefinitions": {"owned": [{"name": "memos.demo", "version": "v1", "kind": "Memo"}]},
            },
        }))
        .unwrap();
        let text = match decide(&csv, groups, &[]) {
            Membership::Member(group) => format!("member of {}", group.name_any()),
            Membership::Annotate(annotations) => Value::Object(annotations).to_string(),
            Membership::Wait => "wait".into(),
            Membership::Failed(Step::Enter(_, reason, _)) => reason.into(),
            Membership::Failed(step) => format!("{step:?}"),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn member_has_one_group_that_supports_it() {
        let own = || json!({"targetNamespaces": ["demo"]});
        let status = || json!({"namespaces": ["demo"]});
        let all = || json!({"olm.operatorGroup": "a", "olm.operatorNamespace": "demo", "olm.targetNamespaces": "demo"});
        check(&[], json!({}), "NoOperatorGroup");
        check(&[group("a", own(), status()), group("b", own(), status())], json!({}), "TooManyOperatorGroups");
        check(&[group("a", own(), json!({}))], json!({}), "wait");
        check(&[group("a", own(), status())], all(), "member of a");
        let mut other = all();
        other["olm.targetNamespaces"] = "x".into();
        check(&[group("a", own(), status())], other, r#"{"olm.targetNamespaces":"demo"}"#);
        let selector = json!({"selector": {"matchLabels": {"team": "red"}}});
        check(&[group("a", selector, json!({}))], all(), "NoTargetNamespaces");
        let mut two = all();
        two["olm.targetNamespaces"] = "b,demo".into();
        check(
            &[group("a", json!({"targetNamespaces": ["demo", "b"]}), json!({"namespaces": ["demo", "b"]}))],
            two,
            "UnsupportedOperatorGroup",
        );
    }

    #[test]
    fn apis_must_be_in_the_annotation_of_the_group() {
        let all = || json!({"olm.operatorGroup": "a", "olm.operatorNamespace": "demo", "olm.targetNamespaces": "demo"});
        let mut own = group("a", json!({"targetNamespaces": ["demo"]}), json!({"namespaces": ["demo"]}));
        own.metadata.annotations = None;
        check(&[own.clone()], all(), "wait");
        own.spec.static_provided_apis = true;
        check(&[own], all(), "CannotModifyStaticOperatorGroupProvidedAPIs");
    }
}
