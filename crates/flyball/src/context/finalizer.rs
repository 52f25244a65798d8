//! Changes of an object's metadata: finalizers and annotations of the runtime.

use super::ReconcileSession;
use crate::cache::Entry;
use crate::error::Result;
use crate::ledger::Verb;
use http::{Request, header::CONTENT_TYPE};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Limit of attempts at a change of the metadata before the reconcile fails.
const MAX_ATTEMPTS: usize = 5;

impl ReconcileSession {
    /// Adds or removes this finalizer, and returns the resulting object; `None` if it was deleted or recreated.
    ///
    /// The list is replaced as a whole, under the condition that the object has not changed since it was read: so
    /// concurrent changes of other finalizers are never lost.
    pub(crate) async fn set_finalizer(&self, finalizer: &str, present: bool) -> Result<Option<Arc<Entry>>> {
        let known = self.latest(self.primary_store()?, &self.primary.key).await?;
        let entry = known.unwrap_or_else(|| self.primary.entry.clone());
        let change = |entry: &Arc<Entry>| {
            let mut finalizers = entry.finalizers();
            if present && entry.is_deleting() {
                return ControlFlow::Break(None);
            }
            if finalizers.iter().any(|f| f == finalizer) == present {
                return ControlFlow::Break(Some(entry.clone()));
            }
            match present {
                true => finalizers.push(finalizer.to_owned()),
                false => finalizers.retain(|f| f != finalizer),
            }
            ControlFlow::Continue(json!({"finalizers": finalizers}))
        };
        self.change_metadata(entry, change).await
    }

    /// Changes the metadata of the object with `change`, which is called again after a conflict. Returns the
    /// resulting object, `None` if it was deleted or recreated.
    pub(crate) async fn change_metadata(
        &self,
        mut entry: Arc<Entry>,
        change: impl Fn(&Arc<Entry>) -> ControlFlow<Option<Arc<Entry>>, Value>,
    ) -> Result<Option<Arc<Entry>>> {
        let (store, key) = (self.primary_store()?, &self.primary.key);
        for attempt in 1.. {
            if entry.uid() != self.primary.entry.uid() {
                return Ok(None);
            }
            let mut metadata = match change(&entry) {
                ControlFlow::Break(entry) => return Ok(entry),
                ControlFlow::Continue(metadata) => metadata,
            };
            metadata["resourceVersion"] = entry.resource_version().to_string().into();
            let path = self.primary.kind.object_path(key)?;
            let request = Request::patch(format!("{path}?fieldManager={}", self.env.manager))
                .header(CONTENT_TYPE, "application/merge-patch+json")
                .body(json!({"metadata": metadata}).to_string().into_bytes())
                .map_err(kube::Error::HttpError)?;
            match self.write(store, key, (Verb::Finalizer, ""), Some(&entry), request).await {
                Ok(changed) => return Ok(Some(changed)),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
                Err(kube::Error::Api(status)) if status.is_conflict() && attempt < MAX_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
            match self.env.fetch(store.kind(), key).await? {
                Some(newer) => entry = newer,
                None => return Ok(None),
            }
        }
        unreachable!("the last attempt returns")
    }
}
