//! Packages, their channels and bundles.

use super::blob::{Blobs, BundleBlob, ChannelBlob, ChannelEntry, Icon, RelatedImage};
use crate::bundle::{Bundle, Property};
use crate::document::json_value;
use crate::manifests::{CSV_KIND, InvalidManifests, Manifests};
use crate::version::{VersionRange, parse_tolerant};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A package of a catalog: the channels and bundles of one operator.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// The name.
    pub name: String,
    /// The default channel.
    pub default_channel: String,
    /// The picture.
    pub icon: Option<Icon>,
    /// The description.
    pub description: String,
    /// The channels, by name.
    pub channels: BTreeMap<String, Channel>,
    /// The bundles, by the name of their CSV.
    pub bundles: BTreeMap<String, PackageBundle>,
    /// The text for users, if the package is deprecated.
    pub deprecation: Option<String>,
}

/// A channel of a package.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    /// The name.
    pub name: String,
    /// The entries, in the order of the catalog.
    pub entries: Vec<ChannelEntry>,
    /// The name of the newest bundle; `None` if there is not exactly one that no other entry upgrades.
    pub head: Option<String>,
    /// The text for users, if the channel is deprecated.
    pub deprecation: Option<String>,
}

impl Channel {
    /// Returns true if an entry upgrades an installed version. As in OLM, entries that another one skips are never
    /// installed.
    pub fn has_upgrade(&self, installed: &str, version: &str) -> bool {
        let version = parse_tolerant(version);
        let is_skipped = |name: &String| self.entries.iter().any(|entry| entry.skips.contains(name));
        let upgrades = |entry: &ChannelEntry| {
            let range = VersionRange::parse(&entry.skip_range).ok().filter(|_| !entry.skip_range.is_empty());
            entry.name != installed
                && (entry.replaces == installed
                    || entry.skips.iter().any(|name| name == installed)
                    || range.zip(version.as_ref()).is_some_and(|(range, version)| range.includes(version)))
        };
        self.entries.iter().filter(|entry| upgrades(entry)).any(|entry| !is_skipped(&entry.name))
    }
}

/// A bundle of a package.
#[derive(Clone, Debug)]
pub struct PackageBundle {
    bundle: Arc<Bundle>,
    /// The version, as the package property declares it.
    pub version: String,
    /// The image; empty if the catalog contains the objects.
    pub image: String,
    /// Images that the bundle refers to.
    pub related_images: Vec<RelatedImage>,
    /// The text for users, if the bundle is deprecated.
    pub deprecation: Option<String>,
    csv_metadata: Option<Box<str>>,
    csv: Option<Box<str>>,
    objects: Vec<Box<str>>,
}

impl PackageBundle {
    fn new(blob: BundleBlob) -> Self {
        let of_package = blob.properties.iter().find(|property| property.kind == "olm.package");
        let value = of_package.map(Property::value).unwrap_or_default();
        let version = value["version"].as_str().unwrap_or_default().to_owned();
        let bundle = Arc::new(Bundle::new(blob.name, &version, blob.properties));
        let csv_metadata = blob.csv_metadata.into_iter().next();
        let (image, related_images, csv, objects) = (blob.image, blob.related_images, blob.csv, blob.objects);
        Self { bundle, version, image, related_images, deprecation: None, csv_metadata, csv, objects }
    }

    /// Returns the bundle as resolution needs it.
    pub fn bundle(&self) -> &Arc<Bundle> {
        &self.bundle
    }

    /// Returns the name of its CSV.
    pub fn name(&self) -> &str {
        self.bundle.name()
    }

    /// Returns its properties, without its objects and the metadata of its CSV.
    pub fn properties(&self) -> &[Property] {
        self.bundle.properties()
    }

    /// Returns the objects that the catalog contains, as JSON.
    pub fn objects(&self) -> &[Box<str>] {
        &self.objects
    }

    /// Parses the objects that the catalog contains; `None` if they are in the image.
    ///
    /// # Errors
    ///
    /// If the objects are not a bundle.
    pub fn manifests(&self) -> Option<Result<Manifests, InvalidManifests>> {
        if self.objects.is_empty() {
            return None;
        }
        Some(Manifests::parse(self.objects.iter().map(|object| object.as_bytes())))
    }

    /// Returns the CSV that the catalog contains, as JSON.
    fn whole_csv(&self) -> Option<Value> {
        let mut parsed = self.objects.iter().filter_map(|object| json_value(object));
        let described = || self.csv.as_ref().and_then(|csv| json_value(csv));
        parsed.find(|object| object["kind"] == CSV_KIND).or_else(described)
    }
}

