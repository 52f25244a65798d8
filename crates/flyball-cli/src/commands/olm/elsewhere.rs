//! A package that only catalogs of other namespaces have.

use crate::cluster::connection::Connection;
use flyball_lifecycle::api::Subscription;
use flyball_lifecycle::diagnosis::{Cause, Severity, Snapshot};
use http::Request;
use kube::ResourceExt;
use serde_json::Value;
use std::collections::BTreeSet;

/// Number of catalogs that a message lists.
const MAX_LISTED: usize = 5;

/// Returns the cause that the package of a Subscription is in catalogs which its namespace does not see. It needs the
/// permission to list PackageManifests of all namespaces, and is left out without it.
pub(super) async fn cause(connection: &Connection, snapshot: &Snapshot, name: &str) -> Option<Cause> {
    let subscription = snapshot.subscriptions.iter().find(|of| of.name_any() == name)?;
    if has_package(snapshot, subscription) {
        return None;
    }
    let package = &subscription.spec.package;
    let query = url::form_urlencoded::byte_serialize(format!("metadata.name={package}").as_bytes()).collect::<String>();
    let path = format!("/apis/packages.operators.coreos.com/v1/packagemanifests?fieldSelector={query}");
    let request = Request::get(path).body(Vec::new()).ok()?;
    let list: Value = connection.client.request(request).await.ok()?;
    let manifests = list["items"].as_array()?.iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let catalogs = manifests.map(|manifest| {
        let status = &manifest["status"];
        (text(&status["catalogSourceNamespace"]), text(&status["catalogSource"]))
    });
    let is_visible = |namespace: &str| namespace == snapshot.namespace || namespace == snapshot.global_namespace;
    let hidden: BTreeSet<(String, String)> = catalogs.filter(|(namespace, _)| !is_visible(namespace)).collect();
    (!hidden.is_empty()).then(|| explain(snapshot, name, package, &hidden))
}

/// Returns true if a catalog that the namespace sees has the package: the selection of a version explains the rest.
fn has_package(snapshot: &Snapshot, subscription: &Subscription) -> bool {
    snapshot.catalogs.iter().any(|(source, loaded)| {
        let namespace = source.namespace().unwrap_or_default();
        let is_visible = namespace == snapshot.namespace || namespace == snapshot.global_namespace;
        is_visible && loaded.as_ref().is_ok_and(|of| of.content.package(&subscription.spec.package).is_some())
    })
}

fn explain(snapshot: &Snapshot, name: &str, package: &str, hidden: &BTreeSet<(String, String)>) -> Cause {
    let Snapshot { namespace, global_namespace, .. } = snapshot;
    let listed: Vec<String> = hidden
        .iter()
        .take(MAX_LISTED)
        .map(|(of, catalog)| format!("CatalogSource {catalog} of namespace {of}"))
        .collect();
    let more = hidden.len().saturating_sub(MAX_LISTED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Cause {
        severity: Severity::Notice,
        object: format!("Subscription {namespace}/{name}"),
        field: "spec.source".to_owned(),
        message: format!(
            "package {package} is in {}{more}, which namespace {namespace} does not see",
            listed.join(", ")
        ),
        remedy: format!(
            "create a CatalogSource with the same source in {namespace} or in {global_namespace}, and refer to it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_catalogs_are_named() {
        let snapshot =
            Snapshot { namespace: "away".to_owned(), global_namespace: "olm".to_owned(), ..Snapshot::default() };
        let hidden: BTreeSet<_> = (0..7).map(|n| (format!("team-{n}"), "own".to_owned())).collect();
        let cause = explain(&snapshot, "memo", "memo", &hidden);
        assert!(cause.message.starts_with("package memo is in CatalogSource own of namespace team-0, "));
        assert!(cause.message.ends_with("team-4 and 2 more, which namespace away does not see"), "{}", cause.message);
        assert!(!has_package(&snapshot, &Subscription::new(Some("away"), "memo")));
    }
}
