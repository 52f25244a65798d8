//! The rules for file-based catalogs, as in operator-registry.
//!
//! See <https://olm.operatorframework.io/docs/reference/file-based-catalogs/#olm-defined-schemas>. Unlike `opm validate`,
//! all problems are reported.

use super::blob::{Blobs, BundleBlob, ChannelBlob, ChannelEntry, DeprecationsBlob, PackageBlob};
use super::package::heads;
use super::problem::{Problem, Problems};
use crate::bundle::Property;
use crate::image::ImageName;
use crate::version::VersionRange;
use flyball_core::names::dns_label;
use semver::{Prerelease, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum length of a release.
const MAX_RELEASE_BYTES: usize = 20;

/// The blobs of one package.
#[derive(Default)]
struct Group<'b> {
    packages: Vec<&'b PackageBlob>,
    channels: Vec<&'b ChannelBlob>,
    bundles: Vec<&'b BundleBlob>,
    deprecations: Vec<&'b DeprecationsBlob>,
}

/// Returns the violated rules.
pub(super) fn validate(blobs: &Blobs) -> Problems {
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for package in &blobs.packages {
        groups.entry(&package.name).or_default().packages.push(package);
    }
    for channel in &blobs.channels {
        groups.entry(&channel.package).or_default().channels.push(channel);
    }
    for bundle in &blobs.bundles {
        groups.entry(&bundle.package).or_default().bundles.push(bundle);
    }
    for deprecations in &blobs.deprecations {
        groups.entry(&deprecations.package).or_default().deprecations.push(deprecations);
    }
    let mut problems = Problems::default();
    for (name, group) in &groups {
        group.check(name, &mut problems);
    }
    problems
}

