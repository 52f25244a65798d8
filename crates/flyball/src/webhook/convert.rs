//! Conversion between the versions of a custom resource, through one of them.
//!
//! A review may contain a whole list, so its objects are parsed one after the other, without keeping their trees.
//!
//! See <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>.

use super::budget;
use super::handler::write;
use super::meter::Meter;
use crate::kind::{Kind, Resource};
use flyball_core::json::{self, MalformedJson, RawJson};
use flyball_core::memory;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";
/// The end of a response, behind the converted objects.
const TAIL: &str = "]}}";

/// Converts an object of one version to another.
type Step = dyn Fn(&Value, &Meter) -> Result<Value, String> + Send + Sync;

/// The versions of one kind.
pub(super) struct Conversions {
    /// The version that all others are converted to and from.
    hub: String,
    others: BTreeMap<String, VersionConversion>,
}

struct VersionConversion {
    to_hub: Box<Step>,
    from_hub: Box<Step>,
}

impl Conversions {
    pub(super) fn of<Hub: Resource>() -> Self {
        Self { hub: api_version(&Kind::of::<Hub>()), others: BTreeMap::new() }
    }

    pub(super) fn add<Hub, Other>(&mut self)
    where
        Hub: Resource + Serialize + TryFrom<Other, Error: Display>,
        Other: Resource + Serialize + TryFrom<Hub, Error: Display>,
    {
        let spoke = VersionConversion { to_hub: Box::new(step::<Other, Hub>), from_hub: Box::new(step::<Hub, Other>) };
        self.others.insert(api_version(&Kind::of::<Other>()), spoke);
    }

    /// Converts one object.
    fn convert(&self, object: Value, to: &str, meter: &Meter) -> Result<Value, String> {
        let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let spoke =
            |version: &str| self.others.get(version).ok_or_else(|| format!("no conversion for version {version}"));
        if from == to {
            return Ok(object);
        }
        let hub = if from == self.hub { object } else { (spoke(&from)?.to_hub)(&object, meter)? };
        if to == self.hub { Ok(hub) } else { (spoke(to)?.from_hub)(&hub, meter) }
    }
}

fn api_version(kind: &Kind) -> String {
    let gvk = kind.gvk();
    if gvk.group.is_empty() { gvk.version.to_string() } else { format!("{}/{}", gvk.group, gvk.version) }
}

