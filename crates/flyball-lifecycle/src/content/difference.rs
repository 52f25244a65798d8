//! Differences of two catalogs, and the installed versions that lose their way to the newest one.

use super::package::{Channel, Package, PackageBundle, heads};
use super::{ChannelEntry, Content};
use crate::version::{VersionRange, parse_tolerant};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// The item is only in the new catalog.
    Added,
    /// The item is only in the old catalog.
    Removed,
    /// The item differs between the catalogs.
    Changed,
    /// The version was in a channel, and the new channel has no upgrade from it.
    Stranded,
}

/// A difference of two catalogs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The package.
    pub package: String,
    /// The channel, if it is one of a channel or of an entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The bundle, if it is one of a bundle or of an entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// The kind.
    pub change: Change,
    /// The fields that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// A field with another value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// The field.
    pub field: &'static str,
    /// The value in the old catalog; null if it has none.
    pub old: Value,
    /// The value in the new catalog; null if it has none.
    pub new: Value,
}

/// Returns the differences between two catalogs, by package: the package, its channels with their entries, its bundles.
pub fn differences(old: &Content, new: &Content) -> Vec<Difference> {
    let names: BTreeSet<&str> = old.packages().chain(new.packages()).map(|package| package.name.as_str()).collect();
    let mut found = Vec::new();
    for name in names {
        let mut differences = Differences { package: name, found: &mut found };
        match (old.package(name), new.package(name)) {
            (Some(old), Some(new)) => differences.package(old, new),
            (Some(_), None) => differences.add(None, None, Change::Removed, Vec::new()),
            (None, Some(_)) => differences.add(None, None, Change::Added, Vec::new()),
            (None, None) => {}
        }
    }
    found
}

/// The differences of a package.
struct Differences<'d> {
    package: &'d str,
    found: &'d mut Vec<Difference>,
}

impl Differences<'_> {
    fn add(&mut self, channel: Option<&str>, bundle: Option<&str>, change: Change, fields: Vec<FieldChange>) {
        self.found.push(Difference {
            package: self.package.to_owned(),
            channel: channel.map(str::to_owned),
            bundle: bundle.map(str::to_owned),
            change,
            fields,
        });
    }

    /// Adds a change if a field differs.
    fn compare(&mut self, channel: Option<&str>, bundle: Option<&str>, fields: Vec<Option<FieldChange>>) {
        let fields: Vec<FieldChange> = fields.into_iter().flatten().collect();
        if !fields.is_empty() {
            self.add(channel, bundle, Change::Changed, fields);
        }
    }

    fn package(&mut self, old: &Package, new: &Package) {
        self.compare(
            None,
            None,
            vec![
                field("defaultChannel", &old.default_channel, &new.default_channel),
                field("description", &old.description, &new.description),
                field("icon", &old.icon, &new.icon),
                field("deprecation", &old.deprecation, &new.deprecation),
            ],
        );
        let channels: BTreeSet<&String> = old.channels.keys().chain(new.channels.keys()).collect();
        for name in channels {
            match (old.channels.get(name), new.channels.get(name)) {
                (Some(before), Some(after)) => self.channel(before, after, old),
                (Some(_), None) => self.add(Some(name), None, Change::Removed, Vec::new()),
                (None, _) => self.add(Some(name), None, Change::Added, Vec::new()),
            }
        }
        let bundles: BTreeSet<&String> = old.bundles.keys().chain(new.bundles.keys()).collect();
        for name in bundles {
            match (old.bundles.get(name), new.bundles.get(name)) {
                (Some(before), Some(after)) => self.compare(None, Some(name), bundle_fields(before, after)),
                (Some(_), None) => self.add(None, Some(name), Change::Removed, Vec::new()),
                (None, _) => self.add(None, Some(name), Change::Added, Vec::new()),
            }
        }
    }

    fn channel(&mut self, old: &Channel, new: &Channel, old_package: &Package) {
        let name = Some(new.name.as_str());
        self.compare(
            name,
            None,
            vec![field("head", &old.head, &new.head), field("deprecation", &old.deprecation, &new.deprecation)],
        );
        let entries: BTreeSet<&str> = old.entries.iter().chain(&new.entries).map(|entry| entry.name.as_str()).collect();
        for entry in entries {
            match (old.entry(entry), new.entry(entry)) {
                (Some(before), Some(after)) => self.compare(name, Some(entry), entry_fields(before, after)),
                (Some(_), None) => self.add(name, Some(entry), Change::Removed, Vec::new()),
                (None, _) => self.add(name, Some(entry), Change::Added, Vec::new()),
            }
        }
        for entry in &old.entries {
            let version = old_package.bundles.get(&entry.name).map_or("", |bundle| bundle.version.as_str());
            let leads_on = |channel: &Channel| {
                let is_head = heads(&channel.entries).iter().any(|head| head.name == entry.name);
                is_head || has_upgrade(&channel.entries, &entry.name, version)
            };
            if leads_on(old) && !leads_on(new) {
                self.add(name, Some(&entry.name), Change::Stranded, Vec::new());
            }
        }
    }
}

/// Returns true if an entry directly upgrades a bundle.
fn has_upgrade(entries: &[ChannelEntry], name: &str, version: &str) -> bool {
    let version = parse_tolerant(version);
    entries.iter().filter(|entry| entry.name != name).any(|entry| {
        let includes = |range: VersionRange| version.as_ref().is_some_and(|version| range.includes(version));
        entry.replaces == name
            || entry.skips.iter().any(|skipped| skipped == name)
            || VersionRange::parse(&entry.skip_range).is_ok_and(includes)
    })
}

fn field<T: PartialEq + Serialize>(field: &'static str, old: &T, new: &T) -> Option<FieldChange> {
    (old != new).then(|| FieldChange { field, old: json!(old), new: json!(new) })
}

