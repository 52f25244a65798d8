//! All children of an object, declared at once in stages.

use super::child::Foreign;
use super::{Condition, readiness};
use crate::context::{Context, ReconcileSession};
use crate::error::{Error, Result};
use crate::kind::{AnyResource, Kind, Type, type_of};
use flyball_core::ObjectKey;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The desired children of an object, in stages.
///
/// A stage is applied once the stages that it waits for are ready: by default the one before it.
///
/// ```
/// use flyball::{Action, Children, Context, Result};
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Service}};
///
/// // For a controller that owns these three kinds.
/// async fn site(
///     cx: &Context<ConfigMap>,
///     [database, backend, frontend]: [&Deployment; 3],
///     port: &Service,
/// ) -> Result<Action> {
///     let children = Children::new()
///         .stage("database").child(database)
///         .stage("backend").child(backend)
///         .stage("frontend").child(frontend).child(port);
///     let rollout = cx.apply_all(&children).await?;
///     cx.set_status(&serde_json::json!({"conditions": [rollout.condition("Ready")]})).await?;
///     Ok(Action::done())
/// }
/// ```
#[doc(alias = "ApplySet")]
#[doc(alias = "prune")]
#[derive(Debug, Default)]
#[must_use = "children are applied by Context::apply_all"]
pub struct Children {
    stages: Vec<Stage>,
    prune_last: bool,
}

#[derive(Debug, Default)]
struct Stage {
    name: String,
    after: Vec<String>,
    children: Vec<Child>,
}

#[derive(Debug)]
struct Child {
    ty: Type,
    /// The object as JSON, or the reason why it cannot be encoded.
    object: Result<Value, String>,
    owned: bool,
    foreign: Foreign,
}

/// A child with its kind, its key, its JSON, and its treatment if it exists already.
struct DeclaredChild<'a> {
    kind: &'a Kind,
    key: ObjectKey,
    object: Value,
    foreign: &'a Foreign,
}

impl Children {
    /// Returns a set without children.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a stage for the children that follow. It waits until the stage before it is ready.
    pub fn stage(mut self, name: impl Into<String>) -> Self {
        let after = self.stages.last().map(|stage| stage.name.clone()).into_iter().collect();
        self.stages.push(Stage { name: name.into(), after, children: Vec::new() });
        self
    }

    /// Sets the earlier stages that the stage waits for, instead of the one before it; none if empty.
    pub fn after<S: Into<String>>(mut self, stages: impl IntoIterator<Item = S>) -> Self {
        self.last().after = stages.into_iter().map(Into::into).collect();
        self
    }

    /// Deletes undeclared children only once all declared ones are ready, so that a child stays until its replacement
    /// is ready. Otherwise they are deleted as soon as all children that may be applied are applied, ready or not.
    pub fn prune_last(mut self) -> Self {
        self.prune_last = true;
        self
    }

    /// Adds a child, which is applied as by [`Context::apply`].
    pub fn child<T: AnyResource + Serialize>(self, child: &T) -> Self {
        self.declare(child, true)
    }

    /// Adds an object without an owner reference, which is applied as by [`Context::apply_unowned`].
    /// [`Context::apply_all`] never deletes it.
    pub fn unowned<T: AnyResource + Serialize>(self, object: &T) -> Self {
        self.declare(object, false)
    }

    /// Permits the child that was added last to exist already, created by another client and without a controller. An
    /// object with another controller is rejected nevertheless.
    #[doc(alias = "takeOwnership")]
    pub fn adopting(mut self) -> Self {
        if let Some(child) = self.last().children.last_mut() {
            child.foreign = Foreign::Adopted;
        }
        self
    }

    /// Sets the error for the child that was added last if it exists already, created by another client and without a
    /// controller.
    pub fn rejecting_with(mut self, error: impl Into<String>) -> Self {
        if let Some(child) = self.last().children.last_mut() {
            child.foreign = Foreign::RejectedWith(error.into());
        }
        self
    }

    fn declare<T: AnyResource + Serialize>(mut self, child: &T, owned: bool) -> Self {
        let object = serde_json::to_value(child).map_err(|error| error.to_string());
        self.last().children.push(Child { ty: type_of(child), object, owned, foreign: Foreign::Rejected });
        self
    }

    /// The current stage; children before the first stage are in one without a name.
    fn last(&mut self) -> &mut Stage {
        if self.stages.is_empty() {
            self.stages.push(Stage::default());
        }
        self.stages.last_mut().expect("a stage was added")
    }
}

/// Progress of the children of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    waiting: Vec<String>,
    ready: BTreeSet<String>,
}

