//! Templates of catalogs: short documents from which a catalog is generated.
//!
//! A basic template is a catalog whose bundles are only named by their images. A semver template lists images by
//! maturity; its channels and upgrades follow from the versions of the bundles. The bundles are read by the caller.
//! See <https://olm.operatorframework.io/docs/reference/catalog-templates/>.

use super::blob::{Blobs, BundleBlob, ChannelBlob, ChannelEntry, PackageBlob, or_default};
use crate::bundle::Property;
use crate::document::{self, InvalidDocument};
use semver::Version;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const BASIC: &str = "olm.template.basic";
const SEMVER: &str = "olm.semver";

/// A template that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// The file is invalid.
    #[error(transparent)]
    Document(#[from] InvalidDocument),
    /// The template has another form.
    #[error("field {field}: {why}")]
    Form {
        /// The field.
        field: String,
        /// The reason.
        why: String,
    },
    /// A bundle was not read.
    #[error("bundle {reference:?} was not read")]
    Missing {
        /// Its reference in the template.
        reference: String,
    },
    /// A bundle does not fit the template.
    #[error("bundle {bundle:?}: {why}")]
    Bundle {
        /// The bundle.
        bundle: String,
        /// The reason.
        why: String,
    },
}

/// A template of a catalog.
#[derive(Clone, Debug, PartialEq)]
pub enum Template {
    /// A catalog whose bundles are named by their images.
    Basic(BasicTemplate),
    /// Bundles by maturity.
    Semver(SemverTemplate),
}

/// A catalog whose bundles are named by their images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BasicTemplate {
    /// References of the bundles, usually images.
    references: Vec<String>,
    /// Everything else.
    blobs: Blobs,
}

/// Bundles by maturity, from which channels such as `stable-v1.2` are generated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SemverTemplate {
    streams: Vec<Stream>,
    preferred: Option<Stream>,
    /// References by maturity, in the order of [`Maturity`].
    references: BTreeMap<Maturity, Vec<String>>,
}

/// The maturity of bundles, from which names of channels begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Maturity {
    Candidate,
    Fast,
    Stable,
}

/// The versions that share a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stream {
    Major,
    Minor,
}

impl Maturity {
    const ALL: [Self; 3] = [Self::Candidate, Self::Fast, Self::Stable];

    fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Fast => "fast",
            Self::Stable => "stable",
        }
    }
}

impl Stream {
    fn channel(self, maturity: Maturity, version: &Version) -> String {
        match self {
            Self::Major => format!("{}-v{}", maturity.name(), version.major),
            Self::Minor => format!("{}-v{}.{}", maturity.name(), version.major, version.minor),
        }
    }
}

impl Template {
    /// Reads a template; `None` if the document is something else.
    ///
    /// # Errors
    ///
    /// If the content is no document, or a template without the form that its schema requires.
    pub fn parse(content: &[u8]) -> Result<Option<Self>, InvalidTemplate> {
        let document = document::one(content)?;
        match schema_of(&document) {
            BASIC => basic(document).map(|template| Some(Self::Basic(template))),
            SEMVER => semver(document).map(|template| Some(Self::Semver(template))),
            _ => Ok(None),
        }
    }

    /// Returns the references of the bundles, each one once.
    pub fn references(&self) -> BTreeSet<&str> {
        match self {
            Self::Basic(template) => template.references.iter().map(String::as_str).collect(),
            Self::Semver(template) => template.references.values().flatten().map(String::as_str).collect(),
        }
    }

    /// Returns the catalog, with the bundles by their references.
    ///
    /// # Errors
    ///
    /// If a bundle is missing or does not fit the template.
    pub fn render(&self, bundles: &BTreeMap<String, BundleBlob>) -> Result<Blobs, InvalidTemplate> {
        match self {
            Self::Basic(template) => template.render(bundles),
            Self::Semver(template) => template.render(bundles),
        }
    }
}

