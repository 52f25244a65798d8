//! The CRDs of a project, from its files or with an open schema; and its samples.

use crate::error::{DEFINITIONS, DefinitionError, MAX_FILE_BYTES, MAX_FILES, OperatorError};
use crate::watches::Watch;
use crate::yaml;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Directory with samples.
const SAMPLES: &str = "config/samples";

/// Reads the CRDs of a project.
pub(crate) fn read(folder: &Path) -> Result<Vec<CustomResourceDefinition>, OperatorError> {
    let mut found = Vec::new();
    for (file, document) in documents(&folder.join(DEFINITIONS))? {
        if document["kind"] == "CustomResourceDefinition" {
            let wrong = |error: serde_json::Error| DefinitionError::NotADefinition { file, problem: error.to_string() };
            found.push(serde_json::from_value(document).map_err(wrong)?);
        }
    }
    Ok(found)
}

/// Reads the samples of a project.
pub(crate) fn samples(folder: &Path) -> Result<Vec<Value>, OperatorError> {
    Ok(documents(&folder.join(SAMPLES))?.into_iter().map(|(_, document)| document).collect())
}

/// Reads all documents of the YAML files in a directory, in the order of the file names; none if the directory does not
/// exist.
fn documents(folder: &Path) -> Result<Vec<(PathBuf, Value)>, OperatorError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| OperatorError::Read { path, source }
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder)(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(failed(folder))?.path();
        let is_yaml = file.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
        // `kustomization.yaml` lists the other files and is not a Kubernetes object.
        if is_yaml && file.file_stem().is_none_or(|stem| stem != "kustomization") {
            let size = fs::metadata(&file).map_err(failed(&file))?.len();
            files.push(file);
            if files.len() > MAX_FILES || size > MAX_FILE_BYTES {
                return Err(DefinitionError::TooLarge { folder: folder.to_owned() }.into());
            }
        }
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(failed(&file))?;
        let wrong = |problem: String| DefinitionError::Yaml { file: file.clone(), problem };
        let documents = yaml::documents(&text).map_err(wrong)?;
        found.extend(
            documents.into_iter().filter(|document| !document.is_null()).map(|document| (file.clone(), document)),
        );
    }
    Ok(found)
}

/// Returns the CRD of an entry: the project's, or one with an open schema.
pub(crate) fn of(
    watch: &Watch,
    definitions: &[CustomResourceDefinition],
) -> Result<CustomResourceDefinition, DefinitionError> {
    let kind = &watch.kind;
    let is_of = |crd: &&CustomResourceDefinition| crd.spec.group == *kind.group && crd.spec.names.kind == *kind.kind;
    let Some(crd) = definitions.iter().find(is_of) else { return Ok(open(watch)) };
    if crd.spec.scope == "Cluster" {
        return Err(DefinitionError::ClusterScope { kind: kind.kind.to_string() });
    }
    if crd.spec.versions.iter().all(|version| version.name != *kind.version) {
        let available: Vec<&str> = crd.spec.versions.iter().map(|version| version.name.as_str()).collect();
        return Err(DefinitionError::NoVersion {
            kind: kind.kind.to_string(),
            version: kind.version.to_string(),
            available: available.join(", "),
        });
    }
    Ok(crd.clone())
}

/// A printer column: name, type, JSON path and priority. Those with a priority above 0 are shown by
/// `kubectl get -o wide`.
pub type Column = (&'static str, &'static str, &'static str, u8);

/// Printer columns for the CRD of a release, as in `helm list`; and the revision that failed with its error, as in
/// `helm history`.
#[doc(alias = "additionalPrinterColumns")]
pub const COLUMNS: [Column; 7] = [
    ("Status", "string", ".status.release.status", 0),
    ("Reason", "string", ".status.release.reason", 0),
    ("Chart", "string", ".status.release.chart", 0),
    ("Revision", "integer", ".status.release.revision", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Failed Revision", "integer", ".status.release.failedRevision", 1),
    ("Message", "string", ".status.release.message", 1),
];

/// Returns a printer column as in a CRD.
pub fn printer_column(&(name, kind, path, priority): &Column) -> Value {
    let mut column = json!({"name": name, "type": kind, "jsonPath": path});
    if priority > 0 {
        column["priority"] = priority.into();
    }
    column
}

/// Creates a CRD as operator-sdk does, with printer columns; spec and status have an open schema.
fn open(watch: &Watch) -> CustomResourceDefinition {
    let (kind, resource) = (&watch.kind, watch.primary().resource().resource.to_string());
    let anything =
        |what: &str| json!({"type": "object", "description": what, "x-kubernetes-preserve-unknown-fields": true});
    let text = |what: &str| json!({"type": "string", "description": what});
    let name = kind.kind.to_lowercase();
    let crd = json!({
        "metadata": {"name": format!("{resource}.{}", kind.group)},
        "spec": {
            "group": *kind.group,
            "names": {"kind": *kind.kind, "listKind": format!("{}List", kind.kind), "plural": resource, "singular": name},
            "scope": "Namespaced",
            "versions": [{
                "name": *kind.version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": COLUMNS.each_ref().map(printer_column),
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": format!("{} is a release of a chart", kind.kind),
                    "properties": {
                        "apiVersion": text("The version of the schema that the object follows."),
                        "kind": text("The kind of the object."),
                        "metadata": {"type": "object"},
                        "spec": anything("The values of the chart."),
                        "status": anything("The status of the release."),
                    },
                }},
            }],
        },
    });
    serde_json::from_value(crd).expect("the CRD has all required fields")
}
