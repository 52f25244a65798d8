//! Decoding of bodies as objects of a resource.

use super::resource::Resource;
use super::scheme;
use crate::request::body::{self, Document, Error, Format};
use crate::request::json_type;
use crate::request::options::FieldValidation;
use flyball_core::field::{FieldError, go_quote};
use flyball_core::{GroupVersion, GroupVersionKind, Object, Status};
use flyball_schema::decode::MAX_WARNINGS;
use serde_json::{Map, Value};

/// A decoded object with warnings.
#[derive(Debug)]
pub(crate) struct DecodedObject {
    pub(crate) object: Object,
    pub(crate) warnings: Vec<String>,
}

/// Rejects a body that could not be read at all.
pub(crate) fn unreadable(resource: &Resource, error: &Error, body: &[u8]) -> Status {
    let why = match error {
        Error::Json(why) => format!("couldn't get version/kind; json parse error: {why}"),
        Error::Yaml(_) => error.to_string(),
        Error::TooLarge => return Status::too_large(error.to_string()),
    };
    unrecognized(resource, &why, body)
}

/// Rejects a body that is not of the expected kind and names no other kind.
pub(super) fn unrecognized(resource: &Resource, why: &str, body: &[u8]) -> Status {
    let message = format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        resource.kind.kind,
        summary(body)
    );
    Status::bad_request(message)
}

/// Returns a body as text, truncated if it is long.
fn cut(body: &[u8]) -> String {
    const MAX_SHOWN_BYTES: usize = 1 << 10;
    let rest = if body.len() > MAX_SHOWN_BYTES { " ..." } else { "" };
    format!("{}{rest}", String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN_BYTES)]))
}

/// Returns the beginning of a body: as text if it appears to be JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const MAX_SHOWN_BYTES: usize = 30;
    let cut = if body.len() > MAX_SHOWN_BYTES { " ..." } else { "" };
    let start = &body[..body.len().min(MAX_SHOWN_BYTES)];
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{cut}", String::from_utf8_lossy(start)),
        Some(_) => format!("{}{cut}", flyball_core::hex::encode(start)),
    }
}

/// Reads the body of a create or an update.
pub(crate) fn body(
    resource: &Resource,
    document: Document,
    raw: &[u8],
    validation: FieldValidation,
) -> Result<DecodedObject, Status> {
    let mut object = match document.value {
        Value::Null => Object::default(),
        value => Object::try_from(value).map_err(|value| {
            let kind = json_type(&value);
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            );
            unrecognized(resource, &why, raw)
        })?,
    };
    check_kind(resource, &mut object, raw)?;
    let (object, unknown) = read(resource, object)?;
    if validation == FieldValidation::Ignore {
        return Ok(DecodedObject { object, warnings: Vec::new() });
    }
    let Document { mut duplicates, format, .. } = document;
    match format {
        // The findings of the parser are one of several errors.
        Format::Yaml if validation == FieldValidation::Strict && !duplicates.is_empty() => {
            duplicates = vec![format!("yaml: unmarshal errors:\n  {}", duplicates.join("\n  "))];
        }
        // Values of unknown fields are not checked. Both lists are short, however long the body is.
        Format::Json if resource.custom().is_none() => {
            let within =
                |found: &String| unknown.iter().any(|path| found.starts_with(&format!("duplicate field \"{path}.")));
            duplicates.retain(|found| !within(found));
        }
        Format::Json | Format::Yaml => {}
    }
    let found = duplicates.into_iter().chain(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
    let mut found: Vec<String> = found.collect();
    if found.len() > 1 && resource.custom().is_none() && format == Format::Json {
        let positions = body::warning_positions(raw, &found);
        let mut sorted: Vec<(usize, String)> = positions.into_iter().zip(found).collect();
        sorted.sort_by_key(|(position, _)| *position);
        found = sorted.into_iter().map(|(_, found)| found).take(MAX_WARNINGS).collect();
    }
    match validation {
        FieldValidation::Strict if !found.is_empty() => {
            Err(unhandled(&resource.kind, resource, &format!("strict decoding error: {}", found.join(", "))))
        }
        _ => Ok(DecodedObject { object, warnings: found }),
    }
}

