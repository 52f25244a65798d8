//! Writes of a reconcile: children and status.
//!
//! All writes are declarative: [`Context::apply`](crate::Context::apply) and
//! [`Context::set_status`](crate::Context::set_status) take the desired state and send it by server-side apply under
//! the operator's name, which leaves the fields of others alone and removes undeclared ones. Nothing is sent if the
//! cache shows that nothing would change. See <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.
//!
//! Every request is recorded for the barrier by the session of the reconcile.

mod child;
mod children;
mod condition;
mod readiness;
mod replace;
mod status;
mod unchanged;

pub use children::{Children, Rollout};
pub use condition::Condition;
pub(crate) use condition::complete as complete_conditions;

use crate::cache::{Entry, Store};
use crate::error::Result;

use crate::context::{ApplyOutcome, LastKnown, ReconcileSession};
use crate::ledger::Verb;
use flyball_core::ObjectKey;
use http::{HeaderValue, Request, header::CONTENT_TYPE};
use serde_json::Value;
use std::sync::Arc;
use tracing::Instrument;

impl ReconcileSession {
    /// Applies an object, or a subresource of it, unless that would change nothing; returns the resulting object.
    ///
    /// `known` is its [last known state](Self::latest_to_apply).
    async fn apply_fields(
        &self,
        store: &Store,
        key: &ObjectKey,
        subresource: &'static str,
        object: &Value,
        known: LastKnown,
    ) -> Result<Arc<Entry>> {
        let span = tracing::debug_span!("apply", resource = %store.kind(), object = %key, subresource);
        self.apply_changes(store, key, subresource, object, known).instrument(span).await
    }

    async fn apply_changes(
        &self,
        store: &Store,
        key: &ObjectKey,
        subresource: &'static str,
        object: &Value,
        LastKnown { entry: known, certain }: LastKnown,
    ) -> Result<Arc<Entry>> {
        if let Some(known) = known.as_ref().filter(|_| certain)
            && self.would_not_change(store, key, subresource, object, known)
        {
            self.env.applies.count(store.kind().name(), ApplyOutcome::Skipped);
            self.count_skipped();
            return Ok(known.clone());
        }
        let slash = if subresource.is_empty() { "" } else { "/" };
        let mut path = store.kind().object_path(key)?;
        // Field validation of an apply only detects duplicate names, and the object has none; it would make
        // kube-apiserver parse the object a second time.
        let writer = self.declared.status.as_ref().filter(|_| subresource == "status");
        let manager = writer.map_or(&*self.env.manager, |writer| &writer.encoded);
        let query = ["?fieldManager=", manager, "&force=true&fieldValidation=Ignore"];
        [slash, subresource].into_iter().chain(query).for_each(|part| path.push_str(part));
        let request = Request::patch(path)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/apply-patch+yaml"))
            .body(serde_json::to_vec(object)?)
            .map_err(kube::Error::HttpError)?;
        let response = self.write(store, key, (Verb::Apply, subresource), known.as_ref(), request).await;
        let before = known.map_or(0, |known| known.resource_version());
        let outcome = match &response {
            Ok(entry) if entry.resource_version() == before => ApplyOutcome::Unchanged,
            Ok(_) => ApplyOutcome::Changed,
            Err(_) => ApplyOutcome::Failed,
        };
        self.env.applies.count(store.kind().name(), outcome);
        let entry = response?;
        // An identical stored object will be recognized as unchanged; an apply without effect was not recognized.
        let is_seen = outcome == ApplyOutcome::Changed && unchanged::is_stored_identically(entry.raw(), object);
        if !is_seen && !self.would_not_change(store, key, subresource, object, &entry) {
            self.env.normalizations().record(store.id(), key, subresource, object, entry.raw())?;
        }
        Ok(entry)
    }

    fn would_not_change(
        &self,
        store: &Store,
        key: &ObjectKey,
        subresource: &'static str,
        object: &Value,
        known: &Entry,
    ) -> bool {
        let writer = self.declared.status.as_ref().filter(|_| subresource == "status");
        let manager = writer.map_or(&*self.env.manager, |writer| &writer.manager);
        let Some(owned) = known.applied_fields(subresource, manager) else { return false };
        unchanged::is_unchanged(owned, object, known.raw())
            || self.env.normalizations().contains(store.id(), key, subresource, object, known.raw())
    }
}
