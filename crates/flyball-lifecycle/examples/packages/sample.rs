//! Descriptions of published packages.

use flyball_lifecycle::parse_tolerant;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A package.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Package {
    #[serde(rename = "package")]
    pub(crate) name: String,
    #[serde(default)]
    update_graph: String,
    pub(crate) bundles: Vec<Bundle>,
}

/// A bundle.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bundle {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) channels: Vec<String>,
    #[serde(default)]
    pub(crate) replaces: String,
    #[serde(default)]
    pub(crate) skips: Vec<String>,
    #[serde(default)]
    pub(crate) skip_range: String,
    #[serde(default)]
    pub(crate) min_kube_version: String,
    pub(crate) install_modes: Vec<String>,
    #[serde(default)]
    pub(crate) webhooks: Vec<String>,
    /// APIs, as `group/version/Kind`.
    #[serde(default)]
    pub(crate) provided: Vec<String>,
    #[serde(default)]
    pub(crate) required: Vec<String>,
    /// The numbers of deployments, and of permissions in namespaces and in the cluster.
    pub(crate) install: [usize; 3],
}

/// An API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Api {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

impl Api {
    pub(crate) fn parse(text: &str) -> Self {
        let mut parts = text.splitn(3, '/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Self { group: next(), version: next(), kind: next() }
    }

    pub(crate) fn plural(&self) -> String {
        format!("{}s", self.kind.to_lowercase())
    }

    pub(crate) fn definition(&self) -> String {
        format!("{}.{}", self.plural(), self.group)
    }
}

impl Package {
    /// Reads all packages of a folder, by name.
    pub(crate) fn read_all(folder: &Path) -> Vec<Self> {
        let files = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let paths = files.map(|file| file.unwrap().path()).filter(|path| !path.ends_with("index.json"));
        let mut packages: Vec<Self> =
            paths.map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()).collect();
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        packages
    }

    pub(crate) fn channels(&self) -> BTreeSet<String> {
        self.bundles.iter().flat_map(|bundle| bundle.channels.clone()).collect()
    }

    /// Returns the bundles of a channel. In semver mode, each one replaces that of the version before; also in packages
    /// without a mode whose bundles form no chain: their replacements are in catalogs, which the samples do not contain.
    pub(crate) fn entries(&self, channel: &str) -> Vec<Bundle> {
        let is_in = |bundle: &&Bundle| bundle.channels.iter().any(|name| name == channel);
        let mut entries: Vec<Bundle> = self.bundles.iter().filter(is_in).cloned().collect();
        let has_no_chain = self.update_graph.is_empty() && ends(&entries).is_none();
        if self.update_graph == "semver-mode" || has_no_chain {
            entries.sort_by_key(|bundle| parse_tolerant(&bundle.version));
            let names: Vec<String> = entries.iter().map(|bundle| bundle.name.clone()).collect();
            for (at, bundle) in entries.iter_mut().enumerate() {
                bundle.replaces = at.checked_sub(1).map(|older| names[older].clone()).unwrap_or_default();
                bundle.skips.clear();
                bundle.skip_range.clear();
            }
        }
        entries
    }

    /// Returns all versions of each kind that a bundle of the package provides: CRDs keep them.
    pub(crate) fn versions(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for api in self.bundles.iter().flat_map(|bundle| &bundle.provided).map(|api| Api::parse(api)) {
            versions.entry(api.definition()).or_default().insert(api.version);
        }
        versions
    }
}

/// Returns the oldest and the newest entry of a channel, between which replacements lead; `None` if there is no single
/// newest one.
pub(crate) fn ends(entries: &[Bundle]) -> Option<(String, String)> {
    let by_name: BTreeMap<&str, &Bundle> = entries.iter().map(|bundle| (bundle.name.as_str(), bundle)).collect();
    let replaced: BTreeSet<&str> =
        entries.iter().flat_map(|bundle| bundle.skips.iter().chain([&bundle.replaces]).map(String::as_str)).collect();
    let heads: Vec<&str> = by_name.keys().copied().filter(|name| !replaced.contains(name)).collect();
    let [head] = heads[..] else { return None };
    let skipped: BTreeSet<&str> = entries.iter().flat_map(|bundle| bundle.skips.iter().map(String::as_str)).collect();
    let (mut oldest, mut current, mut seen) = (head, head, BTreeSet::new());
    while let Some(next) = by_name.get(by_name[current].replaces.as_str()).filter(|_| seen.insert(current)) {
        current = &next.name;
        // A skipped bundle is not installed.
        if !skipped.contains(current) {
            oldest = current;
        }
    }
    Some((oldest.to_owned(), head.to_owned()))
}
