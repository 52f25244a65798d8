//! The objects that a rehearsal copies.

use super::catalogs::address;
use crate::cluster::connection::Connection;
use crate::cluster::kinds::Kinds;
use crate::error::{Error, Result};
use flyball_lifecycle::diagnosis::Snapshot;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Limit of the copied objects.
const MAX_OBJECTS: usize = 20_000;

const OPERATORS: &str = "operators.coreos.com";
const RBAC: &str = "rbac.authorization.k8s.io";
const DEFINITIONS: &str = "apiextensions.k8s.io";

/// Kinds of objects of the namespace, in the order of their creation.
const NAMESPACED: [(&str, &str); 13] = [
    ("", "ServiceAccount"),
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "Service"),
    (RBAC, "Role"),
    (RBAC, "RoleBinding"),
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
    pub(super) async fn read(connection: &Connection, snapshot: &Snapshot) -> Result<Self> {
        let kinds = Kinds::discover(&connection.client).await?;
        let mut reader = Reader { client: &connection.client, kinds: &kinds, objects: Vec::new() };
        reader.list("", "Namespace", None, "").await?;
        reader.list(DEFINITIONS, "CustomResourceDefinition", None, "").await?;
        let managed = "labelSelector=olm.managed%3Dtrue";
        reader.list(RBAC, "ClusterRole", None, managed).await?;
        reader.list(RBAC, "ClusterRoleBinding", None, managed).await?;
        reader.list(OPERATORS, "OLMConfig", None, "").await?;
        for (group, kind) in NAMESPACED {
            reader.list(group, kind, Some(&snapshot.namespace), "").await?;
        }
        if snapshot.global_namespace != snapshot.namespace {
            reader.list(OPERATORS, "CatalogSource", Some(&snapshot.global_namespace), "").await?;
        }
        let owned = snapshot.csvs.iter().flat_map(|csv| &csv.spec.crds.owned);
        let owned: BTreeSet<(String, String)> =
            owned.map(|owned| (owned.group().to_owned(), owned.kind.clone())).collect();
        for (group, kind) in &owned {
            reader.list(group, kind, None, "").await?;
        }
        let mut objects = reader.objects;
        objects.iter_mut().for_each(prepare);
        Ok(Self(objects))
    }
}

struct Reader<'c> {
    client: &'c Client,
    kinds: &'c Kinds,
    objects: Vec<Value>,
}

impl Reader<'_> {
    /// Reads all objects of a kind; none if the cluster does not have it.
    async fn list(&mut self, group: &str, kind: &str, namespace: Option<&str>, query: &str) -> Result<()> {
        let Some(known) = self.kinds.of(&format!("{group}/v1"), kind) else { return Ok(()) };
        self.objects.extend(known.list(self.client, namespace, query).await?);
        match self.objects.len() <= MAX_OBJECTS {
            true => Ok(()),
            false => {
                Err(Error::new(format!("the namespace and its custom resources are more than {MAX_OBJECTS} objects")))
            }
        }
    }
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
