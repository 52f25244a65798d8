//! The objects of one bundle: its ClusterServiceVersion, its CRDs, and what else it installs.
//!
//! They come from the properties of a catalog, from a folder or from an image. Objects of API versions that Kubernetes
//! no longer serves are converted where nothing is lost, and rejected otherwise.

mod definition;
mod folder;
mod metadata;
mod properties;

pub use definition::{InvalidDefinition, convert_definition};
pub use folder::{BundleFolder, InvalidBundle};
pub use metadata::{Annotations, BUNDLE_MEDIA_TYPE};
pub(crate) use properties::properties as bundle_properties;
pub use properties::{csv_metadata, related_images};
pub(crate) use properties::{definition_api, definition_apis, provided_api_services};

use crate::document::{self, InvalidDocument};
use serde_json::{Value, json};

/// The kind of the object that describes an operator.
pub const CSV_KIND: &str = "ClusterServiceVersion";
/// Maximum number of objects in a bundle.
pub const MAX_OBJECTS: usize = 2_000;

/// Kinds that bundles may contain besides the CSV and CRDs.
/// [Source](https://olm.operatorframework.io/docs/tasks/creating-operator-manifests/#packaging-additional-objects-alongside-an-operator).
pub const SUPPORTED_KINDS: &[&str] = &[
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "ConsoleCLIDownload",
    "ConsoleLink",
    "ConsolePlugin",
    "ConsoleQuickStart",
    "ConsoleYAMLSample",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PriorityClass",
    "PrometheusRule",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "VerticalPodAutoscaler",
];

/// Objects that are not a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidManifests {
    /// The text of an object is invalid.
    #[error("object {index}: {source}")]
    Document {
        /// Its position, from 0.
        index: usize,
        /// The reason.
        source: InvalidDocument,
    },
    /// An object has no type or name.
    #[error("object {index} has no {field}; every object needs apiVersion, kind and metadata.name")]
    Field {
        /// Its position, from 0.
        index: usize,
        /// The field.
        field: &'static str,
    },
    /// There is no CSV.
    #[error("there is no ClusterServiceVersion; a bundle has exactly one")]
    NoCsv,
    /// There are several CSVs.
    #[error("there are several ClusterServiceVersions: {}; a bundle has exactly one", names.join(", "))]
    SeveralCsvs {
        /// Their names.
        names: Vec<String>,
    },
    /// There are too many objects.
    #[error("there are {count} objects, at most {MAX_OBJECTS} are installed; split the bundle")]
    Count {
        /// Their number.
        count: usize,
    },
    /// A CRD cannot be converted.
    #[error(transparent)]
    Definition(#[from] InvalidDefinition),
}

/// The objects of one bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifests {
    csv: Value,
    objects: Vec<Value>,
    conversions: Vec<String>,
}

impl Manifests {
    /// Collects the objects of a bundle, and converts those of old API versions.
    ///
    /// # Errors
    ///
    /// If there is not exactly one CSV, an object has no name, or a CRD cannot be converted.
    pub fn new(objects: Vec<Value>) -> Result<Self, InvalidManifests> {
        if objects.len() > MAX_OBJECTS {
            return Err(InvalidManifests::Count { count: objects.len() });
        }
        let (mut csvs, mut others, mut conversions) = (Vec::new(), Vec::new(), Vec::new());
        for (index, object) in objects.into_iter().enumerate() {
            let text = |field| object.pointer(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
            for (pointer, field) in [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "name")] {
                if !text(pointer) {
                    return Err(InvalidManifests::Field { index, field });
                }
            }
            match object["kind"].as_str() {
                Some(CSV_KIND) => csvs.push(with_resource_names(object)),
                Some("CustomResourceDefinition") => {
                    let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
                    let definition = convert_definition(object)?;
                    if definition["apiVersion"] != *version {
                        conversions.push(format!("CustomResourceDefinition {} ({version})", name_of(&definition)));
                    }
                    others.push(definition);
                }
                _ => others.push(object),
            }
        }
        match csvs.len() {
            0 => Err(InvalidManifests::NoCsv),
            1 => Ok(Self { csv: csvs.remove(0), objects: others, conversions }),
            _ => Err(InvalidManifests::SeveralCsvs { names: csvs.iter().map(|csv| name_of(csv).to_owned()).collect() }),
        }
    }

