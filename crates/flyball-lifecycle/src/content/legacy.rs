//! Catalogs in the format before file-based catalogs: a package file that names the newest CSV of each channel, and the
//! CSVs and CRDs, in version folders or in a ConfigMap.
//!
//! The chain of a channel follows from the fields `replaces` and `skips` of the CSVs.

use super::blob::{Blobs, BundleBlob, ChannelBlob, ChannelEntry, Icon, PackageBlob, or_default};
use crate::document::{self, InvalidDocument};
use crate::files::Files;
use crate::manifests::{InvalidManifests, Manifests, bundle_properties};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Annotation of a CSV with the versions that it upgrades.
const SKIP_RANGE: &str = "olm.skipRange";

/// A package of the old format that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPackageFile {
    /// There is no package file.
    #[error("there is no package file; it has the fields packageName and channels")]
    NoPackage,
    /// A file is invalid.
    #[error("{file}: {source}")]
    File {
        /// The file.
        file: String,
        /// The reason.
        source: InvalidDocument,
    },
    /// The package file has another form.
    #[error("package file {file}: {why}")]
    Form {
        /// The file.
        file: String,
        /// The reason.
        why: String,
    },
    /// A channel names a CSV that does not exist.
    #[error("package {package:?}, channel {channel:?}: currentCSV {csv:?} does not exist; add its version folder")]
    NoCsv {
        /// The package.
        package: String,
        /// The channel.
        channel: String,
        /// The CSV.
        csv: String,
    },
    /// The objects of a version are not a bundle.
    #[error("package {package:?}, CSV {csv:?}: {source}")]
    Manifests {
        /// The package.
        package: String,
        /// The CSV.
        csv: String,
        /// The reason.
        source: Box<InvalidManifests>,
    },
}

/// A package file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PackageFile {
    package_name: String,
    #[serde(default, deserialize_with = "or_default")]
    channels: Vec<PackageFileChannel>,
    #[serde(default, deserialize_with = "or_default")]
    default_channel: String,
}

#[derive(Clone, Debug, Deserialize)]
struct PackageFileChannel {
    name: String,
    #[serde(rename = "currentCSV")]
    current_csv: String,
}

/// Reads a package in the old format: a package file, and a folder of manifests for each version.
///
/// # Errors
///
/// If a file is invalid, or a channel names a CSV that does not exist.
pub fn read_package_folder(files: &Files) -> Result<Blobs, InvalidPackageFile> {
    let (mut packages, mut folders): (Vec<_>, BTreeMap<&str, Vec<Value>>) = Default::default();
    for (path, content) in files.iter() {
        if ![".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end)) {
            continue;
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let documents = document::all(content);
        for document in documents.map_err(|source| InvalidPackageFile::File { file: path.to_owned(), source })? {
            match document.get("packageName") {
                Some(_) => packages.push(package_file(path, &document)?),
                None if document["kind"].is_string() => folders.entry(folder).or_default().push(document),
                None => {}
            }
        }
    }
    let package = packages.into_iter().next().ok_or(InvalidPackageFile::NoPackage)?;
    let mut bundles = Vec::new();
    for objects in folders.into_values() {
        let csv = objects.iter().find(|object| object["kind"] == crate::manifests::CSV_KIND);
        // A folder without a CSV is something else, such as tests.
        let Some(csv) = csv.and_then(|csv| csv["metadata"]["name"].as_str()).map(str::to_owned) else { continue };
        let manifests = Manifests::new(objects);
        let package = package.package_name.clone();
        let invalid = |source| InvalidPackageFile::Manifests { package, csv, source: Box::new(source) };
        bundles.push(manifests.map_err(invalid)?);
    }
    to_blobs(&package, bundles)
}

/// Decodes a package file.
pub(crate) fn package_file(file: &str, document: &Value) -> Result<PackageFile, InvalidPackageFile> {
    let invalid = |error: serde_json::Error| InvalidPackageFile::Form { file: file.to_owned(), why: error.to_string() };
    PackageFile::deserialize(document).map_err(invalid)
}

/// Collects the packages of an old catalog whose CSVs and CRDs are in two lists, as in ConfigMaps: each CSV is a bundle
/// with the CRDs that it owns. CSVs that no channel reaches are omitted.
pub(crate) fn of_lists(
    packages: &[PackageFile],
    csvs: &[Value],
    definitions: &[Value],
) -> Result<Blobs, InvalidPackageFile> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let definitions: BTreeMap<String, &Value> = definitions.iter().map(|object| (name(object), object)).collect();
    let csvs: BTreeMap<String, &Value> = csvs.iter().map(|object| (name(object), object)).collect();
    let mut blobs = Blobs::default();
    for package in packages {
        let mut bundles = Vec::new();
        for (csv_name, csv) in reached(package, &csvs) {
            let owned = csv["spec"]["customresourcedefinitions"]["owned"].as_array().into_iter().flatten();
            let owned: BTreeSet<&str> = owned.filter_map(|owned| owned["name"].as_str()).collect();
            let owned = owned.into_iter().filter_map(|owned| definitions.get(owned)).map(|owned| (*owned).clone());
            let manifests = Manifests::new(std::iter::once(csv.clone()).chain(owned).collect());
            let failed = |source| InvalidPackageFile::Manifests {
                package: package.package_name.clone(),
                csv: csv_name.to_owned(),
                source: Box::new(source),
            };
            bundles.push(manifests.map_err(failed)?);
        }
        blobs.append(to_blobs(package, bundles)?);
    }
    Ok(blobs)
}

