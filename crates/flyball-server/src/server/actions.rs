//! Actions on objects other than writes: binding and evicting pods, issuing tokens, reviews.

use super::Components;
use super::action_body::{ActionBody, AdmittedAction};
use super::call::{Call, writer};
use super::containers;
use crate::admission::{Operation, Writer};
use crate::auth::reviews;
use crate::catalog::Target;
use crate::kinds::{BINDING, NODE, POD, POD_DISRUPTION_BUDGET, Part, Subresource};
use crate::registry::{Change, Registry, WrittenObject, check_preconditions, storage_error};
use crate::request::accept::{self, Form, View};
use crate::request::options::{DeleteOptions, Write, WriteOptions};
use crate::response::{self, Body};
use flyball_core::field::{FieldError, aggregate};
use flyball_core::status::{Cause, Details, Reason};
use flyball_core::{GroupResource, LabelSelector, Object, ObjectKey, Status};
use http::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Runs an action on an object.
pub(super) async fn respond(
    server: &Arc<Components>,
    call: &Call,
    target: &Target,
    subresource: &'static Subresource,
) -> Result<Response<Body>, Status> {
    let registry = &*server.registry;
    match subresource.name {
        "binding" => {
            let body = ActionBody::read(call, target, BINDING.kind)?;
            let admitted = body.admit(registry, target, "binding", Operation::Create).await?;
            if admitted.object.name() != target.name() {
                return Err(Status::bad_request("name in URL does not match name in Binding object"));
            }
            bind(registry, call, target, &admitted).await
        }
        "eviction" => evict(registry, call, target).await,
        "token" => token(server, call, target).await,
        _ => containers::respond(registry, call, target, subresource).await,
    }
}

/// Responds to a review, or runs an action without an object.
pub(super) async fn review(
    server: &Arc<Components>,
    call: &Call,
    target: &Target,
    form: Form,
) -> Result<Response<Body>, Status> {
    let registry = &*server.registry;
    if target.resource.is(&BINDING) {
        let body = ActionBody::read(call, target, BINDING.kind)?;
        let own = Target { name: Some(body.object.name().to_owned()), ..target.clone() };
        let admitted = body.admit(registry, &own, "", Operation::Create).await?;
        let target = Target {
            resource: registry.catalog.get().of(&POD),
            namespace: target.namespace.clone(),
            name: Some(admitted.object.name().to_owned()),
            part: Part::Whole,
        };
        return bind(registry, call, &target, &admitted).await;
    }
    let admitted = ActionBody::question(call, target)?.admit(registry, target, "", Operation::Create).await?;
    reviews::check(&call.user, target, &admitted.object)?;
    admitted.review(registry).await?;
    let review = reviews::respond(&server.authenticator, &call.user, target, admitted.object)?;
    Ok(response::value(201, form, review.as_value()))
}

/// Responds that an action succeeded.
fn done(call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let form = accept::negotiate(call.accept(), target.resource.offered())?;
    let value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(response::value(201, Form { view: View::Whole, ..form }, &value))
}

