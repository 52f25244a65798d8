//! Plans that install an older version, and Subscriptions that no longer ask for what a plan installs.
//!
//! A plan that is made for a rollback names its versions in an annotation. Before its first step, it is checked more
//! strictly than an upgrade: no custom resource may lose a field or its operator. A plan that has not begun is executed
//! only while the annotations of its Subscriptions permit its versions.

use super::actor::{Actor, encoded, message_of};
use super::compatibility::{declared_path, schema_changes, schema_of};
use super::conversion::conversions_of;
use super::definition::{Tested, no_longer_served, tested_versions};
use super::error::ExecutionError;
use super::members::Members;
use super::ownership::{installed_alongside, planned};
use super::prepare::prepared;
use super::resources::{CSV, is_definition, resource};
use crate::api::labels::{ROLLBACK, VERSIONS};
use crate::api::{ClusterServiceVersion, GROUP, InstallPlan, StepStatus, Subscription, is_subscription};
use crate::installed::bundle_of;
use crate::version::{VersionRange, parse_tolerant};
use flyball::{Context, ObjectKey};
use kube::ResourceExt;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Custom resources in one page of a list.
const PAGE: usize = 200;

/// Returns the version to which a Subscription, or another object with its annotations, is rolled back.
fn target(annotations: &BTreeMap<String, String>) -> Option<&str> {
    annotations.get(ROLLBACK).map(|name| name.trim()).filter(|name| !name.is_empty())
}

/// Returns the version of a served API that a CRD no longer serves, with the ClusterServiceVersions that it was
/// installed with, as `namespace/name`.
pub fn unserved_version<'d>(old: &'d Value, new: &Value) -> Option<(&'d str, Vec<&'d str>)> {
    Some((no_longer_served(old, new)?, installed_alongside(old).collect()))
}

/// Returns true if a step of a plan was executed.
pub(crate) fn is_begun(plan: &InstallPlan) -> bool {
    plan.status.plan.iter().any(|step| matches!(step.status, StepStatus::Present | StepStatus::Created))
}

/// Records the versions of a plan that are those of rollbacks.
pub(crate) fn mark(plan: &mut InstallPlan, names: &[&str]) {
    if !names.is_empty() {
        plan.annotations_mut().insert(ROLLBACK.to_owned(), names.join(","));
    }
}

/// Returns true if a plan was made for the rollback to a version.
fn is_marked(plan: &InstallPlan, csv: &str) -> bool {
    plan.annotations().get(ROLLBACK).is_some_and(|names| names.split(',').any(|name| name == csv))
}

/// Returns the reason why a Subscription with these annotations does not ask for the versions of its package that a
/// plan installs.
pub(crate) fn withdrawal(plan: &InstallPlan, package: &str, annotations: &BTreeMap<String, String>) -> Option<String> {
    let target = target(annotations);
    let range = annotations.get(VERSIONS).and_then(|range| VersionRange::parse(range).ok());
    let of_package = |csv: &ClusterServiceVersion| bundle_of(csv).packages().any(|of| of == package);
    let names = plan.spec.cluster_service_version_names.iter();
    let mut csvs = names.filter_map(|name| planned(plan, name)).filter(of_package);
    let reason = |csv: ClusterServiceVersion| {
        let name = csv.name_any();
        match target {
            Some(target) if target == name => None,
            Some(target) => Some(format!("a rollback to {target} is requested, not {name}")),
            None if is_marked(plan, &name) => Some(format!("the rollback to {name} is no longer requested")),
            None => {
                let version = parse_tolerant(&csv.spec.version)?;
                let is_excluded = range.as_ref().is_some_and(|range| !range.includes(&version));
                is_excluded.then(|| format!("the versions of the Subscription exclude {name}"))
            }
        }
    };
    csvs.find_map(reason)
}

