//! Bodies in protobuf, as Go clients send built-in kinds: a message in an envelope that names its kind.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>. Responses are never encoded in
//! protobuf.

use super::decode::{unhandled, unrecognized};
use super::resource::Resource;
use crate::limits::MAX_DECODED_BYTES;
use crate::request::body::{self, Document, Format};
use flyball_core::{GroupVersion, Status};
use flyball_schema::protobuf::{self, Error, fields};
use serde_json::{Value, json};

/// The media type of protobuf in its envelope.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The beginning of every body.
const MAGIC: &[u8] = b"k8s\0";

/// A message and its type.
struct Envelope<'b> {
    api_version: String,
    kind: String,
    message: &'b [u8],
}

impl<'b> Envelope<'b> {
    fn open(body: &'b [u8]) -> Result<Self, String> {
        let Some(content) = body.strip_prefix(MAGIC) else {
            return Err(match body {
                [] => "empty data".into(),
                _ => "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".into(),
            });
        };
        if content.is_empty() {
            return Err("empty body".into());
        }
        Self::read(content).map_err(|error| error.to_string())
    }

    fn read(content: &'b [u8]) -> Result<Self, Error> {
        let mut envelope = Self { api_version: String::new(), kind: String::new(), message: &[] };
        for field in fields(content) {
            match field? {
                (1, wire) => {
                    for field in fields(wire.bytes("TypeMeta")?) {
                        let (number, wire) = field?;
                        let text = || wire.bytes("TypeMeta").map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                        match number {
                            1 => envelope.api_version = text()?,
                            2 => envelope.kind = text()?,
                            _ => {}
                        }
                    }
                }
                (2, wire) => envelope.message = wire.bytes("Raw")?,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

/// Decodes a body as JSON of a kind; for another kind, returns its name only.
pub(crate) fn document(resource: &Resource, sent: &[u8]) -> Result<Document, Status> {
    let envelope = Envelope::open(sent).map_err(|why| unrecognized(resource, &why, sent))?;
    let (api_version, kind) = (envelope.api_version.as_str(), envelope.kind.as_str());
    let expected = &resource.kind;
    let same = (api_version.is_empty() || api_version == expected.api_version())
        && (kind.is_empty() || kind == &*expected.kind);
    let value = match protobuf::read(resource.schema.node(), envelope.message, MAX_DECODED_BYTES) {
        _ if !same => json!({"apiVersion": api_version, "kind": kind}),
        Ok(Value::Object(mut fields)) => {
            fields.insert("apiVersion".into(), api_version.into());
            fields.insert("kind".into(), kind.into());
            fields.into()
        }
        Ok(_) => return Err(unrecognized(resource, "not an object", sent)),
        Err(Error::TooLarge) => return Err(Status::too_large(body::Error::TooLarge.to_string())),
        Err(error) => return Err(unhandled(expected, resource, &error.to_string())),
    };
    Ok(Document { value, duplicates: Vec::new(), format: Format::Json })
}

/// Decodes a body as the options of a deletion, in any version.
pub(crate) fn delete_options(body: &[u8]) -> Result<Value, String> {
    let envelope = Envelope::open(body)?;
    let schema =
        crate::kinds::library().get("meta/v1", "DeleteOptions").expect("the library contains the shared types");
    let mut value =
        protobuf::read(schema.node(), envelope.message, MAX_DECODED_BYTES).map_err(|error| error.to_string())?;
    let known = GroupVersion::parse(&envelope.api_version).is_some();
    value["apiVersion"] = if known { envelope.api_version } else { String::new() }.into();
    value["kind"] = if envelope.kind.is_empty() { "DeleteOptions".into() } else { envelope.kind }.into();
    Ok(value)
}
