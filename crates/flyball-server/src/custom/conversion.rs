//! Conversion of custom resources between versions, by the CRD's webhook where it names one.
//!
//! What a webhook converts is converted before it is shown or stored, never with a lock held. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-conversion>.

use crate::registry::{Resource, convert_whole, pruned};
use crate::server::Inner;
use crate::storage::Entry;
use crate::webhook::{Client, Patience};
use flyball_core::{Object, Status};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a conversion may take: the CRD has no say in it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The webhook that converts objects of a CRD.
#[derive(Debug)]
pub(crate) struct Conversion {
    client: Client,
    /// The version of the review that the webhook takes; `None` if it takes none of those that there are.
    review: Option<&'static str>,
}

impl Conversion {
    /// Reads `spec.conversion` of a CRD; `None` if there is no webhook.
    pub(super) fn read(conversion: &Value) -> Option<Self> {
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        let review = versions.filter_map(Value::as_str).find_map(|version| match version {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        });
        Some(Self { client: Client::read(&webhook["clientConfig"]), review })
    }

    /// Has an object of one version turned into another.
    async fn convert(&self, inner: &Inner, from: &Resource, to: &Resource, before: &Object) -> Result<Object, String> {
        let what = format!("conversion webhook for {}, Kind={}", from.kind.api_version(), from.kind.kind);
        let version = self.review.ok_or("no supported conversion review versions")?;
        let uid = inner.rng.uuid();
        let request = json!({"uid": uid, "desiredAPIVersion": to.kind.api_version(), "objects": [before.as_value()]});
        let review = json!({
            "kind": "ConversionReview",
            "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": request,
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        });
        let failed = |why: String| format!("{what} failed: {why}");
        let answer = self.client.ask(inner, &review, Patience::Client(PATIENCE)).await.map_err(failed)?;
        let mut converted = read(version, &uid, answer).map_err(failed)?;
        let count = converted.len();
        let (Some(value), 1) = (converted.pop(), count) else {
            return Err(format!("{what} returned {count} objects, expected 1"));
        };
        let wrong = |how: &str, why: String| format!("{what} returned invalid {how}: {why}");
        let after = check_kind(from, to, value).map_err(|why| wrong("object at index 0", why))?;
        check_identity(before, &after).map_err(|why| wrong("object", why))?;
        keep_metadata(before, after).map_err(|why| wrong("metadata", why))
    }
}

/// Takes the objects out of an answer.
fn read(version: &str, uid: &str, mut answer: Value) -> Result<Vec<Value>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if version == "v1" {
        let (kind, version) = (text(&answer["kind"]), text(&answer["apiVersion"]));
        if kind != "ConversionReview" || version != "apiextensions.k8s.io/v1" {
            return Err(format!(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {version}, Kind={kind}"
            ));
        }
    }
    let response = &mut answer["response"];
    if !response.is_object() {
        return Err("no response provided".into());
    }
    if version == "v1" && response["uid"] != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", text(&response["uid"])));
    }
    let (status, message) = (text(&response["result"]["status"]), text(&response["result"]["message"]));
    match (status.as_str(), message.as_str()) {
        ("Success", _) => Ok(response["convertedObjects"].as_array_mut().map(std::mem::take).unwrap_or_default()),
        (_, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

/// Checks that an object is of the version that was asked for.
fn check_kind(from: &Resource, to: &Resource, value: Value) -> Result<Object, String> {
    let object = Object::try_from(value).map_err(|_| "not an object".to_owned())?;
    let (wanted, given) = (to.kind.api_version(), object.api_version());
    if given != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {given})"));
    }
    if object.kind() != &*from.kind.kind {
        return Err(format!("invalid kind (expected {}, received {})", from.kind.kind, object.kind()));
    }
    Ok(object)
}

/// Checks that an object is still the one it was.
fn check_identity(before: &Object, after: &Object) -> Result<(), String> {
    let namespaces = [before, after].map(|object| object.namespace().unwrap_or_default());
    for (what, before, after) in [
        ("name", before.name(), after.name()),
        ("namespace", namespaces[0], namespaces[1]),
        ("UID", before.uid(), after.uid()),
    ] {
        if before != after {
            return Err(format!("must have the same {what}: {before} != {after}"));
        }
    }
    Ok(())
}

