//! Idempotency keys for calls to external services.

use super::{Context, ReconcileSession};
use crate::cache::Entry;
use crate::error::{Error, Result};
use crate::kind::AnyResource;
use flyball_core::names;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Prefix of the annotations that hold keys.
const ANNOTATION_PREFIX: &str = "key.flyball.dev/";

impl<K: AnyResource> Context<K> {
    /// Returns the idempotency key of a call to an external service, such as `create`: a UUID that is stored on the
    /// object before this returns, and stays the same for all attempts at the call.
    ///
    /// A provider carries out a call with the same key once. So if the operator crashes between the call and the
    /// record of its result, the next call uses the same key, and returns the existing resource instead of a second
    /// one.
    ///
    /// ```
    /// # use flyball::{Action, Context, Reconcile, Result};
    /// # use kube::CustomResource;
    /// # #[derive(CustomResource, serde::Deserialize, serde::Serialize, Clone, Debug, schemars::JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Machine", namespaced)]
    /// # struct MachineSpec { size: u64 }
    /// # struct Provider;
    /// # impl Provider {
    /// #     async fn create(&self, _key: &str, _size: u64) -> std::io::Result<()> { Ok(()) }
    /// #     async fn remove_by_key(&self, _key: &str) -> std::io::Result<()> { Ok(()) }
    /// # }
    /// struct Machines(Provider);
    ///
    /// impl Reconcile for Machines {
    ///     type Resource = Machine;
    ///     const FINALIZER: Option<&'static str> = Some("example.com/machine");
    ///
    ///     async fn reconcile(&self, machine: &Machine, cx: &Context<Machine>) -> Result<Action> {
    ///         let key = cx.idempotency_key("create").await?;
    ///         self.0.create(&key, machine.spec.size).await?;
    ///         Ok(Action::done())
    ///     }
    ///
    ///     async fn finalize(&self, _: &Machine, cx: &Context<Machine>) -> Result<Action> {
    ///         // Without a key, the call was never made.
    ///         if let Some(key) = cx.known_idempotency_key("create").await? {
    ///             self.0.remove_by_key(&key).await?;
    ///         }
    ///         Ok(Action::done())
    ///     }
    /// }
    /// ```
    ///
    /// The key is an annotation of the object, `key.flyball.dev/create`; it costs one read and one write at the first
    /// call. Concurrent replicas get the same key. It has no effect if the provider discards keys before the
    /// operator is back; list the resources of such a provider instead.
    ///
    /// # Errors
    ///
    /// When the reconciler has no [`FINALIZER`](crate::Reconcile::FINALIZER), as the external resource would outlive
    /// the object; when `call` is invalid in the name of an annotation; when the object is deleted; when the API
    /// server returns an error.
    pub async fn idempotency_key(&self, call: &str) -> Result<String> {
        self.session.idempotency_key(call).await
    }

    /// Returns the [idempotency key](Self::idempotency_key) of a call if there is one; if not, the call was never
    /// made.
    ///
    /// # Errors
    ///
    /// As for [`idempotency_key`](Self::idempotency_key).
    pub async fn known_idempotency_key(&self, call: &str) -> Result<Option<String>> {
        self.session.known_idempotency_key(call).await
    }

    /// Discards the [idempotency key](Self::idempotency_key) of a call, after its result was removed, so that the
    /// next call gets another key. A newer key than the [known](Self::known_idempotency_key) one is kept.
    ///
    /// # Errors
    ///
    /// As for [`idempotency_key`](Self::idempotency_key).
    pub async fn forget_idempotency_key(&self, call: &str) -> Result<()> {
        self.session.forget_idempotency_key(call).await
    }
}

impl ReconcileSession {
    fn idempotency_key<'a>(&'a self, call: &'a str) -> BoxFuture<'a, Result<String>> {
        async move {
            if let Some(known) = self.known_idempotency_key(call).await? {
                return Ok(known);
            }
            let annotation = annotation(call)?;
            let not_found =
                || Error::from(format!("{} {} no longer exists", self.primary.kind, self.primary.key)).wait();
            // The cache may be stale, and a second key would create a second resource.
            let entry = self.env.fetch(&self.primary.kind, &self.primary.key).await?.ok_or_else(not_found)?;
            let key = self.env.rng.uuid();
            let change = |entry: &Arc<Entry>| match key_in(entry, &annotation) {
                Some(_) => ControlFlow::Break(Some(entry.clone())),
                None => ControlFlow::Continue(json!({"annotations": {&*annotation: key}})),
            };
            let changed = self.change_metadata(entry, change).await?.ok_or_else(not_found)?;
            self.record_observed_state(self.primary_store()?, &self.primary.key, &changed);
            key_in(&changed, &annotation)
                .ok_or_else(|| format!("the API server dropped annotation {annotation}").into())
        }
        .boxed()
    }

    fn known_idempotency_key<'a>(&'a self, call: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        async move {
            let annotation = annotation(call)?;
            if !self.declared.finalizes {
                let why = "without a FINALIZER, external resources would outlive the object: declare one";
                return Err(Error::from(why).terminal());
            }
            let known = self.latest(self.primary_store()?, &self.primary.key).await?;
            let same = known.filter(|known| known.uid() == self.primary.entry.uid());
            Ok(key_in(&same.unwrap_or_else(|| self.primary.entry.clone()), &annotation))
        }
        .boxed()
    }

    fn forget_idempotency_key<'a>(&'a self, call: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            let annotation = annotation(call)?;
            let Some(known) = self.known_idempotency_key(call).await? else { return Ok(()) };
            let Some(entry) = self.env.fetch(&self.primary.kind, &self.primary.key).await? else { return Ok(()) };
            // The cache may be stale: another key belongs to a later call, whose result exists.
            let change = |entry: &Arc<Entry>| match key_in(entry, &annotation) {
                Some(key) if key == known => ControlFlow::Continue(json!({"annotations": {&*annotation: null}})),
                _ => ControlFlow::Break(Some(entry.clone())),
            };
            self.change_metadata(entry, change).await.map(drop)
        }
        .boxed()
    }
}

fn annotation(call: &str) -> Result<String> {
    let annotation = format!("{ANNOTATION_PREFIX}{call}");
    match names::qualified_name(&annotation).first() {
        None => Ok(annotation),
        Some(why) => Err(Error::from(format!("invalid name {call:?} of a call: {why}")).terminal()),
    }
}

fn key_in(entry: &Entry, annotation: &str) -> Option<String> {
    let annotations: Value = serde_json::from_str(entry.annotations()).ok()?;
    annotations[annotation].as_str().map(str::to_owned)
}
