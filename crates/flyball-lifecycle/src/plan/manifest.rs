//! Manifests of steps: in the plan, or, if the plan would become too large, in the catalog.

use super::draft::Draft;
use crate::api::{CatalogSource, InstallPlan, Step};
use crate::catalog::CatalogKey;
use crate::content::{Content, PackageBundle};
use crate::contents::CatalogContents;
use crate::install::content_hash;
use flyball::{Context, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Reverse;
use std::sync::Arc;

/// Limit of the manifests in a plan, in bytes. The API server accepts objects of 1.5 MiB.
const MAX_BYTES: usize = 800 << 10;

/// A reference to an object of a bundle.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Reference {
    /// The name of the CatalogSource.
    catalog_source_name: String,
    /// Its namespace.
    catalog_source_namespace: String,
    package: String,
    bundle: String,
    /// Hash of the object: a plan installs what was approved.
    hash: String,
}

/// Replaces the largest manifests by references until the plan is small enough.
pub(super) fn shorten(mut drafts: Vec<Draft<'_>>) -> Vec<Step> {
    let mut bytes: usize = drafts.iter().map(|draft| draft.step.resource.manifest.len()).sum();
    let mut order: Vec<usize> = (0..drafts.len()).filter(|index| drafts[*index].is_from_bundle).collect();
    order.sort_by_key(|index| Reverse(drafts[*index].step.resource.manifest.len()));
    for index in order {
        if bytes <= MAX_BYTES {
            break;
        }
        let Draft { step, package, .. } = &mut drafts[index];
        let object: Value = serde_json::from_str(&step.resource.manifest).unwrap_or_default();
        let reference = Reference {
            catalog_source_name: step.resource.source_name.clone(),
            catalog_source_namespace: step.resource.source_namespace.clone(),
            package: (*package).to_owned(),
            bundle: step.resolving.clone(),
            hash: content_hash(&object),
        };
        bytes -= step.resource.manifest.len();
        step.resource.manifest = serde_json::to_string(&reference).unwrap_or_default();
        bytes += step.resource.manifest.len();
    }
    drafts.into_iter().map(|draft| draft.step).collect()
}

/// Returns the object of a step.
///
/// # Errors
///
/// If the manifest is not an object, or the object that it refers to is not as it was when the plan was made.
pub(super) async fn read(step: &Step, contents: &CatalogContents, cx: &Context<InstallPlan>) -> Result<Value, String> {
    let what = || format!("step {} {}", step.resource.kind, step.resource.name);
    let Ok(reference) = serde_json::from_str::<Reference>(&step.resource.manifest) else {
        let object: Value =
            serde_json::from_str(&step.resource.manifest).map_err(|error| format!("{}: {error}", what()))?;
        return if object.is_object() { Ok(object) } else { Err(format!("{}: the manifest is not an object", what())) };
    };
    let is_it = |object: &&Value| {
        object["kind"] == step.resource.kind.as_str() && object["metadata"]["name"] == step.resource.name.as_str()
    };
    let is_planned = |object: &&Value| content_hash(object) == reference.hash;
    let catalog = catalog_of(&reference, contents, cx).await.map_err(|why| format!("{}: {why}", what()))?;
    let bundle = catalog.bundle(&reference).map_err(|why| format!("{}: {why}", what()))?;
    let last = contents.last_manifests(bundle);
    if let Some(object) = last.iter().flat_map(|last| last.objects()).find(is_it).filter(is_planned) {
        return Ok(object.clone());
    }
    let manifests = contents.manifests(bundle, &catalog.source, cx.client()).await;
    let manifests = manifests.map_err(|why| format!("{}: {why}", what()))?;
    let object = manifests.objects().find(is_it).ok_or_else(|| format!("{}: the bundle no longer has it", what()))?;
    match is_planned(&object) {
        true => Ok(object.clone()),
        false => Err(format!("{}: the bundle has changed since the plan was made; delete the plan", what())),
    }
}

/// A catalog that a reference names.
struct StepCatalog {
    /// The CatalogSource; one without a namespace stands for a ClusterCatalog.
    source: CatalogSource,
    content: Arc<Content>,
    /// Kind and name.
    name: String,
}

impl StepCatalog {
    fn bundle(&self, reference: &Reference) -> Result<&PackageBundle, String> {
        let bundle = self.content.bundle(&reference.package, &reference.bundle);
        bundle.ok_or_else(|| format!("{} has no bundle {}", self.name, reference.bundle))
    }
}

/// Returns the catalog of a reference. The content of a ClusterCatalog is stored without a namespace.
async fn catalog_of(
    reference: &Reference,
    contents: &CatalogContents,
    cx: &Context<InstallPlan>,
) -> Result<StepCatalog, String> {
    let (name, namespace) = (&reference.catalog_source_name, &reference.catalog_source_namespace);
    let (source, content, name) = if namespace.is_empty() {
        let content = contents.content(&CatalogKey { namespace: String::new(), name: name.clone() });
        (CatalogSource::new(None, name), content, format!("ClusterCatalog {name}"))
    } else {
        let source = cx.get::<CatalogSource>(&ObjectKey::new(Some(namespace), name)).await;
        let source = source.map_err(|error| error.to_string())?;
        let source = source.ok_or_else(|| format!("CatalogSource {namespace}/{name} does not exist"))?;
        let content = contents.state(&source).content;
        (source, content, format!("CatalogSource {namespace}/{name}"))
    };
    let content = content.ok_or_else(|| format!("{name} is not loaded"))?;
    Ok(StepCatalog { source, content, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::StepResource;

    fn draft(name: &str, bytes: usize, is_from_bundle: bool) -> Draft<'static> {
        let manifest = serde_json::json!({"data": "x".repeat(bytes)}).to_string();
        let resource = StepResource { name: name.to_owned(), manifest, ..StepResource::default() };
        Draft { step: Step { resolving: "a.v1".to_owned(), resource, ..Step::default() }, package: "a", is_from_bundle }
    }

    #[test]
    fn largest_objects_of_bundles_become_references_in_large_plans() {
        let large = MAX_BYTES / 2;
        let steps = shorten(vec![draft("csv", large, false), draft("crd", large, true), draft("small", 10, true)]);
        let is_reference = |step: &Step| serde_json::from_str::<Reference>(&step.resource.manifest).is_ok();
        assert_eq!(steps.iter().map(is_reference).collect::<Vec<_>>(), [false, true, false]);
        let reference: Reference = serde_json::from_str(&steps[1].resource.manifest).unwrap();
        assert_eq!((&*reference.package, &*reference.bundle), ("a", "a.v1"));
        let small = shorten(vec![draft("crd", 100, true)]);
        assert!(!is_reference(&small[0]));
    }
}
