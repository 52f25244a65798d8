//! The objects of operators that the lifecycle manager installed.

use crate::cluster::connection::Connection;
use crate::cluster::kinds::Kinds;
use crate::error::Result;
use crate::operator::removal::Resources;
use flyball_lifecycle::api::labels::{INSTALLED_ALONGSIDE_PREFIX, MANAGED};
use flyball_lifecycle::api::{ClusterServiceVersion, EXTENSIONS_GROUP};
use flyball_lifecycle::bundled_kinds;
use kube::ResourceExt;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The API group of the lifecycle manager.
const GROUP: &str = flyball_lifecycle::api::GROUP;
const DEFINITIONS_GROUP: &str = "apiextensions.k8s.io";

/// An object, and its name for people.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) object: Value,
    pub(super) description: String,
}

/// Everything that operators consist of, in the order of deletion.
pub(super) struct Inventory {
    pub(super) subscriptions: Vec<Item>,
    /// Custom resources, those of operators that need others first.
    pub(super) resources: Vec<Resources>,
    pub(super) extensions: Vec<Item>,
    /// ClusterServiceVersions, in the same order.
    pub(super) csvs: Vec<Item>,
    pub(super) groups: Vec<Item>,
    /// CRDs of operators.
    pub(super) definitions: Vec<Item>,
    /// Catalogs and the other objects of the lifecycle manager, as they were before the deletion.
    others: Vec<Item>,
    /// Objects that were created for the operators, as they were before the deletion.
    dependents: Vec<Item>,
    /// CRDs that were installed with operators that no longer exist. They may have other users, so they stay.
    pub(super) kept: Vec<String>,
}

