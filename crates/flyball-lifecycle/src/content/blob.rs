//! Blobs: the documents of a file-based catalog, decoded but not checked.

use super::ignore::Ignore;
use crate::bundle::Property;
use crate::document::{self, InvalidDocument};
use crate::files::Files;
use crate::manifests::{BundleFolder, Manifests, csv_metadata, related_images};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Maximum memory of the decoded values of a catalog, in bytes.
const MAX_VALUE_BYTES: usize = 512 << 20;
/// Memory of a value or a key without its text, in bytes.
const NODE_BYTES: usize = 64;
/// Maximum size of the objects of one bundle, in bytes.
const MAX_OBJECT_BYTES: usize = 16 << 20;

/// A document that is not a blob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBlob {
    /// The file is invalid.
    #[error("{file}: {source}")]
    Document {
        /// The file.
        file: String,
        /// The reason.
        source: InvalidDocument,
    },
    /// A document has not the form of its schema.
    #[error("{file}: document {number}{schema}: {why}")]
    Form {
        /// The file.
        file: String,
        /// The position of the document, from 1.
        number: usize,
        /// The schema and the name, in parentheses.
        schema: String,
        /// The reason.
        why: String,
    },
}

impl From<InvalidDocument> for InvalidBlob {
    fn from(source: InvalidDocument) -> Self {
        Self::Document { file: String::new(), source }
    }
}

/// The picture of a package.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Icon {
    /// The picture, encoded with base64.
    #[serde(default, rename = "base64data", deserialize_with = "or_default")]
    pub data: String,
    /// Its media type.
    #[serde(default, rename = "mediatype", deserialize_with = "or_default")]
    pub media_type: String,
}

/// The blob `olm.package`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageBlob {
    /// The name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The default channel.
    #[serde(default, deserialize_with = "or_default")]
    pub default_channel: String,
    /// The picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<Icon>,
    /// The description.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Further properties.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<Property>,
}

/// A bundle in a channel.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelEntry {
    /// The name of the bundle.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The name of the bundle that it upgrades.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// Names of further bundles that it upgrades.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<String>,
    /// Versions that it upgrades.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub skip_range: String,
}

/// The blob `olm.channel`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ChannelBlob {
    /// The name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The package.
    #[serde(default, deserialize_with = "or_default")]
    pub package: String,
    /// The bundles.
    #[serde(default, deserialize_with = "or_default")]
    pub entries: Vec<ChannelEntry>,
    /// Further properties.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<Property>,
}

/// An image that a bundle refers to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct RelatedImage {
    /// The name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The image.
    #[serde(default, deserialize_with = "or_default")]
    pub image: String,
}

/// The blob `olm.bundle`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleBlob {
    /// The name of its CSV.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The package.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub package: String,
    /// The image of the bundle.
    #[serde(default, deserialize_with = "or_default")]
    pub image: String,
    /// The properties, without the two below.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<Property>,
    /// Images that the bundle refers to.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub related_images: Vec<RelatedImage>,
    /// The values of `olm.csv.metadata`, as JSON. They are large and rarely read.
    #[serde(skip)]
    pub csv_metadata: Vec<Box<str>>,
    /// The objects in `olm.bundle.object`, as JSON.
    #[serde(skip)]
    pub objects: Vec<Box<str>>,
    /// The CSV as a registry describes it, if the objects are in the image.
    #[serde(skip)]
    pub csv: Option<Box<str>>,
}

impl BundleBlob {
    /// Describes a bundle. Without an image, the blob contains the objects.
    pub fn of_folder(folder: &BundleFolder, image: &str) -> Self {
        Self::of_manifests(&folder.annotations.package, &folder.manifests, folder.properties(), image)
    }

