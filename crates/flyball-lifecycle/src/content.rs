//! The content of a catalog: packages, their channels, and the bundles in them.
//!
//! It is parsed from a [file-based catalog](https://olm.operatorframework.io/docs/reference/file-based-catalogs/), or
//! converted from the older formats. Packages are independent: an invalid package is skipped and reported, the others
//! remain.

mod blob;
mod difference;
mod graph;
mod ignore;
mod legacy;
mod package;
mod problem;
mod render;
mod template;
mod validate;

pub use blob::{Blobs, BundleBlob, ChannelBlob, ChannelEntry, Deprecation, DeprecationsBlob, Icon, PackageBlob};
pub use blob::{InvalidBlob, RelatedImage};
pub use difference::{Change, Difference, FieldChange, differences};
pub use graph::{ChannelGraph, GraphEdge, GraphNode};
pub use legacy::{InvalidPackageFile, read_package_folder};
pub(crate) use legacy::{of_lists, package_file};
pub use package::{Channel, Package, PackageBundle};
pub use problem::{MAX_PROBLEMS, Problem, Problems};
pub use render::Rendering;
pub use template::{BasicTemplate, InvalidTemplate, SemverTemplate, Template};

use crate::catalog::{Catalog, CatalogKey, Entry};
use crate::version::VersionRange;
use std::collections::BTreeMap;

/// The content of a catalog.
#[derive(Clone, Debug, Default)]
pub struct Content {
    packages: BTreeMap<String, Package>,
    problems: Problems,
}

impl Content {
    /// Collects blobs, and skips invalid packages.
    pub fn new(blobs: Blobs) -> Self {
        let problems = validate::validate(&blobs);
        let mut content = Self::unchecked(blobs);
        content.packages.retain(|name, _| !problems.concern(name));
        Self { problems, ..content }
    }

    /// Collects blobs that a registry has checked already. Parts that refer to something unknown are ignored.
    pub fn unchecked(blobs: Blobs) -> Self {
        Self { packages: package::collect(blobs), problems: Problems::default() }
    }

    /// Returns the packages, by name.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.values()
    }

    /// Returns a package.
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.get(name)
    }

    /// Returns a bundle of a package, by the name of its CSV.
    pub fn bundle(&self, package: &str, name: &str) -> Option<&PackageBundle> {
        self.package(package)?.bundles.get(name)
    }

    /// Returns the problems of the skipped packages.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Returns the content as resolution needs it: one entry for each bundle in each channel.
    pub fn to_catalog(&self, key: CatalogKey, priority: i32) -> Catalog {
        let mut entries = Vec::new();
        for package in self.packages.values() {
            for channel in package.channels.values() {
                for entry in &channel.entries {
                    let Some(bundle) = package.bundles.get(&entry.name) else { continue };
                    entries.push(Entry {
                        package: package.name.clone(),
                        channel: channel.name.clone(),
                        is_default_channel: channel.name == package.default_channel,
                        replaces: Some(entry.replaces.clone()).filter(|replaces| !replaces.is_empty()),
                        skips: entry.skips.clone(),
                        skip_range: VersionRange::parse(&entry.skip_range).ok(),
                        bundle: bundle.bundle().clone(),
                    });
                }
            }
        }
        Catalog { key, priority, entries }
    }
}

#[cfg(test)]
mod tests;
