//! The metadata of a bundle: annotations, which images repeat as labels, dependencies and properties.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

const PREFIX: &str = "operators.operatorframework.io.bundle.";
/// The media type of bundles in the format `registry+v1`.
pub const BUNDLE_MEDIA_TYPE: &str = "registry+v1";

/// The annotations of a bundle.
/// [Source](https://olm.operatorframework.io/docs/tasks/creating-operator-bundle/#contents-of-annotationsyaml-and-the-dockerfile).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Annotations {
    /// The format of the bundle.
    pub media_type: String,
    /// The folder of the manifests.
    pub manifests: String,
    /// The folder of the metadata.
    pub metadata: String,
    /// The package.
    pub package: String,
    /// The channels.
    pub channels: Vec<String>,
    /// The default channel of the package, if the bundle declares it.
    pub default_channel: Option<String>,
}

impl Annotations {
    /// Returns the annotations for a package and its channels.
    pub fn new(package: &str, channels: &[&str], default_channel: Option<&str>) -> Self {
        Self {
            media_type: BUNDLE_MEDIA_TYPE.to_owned(),
            manifests: "manifests/".to_owned(),
            metadata: "metadata/".to_owned(),
            package: package.to_owned(),
            channels: channels.iter().map(|channel| (*channel).to_owned()).collect(),
            default_channel: default_channel.map(str::to_owned),
        }
    }

    /// Reads annotations or labels; others are ignored, and missing ones are empty.
    pub fn read<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut read = Self::default();
        for (name, value) in values {
            let value = value.to_owned();
            match name.strip_prefix(PREFIX) {
                Some("mediatype.v1") => read.media_type = value,
                Some("manifests.v1") => read.manifests = value,
                Some("metadata.v1") => read.metadata = value,
                Some("package.v1") => read.package = value,
                Some("channels.v1") => read.channels = names(&value),
                Some("channel.default.v1") => read.default_channel = Some(value).filter(|channel| !channel.is_empty()),
                _ => {}
            }
        }
        read
    }

    /// Reads the document of `annotations.yaml`; `None` if it has no annotations.
    pub(crate) fn of_document(document: &Value) -> Option<Self> {
        let annotations = document.get("annotations")?.as_object()?;
        let values = annotations.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
        Some(Self::read(values)).filter(|read| *read != Self::default())
    }

    /// Returns the annotations, by name.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let mut values = vec![
            ("mediatype.v1", self.media_type.clone()),
            ("manifests.v1", self.manifests.clone()),
            ("metadata.v1", self.metadata.clone()),
            ("package.v1", self.package.clone()),
            ("channels.v1", self.channels.join(",")),
        ];
        values.extend(self.default_channel.clone().map(|channel| ("channel.default.v1", channel)));
        values.into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect()
    }

    /// Returns the default channel, or the first channel if the bundle declares none.
    pub fn default_channel(&self) -> Option<&str> {
        self.default_channel.as_deref().or_else(|| self.channels.first().map(String::as_str))
    }
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_as_they_are_written() {
        let annotations = Annotations::new("etcd", &["alpha", "beta"], Some("beta"));
        let map = annotations.to_map();
        assert_eq!(map["operators.operatorframework.io.bundle.channels.v1"], "alpha,beta");
        let read = Annotations::read(map.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        assert_eq!(read, annotations);
        assert_eq!(
            Annotations::read([("operators.operatorframework.io.bundle.channels.v1", " a, b,")]).channels,
            ["a", "b"]
        );
    }
}
