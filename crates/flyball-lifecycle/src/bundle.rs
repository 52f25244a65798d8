//! Bundles: one version of an operator, with its properties.

use crate::version::parse_tolerant;
use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A typed value that describes a bundle. [Source](https://olm.operatorframework.io/docs/reference/file-based-catalogs/#properties).
///
/// The value is kept as text: decoded, the properties of a large catalog take ten times as much memory.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "Written", into = "Written")]
pub struct Property {
    /// The type, such as `olm.gvk`.
    pub kind: String,
    /// The value as JSON.
    text: Box<str>,
}

/// A property as it is written.
#[derive(Deserialize, Serialize)]
struct Written {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    value: Value,
}

impl From<Written> for Property {
    fn from(written: Written) -> Self {
        Self::new(written.kind, &written.value)
    }
}

impl From<Property> for Written {
    fn from(property: Property) -> Self {
        Self { value: property.value(), kind: property.kind }
    }
}

impl Property {
    /// Creates a property.
    pub fn new(kind: impl Into<String>, value: &Value) -> Self {
        Self { kind: kind.into(), text: value.to_string().into() }
    }

    /// Returns the value, whose form depends on the type.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Returns the value as JSON.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Decodes the value; `None` if it has another form.
    pub(crate) fn decode<'p, T: Deserialize<'p>>(&'p self) -> Option<T> {
        serde_json::from_str(&self.text).ok()
    }
}

/// An API: a group, a version and a kind.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[doc(alias = "GVK")]
pub struct Api {
    /// The group.
    #[serde(default)]
    pub group: String,
    /// The version.
    #[serde(default)]
    pub version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}/{})", self.kind, self.group, self.version)
    }
}

/// The `olm.package` property.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PackageProperty {
    package_name: String,
    #[serde(default)]
    version: String,
}

/// One version of an operator.
#[derive(Clone, Debug)]
pub struct Bundle {
    name: String,
    version: Option<Version>,
    properties: Vec<Property>,
    apis: Vec<Api>,
    packages: Vec<PackageProperty>,
    is_deprecated: bool,
}

impl Bundle {
    /// Creates a bundle. Its version is `None` if the text is not a version; invalid properties of known types are
    /// ignored, as in OLM.
    pub fn new(name: impl Into<String>, version: &str, properties: Vec<Property>) -> Self {
        let mut apis: Vec<Api> = values(&properties, "olm.gvk");
        apis.sort();
        apis.dedup();
        let packages = values(&properties, "olm.package");
        let is_deprecated = properties.iter().any(|property| property.kind == "olm.deprecated");
        Self { name: name.into(), version: parse_tolerant(version), properties, apis, packages, is_deprecated }
    }

    /// Returns the name of its ClusterServiceVersion.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version.
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Returns the properties.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// Returns the APIs that it provides.
    pub fn apis(&self) -> &[Api] {
        &self.apis
    }

    /// Returns the packages that it declares to be part of; usually one.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.packages.iter().map(|package| package.package_name.as_str())
    }

    /// Returns the versions that its package properties declare, and its own.
    pub(crate) fn versions(&self) -> impl Iterator<Item = Version> {
        let declared = self.packages.iter().filter_map(|package| Version::parse(&package.version).ok());
        declared.chain(self.version.clone())
    }

    /// Returns true if it may no longer be installed.
    pub(crate) fn is_deprecated(&self) -> bool {
        self.is_deprecated
    }
}

/// Returns the values of all properties of a type that have the expected form.
fn values<T: for<'de> Deserialize<'de>>(properties: &[Property], kind: &str) -> Vec<T> {
    properties.iter().filter(|property| property.kind == kind).filter_map(Property::decode).collect()
}