    /// Parses the objects of a bundle, each of them JSON or YAML, see [`Manifests::new`].
    ///
    /// # Errors
    ///
    /// See [`Manifests::new`]; also if an object is neither.
    pub fn parse<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Result<Self, InvalidManifests> {
        let mut objects = Vec::new();
        for (index, text) in texts.into_iter().enumerate() {
            let documents = document::all(text.as_ref());
            objects.extend(documents.map_err(|source| InvalidManifests::Document { index, source })?);
        }
        Self::new(objects)
    }

    /// Returns the CSV.
    pub fn csv(&self) -> &Value {
        &self.csv
    }

    /// Returns the name of the CSV.
    pub fn name(&self) -> &str {
        name_of(&self.csv)
    }

    /// Returns the version of the CSV; empty if it has none.
    pub fn version(&self) -> &str {
        self.csv["spec"]["version"].as_str().unwrap_or_default()
    }

    /// Returns the CRDs.
    pub fn definitions(&self) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(|object| is_definition(object))
    }

    /// Returns the objects other than the CSV and CRDs.
    pub fn others(&self) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(|object| !is_definition(object))
    }

    /// Returns the objects that were converted, and their former API versions.
    pub fn conversions(&self) -> &[String] {
        &self.conversions
    }

    /// Returns all objects, the CSV first.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        std::iter::once(&self.csv).chain(&self.objects)
    }
}

fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Adds the names of resources that old CSVs omit: the CRD of CSVs requires them, but an empty name is valid.
fn with_resource_names(mut csv: Value) -> Value {
    for list in ["owned", "required"] {
        let pointer = format!("/spec/customresourcedefinitions/{list}");
        for api in csv.pointer_mut(&pointer).and_then(Value::as_array_mut).into_iter().flatten() {
            for resource in api.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten() {
                if resource.is_object() && resource["name"].is_null() {
                    resource["name"] = json!("");
                }
            }
        }
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(name: &str) -> Value {
        json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": CSV_KIND, "metadata": {"name": name}})
    }

    #[test]
    fn a_bundle_has_one_csv() {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
        let manifests = Manifests::new(vec![service.clone(), csv("a.v1")]).unwrap();
        assert_eq!(manifests.name(), "a.v1");
        assert_eq!(manifests.others().collect::<Vec<_>>(), [&service]);
        assert_eq!(manifests.objects().count(), 2);
        assert_eq!(Manifests::new(vec![service.clone()]), Err(InvalidManifests::NoCsv));
        let several = Manifests::new(vec![csv("a"), csv("b")]).unwrap_err().to_string();
        assert_eq!(several, "there are several ClusterServiceVersions: a, b; a bundle has exactly one");
        let mut unnamed = service;
        unnamed["metadata"] = json!([]);
        let error = Manifests::new(vec![csv("a"), unnamed]).unwrap_err();
        assert_eq!(error, InvalidManifests::Field { index: 1, field: "name" });
        let many = vec![csv("a"); MAX_OBJECTS + 1];
        assert_eq!(Manifests::new(many), Err(InvalidManifests::Count { count: MAX_OBJECTS + 1 }));
    }

    #[test]
    fn missing_names_of_resources_are_added() {
        let mut old = csv("a.v1");
        let resources = json!([{"kind": "Service", "version": "v1"}, {"kind": "Pod", "name": null}, {"name": "pods"}]);
        old["spec"] = json!({"customresourcedefinitions": {"owned": [{"name": "x.y", "resources": resources}]}});
        let manifests = Manifests::parse([old.to_string()]).unwrap();
        let names: Vec<_> = manifests.csv()["spec"]["customresourcedefinitions"]["owned"][0]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|resource| resource["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["", "", "pods"]);
    }
}
