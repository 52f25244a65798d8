//! Patches of objects.

use crate::catalog::decode::{self, DecodedObject};
use crate::catalog::{Catalog, Resource, scheme, undeterminable};
use crate::codec::convert_whole;
use crate::request::json_type;
use crate::request::options::FieldValidation;
use flyball_core::field::{FieldError, go_json, go_print, go_quote};
use flyball_core::pointer;
use flyball_core::status::{Details, Reason};
use flyball_core::{GroupVersion, GroupVersionKind, Object, Status};
use flyball_schema::decode::{fit_numbers, misfit};
use flyball_schema::patch::{self as schema_patch, StrategicError};
use flyball_schema::schema::Node;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A decoded patch.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub(crate) kind: PatchKind,
    pub(crate) value: Value,
    /// A warning for each duplicate key of the patch.
    pub(crate) duplicates: Vec<String>,
}

/// The types of patches besides server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
}

impl Patch {
    /// Applies the patch, and decodes the result as an object of its kind, in any version in the catalog. `live`
    /// decodes the stored object.
    pub(crate) fn apply(
        &self,
        catalog: Option<&Catalog>,
        resource: &Resource,
        live: &dyn Fn() -> Result<Object, Status>,
        validation: FieldValidation,
    ) -> Result<DecodedObject, Status> {
        let patched = self.patched(resource, live()?)?;
        self.read(catalog, resource, live, patched, validation)
    }

