//! The objects that a rehearsal copies.

use super::catalogs::address;
use crate::cluster::connection::Connection;
use crate::cluster::kinds::Kinds;
use crate::commands::olm::unread::Unread;
use crate::error::{Error, Result};
use flyball_lifecycle::api::labels::{MANAGED, OWNER_KIND, OWNER_NAMESPACE};
use flyball_lifecycle::bundled_kinds;
use flyball_lifecycle::diagnosis::Snapshot;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Limit of the copied objects.
const MAX_OBJECTS: usize = 20_000;

const OPERATORS: &str = "operators.coreos.com";
const DEFINITIONS: &str = "apiextensions.k8s.io";

/// Kinds of objects of the namespace that bundles do not contain, in the order of their creation.
const NAMESPACED: [(&str, &str); 7] = [
    ("apps", "Deployment"),
    (OPERATORS, "OperatorGroup"),
    (OPERATORS, "CatalogSource"),
    (OPERATORS, "OperatorCondition"),
    (OPERATORS, "ClusterServiceVersion"),
    (OPERATORS, "InstallPlan"),
    (OPERATORS, "Subscription"),
];

/// Objects of a cluster, in the order of their creation.
#[derive(Debug, Default)]
pub(super) struct CopiedObjects(pub(super) Vec<Value>);

impl CopiedObjects {
    /// Reads the objects that affect the operators of a namespace, as far as the user may.
    pub(super) async fn read(connection: &Connection, snapshot: &Snapshot, unread: &mut Unread) -> Result<Self> {
        let kinds = Kinds::discover(&connection.client).await?;
        let (namespace, global) = (snapshot.namespace.as_str(), snapshot.global_namespace.as_str());
        let mut reader = Reader { connection, kinds: &kinds, objects: Vec::new(), unread };
        reader.namespaces(&[namespace, global]).await?;
        reader.definitions(snapshot).await?;
        let is_own = |group: &str, kind: &str| {
            NAMESPACED.contains(&(group, kind)) || (group, kind) == (DEFINITIONS, "CustomResourceDefinition")
        };
        for (group, kind) in bundled_kinds().filter(|(group, kind)| !is_own(group, kind)) {
            reader.list_of_bundles(group, kind, namespace).await?;
        }
        reader.list(OPERATORS, "OLMConfig", None, "").await?;
        for (group, kind) in NAMESPACED {
            reader.list(group, kind, Some(namespace), "").await?;
        }
        if global != namespace {
            // They have been read, or stand for what cannot be read.
            let of_global = snapshot.catalogs.iter().map(|(source, _)| source);
            let of_global = of_global.filter(|source| source.namespace().as_deref() == Some(global));
            reader.objects.extend(of_global.map(|source| {
                json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
                    "metadata": {"name": source.name_any(), "namespace": global, "labels": source.labels()},
                    "spec": {"priority": source.spec.priority}})
            }));
        }
        let owned = snapshot.csvs.iter().flat_map(|csv| &csv.spec.crds.owned);
        let owned: BTreeSet<(String, String)> =
            owned.map(|owned| (owned.group().to_owned(), owned.kind.clone())).collect();
        for (group, kind) in &owned {
            reader.custom_resources(group, kind, namespace).await?;
        }
        let mut objects = reader.objects;
        objects.retain(|object| !is_of_other_group(object, namespace));
        objects.iter_mut().for_each(prepare);
        Ok(Self(objects))
    }
}

struct Reader<'c> {
    connection: &'c Connection,
    kinds: &'c Kinds,
    objects: Vec<Value>,
    unread: &'c mut Unread,
}

