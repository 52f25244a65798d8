//! Updates of a pod, most of whose fields are immutable.

use crate::kinds::difference::difference;
use crate::kinds::field::Field;
use crate::kinds::fill::Fields;
use crate::kinds::pod_spec::{self, container, placement, spec};
use crate::kinds::rules::{address, resource};
use crate::kinds::subresource::Part;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_label, dns_subdomain, qualified_name};
use flyball_core::{Clock, Object};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

type Errors = Vec<FieldError>;

/// Prepares a written pod: resets the fields that writes to this subresource must not change.
pub(crate) fn prepare(pod: &mut Object, old: Option<&Object>, part: Part, clock: &Clock) {
    if let Some(grace) =
        pod.at(&["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64).filter(|grace| *grace < 0)
    {
        let _ = grace;
        pod.inner_or_new("spec").set("terminationGracePeriodSeconds", 1);
    }
    let Some(old) = old else {
        let mut status = json!({"phase": "Pending", "qosClass": quality(pod)});
        if pod.at(&["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": clock.now_rfc3339(),
            }]);
        }
        pod.insert("status".into(), status);
        return;
    };
    match part {
        Part::Status => {
            let metadata = old.metadata().cloned().unwrap_or_default();
            pod.metadata_mut().keep("ownerReferences", &metadata);
            let quality = old.at(&["status", "qosClass"]).cloned();
            let status = pod.inner_or_new("status");
            if let Some(quality) = quality {
                status.fill("qosClass", quality);
            }
        }
        Part::EphemeralContainers => {
            let added = pod.at(&["spec", "ephemeralContainers"]).cloned();
            restore(pod, old);
            match added {
                Some(added) => pod.inner_or_new("spec").set("ephemeralContainers", added),
                None => drop(pod.inner_or_new("spec").remove("ephemeralContainers")),
            }
        }
        Part::Resize => resize(pod, old),
        _ => {}
    }
}

/// Restores all fields except metadata that identifies the write.
fn restore(pod: &mut Object, old: &Object) {
    let own = ["managedFields", "resourceVersion"]
        .map(|field| (field, pod.metadata().and_then(|metadata| metadata.get(field)).cloned()));
    *pod = old.clone();
    for (field, value) in own {
        match value {
            Some(value) => pod.metadata_mut().set(field, value),
            None => drop(pod.metadata_mut().remove(field)),
        }
    }
}

/// Copies only the resources of the containers.
fn resize(pod: &mut Object, old: &Object) {
    let resized = pod.clone();
    restore(pod, old);
    let spec = pod.inner_or_new("spec");
    for list in ["containers", "initContainers"] {
        let containers = resized.at(&["spec", list]).and_then(Value::as_array).into_iter().flatten().rev();
        let containers: BTreeMap<&str, &Value> =
            containers.filter_map(|container| Some((container["name"].as_str()?, container))).collect();
        for container in spec.each(list) {
            let name = container.text("name").to_owned();
            let Some(desired) = containers.get(name.as_str()).and_then(|container| container.as_object()) else {
                continue;
            };
            container.keep("resources", desired);
            container.keep("resizePolicy", desired);
        }
    }
    if let Some(resized) = resized.at(&["spec", "resources"]) {
        spec.set("resources", resized.clone());
    }
}

/// Returns the quality-of-service class of a pod.
fn quality(pod: &Object) -> &'static str {
    let spec = pod.at(&["spec"]).unwrap_or(&Value::Null);
    let counted = |name: &str| matches!(name, "cpu" | "memory");
    let amounts = |of: &Value, field: &str| -> Vec<(String, flyball_core::Quantity)> {
        let amounts = of["resources"][field].as_object().into_iter().flatten();
        let amounts = amounts
            .filter(|(name, _)| counted(name))
            .filter_map(|(name, amount)| Some((name.clone(), resource::amount_of(amount)?)));
        amounts.filter(|(_, amount)| *amount > flyball_core::Quantity::ZERO).collect()
    };
    let whole = |field: &str| !amounts(spec, field).is_empty();
    let all: Vec<&Value> = if whole("limits") || whole("requests") {
        vec![spec]
    } else {
        ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten()).collect()
    };
    if all.iter().all(|of| amounts(of, "limits").is_empty() && amounts(of, "requests").is_empty()) {
        return "BestEffort";
    }
    let sure = |of: &&Value| {
        let (limits, requests) = (amounts(of, "limits"), amounts(of, "requests"));
        limits.len() == 2
            && limits
                .iter()
                .all(|(name, limit)| requests.iter().any(|(other, request)| other == name && request == limit))
    };
    if all.iter().all(sure) { "Guaranteed" } else { "Burstable" }
}

