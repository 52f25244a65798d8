//! Answers to the queries of the registry API, as operator-registry gives them.

use super::conversion;
use super::frame::{Code, GrpcError};
use super::messages::{self, GroupVersionKind};
use crate::bundle::Api;
use crate::content::{Channel, ChannelEntry, Content, Package, PackageBundle};

/// A bundle in a channel.
#[derive(Clone, Copy)]
struct Node<'c> {
    package: &'c Package,
    channel: &'c Channel,
    entry: &'c ChannelEntry,
    bundle: &'c PackageBundle,
}

impl Node<'_> {
    /// Returns the message, without the edges of the graph as most methods do.
    fn trimmed(self) -> messages::Bundle {
        messages::Bundle { replaces: String::new(), skips: Vec::new(), ..self.message() }
    }

    fn message(self) -> messages::Bundle {
        conversion::bundle(self.package, self.channel, self.entry, self.bundle)
    }

    fn edge(self, replaces: &str) -> messages::ChannelEntry {
        messages::ChannelEntry {
            package_name: self.package.name.clone(),
            channel_name: self.channel.name.clone(),
            bundle_name: self.entry.name.clone(),
            replaces: replaces.to_owned(),
        }
    }

    fn is_head(self) -> bool {
        self.channel.head.as_ref() == Some(&self.entry.name)
    }

    /// Returns the edges to the bundle that it replaces, and to those that it skips.
    fn edges(self, is_selected: impl Fn(&str) -> bool) -> Vec<messages::ChannelEntry> {
        let mut edges = vec![self.edge(&self.entry.replaces)];
        let skips = self.entry.skips.iter().filter(|skipped| **skipped != self.entry.replaces && is_selected(skipped));
        edges.extend(skips.map(|skipped| self.edge(skipped)));
        edges
    }

    fn provides(self, api: &GroupVersionKind) -> bool {
        let api = Api { group: api.group.clone(), version: api.version.clone(), kind: api.kind.clone() };
        self.bundle.bundle().apis().contains(&api)
    }
}

fn nodes_of<'c>(package: &'c Package, channel: &'c Channel) -> impl Iterator<Item = Node<'c>> {
    channel.entries.iter().filter_map(move |entry| {
        let bundle = package.bundles.get(&entry.name)?;
        Some(Node { package, channel, entry, bundle })
    })
}

fn nodes(content: &Content) -> impl Iterator<Item = Node<'_>> {
    content.packages().flat_map(|package| package.channels.values().flat_map(move |channel| nodes_of(package, channel)))
}

fn not_found(message: String) -> GrpcError {
    GrpcError::new(Code::Unknown, message)
}

fn channel<'c>(content: &'c Content, package: &str, channel: &str) -> Result<(&'c Package, &'c Channel), GrpcError> {
    let found = content.package(package).ok_or_else(|| not_found(format!("package {package:?} not found")))?;
    let missing = || not_found(format!("package {package:?}, channel {channel:?} not found"));
    Ok((found, found.channels.get(channel).ok_or_else(missing)?))
}

fn node<'c>(content: &'c Content, package: &str, channel_name: &str, name: &str) -> Result<Node<'c>, GrpcError> {
    let (found, in_channel) = channel(content, package, channel_name)?;
    let missing = || not_found(format!("package {package:?}, channel {channel_name:?}, bundle {name:?} not found"));
    nodes_of(found, in_channel).find(|node| node.entry.name == name).ok_or_else(missing)
}

pub(super) fn get_package(content: &Content, name: &str) -> Result<messages::Package, GrpcError> {
    let package = content.package(name).ok_or_else(|| not_found(format!("package {name:?} not found")))?;
    Ok(conversion::package(package))
}

pub(super) fn get_bundle(
    content: &Content,
    package: &str,
    channel: &str,
    name: &str,
) -> Result<messages::Bundle, GrpcError> {
    node(content, package, channel, name).map(Node::trimmed)
}

