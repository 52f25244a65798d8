//! The bundle that a ClusterExtension installs.
//!
//! It is the one with the highest version among those of the package, of the channels and of the range of versions. If
//! a version is installed, only those are candidates that directly upgrade it (`replaces`, `skips` or `skipRange`), and
//! itself. Deprecated bundles are chosen only if there are no others. See
//! <https://operator-framework.github.io/operator-controller/concepts/upgrade-support/>.

use crate::api::{CatalogFilter, UpgradeConstraintPolicy};
use crate::bundle::Bundle;
use crate::catalog::Entry;
use crate::content::{Content, Package, PackageBundle};
use crate::version::VersionRange;
use flyball_chart::{Constraints, Version};
use std::collections::{BTreeMap, BTreeSet};

/// A ClusterCatalog and its content.
#[derive(Clone, Copy)]
pub(super) struct CatalogView<'c> {
    pub(super) name: &'c str,
    pub(super) priority: i32,
    pub(super) content: &'c Content,
}

/// A bundle to install.
#[derive(Clone, Debug)]
pub(super) struct Chosen<'c> {
    pub(super) catalog: &'c str,
    pub(super) channel: &'c str,
    pub(super) bundle: &'c PackageBundle,
}

/// The reason why no bundle can be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectionError {
    #[error("spec.source.catalog.version {text:?} is not a range of versions: {why}")]
    Range { text: String, why: String },
    #[error("{prefix}no bundles found for package {package:?}{version}{channels}{remedy}")]
    None { prefix: String, package: String, version: String, channels: String, remedy: String },
    #[error(
        "found bundles for package {package:?} in multiple catalogs with the same priority {catalogs:?}: set \
         priorities, or select one of them by spec.source.catalog.selector"
    )]
    Ambiguous { package: String, catalogs: Vec<String> },
}

/// Selects a bundle.
pub(super) fn select<'c>(
    filter: &CatalogFilter,
    catalogs: &[CatalogView<'c>],
    installed: Option<&Bundle>,
) -> Result<Chosen<'c>, SelectionError> {
    let range = match filter.version.trim() {
        "" => None,
        text => Some(
            Constraints::parse(text)
                .map_err(|error| SelectionError::Range { text: filter.version.clone(), why: error.to_string() })?,
        ),
    };
    let candidates = |catalog: &CatalogView<'c>| -> Vec<Chosen<'c>> {
        let package = catalog.content.package(&filter.package_name);
        package.map(|package| of_package(catalog.name, package, filter, range.as_ref(), installed)).unwrap_or_default()
    };
    let mut found: Vec<(i32, Vec<Chosen<'c>>)> =
        catalogs.iter().map(|catalog| (catalog.priority, candidates(catalog))).collect();
    found.retain(|(_, candidates)| !candidates.is_empty());
    if found.iter().flat_map(|(_, candidates)| candidates).any(|chosen| !is_deprecated(chosen)) {
        found.iter_mut().for_each(|(_, candidates)| candidates.retain(|chosen| !is_deprecated(chosen)));
        found.retain(|(_, candidates)| !candidates.is_empty());
    }
    let Some(highest) = found.iter().map(|(priority, _)| *priority).max() else {
        return Err(none(filter, catalogs, installed));
    };
    found.retain(|(priority, _)| *priority == highest);
    if found.len() > 1 {
        let mut catalogs: Vec<String> = found.iter().map(|(_, candidates)| candidates[0].catalog.to_owned()).collect();
        catalogs.sort();
        return Err(SelectionError::Ambiguous { package: filter.package_name.clone(), catalogs });
    }
    let candidates = found.into_iter().flat_map(|(_, candidates)| candidates);
    let newest = candidates.max_by(|one, other| one.bundle.bundle().version().cmp(&other.bundle.bundle().version()));
    newest.ok_or_else(|| none(filter, catalogs, installed))
}

fn is_deprecated(chosen: &Chosen<'_>) -> bool {
    chosen.bundle.deprecation.is_some()
}

/// Returns the candidates of a package in a catalog.
fn of_package<'c>(
    catalog: &'c str,
    package: &'c Package,
    filter: &CatalogFilter,
    range: Option<&Constraints>,
    installed: Option<&Bundle>,
) -> Vec<Chosen<'c>> {
    let wanted: BTreeSet<&str> = filter.channels.iter().map(String::as_str).collect();
    let is_free = filter.upgrade_constraint_policy == UpgradeConstraintPolicy::SelfCertified;
    let mut candidates: BTreeMap<&str, Chosen<'c>> = BTreeMap::new();
    for channel in package.channels.values().filter(|of| wanted.is_empty() || wanted.contains(of.name.as_str())) {
        for entry in &channel.entries {
            let Some(bundle) = package.bundles.get(&entry.name) else { continue };
            let parsed = Version::parse(&bundle.version);
            if range.is_some_and(|range| !parsed.is_ok_and(|version| range.allow(&version))) {
                continue;
            }
            let leads_here = |installed: &Bundle| {
                let entry = Entry {
                    package: package.name.clone(),
                    channel: channel.name.clone(),
                    is_default_channel: false,
                    replaces: Some(entry.replaces.clone()).filter(|name| !name.is_empty()),
                    skips: entry.skips.clone(),
                    skip_range: VersionRange::parse(&entry.skip_range).ok(),
                    bundle: bundle.bundle().clone(),
                };
                installed.name() == bundle.name() || entry.upgrades(installed)
            };
            if is_free || installed.is_none_or(leads_here) {
                candidates.entry(bundle.name()).or_insert(Chosen { catalog, channel: &channel.name, bundle });
            }
        }
    }
    candidates.into_values().collect()
}

