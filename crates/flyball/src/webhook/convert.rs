//! Conversion between the versions of a custom resource, through one of them.
//!
//! A review may contain a whole list, so its objects are parsed one after the other, without keeping their trees.
//!
//! See <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>.

use super::budget;
use crate::kind::{Kind, Resource};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// Converts an object of one version to another.
type Step = dyn Fn(&Value) -> Result<Value, String> + Send + Sync;

/// The versions of one kind.
pub(super) struct Conversions {
    /// The version that all others are converted to and from.
    hub: String,
    others: BTreeMap<String, Spoke>,
}

struct Spoke {
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
        let spoke = Spoke { to_hub: Box::new(step::<Other, Hub>), from_hub: Box::new(step::<Hub, Other>) };
        self.others.insert(api_version(&Kind::of::<Other>()), spoke);
    }

    /// Converts one object.
    fn convert(&self, object: Value, to: &str) -> Result<Value, String> {
        let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let spoke =
            |version: &str| self.others.get(version).ok_or_else(|| format!("no conversion for version {version}"));
        if from == to {
            return Ok(object);
        }
        let hub = if from == self.hub { object } else { (spoke(&from)?.to_hub)(&object)? };
        if to == self.hub { Ok(hub) } else { (spoke(to)?.from_hub)(&hub) }
    }
}

fn api_version(kind: &Kind) -> String {
    let gvk = kind.gvk();
    if gvk.group.is_empty() { gvk.version.to_string() } else { format!("{}/{}", gvk.group, gvk.version) }
}

/// Converts through the Rust types. Metadata stays as sent, except labels and annotations: the API server rejects
/// other changes.
fn step<From: Resource, To>(object: &Value) -> Result<Value, String>
where
    To: Resource + Serialize + TryFrom<From, Error: Display>,
{
    let typed = From::deserialize(object).map_err(|error| format!("cannot decode the object: {error}"))?;
    let converted = To::try_from(typed).map_err(|error| error.to_string())?;
    let mut converted = serde_json::to_value(converted).map_err(|error| error.to_string())?;
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

/// The request in JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    #[serde(borrow, default)]
    objects: Vec<&'a RawValue>,
}

/// The response in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    uid: String,
    converted_objects: Vec<Box<RawValue>>,
    result: Value,
}

/// Estimates the memory of a review while it is processed: all objects as text, in both directions, and the largest
/// as a tree.
pub(super) fn tree_bytes(body: &[u8]) -> usize {
    let request = serde_json::from_slice(body).ok().and_then(|review: Review<'_>| review.request);
    let trees =
        request.iter().flat_map(|request| &request.objects).map(|object| budget::tree_bytes(object.get().as_bytes()));
    2 * body.len() + trees.max().unwrap_or_default()
}

/// Processes a conversion review, or returns the reason why it is invalid. If one object cannot be converted, the
/// review fails: the API server accepts all objects or none.
pub(super) fn answer(kinds: &BTreeMap<String, Arc<Conversions>>, body: &[u8]) -> Result<String, String> {
    let review: Review<'_> =
        serde_json::from_slice(body).map_err(|error| format!("not a ConversionReview: {error}"))?;
    if (review.api_version.as_str(), review.kind.as_str()) != ("apiextensions.k8s.io/v1", "ConversionReview") {
        return Err(format!(
            "expected apiextensions.k8s.io/v1 ConversionReview, not {} {}",
            review.api_version, review.kind
        ));
    }
    let request = review.request.ok_or("the review has no request")?;
    let convert = |object: &RawValue| {
        let object: Value =
            serde_json::from_str(object.get()).map_err(|error| format!("cannot decode an object: {error}"))?;
        let kind = object["kind"].as_str().unwrap_or_default();
        let group =
            object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        let conversions =
            kinds.get(&format!("{kind}.{group}")).ok_or_else(|| format!("no conversion for {kind}.{group}"))?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let converted = conversions.convert(object, &request.desired).map_err(|why| format!("{name:?}: {why}"))?;
        to_raw_value(&converted).map_err(|error| format!("{name:?}: {error}"))
    };
    let converted: Result<Vec<_>, String> = request.objects.iter().map(|object| convert(object)).collect();
    let (converted_objects, result) = match converted {
        Ok(objects) => (objects, json!({"status": "Success"})),
        Err(why) => (Vec::new(), json!({"status": "Failure", "message": why})),
    };
    let answer = Answer { uid: request.uid.clone(), converted_objects, result };
    let answer = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
    Ok(format!(r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{answer}}}"#))
}
