//! LimitRanger: sets default requests and limits, and rejects objects beyond the bounds of their namespace.
//!
//! See <https://kubernetes.io/docs/concepts/policy/limit-range/>.

use super::pod::check_room;
use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, WriteCost, decided, is_long_read, pass};
use crate::kinds::{Amounts, LIMIT_RANGE, PERSISTENT_VOLUME_CLAIM, POD, Part, amounts, pod_usage};
use crate::storage::Store;
use flyball_core::memory::NODE;
use flyball_core::{Object, Quantity, Status};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Applies the limit ranges of a namespace.
pub(super) struct LimitRanger {
    store: Arc<Store>,
}

impl LimitRanger {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl WriteCost for LimitRanger {
    fn is_slow(&self, plural: &str, namespace: Option<&str>) -> bool {
        [&POD, &PERSISTENT_VOLUME_CLAIM].iter().any(|kind| kind.plural == plural)
            && is_long_read(&self.store, &LIMIT_RANGE, namespace)
    }
}

impl Plugin for LimitRanger {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        match object.filter(|_| attributes.sizes_pod()) {
            Some(pod) => decided(admit(&self.store, attributes, pod)),
            None => pass(),
        }
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        object.map_or_else(pass, |object| decided(validate(&self.store, attributes, object)))
    }
}

fn ranges(store: &Store, attributes: &Attributes<'_>) -> Vec<Object> {
    let all = store.list(&LIMIT_RANGE.table(), attributes.namespace).entries;
    all.iter().filter_map(|entry| entry.object().ok()).collect()
}

fn limits(range: &Object) -> impl Iterator<Item = &Value> {
    range.at(&["spec", "limits"]).and_then(Value::as_array).into_iter().flatten()
}

/// Memory of default requests and limits in a container: three maps.
const FILL_WEIGHT: usize = 4 * NODE;

/// Sets default requests and limits of the containers of a pod.
fn admit(store: &Store, attributes: &Attributes<'_>, pod: &mut Object) -> Result<(), Status> {
    for range in ranges(store, attributes) {
        let mut defaults = [Map::new(), Map::new()];
        for limit in limits(&range).filter(|limit| limit["type"] == "Container") {
            for (amounts, field) in defaults.iter_mut().zip(["defaultRequest", "default"]) {
                amounts.extend(limit[field].as_object().cloned().unwrap_or_default());
            }
        }
        if defaults.iter().any(|amounts| !amounts.is_empty()) {
            check_room(pod, FILL_WEIGHT)?;
        }
        let mut changes = Vec::new();
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                changes.extend(fill(container, &defaults, what));
            }
        }
        if !changes.is_empty() {
            let annotations = pod.metadata_mut().entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(
                    "kubernetes.io/limit-ranger".into(),
                    format!("LimitRanger plugin set: {}", changes.join("; ")).into(),
                );
            }
        }
    }
    Ok(())
}

fn fill(container: &mut Map<String, Value>, defaults: &[Map<String, Value>; 2], what: &str) -> Vec<String> {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut changes = Vec::new();
    for (amounts, (field, singular)) in
        defaults.iter().zip([("requests", "request"), ("limits", "limit")]).filter(|(amounts, _)| !amounts.is_empty())
    {
        let resources = container.entry("resources").or_insert_with(|| json!({}));
        let Some(own) = resources
            .as_object_mut()
            .and_then(|resources| resources.entry(field).or_insert_with(|| json!({})).as_object_mut())
        else {
            continue;
        };
        let mut set: Vec<&str> = amounts.keys().map(String::as_str).filter(|name| !own.contains_key(*name)).collect();
        set.sort_unstable();
        set.iter().for_each(|name| drop(own.insert((*name).to_owned(), amounts[*name].clone())));
        if !set.is_empty() {
            changes.push(format!("{} {singular} for {what} {name}", set.join(", ")));
        }
    }
    changes
}

