//! The execution of a plan.

use super::actor::{Actor, message_of, path_of};
use super::alongside;
use super::error::ExecutionError;
use super::ownership::{Line, is_owned_only_by, planned};
use super::prepare::{is_managers, prepared};
use super::requesters::{Requesters, claim, release};
use super::resources::{CSV, is_definition, resource};
use super::sharing::{Sharing, conflict, sharing};
use crate::api::labels::CSV_CLEANUP;
use crate::api::{ClusterServiceVersion, GROUP, InstallPlan, Step, StepStatus};
use flyball::{Context, ObjectKey};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Applies all steps, and returns their states; `None` if nobody requests them any more.
pub(super) async fn execute(
    plan: &InstallPlan,
    objects: Vec<Value>,
    manager: &Actor<'_>,
    installer: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> Result<Option<Vec<StepStatus>>, ExecutionError> {
    let namespace = plan.namespace().unwrap_or_default();
    let statuses: Vec<StepStatus> = plan.status.plan.iter().map(|step| step.status).collect();
    let owners = Owners::read(&namespace, cx).await.map_err(|error| ExecutionError::of(&error, &statuses))?;
    let mut execution =
        Execution { plan, objects, manager, installer, namespace, owners, statuses, claimed: Vec::new(), cx };
    let executed = execution.steps().await;
    let collected = execution.collect_leftovers().await;
    let with_statuses = |error| ExecutionError { statuses: execution.statuses.clone(), ..error };
    let is_requested = executed.map_err(with_statuses)?;
    collected.map_err(with_statuses)?;
    Ok(is_requested.then_some(execution.statuses))
}

/// An attempt to execute a plan.
struct Execution<'e> {
    plan: &'e InstallPlan,
    /// The objects of the steps.
    objects: Vec<Value>,
    manager: &'e Actor<'e>,
    installer: &'e Actor<'e>,
    namespace: String,
    owners: Owners,
    statuses: Vec<StepStatus>,
    /// Paths and objects that may belong to the requesters of the plan.
    claimed: Vec<(String, Value)>,
    cx: &'e Context<InstallPlan>,
}

