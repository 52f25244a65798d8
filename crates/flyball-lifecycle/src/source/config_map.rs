//! Catalogs in ConfigMaps: packages, CSVs and CRDs as lists in YAML, or the files of a file-based catalog.
//!
//! See <https://olm.operatorframework.io/docs/concepts/crds/catalogsource/>. OLM calls this source `internal`; it reads
//! only the lists.

use crate::content::{Blobs, InvalidBlob, InvalidPackageFile, of_lists, package_file};
use crate::document::{self, InvalidDocument};
use serde_json::Value;
use std::collections::BTreeMap;

/// A ConfigMap that contains no catalog.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfigMap {
    /// A key is missing.
    #[error(
        "the ConfigMap has no key {key:?}; a catalog has customResourceDefinitions, clusterServiceVersions and \
         packages, or files such as catalog.yaml"
    )]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The value of a key is invalid.
    #[error("key {key:?} of the ConfigMap: {source}")]
    Document {
        /// The key.
        key: &'static str,
        /// The reason.
        source: InvalidDocument,
    },
    /// The value of a key is not a list.
    #[error("key {key:?} of the ConfigMap is not a list in YAML")]
    List {
        /// The key.
        key: &'static str,
    },
    /// A package is invalid.
    #[error(transparent)]
    Package(#[from] InvalidPackageFile),
    /// A file of a file-based catalog is invalid.
    #[error(transparent)]
    Blob(#[from] InvalidBlob),
}

/// Returns the blobs of a catalog in the data of a ConfigMap.
pub(super) fn blobs(data: &BTreeMap<String, String>) -> Result<Blobs, InvalidConfigMap> {
    let is_file = |name: &str| [".json", ".yaml", ".yml"].iter().any(|end| name.ends_with(end));
    if data.keys().any(|name| is_file(name)) {
        let mut blobs = Blobs::default();
        for (name, text) in data.iter().filter(|(name, _)| is_file(name)) {
            blobs.add(name, text.as_bytes())?;
        }
        return Ok(blobs);
    }
    let csvs =
        list(data, "clusterServiceVersions")?.ok_or(InvalidConfigMap::Missing { key: "clusterServiceVersions" })?;
    let definitions = list(data, "customResourceDefinitions")?.unwrap_or_default();
    let packages = list(data, "packages")?.ok_or(InvalidConfigMap::Missing { key: "packages" })?;
    let packages = packages.iter().map(|package| package_file("packages", package)).collect::<Result<Vec<_>, _>>()?;
    Ok(of_lists(&packages, &csvs, &definitions)?)
}

fn list(data: &BTreeMap<String, String>, key: &'static str) -> Result<Option<Vec<Value>>, InvalidConfigMap> {
    let Some(text) = data.get(key) else { return Ok(None) };
    match document::one(text.as_bytes()).map_err(|source| InvalidConfigMap::Document { key, source })? {
        Value::Array(list) => Ok(Some(list)),
        Value::Null => Ok(Some(Vec::new())),
        _ => Err(InvalidConfigMap::List { key }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;

    fn data() -> BTreeMap<String, String> {
        let csv = |name: &str, version: &str, more: &str| {
            format!(
                "- apiVersion: operators.coreos.com/v1alpha1\n  kind: ClusterServiceVersion\n  metadata: {{name: {name}}}\n  \
                 spec:\n    version: {version}\n{more}    customresourcedefinitions: {{owned: [{{name: xs.example.com}}]}}\n"
            )
        };
        let csvs = csv("x.v1", "1.0.0", "") + &csv("x.v2", "2.0.0", "    replaces: x.v1\n") + &csv("y.v1", "1.0.0", "");
        let definitions = "- apiVersion: apiextensions.k8s.io/v1\n  kind: CustomResourceDefinition\n  \
                           metadata: {name: xs.example.com}\n  spec: {group: example.com, names: {kind: X}, versions: [{name: v1}]}\n";
        let packages = "- packageName: x\n  channels: [{name: stable, currentCSV: x.v2}]\n";
        [("clusterServiceVersions", csvs.as_str()), ("customResourceDefinitions", definitions), ("packages", packages)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn config_maps_contain_packages() {
        let content = Content::new(blobs(&data()).unwrap());
        assert!(content.problems().is_empty(), "{:?}", content.problems());
        let package = content.package("x").unwrap();
        assert_eq!(package.default_channel, "stable");
        assert_eq!(package.bundles.keys().collect::<Vec<_>>(), ["x.v1", "x.v2"]);
        let manifests = package.bundles["x.v1"].manifests().unwrap().unwrap();
        assert_eq!(manifests.definitions().count(), 1);
        assert_eq!(package.channels["stable"].head.as_deref(), Some("x.v2"));
    }

    #[test]
    fn config_maps_contain_files() {
        let text = "{schema: olm.package, name: x, defaultChannel: stable}\n---\n\
                    {schema: olm.channel, package: x, name: stable, entries: [{name: x.v1}]}\n";
        let bundle = "schema: olm.bundle\npackage: x\nname: x.v1\nimage: a/b:1\nproperties:\n\
                      - {type: olm.package, value: {packageName: x, version: 1.0.0}}\n";
        let files = [("catalog.yaml", text), ("bundles.yaml", bundle), ("NOTES", "text")];
        let mut data: BTreeMap<String, String> = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let content = Content::new(blobs(&data).unwrap());
        assert!(content.problems().is_empty(), "{:?}", content.problems());
        assert!(content.bundle("x", "x.v1").is_some());
        data.insert("other.yaml".to_owned(), "a: 1".to_owned());
        let error = blobs(&data).unwrap_err().to_string();
        assert!(error.starts_with("other.yaml: document 1: field schema is missing"), "{error}");
    }

    #[test]
    fn invalid_config_maps_name_the_key() {
        for (key, value, expected) in [
            ("packages", None, "the ConfigMap has no key \"packages\""),
            ("packages", Some("a: 1"), "key \"packages\" of the ConfigMap is not a list"),
            ("packages", Some("[{}]"), "package file packages: missing field `packageName`"),
            ("clusterServiceVersions", Some("["), "key \"clusterServiceVersions\" of the ConfigMap: "),
            (
                "clusterServiceVersions",
                Some("[]"),
                "package \"x\", channel \"stable\": currentCSV \"x.v2\" does not exist",
            ),
        ] {
            let mut data = data();
            match value {
                Some(value) => drop(data.insert(key.to_owned(), value.to_owned())),
                None => drop(data.remove(key)),
            }
            let error = blobs(&data).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
