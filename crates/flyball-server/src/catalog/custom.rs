//! The resources that CRDs serve.

use super::resource::{Behavior, Resource, head};
use super::stability;
use crate::custom::{CustomKind, schema_number};
use crate::kinds;
use flyball_core::{GroupResource, GroupVersionKind, Object};
use serde_json::Value;
use std::sync::Arc;

/// Reads the resources that a CRD serves by these names, one for each version.
pub(crate) fn resources(crd: &Object, names: &Value) -> Vec<Resource> {
    let spec = crd.get("spec").cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let group = text(&spec["group"]);
    // Such names are not accepted, but a client with access to the status could set them. Objects of a built-in kind
    // would then be served, and deleted, as those of the CRD.
    if kinds::of_group(&group).any(|known| names["plural"] == known.plural || names["kind"] == known.kind) {
        return Vec::new();
    }
    let versions = spec["versions"].as_array().cloned().unwrap_or_default();
    let storage_version = versions
        .iter()
        .find(|version| version["storage"] == true)
        .map(|version| text(&version["name"]))
        .unwrap_or_default();
    let preferred = versions
        .iter()
        .filter(|v| v["served"] == true && v["deprecated"] != true)
        .map(|v| text(&v["name"]))
        .max_by(|a, b| stability(a).cmp(&stability(b)).then_with(|| b.cmp(a)));
    let resource = |version: &Value| {
        let kind = GroupVersionKind::new(&group, &text(&version["name"]), &text(&names["kind"]));
        let custom = CustomKind::read(crd, version, &kind, &storage_version, preferred.as_deref());
        Resource {
            list_kind: text(&names["listKind"]),
            plural: text(&names["plural"]).into(),
            singular: text(&names["singular"]),
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            table: GroupResource::new(&group, &text(&names["plural"])),
            schema: flyball_schema::openapi::read(custom.openapi.as_ref()),
            schema_number: schema_number::of(custom.openapi.as_ref(), &kind.version),
            empty: Object::default(),
            head: head(&kind),
            behavior: Behavior::Custom(Arc::new(custom)),
            kind,
        }
    };
    // Versions that are not served are included, since objects may be stored in them.
    versions.iter().map(resource).collect()
}
