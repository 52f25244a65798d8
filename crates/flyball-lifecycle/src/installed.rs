//! Installed bundles, as resolution needs them.

use crate::api::ClusterServiceVersion;
use crate::api::labels::PROPERTIES;
use crate::bundle::{Bundle, Property};
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the bundle of a ClusterServiceVersion: with the properties in its annotation, or, without one, those that
/// follow from its owned and required APIs.
pub(crate) fn bundle_of(csv: &ClusterServiceVersion) -> Arc<Bundle> {
    #[derive(Deserialize)]
    struct Annotation {
        properties: Vec<Property>,
    }
    let annotated = serde_json::from_str(csv.annotation(PROPERTIES)).ok();
    let properties = annotated.map_or_else(|| apis(csv), |annotation: Annotation| annotation.properties);
    Arc::new(Bundle::new(csv.name_any(), &csv.spec.version, properties))
}

fn apis(csv: &ClusterServiceVersion) -> Vec<Property> {
    let property = |kind: &str, group: &str, version: &str, of: &str| {
        Property::new(kind, &json!({"group": group, "version": version, "kind": of}))
    };
    let (crds, services) = (&csv.spec.crds, &csv.spec.api_services);
    let mut properties = Vec::new();
    for (kind, crds, services) in
        [("olm.gvk", &crds.owned, &services.owned), ("olm.gvk.required", &crds.required, &services.required)]
    {
        properties.extend(crds.iter().map(|crd| property(kind, crd.group(), &crd.version, &crd.kind)));
        properties.extend(services.iter().map(|api| property(kind, &api.group, &api.version, &api.kind)));
    }
    properties
}

/// Returns those that are installed to stay: without those that another one replaces, and those being deleted.
pub(crate) fn to_stay<'c>(csvs: &[&'c ClusterServiceVersion]) -> Vec<&'c ClusterServiceVersion> {
    let replaced: BTreeSet<&str> = csvs.iter().map(|csv| csv.spec.replaces.as_str()).collect();
    let stays = |csv: &&&'c ClusterServiceVersion| {
        csv.metadata.deletion_timestamp.is_none()
            && !replaced.contains(csv.metadata.name.as_deref().unwrap_or_default())
    };
    csvs.iter().filter(stays).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(value: serde_json::Value) -> ClusterServiceVersion {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn properties_follow_from_the_annotation_or_the_apis() {
        let annotated = csv(json!({"metadata": {"name": "a.v1", "annotations": {
            PROPERTIES: json!({"properties": [
                {"type": "olm.package", "value": {"packageName": "a", "version": "1.0.0"}},
            ]}).to_string(),
        }}}));
        assert_eq!(bundle_of(&annotated).packages().collect::<Vec<_>>(), ["a"]);
        let plain = csv(json!({"metadata": {"name": "a.v1"}, "spec": {"customresourcedefinitions": {
            "owned": [{"name": "as.example.com", "version": "v1", "kind": "A"}],
            "required": [{"name": "bs.example.com", "version": "v1", "kind": "B"}],
        }}}));
        let bundle = bundle_of(&plain);
        assert_eq!(bundle.apis()[0].to_string(), "A (example.com/v1)");
        assert_eq!(bundle.properties()[1].kind, "olm.gvk.required");
    }

    #[test]
    fn replaced_versions_do_not_stay() {
        let old = csv(json!({"metadata": {"name": "a.v1"}}));
        let new = csv(json!({"metadata": {"name": "a.v2"}, "spec": {"replaces": "a.v1"}}));
        let stay: Vec<String> = to_stay(&[&old, &new]).iter().map(|csv| csv.name_any()).collect();
        assert_eq!(stay, ["a.v2"]);
    }
}