impl Group<'_> {
    fn check(&self, name: &str, problems: &mut Problems) {
        let mut problem = |why: String, remedy: &str| problems.push(Problem::of(name, why, remedy));
        if name.is_empty() {
            let of = |what: &str, names: Vec<&str>| names.first().map(|name| format!("{what} {name:?} has no package"));
            let channel = of("channel", self.channels.iter().map(|channel| channel.name.as_str()).collect());
            let bundle = of("bundle", self.bundles.iter().map(|bundle| bundle.name.as_str()).collect());
            let why = channel.or(bundle).unwrap_or_else(|| "a package has no name".to_owned());
            return problem(
                why,
                "set the field `package` of channels, bundles and deprecations, and `name` of packages",
            );
        }
        match self.packages[..] {
            [] => {
                let (channels, bundles) = (self.channels.len(), self.bundles.len());
                let why = format!("there are {channels} channels and {bundles} bundles, but no olm.package blob");
                return problem(why, "add the blob, or correct the field `package`");
            }
            [_] => {}
            _ => problem(format!("there are {} olm.package blobs", self.packages.len()), "remove all but one"),
        }
        for why in dns_label(name) {
            problem(format!("the name is invalid: {why}"), "rename the package");
        }
        let default = self.packages[0].default_channel.as_str();
        match default {
            "" => problem("there is no default channel".to_owned(), "set the field `defaultChannel` of olm.package"),
            default if self.channels.iter().all(|channel| channel.name != default) => {
                let why = format!("the default channel {default:?} does not exist");
                problem(why, "set the field `defaultChannel` of olm.package to one of its channels");
            }
            _ => {}
        }
        if self.channels.is_empty() {
            problem("there are no channels".to_owned(), "add an olm.channel blob with its bundles");
        }
        self.check_channels(name, problems);
        self.check_bundles(name, problems);
        self.check_versions(name, problems);
        self.check_deprecations(name, problems);
    }

    fn check_channels(&self, package: &str, problems: &mut Problems) {
        let known: BTreeSet<&str> = self.bundles.iter().map(|bundle| bundle.name.as_str()).collect();
        let mut names = BTreeSet::new();
        for channel in &self.channels {
            let mut problem =
                |why: String, remedy: &str| problems.push(Problem::of(package, why, remedy).channel(&channel.name));
            if channel.name.is_empty() {
                problem("the channel has no name".into(), "set the field `name` of olm.channel");
            }
            if !names.insert(&channel.name) {
                problem("there are several channels of this name".into(), "merge their entries into one olm.channel");
            }
            if channel.entries.is_empty() {
                problem("the channel has no entries".into(), "add a bundle to `entries`, or remove the channel");
            }
            let mut entries = BTreeSet::new();
            for entry in &channel.entries {
                if !entries.insert(&entry.name) {
                    problem(format!("the entry {:?} is listed twice", entry.name), "merge both entries into one");
                }
            }
            let missing: Vec<_> = entries.iter().filter(|name| !known.contains(name.as_str())).collect();
            if !missing.is_empty() {
                let why = format!("there are no olm.bundle blobs for the entries {}", list(missing));
                problem(why, "add the bundles, or remove the entries");
            }
            check_chain(channel, &mut problem);
            for entry in &channel.entries {
                let mut problem = |why: String, remedy: &str| {
                    problems.push(Problem::of(package, why, remedy).channel(&channel.name).bundle(&entry.name));
                };
                check_entry(entry, &mut problem);
            }
        }
    }

    fn check_bundles(&self, package: &str, problems: &mut Problems) {
        let in_channels: BTreeSet<&str> =
            self.channels.iter().flat_map(|channel| &channel.entries).map(|entry| entry.name.as_str()).collect();
        let mut names = BTreeSet::new();
        for bundle in &self.bundles {
            let mut problem =
                |why: String, remedy: &str| problems.push(Problem::of(package, why, remedy).bundle(&bundle.name));
            if !names.insert(&bundle.name) {
                problem("there are several bundles of this name".into(), "remove all but one");
            }
            if !in_channels.contains(bundle.name.as_str()) {
                problem("the bundle is in no channel".into(), "add it to the `entries` of a channel, or remove it");
            }
            if bundle.image.is_empty() && bundle.objects.is_empty() {
                problem("the bundle has neither an image nor objects".into(), "set the field `image`");
            }
            check_images(bundle, &mut problem);
            check_properties(package, bundle, &mut problem);
        }
    }

    /// Checks that no two bundles have the same version.
    fn check_versions(&self, package: &str, problems: &mut Problems) {
        let mut by_version: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for bundle in &self.bundles {
            let Some(property) = package_property(bundle) else { continue };
            let value = property.value();
            let text = |field: &str| value[field].as_str().unwrap_or_default();
            if let Ok(version) = Version::parse(text("version")) {
                let release = Some(text("release")).filter(|release| !release.is_empty());
                let version = release.map_or(version.to_string(), |release| format!("{version}-{release}"));
                by_version.entry(version).or_default().insert(&bundle.name);
            }
        }
        for (version, bundles) in by_version.iter().filter(|(_, bundles)| bundles.len() > 1) {
            let why = format!("the bundles {} have the same version {version}", list(bundles));
            problems.push(Problem::of(
                package,
                why,
                "give each bundle a version of its own in its olm.package property",
            ));
        }
    }

    fn check_deprecations(&self, package: &str, problems: &mut Problems) {
        let mut problem = |why: String, remedy: &str| problems.push(Problem::of(package, why, remedy));
        if self.deprecations.len() > 1 {
            problem("there are several olm.deprecations blobs".into(), "merge their entries into one");
        }
        let mut references = BTreeSet::new();
        for entry in self.deprecations.iter().flat_map(|blob| &blob.entries) {
            let (schema, name) = (entry.schema.as_str(), entry.name.as_str());
            if !references.insert((schema, name)) {
                problem(format!("{schema} {name:?} is deprecated twice"), "merge both messages");
            }
            let exists = match schema {
                "olm.package" if name.is_empty() => true,
                "olm.package" => {
                    let why = format!("the deprecation of the package has the name {name:?}");
                    problem(why, "remove the field `reference.name`");
                    continue;
                }
                "olm.channel" => self.channels.iter().any(|channel| channel.name == name),
                "olm.bundle" => self.bundles.iter().any(|bundle| bundle.name == name),
                _ => {
                    let why = format!("a deprecation has the unknown schema {schema:?}");
                    problem(why, "set `reference.schema` to olm.package, olm.channel or olm.bundle");
                    continue;
                }
            };
            if !exists {
                problem(format!("{schema} {name:?} is deprecated, but does not exist"), "remove the deprecation");
            }
            if entry.message.is_empty() {
                problem(format!("the deprecation of {schema} {name:?} has no message"), "set the field `message`");
            }
        }
    }
}

/// Reports a reason and a remedy.
type Report<'r> = dyn FnMut(String, &str) + 'r;

/// Checks that the entries of a channel form one chain of replacements.
fn check_chain(channel: &ChannelBlob, problem: &mut Report<'_>) {
    let by_name: BTreeMap<&str, &ChannelEntry> =
        channel.entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let mut heads: Vec<_> = heads(&channel.entries).iter().map(|entry| entry.name.as_str()).collect();
    heads.sort_unstable();
    heads.dedup();
    let head = match heads[..] {
        [] if channel.entries.is_empty() => return,
        [] => {
            let why = "no entry is the head: each one is replaced or skipped by another".to_owned();
            return problem(why, "remove the `replaces` or `skips` that form a cycle");
        }
        [head] => head,
        _ => {
            let why = format!("several entries are heads: {}", list(&heads));
            return problem(why, "make the newest one replace or skip the others, so that one head remains");
        }
    };
    let skipped: BTreeSet<&str> = channel.entries.iter().flat_map(|entry| &entry.skips).map(String::as_str).collect();
    let (mut chain, mut reached) = (vec![head], BTreeSet::from([head]));
    let mut current = by_name.get(head);
    while let Some(entry) = current {
        let older = entry.replaces.as_str();
        if skipped.contains(older) || older.is_empty() {
            break;
        }
        chain.push(older);
        if !reached.insert(older) {
            let start = chain.iter().position(|name| *name == older).unwrap_or_default();
            let why = format!("the chain of replacements has a cycle: {}", chain[start..].join(" -> "));
            return problem(why, "correct the `replaces` of one of them");
        }
        current = by_name.get(older);
    }
    let stranded: Vec<_> = by_name.keys().filter(|name| !reached.contains(*name) && !skipped.contains(*name)).collect();
    if !stranded.is_empty() {
        let why = format!("from the head {head:?} there is no path to {}", list(stranded));
        problem(why, "add them to the chain by `replaces`, or to the `skips` of an entry of the chain");
    }
}