/// Checks that the Subscriptions of a plan still ask for its versions, as the API server has them. Once a step was
/// executed, the plan is completed.
pub(super) async fn confirm(
    plan: &InstallPlan,
    manager: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> Result<(), ExecutionError> {
    let namespace = plan.namespace().unwrap_or_default();
    let failed = |error: flyball::Error| ExecutionError::of(&error, &[]);
    for name in &plan.spec.cluster_service_version_names {
        let key = ObjectKey::new(Some(&namespace), name);
        if is_begun(plan) || cx.get::<ClusterServiceVersion>(&key).await.map_err(failed)?.is_some() {
            return Ok(());
        }
    }
    for subscription in subscriptions(plan, cx).await {
        let name = subscription.name_any();
        let path =
            format!("/apis/{GROUP}/v1alpha1/namespaces/{}/subscriptions/{}", encoded(&namespace), encoded(&name));
        let found = manager.find(&path, true).await;
        let found =
            found.map_err(|error| ExecutionError::new(format!("Subscription {name}: {}", message_of(&error))))?;
        // The requesters of the plan are checked before each step.
        let Some(found) = found else { continue };
        let annotations = serde_json::from_value(found["metadata"]["annotations"].clone()).unwrap_or_default();
        if let Some(reason) = withdrawal(plan, &subscription.spec.package, &annotations) {
            return Err(ExecutionError::new(format!("Subscription {name}: {reason}: the plan is not executed")));
        }
    }
    Ok(())
}

/// Returns the Subscriptions that refer to a plan that they own, as the cache has them.
async fn subscriptions(plan: &InstallPlan, cx: &Context<InstallPlan>) -> Vec<Subscription> {
    let (namespace, own) = (plan.namespace().unwrap_or_default(), plan.name_any());
    let mut all = Vec::new();
    for owner in plan.owner_references().iter().filter(|owner| is_subscription(owner)) {
        let found = cx.get::<Subscription>(&ObjectKey::new(Some(&namespace), &owner.name)).await;
        let refers = |subscription: &Subscription| {
            let reference = subscription.status.install_plan_ref.as_ref();
            reference.and_then(|reference| reference.name.as_deref()) == Some(own.as_str())
        };
        all.extend(found.ok().flatten().filter(refers));
    }
    all
}

/// Checks that the rollbacks of a plan lose nothing: neither fields of custom resources, nor their operator.
pub(super) async fn check(
    (plan, members): (&InstallPlan, &Members),
    objects: &[Value],
    manager: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> Result<(), ExecutionError> {
    let failed = |error: flyball::Error| ExecutionError::of(&error, &[]);
    let namespace = plan.namespace().unwrap_or_default();
    let mut targets: Vec<String> = Vec::new();
    for subscription in subscriptions(plan, cx).await {
        targets.extend(target(subscription.annotations()).map(str::to_owned));
    }
    let conversions = conversions_of(plan, objects);
    for name in &plan.spec.cluster_service_version_names {
        if !is_marked(plan, name) && !targets.contains(name) {
            continue;
        }
        // In a large plan, the step may only refer to it.
        let mut steps = plan.status.plan.iter().zip(objects);
        let step = steps.find(|(step, _)| step.resource.kind == CSV && step.resource.name == *name);
        let csv = step.and_then(|(_, object)| serde_json::from_value::<ClusterServiceVersion>(object.clone()).ok());
        let Some(csv) = csv else { continue };
        let key = ObjectKey::new(Some(&namespace), &csv.spec.replaces);
        let replaced = cx.get::<ClusterServiceVersion>(&key).await.map_err(failed)?;
        let version = |csv: &ClusterServiceVersion| parse_tolerant(&csv.spec.version);
        if replaced.as_ref().is_some_and(|replaced| version(replaced) < version(&csv)) {
            continue;
        }
        let mut definitions = BTreeSet::new();
        for (step, object) in plan.status.plan.iter().zip(objects).filter(|(step, _)| step.resolving == *name) {
            let (group, kind) = (&step.resource.group, &step.resource.kind);
            let Some(resource) = resource(group, kind).filter(|_| is_definition(group, kind)) else { continue };
            definitions.insert(step.resource.name.as_str());
            let Some(old) = find_definition(&step.resource.name, manager).await? else { continue };
            let new = prepared((plan, members), step, resource, object);
            let is_converted = conversions.contains(&(step.resolving.clone(), step.resource.name.clone()));
            check_definition(&namespace, (&old, &new), is_converted, manager).await?;
        }
        let owned = replaced.iter().flat_map(|csv| &csv.spec.crds.owned).map(|owned| owned.name.as_str());
        let dropped: BTreeSet<&str> = owned.filter(|owned| !definitions.contains(owned)).collect();
        for definition in dropped {
            check_unused(definition, name, manager).await?;
        }
    }
    Ok(())
}

/// Checks that no custom resource loses a field or becomes invalid.
async fn check_definition(
    own_namespace: &str,
    (old, new): (&Value, &Value),
    is_converted: bool,
    manager: &Actor<'_>,
) -> Result<(), ExecutionError> {
    let name = text(&old["metadata"]["name"]);
    for Tested { version, read_as, schema } in tested_versions(old, new, is_converted) {
        let root = schema_of(schema);
        let mut versions = old["spec"]["versions"].as_array().into_iter().flatten();
        let before = versions.find(|of| of["name"] == *read_as).unwrap_or(&Value::Null);
        // The administrators of this namespace may not see objects of others.
        let (mut hidden, mut fields) = (0, BTreeSet::new());
        let mut next = String::new();
        loop {
            let list = list(old, read_as, PAGE, &next, manager).await?;
            for object in list["items"].as_array().into_iter().flatten() {
                let changes = schema_changes(&root, object, version);
                let Some(first) = changes.first() else { continue };
                let namespace = text(&object["metadata"]["namespace"]);
                if namespace == own_namespace {
                    let (object, field, why) = (text(&object["metadata"]["name"]), &first.field, &first.why);
                    return Err(ExecutionError::new(format!(
                        "the rollback would break stored objects: {name} {namespace}/{object}: {field} {why}"
                    )));
                }
                let schema = &before["schema"]["openAPIV3Schema"];
                fields.extend(changes.iter().map(|change| declared_path(&change.field, schema)));
                hidden += 1;
            }
            next = text(&list["metadata"]["continue"]).to_owned();
            if next.is_empty() {
                break;
            }
        }
        if hidden > 0 {
            let fields: Vec<String> = fields.into_iter().collect();
            return Err(ExecutionError::new(format!(
                "the rollback would break stored objects: {name}: {hidden} outside of namespace {own_namespace}: \
                 {version} drops or rejects {}",
                fields.join(", ")
            )));
        }
    }
    Ok(())
}

/// Checks that a CRD that the older version does not have has no custom resources.
async fn check_unused(name: &str, csv: &str, manager: &Actor<'_>) -> Result<(), ExecutionError> {
    let Some(definition) = find_definition(name, manager).await? else { return Ok(()) };
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true).max_by_key(|version| version["storage"] == true);
    let Some(version) = served.map(|version| text(&version["name"])) else { return Ok(()) };
    let list = list(&definition, version, 1, "", manager).await?;
    match list["items"].as_array().is_some_and(|items| !items.is_empty()) {
        true => Err(ExecutionError::new(format!(
            "{name} has custom resources, for which {csv} has no controller: delete them"
        ))),
        false => Ok(()),
    }
}

async fn find_definition(name: &str, manager: &Actor<'_>) -> Result<Option<Value>, ExecutionError> {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", encoded(name));
    let failed = |error: kube::Error| ExecutionError::new(format!("{name}: {}", message_of(&error)));
    manager.get(&path).await.map_err(failed)
}

/// Returns a page of the custom resources of a CRD; null if their API does not exist.
async fn list(
    definition: &Value,
    version: &str,
    limit: usize,
    next: &str,
    manager: &Actor<'_>,
) -> Result<Value, ExecutionError> {
    let spec = &definition["spec"];
    let (group, plural) = (encoded(text(&spec["group"])), encoded(text(&spec["names"]["plural"])));
    let page = if next.is_empty() { String::new() } else { format!("&continue={}", encoded(next)) };
    let path = format!("/apis/{group}/{}/{plural}?limit={limit}{page}", encoded(version));
    let list = manager.get(&path).await.map_err(|error| ExecutionError::new(message_of(&error)))?;
    Ok(list.unwrap_or_default())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Step, StepResource};
    use serde_json::json;

    /// Returns a plan of `memo.v1.0.0`.
    fn plan(is_rollback: bool) -> InstallPlan {
        let name = "memo.v1.0.0";
        let properties = json!([{"type": "olm.package", "value": {"packageName": "memo", "version": "1.0.0"}}]);
        let annotations = json!({"operatorframework.io/properties": json!({"properties": properties}).to_string()});
        let csv = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"version": "1.0.0"}});
        let manifest = csv.to_string();
        let resource = StepResource { kind: CSV.to_owned(), name: name.to_owned(), manifest, ..Default::default() };
        let mut plan = InstallPlan::default();
        plan.spec.cluster_service_version_names = vec![name.to_owned()];
        plan.status.plan = vec![Step { resolving: name.to_owned(), resource, ..Step::default() }];
        mark(&mut plan, if is_rollback { &["memo.v1.0.0"] } else { &[] });
        plan
    }

    #[test]
    fn plan_is_withdrawn_when_nobody_asks_for_its_version() {
        let check = |is_rollback: bool, annotations: &[(&str, &str)], expected: Option<&str>| {
            let annotations =
                annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let reason = withdrawal(&plan(is_rollback), "memo", &annotations);
            assert_eq!(reason.as_deref(), expected, "{annotations:?}");
            assert_eq!(withdrawal(&plan(is_rollback), "other", &annotations), None);
        };
        check(false, &[], None);
        check(true, &[(ROLLBACK, "memo.v1.0.0")], None);
        check(true, &[], Some("the rollback to memo.v1.0.0 is no longer requested"));
        check(false, &[(ROLLBACK, "memo.v0.9.0")], Some("a rollback to memo.v0.9.0 is requested, not memo.v1.0.0"));
        check(false, &[(VERSIONS, "<2.0.0")], None);
        check(false, &[(VERSIONS, "no range")], None);
        check(false, &[(VERSIONS, ">=2.0.0")], Some("the versions of the Subscription exclude memo.v1.0.0"));
        // A rollback takes precedence over the range of versions.
        check(true, &[(VERSIONS, ">=2.0.0"), (ROLLBACK, "memo.v1.0.0")], None);
    }
}
