//! Indexes, manifests and configurations of images.
//!
//! See <https://github.com/opencontainers/image-spec/blob/main/spec.md>. Registries and other tools write them, so their
//! content is not trusted: errors name the document and the field.

use super::platform::ImagePlatform;
use super::{Descriptor, INDEX, hex};
use crate::error::{Error, Result, ResultExt};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::iter;

/// Size limit of a document.
pub(crate) const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// An index of manifests.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) manifests: Vec<Descriptor>,
    /// Other fields, which are written unchanged.
    others: Map<String, Value>,
}

impl Index {
    pub(crate) fn new(manifests: Vec<Descriptor>) -> Self {
        let others = [("schemaVersion", json!(2)), ("mediaType", json!(INDEX))];
        Self { manifests, others: others.map(|(name, value)| (name.to_owned(), value)).into_iter().collect() }
    }

    /// Reads an index.
    ///
    /// # Errors
    ///
    /// If it is not an object, or a field is missing or has another type.
    pub(crate) fn read(document: &str, bytes: &[u8]) -> Result<Self> {
        Self::from_fields(Fields::read(document, bytes)?)
    }

    fn from_fields(mut fields: Fields<'_>) -> Result<Self> {
        Ok(Self { manifests: fields.required("manifests")?, others: fields.values })
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut fields = self.others.clone();
        fields.insert("manifests".into(), json!(self.manifests));
        fields.into()
    }
}

/// A manifest: an image of one platform, or another artifact.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    /// The manifest that it refers to.
    pub(crate) subject: Option<Descriptor>,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// If it is not an object, a field is missing or has another type, or a digest is not a SHA-256.
    pub(crate) fn read(document: &str, bytes: &[u8]) -> Result<Self> {
        Self::from_fields(Fields::read(document, bytes)?)
    }

    fn from_fields(mut fields: Fields<'_>) -> Result<Self> {
        let manifest = Self {
            config: fields.required("config")?,
            layers: fields.optional("layers")?,
            subject: fields.optional("subject")?,
        };
        let named = |(at, layer)| (format!("layers[{at}]"), layer);
        let layers = manifest.layers.iter().enumerate().map(named);
        let mut config_and_layers = iter::once(("config".to_owned(), &manifest.config)).chain(layers);
        if let Some((field, blob)) = config_and_layers.find(|(_, blob)| hex(&blob.digest).is_none()) {
            return Err(Error::new(format!(
                "{}: field {field}.digest is invalid: {:?} is not a SHA-256 digest",
                fields.document, blob.digest
            )));
        }
        Ok(manifest)
    }
}

/// An index or a manifest.
#[derive(Debug)]
pub(crate) enum IndexOrManifest {
    Index(Index),
    Manifest(Box<Manifest>),
}

impl IndexOrManifest {
    /// Reads a document. An index is recognized by its field `manifests`, since the media type is optional.
    ///
    /// # Errors
    ///
    /// See [`Index::read`] and [`Manifest::read`].
    pub(crate) fn read(document: &str, bytes: &[u8]) -> Result<Self> {
        let fields = Fields::read(document, bytes)?;
        match fields.values.contains_key("manifests") {
            true => Index::from_fields(fields).map(Self::Index),
            false => Manifest::from_fields(fields).map(Box::new).map(Self::Manifest),
        }
    }
}

/// The configuration of an image: the fields that an image inherits from its base.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageConfig {
    pub(crate) platform: ImagePlatform,
    /// Environment variables.
    pub(crate) env: Vec<String>,
    /// Digests of the uncompressed layers.
    pub(crate) diff_ids: Vec<String>,
    pub(crate) history: Vec<Map<String, Value>>,
}

impl ImageConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// If it is not an object, or a field has another type.
    pub(crate) fn read(document: &str, bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::read(document, bytes)?;
        Ok(Self {
            platform: ImagePlatform {
                os: fields.optional("os")?,
                architecture: fields.optional("architecture")?,
                variant: fields.optional("variant")?,
                ..ImagePlatform::default()
            },
            env: fields.nested("config")?.optional("Env")?,
            diff_ids: fields.nested("rootfs")?.optional("diff_ids")?,
            history: fields.optional("history")?,
        })
    }
}

/// Fields of an object of a document.
struct Fields<'d> {
    document: &'d str,
    /// The path of the object, with a dot at its end.
    path: String,
    values: Map<String, Value>,
}

