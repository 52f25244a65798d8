//! The other OperatorGroup that prevents an operator: it provides the same API in a common namespace.

use super::objects;
use super::unread::Unread;
use crate::cluster::connection::Connection;
use crate::error::Result;
use flyball_lifecycle::api::labels::PROVIDED_APIS;
use flyball_lifecycle::api::{ClusterServiceVersion, OperatorGroup};
use flyball_lifecycle::diagnosis::{Cause, Severity};
use kube::ResourceExt;
use std::collections::BTreeSet;

/// Limit of the OperatorGroups that are named.
const MAX_GROUPS: usize = 5;

/// Returns the OperatorGroups that provide APIs of a ClusterServiceVersion which failed because of that.
pub(super) async fn causes(
    connection: &Connection,
    csv: &ClusterServiceVersion,
    unread: &mut Unread,
) -> Result<Vec<Cause>> {
    if csv.status.reason != "InterOperatorGroupOwnerConflict" {
        return Ok(Vec::new());
    }
    const GROUPS: &str = "the OperatorGroups of other namespaces: which one provides the same API is unknown";
    let groups: Vec<OperatorGroup> = unread.or_default(GROUPS, objects::list(connection, None).await)?;
    let own = csv.namespace().unwrap_or_default();
    let mut causes = Vec::new();
    for (group, apis) in rivals(csv, &groups).into_iter().take(MAX_GROUPS) {
        let namespace = group.namespace().unwrap_or_default();
        const OPERATORS: &str = "the operators of other namespaces: which one provides the same API is unknown";
        let listed = objects::list(connection, Some(&namespace)).await;
        let csvs: Vec<ClusterServiceVersion> = unread.or_default(OPERATORS, listed)?;
        let operators: Vec<String> = csvs
            .iter()
            .filter(|of| of.copied_from().is_none() && !provided(of).is_disjoint(&apis))
            .map(ResourceExt::name_any)
            .collect();
        let by = if operators.is_empty() { String::new() } else { format!(" by {}", operators.join(", ")) };
        let apis = apis.into_iter().collect::<Vec<_>>().join(", ");
        causes.push(Cause {
            severity: Severity::Blocking,
            object: format!("OperatorGroup {namespace}/{}", group.name_any()),
            field: String::new(),
            message: format!("it provides {apis}{by} in a namespace that it has in common with that of {own}"),
            remedy: format!(
                "uninstall the operator of {namespace} or that of {own}, or separate spec.targetNamespaces of their \
                 OperatorGroups"
            ),
        });
    }
    Ok(causes)
}

/// Returns the APIs of an operator, as in the annotation of OperatorGroups.
fn provided(csv: &ClusterServiceVersion) -> BTreeSet<String> {
    let definitions = csv.spec.crds.owned.iter();
    definitions.map(|owned| format!("{}.{}.{}", owned.kind, owned.version, owned.group())).collect()
}

/// Returns the groups of other namespaces that have an API of an operator, with the common APIs.
fn rivals<'g>(csv: &ClusterServiceVersion, groups: &'g [OperatorGroup]) -> Vec<(&'g OperatorGroup, BTreeSet<String>)> {
    let own = provided(csv);
    let others = groups.iter().filter(|group| group.namespace() != csv.namespace());
    let common = others.map(|group| {
        let listed = group.annotations().get(PROVIDED_APIS).map(String::as_str).unwrap_or_default();
        (group, listed.split(',').filter(|api| own.contains(*api)).map(str::to_owned).collect::<BTreeSet<_>>())
    });
    common.filter(|(_, apis)| !apis.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_with_the_same_api_are_found() {
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "memo", "namespace": "demo"},
            "spec": {"customresourcedefinitions": {"owned": [
                {"name": "memos.demo.dev", "version": "v1", "kind": "Memo"},
            ]}},
        }))
        .unwrap();
        let group = |namespace: &str, apis: &str| -> OperatorGroup {
            serde_json::from_value(json!({
                "metadata": {"name": "all", "namespace": namespace, "annotations": {"olm.providedAPIs": apis}},
            }))
            .unwrap()
        };
        let groups = [
            group("demo", "Memo.v1.demo.dev"),
            group("other", "Note.v1.demo.dev"),
            group("rival", "Note.v1.demo.dev,Memo.v1.demo.dev"),
        ];
        let found = rivals(&csv, &groups);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0.namespace().as_deref(), Some("rival"));
        assert_eq!(found[0].1.iter().collect::<Vec<_>>(), ["Memo.v1.demo.dev"]);
    }
}
