//! All that an object owns, declared at once: what comes first, what waits for it, and what goes when it is declared no more.

use super::{Condition, readiness};
use crate::context::{Context, Pass};
use crate::error::{Error, Result};
use crate::kind::{AnyResource, Kind, Type, dealt};
use flyball_core::ObjectKey;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The children that an object is to have, in stages.
///
/// A stage is applied once the stages that it waits for are ready: by default the one before it.
///
/// ```
/// use flyball::{Action, Children, Context, Result};
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Service}};
///
/// // For a controller that owns these three kinds.
/// async fn site(cx: &Context<ConfigMap>, [database, backend, frontend]: [&Deployment; 3], port: &Service) -> Result<Action> {
///     let children = Children::new()
///         .stage("database").child(database)
///         .stage("backend").child(backend)
///         .stage("frontend").child(frontend).child(port);
///     let rollout = cx.apply_all(&children).await?;
///     cx.set_status(&serde_json::json!({"conditions": [rollout.condition("Ready")]})).await?;
///     Ok(Action::done())
/// }
/// ```
#[derive(Debug, Default)]
#[must_use = "children are made by Context::apply_all"]
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
    /// What it is as JSON, or why it is none.
    object: Result<Value, String>,
    owned: bool,
}

/// The kind of a child, where it is, and its JSON.
type Declared<'a> = (&'a Kind, ObjectKey, Value);

impl Children {
    /// Declares no children.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a stage, to which the children that follow belong. It waits for the stage before it.
    pub fn stage(mut self, name: impl Into<String>) -> Self {
        let after = self.stages.last().map(|stage| stage.name.clone()).into_iter().collect();
        self.stages.push(Stage { name: name.into(), after, children: Vec::new() });
        self
    }

    /// Lets the stage wait for these instead, which come before it; for none, if none is named.
    pub fn after<S: Into<String>>(mut self, stages: impl IntoIterator<Item = S>) -> Self {
        self.last().after = stages.into_iter().map(Into::into).collect();
        self
    }

    /// Deletes what is declared no more only once all that is declared is ready, so that what a child replaces stays
    /// until then. Otherwise it is deleted as soon as what may be applied is applied, ready or not.
    pub fn prune_last(mut self) -> Self {
        self.prune_last = true;
        self
    }

    /// Declares a child, as [`Context::apply`] takes it.
    pub fn child<T: AnyResource + Serialize>(self, child: &T) -> Self {
        self.declare(child, true)
    }

    /// Declares an object that cannot have the one being reconciled as its owner, as [`Context::apply_unowned`] takes it. It is
    /// never deleted by [`Context::apply_all`].
    pub fn unowned<T: AnyResource + Serialize>(self, object: &T) -> Self {
        self.declare(object, false)
    }

    fn declare<T: AnyResource + Serialize>(mut self, child: &T, owned: bool) -> Self {
        let object = serde_json::to_value(child).map_err(|error| error.to_string());
        self.last().children.push(Child { ty: dealt(child), object, owned });
        self
    }

    /// The stage that is being declared; children that come before the first stage are in one without a name.
    fn last(&mut self) -> &mut Stage {
        if self.stages.is_empty() {
            self.stages.push(Stage::default());
        }
        self.stages.last_mut().expect("there is one")
    }
}

/// How far an object's children are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    waiting: Vec<String>,
    ready: BTreeSet<String>,
}