    pub(super) fn of_manifests(package: &str, manifests: &Manifests, properties: Vec<Property>, image: &str) -> Self {
        let images = related_images(manifests.csv(), image);
        let mut blob = Self {
            name: manifests.name().to_owned(),
            package: package.to_owned(),
            image: image.to_owned(),
            properties,
            related_images: images.into_iter().map(|(name, image)| RelatedImage { name, image }).collect(),
            ..Self::default()
        };
        match image {
            "" => blob.objects = manifests.objects().map(|object| object.to_string().into()).collect(),
            _ => blob.csv_metadata = vec![csv_metadata(manifests.csv()).to_string().into()],
        }
        blob
    }
}

/// A deprecated package, channel or bundle.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Deprecation {
    /// The schema of the deprecated blob.
    #[serde(default, deserialize_with = "or_default")]
    pub schema: String,
    /// Its name; empty for the package.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The text for users.
    #[serde(skip)]
    pub message: String,
}

/// The blob `olm.deprecations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeprecationsBlob {
    /// The package.
    pub package: String,
    /// The deprecated parts.
    pub entries: Vec<Deprecation>,
}

/// The blobs of a catalog.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blobs {
    /// Packages.
    pub packages: Vec<PackageBlob>,
    /// Channels.
    pub channels: Vec<ChannelBlob>,
    /// Bundles.
    pub bundles: Vec<BundleBlob>,
    /// Deprecations.
    pub deprecations: Vec<DeprecationsBlob>,
    /// Documents of other schemas.
    pub others: Vec<Value>,
}

impl Blobs {
    /// Parses the files of a catalog, except for those that a file `.indexignore` excludes.
    ///
    /// # Errors
    ///
    /// If a file is not a stream of JSON or YAML, or a document has not the form of its schema.
    pub fn parse(files: &Files) -> Result<Self, InvalidBlob> {
        let ignore = Ignore::new(files);
        let (mut blobs, mut remaining) = (Self::default(), MAX_VALUE_BYTES);
        for (path, content) in files.iter().filter(|(path, _)| !ignore.excludes(path)) {
            blobs.add_within(path, content, &mut remaining)?;
        }
        Ok(blobs)
    }

    /// Parses a file, and adds its documents.
    ///
    /// # Errors
    ///
    /// See [`Blobs::parse`].
    pub fn add(&mut self, file: &str, content: &[u8]) -> Result<(), InvalidBlob> {
        let mut remaining = MAX_VALUE_BYTES;
        self.add_within(file, content, &mut remaining)
    }

    /// Adds the documents of a file while their values take no more than this memory.
    pub(super) fn add_within(&mut self, file: &str, content: &[u8], remaining: &mut usize) -> Result<(), InvalidBlob> {
        let mut number = 0;
        let added = document::for_each(content, |document| {
            number += 1;
            let schema = describe(&document);
            let form = |why| InvalidBlob::Form { file: file.to_owned(), number, schema, why };
            self.push(document, remaining).map_err(form)
        });
        added.map_err(|error| match error {
            InvalidBlob::Document { source, .. } => InvalidBlob::Document { file: file.to_owned(), source },
            error => error,
        })
    }

    /// Adds a document. Its text may be much smaller than its values, which are kept.
    fn push(&mut self, document: Value, remaining: &mut usize) -> Result<(), String> {
        let Some(schema) = document.get("schema").and_then(Value::as_str) else {
            return Err(
                "field schema is missing; it is olm.package, olm.channel, olm.bundle or olm.deprecations".into()
            );
        };
        // The large properties of a bundle are kept as text.
        if schema == "olm.bundle" {
            let bundle = bundle(document)?;
            let properties: usize = bundle.properties.iter().map(|property| property.text().len()).sum();
            charge(remaining, properties + NODE_BYTES * (bundle.properties.len() + bundle.related_images.len() + 1))?;
            self.bundles.push(bundle);
            return Ok(());
        }
        charge(remaining, memory_of(&document))?;
        match schema {
            "olm.package" => self.packages.push(decode(document)?),
            "olm.channel" => self.channels.push(decode(document)?),
            "olm.deprecations" => self.deprecations.push(deprecations(document)?),
            _ => self.others.push(document),
        }
        Ok(())
    }