/// Rejects objects beyond the bounds.
fn validate(store: &Store, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
    let pods = attributes.sizes_pod();
    let claims = attributes.writes(&PERSISTENT_VOLUME_CLAIM) && attributes.operation != Operation::Delete;
    let claims = claims && attributes.part == Part::Whole;
    if !pods && !claims {
        return Ok(());
    }
    for range in ranges(store, attributes) {
        let mut wrong = Vec::new();
        for limit in limits(&range) {
            let ty = limit["type"].as_str().unwrap_or_default();
            match ty {
                _ if claims && ty == PERSISTENT_VOLUME_CLAIM.kind => wrong.extend(claim(limit, object)),
                "Container" if pods => {
                    for list in ["containers", "initContainers"] {
                        let containers = object.at(&["spec", list]).and_then(Value::as_array);
                        for container in containers.into_iter().flatten() {
                            let used = ["requests", "limits"].map(|field| amounts(&container["resources"][field]));
                            wrong.extend(beyond(limit, ty, &used));
                        }
                    }
                }
                _ if pods && ty == POD.kind => wrong.extend(beyond(
                    limit,
                    ty,
                    &["requests", "limits"].map(|field| pod_usage::requirements(object, field)),
                )),
                _ => {}
            }
        }
        if !wrong.is_empty() {
            let why = flyball_core::field::aggregate(wrong);
            return Err(attributes.forbidden(why));
        }
    }
    Ok(())
}

/// Returns the violations of a limit.
fn beyond(limit: &Value, ty: &str, [requests, limits]: &[Amounts; 2]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, least) in amounts(&limit["min"]) {
        let constraint = format!("minimum {name} usage per {ty} is {least}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => wrong.push(format!("{constraint}.  No request is specified")),
            (Some(request), _) if *request < least => wrong.push(format!("{constraint}, but request is {request}")),
            (_, Some(most)) if *most < least => wrong.push(format!("{constraint}, but limit is {most}")),
            _ => {}
        }
    }
    for (name, most) in amounts(&limit["max"]) {
        let constraint = format!("maximum {name} usage per {ty} is {most}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => wrong.push(format!("{constraint}.  No limit is specified")),
            (Some(limit), _) if *limit > most => wrong.push(format!("{constraint}, but limit is {limit}")),
            (_, Some(request)) if *request > most => wrong.push(format!("{constraint}, but request is {request}")),
            _ => {}
        }
    }
    for (name, ratio) in amounts(&limit["maxLimitRequestRatio"]) {
        let constraint = format!("{name} max limit to request ratio per {ty} is {ratio}");
        let some = |amounts: &Amounts| {
            amounts.get(&name).filter(|amount| **amount != Quantity::ZERO).map(Quantity::milli_value)
        };
        match (some(requests), some(limits)) {
            (None, _) => wrong.push(format!("{constraint}, but no request is specified or request is 0")),
            (_, None) => wrong.push(format!("{constraint}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                #[expect(clippy::cast_precision_loss, reason = "the real server works it out so")]
                let (provided, most) = (limit as f64 / request as f64, ratio.milli_value() as f64);
                if provided * 1000.0 > most {
                    wrong.push(format!("{constraint}, but provided ratio is {provided:.6}"));
                }
            }
        }
    }
    wrong
}

fn claim(limit: &Value, claim: &Object) -> Vec<String> {
    let requests = claim.at(&["spec", "resources", "requests"]).map(amounts).unwrap_or_default();
    let mut wrong = Vec::new();
    for (bound, adjective, out) in
        [("min", "minimum", std::cmp::Ordering::Less), ("max", "maximum", std::cmp::Ordering::Greater)]
    {
        for (name, bound) in amounts(&limit[bound]) {
            let constraint = format!("{adjective} {name} usage per PersistentVolumeClaim is {bound}");
            match requests.get(&name) {
                None => wrong.push(format!("{constraint}.  No request is specified")),
                Some(request) if request.cmp(&bound) == out => {
                    wrong.push(format!("{constraint}, but request is {request}"))
                }
                Some(_) => {}
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_list_every_exceeded_bound() {
        let limit = json!({"min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}});
        let used = |request: &str, limit: &str| [amounts(&json!({"cpu": request})), amounts(&json!({"cpu": limit}))];
        let none: [&str; 0] = [];
        assert_eq!(beyond(&limit, "Container", &used("500m", "1")), none);
        assert_eq!(
            beyond(&limit, "Container", &used("50m", "2")),
            [
                "minimum cpu usage per Container is 100m, but request is 50m",
                "maximum cpu usage per Container is 1, but limit is 2",
                "cpu max limit to request ratio per Container is 2, but provided ratio is 40.000000",
            ]
        );
    }
}