fn check_entry(entry: &ChannelEntry, problem: &mut Report<'_>) {
    if entry.name.is_empty() {
        problem("an entry has no name".to_owned(), "set the field `name` of the entry");
    }
    if let Some(index) = entry.skips.iter().position(String::is_empty) {
        problem(format!("skips[{index}] is empty"), "remove it");
    }
    if !entry.skip_range.is_empty()
        && let Err(error) = VersionRange::parse(&entry.skip_range)
    {
        problem(format!("skipRange is invalid: {error}"), "write a range such as >=1.0.0 <1.2.0");
    }
}

fn check_images(bundle: &BundleBlob, problem: &mut Report<'_>) {
    let related = bundle.related_images.iter().enumerate();
    let related = related.map(|(index, image)| (format!("relatedImages[{index}].image"), &image.image));
    for (field, image) in std::iter::once(("image".to_owned(), &bundle.image)).chain(related) {
        if !image.is_empty()
            && let Err(error) = image.parse::<ImageName>()
        {
            problem(format!("{field}: {error}"), "write an image such as quay.io/team/bundle:v1");
        }
    }
}

fn package_property(bundle: &BundleBlob) -> Option<&Property> {
    bundle.properties.iter().find(|property| property.kind == "olm.package")
}

fn check_properties(package: &str, bundle: &BundleBlob, problem: &mut Report<'_>) {
    for (index, property) in bundle.properties.iter().enumerate() {
        check_form(index, property, problem);
    }
    let count = bundle.properties.iter().filter(|property| property.kind == "olm.package").count();
    let Some(property) = package_property(bundle).filter(|_| count == 1) else {
        let why = format!("it has {count} properties of type olm.package");
        return problem(why, "give each bundle exactly one, with packageName and version");
    };
    let value = property.value();
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    if text("packageName") != package {
        let why = format!("its olm.package property names the package {:?}", text("packageName"));
        problem(why, "write the same package in the field `package` and in the property");
    }
    if let Err(error) = Version::parse(text("version")) {
        let why = format!("its version {:?} is invalid: {error}", text("version"));
        problem(why, "write a semantic version such as 1.2.3 in its olm.package property");
    }
    check_release(package, bundle, text("version"), text("release"), problem);
}

/// Checks the release of a bundle: a second version for builds of the same content.
fn check_release(package: &str, bundle: &BundleBlob, version: &str, release: &str, problem: &mut Report<'_>) {
    if release.is_empty() {
        return;
    }
    if release.len() > MAX_RELEASE_BYTES || Prerelease::new(release).is_err() {
        let why = format!("its release {release:?} is invalid");
        return problem(why, "write at most 20 letters, digits and dashes, separated by dots");
    }
    let Ok(version) = Version::parse(version) else { return };
    if !version.build.is_empty() {
        let why = format!("it has both build metadata in its version {version} and the release {release}");
        problem(why, "remove one of them");
    }
    let expected = format!("{package}-v{version}-{release}");
    if bundle.name != expected {
        problem(format!("a bundle with a release must be named {expected:?}"), "rename the bundle");
    }
}

/// Checks that the value of a property has the form of its type.
fn check_form(index: usize, property: &Property, problem: &mut Report<'_>) {
    let fields: &[&str] = match property.kind.as_str() {
        "olm.package" => &["packageName", "version", "release"],
        "olm.package.required" => &["packageName", "versionRange"],
        "olm.gvk" | "olm.gvk.required" => &["group", "version", "kind"],
        _ => return,
    };
    let (kind, value) = (&property.kind, property.value());
    if !value.is_object() {
        let why = format!("properties[{index}] ({kind}) is not an object");
        return problem(why, &format!("write an object with the fields {}", fields.join(", ")));
    }
    for field in fields {
        if !matches!(value[field], serde_json::Value::String(_) | serde_json::Value::Null) {
            problem(format!("properties[{index}] ({kind}).{field} is not a string"), "write a string");
        }
    }
}

/// Maximum number of names in a message.
const MAX_NAMES: usize = 20;

/// Joins names; after the first ones, the rest is counted.
fn list<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<T> = names.into_iter().collect();
    let shown: Vec<&str> = names.iter().take(MAX_NAMES).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
