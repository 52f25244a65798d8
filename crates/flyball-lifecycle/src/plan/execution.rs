//! The execution of a plan.

use super::actor::{Actor, path_of};
use super::alongside;
use super::error::ExecutionError;
use super::ownership::{Line, planned};
use super::prepare::{is_managers, prepared};
use super::resources::{CSV, is_definition, resource};
use super::sharing::{Sharing, conflict, sharing};
use crate::api::{ClusterServiceVersion, GROUP, InstallPlan, Step, StepStatus};
use flyball::{Context, ObjectKey};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Applies all steps, and returns their states.
pub(super) async fn execute(
    plan: &InstallPlan,
    objects: Vec<Value>,
    manager: &Actor<'_>,
    installer: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> Result<Vec<StepStatus>, ExecutionError> {
    let namespace = plan.namespace().unwrap_or_default();
    let steps = &plan.status.plan;
    let mut statuses: Vec<StepStatus> = steps.iter().map(|step| step.status).collect();
    let mut owners = Owners::read(&namespace, cx).await.map_err(|error| ExecutionError::of(&error, &statuses))?;
    let mut order: Vec<usize> = (0..steps.len()).collect();
    // The sort is stable: the order of the plan otherwise.
    order.sort_by_key(|index| rank(&steps[*index]));
    for index in order {
        let step = &steps[index];
        let Some(resource) = resource(&step.resource.group, &step.resource.kind) else { continue };
        let actor = match is_managers(step) {
            true => manager,
            false => installer,
        };
        let fail = |error: &kube::Error, statuses: &[StepStatus]| ExecutionError {
            statuses: statuses.to_vec(),
            ..ExecutionError::at_step(step, error)
        };
        let path = path_of(resource, &step.resource.version, &namespace, &step.resource.name);
        let known = actor.get(&path).await.map_err(|error| fail(&error, &statuses))?;
        let mut object = prepared(plan, step, resource, &objects[index]);
        if resource.is_namespaced && step.resource.group != GROUP {
            owners.set(&mut object, &step.resolving, known.as_ref());
        }
        let csv = ObjectKey::new(Some(&namespace), &step.resolving);
        let is_definition = is_definition(resource.group, resource.kind);
        if let Some(old) = known.as_ref().filter(|_| !resource.is_namespaced && !is_definition) {
            let shared = share(plan, step, &path, (old, &object), (manager, actor), cx).await;
            let failed = |error| ExecutionError { statuses: statuses.clone(), ..error };
            if shared.map_err(failed)? == Shared::AsItIs {
                statuses[index] = StepStatus::Present;
                continue;
            }
        }
        let applied = actor.apply(&path, &object, false).await.map_err(|error| fail(&error, &statuses))?;
        if is_definition {
            let recorded = alongside::record(&path, &csv, &[], (known.as_ref(), &applied), actor, cx).await;
            recorded.map_err(|error| fail(&error, &statuses))?;
        }
        if resource.kind == CSV {
            owners.add(&applied);
        }
        let is_new = known.is_none() || statuses[index] == StepStatus::Created;
        statuses[index] = if is_new { StepStatus::Created } else { StepStatus::Present };
    }
    Ok(statuses)
}

/// The treatment of an object that exists.
#[derive(Debug, PartialEq, Eq)]
enum Shared {
    /// The object is applied.
    Applied,
    /// The object belongs to other operators, and stays as it is.
    AsItIs,
}

/// Records that an object is shared with other operators, if it is. This comes before its change: they would lose it if
/// the manager crashed in between, and the new owner was deleted.
async fn share(
    plan: &InstallPlan,
    step: &Step,
    path: &str,
    (old, new): (&Value, &Value),
    (manager, installer): (&Actor<'_>, &Actor<'_>),
    cx: &Context<InstallPlan>,
) -> Result<Shared, ExecutionError> {
    let failed = |error: flyball::Error| ExecutionError::of(&error, &[]);
    let at_step = |error: kube::Error| ExecutionError::at_step(step, &error);
    let csv = ObjectKey::new(plan.namespace().as_deref(), &step.resolving);
    let line = Line::read(plan, csv.name(), cx).await.map_err(failed)?;
    let others = line.other_owners(old, cx).await.map_err(failed)?;
    let planned = planned(plan, csv.name()).unwrap_or_default();
    match sharing(&others, &planned, path, (old, new), manager).await.map_err(at_step)? {
        Sharing::Alone => Ok(Shared::Applied),
        Sharing::With { users, changes } => {
            // A limited account shares only what it may write.
            if installer.is_limited() {
                installer.apply(path, new, true).await.map_err(at_step)?;
            }
            alongside::record(path, &csv, &users, (Some(old), old), manager, cx).await.map_err(at_step)?;
            Ok(if changes { Shared::Applied } else { Shared::AsItIs })
        }
        // Another plan has created it since the check.
        Sharing::Conflict { user } => Err(conflict(step, &user)),
    }
}

/// Returns the position of a step in the execution: CRDs do not need anything else, and everything that a
/// ClusterServiceVersion owns needs its UID.
fn rank(step: &Step) -> usize {
    match step.resource.kind.as_str() {
        "CustomResourceDefinition" => 0,
        CSV => 1,
        "Subscription" => 3,
        _ => 2,
    }
}

/// The UIDs of the ClusterServiceVersions in a namespace.
struct Owners(BTreeMap<String, String>);

impl Owners {
    async fn read(namespace: &str, cx: &Context<InstallPlan>) -> flyball::Result<Self> {
        let of = |csv: ClusterServiceVersion| Some((csv.name_any(), csv.uid()?));
        Ok(Self(cx.filter_map(Some(namespace), of).await?.into_iter().collect()))
    }

    fn add(&mut self, csv: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.0.insert(text(&csv["metadata"]["name"]), text(&csv["metadata"]["uid"]));
    }

    /// Makes a ClusterServiceVersion an owner, beside others that exist: during an upgrade, an object belongs to both.
    fn set(&self, object: &mut Value, name: &str, known: Option<&Value>) {
        let alive: BTreeSet<&String> = self.0.values().collect();
        let before = known.and_then(|known| known["metadata"]["ownerReferences"].as_array());
        let is_alive = |owner: &&Value| {
            owner["kind"] == CSV && owner["uid"].as_str().is_some_and(|uid| alive.contains(&uid.to_owned()))
        };
        let mut owners: Vec<Value> = before.into_iter().flatten().filter(is_alive).cloned().collect();
        let Some(uid) = self.0.get(name) else { return };
        if !owners.iter().any(|owner| owner["uid"] == uid.as_str()) {
            owners.push(json!({
                "apiVersion": format!("{GROUP}/v1alpha1"), "kind": CSV, "name": name, "uid": uid,
                "controller": false, "blockOwnerDeletion": false,
            }));
        }
        object["metadata"]["ownerReferences"] = owners.into();
    }
}
