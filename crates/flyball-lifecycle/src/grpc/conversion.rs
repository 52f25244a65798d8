//! Conversion between the content of a catalog and messages.

use super::messages::{self, GroupVersionKind};
use crate::bundle::{Api, Property};
use crate::content::{
    Blobs, BundleBlob, Channel, ChannelBlob, ChannelEntry, Deprecation, DeprecationsBlob, Icon, Package, PackageBlob,
    PackageBundle,
};
use crate::document::json_value;
use crate::version::parse_tolerant;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the message of a package.
pub(super) fn package(package: &Package) -> messages::Package {
    let channel = |channel: &Channel| messages::Channel {
        name: channel.name.clone(),
        csv_name: channel.head.clone().unwrap_or_default(),
        deprecation: deprecation(channel.deprecation.as_ref()),
    };
    messages::Package {
        name: package.name.clone(),
        channels: package.channels.values().map(channel).collect(),
        default_channel_name: package.default_channel.clone(),
        deprecation: deprecation(package.deprecation.as_ref()),
    }
}

fn deprecation(message: Option<&String>) -> Option<messages::Deprecation> {
    message.map(|message| messages::Deprecation { message: message.clone() })
}

/// Returns the message of a bundle in a channel.
pub(super) fn bundle(
    package: &Package,
    channel: &Channel,
    entry: &ChannelEntry,
    bundle: &PackageBundle,
) -> messages::Bundle {
    let csv_json = package.csv(bundle).map(|csv| csv.to_string()).unwrap_or_default();
    let mut object: Vec<String> = bundle.objects().iter().map(ToString::to_string).collect();
    if object.is_empty() && !csv_json.is_empty() {
        object.push(csv_json.clone());
    }
    let apis =
        |kind: &'static str| bundle.properties().iter().filter(move |property| property.kind == kind).filter_map(api);
    let property =
        |property: &Property| messages::Property { r#type: property.kind.clone(), value: property.text().to_owned() };
    messages::Bundle {
        csv_name: bundle.name().to_owned(),
        package_name: package.name.clone(),
        channel_name: channel.name.clone(),
        csv_json,
        object,
        bundle_path: bundle.image.clone(),
        provided_apis: apis("olm.gvk").collect(),
        required_apis: apis("olm.gvk.required").collect(),
        version: bundle.version.clone(),
        skip_range: entry.skip_range.clone(),
        dependencies: bundle.properties().iter().filter_map(dependency).collect(),
        properties: bundle.properties().iter().map(property).collect(),
        replaces: entry.replaces.clone(),
        skips: entry.skips.clone(),
        deprecation: deprecation(bundle.deprecation.as_ref()),
    }
}

fn api(property: &Property) -> Option<GroupVersionKind> {
    let Api { group, version, kind } = property.decode()?;
    Some(GroupVersionKind { group, version, kind, plural: String::new() })
}

/// Returns the dependency of a property. Its types are those of the properties that satisfy it.
fn dependency(property: &Property) -> Option<messages::Dependency> {
    let (kind, value) = match property.kind.as_str() {
        "olm.gvk.required" => ("olm.gvk", property.value()),
        "olm.package.required" => {
            let value = property.value();
            let (name, range) = (&value["packageName"], &value["versionRange"]);
            ("olm.package", json!({"packageName": name, "version": range}))
        }
        _ => return None,
    };
    Some(messages::Dependency { r#type: kind.to_owned(), value: value.to_string() })
}

/// Collects the blobs of a catalog from the messages of its packages and of the bundles in all channels.
///
/// A registry has checked them; parts that do not fit together are left out later. The order of the messages does not
/// matter.
pub fn to_blobs(packages: Vec<messages::Package>, bundles: Vec<messages::Bundle>) -> Blobs {
    let mut blobs = Blobs::default();
    let mut deprecations: BTreeMap<String, BTreeSet<Deprecation>> = BTreeMap::new();
    let mut deprecate = |package: &str, schema: &str, name: &str, found: Option<messages::Deprecation>| {
        let Some(messages::Deprecation { message }) = found else { return };
        let entry = Deprecation { schema: schema.to_owned(), name: name.to_owned(), message };
        deprecations.entry(package.to_owned()).or_default().insert(entry);
    };
    let mut channels: BTreeMap<(String, String), Vec<ChannelEntry>> = BTreeMap::new();
    for package in packages {
        deprecate(&package.name, "olm.package", "", package.deprecation);
        for channel in package.channels {
            deprecate(&package.name, "olm.channel", &channel.name, channel.deprecation);
            channels.entry((package.name.clone(), channel.name)).or_default();
        }
        let default_channel = package.default_channel_name;
        blobs.packages.push(PackageBlob { name: package.name, default_channel, ..PackageBlob::default() });
    }
    let mut by_name: BTreeMap<(String, String), BundleBlob> = BTreeMap::new();
    for mut message in bundles {
        let (package, name) = (message.package_name.clone(), message.csv_name.clone());
        deprecate(&package, "olm.bundle", &name, message.deprecation.take());
        let (replaces, skips) = (std::mem::take(&mut message.replaces), std::mem::take(&mut message.skips));
        let skip_range = std::mem::take(&mut message.skip_range);
        let entry = ChannelEntry { name: name.clone(), replaces, skips, skip_range };
        channels.entry((package.clone(), std::mem::take(&mut message.channel_name))).or_default().push(entry);
        let blob = bundle_blob(message);
        match by_name.entry((package, name)) {
            std::collections::btree_map::Entry::Vacant(vacant) => drop(vacant.insert(blob)),
            // One of the messages may contain more than the others.
            std::collections::btree_map::Entry::Occupied(mut known) => {
                if known.get().csv.is_none() && known.get().objects.is_empty() {
                    known.insert(blob);
                }
            }
        }
    }
    for ((package, name), mut entries) in channels {
        let version = |entry: &ChannelEntry| {
            let bundle = by_name.get(&(package.clone(), entry.name.clone()));
            bundle.and_then(|bundle| version_of(&bundle.properties))
        };
        entries.sort_by_cached_key(|entry| (Reverse(version(entry)), entry.name.clone()));
        blobs.channels.push(ChannelBlob { name, package, entries, ..ChannelBlob::default() });
    }
    blobs.bundles = by_name.into_values().collect();
    let blob = |(package, entries): (_, BTreeSet<_>)| DeprecationsBlob { package, entries: Vec::from_iter(entries) };
    blobs.deprecations = deprecations.into_iter().map(blob).collect();
    describe_packages(&mut blobs);
    blobs
}

fn version_of(properties: &[Property]) -> Option<semver::Version> {
    let property = properties.iter().find(|property| property.kind == "olm.package")?;
    parse_tolerant(property.value()["version"].as_str()?)
}

fn bundle_blob(message: messages::Bundle) -> BundleBlob {
    let properties = if message.properties.is_empty() { old_properties(&message) } else { new_properties(&message) };
    let csv = Some(message.csv_json).filter(|csv| !csv.is_empty()).map(Into::into);
    // The objects of a bundle with an image are only its CSV.
    let objects = if message.bundle_path.is_empty() { message.object } else { Vec::new() };
    BundleBlob {
        name: message.csv_name,
        package: message.package_name,
        image: message.bundle_path,
        properties,
        csv,
        objects: objects.into_iter().map(Into::into).collect(),
        ..BundleBlob::default()
    }
}

fn new_properties(message: &messages::Bundle) -> Vec<Property> {
    let property = |property: &messages::Property| {
        let value = json_value(&property.value)?;
        Some(Property::new(&*property.r#type, &value))
    };
    message.properties.iter().filter_map(property).collect()
}

/// Returns the properties of a bundle of an old registry, which sends only APIs and dependencies.
fn old_properties(message: &messages::Bundle) -> Vec<Property> {
    let property = |kind: &str, value: Value| Property::new(kind, &value);
    let package = json!({"packageName": message.package_name, "version": message.version});
    let mut properties = vec![property("olm.package", package)];
    for (kind, apis) in [("olm.gvk", &message.provided_apis), ("olm.gvk.required", &message.required_apis)] {
        let value = |api: &GroupVersionKind| json!({"group": api.group, "version": api.version, "kind": api.kind});
        properties.extend(apis.iter().map(|api| property(kind, value(api))));
    }
    for dependency in message.dependencies.iter().filter(|dependency| dependency.r#type == "olm.package") {
        let Some(value) = json_value(&dependency.value) else { continue };
        let value = json!({"packageName": value["packageName"], "versionRange": value["version"]});
        properties.push(property("olm.package.required", value));
    }
    properties
}

/// Adds the pictures and descriptions of packages, which are only in the CSVs of their default channels.
fn describe_packages(blobs: &mut Blobs) {
    let channels: BTreeMap<_, _> =
        blobs.channels.iter().map(|channel| ((channel.package.as_str(), channel.name.as_str()), channel)).collect();
    let bundles: BTreeMap<_, _> =
        blobs.bundles.iter().map(|bundle| ((bundle.package.as_str(), bundle.name.as_str()), bundle)).collect();
    for package in &mut blobs.packages {
        let default_channel = (package.name.as_str(), package.default_channel.as_str());
        let Some(channel) = channels.get(&default_channel) else { continue };
        let Some(head) = Channel::head_of(&channel.entries) else { continue };
        let head = bundles.get(&(package.name.as_str(), head));
        let Some(csv) = head.and_then(|head| json_value(head.csv.as_deref()?)) else { continue };
        package.icon = Icon::deserialize(&csv["spec"]["icon"][0]).ok();
        package.description = csv["spec"]["description"].as_str().unwrap_or_default().to_owned();
    }
}