pub(super) fn get_bundle_for_channel(
    content: &Content,
    package: &str,
    name: &str,
) -> Result<messages::Bundle, GrpcError> {
    let (found, in_channel) = channel(content, package, name)?;
    let head = nodes_of(found, in_channel).find(|node| node.is_head());
    head.map(Node::trimmed).ok_or_else(|| not_found(format!("package {package:?}, channel {name:?} has no head")))
}

pub(super) fn entries_that_replace(content: &Content, name: &str) -> Result<Vec<messages::ChannelEntry>, GrpcError> {
    let mut entries = Vec::new();
    for node in nodes(content) {
        let is_replaced = node.entry.replaces == name;
        let skips = node.entry.skips.iter().filter(|skipped| *skipped == name && **skipped != node.entry.replaces);
        let count = usize::from(is_replaced) + skips.count();
        entries.extend((0..count).map(|_| node.edge(&node.entry.replaces)));
    }
    if entries.is_empty() {
        return Err(not_found(format!("no channel entries found that replace {name}")));
    }
    Ok(entries)
}

pub(super) fn bundle_that_replaces(
    content: &Content,
    name: &str,
    package: &str,
    channel_name: &str,
) -> Result<messages::Bundle, GrpcError> {
    let (found, in_channel) = channel(content, package, channel_name)?;
    let replaces = |node: &Node<'_>| node.entry.replaces == name || node.entry.skips.iter().any(|skip| skip == name);
    let missing = || not_found(format!("no entry found for package {package:?}, channel {channel_name:?}"));
    nodes_of(found, in_channel).find(replaces).map(Node::trimmed).ok_or_else(missing)
}

pub(super) fn entries_that_provide(
    content: &Content,
    api: &GroupVersionKind,
) -> Result<Vec<messages::ChannelEntry>, GrpcError> {
    let providers = nodes(content).filter(|node| node.provides(api));
    any(api, providers.flat_map(|node| node.edges(|_| true)).collect())
}

pub(super) fn latest_entries_that_provide(
    content: &Content,
    api: &GroupVersionKind,
) -> Result<Vec<messages::ChannelEntry>, GrpcError> {
    let providers = nodes(content).filter(|node| node.is_head() && node.provides(api));
    let edges = |node: Node<'_>| node.edges(|skipped| node.channel.entry(skipped).is_some());
    any(api, providers.flat_map(edges).collect())
}

fn any(api: &GroupVersionKind, entries: Vec<messages::ChannelEntry>) -> Result<Vec<messages::ChannelEntry>, GrpcError> {
    if entries.is_empty() {
        let GroupVersionKind { group, version, kind, .. } = api;
        let message =
            format!("no channel entries found that provide group:{group:?} version:{version:?} kind:{kind:?}");
        return Err(not_found(message));
    }
    Ok(entries)
}

pub(super) fn default_bundle_that_provides(
    content: &Content,
    api: &GroupVersionKind,
) -> Result<messages::Bundle, GrpcError> {
    let is_default = |node: &Node<'_>| node.is_head() && node.channel.name == node.package.default_channel;
    let provider = nodes(content).find(|node| is_default(node) && node.provides(api));
    let GroupVersionKind { group, version, kind, .. } = api;
    let missing =
        || not_found(format!("no entry found that provides group:{group:?} version:{version:?} kind:{kind:?}"));
    provider.map(Node::trimmed).ok_or_else(missing)
}

/// Returns the bundle at a position in the list of all bundles in all channels. The objects of bundles with an image
/// are omitted.
pub(super) fn listed_bundle(content: &Content, package: &str, at: usize) -> Option<messages::Bundle> {
    let package = content.package(package)?;
    let mut nodes = package.channels.values().flat_map(|channel| nodes_of(package, channel));
    let mut message = nodes.nth(at)?.message();
    if !message.bundle_path.is_empty() {
        message.csv_json.clear();
        message.object.clear();
    }
    Some(message)
}