/// Gives an object its metadata back: a conversion changes labels and annotations alone.
fn keep_metadata(before: &Object, mut after: Object) -> Result<Object, String> {
    let mut metadata = before.metadata().cloned().unwrap_or_default();
    let given: Map<String, Value> = match after.get("metadata") {
        None => return Err("missing metadata in converted object".into()),
        Some(Value::Object(given)) => given.clone(),
        Some(_) => return Err("invalid metadata in converted object".into()),
    };
    for field in ["labels", "annotations"] {
        match given.get(field) {
            Some(value) if !value.is_null() => {
                if !value.as_object().is_some_and(|map| map.values().all(Value::is_string)) {
                    return Err(format!("metadata.{field} is no map of texts"));
                }
                metadata.insert(field.to_owned(), value.clone());
            }
            _ => drop(metadata.remove(field)),
        }
    }
    *after.metadata_mut() = metadata;
    Ok(after)
}

impl Inner {
    /// Turns an object of one version of a resource into another, as far as that one knows what is in it.
    pub(crate) async fn as_version(&self, from: &Resource, to: &Resource, object: Object) -> Result<Object, Status> {
        if from.kind == to.kind {
            return Ok(object);
        }
        let whole = self.as_whole_version(from, to, object).await.map_err(|why| Status::new(500, None, why))?;
        Ok(pruned(to, whole))
    }

    /// Turns an object of one version of a resource into another, with all that is in it.
    pub(crate) async fn as_whole_version(
        &self,
        from: &Resource,
        to: &Resource,
        object: Object,
    ) -> Result<Object, String> {
        match from.custom().and_then(|custom| custom.conversion.as_ref()) {
            Some(conversion) => conversion.convert(self, from, to, &object).await,
            None => Ok(convert_whole(from, to, object)),
        }
    }

    /// Turns an object into the version in which it is stored; also returns that version.
    pub(crate) async fn to_stored(
        &self,
        resource: &Arc<Resource>,
        mut object: Object,
    ) -> Result<(Arc<Resource>, Object), Status> {
        match resource.stored_as(self).filter(|_| resource.converts()) {
            Some(stored) => {
                object.metadata_mut().remove("resourceVersion");
                let object = self.as_version(resource, &stored, object).await?;
                Ok((stored, object))
            }
            None => Ok((resource.clone(), object)),
        }
    }

    /// Returns the entries of a list as a version of their resource shows them, so that nothing is left to convert.
    ///
    /// Those of resources that no webhook converts are returned as they are. What has been converted before is not
    /// converted again.
    pub(crate) async fn shown(
        &self,
        resource: &Resource,
        mut entries: Vec<Arc<Entry>>,
    ) -> Result<Vec<Arc<Entry>>, Status> {
        if resource.converts() {
            for entry in entries.iter_mut().filter(|entry| entry.schema != resource.schema_number) {
                let known = resource.custom().and_then(|custom| custom.converted.get(entry));
                *entry = match known {
                    Some(known) => known,
                    None => self.shown_one(resource, entry.clone()).await?,
                };
            }
        }
        Ok(entries)
    }

    /// Returns an entry as a version of its resource shows it.
    pub(crate) async fn shown_one(&self, resource: &Resource, entry: Arc<Entry>) -> Result<Arc<Entry>, Status> {
        if !resource.converts() || entry.schema == resource.schema_number {
            return Ok(entry);
        }
        let Some(stored) = resource.written_as(self, &entry).filter(|stored| stored.kind != resource.kind) else {
            return Ok(entry);
        };
        let mut object = self.object(&stored, &entry)?;
        // Storage gives an object its version, and that last of all.
        object.metadata_mut().remove("resourceVersion");
        let object = self.as_version(&stored, resource, object).await?;
        let facts = resource.facts(&object);
        let made = Arc::new(Entry::new(entry.key.clone(), object, entry.revision, facts, resource.schema_number));
        resource.custom().into_iter().for_each(|custom| custom.converted.put(&made));
        Ok(made)
    }
}