/// Converts through the Rust types. Metadata stays as sent, except labels and annotations: the API server rejects
/// other changes.
fn step<From: Resource, To>(object: &Value, meter: &Meter) -> Result<Value, String>
where
    To: Resource + Serialize + TryFrom<From, Error: Display>,
{
    let before = meter.used();
    let typed: From = meter.decode(object).map_err(|error| format!("cannot decode the object: {error}"))?;
    // The converted object is similar.
    meter.charge(meter.used() - before).map_err(|error| error.to_string())?;
    let converted = To::try_from(typed).map_err(|error| error.to_string())?;
    let mut converted = write(meter, &converted).map_err(|error| error.message)?;
    meter.charge(memory::of(&object["metadata"])).map_err(|error| error.to_string())?;
    let mut metadata = object["metadata"].clone();
    for field in ["labels", "annotations"] {
        let Some(metadata) = metadata.as_object_mut() else { continue };
        match converted["metadata"].get(field).filter(|value| !value.is_null()) {
            Some(value) => drop(metadata.insert(field.into(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
    let kind = Kind::of::<To>();
    converted["metadata"] = metadata;
    converted["apiVersion"] = api_version(&kind).into();
    converted["kind"] = kind.name().into();
    Ok(converted)
}

/// The request of a review.
pub(super) struct Request<'a> {
    uid: String,
    desired: String,
    objects: Vec<RawJson<'a>>,
}

/// Size of an object in the lists of texts, in both directions.
const OBJECT_BYTES: usize = 128;
/// Nesting depth of the list of objects: review, request, list.
const OBJECTS_DEPTH: usize = 3;

/// Estimates the memory of a review while it is processed, without the converted objects: its texts, and the largest
/// object as a tree.
///
/// It reads the punctuation only: the text may be anything.
pub(super) fn tree_bytes(body: &[u8]) -> usize {
    let (mut depth, mut objects, mut largest, mut tree) = (0_usize, 1_usize, 0, 0_usize);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in body {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            tree += 1;
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == OBJECTS_DEPTH && matches!(byte, b',' | b'[') {
            (objects, tree) = (objects + 1, 0);
        }
        tree += budget::tree_bytes(&[*byte]);
        largest = largest.max(tree);
    }
    body.len() + objects * OBJECT_BYTES + largest
}

/// Returns the response to a request. If one object cannot be converted, the review fails: the API server accepts all
/// objects or none.
pub(super) fn convert_all(kinds: &BTreeMap<String, Arc<Conversions>>, request: &Request<'_>, meter: &Meter) -> String {
    let convert = |object: RawJson<'_>| {
        let object: Value =
            serde_json::from_str(object.0).map_err(|error| format!("cannot decode an object: {error}"))?;
        let kind = object["kind"].as_str().unwrap_or_default();
        let group =
            object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        let conversions =
            kinds.get(&format!("{kind}.{group}")).ok_or_else(|| format!("no conversion for {kind}.{group}"))?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let converted =
            conversions.convert(object, &request.desired, meter).map_err(|why| format!("{name:?}: {why}"))?;
        serde_json::to_string(&converted).map_err(|error| format!("{name:?}: {error}"))
    };
    let converted: Result<Vec<_>, String> = request
        .objects
        .iter()
        .map(|object| {
            let converted = meter.temporarily(|| convert(*object))?;
            // In the list and in the response.
            meter.charge(2 * converted.len()).map_err(|error| error.to_string())?;
            Ok(converted)
        })
        .collect();
    respond(request, converted)
}

/// Returns the response to a request that fails.
pub(super) fn reject(request: &Request<'_>, why: &dyn Display) -> String {
    respond(request, Err(why.to_string()))
}

/// Reads the request of a review, or returns the reason why it is invalid. The objects are not decoded.
pub(super) fn read(body: &[u8]) -> Result<Request<'_>, String> {
    json::check_keys(body).map_err(|error| invalid(&error))?;
    let text = str::from_utf8(body).map_err(|error| invalid(&error))?;
    let field =
        |of: RawJson<'_>, name: &str| Ok(of.find(name)?.and_then(RawJson::text).unwrap_or_default().into_owned());
    let read = || {
        let review = RawJson(text);
        let kind = (field(review, "apiVersion")?, field(review, "kind")?);
        let Some(request) = review.find("request")? else { return Ok((kind, None)) };
        let objects = request.find("objects")?.and_then(RawJson::elements).unwrap_or_default();
        let (uid, desired) = (field(request, "uid")?, field(request, "desiredAPIVersion")?);
        Ok((kind, Some(Request { uid, desired, objects })))
    };
    let ((api_version, kind), request) = read().map_err(|error: MalformedJson| invalid(&error))?;
    if (&*api_version, &*kind) != (API_VERSION, KIND) {
        return Err(format!("expected {API_VERSION} {KIND}, not {api_version} {kind}"));
    }
    request.ok_or_else(|| "the review has no request".into())
}

fn invalid(error: &dyn Display) -> String {
    format!("not a ConversionReview: {error}")
}

fn respond(request: &Request<'_>, converted: Result<Vec<String>, String>) -> String {
    let (objects, result) = match converted {
        Ok(objects) => (objects, json!({"status": "Success"})),
        Err(why) => (Vec::new(), json!({"status": "Failure", "message": why})),
    };
    let head = format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","response":{{"uid":{},"result":{result},"convertedObjects":["#,
        Value::from(&*request.uid)
    );
    // A buffer that grows would be copied.
    let length: usize = objects.iter().map(|object| object.len() + 1).sum();
    let mut text = String::with_capacity(head.len() + length + TAIL.len());
    text.push_str(&head);
    for (index, object) in objects.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        text.push_str(object);
    }
    text + TAIL
}