/// Validates a pod or its change.
pub(crate) fn validate(pod: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(pod);
    let Some(old) = old else {
        let mut errors = pod_errors(&root, pod.name());
        let spec = root.at("spec");
        let ephemeral = spec.at("ephemeralContainers");
        if !ephemeral.is_empty() {
            errors.push(ephemeral.forbidden("cannot be set on create"));
        }
        if !spec.at("nodeName").is_empty() && !spec.at("schedulingGates").is_empty() {
            errors.push(spec.at("nodeName").forbidden("cannot be set until all schedulingGates have been cleared"));
        }
        return errors;
    };
    let before = Field::root(old);
    match part {
        Part::Status => status(&root, &before),
        Part::EphemeralContainers => {
            let mut errors = pod_errors(&root, pod.name());
            let list = root.at("spec");
            let list = list.at("ephemeralContainers");
            let named = list.list().iter().rev().filter_map(|new| Some((new["name"].as_str()?, new)));
            let named: BTreeMap<&str, &Value> = named.collect();
            for container in old.at(&["spec", "ephemeralContainers"]).and_then(Value::as_array).into_iter().flatten() {
                let name = container["name"].as_str().unwrap_or_default();
                match named.get(name).copied() {
                    None => errors
                        .push(list.forbidden(format!("existing ephemeral containers {name:?} may not be removed\n"))),
                    Some(new) if new != container => {
                        let diff = difference("EphemeralContainer", container, new);
                        let why = format!("existing ephemeral containers {name:?} may not be changed\n{diff}");
                        errors.push(list.forbidden(why));
                    }
                    Some(_) => {}
                }
            }
            errors
        }
        Part::Resize => {
            let mut errors = pod_errors(&root, pod.name());
            if quality(pod) != quality(old) {
                let shown = pod.at(&["status", "qosClass"]).cloned().unwrap_or_default();
                errors.push(root.at("spec").invalid_as(shown, "Pod QOS Class may not change as a result of resizing"));
            }
            errors
        }
        Part::Binding => Errors::new(),
        _ => {
            let mut errors = pod_errors(&root, pod.name());
            errors.extend(change(&root, &before));
            errors
        }
    }
}

/// Validates a pod independently of its previous state.
fn pod_errors(pod: &Field<'_>, name: &str) -> Errors {
    let mut errors = annotations(pod);
    let spec = pod.at("spec");
    errors.extend(spec::check(&spec, name, true));
    if spec.at("serviceAccountName").is_empty() {
        for volume in spec.at("volumes").items() {
            for source in
                volume.at("projected").at("sources").items().filter(|source| source.at("serviceAccountToken").is_set())
            {
                errors.push(
                    source
                        .at("serviceAccountToken")
                        .forbidden("must not be specified when serviceAccountName is not set"),
                );
            }
        }
    }
    for list in ["containers", "initContainers"] {
        errors.extend(spec.at(list).items().filter_map(|container| container::trimmed_image(&container)));
    }
    errors
}

fn annotations(pod: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let metadata = pod.at("metadata");
    let annotations = metadata.at("annotations");
    const MIRROR: &str = "kubernetes.io/config.mirror";
    let mirror = annotations.key(MIRROR);
    if mirror.is_set() && pod.at("spec.nodeName").is_empty() {
        errors.push(mirror.invalid("must set spec.nodeName if mirror pod annotation is set"));
    }
    let cost = annotations.key("controller.kubernetes.io/pod-deletion-cost");
    let plain = |text: &str| text.parse::<i32>().is_ok_and(|number| number.to_string() == text);
    if cost.is_set() && !plain(cost.text()) {
        errors.push(cost.invalid("must be a 32bit integer"));
    }
    errors
}

