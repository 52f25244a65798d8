//! The execution of a plan.

use super::actor::{Actor, message_of, path_of};
use super::alongside::{self, Users};
use super::error::ExecutionError;
use super::members::Members;
use super::ownership::{Line, differs, planned};
use super::prepare::{is_managers, prepared};
use super::requesters::{Requesters, claim, release};
use super::resources::{CSV, is_definition, resource};
use super::sharing::{Sharing, check_account, conflict, sharing};
use crate::api::labels::CSV_CLEANUP;
use crate::api::{ClusterServiceVersion, GROUP, InstallPlan, Step, StepStatus};
use flyball::{Context, ObjectKey};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Applies all steps, and returns their states; `None` if nobody requests them any more.
pub(super) async fn execute(
    (plan, members): (&InstallPlan, &Members),
    objects: Vec<Value>,
    manager: &Actor<'_>,
    installer: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> Result<Option<Vec<StepStatus>>, ExecutionError> {
    let namespace = plan.namespace().unwrap_or_default();
    let statuses: Vec<StepStatus> = plan.status.plan.iter().map(|step| step.status).collect();
    let owners = Owners::read(&namespace, cx).await.map_err(|error| ExecutionError::of(&error, &statuses))?;
    let mut execution =
        Execution { plan, members, objects, manager, installer, namespace, owners, statuses, claimed: Vec::new(), cx };
    match execution.steps().await {
        Ok(is_requested) => Ok(is_requested.then_some(execution.statuses)),
        Err(error) => Err(ExecutionError { statuses: execution.statuses, ..error }),
    }
}

/// An attempt to execute a plan.
struct Execution<'e> {
    plan: &'e InstallPlan,
    members: &'e Members,
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
        let mut requesters = Requesters::read(self.plan, self.members, self.manager, self.cx).await?;
        for index in order {
            let owners = requesters.confirm(&steps[index], self.manager).await?;
            if requesters.are_gone() {
                return Ok(false);
            }
            self.statuses[index] = match owners {
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
        let mut object = prepared((self.plan, self.members), step, resource, &self.objects[index]);
        let is_own_kind = step.resource.group == GROUP;
        if resource.is_namespaced && !is_own_kind {
            self.owners.set(&mut object, &step.resolving, known.as_ref());
        }
        if is_own_kind {
            claim(&mut object, requesters, known.as_ref());
            // An object that was deleted in the meantime is not created again without its requesters: the API server
            // rejects the UID, and the plan is executed again.
            if let Some(known) = &known {
                object["metadata"]["uid"] = known["metadata"]["uid"].clone();
            }
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
            let recorded =
                alongside::record(&path, &csv, &Users::default(), (known.as_ref(), &applied), actor, self.cx).await;
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
    let namespace = csv.namespace().unwrap_or_default();
    match sharing(&others, (namespace, &planned), path, (old, new), manager).await.map_err(at_step)? {
        Sharing::Alone => Ok(Shared::Applied(new.clone())),
        Sharing::With { users, object, needs } => {
            // A limited account shares only what it may write.
            check_account(step, path, object.as_ref().unwrap_or(new), &users, installer).await?;
            let users = Users { others: &users, needs, stay_while_replaced: true };
            let current = alongside::record(path, &csv, &users, (Some(old), old), manager, cx).await;
            let current = current.map_err(at_step)?;
            // Another installation may have changed it in the meantime, or left it with what only that one needed.
            if differs(old, &current) {
                let (kind, name) = (&step.resource.kind, &step.resource.name);
                return Err(ExecutionError::new(format!("{kind} {name} is being changed by another installation")));
            }
            let Some(mut object) = object else { return Ok(Shared::AsItIs) };
            object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            Ok(Shared::Applied(object))
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