    /// Returns the patched object.
    fn patched(&self, resource: &Resource, live: Object) -> Result<Value, Status> {
        let mut patched: Value = live.into();
        match self.kind {
            PatchKind::Json => {
                let none = Vec::new();
                let operations = match &self.value {
                    Value::Array(operations) => operations,
                    Value::Null => &none,
                    other => return Err(Self::malformed(other, "[]handlers.jsonPatchOp")),
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
                match &self.value {
                    Value::Object(_) => {}
                    Value::Null => return Err(Status::bad_request("Invalid JSON Patch")),
                    other => return Err(Self::malformed(other, "map[string]interface {}")),
                }
                schema_patch::merge(&mut patched, &self.value);
            }
            PatchKind::Strategic => {
                let patch = match &self.value {
                    Value::Null => serde_json::Map::new(),
                    Value::Object(patch) => patch.clone(),
                    other => return Err(Status::bad_request(misread(other, "map[string]interface {}"))),
                };
                let Value::Object(fields) = &mut patched else { unreachable!("an object is one") };
                schema_patch::strategic(resource.schema.node(), fields, patch).map_err(|error| match error {
                    StrategicError::Directive(why) => Status::bad_request(why),
                    StrategicError::Misfit(why) => Status::new(500, None, why),
                })?;
            }
        }
        Ok(patched)
    }

    /// Returns the tree of the objects and lists that the patch changes in its result. Pointers to missing fields add
    /// nothing, however long they are.
    fn touched(&self, patched: &Value) -> Value {
        let Value::Array(operations) = &self.value else { return self.value.clone() };
        let mut tree = Value::Object(Map::new());
        for operation in operations {
            for pointer in ["path", "from"].iter().filter_map(|field| operation.get(*field)?.as_str()) {
                let (mut at, mut value) = (&mut tree, patched);
                let parent = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
                for step in parent.split('/').skip(1) {
                    let step = pointer::unescape(step);
                    let next = match value {
                        Value::Object(fields) => fields.get(&*step),
                        Value::Array(items) => step.parse::<usize>().ok().and_then(|at| items.get(at)),
                        _ => None,
                    };
                    let Some(next) = next else { break };
                    (at, value) = (&mut at[&*step], next);
                    if at.is_null() {
                        *at = Value::Object(Map::new());
                    }
                }
            }
        }
        tree
    }

    /// Returns the error for a value that is not a patch of its type.
    fn malformed(value: &Value, expected: &str) -> Status {
        Status::bad_request(format!("error decoding patch: {}", misread(value, expected)))
    }

    fn read(
        &self,
        catalog: Option<&Catalog>,
        resource: &Resource,
        live: &dyn Fn() -> Result<Object, Status>,
        mut patched: Value,
        validation: FieldValidation,
    ) -> Result<DecodedObject, Status> {
        // Strategic patches produce a value, the others a text.
        let strategic = self.kind == PatchKind::Strategic;
        let reject = |why: &str| {
            let shown = if strategic {
                go_print(&self.value)
            } else {
                // Computed again, since only errors show it.
                let patched = self.patched(resource, live()?)?;
                show(resource.schema.node(), &patched, &self.touched(&patched))
            };
            // kube-apiserver names neither kind nor object here.
            let error =
                FieldError::invalid("patch", flyball_core::field::BadValue::Raw(go_quote(&shown)), why.to_owned());
            Err(Status::invalid(&GroupVersionKind::default(), "", &[error]))
        };
        if let Some(why) = strategic.then(|| misfit(resource.schema.node(), &patched)).flatten() {
            return reject(&why);
        }
        if strategic {
            fit_numbers(resource.schema.node(), &mut patched);
        }
        let Ok(mut object) = Object::try_from(patched) else { return reject("not an object") };
        if resource.custom().is_some() {
            if let Some(other) = catalog.and_then(|catalog| other_version(catalog, resource, &object)) {
                // It is decoded in that version, and rejected afterwards.
                return match decode::read_as(&other, object) {
                    Ok((object, unknown)) => self.decoded(object, unknown, validation, reject),
                    Err(why) => reject(&why),
                };
            }
        } else if strategic {
            // A strategic patch is applied to the Go type, which has no `apiVersion` and `kind`.
            object.set_kind(&resource.kind);
        } else {
            if let Some(other) = catalog.and_then(|catalog| other_version(catalog, resource, &object)) {
                let (mut object, unknown) = match decode::read_as(&other, object) {
                    Ok(read) => read,
                    Err(why) => return reject(&why),
                };
                other.default_within(&mut object, None)?;
                object = convert_whole(&other, resource, object);
                return self.decoded(object, unknown, validation, reject);
            }
            if let Some(why) = other_kind(resource, &object) {
                return reject(&why);
            }
            // kube-apiserver decodes an object without a version as an unknown type, without metadata.
            if object.api_version().is_empty() {
                return Err(undeterminable(live()?.name()));
            }
        }
        let (object, unknown) = match decode::read_as(resource, object) {
            Ok(read) => read,
            Err(why) => return reject(&why),
        };
        self.decoded(object, unknown, validation, reject)
    }

    /// Returns a decoded object with its warnings, or rejects it because of them.
    fn decoded(
        &self,
        object: Object,
        unknown: Vec<String>,
        validation: FieldValidation,
        reject: impl FnOnce(&str) -> Result<DecodedObject, Status>,
    ) -> Result<DecodedObject, Status> {
        if validation == FieldValidation::Ignore {
            return Ok(DecodedObject { object, warnings: Vec::new() });
        }
        let unknown = unknown.into_iter().map(|path| format!("unknown field \"{path}\""));
        let found: Vec<String> = self.duplicates.iter().cloned().chain(unknown).collect();
        match validation {
            FieldValidation::Strict if !found.is_empty() => {
                reject(&format!("strict decoding error: {}", found.join(", ")))
            }
            _ => Ok(DecodedObject { object, warnings: found }),
        }
    }
}

/// Returns Go's error for a JSON value of another type.
fn misread(value: &Value, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {expected}", json_type(value))
}

/// Prints a patched object as Go does: fields that the patch changed in sorted order, others in the order of the type.
fn show(node: Node<'_>, value: &Value, touched: &Value) -> String {
    let inner = |value: &Value, at: Option<&Value>, sub: Option<Node<'_>>| match sub {
        Some(sub) => show(sub, value, at.unwrap_or(&Value::Null)),
        None => go_json(value),
    };
    match (value, touched) {
        (Value::Object(fields), Value::Object(touched)) => {
            let field = |(name, value): (&String, &Value)| {
                format!(
                    "{}:{}",
                    go_json(&Value::from(name.as_str())),
                    inner(value, touched.get(name), node.field(name))
                )
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
        (Value::Array(items), Value::Object(touched)) => {
            let item = |(i, value): (usize, &Value)| inner(value, touched.get(&i.to_string()), node.items());
            format!("[{}]", items.iter().enumerate().map(item).collect::<Vec<_>>().join(","))
        }
        _ => flyball_schema::decode::print(node, value),
    }
}

/// Returns the other version of the kind that the patched object has.
fn other_version(catalog: &Catalog, resource: &Resource, object: &Object) -> Option<Arc<Resource>> {
    if object.kind() != &*resource.kind.kind || object.api_version() == resource.kind.api_version() {
        return None;
    }
    catalog.version_of(&resource.table, &GroupVersion::parse(object.api_version())?).cloned()
}

/// Returns why a patch must not change the version or kind of a built-in object. Fields that it omits are unchanged.
fn other_kind(resource: &Resource, object: &Object) -> Option<String> {
    for field in ["apiVersion", "kind"] {
        if let Some(value) = object.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            let found = json_type(value);
            return Some(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{field} of type string"
            ));
        }
    }
    let expected = &resource.kind;
    let group_version = match object.api_version() {
        "" => expected.group_version(),
        found => match GroupVersion::parse(found) {
            Some(group_version) => group_version,
            None => return Some(format!("unexpected GroupVersion string: {found}")),
        },
    };
    let found = group_version.kind(if object.kind().is_empty() { &expected.kind } else { object.kind() });
    (found != *expected).then(|| scheme::misfit(resource, &found))
}

/// Rejects a patched custom resource of another version or kind.
pub(super) fn check_custom_kind(resource: &Resource, object: &Object) -> Result<(), Status> {
    let expected = &resource.kind;
    if resource.custom().is_none() {
        return Ok(());
    }
    let found = object.group_version_kind().unwrap_or_default();
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
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(&found, object.name(), &errors)) }
}