impl Reader<'_> {
    /// Reads all objects of a kind; none if the cluster does not have it, or the user may not read them.
    async fn list(&mut self, group: &str, kind: &str, namespace: Option<&str>, query: &str) -> Result<()> {
        let place = namespace.map_or("the cluster".to_owned(), |name| format!("namespace {name}"));
        let found = self.find(group, kind, namespace, query).await;
        let found = self.unread.or_default(&format!("objects of kind {kind} in {place}"), found)?;
        self.add(found)
    }

    async fn find(&self, group: &str, kind: &str, namespace: Option<&str>, query: &str) -> Result<Vec<Value>> {
        match self.kinds.of(&format!("{group}/v1"), kind) {
            Some(known) => known.list(&self.connection.client, namespace, query).await,
            None => Ok(Vec::new()),
        }
    }

    fn add(&mut self, found: Vec<Value>) -> Result<()> {
        self.objects.extend(found);
        match self.objects.len() <= MAX_OBJECTS {
            true => Ok(()),
            false => {
                Err(Error::new(format!("the namespace and its custom resources are more than {MAX_OBJECTS} objects")))
            }
        }
    }

    /// Reads the objects of a kind that bundles contain: those of the namespace, or those of the lifecycle manager if
    /// the kind has none.
    async fn list_of_bundles(&mut self, group: &str, kind: &str, namespace: &str) -> Result<()> {
        match self.kinds.of(&format!("{group}/v1"), kind).is_some_and(|known| known.namespaced) {
            true => self.list(group, kind, Some(namespace), "").await,
            false => self.list(group, kind, None, &format!("labelSelector={MANAGED}%3Dtrue")).await,
        }
    }

    /// Reads all namespaces; those that are needed are made up if the user may not list them.
    async fn namespaces(&mut self, needed: &[&str]) -> Result<()> {
        let part = "the other namespaces: a selector of the OperatorGroup selects only this one";
        let found = self.find("", "Namespace", None, "").await;
        let found = match self.unread.or_none(part, found)? {
            Some(found) => found,
            None => {
                let made_up =
                    |name: &&str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                needed.iter().map(made_up).collect()
            }
        };
        self.add(found)
    }

    /// Reads all CRDs; those of the operators by name if the user may not list them.
    async fn definitions(&mut self, snapshot: &Snapshot) -> Result<()> {
        let part = "CRDs of other operators";
        let found = self.find(DEFINITIONS, "CustomResourceDefinition", None, "").await;
        let found = match self.unread.or_none(part, found)? {
            Some(found) => found,
            None => {
                let crds = snapshot.csvs.iter().map(|csv| &csv.spec.crds);
                let names: BTreeSet<&str> =
                    crds.flat_map(|crds| crds.owned.iter().chain(&crds.required)).map(|crd| &*crd.name).collect();
                let mut found = Vec::new();
                for name in names {
                    let read = self.connection.find(&definition(name)).await;
                    let part = format!("CRD {name}: its change is not compared");
                    found.extend(self.unread.or_default(&part, read)?);
                }
                found
            }
        };
        self.add(found)
    }

    /// Reads all custom resources; those of the namespace if the user may not read others.
    async fn custom_resources(&mut self, group: &str, kind: &str, namespace: &str) -> Result<()> {
        let part = format!("objects of kind {kind} in other namespaces: they are not validated");
        let found = self.find(group, kind, None, "").await;
        match self.unread.or_none(&part, found)? {
            Some(found) => self.add(found),
            None => self.list(group, kind, Some(namespace), "").await,
        }
    }
}

/// Returns true for the roles of an OperatorGroup in another namespace. It is not copied, so the manager would delete
/// them.
fn is_of_other_group(object: &Value, namespace: &str) -> bool {
    let labels = &object["metadata"]["labels"];
    labels[OWNER_KIND] == "OperatorGroup" && labels[OWNER_NAMESPACE] != namespace
}

fn definition(name: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}})
}

/// Adapts an object to the copy: CatalogSources refer to the loaded catalogs, and no webhook converts.
fn prepare(object: &mut Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match object["kind"].as_str() {
        Some("CatalogSource") => {
            let metadata = &object["metadata"];
            let address = address(&text(&metadata["namespace"]), &text(&metadata["name"]));
            let priority = object["spec"]["priority"].as_i64().unwrap_or_default();
            object["spec"] = json!({"sourceType": "grpc", "address": address, "priority": priority});
        }
        // No server converts: objects are read in the version in which they were read here.
        Some("CustomResourceDefinition") => object["spec"]["conversion"] = json!({"strategy": "None"}),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_other_groups_are_not_copied() {
        let role = |kind: &str, namespace: &str| {
            let labels = json!({OWNER_KIND: kind, OWNER_NAMESPACE: namespace});
            json!({"metadata": {"labels": labels}})
        };
        assert!(is_of_other_group(&role("OperatorGroup", "other"), "demo"));
        assert!(!is_of_other_group(&role("OperatorGroup", "demo"), "demo"));
        assert!(!is_of_other_group(&role("ClusterServiceVersion", "other"), "demo"));
        assert!(!is_of_other_group(&json!({"metadata": {"name": "a"}}), "demo"));
    }
}
