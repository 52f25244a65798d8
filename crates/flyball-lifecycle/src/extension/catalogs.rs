//! The controller of ClusterCatalogs: loads their contents.

use super::selects;
use crate::api::{CatalogFilter, CatalogSource, ClusterCatalog, ClusterExtension};
use crate::contents::CatalogContents;
use crate::source::Location;
use flyball::{Action, Channel, Condition, Context, Controller, ObjectKey, Reconcile, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Interval after which a load that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The reconciler of ClusterCatalogs.
pub(crate) struct ClusterCatalogs {
    pub(crate) contents: Arc<CatalogContents>,
    /// Triggers the selection of bundles.
    pub(crate) wake: Channel<ClusterExtension>,
}

/// Returns the CatalogSource by which the content of a ClusterCatalog is stored. It has no namespace.
pub(super) fn source_of(catalog: &ClusterCatalog) -> CatalogSource {
    let mut source = CatalogSource::new(None, &catalog.name_any());
    source.metadata.uid = catalog.uid();
    source.spec.priority = catalog.spec.priority.into();
    source
}

fn is_available(catalog: &ClusterCatalog) -> bool {
    catalog.spec.availability_mode != "Unavailable" && catalog.metadata.deletion_timestamp.is_none()
}

/// Returns the available ClusterCatalogs that a filter selects.
pub(super) async fn visible(filter: &CatalogFilter, cx: &Context<ClusterExtension>) -> Result<Vec<ClusterCatalog>> {
    let is_visible = |catalog: ClusterCatalog| (is_available(&catalog) && selects(filter, &catalog)).then_some(catalog);
    cx.filter_map(None, is_visible).await
}

impl Reconcile for ClusterCatalogs {
    type Resource = ClusterCatalog;

    async fn reconcile(&self, catalog: &ClusterCatalog, cx: &Context<ClusterCatalog>) -> Result<Action> {
        let names: BTreeSet<String> =
            cx.filter_map(None, |of: ClusterCatalog| of.metadata.name).await?.into_iter().collect();
        drop(self.contents.retain(|key| !key.namespace.is_empty() || names.contains(&key.name)));
        if !is_available(catalog) {
            let serving = Condition::new("Serving", false, "UserSpecifiedUnavailable");
            self.report(catalog, serving.message("spec.availabilityMode is Unavailable"), None, cx).await?;
            self.wake(cx)?;
            return Ok(Action::done());
        }
        let source = source_of(catalog);
        let Some(image) = &catalog.spec.source.image else { return Ok(Action::done()) };
        let location = Location::Image { image: image.reference.clone(), secrets: Vec::new() };
        let known = self.contents.revision(&source);
        match self.contents.client().load(&location, known.as_deref()).await {
            Ok(loaded) => {
                let has_changed = self.contents.store(&source, loaded);
                let serving = Condition::new("Serving", true, "Available").message("the content is available");
                self.report(catalog, serving, None, cx).await?;
                if has_changed {
                    self.wake(cx)?;
                }
                let poll = image.poll_interval_minutes.map(|minutes| Duration::from_secs(u64::from(minutes) * 60));
                Ok(poll.map_or_else(Action::done, Action::requeue_after))
            }
            Err(error) => {
                let error = error.to_string();
                if self.contents.fail(&source, &error) {
                    self.wake(cx)?;
                }
                let serves = known.is_some();
                let serving = Condition::new("Serving", serves, if serves { "Available" } else { "Unavailable" });
                self.report(catalog, serving, Some(&error), cx).await?;
                Ok(Action::requeue_after(RETRY_INTERVAL))
            }
        }
    }
}

impl ClusterCatalogs {
    async fn report(
        &self,
        catalog: &ClusterCatalog,
        serving: Condition,
        error: Option<&str>,
        cx: &Context<ClusterCatalog>,
    ) -> Result<()> {
        let progressing = match error {
            Some(error) => Condition::new("Progressing", true, "Retrying").message(error),
            None => Condition::new("Progressing", true, "Succeeded").message("the desired content is loaded"),
        };
        let before = catalog.status.last_unpacked.clone();
        let is_new = serving.status == "True" && error.is_none() && before.is_none();
        let last = if is_new { Some(Time(cx.now())) } else { before };
        let mut status = json!({"conditions": [serving, progressing]});
        if let Some(last) = last {
            status["lastUnpacked"] = json!(last);
        }
        cx.set_status(&status).await
    }

    /// Triggers the selection of all extensions.
    fn wake(&self, cx: &Context<ClusterCatalog>) -> Result<()> {
        for key in cx.caches().keys::<ClusterExtension>(None)? {
            self.wake.wake(&key);
        }
        Ok(())
    }
}

/// Creates the controller.
pub(crate) fn controller(reconciler: ClusterCatalogs) -> Controller<ClusterCatalogs> {
    let none = |_: &ObjectKey| Vec::new();
    Controller::new(reconciler).name("clustercatalog").watches_by_key::<ClusterExtension>(move |key, _| Ok(none(key)))
}
