//! Walks through public catalogs: the bundle that OLM's resolver installs from each channel, and the next bundle after
//! each installed one. Dependencies were removed from the catalogs.

use flyball_lifecycle::{
    Bundle, Catalog, CatalogKey, Catalogs, Entry, Isolation, Property, Request, Subscription, VersionRange, resolve,
};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

#[derive(Deserialize)]
struct Walk {
    package: String,
    #[serde(default, rename = "defaultChannel")]
    default_channel: String,
    install: BTreeMap<String, Outcome>,
    upgrade: BTreeMap<String, BTreeMap<String, Option<Outcome>>>,
}

/// A result of OLM's resolver.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum Outcome {
    /// The channel and the name of the selected bundle.
    Chosen(String),
    Failed {
        error: String,
    },
}

/// The entries of one package.
struct Package {
    catalogs: Catalogs,
    bundles: BTreeMap<String, Arc<Bundle>>,
}

impl Package {
    fn new(entries: Vec<Entry>) -> Self {
        let bundles = entries.iter().map(|entry| (entry.bundle.name().to_owned(), entry.bundle.clone())).collect();
        Self { catalogs: Catalogs::new(vec![Catalog { key: key(), priority: 0, entries }]), bundles }
    }

    /// Resolves a Subscription to a channel, or to all for `(any)`.
    fn resolve(&self, package: &str, channel: &str, installed: Option<&str>) -> Option<Outcome> {
        let subscription = Subscription {
            name: "sub".to_owned(),
            catalog: key(),
            package: package.to_owned(),
            channel: (channel != "(any)").then(|| channel.to_owned()),
            starting_csv: None,
            installed_csv: installed.map(str::to_owned),
            versions: None,
            target: None,
        };
        let installed: Vec<_> = installed.iter().map(|name| self.bundles[*name].clone()).collect();
        let request = Request {
            namespace: "ns",
            catalogs: &self.catalogs,
            subscriptions: &[subscription],
            installed: &installed,
            isolation: Isolation::Namespace,
        };
        let resolution = resolve(&request);
        if let Some(failure) = resolution.failures.first() {
            return Some(Outcome::Failed { error: failure.explanation.to_string() });
        }
        let mut choices = resolution.choices.into_iter();
        let chosen = choices.next().map(|choice| Outcome::Chosen(format!("{}/{}", choice.channel, choice.name)));
        assert_eq!(choices.next(), None, "one bundle is selected");
        chosen
    }
}

fn key() -> CatalogKey {
    CatalogKey { namespace: "ns".to_owned(), name: "cat".to_owned() }
}

fn property(kind: &str, value: serde_json::Value) -> Property {
    Property::new(kind, &value)
}

/// Compares all steps, and returns their number.
fn check(walk: &Walk, package: &Package) -> usize {
    let mut count = 0;
    let mut check = |channel: &str, installed: Option<&str>, expected: Option<&Outcome>| {
        let actual = package.resolve(&walk.package, channel, installed);
        assert_eq!(actual.as_ref(), expected, "{} {channel} {installed:?}", walk.package);
        count += 1;
    };
    for (channel, expected) in &walk.install {
        check(channel, None, Some(expected));
    }
    for (channel, upgrades) in &walk.upgrade {
        for (installed, expected) in upgrades {
            check(channel, Some(installed), expected.as_ref());
        }
    }
    count
}

#[derive(Deserialize)]
struct BundlePackage {
    bundles: Vec<BundleOf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleOf {
    name: String,
    version: String,
    channels: Vec<String>,
    #[serde(default)]
    replaces: Option<String>,
    #[serde(default)]
    skips: Vec<String>,
    #[serde(default)]
    skip_range: String,
    #[serde(default)]
    provided: Vec<String>,
}

impl BundleOf {
    fn bundle(&self, package: &str) -> Arc<Bundle> {
        let of_api = |api: &String| {
            let mut parts = api.splitn(3, '/');
            let mut next = || parts.next().unwrap_or_default().to_owned();
            property("olm.gvk", json!({"group": next(), "version": next(), "kind": next()}))
        };
        let mut properties = vec![property("olm.package", json!({"packageName": package, "version": self.version}))];
        properties.extend(self.provided.iter().map(of_api));
        Arc::new(Bundle::new(&self.name, &self.version, properties))
    }
}

#[test]
fn walks_through_bundles_are_those_of_olm() {
    let walks: Vec<Walk> = serde_json::from_str(include_str!("../data/catalog-walks.json")).unwrap();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/catalog-sample");
    let mut steps = 0;
    for walk in &walks {
        let path = directory.join(format!("{}.json", walk.package));
        let package: BundlePackage = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let mut entries = Vec::new();
        for of in &package.bundles {
            let bundle = of.bundle(&walk.package);
            entries.extend(of.channels.iter().map(|channel| Entry {
                package: walk.package.clone(),
                channel: channel.clone(),
                is_default_channel: *channel == walk.default_channel,
                replaces: of.replaces.clone(),
                skips: of.skips.clone(),
                skip_range: VersionRange::parse(&of.skip_range).ok(),
                bundle: bundle.clone(),
            }));
        }
        steps += check(walk, &Package::new(entries));
    }
    assert_eq!(steps, 353);
}

#[derive(Deserialize)]
struct FileCatalog {
    package: FilePackage,
    channels: Vec<FileChannel>,
    bundles: Vec<FileBundle>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilePackage {
    name: String,
    default_channel: String,
}

#[derive(Deserialize)]
struct FileChannel {
    name: String,
    entries: Vec<FileEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileEntry {
    name: String,
    replaces: Option<String>,
    #[serde(default)]
    skips: Vec<String>,
    #[serde(default)]
    skip_range: String,
}

#[derive(Deserialize)]
struct FileBundle {
    name: String,
    properties: Vec<Property>,
}

impl FileBundle {
    fn bundle(&self) -> Arc<Bundle> {
        let version = self.properties.iter().find(|property| property.kind == "olm.package");
        let version = version.map(Property::value).unwrap_or_default();
        let version = version["version"].as_str().unwrap_or_default();
        let mut properties = self.properties.clone();
        properties.retain(|property| matches!(&*property.kind, "olm.package" | "olm.gvk"));
        Arc::new(Bundle::new(&self.name, version, properties))
    }
}

#[test]
fn walks_through_file_based_catalogs_are_those_of_olm() {
    let walks: Vec<Walk> = serde_json::from_str(include_str!("../data/fbc-walks.json")).unwrap();
    let catalogs: Vec<FileCatalog> = serde_json::from_str(include_str!("../data/fbc-sample.json")).unwrap();
    let mut steps = 0;
    for walk in &walks {
        let catalog = catalogs.iter().find(|catalog| catalog.package.name == walk.package).unwrap();
        let bundles: BTreeMap<&str, Arc<Bundle>> =
            catalog.bundles.iter().map(|bundle| (&*bundle.name, bundle.bundle())).collect();
        let mut entries = Vec::new();
        for channel in &catalog.channels {
            entries.extend(channel.entries.iter().map(|entry| Entry {
                package: walk.package.clone(),
                channel: channel.name.clone(),
                is_default_channel: channel.name == catalog.package.default_channel,
                replaces: entry.replaces.clone(),
                skips: entry.skips.clone(),
                skip_range: VersionRange::parse(&entry.skip_range).ok(),
                bundle: bundles[&*entry.name].clone(),
            }));
        }
        steps += check(walk, &Package::new(entries));
    }
    assert_eq!(steps, 491);
}