/// The mutable fields of a pod.
const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn change(pod: &Field<'_>, old: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let (spec, before) = (pod.at("spec"), old.at("spec"));
    for list in ["containers", "initContainers"] {
        let containers = spec.at(list);
        if containers.len() != before.at(list).len() {
            errors.push(containers.forbidden("pod updates may not add or remove containers"));
            return errors;
        }
        for container in containers.items() {
            errors.extend(container.at("image").must_be_set());
            errors.extend(container::trimmed_image(&container));
        }
    }
    let (deadline, earlier) = (spec.at("activeDeadlineSeconds"), before.at("activeDeadlineSeconds"));
    if deadline.is_set() {
        if let Some(wrong) = deadline.within(0, i64::from(i32::MAX)) {
            errors.push(wrong);
            return errors;
        }
        if earlier.int_if_set().is_some_and(|earlier| earlier < deadline.int()) {
            errors.push(deadline.invalid("must be less than or equal to previous value"));
            return errors;
        }
    } else if earlier.is_set() {
        errors.push(deadline.invalid("must not update from a positive integer to nil value"));
    }
    let tolerations = spec.at("tolerations");
    let tolerated: HashSet<Value> = tolerations.list().iter().map(placement::without_time).collect();
    if before.at("tolerations").list().iter().all(|toleration| tolerated.contains(&placement::without_time(toleration)))
    {
        errors.extend(placement::tolerations(&tolerations));
    } else {
        errors.push(tolerations.forbidden("existing toleration can not be modified except its tolerationSeconds"));
    }
    let gates = spec.at("schedulingGates");
    let known: HashSet<&Value> = before.at("schedulingGates").list().iter().collect();
    for gate in gates.items().filter(|gate| !known.contains(gate.value())) {
        let name = gate.at("name");
        errors
            .push(name.forbidden(format!("only deletion is allowed, but found new scheduling gate '{}'", name.text())));
    }
    let munged = munged(spec.value(), before.value());
    if munged != *before.value() {
        let diff = difference("PodSpec", before.value(), &munged);
        errors.push(spec.forbidden(format!("pod updates may not change fields other than {UPDATABLE}\n{diff}")));
    }
    errors
}

/// Returns a spec in which all mutable fields are restored.
fn munged(spec: &Value, old: &Value) -> Value {
    let mut spec = spec.clone();
    let Some(fields) = spec.as_object_mut() else { return spec };
    let none = serde_json::Map::new();
    let before = old.as_object().unwrap_or(&none);
    for list in ["containers", "initContainers"] {
        for (i, container) in fields.each(list).enumerate() {
            container.keep("image", old[list][i].as_object().unwrap_or(&none));
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        fields.keep(field, before);
    }
    if old["terminationGracePeriodSeconds"].as_i64().is_some_and(|grace| grace < 0)
        && fields.get("terminationGracePeriodSeconds") == Some(&1.into())
    {
        fields.keep("terminationGracePeriodSeconds", before);
    }
    if old["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        let adds = |new: Option<&Value>, old: &Value| {
            old.as_object().into_iter().flatten().all(|(key, value)| new.and_then(|new| new.get(key)) == Some(value))
        };
        if adds(fields.get("nodeSelector"), &old["nodeSelector"]) {
            fields.keep("nodeSelector", before);
        }
    }
    spec
}