/// Rejects an object of another kind; sets the kind of one without.
fn check_kind(resource: &Resource, object: &mut Object, raw: &[u8]) -> Result<(), Status> {
    for field in ["apiVersion", "kind"] {
        if object.get(field).is_some_and(|value| !value.is_string() && !value.is_null()) {
            let found = object.get(field).map_or("null", json_type);
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{field} of type string"
            );
            return Err(unrecognized(resource, &why, raw));
        }
    }
    let (api_version, kind) = (object.api_version().to_owned(), object.kind().to_owned());
    let expected = &resource.kind;
    if resource.custom().is_some() {
        if kind.is_empty() {
            let text = cut(raw);
            return Err(unrecognized(resource, &format!("Object 'Kind' is missing in '{text}'"), raw));
        }
        if api_version != expected.api_version() {
            return Err(Status::bad_request(other_version(&api_version, expected)));
        }
        if *kind != *expected.kind {
            let found = GroupVersionKind { kind: kind.as_str().into(), ..expected.clone() };
            let error = FieldError::invalid("kind", kind, format!("must be {}", expected.kind));
            return Err(Status::invalid(&found, object.name(), &[error]));
        }
        return Ok(());
    }
    let group_version =
        if api_version.is_empty() { Some(expected.group_version()) } else { GroupVersion::parse(&api_version) };
    let Some(group_version) = group_version else {
        return Err(unrecognized(resource, &format!("unexpected GroupVersion string: {api_version}"), raw));
    };
    let found = group_version.kind(if kind.is_empty() { &expected.kind } else { &kind });
    let is_same_kind = found.group == expected.group && found.kind == expected.kind;
    if found == *expected || is_same_kind && resource.also_reads(&found.version) {
        object.set_kind(expected);
        return Ok(());
    }
    if scheme::has_other_version(&found, expected) {
        return Err(Status::bad_request(other_version(&found.api_version(), expected)));
    }
    Err(unhandled(&found, resource, &scheme::misfit(resource, &found)))
}

fn other_version(found: &str, expected: &GroupVersionKind) -> String {
    let expected = expected.api_version();
    format!("the API version in the data ({found}) does not match the expected API version ({expected})")
}

/// Rejects a body of another kind, or one that does not match its kind.
pub(super) fn unhandled(found: &GroupVersionKind, resource: &Resource, why: &str) -> Status {
    let message = format!(
        "{} in version {} cannot be handled as a {}: {why}",
        found.kind,
        go_quote(&found.version),
        resource.kind.kind
    );
    Status::bad_request(message)
}

/// Decodes JSON as an object of the resource; also returns the paths of unknown fields.
pub(crate) fn read(resource: &Resource, object: Object) -> Result<(Object, Vec<String>), Status> {
    read_as(resource, object).map_err(|why| unhandled(&resource.kind, resource, &why))
}

/// Like [`read`], with the plain reason of a failure, which patches wrap differently.
pub(crate) fn read_as(resource: &Resource, object: Object) -> Result<(Object, Vec<String>), String> {
    // An empty list of managed fields is a request to remove all owners.
    let disowned = object.at(&["metadata", "managedFields"]).and_then(Value::as_array).is_some_and(Vec::is_empty);
    let (mut object, unknown) = read_fields(resource, object)?;
    if disowned {
        object.metadata_mut().insert("managedFields".into(), Value::Array(Vec::new()));
    }
    Ok((object, unknown))
}

fn read_fields(resource: &Resource, object: Object) -> Result<(Object, Vec<String>), String> {
    if resource.custom().is_some() {
        let Value::Object(mut fields): Value = object.into() else { unreachable!("an object is one") };
        fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let unknown = flyball_schema::prune::prune(resource.schema.node(), &mut fields).map_err(|e| e.0)?;
        return Ok((Object::from(fields), unknown));
    }
    let mut unknown = Vec::new();
    let value = flyball_schema::decode::decode(resource.schema.node(), object.into(), &mut unknown).map_err(|e| e.0)?;
    let mut object = Object::try_from(value).expect("a kind is read as an object");
    object.set_kind(&resource.kind);
    Ok((object, unknown))
}