fn entry_fields(old: &ChannelEntry, new: &ChannelEntry) -> Vec<Option<FieldChange>> {
    vec![
        field("replaces", &old.replaces, &new.replaces),
        field("skips", &old.skips, &new.skips),
        field("skipRange", &old.skip_range, &new.skip_range),
    ]
}

fn bundle_fields(old: &PackageBundle, new: &PackageBundle) -> Vec<Option<FieldChange>> {
    let objects = |bundle: &PackageBundle| -> BTreeSet<String> {
        let parsed = bundle.objects().iter().filter_map(|object| serde_json::from_str::<Value>(object).ok());
        parsed.map(|object| object.to_string()).collect()
    };
    let names = |bundle: &PackageBundle, other: &PackageBundle| -> Vec<String> {
        let other = objects(other);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let differing = objects(bundle).into_iter().filter(|object| !other.contains(object));
        let parsed = differing.filter_map(|object| serde_json::from_str::<Value>(&object).ok());
        parsed.map(|object| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))).collect()
    };
    vec![
        field("version", &old.version, &new.version),
        field("image", &old.image, &new.image),
        field("properties", &old.properties(), &new.properties()),
        field("relatedImages", &old.related_images, &new.related_images),
        field("objects", &names(old, new), &names(new, old)),
        field("deprecation", &old.deprecation, &new.deprecation),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Blobs;

    const CHANNELS: &str = "{schema: olm.package, name: site, defaultChannel: stable}\n---\n\
        {schema: olm.channel, package: site, name: old, entries: [{name: v1}]}\n---\n\
        {schema: olm.channel, package: site, name: stable, entries: [\
        {name: v3, replaces: v2}, {name: v2, replaces: v1}, {name: v1}]}\n";

    /// Returns a catalog with three versions.
    fn old() -> String {
        let bundle = |number: usize| {
            let value = json!({"packageName": "site", "version": format!("{number}.0.0")});
            let properties = json!([{"type": "olm.package", "value": value}]);
            let (name, image) = (format!("v{number}"), format!("a:{number}"));
            json!({"schema": "olm.bundle", "package": "site", "name": name, "image": image, "properties": properties})
        };
        (1..=3).fold(CHANNELS.to_owned(), |text, number| format!("{text}---\n{}\n", bundle(number)))
    }

    fn content(text: &str) -> Content {
        let mut blobs = Blobs::default();
        blobs.add("catalog.yaml", text.as_bytes()).unwrap();
        Content::unchecked(blobs)
    }

    fn described(old: &str, new: &str) -> Vec<String> {
        let describe = |difference: &Difference| {
            let fields: Vec<_> = difference.fields.iter().map(|change| change.field).collect();
            let places = [&difference.channel, &difference.bundle].map(|place| place.as_deref().unwrap_or("-"));
            format!("{:?} {} {}", difference.change, places.join(" "), fields.join(",")).trim_end().to_owned()
        };
        differences(&content(old), &content(new)).iter().map(describe).collect()
    }

    #[test]
    fn differences_name_place_and_field() {
        assert_eq!(described(&old(), &old()), [""; 0]);
        let new = old()
            .replace("defaultChannel: stable", "defaultChannel: old")
            .replace("\"a:2\"", "\"a:2b\"")
            .replace("name: v2, replaces: v1", "name: v2, skipRange: '<2.0.0'");
        let expected = [
            "Changed - - defaultChannel",
            "Changed stable - head",
            "Changed stable v2 replaces,skipRange",
            "Changed - v2 image",
        ];
        assert_eq!(described(&old(), &new), expected);
        assert_eq!(described(&old(), ""), ["Removed - -"]);
        assert_eq!(described("", &old()), ["Added - -"]);
    }

    #[test]
    fn installed_versions_without_a_way_are_named() {
        let new =
            old().replace("{name: v3, replaces: v2}, {name: v2, replaces: v1}, {name: v1}", "{name: v3, replaces: v1}");
        let expected = ["Removed stable v1", "Removed stable v2", "Changed stable v3 replaces", "Stranded stable v2"];
        assert_eq!(described(&old(), &new), expected);
        let range = new.replace("name: v3, replaces: v1", "name: v3, replaces: v1, skipRange: '<3.0.0'");
        assert!(!described(&old(), &range).iter().any(|line| line.starts_with("Stranded")));
        // The former head, without a newer version that upgrades it.
        let restarted = old().replace("{name: v3, replaces: v2}, ", "");
        let found = described(&old(), &restarted);
        assert!(found.contains(&"Stranded stable v3".to_owned()), "{found:?}");
    }

    #[test]
    fn graphs_begin_with_the_head() {
        let text =
            old().replace("{name: v3, replaces: v2}", "{name: v3, replaces: v2, skips: [v1], skipRange: '<2.0.0'}");
        let content = content(&text);
        let graphs: Vec<_> = content.package("site").unwrap().graphs().collect();
        assert_eq!(
            graphs.iter().map(|graph| (&*graph.channel, graph.is_default)).collect::<Vec<_>>(),
            [("old", false), ("stable", true)]
        );
        let nodes: Vec<_> = graphs[1].nodes.iter().map(|node| (&*node.bundle, node.is_head, node.is_skipped)).collect();
        assert_eq!(nodes, [("v3", true, false), ("v2", false, false), ("v1", false, true)]);
        let edges: Vec<_> =
            graphs[1].edges.iter().map(|edge| format!("{}>{} {}", edge.from, edge.to, edge.field)).collect();
        assert_eq!(edges, ["v1>v2 replaces", "v1>v3 skipRange", "v1>v3 skips", "v2>v3 replaces"]);
    }
}