impl Execution<'_> {
    /// Applies all steps. Returns false if the owners of the plan are gone.
    async fn steps(&mut self) -> Result<bool, ExecutionError> {
        let steps = &self.plan.status.plan;
        let mut order: Vec<usize> = (0..steps.len()).collect();
        // The sort is stable: the order of the plan otherwise.
        order.sort_by_key(|index| rank(&steps[*index]));
        for index in order {
            let step = &steps[index];
            let requesters = Requesters::read(self.plan, self.manager).await;
            let requesters = requesters.map_err(|error| ExecutionError::at_step(step, &error))?;
            if requesters.are_gone() {
                return Ok(false);
            }
            self.statuses[index] = match requesters.of(step) {
                Some(owners) => self.step(index, owners).await?,
                None => StepStatus::NotCreated,
            };
        }
        for (path, object) in &self.claimed {
            release(path, object, self.manager).await.map_err(|error| ExecutionError::new(message_of(&error)))?;
        }
        Ok(true)
    }

    /// Applies the object of a step, and returns its state.
    async fn step(&mut self, index: usize, requesters: Vec<Value>) -> Result<StepStatus, ExecutionError> {
        let step = &self.plan.status.plan[index];
        let (before, at_step) = (self.statuses[index], |error: kube::Error| ExecutionError::at_step(step, &error));
        let Some(resource) = resource(&step.resource.group, &step.resource.kind) else { return Ok(before) };
        let actor = if is_managers(step) { self.manager } else { self.installer };
        let path = path_of(resource, &step.resource.version, &self.namespace, &step.resource.name);
        let known = actor.get(&path).await.map_err(at_step)?;
        let mut object = prepared(self.plan, step, resource, &self.objects[index]);
        let is_own_kind = step.resource.group == GROUP;
        if resource.is_namespaced && !is_own_kind {
            self.owners.set(&mut object, &step.resolving, known.as_ref());
        }
        if is_own_kind {
            claim(&mut object, requesters, known.as_ref());
        }
        if resource.kind == CSV {
            keep_finalizer(&mut object, known.as_ref());
        }
        let is_definition = is_definition(resource.group, resource.kind);
        if let Some(old) = known.as_ref().filter(|_| !resource.is_namespaced && !is_definition) {
            let actors = (self.manager, actor);
            match share(self.plan, step, &path, (old, &object), actors, self.cx).await? {
                Shared::AsItIs => return Ok(StepStatus::Present),
                Shared::Applied(shared) => object = shared,
            }
        }
        let applied = actor.apply(&path, &object, false).await.map_err(at_step)?;
        if is_definition {
            let csv = ObjectKey::new(Some(&self.namespace), &step.resolving);
            let recorded = alongside::record(&path, &csv, &[], (known.as_ref(), &applied), actor, self.cx).await;
            recorded.map_err(at_step)?;
        }
        if resource.kind == CSV {
            self.owners.add(&applied);
        }
        if is_own_kind {
            self.claimed.push((path, applied));
        }
        Ok(if known.is_none() || before == StepStatus::Created { StepStatus::Created } else { StepStatus::Present })
    }

    /// Deletes the roles that this plan has created for a ClusterServiceVersion that was deleted in the meantime: its
    /// cleanup may have come before them.
    async fn collect_leftovers(&self) -> Result<(), ExecutionError> {
        let failed = |error: kube::Error| ExecutionError::new(message_of(&error));
        let mut gone: BTreeMap<&str, bool> = BTreeMap::new();
        for (step, status) in self.plan.status.plan.iter().zip(&self.statuses) {
            let is_role = ["ClusterRole", "ClusterRoleBinding"].contains(&step.resource.kind.as_str());
            let (true, StepStatus::Created) = (is_role, status) else { continue };
            let Some(resource) = resource(&step.resource.group, &step.resource.kind) else { continue };
            let csv = step.resolving.as_str();
            if !gone.contains_key(csv) {
                gone.insert(csv, self.is_gone(csv).await.map_err(failed)?);
            }
            if !gone[csv] {
                continue;
            }
            let path = path_of(resource, &step.resource.version, &self.namespace, &step.resource.name);
            let left = self.manager.get(&path).await.map_err(failed)?;
            if let Some(left) = left.filter(|left| is_owned_only_by(left, &self.namespace, csv)) {
                self.manager.delete(&path, &left).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Returns true if the ClusterServiceVersion that this plan has applied does not exist, or is being deleted.
    async fn is_gone(&self, csv: &str) -> kube::Result<bool> {
        let (Some(uid), Some(csvs)) = (self.owners.0.get(csv), resource(GROUP, CSV)) else { return Ok(false) };
        let found = self.manager.get(&path_of(csvs, "v1alpha1", &self.namespace, csv)).await?;
        Ok(found.is_none_or(|found| {
            let metadata = &found["metadata"];
            metadata["uid"] != uid.as_str() || !metadata["deletionTimestamp"].is_null()
        }))
    }
}

/// Sets the finalizer of a new ClusterServiceVersion, so that it is cleaned up also if it is deleted while the manager
/// does not run. An apply without the finalizer would remove it.
fn keep_finalizer(object: &mut Value, known: Option<&Value>) {
    let has_it = |known: &Value| {
        let mut finalizers = known["metadata"]["finalizers"].as_array().into_iter().flatten();
        finalizers.any(|finalizer| finalizer == CSV_CLEANUP)
    };
    if known.is_none_or(has_it) {
        object["metadata"]["finalizers"] = json!([CSV_CLEANUP]);
    }
}

/// The treatment of an object that exists.
#[derive(Debug)]
enum Shared {
    /// An object is applied: that of the plan, or one with the permissions of others as well.
    Applied(Value),
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
        Sharing::Alone => Ok(Shared::Applied(new.clone())),
        Sharing::With { users, object } => {
            // A limited account shares only what it may write.
            if installer.is_limited() {
                installer.apply(path, new, true).await.map_err(at_step)?;
            }
            alongside::record(path, &csv, &users, (Some(old), old), manager, cx).await.map_err(at_step)?;
            Ok(object.map_or(Shared::AsItIs, Shared::Applied))
        }
        // Another plan has created it since the check.
        Sharing::Conflict { user, is_same_package } => Err(conflict(step, &user, is_same_package)),
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
