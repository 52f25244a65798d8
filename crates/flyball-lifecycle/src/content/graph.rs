//! The graph of upgrades in the channels of a package.

use super::Package;
use crate::version::{VersionRange, parse_tolerant};
use serde::Serialize;
use std::collections::BTreeSet;

/// The graph of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelGraph {
    /// The package.
    pub package: String,
    /// The channel.
    pub channel: String,
    /// True for the default channel of the package.
    pub is_default: bool,
    /// The bundles, newest first.
    pub nodes: Vec<GraphNode>,
    /// The upgrades.
    pub edges: Vec<GraphEdge>,
}

/// A bundle in a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphNode {
    /// The name of the bundle.
    pub bundle: String,
    /// Its version; empty if it is in no bundle of the catalog.
    pub version: String,
    /// True for the newest bundle.
    pub is_head: bool,
    /// True if a newer bundle skips it, so that it is not installed.
    pub is_skipped: bool,
    /// True if the bundle, or its channel or package, is deprecated.
    pub is_deprecated: bool,
}

/// An edge of a graph of upgrades, from one bundle to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphEdge {
    /// The older bundle; it may be in another channel, or in none.
    pub from: String,
    /// The newer bundle.
    pub to: String,
    /// The field that permits the upgrade: `replaces`, `skips` or `skipRange`.
    pub field: &'static str,
}

impl Package {
    /// Returns the graphs of the channels, by name.
    pub fn graphs(&self) -> impl Iterator<Item = ChannelGraph> {
        self.channels.keys().map(|channel| self.graph(channel))
    }

    fn graph(&self, name: &str) -> ChannelGraph {
        let channel = &self.channels[name];
        let mut edges = BTreeSet::new();
        for entry in &channel.entries {
            let mut add = |from: &str, field| {
                edges.insert(GraphEdge { from: from.to_owned(), to: entry.name.clone(), field });
            };
            if !entry.replaces.is_empty() {
                add(&entry.replaces, "replaces");
            }
            entry.skips.iter().for_each(|skipped| add(skipped, "skips"));
            let Ok(range) = VersionRange::parse(&entry.skip_range) else { continue };
            let older = self.bundles.values().filter(|bundle| bundle.name() != entry.name);
            let is_included = |version: &str| parse_tolerant(version).is_some_and(|version| range.includes(&version));
            older.filter(|bundle| is_included(&bundle.version)).for_each(|bundle| add(bundle.name(), "skipRange"));
        }
        let skipped: BTreeSet<&str> =
            channel.entries.iter().flat_map(|entry| &entry.skips).map(String::as_str).collect();
        let node = |name: &str| {
            let bundle = self.bundles.get(name);
            let of_bundle = bundle.and_then(|bundle| bundle.deprecation.as_ref());
            GraphNode {
                bundle: name.to_owned(),
                version: bundle.map(|bundle| bundle.version.clone()).unwrap_or_default(),
                is_head: channel.head.as_deref() == Some(name),
                is_skipped: skipped.contains(name),
                is_deprecated: of_bundle.or(channel.deprecation.as_ref()).or(self.deprecation.as_ref()).is_some(),
            }
        };
        let mut nodes: Vec<GraphNode> = channel.entries.iter().map(|entry| node(&entry.name)).collect();
        // Versions decide, not the order of the file.
        nodes.sort_by_cached_key(|node| std::cmp::Reverse((node.is_head, parse_tolerant(&node.version))));
        ChannelGraph {
            package: self.name.clone(),
            channel: name.to_owned(),
            is_default: *name == self.default_channel,
            nodes,
            edges: edges.into_iter().collect(),
        }
    }
}
