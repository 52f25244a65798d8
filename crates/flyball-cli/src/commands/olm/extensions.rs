//! ClusterExtensions and ClusterCatalogs, the operators and catalogs of OLM v1, and their problems.

use super::unread::Unread;
use crate::cluster::connection::Connection;
use crate::error::{Result, ResultExt};
use flyball::Condition;
use flyball_lifecycle::api::{ClusterCatalog, ClusterExtension};
use flyball_lifecycle::diagnosis::{Cause, Severity};
use k8s_openapi::ClusterResourceScope;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// The state of a ClusterExtension or a ClusterCatalog.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtensionReport {
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// The package, or the image of a catalog.
    pub(super) source: String,
    /// The installed version; empty for a catalog.
    pub(super) installed: String,
    pub(super) state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) problem: String,
}

/// Returns the state of all ClusterCatalogs, and of the ClusterExtensions that install in a namespace, or in any.
pub(super) async fn read(
    connection: &Connection,
    namespace: Option<&str>,
    unread: &mut Unread,
) -> Result<Vec<ExtensionReport>> {
    let catalogs: Vec<ClusterCatalog> = unread.or_default("the ClusterCatalogs", list(connection).await)?;
    let extensions: Vec<ClusterExtension> = unread.or_default("the ClusterExtensions", list(connection).await)?;
    let is_selected = |of: &&ClusterExtension| namespace.is_none_or(|namespace| of.spec.namespace == namespace);
    let selected = extensions.iter().filter(is_selected).map(extension);
    Ok(catalogs.iter().map(catalog).chain(selected).collect())
}

/// Returns the state of a ClusterExtension and the reasons why it does not progress; `None` if it does not exist.
pub(super) async fn find(connection: &Connection, name: &str) -> Result<Option<(ExtensionReport, Vec<Cause>)>> {
    let api: Api<ClusterExtension> = Api::all(connection.client.clone());
    let found = api.get_opt(name).await.context(format!("cannot read ClusterExtension {name}"));
    match found {
        Err(error) if error.is_absence() || error.is_forbidden() => Ok(None),
        found => Ok(found?.map(|found| (extension(&found), causes(&found)))),
    }
}

/// Lists cluster-scoped objects; none if the cluster does not have the kind.
async fn list<K>(connection: &Connection) -> Result<Vec<K>>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(connection.client.clone());
    let listed = api.list(&ListParams::default()).await.context(format!("cannot list {}", K::plural(&())));
    match listed {
        Err(error) if error.is_absence() => Ok(Vec::new()),
        listed => Ok(listed?.items),
    }
}

fn find_condition<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Returns the condition that is a problem.
fn problem(conditions: &[Condition]) -> Option<&Condition> {
    let progressing = find_condition(conditions, "Progressing")
        .filter(|condition| matches!(condition.reason.as_str(), "Retrying" | "Blocked"));
    let installed = || find_condition(conditions, "Installed").filter(|condition| condition.reason == "Failed");
    let serving = || find_condition(conditions, "Serving").filter(|condition| condition.reason == "Unavailable");
    progressing.or_else(installed).or_else(serving)
}

fn report(kind: &'static str, name: String, conditions: &[Condition]) -> ExtensionReport {
    let state = ["Serving", "Progressing"].iter().find_map(|kind| find_condition(conditions, kind));
    ExtensionReport {
        kind,
        name,
        source: String::new(),
        installed: String::new(),
        state: state.map_or_else(|| "Unknown".to_owned(), |condition| condition.reason.clone()),
        problem: problem(conditions).map(|condition| condition.message.clone()).unwrap_or_default(),
    }
}

fn extension(of: &ClusterExtension) -> ExtensionReport {
    let source = of.spec.source.catalog.as_ref().map(|filter| filter.package_name.clone()).unwrap_or_default();
    let installed = of.status.install.as_ref().map(|install| install.bundle.name.clone()).unwrap_or_default();
    ExtensionReport { source, installed, ..report("ClusterExtension", of.name_any(), &of.status.conditions) }
}

fn catalog(of: &ClusterCatalog) -> ExtensionReport {
    let source = of.spec.source.image.as_ref().map(|image| image.reference.clone()).unwrap_or_default();
    ExtensionReport { source, ..report("ClusterCatalog", of.name_any(), &of.status.conditions) }
}

fn causes(of: &ClusterExtension) -> Vec<Cause> {
    let name = of.name_any();
    let cause = |condition: &Condition| Cause {
        severity: Severity::Blocking,
        object: format!("ClusterExtension {name}"),
        field: format!("status.conditions[{}]", condition.kind),
        message: format!("{}: {}", condition.reason, condition.message),
        remedy: "correct its spec or the named object; see the catalogs: flyball olm status".to_owned(),
    };
    problem(&of.status.conditions).map(cause).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn problems_of_extensions_and_catalogs_are_found() {
        let check = |condition: Value, expected: &str| {
            let found: ClusterExtension = serde_json::from_value(json!({
                "metadata": {"name": "memo"}, "status": {"conditions": [condition]},
            }))
            .unwrap();
            assert_eq!(extension(&found).problem, expected);
            assert_eq!(causes(&found).len(), usize::from(!expected.is_empty()));
        };
        let condition = |kind: &str, status: &str, reason: &str| {
            let message = "why";
            json!({"type": kind, "status": status, "reason": reason, "message": message})
        };
        check(condition("Progressing", "True", "Succeeded"), "");
        check(condition("Progressing", "True", "RollingOut"), "");
        check(condition("Progressing", "True", "Retrying"), "why");
        check(condition("Progressing", "False", "Blocked"), "why");
        check(condition("Installed", "False", "Failed"), "why");
        check(condition("Installed", "False", "Absent"), "");
        let off: ClusterCatalog = serde_json::from_value(json!({
            "metadata": {"name": "demo"},
            "status": {"conditions": [condition("Serving", "False", "UserSpecifiedUnavailable")]},
        }))
        .unwrap();
        let off = catalog(&off);
        assert_eq!((&*off.problem, &*off.state), ("", "UserSpecifiedUnavailable"));
    }
}
