//! Descriptive fields of a ClusterServiceVersion: display name, description, maintainers, links and icon.
//!
//! They are in a file of the project, `config/manifests/bases/NAME.clusterserviceversion.yaml`, as with operator-sdk,
//! or in flags, which override the file.

use crate::cluster::apply;
use crate::error::{Error, Result, ResultExt};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use flyball_lifecycle::VersionRange;
use flyball_lifecycle::validation::{CAPABILITIES, CATEGORIES};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The install modes, in the order of OLM's documentation.
pub(crate) const MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
/// Maximum size of an icon, in bytes.
const MAX_ICON_BYTES: usize = 256 << 10;

/// Flags for the descriptive fields.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Details {
    /// Display name of the operator
    #[arg(long, value_name = "TEXT")]
    pub(crate) display_name: Option<String>,
    /// File with the description, in Markdown
    #[arg(long, value_name = "FILE")]
    description: Option<PathBuf>,
    /// Publisher of the operator
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Maintainer, such as "Ann <ann@example.com>"; may be repeated
    #[arg(long = "maintainer", value_name = "NAME <EMAIL>", value_parser = parse_maintainer)]
    maintainers: Vec<(String, String)>,
    /// Keyword for searches; may be repeated
    #[arg(long = "keyword", value_name = "WORD")]
    keywords: Vec<String>,
    /// Link, such as Source=https://example.com; may be repeated
    #[arg(long = "link", value_name = "NAME=URL", value_parser = parse_link)]
    links: Vec<(String, String)>,
    /// Icon: PNG, JPEG, GIF or SVG
    #[arg(long, value_name = "FILE")]
    icon: Option<PathBuf>,
    /// Maturity, such as alpha, beta or stable
    #[arg(long, value_name = "WORD")]
    maturity: Option<String>,
    /// Capability level, 1 to 5; `flyball levels` proves it
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=5))]
    level: Option<u8>,
    /// Category of OperatorHub; may be repeated
    #[arg(long = "category", value_name = "NAME", value_parser = CATEGORIES)]
    categories: Vec<String>,
    /// Minimum version of Kubernetes
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    min_kube_version: Option<String>,
}

fn parse_maintainer(text: &str) -> Result<(String, String), String> {
    let parts = text.strip_suffix('>').and_then(|text| text.split_once('<'));
    let (name, email) = parts.ok_or_else(|| "expected a name and an address: Ann <ann@example.com>".to_owned())?;
    Ok((name.trim().to_owned(), email.trim().to_owned()))
}

fn parse_link(text: &str) -> Result<(String, String), String> {
    let (name, url) = text.split_once('=').ok_or_else(|| "expected NAME=URL".to_owned())?;
    Ok((name.to_owned(), url.to_owned()))
}

/// Checks that a text is a semantic version.
pub(crate) fn parse_version(text: &str) -> Result<String, String> {
    let is_version = flyball_lifecycle::parse_tolerant(text).is_some_and(|version| version.to_string() == text);
    if is_version { Ok(text.to_owned()) } else { Err("expected a semantic version such as 1.2.3".into()) }
}

