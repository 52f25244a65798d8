//! The CRDs of OLM v1's kinds, written for the fields that are supported here.

mod descriptions;

use super::EXTENSIONS_GROUP;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// Names of labels, namespaces and packages.
const LABEL: &str = "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')";
/// Names of channels and service accounts.
const SUBDOMAIN: &str = r"self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')";

/// Returns the CRDs of `olm.operatorframework.io`.
pub fn extension_crds() -> Vec<CustomResourceDefinition> {
    let catalog_columns = json!([
        column("LastUnpacked", "date", ".status.lastUnpacked"),
        column("Serving", "string", ".status.conditions[?(@.type==\"Serving\")].status"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]);
    let extension_columns = json!([
        column("Installed Bundle", "string", ".status.install.bundle.name"),
        column("Version", "string", ".status.install.bundle.version"),
        column("Installed", "string", ".status.conditions[?(@.type=='Installed')].status"),
        column("Progressing", "string", ".status.conditions[?(@.type=='Progressing')].status"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]);
    [
        definition("ClusterCatalog", &catalog_columns, &catalog_spec(), &catalog_status()),
        definition("ClusterExtension", &extension_columns, &extension_spec(), &extension_status()),
    ]
    .map(|crd| serde_json::from_value(crd).expect("a test decodes both"))
    .into()
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

fn definition(kind: &str, columns: &Value, spec: &Value, status: &Value) -> Value {
    let singular = kind.to_lowercase();
    let mut properties = json!({
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    });
    descriptions::describe(&mut properties, "");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{EXTENSIONS_GROUP}")},
        "spec": {
            "group": EXTENSIONS_GROUP,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular,
            },
            "scope": "Cluster",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": properties,
                }},
            }],
        },
    })
}

fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

fn catalog_spec() -> Value {
    json!({
        "type": "object",
        "required": ["source"],
        "properties": {
            "availabilityMode": {"type": "string", "enum": ["Available", "Unavailable"], "default": "Available"},
            "priority": {"type": "integer", "format": "int32", "default": 0},
            "source": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "type": {"type": "string", "enum": ["Image"]},
                    "image": {
                        "type": "object",
                        "required": ["ref"],
                        "properties": {
                            "ref": {"type": "string", "maxLength": 1000},
                            "pollIntervalMinutes": {"type": "integer", "minimum": 1},
                        },
                        "x-kubernetes-validations": [rule(
                            "!self.ref.contains('@') || !has(self.pollIntervalMinutes)",
                            "cannot specify pollIntervalMinutes while using digest-based image",
                        )],
                    },
                },
                "x-kubernetes-validations": [rule("has(self.image)", "image is required when source type is Image")],
            },
        },
    })
}

fn catalog_status() -> Value {
    json!({"type": "object", "properties": {
        "conditions": conditions(),
        "lastUnpacked": {"type": "string", "format": "date-time"},
    }})
}

fn extension_spec() -> Value {
    json!({
        "type": "object",
        "required": ["namespace", "source"],
        "properties": {
            "namespace": {"type": "string", "maxLength": 63, "x-kubernetes-validations": [
                rule("self == oldSelf", "namespace is immutable"),
                rule(LABEL, "namespace must be a valid DNS1123 label"),
            ]},
            "serviceAccount": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string", "maxLength": 253, "x-kubernetes-validations": [
                    rule("self == oldSelf", "name is immutable"),
                    rule(SUBDOMAIN, "name must be a valid DNS1123 subdomain"),
                ]}},
            },
            "source": {
                "type": "object",
                "required": ["sourceType"],
                "properties": {
                    "sourceType": {"type": "string", "enum": ["Catalog"]},
                    "catalog": catalog_filter(),
                },
                "x-kubernetes-validations": [rule(
                    "has(self.catalog)", "catalog is required when sourceType is Catalog",
                )],
            },
            "install": {"type": "object", "required": ["preflight"], "properties": {"preflight": {
                "type": "object",
                "required": ["crdUpgradeSafety"],
                "properties": {"crdUpgradeSafety": {
                    "type": "object",
                    "required": ["enforcement"],
                    "properties": {"enforcement": {"type": "string", "enum": ["None", "Strict"]}},
                }},
            }}},
            "config": {
                "type": "object",
                "required": ["configType", "inline"],
                "properties": {
                    "configType": {"type": "string", "enum": ["Inline"]},
                    "inline": {"type": "object", "minProperties": 1, "x-kubernetes-preserve-unknown-fields": true},
                },
            },
        },
    })
}

fn catalog_filter() -> Value {
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"type": "string"},
            "operator": {"type": "string"},
            "values": {"type": "array", "items": {"type": "string"}},
        },
    });
    json!({
        "type": "object",
        "required": ["packageName"],
        "properties": {
            "packageName": {"type": "string", "maxLength": 253, "x-kubernetes-validations": [
                rule("self == oldSelf", "packageName is immutable"),
                rule(SUBDOMAIN, "packageName must be a valid DNS1123 subdomain"),
            ]},
            "version": {"type": "string", "maxLength": 64},
            "channels": {"type": "array", "maxItems": 256, "items": {"type": "string", "maxLength": 253}},
            "selector": {"type": "object", "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": {"type": "array", "items": expression},
            }},
            "upgradeConstraintPolicy": {
                "type": "string", "enum": ["CatalogProvided", "SelfCertified"], "default": "CatalogProvided",
            },
        },
    })
}

fn extension_status() -> Value {
    let bundle = json!({
        "type": "object",
        "required": ["name", "version"],
        "properties": {"name": {"type": "string"}, "version": {"type": "string"}},
    });
    json!({"type": "object", "properties": {
        "conditions": conditions(),
        "install": {"type": "object", "required": ["bundle"], "properties": {"bundle": bundle}},
    }})
}

fn conditions() -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_decode() {
        let names: Vec<_> = extension_crds().into_iter().filter_map(|crd| crd.metadata.name).collect();
        assert_eq!(names, ["clustercatalogs.olm.operatorframework.io", "clusterextensions.olm.operatorframework.io"]);
    }
}