    /// Adds the blobs of another catalog.
    pub fn append(&mut self, other: Self) {
        self.packages.extend(other.packages);
        self.channels.extend(other.channels);
        self.bundles.extend(other.bundles);
        self.deprecations.extend(other.deprecations);
        self.others.extend(other.others);
    }
}

/// Takes memory from the rest that may be used.
fn charge(remaining: &mut usize, bytes: usize) -> Result<(), String> {
    let rest = remaining.checked_sub(bytes);
    *remaining = rest.ok_or_else(|| format!("the values of the catalog take more than {MAX_VALUE_BYTES} bytes"))?;
    Ok(())
}

/// Returns the estimated memory of a value.
fn memory_of(value: &Value) -> usize {
    let content: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(memory_of).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| NODE_BYTES + key.len() + memory_of(value)).sum(),
        _ => 0,
    };
    NODE_BYTES + content
}

fn decode<T: for<'de> Deserialize<'de>>(document: Value) -> Result<T, String> {
    T::deserialize(document).map_err(|error| error.to_string())
}

/// Decodes null as the default, as Go does.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Returns the schema and the name of a document, in parentheses.
fn describe(document: &Value) -> String {
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
    match (text("schema"), text("name")) {
        ("", _) => String::new(),
        (schema, "") => format!(" ({schema})"),
        (schema, name) => format!(" ({schema} {name})"),
    }
}

fn bundle(mut document: Value) -> Result<BundleBlob, String> {
    #[derive(Deserialize)]
    struct Written {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        value: Value,
    }
    let listed = document.get_mut("properties").map(Value::take).unwrap_or_default();
    let listed: Option<Vec<Written>> = decode(listed)?;
    let mut bundle: BundleBlob = decode(document)?;
    let (mut properties, mut bytes) = (Vec::new(), 0);
    for (index, Written { kind, value }) in listed.unwrap_or_default().into_iter().enumerate() {
        match kind.as_str() {
            "olm.csv.metadata" => bundle.csv_metadata.push(value.to_string().into()),
            "olm.bundle.object" => {
                let object = object(&value).map_err(|why| format!("properties[{index}].value: {why}"))?;
                bytes += object.len();
                if bytes > MAX_OBJECT_BYTES {
                    return Err(format!("its objects have more than {MAX_OBJECT_BYTES} bytes; use a bundle image"));
                }
                bundle.objects.push(object);
            }
            _ => properties.push(Property::new(kind, &value)),
        }
    }
    bundle.properties = properties;
    Ok(bundle)
}

/// Returns the object in the value of `olm.bundle.object` as JSON.
fn object(value: &Value) -> Result<Box<str>, String> {
    let Some(data) = value.get("data").and_then(Value::as_str) else {
        return Err("field data is missing; objects in other files (ref) are not supported".into());
    };
    let bytes = STANDARD.decode(data).map_err(|error| format!("field data is not base64: {error}"))?;
    let object = document::one(&bytes).map_err(|error| format!("field data is not an object: {error}"))?;
    if object.is_object() { Ok(object.to_string().into()) } else { Err("field data is not an object".into()) }
}

fn deprecations(document: Value) -> Result<DeprecationsBlob, String> {
    #[derive(Deserialize)]
    struct Written {
        #[serde(default, deserialize_with = "or_default")]
        package: String,
        #[serde(default, deserialize_with = "or_default")]
        entries: Vec<WrittenEntry>,
    }
    #[derive(Default, Deserialize)]
    struct WrittenEntry {
        #[serde(default, deserialize_with = "or_default")]
        reference: Deprecation,
        #[serde(default, deserialize_with = "or_default")]
        message: String,
    }
    let Written { package, entries } = decode(document)?;
    let entries = entries.into_iter().map(|entry| Deprecation { message: entry.message, ..entry.reference });
    Ok(DeprecationsBlob { package, entries: entries.collect() })
}