fn schema_of(document: &Value) -> &str {
    let field = document.as_object().into_iter().flatten().find(|(name, _)| name.eq_ignore_ascii_case("schema"));
    field.and_then(|(_, value)| value.as_str()).unwrap_or_default()
}

fn invalid(field: impl Into<String>, why: impl Into<String>) -> InvalidTemplate {
    InvalidTemplate::Form { field: field.into(), why: why.into() }
}

fn find<'b>(bundles: &'b BTreeMap<String, BundleBlob>, reference: &str) -> Result<&'b BundleBlob, InvalidTemplate> {
    bundles.get(reference).ok_or_else(|| InvalidTemplate::Missing { reference: reference.to_owned() })
}

fn basic(mut document: Value) -> Result<BasicTemplate, InvalidTemplate> {
    let Some(Value::Array(entries)) = document.get_mut("entries").map(Value::take) else {
        return Err(invalid("entries", "it is missing; it lists packages, channels and images of bundles"));
    };
    let mut template = BasicTemplate::default();
    for (index, entry) in entries.into_iter().enumerate() {
        if entry["schema"] != "olm.bundle" {
            let text = entry.to_string();
            let added = template.blobs.add("template", text.as_bytes());
            added.map_err(|error| invalid(format!("entries[{index}]"), error.to_string()))?;
            continue;
        }
        // Anything else would be replaced by what is in the image.
        let other = entry.as_object().into_iter().flatten().find(|(name, _)| !["schema", "image"].contains(&&***name));
        let image = entry["image"].as_str().filter(|image| !image.is_empty());
        match (image, other) {
            (_, Some((other, _))) => {
                let why = "a bundle of a template has only an image: remove this field";
                return Err(invalid(format!("entries[{index}].{other}"), why));
            }
            (None, _) => return Err(invalid(format!("entries[{index}].image"), "it is missing")),
            (Some(image), None) => template.references.push(image.to_owned()),
        }
    }
    Ok(template)
}

impl BasicTemplate {
    fn render(&self, bundles: &BTreeMap<String, BundleBlob>) -> Result<Blobs, InvalidTemplate> {
        let mut blobs = self.blobs.clone();
        for reference in &self.references {
            blobs.bundles.push(find(bundles, reference)?.clone());
        }
        Ok(blobs)
    }
}

/// The document of a semver template, with keys in lower case: as in Go, their case has no meaning.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSemver {
    #[serde(rename = "schema")]
    _schema: String,
    #[serde(default, rename = "generatemajorchannels", deserialize_with = "or_default")]
    has_major: bool,
    #[serde(default, rename = "generateminorchannels", deserialize_with = "or_default")]
    has_minor: bool,
    #[serde(default, rename = "defaultchanneltypepreference", deserialize_with = "or_default")]
    preference: String,
    #[serde(default, deserialize_with = "or_default")]
    candidate: WrittenBundles,
    #[serde(default, deserialize_with = "or_default")]
    fast: WrittenBundles,
    #[serde(default, deserialize_with = "or_default")]
    stable: WrittenBundles,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBundles {
    #[serde(default, deserialize_with = "or_default")]
    bundles: Vec<WrittenBundle>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBundle {
    image: String,
}

fn with_lower_keys(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let lower = fields.into_iter().map(|(key, value)| (key.to_ascii_lowercase(), with_lower_keys(value)));
            lower.collect::<Map<String, Value>>().into()
        }
        Value::Array(list) => list.into_iter().map(with_lower_keys).collect(),
        other => other,
    }
}

