//! Bundles in the format `registry+v1`: a folder with `manifests` and `metadata`.

use super::{Annotations, BUNDLE_MEDIA_TYPE, InvalidManifests, Manifests, properties};
use crate::bundle::Property;
use crate::document::{self, InvalidDocument};
use crate::files::Files;
use flyball_core::names::dns_subdomain;
use serde::Deserialize;
use serde_json::Value;

/// A folder that is not a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBundle {
    /// There is no file with annotations.
    #[error("there is no metadata/annotations.yaml; `flyball bundle create` writes one")]
    NoAnnotations,
    /// A required annotation is missing.
    #[error("{file}: annotation operators.operatorframework.io.bundle.{name} is missing")]
    Annotation {
        /// The file.
        file: String,
        /// The end of its name.
        name: &'static str,
    },
    /// The name of the package is not valid.
    #[error("{file}: the package {package:?} is not a DNS name; use lower case letters, digits, '-' and '.'")]
    Package {
        /// The file.
        file: String,
        /// The package.
        package: String,
    },
    /// The bundle has another format.
    #[error("{file}: the media type is {found:?}, only {BUNDLE_MEDIA_TYPE:?} is supported")]
    MediaType {
        /// The file.
        file: String,
        /// The media type.
        found: String,
    },
    /// A file is invalid.
    #[error("{file}: {source}")]
    File {
        /// The file.
        file: String,
        /// The reason.
        source: InvalidDocument,
    },
    /// A list of dependencies or properties is invalid.
    #[error("{file}: {why}")]
    List {
        /// The file.
        file: String,
        /// The reason.
        why: String,
    },
    /// The manifests are invalid.
    #[error("folder {folder}: {source}")]
    Manifests {
        /// The folder.
        folder: String,
        /// The reason.
        source: InvalidManifests,
    },
}

/// The content of a bundle in the format `registry+v1`.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleFolder {
    /// Its annotations.
    pub annotations: Annotations,
    /// Its objects.
    pub manifests: Manifests,
    /// Its dependencies.
    pub dependencies: Vec<Property>,
    /// The properties that it declares.
    pub declared_properties: Vec<Property>,
}

#[derive(Default, Deserialize)]
struct Lists {
    #[serde(default)]
    dependencies: Option<Vec<Property>>,
    #[serde(default)]
    properties: Option<Vec<Property>>,
}

impl BundleFolder {
    /// Returns true if files have the layout of a bundle.
    pub fn is_bundle(files: &Files) -> bool {
        let has = |folder: &str| files.iter().any(|(path, _)| path.starts_with(folder));
        has("manifests/") && has("metadata/")
    }

    /// Reads a bundle.
    ///
    /// # Errors
    ///
    /// If a file is invalid, or the bundle has another format.
    pub fn read(files: &Files) -> Result<Self, InvalidBundle> {
        let mut metadata = Vec::new();
        for (path, content) in files.below("metadata").iter().filter(|(path, _)| is_document(path)) {
            let file = format!("metadata/{path}");
            let document = document::one(content);
            metadata.push((file.clone(), document.map_err(|source| InvalidBundle::File { file, source })?));
        }
        let annotations =
            metadata.iter().find_map(|(file, document)| Some((file, Annotations::of_document(document)?)));
        let (file, annotations) = annotations.ok_or(InvalidBundle::NoAnnotations)?;
        check(file, &annotations)?;
        let (mut dependencies, mut declared_properties) = (Vec::new(), Vec::new());
        for (file, document) in &metadata {
            let lists = lists(document).map_err(|why| InvalidBundle::List { file: file.clone(), why })?;
            dependencies.extend(lists.dependencies.unwrap_or_default());
            declared_properties.extend(lists.properties.unwrap_or_default());
        }
        let folder = if annotations.manifests.is_empty() { "manifests/" } else { &annotations.manifests };
        let manifests = read_manifests(files, folder)?;
        Ok(Self { annotations, manifests, dependencies, declared_properties })
    }

    /// Returns all properties: declared ones, and those that follow from the manifests.
    pub fn properties(&self) -> Vec<Property> {
        let package = &self.annotations.package;
        properties::properties(&self.manifests, package, &self.declared_properties, &self.dependencies)
    }
}

/// Reads the manifests in a folder, without those in folders below.
pub(crate) fn read_manifests(files: &Files, folder: &str) -> Result<Manifests, InvalidBundle> {
    let mut objects = Vec::new();
    for (path, content) in files.below(folder).iter() {
        if path.contains('/') || path.starts_with('.') || !is_document(path) {
            continue;
        }
        let documents = document::all(content);
        let file = format!("{}/{path}", folder.trim_matches('/'));
        objects.extend(documents.map_err(|source| InvalidBundle::File { file, source })?);
    }
    let folder = folder.trim_matches('/').to_owned();
    Manifests::new(objects).map_err(|source| InvalidBundle::Manifests { folder, source })
}

fn check(file: &str, annotations: &Annotations) -> Result<(), InvalidBundle> {
    let file = || file.to_owned();
    if annotations.package.is_empty() {
        return Err(InvalidBundle::Annotation { file: file(), name: "package.v1" });
    }
    // It becomes the name of an object and of a folder.
    if !dns_subdomain(&annotations.package).is_empty() {
        return Err(InvalidBundle::Package { file: file(), package: annotations.package.clone() });
    }
    if annotations.channels.is_empty() {
        return Err(InvalidBundle::Annotation { file: file(), name: "channels.v1" });
    }
    match annotations.media_type.as_str() {
        "" | BUNDLE_MEDIA_TYPE => Ok(()),
        found => Err(InvalidBundle::MediaType { file: file(), found: found.to_owned() }),
    }
}

fn lists(document: &Value) -> Result<Lists, String> {
    match document {
        Value::Object(_) => Lists::deserialize(document).map_err(|error| error.to_string()),
        _ => Ok(Lists::default()),
    }
}

fn is_document(path: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end))
}