impl Inventory {
    pub(super) async fn read(connection: &Connection, keeps_definitions: bool) -> Result<Self> {
        let kinds = Kinds::discover(&connection.client).await?;
        let mut csvs = list(connection, &kinds, GROUP, "ClusterServiceVersion", "").await?;
        // Copies are deleted with their originals.
        csvs.retain(|item| !is_copy(&item.object));
        let parsed: Vec<ClusterServiceVersion> =
            csvs.iter().filter_map(|item| serde_json::from_value(item.object.clone()).ok()).collect();
        let ranks = ranks(&parsed);
        csvs.sort_by_key(|item| ranks.get(name_of(&item.object)).copied().unwrap_or_default());
        let (mut definitions, mut kept) = (Vec::new(), Vec::new());
        if !keeps_definitions {
            definitions = list(connection, &kinds, DEFINITIONS_GROUP, "CustomResourceDefinition", "").await?;
            definitions.retain(|item| installed_alongside(&item.object).next().is_some());
            let (of_operators, others): (Vec<Item>, Vec<Item>) =
                definitions.into_iter().partition(|item| is_of_operator(&item.object, &parsed));
            kept = others.into_iter().map(|item| item.description).collect();
            definitions = of_operators;
            definitions.sort_by_key(|item| rank_of_definition(&item.object, &parsed, &ranks));
        }
        let objects: Vec<Value> = definitions.iter().map(|item| item.object.clone()).collect();
        let Remaining { collected, unowned } = Remaining::read(connection, &kinds).await?;
        Ok(Self {
            subscriptions: list(connection, &kinds, GROUP, "Subscription", "").await?,
            extensions: list(connection, &kinds, EXTENSIONS_GROUP, "ClusterExtension", "").await?,
            resources: Resources::count(connection, &objects).await?,
            csvs,
            groups: list(connection, &kinds, GROUP, "OperatorGroup", "").await?,
            definitions,
            others: others(connection, &kinds).await?,
            dependents: [collected, unowned].concat(),
            kept,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    fn all(&self) -> impl Iterator<Item = &Item> {
        let Self { subscriptions, extensions, csvs, groups, definitions, others, dependents, .. } = self;
        let first = subscriptions.iter().chain(extensions).chain(csvs).chain(groups).chain(definitions);
        first.chain(dependents).chain(others)
    }

    /// Returns the names of the objects for people.
    pub(super) fn descriptions(&self) -> impl Iterator<Item = String> {
        self.all().map(|item| item.description.clone())
    }

    /// Returns the remaining objects of the lifecycle manager.
    pub(super) async fn others(&self, connection: &Connection) -> Result<Vec<Item>> {
        others(connection, &Kinds::discover(&connection.client).await?).await
    }
}

/// Lists the objects of the lifecycle manager that are deleted after the operators.
async fn others(connection: &Connection, kinds: &Kinds) -> Result<Vec<Item>> {
    let mut others = list(connection, kinds, EXTENSIONS_GROUP, "ClusterCatalog", "").await?;
    for kind in ["InstallPlan", "CatalogSource", "OperatorCondition", "Operator", "OLMConfig"] {
        others.extend(list(connection, kinds, GROUP, kind, "").await?);
    }
    Ok(others)
}

/// Kinds of the objects that the lifecycle manager creates, in addition to those of bundles.
const CREATED_KINDS: [(&str, &str); 4] = [
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiregistration.k8s.io", "APIService"),
    ("apps", "Deployment"),
];

/// Objects that the lifecycle manager created for operators, and that still exist.
#[derive(Default)]
pub(super) struct Remaining {
    /// Objects that are being deleted, or that the garbage collector deletes, because they had an owner.
    pub(super) collected: Vec<Item>,
    /// Objects that nothing else deletes, such as PriorityClasses.
    pub(super) unowned: Vec<Item>,
}

impl Remaining {
    pub(super) async fn read(connection: &Connection, kinds: &Kinds) -> Result<Self> {
        let query = format!("labelSelector={MANAGED}%3Dtrue");
        // CRDs and the objects of the manager's own kinds are deleted by themselves.
        let bundled = bundled_kinds().filter(|(group, _)| ![GROUP, DEFINITIONS_GROUP].contains(group));
        let mut remaining = Self::default();
        for (group, kind) in CREATED_KINDS.into_iter().chain(bundled) {
            let found = list(connection, kinds, group, kind, &query).await?;
            let (collected, unowned): (Vec<_>, Vec<_>) = found.into_iter().partition(|item| is_collected(&item.object));
            remaining.collected.extend(collected);
            remaining.unowned.extend(unowned);
        }
        Ok(remaining)
    }
}

/// Returns true if an object is deleted without a request.
fn is_collected(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string()
        || metadata["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty())
}

/// Lists all objects of a kind; none if the cluster does not have it.
async fn list(connection: &Connection, kinds: &Kinds, group: &str, kind: &str, query: &str) -> Result<Vec<Item>> {
    let Some(known) = kinds.of(&format!("{group}/v1"), kind) else { return Ok(Vec::new()) };
    let item = |object: Value| {
        let namespace = object["metadata"]["namespace"].as_str().map(|name| format!("{name}/")).unwrap_or_default();
        let description = format!("{kind} {namespace}{}", name_of(&object));
        Item { object, description }
    };
    Ok(known.list(&connection.client, None, query).await?.into_iter().map(item).collect())
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_copy(csv: &Value) -> bool {
    csv["metadata"]["labels"]["olm.copiedFrom"].is_string()
}

/// Returns the ClusterServiceVersions that a CRD was installed with, as `namespace/name`.
fn installed_alongside(definition: &Value) -> impl Iterator<Item = &str> {
    let annotations = definition["metadata"]["annotations"].as_object().into_iter().flatten();
    let marks = annotations.filter(|(name, _)| name.starts_with(INSTALLED_ALONGSIDE_PREFIX));
    marks.filter_map(|(_, value)| value.as_str())
}

/// Returns true if a CRD was installed with an operator that exists. An ownership claim is not sufficient: anyone who
/// can write a ClusterServiceVersion can claim any CRD.
fn is_of_operator(definition: &Value, csvs: &[ClusterServiceVersion]) -> bool {
    let is_of = |csv: &ClusterServiceVersion, key: &str| {
        key.split_once('/') == Some((csv.namespace().unwrap_or_default().as_str(), csv.name_any().as_str()))
    };
    installed_alongside(definition).any(|key| csvs.iter().any(|csv| is_of(csv, key)))
}

/// Returns the position of each ClusterServiceVersion: before those that provide what it requires.
fn ranks(csvs: &[ClusterServiceVersion]) -> BTreeMap<String, usize> {
    let mut ranks: BTreeMap<String, usize> = csvs.iter().map(|csv| (csv.name_any(), 0)).collect();
    // Longest chains have as many links as there are operators; a cycle ends there.
    for _ in 0..csvs.len() {
        let before = ranks.clone();
        for csv in csvs {
            let required: BTreeSet<&str> = csv.spec.crds.required.iter().map(|crd| crd.name.as_str()).collect();
            let provides = |other: &&ClusterServiceVersion| {
                other.name_any() != csv.name_any()
                    && other.spec.crds.owned.iter().any(|owned| required.contains(owned.name.as_str()))
            };
            let rank = before[&csv.name_any()];
            for provider in csvs.iter().filter(provides) {
                let known = ranks.entry(provider.name_any()).or_default();
                *known = (*known).max(rank + 1).min(csvs.len());
            }
        }
        if ranks == before {
            break;
        }
    }
    ranks
}

fn rank_of_definition(definition: &Value, csvs: &[ClusterServiceVersion], ranks: &BTreeMap<String, usize>) -> usize {
    let owns = |csv: &&ClusterServiceVersion| csv.spec.crds.owned.iter().any(|owned| owned.name == name_of(definition));
    csvs.iter().filter(owns).filter_map(|csv| ranks.get(&csv.name_any())).max().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_definitions_that_were_installed_with_operators_belong_to_them() {
        let owned = json!([{"name": "as.example.com", "version": "v1", "kind": "A"}]);
        let csv = json!({"metadata": {"name": "a.v1", "namespace": "demo"},
            "spec": {"customresourcedefinitions": {"owned": owned}}});
        let csvs: [ClusterServiceVersion; 1] = [serde_json::from_value(csv).unwrap()];
        let check = |annotations: Value, expected: bool| {
            let definition = json!({"metadata": {"name": "as.example.com", "annotations": annotations}});
            assert_eq!(is_of_operator(&definition, &csvs), expected, "{definition}");
        };
        let mark = format!("{INSTALLED_ALONGSIDE_PREFIX}1");
        check(Value::Null, false);
        check(json!({"other": "demo/a.v1"}), false);
        check(json!({&mark: "demo/a.v2"}), false);
        check(json!({&mark: "other/a.v1"}), false);
        check(json!({&mark: "demo/a.v1"}), true);
    }

    #[test]
    fn only_objects_with_an_owner_are_deleted_without_a_request() {
        let check = |metadata: Value, expected: bool| {
            assert_eq!(is_collected(&json!({"metadata": metadata})), expected, "{metadata}");
        };
        check(json!({"name": "pool-high"}), false);
        check(json!({"name": "pool-high", "ownerReferences": []}), false);
        check(json!({"name": "pool", "ownerReferences": [{"kind": "ClusterServiceVersion", "name": "pool.v1"}]}), true);
        check(json!({"name": "pool", "deletionTimestamp": "2026-01-01T00:00:00Z"}), true);
    }

    #[test]
    fn operators_go_before_those_that_they_need() {
        let csv = |name: &str, owned: &str, required: &[&str]| -> ClusterServiceVersion {
            let crd = |name: &str| json!({"name": name, "version": "v1", "kind": "X"});
            let required: Vec<Value> = required.iter().map(|name| crd(name)).collect();
            let crds = json!({"owned": [crd(owned)], "required": required});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"customresourcedefinitions": crds}}))
                .unwrap()
        };
        let csvs = [csv("store", "stores", &[]), csv("app", "apps", &["queues"]), csv("queue", "queues", &["stores"])];
        let ranks = ranks(&csvs);
        assert_eq!((ranks["app"], ranks["queue"], ranks["store"]), (0, 1, 2));
        assert_eq!(rank_of_definition(&json!({"metadata": {"name": "stores"}}), &csvs, &ranks), 2);
        let cycle = [csv("a", "as", &["bs"]), csv("b", "bs", &["as"])];
        assert_eq!(super::ranks(&cycle).len(), 2, "a cycle ends");
    }
}
