//! Documents of a file-based catalog, in the order of `opm render`.

use super::blob::{Blobs, BundleBlob, ChannelBlob, Deprecation, DeprecationsBlob, PackageBlob, RelatedImage};
use crate::bundle::Property;
use crate::document::json_value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A document of a catalog.
#[derive(Debug, Serialize)]
#[serde(tag = "schema")]
pub enum Rendering<'b> {
    /// A package.
    #[serde(rename = "olm.package")]
    Package(&'b PackageBlob),
    /// A channel.
    #[serde(rename = "olm.channel")]
    Channel(&'b ChannelBlob),
    /// A bundle.
    #[serde(rename = "olm.bundle")]
    Bundle(RenderedBundle<'b>),
    /// Deprecations.
    #[serde(rename = "olm.deprecations")]
    Deprecations(RenderedDeprecations<'b>),
    /// A document of another schema.
    #[serde(untagged)]
    Other(&'b Value),
}

/// A bundle with all its properties.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RenderedBundle<'b> {
    name: &'b str,
    package: &'b str,
    image: &'b str,
    properties: Vec<Property>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    related_images: &'b [RelatedImage],
}

/// Deprecations with their messages.
#[derive(Debug, Serialize)]
pub struct RenderedDeprecations<'b> {
    package: &'b str,
    entries: Vec<RenderedDeprecation<'b>>,
}

#[derive(Debug, Serialize)]
struct RenderedDeprecation<'b> {
    reference: &'b Deprecation,
    message: &'b str,
}

impl Blobs {
    /// Returns the documents, by package: the package, its channels, its bundles, documents of other schemas, its
    /// deprecations. Documents that belong to no package come last.
    pub fn documents(&self) -> impl Iterator<Item = Rendering<'_>> {
        let package_of = |other: &'_ Value| other["package"].as_str().unwrap_or_default().to_owned();
        let mut names: BTreeSet<String> = self.packages.iter().map(|package| package.name.clone()).collect();
        names.extend(self.channels.iter().map(|channel| channel.package.clone()));
        names.extend(self.bundles.iter().map(|bundle| bundle.package.clone()));
        names.extend(self.deprecations.iter().map(|deprecations| deprecations.package.clone()));
        names.extend(self.others.iter().map(package_of));
        let is_rootless = names.remove("");
        let names = names.into_iter().chain(is_rootless.then(String::new));
        let mut documents = Vec::new();
        let index = Index::new(self);
        for name in names {
            index.add(&name, &mut documents);
        }
        documents.into_iter()
    }
}

/// The blobs in the order of their packages and names.
struct Index<'b> {
    packages: Vec<(&'b str, &'b PackageBlob)>,
    channels: Vec<(&'b str, &'b ChannelBlob)>,
    bundles: Vec<(&'b str, &'b BundleBlob)>,
    deprecations: Vec<(&'b str, &'b DeprecationsBlob)>,
    others: Vec<(&'b str, &'b Value)>,
}

impl<'b> Index<'b> {
    fn new(blobs: &'b Blobs) -> Self {
        let mut index = Self {
            packages: blobs.packages.iter().map(|blob| (blob.name.as_str(), blob)).collect(),
            channels: blobs.channels.iter().map(|blob| (blob.package.as_str(), blob)).collect(),
            bundles: blobs.bundles.iter().map(|blob| (blob.package.as_str(), blob)).collect(),
            deprecations: blobs.deprecations.iter().map(|blob| (blob.package.as_str(), blob)).collect(),
            others: blobs.others.iter().map(|blob| (blob["package"].as_str().unwrap_or_default(), blob)).collect(),
        };
        index.packages.sort_by_key(|(package, _)| *package);
        index.channels.sort_by_key(|(package, blob)| (*package, blob.name.as_str()));
        index.bundles.sort_by_key(|(package, blob)| (*package, blob.name.as_str()));
        index.deprecations.sort_by_key(|(package, _)| *package);
        index.others.sort_by_key(|(package, blob)| (*package, blob["schema"].as_str()));
        index
    }

    fn add(&self, package: &str, documents: &mut Vec<Rendering<'b>>) {
        documents.extend(range(&self.packages, package).map(Rendering::Package));
        documents.extend(range(&self.channels, package).map(Rendering::Channel));
        documents.extend(range(&self.bundles, package).map(|blob| Rendering::Bundle(RenderedBundle::new(blob))));
        documents.extend(range(&self.others, package).map(Rendering::Other));
        let deprecations = range(&self.deprecations, package).map(RenderedDeprecations::new);
        documents.extend(deprecations.map(Rendering::Deprecations));
    }
}

/// Returns the blobs of a package in a sorted list.
fn range<'b, T>(sorted: &[(&'b str, &'b T)], package: &str) -> impl Iterator<Item = &'b T> {
    let start = sorted.partition_point(|(name, _)| *name < package);
    let end = sorted.partition_point(|(name, _)| *name <= package);
    sorted[start..end].iter().map(|(_, blob)| *blob)
}

impl<'b> RenderedBundle<'b> {
    fn new(blob: &'b BundleBlob) -> Self {
        let mut properties = blob.properties.clone();
        let metadata = blob.csv_metadata.iter().filter_map(|metadata| json_value(metadata));
        properties.extend(metadata.map(|value| Property::new("olm.csv.metadata", &value)));
        let data = blob.objects.iter().map(|object| json!({"data": STANDARD.encode(object.as_bytes())}));
        properties.extend(data.map(|value| Property::new("olm.bundle.object", &value)));
        let related_images = &blob.related_images;
        Self { name: &blob.name, package: &blob.package, image: &blob.image, properties, related_images }
    }
}

impl<'b> RenderedDeprecations<'b> {
    fn new(blob: &'b DeprecationsBlob) -> Self {
        let entries = blob.entries.iter();
        let entries = entries.map(|entry| RenderedDeprecation { reference: entry, message: &entry.message });
        Self { package: &blob.package, entries: entries.collect() }
    }
}