/// Returns the error about a selection without candidates.
fn none(filter: &CatalogFilter, catalogs: &[CatalogView<'_>], installed: Option<&Bundle>) -> SelectionError {
    let packages = || catalogs.iter().filter_map(|catalog| catalog.content.package(&filter.package_name));
    let version = |bundle: &Bundle| bundle.version().map(ToString::to_string).unwrap_or_default();
    let remedy = match (catalogs.is_empty(), packages().next(), installed) {
        (true, _, _) => {
            ": no ClusterCatalog is available; create one, or correct spec.source.catalog.selector".to_owned()
        }
        (_, None, _) => ": no ClusterCatalog has it; correct spec.source.catalog.packageName".to_owned(),
        (_, Some(_), Some(_)) => {
            ": set spec.source.catalog.upgradeConstraintPolicy: SelfCertified to ignore the upgrade paths of the \
             catalog"
                .to_owned()
        }
        (_, Some(package), None) => {
            let channels: Vec<&str> = package.channels.keys().map(String::as_str).collect();
            format!(": it has the channels {}", channels.join(", "))
        }
    };
    SelectionError::None {
        prefix: installed
            .map(|bundle| format!("error upgrading from currently installed version {:?}: ", version(bundle)))
            .unwrap_or_default(),
        package: filter.package_name.clone(),
        version: if filter.version.is_empty() {
            String::new()
        } else {
            format!(" matching version {:?}", filter.version)
        },
        channels: if filter.channels.is_empty() {
            String::new()
        } else {
            format!(" in channels {:?}", filter.channels)
        },
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Blobs;
    use crate::files::Files;

    fn content() -> Content {
        let bundle = |version: &str| {
            format!(
                "---\nschema: olm.bundle\npackage: p\nname: p.v{version}\nimage: quay.io/p:{version}\nproperties:\n\
                 - type: olm.package\n  value: {{packageName: p, version: {version}}}\n"
            )
        };
        let text = format!(
            "schema: olm.package\nname: p\ndefaultChannel: stable\n\
             ---\nschema: olm.channel\npackage: p\nname: stable\nentries:\n\
             - name: p.v1.0.0\n- name: p.v1.1.0\n  replaces: p.v1.0.0\n\
             - name: p.v2.0.0\n  replaces: p.v1.1.0\n  skipRange: '>=1.1.0 <2.0.0'\n\
             ---\nschema: olm.channel\npackage: p\nname: fast\nentries:\n\
             - name: p.v1.2.0\n  skips: [p.v1.0.0]\n{}{}{}{}",
            bundle("1.0.0"),
            bundle("1.1.0"),
            bundle("1.2.0"),
            bundle("2.0.0"),
        );
        let mut files = Files::default();
        files.insert("catalog.yaml", text.into_bytes()).unwrap();
        Content::new(Blobs::parse(&files).unwrap())
    }

    fn check(filter: CatalogFilter, installed: Option<&str>, expected: &str) {
        let content = content();
        let views = [CatalogView { name: "c", priority: 0, content: &content }];
        let installed = installed.map(|name| content.bundle("p", name).unwrap().bundle().clone());
        let filter = CatalogFilter { package_name: "p".into(), ..filter };
        let found = match select(&filter, &views, installed.as_deref()) {
            Ok(chosen) => chosen.bundle.name().to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{filter:?}");
    }

    #[test]
    fn highest_version_on_an_upgrade_path_is_chosen() {
        let filter = CatalogFilter::default;
        check(filter(), None, "p.v2.0.0");
        check(CatalogFilter { version: "~1.1".into(), ..filter() }, None, "p.v1.1.0");
        check(CatalogFilter { channels: vec!["fast".into()], ..filter() }, None, "p.v1.2.0");
        check(filter(), Some("p.v1.0.0"), "p.v1.2.0");
        check(CatalogFilter { channels: vec!["stable".into()], ..filter() }, Some("p.v1.0.0"), "p.v1.1.0");
        check(filter(), Some("p.v1.1.0"), "p.v2.0.0");
        check(filter(), Some("p.v2.0.0"), "p.v2.0.0");
        let back = CatalogFilter { version: "1.0.0".into(), ..filter() };
        check(
            back.clone(),
            Some("p.v2.0.0"),
            "error upgrading from currently installed version \"2.0.0\": no bundles found for package \"p\" matching \
             version \"1.0.0\": set spec.source.catalog.upgradeConstraintPolicy: SelfCertified to ignore the upgrade \
             paths of the catalog",
        );
        let policy = UpgradeConstraintPolicy::SelfCertified;
        check(CatalogFilter { upgrade_constraint_policy: policy, ..back }, Some("p.v2.0.0"), "p.v1.0.0");
        check(
            CatalogFilter { channels: vec!["slow".into()], ..filter() },
            None,
            "no bundles found for package \"p\" in channels [\"slow\"]: it has the channels fast, stable",
        );
    }

    #[test]
    fn priorities_decide_between_catalogs() {
        let content = content();
        let view = |name, priority| CatalogView { name, priority, content: &content };
        let filter = CatalogFilter { package_name: "p".into(), ..CatalogFilter::default() };
        let found = select(&filter, &[view("a", 0), view("b", 1)], None);
        assert_eq!(found.map(|chosen| chosen.catalog).ok(), Some("b"));
        let error = select(&filter, &[view("b", 0), view("a", 0)], None).unwrap_err();
        assert!(matches!(error, SelectionError::Ambiguous { catalogs, .. } if catalogs == ["a", "b"]));
    }
}
