//! Patches of objects.

use super::decode::{self, Decoded};
use super::resource::{Behaviour, Resource};
use crate::request::options::FieldValidation;
use flyball_core::field::FieldError;
use flyball_core::status::{Details, Reason};
use flyball_core::{GroupVersionKind, Object, Status};
use flyball_schema::patch as schema_patch;
use serde_json::Value;

/// A patch that was read.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub(crate) kind: PatchKind,
    pub(crate) value: Value,
    /// A warning for each key that stood twice in the patch.
    pub(crate) duplicates: Vec<String>,
}

/// The three patches that carry no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
}

impl Patch {
    /// Applies the patch, and reads what comes of it as an object of its kind.
    pub(crate) fn apply(
        &self,
        resource: &Resource,
        live: &Object,
        validation: FieldValidation,
    ) -> Result<Decoded, Status> {
        let mut patched: Value = live.clone().into();
        match self.kind {
            PatchKind::Json => {
                let Value::Array(operations) = &self.value else {
                    return Err(Self::malformed("[]handlers.jsonPatchOp", &self.value));
                };
                if operations.len() > schema_patch::json::MAX_OPERATIONS {
                    let message = format!(
                        "The allowed maximum operations in a JSON patch is {}, got {}",
                        schema_patch::json::MAX_OPERATIONS,
                        operations.len()
                    );
                    return Err(Status::too_large(message));
                }
                schema_patch::json::apply(&mut patched, operations).map_err(|_| {
                    let message = "the server rejected our request due to an error in our request";
                    Status::new(422, Reason::Invalid, message).with_details(Details::default())
                })?;
            }
            PatchKind::Merge => {
                if !self.value.is_object() {
                    return Err(Self::malformed("map[string]interface {}", &self.value));
                }
                schema_patch::merge(&mut patched, &self.value);
            }
            PatchKind::Strategic => {
                let patch = match &self.value {
                    Value::Null => serde_json::Map::new(),
                    Value::Object(patch) => patch.clone(),
                    other => return Err(Self::malformed("map[string]interface {}", other)),
                };
                let Value::Object(fields) = &mut patched else { unreachable!("an object is one") };
                schema_patch::strategic(resource.schema.node(), fields, patch)
                    .map_err(|e| Status::new(500, None, e.0))?;
            }
        }
        self.read(resource, live, patched, validation)
    }

    /// Refuses a patch that is no patch.
    pub(crate) fn malformed(wanted: &str, value: &Value) -> Status {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type {wanted}"
        ))
    }

    fn read(
        &self,
        resource: &Resource,
        live: &Object,
        patched: Value,
        validation: FieldValidation,
    ) -> Result<Decoded, Status> {
        let shown = patched.clone();
        let refuse = |why: &str| {
            // The real server names neither kind nor object here.
            let error = FieldError::invalid(
                "patch",
                flyball_core::field::Shown::Raw(format!("{:?}", shown.to_string())),
                why.to_owned(),
            );
            Err(Status::invalid(&GroupVersionKind::default(), "", &[error]))
        };
        let Ok(object) = Object::try_from(patched) else { return refuse("not an object") };
        if object.api_version() != live.api_version() || object.kind() != live.kind() {
            return Err(other_kind(resource, &object));
        }
        let (object, unknown) = match decode::read_as(resource, object) {
            Ok(read) => read,
            Err(why) => return refuse(&why),
        };
        let found =
            self.duplicates.iter().cloned().chain(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
        let found: Vec<String> = found.collect();
        match validation {
            FieldValidation::Strict if !found.is_empty() => {
                refuse(&format!("strict decoding error: {}", found.join(", ")))
            }
            FieldValidation::Ignore => Ok(Decoded { object, warnings: Vec::new() }),
            FieldValidation::Strict | FieldValidation::Warn => Ok(Decoded { object, warnings: found }),
        }
    }
}

/// Refuses a patch that makes another kind of an object.
fn other_kind(resource: &Resource, object: &Object) -> Status {
    let expected = &resource.kind;
    let given = object.group_version_kind().unwrap_or_default();
    match resource.behaviour {
        Behaviour::Custom(_) => {
            let mut errors = Vec::new();
            if object.api_version() != expected.api_version() {
                errors.push(FieldError::invalid(
                    "apiVersion",
                    object.api_version(),
                    format!("must be {}", expected.api_version()),
                ));
            }
            if object.kind() != &*expected.kind {
                errors.push(FieldError::invalid("kind", object.kind(), format!("must be {}", expected.kind)));
            }
            Status::invalid(&given, object.name(), &errors)
        }
        Behaviour::BuiltIn(_) => {
            let message = format!(
                "{} in version {:?} cannot be handled as a {}: no kind {:?} is registered for version {:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                object.kind(),
                given.version,
                expected.kind,
                object.kind(),
                object.api_version()
            );
            Status::bad_request(message)
        }
    }
}
