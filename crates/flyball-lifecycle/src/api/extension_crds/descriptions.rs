//! Descriptions of the fields of OLM v1's kinds, for `kubectl explain`.

use serde_json::Value;

/// Path of a field, and its description. `[]` are the items of a list.
const DESCRIPTIONS: &[(&str, &str)] = &[
    ("spec", "Desired state."),
    ("spec.availabilityMode", "Unavailable if no ClusterExtension may use the catalog."),
    ("spec.priority", "Rank among catalogs with the same package; the highest one is used."),
    ("spec.source", "Origin of the content."),
    ("spec.source.type", "Kind of the origin; Image is the only one."),
    ("spec.source.image", "Image with a file-based catalog."),
    ("spec.source.image.ref", "Name of the image, with a tag or a digest."),
    ("spec.source.image.pollIntervalMinutes", "Interval at which the tag is resolved again; never if absent."),
    ("spec.namespace", "Namespace of the operator."),
    ("spec.serviceAccount", "Accepted for compatibility, and without effect."),
    ("spec.serviceAccount.name", "Name of a service account."),
    ("spec.source.sourceType", "Kind of the origin; Catalog is the only one."),
    ("spec.source.catalog", "Package of the operator, and restrictions of its versions."),
    ("spec.source.catalog.packageName", "Name of the package."),
    ("spec.source.catalog.version", "Range of versions, such as '>=1.0, <2.0'."),
    ("spec.source.catalog.channels", "Channels of the package; all if empty."),
    ("spec.source.catalog.selector", "Labels of the ClusterCatalogs."),
    ("spec.source.catalog.selector.matchLabels", "Labels with their values."),
    ("spec.source.catalog.selector.matchExpressions", "Requirements of labels."),
    ("spec.source.catalog.selector.matchExpressions[].key", "Name of the label."),
    ("spec.source.catalog.selector.matchExpressions[].operator", "One of In, NotIn, Exists and DoesNotExist."),
    ("spec.source.catalog.selector.matchExpressions[].values", "Values of the label, for In and NotIn."),
    (
        "spec.source.catalog.upgradeConstraintPolicy",
        "CatalogProvided for the upgrades of the catalog only, SelfCertified for any version.",
    ),
    ("spec.install", "Settings of the installation."),
    ("spec.install.preflight", "Checks before the installation."),
    ("spec.install.preflight.crdUpgradeSafety", "Check that changed CRDs accept the existing custom resources."),
    ("spec.install.preflight.crdUpgradeSafety.enforcement", "Strict for a check that can fail, None for no check."),
    ("spec.config", "Configuration of the bundle."),
    ("spec.config.configType", "Kind of the configuration; Inline is the only one."),
    ("spec.config.inline", "The configuration, such as watchNamespace."),
    ("status", "Observed state."),
    ("status.conditions", "Conditions of the object."),
    ("status.conditions[].type", "Type of the condition."),
    ("status.conditions[].status", "Status of the condition: True, False or Unknown."),
    ("status.conditions[].reason", "Reason of the last change, for programs."),
    ("status.conditions[].message", "Explanation of the condition."),
    ("status.conditions[].observedGeneration", "Generation of the object that the condition is about."),
    ("status.conditions[].lastTransitionTime", "Time of the last change of the status."),
    ("status.lastUnpacked", "Time when the content was last loaded."),
    ("status.install", "The installed version."),
    ("status.install.bundle", "Bundle of the installed version."),
    ("status.install.bundle.name", "Name of the bundle."),
    ("status.install.bundle.version", "Version of the bundle."),
];

/// Adds the descriptions to the properties of a schema and of the schemas within.
pub(super) fn describe(properties: &mut Value, path: &str) {
    for (name, field) in properties.as_object_mut().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if let Some((_, text)) = DESCRIPTIONS.iter().find(|(known, _)| *known == path) {
            field["description"] = (*text).into();
        }
        if let Some(inner) = field.get_mut("properties") {
            describe(inner, &path);
        }
        if let Some(inner) = field.pointer_mut("/items/properties") {
            describe(inner, &format!("{path}[]"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::extension_crds;
    use std::collections::BTreeSet;

    /// Collects the fields of a schema.
    fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>, described: &mut BTreeSet<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if field["description"].is_string() {
                described.insert(path.clone());
            }
            fields(field, &path, found, described);
            fields(&field["items"], &format!("{path}[]"), found, described);
            found.insert(path);
        }
    }

    #[test]
    fn all_fields_are_described() {
        let (mut found, mut described) = (BTreeSet::new(), BTreeSet::new());
        for definition in extension_crds() {
            let definition = serde_json::to_value(definition).unwrap();
            fields(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut found, &mut described);
        }
        let of_all_kinds = ["apiVersion", "kind", "metadata"];
        found.retain(|path| !of_all_kinds.contains(&path.as_str()));
        assert_eq!(found, described);
        let listed: BTreeSet<String> = DESCRIPTIONS.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(listed, described, "every description has a field");
    }
}