impl<'d> Fields<'d> {
    fn read(document: &'d str, bytes: &[u8]) -> Result<Self> {
        let values = serde_json::from_slice(bytes).context(format!("{document} is not a JSON object"))?;
        Ok(Self { document, path: String::new(), values })
    }

    /// Removes the object in a field; a missing one is empty.
    fn nested(&mut self, name: &str) -> Result<Self> {
        let values = self.optional(name)?;
        Ok(Self { document: self.document, path: format!("{}{name}.", self.path), values })
    }

    /// Removes a field that may be missing or null.
    fn optional<T: DeserializeOwned + Default>(&mut self, name: &str) -> Result<T> {
        match self.values.remove(name) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => self.parse(name, value),
        }
    }

    fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T> {
        let Self { document, path, values } = self;
        let value = values.remove(name);
        let value = value.ok_or_else(|| Error::new(format!("{document}: field {path}{name} is missing")))?;
        self.parse(name, value)
    }

    fn parse<T: DeserializeOwned>(&self, name: &str, value: Value) -> Result<T> {
        serde_json::from_value(value).context(format!("{}: field {}{name} is invalid", self.document, self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(digest: &str) -> Value {
        json!({"mediaType": "m", "digest": digest, "size": 1})
    }

    #[test]
    fn malformed_documents_are_rejected() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, expected) in [
            ("", "doc is not a JSON object: EOF"),
            ("[]", "doc is not a JSON object: invalid type: sequence"),
            (r#""x""#, "doc is not a JSON object: invalid type: string"),
            ("null", "doc is not a JSON object: invalid type: null"),
            ("{}", "doc: field config is missing"),
            (r#"{"manifests": "x"}"#, "doc: field manifests is invalid: invalid type: string"),
            (r#"{"manifests": ["x"]}"#, "doc: field manifests is invalid: invalid type: string"),
            (r#"{"manifests": [[]]}"#, "doc: field manifests is invalid: invalid type: sequence"),
            (r#"{"manifests": null}"#, "doc: field manifests is invalid: invalid type: null"),
            (r#"{"manifests": [{"platform": 1}]}"#, "doc: field manifests is invalid"),
            (r#"{"config": []}"#, "doc: field config is invalid: invalid type: sequence"),
            (r#"{"config": {"digest": "x"}}"#, "doc: field config is invalid: missing field `mediaType`"),
            (&json!({"config": blob("x")}).to_string(), "doc: field config.digest is invalid: \"x\" is not a SHA-256"),
            (
                &json!({"config": blob(&digest), "layers": [blob(&digest), blob("sha256:..")]}).to_string(),
                "doc: field layers[1].digest is invalid: \"sha256:..\" is not a SHA-256 digest",
            ),
            (&json!({"config": blob(&digest), "layers": {}}).to_string(), "doc: field layers is invalid"),
            (&"[".repeat(100_000), "doc is not a JSON object"),
        ] {
            let error = IndexOrManifest::read("doc", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        for (text, expected) in [
            ("[]", "doc is not a JSON object"),
            (r#"{"config": "x"}"#, "doc: field config is invalid: invalid type: string"),
            (r#"{"config": {"Env": "x"}}"#, "doc: field config.Env is invalid: invalid type: string"),
            (r#"{"config": {"Env": [1]}}"#, "doc: field config.Env is invalid: invalid type: integer"),
            (r#"{"rootfs": [1]}"#, "doc: field rootfs is invalid"),
            (r#"{"rootfs": {"diff_ids": {}}}"#, "doc: field rootfs.diff_ids is invalid"),
            (r#"{"history": ["x"]}"#, "doc: field history is invalid: invalid type: string"),
            (r#"{"os": 1}"#, "doc: field os is invalid: invalid type: integer"),
        ] {
            let error = ImageConfig::read("doc", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        // As Docker writes empty lists.
        let config =
            ImageConfig::read("doc", br#"{"config": {"Env": null}, "history": null, "rootfs": null}"#).unwrap();
        assert!(config.env.is_empty() && config.history.is_empty() && config.diff_ids.is_empty());
    }

    #[test]
    fn unknown_fields_of_an_index_remain() {
        let mut entry = blob("sha512:x");
        entry["urls"] = json!(["https://example.com"]);
        entry["platform"] = json!({"os": "linux", "architecture": "arm", "os.features": ["a"]});
        let document = json!({"schemaVersion": 2, "annotations": {"a": "b"}, "other": [1], "manifests": [entry]});
        let index = Index::read("doc", document.to_string().as_bytes()).unwrap();
        assert_eq!(index.to_json(), document);
    }
}
