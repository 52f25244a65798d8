//! The CRDs of the kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

/// Files of the CRDs; see `crds/README.md` for their source.
const FILES: &[(&str, &str)] = &[
    ("catalogsources", include_str!("crds/catalogsources.json")),
    ("clusterserviceversions", include_str!("crds/clusterserviceversions.json")),
    ("installplans", include_str!("crds/installplans.json")),
    ("olmconfigs", include_str!("crds/olmconfigs.json")),
    ("operatorconditions", include_str!("crds/operatorconditions.json")),
    ("operatorgroups", include_str!("crds/operatorgroups.json")),
    ("operators", include_str!("crds/operators.json")),
    ("subscriptions", include_str!("crds/subscriptions.json")),
];

/// Returns the CRDs of `operators.coreos.com`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    FILES.iter().map(|(_, json)| parse(json)).collect()
}

/// Returns one CRD of `operators.coreos.com` by its plural name.
pub fn crd(plural: &str) -> Option<CustomResourceDefinition> {
    FILES.iter().find(|(name, _)| *name == plural).map(|(_, json)| parse(json))
}

fn parse(json: &str) -> CustomResourceDefinition {
    serde_json::from_str(json).expect("a test decodes all files")
}

/// Returns a CRD for PackageManifests, for API servers without aggregation.
///
/// On a real cluster PackageManifests are an aggregated API. There their names are unique in a catalog only, so the API
/// server cannot store them.
pub fn package_manifest_crd() -> CustomResourceDefinition {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("packagemanifests.{}", super::PACKAGES_GROUP)},
        "spec": {
            "group": super::PACKAGES_GROUP,
            "names": {
                "kind": "PackageManifest",
                "listKind": "PackageManifestList",
                "plural": "packagemanifests",
                "singular": "packagemanifest",
            },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "additionalPrinterColumns": [
                    column("Catalog", "string", ".status.catalogSourceDisplayName"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    });
    serde_json::from_value(crd).expect("the CRD is complete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_decode_as_the_crds_of_their_names() {
        for (plural, _) in FILES {
            let crd = crd(plural).unwrap();
            assert_eq!(crd.metadata.name.as_deref(), Some(format!("{plural}.{}", super::super::GROUP).as_str()));
        }
        assert_eq!(crds().len(), FILES.len());
        assert_eq!(package_manifest_crd().spec.names.plural, "packagemanifests");
    }
}
