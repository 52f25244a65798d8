//! The status of the object being reconciled.

use super::{condition, unchanged::without_nulls};
use crate::context::{Adapted, Context, ReconcileSession, StatusWriter};
use crate::error::{Error, Result};
use crate::kind::AnyResource;
use flyball_core::time::rfc3339;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};

impl<K: AnyResource> Context<K> {
    /// Sets the status of the object being reconciled, by server-side apply.
    ///
    /// Absent and `null` fields are left to others, or removed if they were set here before. Every
    /// [`Condition`](crate::Condition) in `conditions` is completed: `lastTransitionTime` stays unless its status
    /// changed, `observedGeneration` is the generation of the object that the reconcile got, unless they are given.
    ///
    /// Nothing is sent if the status is unchanged.
    ///
    /// The API server rejects fields that the schema does not declare, unless the controller
    /// [adapts](crate::Controller::adapts_status) the status.
    ///
    /// Of several controllers of one kind in an operator, the one that was declared first applies under the operator's
    /// field manager, and each further one under `OPERATOR/CONTROLLER`. So each sets fields of its own, among them
    /// conditions, if their list is [merged by type](crate::Condition).
    ///
    /// # Errors
    ///
    /// When the API server refuses; with a conflict if another object has taken the name in the meantime; when another
    /// controller of the operator sets the same field to something else.
    #[doc(alias = "patch_status")]
    #[doc(alias = "update_status")]
    #[doc(alias = "StatusWriter")]
    pub async fn set_status(&self, status: &impl Serialize) -> Result<()> {
        self.session.set_status(serde_json::to_value(status)?).await
    }

    /// Returns a status without the fields that the schema in the cluster does not declare, if the controller
    /// [adapts](crate::Controller::adapts_status) it: for a status that is written through the
    /// [client](Context::client). A list of conditions contains only those of `status`.
    ///
    /// # Errors
    ///
    /// When the status cannot be serialized.
    pub async fn adapted_status(&self, status: &impl Serialize) -> Result<Value> {
        let mut status = serde_json::to_value(status)?;
        let Some(schema) = &self.session.declared.status_schema else { return Ok(status) };
        let (env, kind) = (&self.session.env, &self.session.primary.kind);
        match schema.adapt(env, kind, &mut status, &Value::Null).await {
            Adapted::Nothing => Ok(json!({})),
            Adapted::Status | Adapted::WithForeignConditions => Ok(status),
        }
    }
}

impl ReconcileSession {
    pub(crate) fn set_status(&self, mut status: Value) -> BoxFuture<'_, Result<()>> {
        async move {
            let primary = &self.primary;
            without_nulls(&mut status);
            if !status.is_object() {
                return Err(Error::from(format!(
                    "the status of {} {} is not a JSON object",
                    primary.kind, primary.key
                ))
                .terminal());
            }
            let shared = self.declared.status.as_ref().filter(|writer| writer.record_desired(&primary.key, &status));
            let Some(schema) = &self.declared.status_schema else { return self.apply_status(status, shared).await };
            match self.apply_status(status.clone(), shared).await {
                // The CRD may have changed since its schema was read.
                Err(error) if is_misfit(&error) && schema.refresh(&self.env, &primary.kind).await => {
                    self.apply_status(status, shared).await
                }
                applied => applied,
            }
        }
        .boxed()
    }

    /// Applies a status; `shared` is its writer if several controllers share the kind.
    async fn apply_status(&self, mut status: Value, shared: Option<&StatusWriter>) -> Result<()> {
        let primary = &self.primary;
        let store = self.primary_store()?;
        let known = self.latest_to_apply(store, &primary.key).await?;
        let has_conditions = status.get("conditions").is_some();
        let before = known.entry.as_ref().filter(|_| has_conditions);
        let before = before.map(|known| known.decode_like(&json!({"status": {"conditions": null}})));
        let before = before.transpose()?.map(|mut before| before["status"].take());
        if has_conditions {
            condition::complete(&mut status, before.as_ref(), primary.entry.generation(), &rfc3339(self.now()));
        }
        let adapted = match &self.declared.status_schema {
            None => Adapted::Status,
            Some(schema) => {
                let before = before.as_ref().unwrap_or(&Value::Null);
                schema.adapt(&self.env, &primary.kind, &mut status, before).await
            }
        };
        if adapted == Adapted::Nothing {
            tracing::debug!("the CRD declares no field of the status");
            return Ok(());
        }
        let gvk = primary.kind.gvk();
        let mut object = json!({
            "apiVersion": gvk.api_version(),
            "kind": *gvk.kind,
            // The UID prevents writing the status of a deleted object to a new one with the same name.
            "metadata": {"name": primary.key.name(), "uid": primary.entry.uid()},
            "status": status,
        });
        if let Some(namespace) = primary.key.namespace() {
            object["metadata"]["namespace"] = namespace.into();
        }
        if let (Adapted::WithForeignConditions, Some(known)) = (adapted, &known.entry) {
            // Conditions of others that have changed since must not be taken back.
            object["metadata"]["resourceVersion"] = known.resource_version().to_string().into();
        }
        if let (Some(writer), Some(known)) = (shared, &known.entry) {
            writer.check(known, &object)?;
        }
        self.apply_fields(store, &primary.key, "status", &object, known).await?;
        Ok(())
    }
}

/// Returns true if the API server may have rejected a status because of the schema. It reports undeclared fields as an
/// internal error.
fn is_misfit(error: &Error) -> bool {
    error.status().is_some_and(|status| matches!(status.code, 400 | 422 | 500))
}
