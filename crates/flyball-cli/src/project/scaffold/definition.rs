//! The CRD of a kind of charts and roles.

use crate::project::Resource;
use flyball_helm::{Column, printer_column};
use serde_json::{Value, json};

/// Adds a version to a CRD, with the schema of the stored one. The new version becomes the stored one. Objects are not
/// converted: all versions have the same fields.
pub(crate) fn add_version(definition: &mut Value, version: &str) -> Result<(), String> {
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    let versions = versions.ok_or("spec.versions is missing or not a list")?;
    let stored = versions.iter_mut().find(|version| version["storage"] == true);
    let stored = stored.ok_or("no item of spec.versions has storage: true")?;
    let mut added = stored.clone();
    stored["storage"] = false.into();
    added["name"] = version.into();
    versions.insert(0, added);
    Ok(())
}

/// Creates the CRD of one version of a kind with a status.
pub(crate) fn of(resource: &Resource, description: &str, spec: Value, columns: &[Column]) -> Value {
    let Resource { group, version, kind, plural, .. } = resource;
    let text = |what: &str| json!({"type": "string", "description": what});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns.iter().map(printer_column).collect::<Vec<_>>(),
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": description,
                    "properties": {
                        "apiVersion": text("Version of the schema of the object."),
                        "kind": text("Kind of the object."),
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": {
                            "type": "object",
                            "description": "Status of the object.",
                            "x-kubernetes-preserve-unknown-fields": true,
                        },
                    },
                }},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_definitions_are_rejected() {
        for definition in [json!([]), json!("x"), json!({"spec": []}), json!({"spec": {"versions": {}}})] {
            let added = add_version(&mut definition.clone(), "v2");
            assert_eq!(added, Err("spec.versions is missing or not a list".to_owned()), "{definition}");
        }
        let mut definition = json!({"spec": {"versions": [1, {"name": "v1", "storage": true}]}});
        assert_eq!(add_version(&mut definition, "v2"), Ok(()));
        assert_eq!(definition["spec"]["versions"][0], json!({"name": "v2", "storage": true}));
    }
}
