//! Events and conditions that report why a deleted object still exists.

use crate::apply::{Condition, complete_conditions};
use crate::cache::Entry;
use crate::context::ReconcileSession;
use crate::error::chain;
use crate::events::Event;
use crate::ledger::Verb;
use flyball_core::time::rfc3339;
use http::{Request, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tower::BoxError;

/// Type of the condition about the cleanup of a deleted object.
const CLEANED_UP: &str = "CleanedUp";
/// Length limit of a failure message, in characters.
const MAX_MESSAGE_CHARS: usize = 1024;

impl ReconcileSession {
    /// Reports a failed cleanup by an event, and by a condition if the kind has a list of conditions merged by type.
    pub(super) async fn report_blocked_deletion(&self, why: &str) {
        let why: String = why.chars().take(MAX_MESSAGE_CHARS).collect();
        self.event(Event::warning("CleanupFailed", &why).action("Finalize"));
        self.show(Condition::new(CLEANED_UP, false, "CleanupFailed").message(why)).await;
    }

    /// Withdraws the report on an object that other finalizers keep.
    pub(super) async fn withdraw_blocked_deletion(&self, entry: &Entry) {
        let failed = condition_of(entry).is_some_and(|known| known["status"] == "False");
        if failed && !entry.finalizers().is_empty() {
            self.show(Condition::new(CLEANED_UP, true, "CleanedUp")).await;
        }
    }

    async fn show(&self, condition: Condition) {
        if let Err(error) = self.write_condition(condition).await {
            // Errors are ignored, since events and conditions are only informational.
            tracing::warn!(
                error = chain(&*error),
                "cannot write the condition {CLEANED_UP}: the list status.conditions of the kind needs \
                 x-kubernetes-list-type: map with the key type"
            );
        }
    }

    /// Applies the condition under its own field manager, so that conditions of the reconciler stay; never with
    /// force.
    async fn write_condition(&self, condition: Condition) -> Result<(), BoxError> {
        let primary = &self.primary;
        let store = self.primary_store().map_err(|error| error.to_string())?;
        let known = self.latest(store, &primary.key).await?.unwrap_or_else(|| primary.entry.clone());
        let before = condition_of(&known);
        let same = |before: &Value| {
            before["status"] == condition.status
                && before["reason"] == condition.reason
                && before["message"] == condition.message
        };
        if before.as_ref().is_some_and(same) {
            return Ok(());
        }
        let mut status = json!({"conditions": [condition]});
        let before = json!({"conditions": before.as_slice()});
        complete_conditions(&mut status, Some(&before), primary.entry.generation(), &rfc3339(self.now()));
        let gvk = primary.kind.gvk();
        let object = json!({
            "apiVersion": gvk.api_version(),
            "kind": *gvk.kind,
            "metadata": {"name": primary.key.name(), "namespace": primary.key.namespace(), "uid": primary.entry.uid()},
            "status": status,
        });
        let path = primary.kind.object_path(&primary.key)?;
        let request = Request::patch(format!("{path}/status?fieldManager={}-cleanup", self.env.manager))
            .header(CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())?;
        self.write(store, &primary.key, (Verb::Apply, "status"), Some(&known), request).await?;
        Ok(())
    }
}

fn condition_of(entry: &Entry) -> Option<Value> {
    let object: Value = entry.decode().ok()?;
    object["status"]["conditions"].as_array()?.iter().find(|known| known["type"] == CLEANED_UP).cloned()
}
