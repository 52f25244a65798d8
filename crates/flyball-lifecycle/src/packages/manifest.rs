//! A PackageManifest: a package and the newest bundles of its channels, without what installs them.

use crate::catalog::CatalogKey;
use crate::content::{Channel, Package};
use crate::manifests::related_images;
use crate::version::parse_tolerant;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The group of the API.
pub const GROUP: &str = "packages.operators.coreos.com";
/// The version of the API.
pub const VERSION: &str = "v1";
/// The resource of packages.
pub(crate) const RESOURCE: &str = "packagemanifests";
/// Prefixes of labels with supported platforms, and the labels of bundles that have none.
const PLATFORMS: [(&str, &str); 2] = [
    ("operatorframework.io/os", "operatorframework.io/os.linux"),
    ("operatorframework.io/arch", "operatorframework.io/arch.amd64"),
];

/// A CatalogSource, as PackageManifests show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogSummary {
    /// Its namespace and name.
    pub key: CatalogKey,
    /// Its name for people.
    pub display_name: String,
    /// Its publisher.
    pub publisher: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its creation, in RFC 3339.
    pub created: String,
}

/// A package of a catalog.
#[derive(Clone, Debug)]
pub(super) struct PackageManifest {
    /// The object, without a namespace and without pictures.
    pub(super) object: Value,
    /// The picture: its media type, and its data in base64.
    pub(super) icon: Option<(String, String)>,
    /// The default channel and its newest bundle.
    pub(super) default: (String, String),
}

impl PackageManifest {
    /// Describes a package; `None` if no channel has a newest bundle.
    pub(super) fn new(catalog: &CatalogSummary, package: &Package) -> Option<Self> {
        let (mut channels, mut heads) = (Vec::new(), Vec::new());
        for channel in package.channels.values() {
            let head = channel.head.as_ref().and_then(|head| package.bundles.get(head));
            // As in OLM, a channel whose newest bundle has no description is omitted.
            let Some(csv) = head.and_then(|head| package.csv(head)) else { continue };
            channels.push(channel_value(package, channel, &csv));
            heads.push((channel.name.as_str(), csv));
        }
        let is_default = |(name, _): &&(&str, Value)| *name == package.default_channel;
        let (default_channel, csv) = heads.iter().find(is_default).or_else(|| heads.first())?;
        let mut status = json!({
            "catalogSource": catalog.key.name,
            "catalogSourceDisplayName": catalog.display_name,
            "catalogSourceNamespace": catalog.key.namespace,
            "catalogSourcePublisher": catalog.publisher,
            "channels": channels,
            "defaultChannel": default_channel,
            "packageName": package.name,
            "provider": link(&csv["spec"]["provider"]),
        });
        insert_deprecation(&mut status, package.deprecation.as_ref());
        let metadata = json!({
            "name": package.name, "creationTimestamp": catalog.created, "labels": labels(catalog, csv),
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let icon = &csv["spec"]["icon"][0];
        let icon = icon["base64data"].is_string().then(|| (text(&icon["mediatype"]), text(&icon["base64data"])));
        let default = ((*default_channel).to_owned(), text(&csv["metadata"]["name"]));
        Some(Self { object: json!({"metadata": metadata, "spec": {}, "status": status}), icon, default })
    }
}

/// Returns the labels: those of the catalog, those of the default CSV, and what they stand for.
fn labels(catalog: &CatalogSummary, csv: &Value) -> BTreeMap<String, String> {
    let mut labels = catalog.labels.clone();
    labels.insert("catalog".into(), catalog.key.name.clone());
    labels.insert("catalog-namespace".into(), catalog.key.namespace.clone());
    let provider = |field: &str| csv["spec"]["provider"][field].as_str().unwrap_or_default().to_owned();
    labels.insert("provider".into(), provider("name"));
    labels.insert("provider-url".into(), provider("url"));
    let own = csv["metadata"]["labels"].as_object().into_iter().flatten();
    labels.extend(own.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))));
    for (prefix, default) in PLATFORMS {
        if !labels.keys().any(|name| name.starts_with(prefix)) {
            labels.insert(default.into(), "supported".into());
        }
    }
    labels
}

fn insert_deprecation(value: &mut Value, message: Option<&String>) {
    if let Some(message) = message {
        value["deprecation"] = json!({"message": message});
    }
}

fn channel_value(package: &Package, channel: &Channel, csv: &Value) -> Value {
    let mut value = json!({
        "name": channel.name,
        "currentCSV": csv["metadata"]["name"],
        "currentCSVDesc": description(csv),
        "entries": entries(package, channel),
    });
    insert_deprecation(&mut value, channel.deprecation.as_ref());
    value
}

/// Returns the bundles of a channel, newest first.
fn entries(package: &Package, channel: &Channel) -> Vec<Value> {
    let bundles = channel.entries.iter().filter_map(|entry| package.bundles.get(&entry.name));
    let mut bundles: Vec<_> = bundles.filter(|bundle| !bundle.bundle().is_deprecated()).collect();
    bundles.sort_by_cached_key(|bundle| Reverse(parse_tolerant(&bundle.version)));
    let entry = |bundle: &&crate::content::PackageBundle| {
        let mut entry = json!({"name": bundle.name()});
        if !bundle.version.is_empty() {
            entry["version"] = json!(bundle.version);
        }
        insert_deprecation(&mut entry, bundle.deprecation.as_ref());
        entry
    };
    bundles.iter().map(entry).collect()
}

/// Returns the fields of an object that are set; empty ones are left out, as Go does.
fn without_empty(fields: &[(&str, Value)]) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let set = fields.iter().filter(|(_, value)| !is_empty(value));
    Value::Object(set.map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<Map<_, _>>())
}

fn link(value: &Value) -> Value {
    without_empty(&[("name", value["name"].clone()), ("url", value["url"].clone())])
}

/// Describes a CSV to people.
fn description(csv: &Value) -> Value {
    let spec = &csv["spec"];
    let each = |field: &str, of: fn(&Value) -> Value| -> Value {
        spec[field].as_array().into_iter().flatten().map(of).collect::<Vec<_>>().into()
    };
    let maintainer =
        |value: &Value| without_empty(&[("name", value["name"].clone()), ("email", value["email"].clone())]);
    let mut images: Vec<String> = related_images(csv, "").into_iter().map(|(_, image)| image).collect();
    images.dedup();
    let mut value = without_empty(&[
        ("annotations", csv["metadata"]["annotations"].clone()),
        ("description", spec["description"].clone()),
        ("displayName", spec["displayName"].clone()),
        ("installModes", spec["installModes"].clone()),
        ("keywords", spec["keywords"].clone()),
        ("links", each("links", link)),
        ("maintainers", each("maintainers", maintainer)),
        ("maturity", spec["maturity"].clone()),
        ("minKubeVersion", spec["minKubeVersion"].clone()),
        ("nativeApis", spec["nativeAPIs"].clone()),
        ("relatedImages", json!(images)),
    ]);
    // Go writes structs even if they are empty.
    let struct_of = |field: &str| if spec[field].is_object() { spec[field].clone() } else { json!({}) };
    value["apiservicedefinitions"] = struct_of("apiservicedefinitions");
    value["customresourcedefinitions"] = struct_of("customresourcedefinitions");
    value["provider"] = link(&spec["provider"]);
    value["version"] = json!(spec["version"].as_str().unwrap_or("0.0.0"));
    value
}