fn status(pod: &Field<'_>, old: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let (status, before) = (pod.at("status"), old.at("status"));
    for condition in status.at("conditions").items() {
        let seen = condition.at("observedGeneration");
        if seen.int() < 0 {
            errors.push(seen.invalid("must be a non-negative integer"));
        }
        let ty = condition.at_as("type", "Type");
        if !matches!(ty.text(), "PodScheduled" | "Ready" | "Initialized") {
            errors.extend(ty.obeys(qualified_name));
        }
    }
    let nominated = status.at("nominatedNodeName");
    if nominated.text() != before.at("nominatedNodeName").text() && !nominated.is_empty() {
        errors.extend(nominated.obeys(dns_subdomain));
    }
    let seen = status.at("observedGeneration");
    if seen.int() < 0 {
        errors.push(seen.invalid("must be a non-negative integer"));
    }
    errors.extend(status.at("qosClass").unchanged_from(&before.at("qosClass")));
    let policy = pod.at("spec");
    let policy = policy.at("restartPolicy");
    if policy.text() != "Always" {
        for list in ["containerStatuses", "initContainerStatuses"] {
            let statuses = status.at(list);
            let mut running: BTreeMap<String, Field<'_>> = BTreeMap::new();
            for status in statuses.items().filter(|status| !status.value()["state"]["terminated"].is_object()) {
                running.entry(status.at("name").text().to_owned()).or_insert(status);
            }
            for earlier in before.at(list).items().filter(|status| status.at("state.terminated").is_set()) {
                let failed = earlier.at("state.terminated.exitCode").int() != 0;
                if failed && policy.text() == "OnFailure" {
                    continue;
                }
                let running = running.get(earlier.at("name").text());
                if let Some(running) = running {
                    errors.push(running.at("state").forbidden("may not be transitioned to non-terminated state"));
                }
            }
        }
    }
    for field in ["podIPs", "hostIPs"] {
        errors.extend(addresses(&status.at(field)));
    }
    errors
}

/// Validates that a pod has at most one address per family.
fn addresses(list: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for entry in list.items().filter(|entry| entry.at("ip").is_set()) {
        errors.extend(address::check(&Field::new(*entry.path(), entry.at("ip").value())));
    }
    let ips: Vec<&str> = list.list().iter().filter_map(|entry| entry["ip"].as_str()).collect();
    if ips.len() > 2 || ips.len() == 2 && !address::is_dual_stack(ips.iter().copied()) {
        errors.push(list.invalid("may specify no more than one IP for each IP family"));
    }
    errors
}

/// Returns the warnings of a pod.
pub(crate) fn warn(pod: &Object, old: Option<&Object>) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = dns_label(pod.name());
    if old.is_none() && !wrong.is_empty() {
        let wrong = wrong.join(" ");
        warnings.push(format!("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{wrong}]"));
    }
    if old.is_some_and(|old| old.get("spec") == pod.get("spec")) {
        return warnings;
    }
    let root = Field::root(pod);
    warnings.extend(pod_spec::warn_of(&root.at("metadata"), &root.at("spec"), false));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value) -> Object {
        let mut object = Object::try_from(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})).unwrap();
        super::super::defaults::default(&mut object);
        object
    }

    fn check(new: Value, old: Option<Value>, expected: &[&str]) {
        let (new, old) = (pod(new), old.map(pod));
        let errors: Vec<String> = validate(&new, old.as_ref(), Part::Whole).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{new:?}");
    }

    #[test]
    fn errors_are_reported_in_order() {
        check(json!({"containers": [{"name": "c", "image": "i"}]}), None, &[]);
        check(json!({"containers": []}), None, &["spec.containers: Required value"]);
        check(
            json!({"restartPolicy": "X", "containers": [{"name": "c", "image": "", "ports": [{"containerPort": 0, "protocol": "TCP"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
            None,
            &[
                "spec.containers[0].image: Required value",
                "spec.containers[0].ports[0].containerPort: Required value",
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
                "spec.restartPolicy: Unsupported value: \"X\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        );
    }

    #[test]
    fn updates_may_change_images_only() {
        let one =
            |image: &str| json!({"containers": [{"name": "c", "image": image}], "terminationGracePeriodSeconds": 5});
        check(one("i:2"), Some(one("i:1")), &[]);
        let two = json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]});
        check(two, Some(one("i")), &["spec.containers: Forbidden: pod updates may not add or remove containers"]);
        let errors =
            validate(&pod(json!({"containers": [{"name": "d", "image": "i"}]})), Some(&pod(one("i"))), Part::Whole);
        assert!(
            errors.len() == 1 && errors[0].detail.starts_with("pod updates may not change fields other than"),
            "{errors:?}"
        );
    }

    #[test]
    fn qos_class_follows_requests_and_limits() {
        let of = |resources: Value| {
            quality(&pod(json!({"containers": [{"name": "c", "image": "i", "resources": resources}]})))
        };
        assert_eq!(of(json!({})), "BestEffort");
        assert_eq!(of(json!({"requests": {"cpu": "1"}})), "Burstable");
        assert_eq!(of(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed");
    }
}