impl Rollout {
    /// Tells whether all children are there and ready, and no others are left.
    pub fn is_ready(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Tells whether all children of a stage are ready.
    pub fn is_stage_ready(&self, stage: &str) -> bool {
        self.ready.contains(stage)
    }

    /// Returns what is waited for, in sentences for people; empty if it is nothing.
    pub fn waiting(&self) -> &[String] {
        &self.waiting
    }

    /// Rolls all that up into a condition.
    pub fn condition(&self, kind: &str) -> Condition {
        match self.waiting.first() {
            None => Condition::new(kind, true, "Ready"),
            Some(_) => Condition::new(kind, false, "Progressing").message(self.waiting.join("; ")),
        }
    }
}

impl<K: AnyResource> Context<K> {
    /// Makes the children of the object be what is declared, as far as that may be done now.
    ///
    /// Stages are applied in their order, each once all children of the stages that it waits for are ready, as their
    /// kinds show it: workloads when their newest pods are available, pods and other objects when their condition
    /// `Ready` says so, jobs when they are complete, claims when they are bound. A stage that waits is not touched at
    /// all. The owner is reconciled again when a child changes, so nothing has to be asked for: return
    /// [`Action::done`](crate::Action::done).
    ///
    /// After that, what was applied for this object before and is declared no more is deleted, whether or not the
    /// others are ready (but see [`Children::prune_last`]): any child of the kinds that the controller
    /// [owns](crate::Controller::owns) and that was applied, not
    /// [created](Self::create). So children are kept either by this method or by [`apply`](Self::apply), not by both.
    ///
    /// # Errors
    ///
    /// Those of [`apply`](Self::apply) and [`delete`](Self::delete); when a stage waits for one that does not come before it; when
    /// a child is declared twice. What was done until then is done.
    pub async fn apply_all(&self, children: &Children) -> Result<Rollout> {
        self.pass.apply_all(children).await
    }
}

impl Pass {
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
            for (kind, key, object) in declared {
                let store = self.env.caches.store_of(kind, key.namespace())?;
                let entry = self.apply_child(store, key, object).await.map_err(|error| named(error, kind, key))?;
                if let Some(why) = readiness::waits_for(kind.name(), &entry.decode()?) {
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

    /// Says where each child is, and makes its JSON, before anything is written.
    fn declared(&self, children: &Children) -> Result<Vec<Vec<Declared<'_>>>> {
        let refuse = |text: String| Err(Error::from(text).terminal());
        let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut declared = Vec::new();
        for stage in &children.stages {
            if let Some(unknown) = stage.after.iter().find(|name| !names.contains(*name)) {
                return refuse(format!("stage {:?} waits for {unknown:?}, which no stage before it is", stage.name));
            }
            if !names.insert(&stage.name) {
                return refuse(format!("there are two stages {:?}", stage.name));
            }
            let mut objects = Vec::new();
            for child in &stage.children {
                let kind = self.owned_kind(&child.ty)?;
                let object = match &child.object {
                    Ok(object) => object.clone(),
                    Err(why) => return refuse(format!("a child of kind {kind} is no JSON: {why}")),
                };
                let (key, object) = self.named_object(kind, object, child.owned)?;
                if !seen.insert((kind, key.clone())) {
                    return refuse(format!("{kind} {key} is declared twice"));
                }
                objects.push((kind, key, object));
            }
            declared.push(objects);
        }
        Ok(declared)
    }

    /// Deletes what was applied for the object and is declared no more; says what of it is still there.
    async fn prune(&self, declared: &[Vec<Declared<'_>>]) -> Result<Vec<String>> {
        let mut kept: BTreeMap<&Kind, BTreeSet<&ObjectKey>> = BTreeMap::new();
        for (kind, key, _) in declared.iter().flatten() {
            kept.entry(kind).or_default().insert(key);
        }
        let mut surplus = self.applied_children().await?;
        surplus.retain(|(store, key, _)| kept.get(store.kind()).is_none_or(|kept| !kept.contains(key)));
        let mut left = Vec::new();
        for (store, key, entry) in surplus {
            if !entry.is_deleting() {
                self.delete_child(store, &key, entry.uid().into_owned()).await?;
            }
            left.push(format!("{} {} is being deleted", store.kind().name(), key.name()));
        }
        Ok(left)
    }
}

/// Names a child of a kind that the API server does not know, which it does not do itself.
fn named(error: Error, kind: &Kind, key: &ObjectKey) -> Error {
    let is_nameless = |details: &kube::core::response::StatusDetails| details.name.is_empty();
    match error.status() {
        Some(status) if status.code == 404 && status.details.as_ref().is_none_or(is_nameless) => {
            error.context(format_args!("{kind} {key} (is its definition installed?)"))
        }
        _ => error,
    }
}