/// Assigns a pod to a node.
async fn bind(
    registry: &Registry,
    call: &Call,
    target: &Target,
    admitted: &AdmittedAction<'_>,
) -> Result<Response<Body>, Status> {
    let binding = &admitted.object;
    let node = binding.at(&["target", "name"]).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = binding.at(&["target", "kind"]).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    if !kind.is_empty() && kind != NODE.kind {
        errors.push(FieldError::not_supported("target.kind", kind, [NODE.kind, "<empty>"]));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        return Err(Status::new(500, None, aggregate(&errors)));
    }
    admitted.review(registry).await?;
    let name = target.name.clone().unwrap_or_default();
    let of_binding = |field: &str| binding.at(&["metadata", field]).and_then(Value::as_object).cloned();
    let annotations = of_binding("annotations").unwrap_or_default();
    let labels = of_binding("labels").unwrap_or_default();
    let (uid, version) = (binding.uid().to_owned(), binding.resource_version().to_owned());
    let (now, resource) = (registry.clock.now_rfc3339(), target.resource.clone());
    let assign = move |pod: &mut Object| {
        let reject = |why: String| Err(Status::conflict(&GroupResource::new("", "pods/binding"), &name, why));
        for (what, expected, found) in [("UID", &uid, pod.uid()), ("ResourceVersion", &version, pod.resource_version())]
        {
            if !expected.is_empty() && expected != found {
                let why =
                    format!("Precondition failed: {what} in precondition: {expected}, {what} in object meta: {found}");
                let why = storage_error(&resource, &pod.key(), &why);
                return Err(Status::conflict(&resource.group_resource(), &name, why));
            }
        }
        if pod.deletion_timestamp().is_some() {
            return reject(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let assigned = pod.at(&["spec", "nodeName"]).and_then(Value::as_str).unwrap_or_default();
        if !assigned.is_empty() {
            return reject(format!("pod {name} is already assigned to node {assigned:?}"));
        }
        if pod.at(&["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
            return reject(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        pod.change(|value| {
            value["spec"]["nodeName"] = node.as_str().into();
            value["status"].as_object_mut().map(|status| status.remove("nominatedNodeName"));
        });
        for (field, added) in [("annotations", &annotations), ("labels", &labels)] {
            if !added.is_empty() {
                let all = pod.metadata_mut().entry(field).or_insert_with(|| json!({}));
                all.as_object_mut().into_iter().for_each(|all| all.extend(added.clone()));
            }
        }
        set_condition(
            pod,
            json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
        );
        Ok(())
    };
    let options = WriteOptions::read(&call.query, Write::Create)?;
    let target = Target { part: Part::Binding, ..target.clone() };
    let writer = Writer { reviewed: false, ..writer(call, options) };
    registry.change(&target, &Change::With(Box::new(assign)), &writer).await?;
    done(call, &target)
}

/// Replaces the condition of the same type.
fn set_condition(object: &mut Object, condition: Value) {
    object.change(|value| {
        if !value["status"].is_object() {
            value["status"] = json!({});
        }
        let conditions = &mut value["status"]["conditions"];
        if !conditions.is_array() {
            *conditions = json!([]);
        }
        let conditions = conditions.as_array_mut().expect("just made one");
        match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    });
}

/// Deletes a pod if its disruption budget allows it.
async fn evict(registry: &Registry, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let body = ActionBody::read(call, target, "Eviction")?;
    let admitted = body.admit(registry, target, "eviction", Operation::Create).await?;
    let eviction = &admitted.object;
    let name = target.name.clone().unwrap_or_default();
    if eviction.name() != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    admitted.review(registry).await?;
    let entry = registry.get(&target.resource, &target.key())?;
    let pod = registry.codec.decode(&target.resource, &entry)?;
    let mut options = DeleteOptions::read(&call.query, Some(eviction.get("deleteOptions").unwrap_or(&Value::Null)))?;
    options.dry_run |= call.query.all("dryRun").contains(&"All");
    let options_of_write = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
    let writer = Writer { reviewed: false, ..writer(call, options_of_write) };
    let needs_no_budget =
        matches!(pod.at(&["status", "phase"]).and_then(Value::as_str), Some("Succeeded" | "Failed" | "Pending"));
    if !needs_no_budget && pod.deletion_timestamp().is_none() {
        reserve(registry, &pod, &writer).await?;
    }
    let (now, resource, expected) = (registry.clock.now_rfc3339(), target.resource.clone(), options.clone());
    let note = move |pod: &mut Object| {
        check_preconditions(&resource, &expected, pod)?;
        set_condition(
            pod,
            json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                "lastProbeTime": null, "lastTransitionTime": now,
            }),
        );
        Ok(())
    };
    let status = Target { part: Part::Status, ..target.clone() };
    let noted = registry.change(&status, &Change::With(Box::new(note)), &writer).await?;
    if let (Some(version), WrittenObject::Stored(entry)) = (&mut options.resource_version, &noted.object) {
        // It was the expected one until the condition was noted.
        *version = entry.revision.to_string();
    }
    registry.delete(target, &options, &writer).await?;
    done(call, target)
}

/// Charges one disruption to the budget of a pod, or rejects the eviction.
async fn reserve(registry: &Registry, pod: &Object, writer: &Writer<'_>) -> Result<(), Status> {
    let budgets = registry.catalog.get().of(&POD_DISRUPTION_BUDGET);
    let all = registry.store.list(&budgets.table, pod.namespace()).entries;
    let covers = |budget: &Object| {
        let selector = budget.at(&["spec", "selector"]).cloned();
        selector.is_some_and(|selector| LabelSelector::from_value(&selector).matches(|label| pod.label(label)))
    };
    let mut covering = all.iter().filter_map(|entry| registry.codec.decode(&budgets, entry).ok()).filter(covers);
    let Some(budget) = covering.next() else { return Ok(()) };
    if covering.next().is_some() {
        return Err(Status::new(
            500,
            None,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    let count = |budget: &Object, field: &str| budget.at(&["status", field]).and_then(Value::as_i64).unwrap_or(0);
    if !is_ready(pod) {
        // Such a pod is not among the healthy ones that the budget protects.
        let policy = budget.at(&["spec", "unhealthyPodEvictionPolicy"]).and_then(Value::as_str);
        let (desired, current) = (count(&budget, "desiredHealthy"), count(&budget, "currentHealthy"));
        if policy == Some("AlwaysAllow") || desired > 0 && current >= desired {
            return Ok(());
        }
    }
    if count(&budget, "observedGeneration") < budget.generation() {
        let why = format!("The disruption budget {} is still being processed by the server.", budget.name());
        let mut status = rejected(why);
        status.details.iter_mut().for_each(|details| details.retry_after_seconds = 10);
        return Err(status);
    }
    let key = ObjectKey::new(budget.namespace(), budget.name());
    let target = Target {
        resource: budgets,
        namespace: key.namespace().map(str::to_owned),
        name: Some(key.name().to_owned()),
        part: Part::Status,
    };
    let (name, now) = (pod.name().to_owned(), registry.clock.now_rfc3339());
    let take = move |budget: &mut Object| {
        let allowed = count(budget, "disruptionsAllowed");
        if allowed <= 0 {
            let healthy = (count(budget, "desiredHealthy"), count(budget, "currentHealthy"));
            return Err(rejected(exhausted(budget, healthy)));
        }
        budget.change(|value| {
            value["status"]["disruptionsAllowed"] = (allowed - 1).into();
            let noted = value["status"]
                .as_object_mut()
                .map(|status| status.entry("disruptedPods").or_insert_with(|| json!({})));
            if let Some(noted) = noted.and_then(Value::as_object_mut) {
                noted.insert(name.clone(), now.as_str().into());
            }
        });
        Ok(())
    };
    registry.change(&target, &Change::With(Box::new(take)), writer).await?;
    Ok(())
}

/// Returns true if a pod has the condition `Ready`.
fn is_ready(pod: &Object) -> bool {
    let conditions = pod.at(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns why a budget allows no disruption, with its desired and current number of healthy pods.
fn exhausted(budget: &Object, (desired, current): (i64, i64)) -> String {
    let name = budget.name();
    let conditions = budget.at(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let failed = conditions
        .into_iter()
        .find(|condition| condition["type"] == "DisruptionAllowed" && condition["status"] == "False")
        .map(|condition| (text(condition, "reason"), text(condition, "message")))
        .filter(|(_, message)| !message.is_empty());
    let rejection = format!("The disruption budget {name} does not allow evicting pods currently");
    match failed {
        // The counts of a budget whose sync failed are not valid.
        Some((reason, message)) if reason == "SyncFailed" => format!("{rejection} because it failed sync: {message}"),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some((reason, message)) => format!("{rejection} ({reason}): {message}"),
        None => rejection,
    }
}

fn rejected(why: String) -> Status {
    let cause = Cause { reason: "DisruptionBudget".into(), message: why, field: String::new() };
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::new(429, Reason::TooManyRequests, message)
        .with_details(Details { causes: vec![cause], ..Details::default() })
}

/// Issues a token for a service account.
async fn token(server: &Components, call: &Call, target: &Target) -> Result<Response<Body>, Status> {
    let registry = &*server.registry;
    let form = accept::negotiate(call.accept(), target.resource.offered())?;
    let mut body = ActionBody::read(call, target, "TokenRequest")?;
    body.object.change(|value| {
        if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|_, value| !value.is_null());
            spec.entry("expirationSeconds").or_insert_with(|| 3600.into());
        }
    });
    let mut admitted = body.admit(registry, target, "token", Operation::Create).await?;
    let entry = registry.get(&target.resource, &target.key())?;
    let account = registry.codec.decode(&target.resource, &entry)?;
    let request = &mut admitted.object;
    reviews::check_token(&account, request)?;
    let signed = request.metadata_mut().remove("managedFields");
    let mut metadata = Map::new();
    for field in ["name", "namespace"] {
        metadata.insert(
            field.into(),
            account.metadata().and_then(|metadata| metadata.get(field)).cloned().unwrap_or_default(),
        );
    }
    metadata.insert("uid".into(), account.uid().into());
    metadata.insert("creationTimestamp".into(), registry.clock.now_rfc3339().into());
    metadata.extend(signed.map(|signed| ("managedFields".to_owned(), signed)));
    *request.metadata_mut() = metadata;
    admitted.review(registry).await?;
    let mut request = admitted.object;
    reviews::issue_token(&server.authenticator, &account, &mut request)?;
    Ok(response::value(201, form, request.as_value()))
}
