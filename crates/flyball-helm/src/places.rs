//! Namespaces of the objects of a release.
//!
//! A custom resource has a say in what is in its own namespace. What is elsewhere, another namespace or none, is up to
//! the chart: of such an object, version, kind and namespace must stand in the chart, and not be data of the custom
//! resource, however these got there. All other data must be scalars of it, unless the chart's author lets custom
//! resources say more. The same holds for objects that give rights, wherever they are: the operator may have to grant
//! more than the author of a custom resource may.

use crate::kinds::Kinds;
use crate::resources::{ManifestError, Resource};
use flyball::Kind;
use flyball_chart::outline_difference;
use flyball_chart::{Manifest, Rendered};

/// The group of objects that give rights. Ansible operators guard the same kinds.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Type of Secrets that get a token of a service account.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Returns true if an object is where the release of a custom resource is. One that is in no namespace itself may have
/// objects in all.
pub(crate) fn is_inside(resource: &Resource, kind: &Kind, namespace: &str) -> bool {
    let is_here = |there: &str| namespace.is_empty() || there == namespace;
    kind.is_namespaced() && resource.namespace().is_none_or(is_here)
}

fn is_rbac(resource: &Resource) -> bool {
    resource.api_version.split_once('/').is_some_and(|(group, _)| group == RBAC)
}

fn is_token(resource: &Resource) -> bool {
    (&*resource.api_version, &*resource.kind) == ("v1", "Secret") && resource.object["type"] == SERVICE_ACCOUNT_TOKEN
}

/// Refuses objects that are elsewhere or give rights without the chart's own words, or have another structure than
/// these give them, unless values may choose it.
pub(crate) fn check(
    rendered: &Rendered,
    kinds: &Kinds,
    namespace: &str,
    structure_from_values: bool,
) -> Result<(), ManifestError> {
    let hooks = rendered.hooks.iter().map(|hook| &hook.manifest);
    rendered
        .manifests
        .iter()
        .chain(hooks)
        .try_for_each(|manifest| check_one(manifest, kinds, namespace, structure_from_values))
}

fn check_one(
    manifest: &Manifest,
    kinds: &Kinds,
    namespace: &str,
    structure_from_values: bool,
) -> Result<(), ManifestError> {
    if manifest.object.is_null() {
        return Ok(());
    }
    let resources = Resource::of(&manifest.path, &manifest.object)?;
    let mut outlines = Resource::of(&manifest.path, manifest.outline()).unwrap_or_default();
    if outlines.len() != resources.len() {
        outlines.clear();
    }
    for (at, mut resource) in resources.into_iter().enumerate() {
        let kind = kinds.kind_of(&resource.api_version, &resource.kind);
        let is_inside = is_inside(&resource, &kind, namespace);
        let (is_rbac, is_token) = (is_rbac(&resource), is_token(&resource));
        if is_inside && !is_rbac && !is_token {
            continue;
        }
        let same = |outline: &&mut Resource| {
            (&outline.api_version, &outline.kind) == (&resource.api_version, &resource.kind)
                && (is_inside || outline.namespace() == resource.namespace())
                && (!is_token || self::is_token(outline))
        };
        let place = match kind.is_namespaced() {
            true => format!("namespace {}", resource.namespace().unwrap_or(namespace)),
            false => "no namespace".to_owned(),
        };
        let name = resource.name().to_owned();
        let Some(outline) = outlines.get_mut(at).filter(same) else {
            return Err(ManifestError::Elsewhere { path: resource.path, kind: resource.kind, name, place });
        };
        if is_inside && is_rbac {
            // Labels and annotations of a role or a binding give no rights.
            for object in [&mut outline.object, &mut resource.object] {
                object.as_object_mut().and_then(|fields| fields.remove("metadata"));
            }
        }
        if !structure_from_values && let Some(field) = outline_difference(&outline.object, &resource.object) {
            return Err(ManifestError::Structure { path: resource.path, kind: resource.kind, name, place, field });
        }
    }
    Ok(())
}
