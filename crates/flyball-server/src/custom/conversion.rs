//! Conversion of custom resources between versions, by the CRD's webhook if there is one.
//!
//! See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-conversion>.

use crate::webhook::{Client, ReviewResponse, Timeout, TypedField, Webhooks, mistyped};
use flyball_core::{GroupVersionKind, Object};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Timeout of a conversion, which the CRD cannot set.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// The fields of a response that have a type, besides the objects; see [`mistyped`].
const FIELDS: [TypedField; 8] = [
    ("/response", "object", "ConversionReview.response of type v1.ConversionResponse"),
    ("/response/uid", "string", "ConversionResponse.response.uid of type types.UID"),
    (
        "/response/convertedObjects",
        "array",
        "ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
    ),
    ("/response/result", "object", "ConversionResponse.response.result of type v1.Status"),
    ("/response/result/status", "string", "Status.response.result.status of type string"),
    ("/response/result/message", "string", "Status.response.result.message of type string"),
    ("/response/result/reason", "string", "Status.response.result.reason of type v1.StatusReason"),
    ("/response/result/code", "number", "Status.response.result.code of type int32"),
];

/// The webhook that converts objects of a CRD.
#[derive(Debug)]
pub(crate) struct Conversion {
    client: Client,
    /// The review version that the webhook supports; `None` if it supports none of the known ones.
    review: Option<&'static str>,
}

impl Conversion {
    /// Reads `spec.conversion` of the CRD with this name; `None` if there is no webhook.
    pub(super) fn read(crd: &str, conversion: &Value) -> Option<Self> {
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
        Some(Self { client: Client::read(crd, &webhook["clientConfig"]), review })
    }

    /// Converts an object to another version.
    pub(crate) async fn convert(
        &self,
        webhooks: &Webhooks,
        from: &GroupVersionKind,
        to: &GroupVersionKind,
        before: &Object,
    ) -> Result<Object, String> {
        let what = format!("conversion webhook for {}, Kind={}", from.api_version(), from.kind);
        let version = self.review.ok_or("no supported conversion review versions")?;
        let uid = webhooks.uid();
        let request = json!({"uid": uid, "desiredAPIVersion": to.api_version(), "objects": [before.as_value()]});
        let review = json!({
            "kind": "ConversionReview",
            "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": request,
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        });
        let failed = |why: String| format!("{what} failed: {why}");
        let response =
            webhooks.send(&self.client, review, Timeout::Client(CONVERSION_TIMEOUT)).await.map_err(failed)?;
        let ReviewResponse { review, memory: _memory } = response;
        if let Some(why) = mistyped(&review, &FIELDS) {
            return Err(failed(why));
        }
        let mut converted = read(version, &uid, review).map_err(failed)?;
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

/// Returns the objects of a response.
fn read(version: &str, uid: &str, mut review: Value) -> Result<Vec<Value>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if version == "v1" {
        let (kind, version) = (text(&review["kind"]), text(&review["apiVersion"]));
        if kind != "ConversionReview" || version != "apiextensions.k8s.io/v1" {
            return Err(format!(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {version}, Kind={kind}"
            ));
        }
    }
    let response = &mut review["response"];
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

/// Checks that an object is of the requested version.
fn check_kind(from: &GroupVersionKind, to: &GroupVersionKind, value: Value) -> Result<Object, String> {
    let object = Object::try_from(value).map_err(|_| "not an object".to_owned())?;
    let (expected, received) = (to.api_version(), object.api_version());
    if received != expected {
        return Err(format!("invalid groupVersion (expected {expected}, received {received})"));
    }
    if object.kind() != &*from.kind {
        return Err(format!("invalid kind (expected {}, received {})", from.kind, object.kind()));
    }
    Ok(object)
}

/// Checks that a conversion did not change the identity of an object.
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

/// Restores the metadata of a converted object: a conversion may change labels and annotations only.
fn keep_metadata(before: &Object, mut after: Object) -> Result<Object, String> {
    let mut metadata = before.metadata().cloned().unwrap_or_default();
    let converted: Map<String, Value> = match after.get("metadata") {
        None => return Err("missing metadata in converted object".into()),
        Some(Value::Object(converted)) => converted.clone(),
        Some(_) => return Err("invalid metadata in converted object".into()),
    };
    for field in ["labels", "annotations"] {
        match converted.get(field) {
            Some(value) if !value.is_null() => {
                if !value.as_object().is_some_and(|map| map.values().all(Value::is_string)) {
                    return Err(format!("metadata.{field} is not a map of texts"));
                }
                metadata.insert(field.to_owned(), value.clone());
            }
            _ => drop(metadata.remove(field)),
        }
    }
    *after.metadata_mut() = metadata;
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_responses_are_rejected_with_gos_messages() {
        let fine = json!({"uid": "u", "convertedObjects": [1], "result": {"status": "Success", "details": 3}});
        assert_eq!(mistyped(&json!({"response": fine}), &FIELDS), None);
        for (response, expected) in [
            (json!("x"), "string into Go struct field ConversionReview.response of type v1.ConversionResponse"),
            (
                json!({"convertedObjects": {}}),
                "object into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
            ),
            (
                json!({"result": {"status": 5}}),
                "number into Go struct field Status.response.result.status of type string",
            ),
        ] {
            let found = mistyped(&json!({"response": response}), &FIELDS).unwrap();
            assert_eq!(found, format!("json: cannot unmarshal {expected}"));
        }
    }
}