/// Returns the CSVs that the channels of a package reach.
fn reached<'c>(package: &PackageFile, csvs: &BTreeMap<String, &'c Value>) -> BTreeMap<String, &'c Value> {
    let mut reached = BTreeMap::new();
    let mut next: Vec<String> = package.channels.iter().map(|channel| channel.current_csv.clone()).collect();
    while let Some(name) = next.pop() {
        let Some(csv) = csvs.get(&name).filter(|_| !reached.contains_key(&name)) else { continue };
        let entry = entry_of(csv);
        next.push(entry.replaces);
        next.extend(entry.skips);
        reached.insert(name, *csv);
    }
    reached
}

fn to_blobs(package: &PackageFile, bundles: Vec<Manifests>) -> Result<Blobs, InvalidPackageFile> {
    let name = &package.package_name;
    let by_name: BTreeMap<&str, &Manifests> = bundles.iter().map(|bundle| (bundle.name(), bundle)).collect();
    let (mut channels, mut used) = (Vec::new(), BTreeSet::new());
    for channel in &package.channels {
        if !by_name.contains_key(channel.current_csv.as_str()) {
            let (channel, csv) = (channel.name.clone(), channel.current_csv.clone());
            return Err(InvalidPackageFile::NoCsv { package: name.clone(), channel, csv });
        }
        let entries = entries(&channel.current_csv, &by_name);
        used.extend(entries.iter().map(|entry| entry.name.clone()));
        channels.push(ChannelBlob { name: channel.name.clone(), package: name.clone(), entries, ..Default::default() });
    }
    let default_channel = match (package.default_channel.as_str(), &package.channels[..]) {
        ("", [only]) => only.name.clone(),
        (default, _) => default.to_owned(),
    };
    let head = package.channels.iter().find(|channel| channel.name == default_channel);
    let head = head.and_then(|channel| by_name.get(channel.current_csv.as_str()));
    let text = |field: &str| head.and_then(|head| head.csv()["spec"][field].as_str()).unwrap_or_default().to_owned();
    let icon = head.and_then(|head| serde_json::from_value::<Icon>(head.csv()["spec"]["icon"][0].clone()).ok());
    let description = text("description");
    let package_blob = PackageBlob { name: name.clone(), default_channel, icon, description, properties: Vec::new() };
    let used = by_name.values().filter(|bundle| used.contains(bundle.name()));
    let bundles = used.map(|bundle| {
        let properties = bundle_properties(bundle, name, &[], &[]);
        BundleBlob::of_manifests(name, bundle, properties, "")
    });
    let bundles = bundles.collect();
    Ok(Blobs { packages: vec![package_blob], channels, bundles, ..Blobs::default() })
}

/// Returns the entries of a channel: its head, and the bundles that the entries replace or skip, as far as they exist.
fn entries(head: &str, bundles: &BTreeMap<&str, &Manifests>) -> Vec<ChannelEntry> {
    let (mut entries, mut seen, mut next) = (Vec::new(), BTreeSet::new(), vec![head.to_owned()]);
    while let Some(name) = next.pop() {
        let Some(bundle) = bundles.get(name.as_str()).filter(|_| seen.insert(name.clone())) else { continue };
        let entry = entry_of(bundle.csv());
        next.extend(entry.skips.iter().rev().cloned());
        next.push(entry.replaces.clone());
        entries.push(entry);
    }
    entries
}

fn entry_of(csv: &Value) -> ChannelEntry {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ChannelEntry {
        name: text(&csv["metadata"]["name"]),
        replaces: text(&csv["spec"]["replaces"]),
        skips: csv["spec"]["skips"].as_array().into_iter().flatten().map(text).collect(),
        skip_range: text(&csv["metadata"]["annotations"][SKIP_RANGE]),
    }
}
