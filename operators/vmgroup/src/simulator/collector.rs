//! The property collector: the objects in reach of a request, and the wire format of their properties.

use super::inventory::{Entity, Inventory};
use super::request::{FilterSpec, PropertySpec, SelectionSpec};
use super::response::{Problem, power_state};
use super::task::{Task, Tasks};
use crate::vsphere::ManagedObject;
use flyball_core::time::{SignedDuration, Timestamp, rfc3339_micro};
use serde_json::{Value, json};
use std::time::Duration;

/// Collects an `ObjectContent` for each object that the filter reaches and whose type it selects.
pub(super) fn collect(inventory: &Inventory, tasks: &Tasks, filter: &FilterSpec) -> Result<Vec<Value>, Problem> {
    let mut found = Vec::new();
    for start in &filter.object_set {
        if start.obj.kind == "Task" {
            let task = tasks.get(&start.obj)?;
            found.extend(content(filter, &task.object, |path| (path == "info").then(|| task_info(task))));
            continue;
        }
        let mut reached = Vec::new();
        reach(inventory, inventory.get(&start.obj)?, start.skip, &start.select_set, &start.select_set, &mut reached);
        found.extend(reached.iter().filter_map(|e| content(filter, &e.object, |path| property(inventory, e, path))));
    }
    Ok(found)
}

fn reach<'a>(
    inventory: &'a Inventory,
    entity: &'a Entity,
    skip: bool,
    steps: &[SelectionSpec],
    all: &[SelectionSpec],
    reached: &mut Vec<&'a Entity>,
) {
    if !skip {
        reached.push(entity);
    }
    for step in steps {
        // A step without a path refers to the step with its name.
        let step = if step.path.is_some() { Some(step) } else { named(all, step.name.as_deref()) };
        let Some((step, kind, path)) = step.and_then(|s| Some((s, s.kind.as_deref()?, s.path.as_deref()?))) else {
            continue;
        };
        if is_a(&entity.object.kind, kind) {
            for next in follow(inventory, entity, path) {
                reach(inventory, next, false, &step.select_set, all, reached);
            }
        }
    }
}

fn named<'a>(steps: &'a [SelectionSpec], name: Option<&str>) -> Option<&'a SelectionSpec> {
    let here = steps.iter().find(|step| step.path.is_some() && step.name.as_deref() == name);
    here.or_else(|| steps.iter().find_map(|step| named(&step.select_set, name)))
}

fn follow<'a>(inventory: &'a Inventory, entity: &'a Entity, path: &str) -> Vec<&'a Entity> {
    match path {
        "childEntity" => inventory.children(&entity.object).collect(),
        path => relation(inventory, entity, path).into_iter().collect(),
    }
}

/// Properties that refer to a single entity.
fn relation<'a>(inventory: &'a Inventory, entity: &'a Entity, path: &str) -> Option<&'a Entity> {
    let name = match (entity.object.kind.as_str(), path) {
        ("Datacenter", "vmFolder") => "vm",
        ("Datacenter", "hostFolder") => "host",
        ("ClusterComputeResource", "resourcePool") => "Resources",
        (_, "parent") => return inventory.get(entity.parent.as_ref()?).ok(),
        _ => return None,
    };
    inventory.child(&entity.object, name)
}

fn is_a(kind: &str, expected: &str) -> bool {
    kind == expected
        || expected == "ManagedEntity"
        || (kind == "ClusterComputeResource" && expected == "ComputeResource")
}

fn content(filter: &FilterSpec, object: &ManagedObject, get: impl Fn(&str) -> Option<Value>) -> Option<Value> {
    let specs: Vec<&PropertySpec> = filter.prop_set.iter().filter(|p| is_a(&object.kind, &p.kind)).collect();
    let properties = specs
        .iter()
        .flat_map(|p| &p.path_set)
        .filter_map(|path| Some(json!({"_typeName": "DynamicProperty", "name": path, "val": get(path)?})));
    let properties: Vec<Value> = properties.collect();
    (!specs.is_empty()).then(|| json!({"_typeName": "ObjectContent", "obj": object, "propSet": properties}))
}

/// Values in a collection contain their type; primitive values are wrapped in an object.
fn typed(kind: &str, value: impl Into<Value>) -> Value {
    json!({"_typeName": kind, "_value": value.into()})
}

fn property(inventory: &Inventory, entity: &Entity, path: &str) -> Option<Value> {
    let machine = entity.machine.as_ref();
    Some(match path {
        "name" => typed("string", entity.name.as_str()),
        "childEntity" => {
            let children: Vec<&ManagedObject> = inventory.children(&entity.object).map(|e| &e.object).collect();
            typed("ArrayOfManagedObjectReference", json!(children))
        }
        "runtime.powerState" => typed("VirtualMachinePowerState", power_state(machine?.powered_on)),
        "config.template" => typed("boolean", machine?.template),
        "config.hardware.numCPU" => typed("int", machine?.cpus),
        "config.hardware.memoryMB" => typed("int", machine?.memory_mib),
        path => json!(relation(inventory, entity, path)?.object),
    })
}

fn task_info(task: &Task) -> Value {
    let mut info = json!({
        "_typeName": "TaskInfo",
        "key": task.object.id,
        "task": task.object,
        "descriptionId": task.effect.description(),
        "entity": task.entity,
        "state": "running",
        "cancelled": false,
        "cancelable": false,
        "reason": {"_typeName": "TaskReasonUser", "userName": super::USER},
        "queueTime": time(task.started),
        "startTime": time(task.started),
        "eventChainId": 0,
    });
    match &task.outcome {
        None => {}
        Some(Ok(result)) => {
            info["state"] = "success".into();
            info["completeTime"] = time(task.due).into();
            if let Some(result) = result {
                info["result"] = json!(result);
            }
        }
        Some(Err(problem)) => {
            info["state"] = "error".into();
            info["completeTime"] = time(task.due).into();
            info["error"] = json!({
                "_typeName": "LocalizedMethodFault",
                "fault": problem.to_fault(),
                "localizedMessage": problem.message(),
            });
        }
    }
    info
}

/// Formats a time of the simulation, which starts in 1970.
fn time(since_start: Duration) -> String {
    let passed = SignedDuration::try_from(since_start).unwrap_or_default();
    rfc3339_micro(Timestamp::UNIX_EPOCH + passed)
}