fn semver(document: Value) -> Result<SemverTemplate, InvalidTemplate> {
    let written = WrittenSemver::deserialize(with_lower_keys(document));
    let written = written.map_err(|error| invalid("schema olm.semver", error.to_string()))?;
    let mut streams = Vec::new();
    streams.extend(written.has_major.then_some(Stream::Major));
    // Minor channels, unless another choice is made.
    streams.extend((written.has_minor || !written.has_major).then_some(Stream::Minor));
    let preferred = match written.preference.as_str() {
        "" => streams.last().copied(),
        "major" => Some(Stream::Major),
        "minor" => Some(Stream::Minor),
        other => return Err(invalid("DefaultChannelTypePreference", format!("{other:?} is neither major nor minor"))),
    };
    if preferred.is_some_and(|preferred| !streams.contains(&preferred)) {
        let why = format!(
            "no {} channels are generated: set GenerateMajorChannels or GenerateMinorChannels",
            written.preference
        );
        return Err(invalid("DefaultChannelTypePreference", why));
    }
    let references = |written: WrittenBundles| written.bundles.into_iter().map(|bundle| bundle.image).collect();
    let all = [written.candidate, written.fast, written.stable].map(references);
    let references: BTreeMap<Maturity, Vec<String>> = Maturity::ALL.into_iter().zip(all).collect();
    if references.values().all(Vec::is_empty) {
        return Err(invalid("Candidate, Fast, Stable", "there is no bundle; list images below Bundles"));
    }
    Ok(SemverTemplate { streams, preferred, references })
}

/// A bundle of a maturity.
struct Versioned<'b> {
    version: Version,
    blob: &'b BundleBlob,
}

impl SemverTemplate {
    fn render(&self, bundles: &BTreeMap<String, BundleBlob>) -> Result<Blobs, InvalidTemplate> {
        let (mut package, mut channels) = (None, BTreeMap::new());
        let mut default: Option<(Maturity, Version, bool, Stream, String)> = None;
        let mut used = BTreeMap::new();
        for (maturity, references) in &self.references {
            let versions = versions(references, bundles, &mut package)?;
            used.extend(versions.iter().map(|of| (of.blob.name.clone(), of.blob)));
            for stream in &self.streams {
                for of in &versions {
                    let name = stream.channel(*maturity, &of.version);
                    if !channels.contains_key(&name) {
                        // As in operator-registry: a channel counts by its oldest bundle.
                        let is_preferred = self.preferred == Some(*stream);
                        let rank = (*maturity, of.version.clone(), is_preferred, *stream, name.clone());
                        default = default.max(Some(rank));
                    }
                    let entries: &mut Vec<ChannelEntry> = channels.entry(name).or_default();
                    entries.push(ChannelEntry { name: of.blob.name.clone(), ..ChannelEntry::default() });
                }
                link(&versions, *maturity, *stream, &mut channels);
            }
        }
        let package: String = package.unwrap_or_default();
        let default_channel = default.map(|(.., name)| name).unwrap_or_default();
        let channel =
            |(name, entries)| ChannelBlob { name, package: package.clone(), entries, ..ChannelBlob::default() };
        Ok(Blobs {
            channels: channels.into_iter().map(channel).collect(),
            packages: vec![PackageBlob { name: package.clone(), default_channel, ..PackageBlob::default() }],
            bundles: used.into_values().cloned().collect(),
            ..Blobs::default()
        })
    }
}

/// Returns the bundles of a maturity, oldest first. All bundles are of one package.
fn versions<'b>(
    references: &[String],
    bundles: &'b BTreeMap<String, BundleBlob>,
    package: &mut Option<String>,
) -> Result<Vec<Versioned<'b>>, InvalidTemplate> {
    let mut found: Vec<Versioned<'b>> = Vec::new();
    for reference in references {
        let blob = find(bundles, reference)?;
        let failed = |why: String| InvalidTemplate::Bundle { bundle: blob.name.clone(), why };
        let property = blob.properties.iter().find(|property| property.kind == "olm.package");
        let value = property.map(Property::value).unwrap_or_default();
        let text = value["version"].as_str().unwrap_or_default();
        let version =
            Version::parse(text).map_err(|error| failed(format!("its version {text:?} is invalid: {error}")))?;
        let known = package.get_or_insert_with(|| blob.package.clone());
        if *known != blob.package {
            return Err(failed(format!("it is of package {:?}, others are of {known:?}", blob.package)));
        }
        if found.iter().any(|other| other.blob.name == blob.name) {
            return Err(failed("it is listed twice in a maturity".to_owned()));
        }
        let without_build = |version: &Version| Version { build: Default::default(), ..version.clone() };
        if let Some(other) = found.iter().find(|other| without_build(&other.version) == without_build(&version)) {
            let why = format!(
                "its version {version} differs from {} only by build metadata, which has no order",
                other.version
            );
            return Err(failed(why));
        }
        found.push(Versioned { version, blob });
    }
    found.sort_by(|one, other| one.version.cmp(&other.version));
    Ok(found)
}