/// Checks that a text is a range of versions.
pub(crate) fn parse_range(text: &str) -> Result<String, String> {
    VersionRange::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Finds the file with the details of the project; an empty CSV if there is none.
pub(crate) fn base_csv(folder: &Path) -> Result<Value> {
    const SUFFIX: &str = ".clusterserviceversion.yaml";
    let files = crate::files::generated::list(folder)?;
    let is_csv = |path: &&PathBuf| path.to_str().is_some_and(|path| path.ends_with(SUFFIX));
    let bases: Vec<&PathBuf> = files.iter().filter(is_csv).collect();
    match bases[..] {
        [] => Ok(json!({"metadata": {}, "spec": {}})),
        [base] => {
            let csv = apply::read(base)?.into_iter().find(|object| object["kind"] == "ClusterServiceVersion");
            csv.ok_or_else(|| Error::new(format!("{} contains no ClusterServiceVersion", base.display())))
        }
        _ => Err(Error::new(format!("{} contains several ClusterServiceVersions", folder.display()))
            .hint("remove all but one")),
    }
}

/// Reads the files of the details, before anything is built.
pub(crate) fn check_details(details: &Details) -> Result<()> {
    details.description()?;
    details.icon().map(|_| ())
}

impl Details {
    fn description(&self) -> Result<Option<String>> {
        let Some(path) = &self.description else { return Ok(None) };
        fs::read_to_string(path).map(Some).context(format!("cannot read {}", path.display()))
    }

    fn icon(&self) -> Result<Option<Value>> {
        let Some(path) = &self.icon else { return Ok(None) };
        let bytes = fs::read(path).context(format!("cannot read {}", path.display()))?;
        if bytes.len() > MAX_ICON_BYTES {
            return Err(Error::new(format!("{} has {} bytes, at most {MAX_ICON_BYTES}", path.display(), bytes.len()))
                .hint("scale the icon down, or use SVG"));
        }
        let media_type = media_type(&bytes).ok_or_else(|| {
            Error::new(format!("{} is not a PNG, JPEG, GIF or SVG", path.display())).hint("convert the icon")
        })?;
        Ok(Some(json!([{"base64data": STANDARD.encode(&bytes), "mediatype": media_type}])))
    }

    /// Sets the details in a CSV: those of the base, then those of the flags.
    pub(super) fn apply(&self, base: &Value, csv: &mut Value) -> Result<()> {
        for field in [
            "description",
            "displayName",
            "icon",
            "keywords",
            "labels",
            "links",
            "maintainers",
            "maturity",
            "minKubeVersion",
            "provider",
            "selector",
            "nativeAPIs",
        ] {
            if !base["spec"][field].is_null() {
                csv["spec"][field] = base["spec"][field].clone();
            }
        }
        for field in ["annotations", "labels"] {
            for (name, value) in base["metadata"][field].as_object().into_iter().flatten() {
                csv["metadata"][field][name] = value.clone();
            }
        }
        let mut set = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                csv["spec"][field] = value;
            }
        };
        let list = |list: &[(String, String)], second: &str| {
            let items: Vec<Value> = list.iter().map(|(name, other)| json!({"name": name, (second): other})).collect();
            (!items.is_empty()).then(|| json!(items))
        };
        set("displayName", self.display_name.clone().map(Value::from));
        set("description", self.description()?.map(Value::from));
        set("provider", self.provider.as_ref().map(|name| json!({"name": name})));
        set("maintainers", list(&self.maintainers, "email"));
        set("keywords", (!self.keywords.is_empty()).then(|| json!(self.keywords)));
        set("links", list(&self.links, "url"));
        set("icon", self.icon()?);
        set("maturity", self.maturity.clone().map(Value::from));
        set("minKubeVersion", self.min_kube_version.clone().map(Value::from));
        let level = self.level.and_then(|level| CAPABILITIES.get(usize::from(level).checked_sub(1)?));
        if let Some(level) = level {
            csv["metadata"]["annotations"]["capabilities"] = json!(level);
        }
        if !self.categories.is_empty() {
            csv["metadata"]["annotations"]["categories"] = json!(self.categories.join(", "));
        }
        Ok(())
    }
}

/// Returns the media type of an icon, from its content.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    let is_svg = || {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
        text.trim_start().starts_with('<') && text.contains("<svg")
    };
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        _ => is_svg().then_some("image/svg+xml"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_parsed() {
        let ann = ("Ann".to_owned(), "ann@example.com".to_owned());
        assert_eq!(parse_maintainer("Ann <ann@example.com>"), Ok(ann));
        assert!(parse_maintainer("ann@example.com").is_err());
        assert_eq!(parse_link("Docs=https://x/?a=b"), Ok(("Docs".to_owned(), "https://x/?a=b".to_owned())));
        assert!(
            parse_version("1.2.3-rc.1").is_ok() && parse_version("1.2").is_err() && parse_version("v1.2.3").is_err()
        );
        assert!(parse_range(">=1.0.0 <2.0.0").is_ok() && parse_range("nonsense").is_err());
        assert_eq!(media_type(b"\x89PNG\r\n"), Some("image/png"));
        assert_eq!(media_type(b"<?xml version=\"1.0\"?><svg/>"), Some("image/svg+xml"));
        assert_eq!(media_type(b"<html>"), None);
    }
}