impl Rollout {
    /// Returns true if all children exist and are ready, and no undeclared ones are left.
    pub fn is_ready(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if all children of a stage are ready.
    pub fn is_stage_ready(&self, stage: &str) -> bool {
        self.ready.contains(stage)
    }

    /// Returns the reasons to wait, one sentence each; empty if all children are ready.
    pub fn waiting(&self) -> &[String] {
        &self.waiting
    }

    /// Summarizes the rollout as a condition.
    pub fn condition(&self, kind: &str) -> Condition {
        match self.waiting.first() {
            None => Condition::new(kind, true, "Ready"),
            Some(_) => Condition::new(kind, false, "Progressing").message(self.waiting.join("; ")),
        }
    }
}

impl<K: AnyResource> Context<K> {
    /// Applies the declared children of the object, as far as their stages permit, and deletes undeclared ones.
    ///
    /// Stages are applied in order, each once all children of the stages that it waits for are ready: workloads when
    /// their newest pods are available, pods and other objects by their condition `Ready`, jobs when they are
    /// complete, claims when they are bound. A waiting stage is not changed. The owner is reconciled again when a
    /// child changes, so return [`Action::done`](crate::Action::done).
    ///
    /// Then children that were applied before and are not declared any more are deleted, whether or not the others are
    /// ready (but see [`Children::prune_last`]): any child of the kinds that the controller
    /// [owns](crate::Controller::owns) that was applied, not [created](Self::create). So use either this method or
    /// [`apply`](Self::apply) for the children of an object, not both.
    ///
    /// # Errors
    ///
    /// Those of [`apply`](Self::apply) and [`delete`](Self::delete); when a stage waits for one that does not come
    /// before it; when a child is declared twice. Earlier changes are kept.
    pub async fn apply_all(&self, children: &Children) -> Result<Rollout> {
        self.session.apply_all(children).await
    }
}

impl ReconcileSession {
    fn apply_all<'a>(&'a self, children: &'a Children) -> BoxFuture<'a, Result<Rollout>> {
        self.apply_stages(children).boxed()
    }

    async fn apply_stages(&self, children: &Children) -> Result<Rollout> {
        let mut rollout = Rollout { waiting: Vec::new(), ready: BTreeSet::new() };
        let declared = self.declared(children)?;
        for (stage, declared) in children.stages.iter().zip(&declared) {
            let missing: Vec<&str> =
                stage.after.iter().map(String::as_str).filter(|name| !rollout.ready.contains(*name)).collect();
            if !missing.is_empty() {
                rollout.waiting.push(format!("{} waits for {}", stage.name, missing.join(", ")));
                continue;
            }
            let before = rollout.waiting.len();
            for DeclaredChild { kind, key, object, foreign } in declared {
                let store = self.env.caches.store_of(kind, key.namespace())?;
                let applied = self.apply_child(store, key, object, foreign).await;
                let entry = applied.map_err(|error| named(error, kind, key))?;
                if let Some(why) = readiness::waits_for(&kind.gvk().group, kind.name(), &entry.decode()?) {
                    rollout.waiting.push(format!("{} {}: {why}", kind.name(), key.name()));
                }
            }
            if rollout.waiting.len() == before {
                rollout.ready.insert(stage.name.clone());
            }
        }
        if rollout.is_ready() || !children.prune_last {
            rollout.waiting.extend(self.prune(&declared).await?);
        }
        Ok(rollout)
    }

    /// Resolves the store of each child and encodes it, before anything is written.
    fn declared<'a>(&'a self, children: &'a Children) -> Result<Vec<Vec<DeclaredChild<'a>>>> {
        let reject = |text: String| Err(Error::from(text).terminal());
        let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut declared = Vec::new();
        for stage in &children.stages {
            if let Some(unknown) = stage.after.iter().find(|name| !names.contains(*name)) {
                return reject(format!("stage {:?} waits for {unknown:?}, which is not an earlier stage", stage.name));
            }
            if !names.insert(&stage.name) {
                return reject(format!("duplicate stage {:?}", stage.name));
            }
            let mut objects = Vec::new();
            for child in &stage.children {
                let kind = self.owned_kind(&child.ty)?;
                let object = match &child.object {
                    Ok(object) => object.clone(),
                    Err(why) => return reject(format!("cannot encode a child of kind {kind}: {why}")),
                };
                let (key, object) = self.named_object(kind, object, child.owned)?;
                if !seen.insert((kind, key.clone())) {
                    return reject(format!("{kind} {key} is declared twice"));
                }
                objects.push(DeclaredChild { kind, key, object, foreign: &child.foreign });
            }
            declared.push(objects);
        }
        Ok(declared)
    }

    /// Deletes objects that were applied for the object and are no longer declared; returns those that still exist.
    async fn prune(&self, declared: &[Vec<DeclaredChild<'_>>]) -> Result<Vec<String>> {
        let mut desired: BTreeMap<&Kind, BTreeSet<&ObjectKey>> = BTreeMap::new();
        for DeclaredChild { kind, key, .. } in declared.iter().flatten() {
            desired.entry(kind).or_default().insert(key);
        }
        let mut surplus = self.applied_children().await?;
        surplus.retain(|(store, key, _)| desired.get(store.kind()).is_none_or(|desired| !desired.contains(key)));
        let mut remaining = Vec::new();
        for (store, key, entry) in surplus {
            if !entry.is_deleting() {
                self.delete_child(store, &key, entry.uid().into_owned()).await?;
            }
            remaining.push(format!("{} {} is being deleted", store.kind().name(), key.name()));
        }
        Ok(remaining)
    }
}

/// Adds the name of a child to the error of the API server about its unknown kind.
fn named(error: Error, kind: &Kind, key: &ObjectKey) -> Error {
    let is_nameless = |details: &kube::core::response::StatusDetails| details.name.is_empty();
    match error.status() {
        Some(status) if status.code == 404 && status.details.as_ref().is_none_or(is_nameless) => {
            error.context(format_args!("{kind} {key} (is its CustomResourceDefinition installed?)"))
        }
        _ => error,
    }
}