impl Package {
    /// Returns the CSV of a bundle. If the catalog contains only its metadata, the rest is omitted; `None` if it does
    /// not contain even that.
    pub fn csv(&self, bundle: &PackageBundle) -> Option<Value> {
        bundle.whole_csv().or_else(|| {
            let metadata = json_value(bundle.csv_metadata.as_deref()?)?;
            Some(self.csv_of_metadata(bundle, metadata))
        })
    }

    /// Builds a CSV from the value of `olm.csv.metadata`, as operator-registry does.
    fn csv_of_metadata(&self, bundle: &PackageBundle, mut metadata: Value) -> Value {
        let mut spec = Map::new();
        for (from, to) in [
            ("apiServiceDefinitions", "apiservicedefinitions"),
            ("crdDescriptions", "customresourcedefinitions"),
            ("description", "description"),
            ("displayName", "displayName"),
            ("installModes", "installModes"),
            ("keywords", "keywords"),
            ("links", "links"),
            ("maintainers", "maintainers"),
            ("maturity", "maturity"),
            ("minKubeVersion", "minKubeVersion"),
            ("nativeAPIs", "nativeAPIs"),
            ("provider", "provider"),
        ] {
            match metadata.get_mut(from).map(Value::take) {
                None | Some(Value::Null) => {}
                Some(value) => drop(spec.insert(to.to_owned(), value)),
            }
        }
        if spec.get("description").is_none_or(|description| description == "") {
            spec.insert("description".into(), json!(self.description));
        }
        if let Some(icon) = &self.icon {
            spec.insert("icon".into(), json!([{"base64data": icon.data, "mediatype": icon.media_type}]));
        }
        spec.insert("install".into(), json!({"strategy": "deployment"}));
        spec.insert("version".into(), json!(bundle.version));
        if !bundle.related_images.is_empty() {
            spec.insert("relatedImages".into(), json!(bundle.related_images));
        }
        let mut fields = json!({"name": bundle.name()});
        for field in ["annotations", "labels"] {
            if let Some(value @ Value::Object(_)) = metadata.get_mut(field).map(Value::take) {
                fields[field] = value;
            }
        }
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": CSV_KIND, "metadata": fields, "spec": spec,
        })
    }
}

impl Channel {
    fn new(blob: ChannelBlob) -> Self {
        let head = head(&blob.entries).map(|entry| entry.name.clone());
        Self { name: blob.name, entries: blob.entries, head, deprecation: None }
    }

    /// Returns the name of the only entry that no other entry upgrades.
    pub(crate) fn head_of(entries: &[ChannelEntry]) -> Option<&str> {
        head(entries).map(|entry| entry.name.as_str())
    }

    /// Returns an entry.
    pub fn entry(&self, name: &str) -> Option<&ChannelEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// Returns the entries that no other entry upgrades.
pub(super) fn heads(entries: &[ChannelEntry]) -> Vec<&ChannelEntry> {
    let mut upgraded = BTreeSet::new();
    for entry in entries {
        upgraded.extend(entry.skips.iter().map(String::as_str));
        upgraded.extend(Some(entry.replaces.as_str()).filter(|replaces| !replaces.is_empty()));
    }
    entries.iter().filter(|entry| !upgraded.contains(entry.name.as_str())).collect()
}

fn head(entries: &[ChannelEntry]) -> Option<&ChannelEntry> {
    match heads(entries)[..] {
        [head] => Some(head),
        _ => None,
    }
}

/// Collects the packages of a catalog. Blobs of unknown packages are ignored.
pub(super) fn collect(blobs: Blobs) -> BTreeMap<String, Package> {
    let mut packages = BTreeMap::new();
    for blob in blobs.packages {
        let package = Package {
            name: blob.name.clone(),
            default_channel: blob.default_channel,
            icon: blob.icon,
            description: blob.description,
            ..Package::default()
        };
        packages.entry(blob.name).or_insert(package);
    }
    for blob in blobs.channels {
        if let Some(package) = packages.get_mut(&blob.package) {
            package.channels.entry(blob.name.clone()).or_insert_with(|| Channel::new(blob));
        }
    }
    for blob in blobs.bundles {
        if let Some(package) = packages.get_mut(&blob.package) {
            package.bundles.entry(blob.name.clone()).or_insert_with(|| PackageBundle::new(blob));
        }
    }
    for blob in blobs.deprecations {
        let Some(package) = packages.get_mut(&blob.package) else { continue };
        for entry in blob.entries {
            let message = Some(entry.message);
            match entry.schema.as_str() {
                "olm.package" => package.deprecation = message,
                "olm.channel" => {
                    package.channels.entry(entry.name).and_modify(|channel| channel.deprecation = message);
                }
                "olm.bundle" => {
                    package.bundles.entry(entry.name).and_modify(|bundle| bundle.deprecation = message);
                }
                _ => {}
            }
        }
    }
    packages
}