/// Adds the upgrades of a maturity: the newest bundle of each minor version replaces that of the minor version before,
/// and skips all other older ones of the major version.
fn link(
    versions: &[Versioned<'_>],
    maturity: Maturity,
    stream: Stream,
    channels: &mut BTreeMap<String, Vec<ChannelEntry>>,
) {
    for major in versions.chunk_by(|one, other| one.version.major == other.version.major) {
        let (mut before, mut older): (Option<&str>, BTreeSet<&str>) = Default::default();
        for minor in major.chunk_by(|one, other| one.version.minor == other.version.minor) {
            let Some((newest, rest)) = minor.split_last() else { continue };
            older.extend(rest.iter().map(|of| of.blob.name.as_str()));
            let entries = channels.get_mut(&stream.channel(maturity, &newest.version));
            let entry = entries.into_iter().flatten().find(|entry| entry.name == newest.blob.name);
            if let Some(entry) = entry {
                entry.replaces = before.unwrap_or_default().to_owned();
                entry.skips =
                    older.iter().filter(|name| Some(**name) != before).map(|name| (*name).to_owned()).collect();
            }
            before = Some(&newest.blob.name);
            older.insert(&newest.blob.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use serde_json::json;

    fn bundles(names: &[(&str, &str)]) -> BTreeMap<String, BundleBlob> {
        let blob = |(package, version): &(&str, &str)| {
            let value = json!({"packageName": package, "version": version});
            let blob = BundleBlob {
                name: format!("{package}.v{version}"),
                package: (*package).to_owned(),
                image: format!("quay.io/x/{package}:{version}"),
                properties: vec![Property::new("olm.package", &value)],
                ..BundleBlob::default()
            };
            (format!("{package}:{version}"), blob)
        };
        names.iter().map(blob).collect()
    }

    fn render(template: &str, bundles: &BTreeMap<String, BundleBlob>) -> Result<Blobs, InvalidTemplate> {
        Template::parse(template.as_bytes())?.expect("it is a template").render(bundles)
    }

    /// Returns each entry with its upgrades, by channel.
    fn described(blobs: &Blobs) -> Vec<String> {
        let entry = |entry: &ChannelEntry| {
            let name = entry.name.trim_start_matches("site.v");
            let older = |name: &String| name.trim_start_matches("site.v").to_owned();
            let skips: Vec<String> = entry.skips.iter().map(older).collect();
            match (entry.replaces.as_str(), &skips[..]) {
                ("", []) => name.to_owned(),
                (_, []) => format!("{name}>{}", older(&entry.replaces)),
                _ => format!("{name}>{}({})", older(&entry.replaces), skips.join(" ")),
            }
        };
        let channel = |channel: &ChannelBlob| {
            format!("{}: {}", channel.name, channel.entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        };
        blobs.channels.iter().map(channel).collect()
    }

    const SEMVER: &str = "Schema: olm.semver\nGenerateMajorChannels: true\nGenerateMinorChannels: true\n\
        Candidate:\n  Bundles:\n  - Image: site:1.0.0\n  - Image: site:1.0.1\n  - Image: site:1.1.0\n\
        Stable:\n  Bundles:\n  - {Image: 'site:1.1.0'}\n  - {Image: 'site:1.0.1'}\n  - {Image: 'site:2.0.0'}\n";

    #[test]
    fn channels_follow_from_versions() {
        let all = bundles(&[("site", "1.0.0"), ("site", "1.0.1"), ("site", "1.1.0"), ("site", "2.0.0")]);
        let blobs = render(SEMVER, &all).unwrap();
        let expected = [
            "candidate-v1: 1.0.0, 1.0.1>(1.0.0), 1.1.0>1.0.1(1.0.0)",
            "candidate-v1.0: 1.0.0, 1.0.1>(1.0.0)",
            "candidate-v1.1: 1.1.0>1.0.1(1.0.0)",
            "stable-v1: 1.0.1, 1.1.0>1.0.1",
            "stable-v1.0: 1.0.1",
            "stable-v1.1: 1.1.0>1.0.1",
            "stable-v2: 2.0.0",
            "stable-v2.0: 2.0.0",
        ];
        assert_eq!(described(&blobs), expected);
        assert_eq!((&*blobs.packages[0].name, &*blobs.packages[0].default_channel), ("site", "stable-v2.0"));
        assert_eq!(blobs.bundles.len(), 4);
        assert_eq!(blobs.bundles[0].image, "quay.io/x/site:1.0.0");
        let content = Content::new(blobs);
        assert!(content.problems().is_empty(), "{:?}", content.problems());
        let preference = format!("{SEMVER}DefaultChannelTypePreference: major\n");
        assert_eq!(render(&preference, &all).unwrap().packages[0].default_channel, "stable-v2");
    }

    #[test]
    fn basic_templates_name_images_of_bundles() {
        let template = "schema: olm.template.basic\nentries:\n- {schema: olm.package, name: site, defaultChannel: a}\n\
            - {schema: olm.channel, package: site, name: a, entries: [{name: site.v1.0.0}]}\n\
            - {schema: olm.bundle, image: 'site:1.0.0'}\n";
        let all = bundles(&[("site", "1.0.0")]);
        let blobs = render(template, &all).unwrap();
        assert!(Content::new(blobs).problems().is_empty());
        let error = render(template, &BTreeMap::new()).unwrap_err();
        assert_eq!(error, InvalidTemplate::Missing { reference: "site:1.0.0".to_owned() });
        let named = template.replace("image:", "name: x, image:");
        assert!(render(&named, &all).unwrap_err().to_string().starts_with("field entries[2].name: a bundle"));
        let bare = template.replace("image: 'site:1.0.0'", "image: ''");
        assert_eq!(render(&bare, &all).unwrap_err().to_string(), "field entries[2].image: it is missing");
        assert!(render("schema: olm.template.basic", &all).unwrap_err().to_string().starts_with("field entries: "));
    }

    #[test]
    fn bundles_that_have_no_order_are_errors() {
        let check = |versions: &[(&str, &str)], expected: &str| {
            let images = versions.iter().map(|(package, version)| format!("{{image: '{package}:{version}'}}"));
            let list = images.collect::<Vec<_>>().join(", ");
            let template = format!("schema: olm.semver\nstable: {{bundles: [{list}]}}");
            let error = render(&template, &bundles(versions)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(&[("site", "1.0.0"), ("site", "1.0.0")], "it is listed twice");
        check(&[("site", "1.0.0+a"), ("site", "1.0.0+b")], "only by build metadata");
        check(&[("site", "1.0.0"), ("other", "1.1.0")], "it is of package");
        check(&[("site", "one")], "its version \"one\" is invalid");
        check(&[], "there is no bundle");
        for (text, expected) in [
            ("schema: olm.semver\nstabel: {}", "unknown field `stabel`"),
            ("schema: olm.semver\ndefaultChannelTypePreference: major", "no major channels are generated"),
            ("schema: olm.semver\ndefaultChannelTypePreference: patch", "\"patch\" is neither major nor minor"),
        ] {
            let error = Template::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for other in ["# text", "schema: olm.package\nname: a", "- a"] {
            assert_eq!(Template::parse(other.as_bytes()), Ok(None), "{other}");
        }
        assert!(matches!(Template::parse(b"{"), Err(InvalidTemplate::Document(_))));
    }
}
