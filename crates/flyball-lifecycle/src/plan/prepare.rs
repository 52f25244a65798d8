//! The object of a step as it is applied: in the namespace of the plan, with the labels of its owner.

use super::alongside;
use super::members::Members;
use super::resources::{CSV, Resource, is_definition};
use crate::api::labels::{GENERATED_BY, MANAGED, OWNER, OWNER_KIND, OWNER_NAMESPACE};
use crate::api::{GROUP, InstallPlan, Step};
use crate::csv::label_of;
use crate::install::remove_foreign_conversion;
use flyball_core::metadata::SERVER_MANAGED_FIELDS;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

/// Returns true for steps that are those of the manager, also beside a service account. The objects that a
/// ClusterServiceVersion requests are created by its controller, which is limited by the account as well; CRDs of
/// others are not changed.
pub(super) fn is_managers(step: &Step) -> bool {
    is_definition(&step.resource.group, &step.resource.kind)
        || [CSV, "Subscription"].contains(&step.resource.kind.as_str())
}

/// Returns the object of a step as it is applied.
pub(super) fn prepared(
    (plan, members): (&InstallPlan, &Members),
    step: &Step,
    resource: Resource,
    object: &Value,
) -> Value {
    let namespace = plan.namespace().unwrap_or_default();
    let mut object = object.clone();
    // Bundles contain whole objects; those that follow from a ClusterServiceVersion have no type in the plan.
    let is_from_bundle = object.get("kind").is_some();
    let api = match resource.group {
        "" => step.resource.version.clone(),
        group => format!("{group}/{}", step.resource.version),
    };
    (object["apiVersion"], object["kind"]) = (api.into(), resource.kind.into());
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let is_managers = is_managers(step);
    let Some(metadata) = map(&mut object, "metadata") else { return object };
    for field in SERVER_MANAGED_FIELDS.into_iter().chain(["namespace"]) {
        metadata.remove(field);
    }
    if resource.is_namespaced {
        metadata.insert("namespace".to_owned(), namespace.as_str().into());
    }
    let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
    owners
        .into_iter()
        .for_each(|owners| owners.retain(|owner| owner["uid"].as_str().is_some_and(|uid| !uid.is_empty())));
    let mut labels = Map::from_iter([(MANAGED.to_owned(), "true".into())]);
    if !resource.is_namespaced && !is_managers {
        let owner = [(OWNER, step.resolving.as_str()), (OWNER_KIND, CSV), (OWNER_NAMESPACE, namespace.as_str())];
        labels.extend(owner.map(|(label, value)| (label.to_owned(), value.into())));
    }
    let is_component = resource.is_namespaced && step.resource.group != GROUP
        || !is_from_bundle && !is_managers
        || resource.kind == CSV;
    if is_component && let Some(package) = members.package(&step.resolving) {
        labels.insert(label_of(package, &namespace), "".into());
    }
    extend(&mut object, "labels", labels);
    if resource.kind == "Subscription" {
        extend(&mut object, "annotations", Map::from_iter([(GENERATED_BY.to_owned(), plan.name_any().into())]));
    }
    if is_definition(resource.group, resource.kind) {
        remove_foreign_conversion(&mut object, &namespace);
    }
    if !resource.is_namespaced {
        alongside::remove_users(&mut object);
    }
    object
}

fn map<'v>(object: &'v mut Value, name: &str) -> Option<&'v mut Map<String, Value>> {
    if !object.get(name).is_some_and(Value::is_object) {
        object.as_object_mut()?.insert(name.to_owned(), json!({}));
    }
    object[name].as_object_mut()
}

fn extend(object: &mut Value, field: &str, added: Map<String, Value>) {
    if let Some(metadata) = object.get_mut("metadata")
        && let Some(fields) = map(metadata, field)
    {
        fields.extend(added);
    }
}
