//! Namespaces of the objects of a release.
//!
//! A custom resource determines the objects in its own namespace. Objects outside of it, in another namespace or
//! cluster-scoped, are determined by the chart: their version, kind and namespace must be literal in the chart and
//! must not derive from data of the custom resource. All other data of the custom resource must be scalars of the
//! object, unless the chart's author allows more. The same holds for objects that grant permissions, in any
//! namespace: the operator may have to grant more permissions than the author of a custom resource has.

use crate::kinds::Kinds;
use crate::resources::{ManifestError, Resource};
use flyball::Kind;
use flyball_chart::outline_difference;
use flyball_chart::{Manifest, RenderedChart};

/// The API group of objects that grant permissions. Ansible operators guard the same kinds.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Type of Secrets that hold a service account token.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Returns true if an object is in the namespace of the release. A cluster-scoped release may have objects in all
/// namespaces.
pub(crate) fn is_in_namespace(resource: &Resource, kind: &Kind, namespace: &str) -> bool {
    let is_here = |there: &str| namespace.is_empty() || there == namespace;
    kind.is_namespaced() && resource.namespace().is_none_or(is_here)
}

/// Returns true if an object is outside of the namespace, or grants permissions: only the chart may determine it.
fn is_privileged(resource: &Resource, kind: &Kind, namespace: &str) -> bool {
    !is_in_namespace(resource, kind, namespace) || is_rbac(resource) || is_token(resource)
}

fn is_rbac(resource: &Resource) -> bool {
    resource.api_version.split_once('/').is_some_and(|(group, _)| group == RBAC)
}

fn is_token(resource: &Resource) -> bool {
    (&*resource.api_version, &*resource.kind) == ("v1", "Secret") && resource.object["type"] == SERVICE_ACCOUNT_TOKEN
}

/// Rejects objects outside of the namespace or granting permissions whose identity or structure is not literal in the
/// chart, unless values may determine the structure.
pub(crate) fn check(
    rendered: &RenderedChart,
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
        if !is_privileged(&resource, &kind, namespace) {
            continue;
        }
        let is_in_namespace = is_in_namespace(&resource, &kind, namespace);
        let (is_rbac, is_token) = (is_rbac(&resource), is_token(&resource));
        let same = |outline: &&mut Resource| {
            (&outline.api_version, &outline.kind) == (&resource.api_version, &resource.kind)
                && (is_in_namespace || outline.namespace() == resource.namespace())
                && (!is_token || self::is_token(outline))
        };
        let location = match kind.is_namespaced() {
            true => format!("namespace {}", resource.namespace().unwrap_or(namespace)),
            false => "no namespace".to_owned(),
        };
        let name = resource.name().to_owned();
        let Some(outline) = outlines.get_mut(at).filter(same) else {
            return Err(ManifestError::Privileged { path: resource.path, kind: resource.kind, name, location });
        };
        if is_in_namespace && is_rbac {
            // Labels and annotations of a Role or a binding grant no permissions.
            for object in [&mut outline.object, &mut resource.object] {
                object.as_object_mut().and_then(|fields| fields.remove("metadata"));
            }
        }
        if !structure_from_values && let Some(field) = outline_difference(&outline.object, &resource.object) {
            return Err(ManifestError::PrivilegedStructure {
                path: resource.path,
                kind: resource.kind,
                name,
                location,
                field,
            });
        }
    }
    Ok(())
}
