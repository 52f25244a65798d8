//! Reviews: `AdmissionReview` for webhooks, and the variable `request` of expressions.
//!
//! See
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-request-and-response>.

use super::Attributes;
use crate::catalog::Resource;
use crate::request::json_type;
use crate::webhook::{self, ResponseMemory, TypedField};
use flyball_core::{GroupVersionKind, Object};
use serde_json::{Map, Value, json};

/// Describes a request in one version of its resource, without the objects.
pub(super) fn describe(attributes: &Attributes<'_>, shown_as: &Resource) -> Map<String, Value> {
    let kind = |resource: &Resource| {
        let kind = kind_of(attributes, resource);
        json!({"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind})
    };
    let plural = |resource: &Resource| {
        let kind = &resource.kind;
        json!({"group": &*kind.group, "version": &*kind.version, "resource": &*resource.plural})
    };
    let mut request = Map::new();
    let mut put = |field: &str, value: Value| {
        if value != "" {
            request.insert(field.to_owned(), value);
        }
    };
    put("kind", kind(shown_as));
    put("resource", plural(shown_as));
    put("subResource", attributes.subresource.into());
    put("requestKind", kind(attributes.resource));
    put("requestResource", plural(attributes.resource));
    put("requestSubResource", attributes.subresource.into());
    put("name", attributes.name.into());
    put("namespace", attributes.namespace_name().into());
    put("operation", attributes.operation.name().into());
    put("userInfo", attributes.user.info().into());
    put("dryRun", attributes.dry_run.into());
    put("options", attributes.options.clone());
    request
}

/// The kind of the body of a request: scales and actions have their own.
fn kind_of(attributes: &Attributes<'_>, resource: &Resource) -> GroupVersionKind {
    attributes.sent.as_ref().map_or_else(|| resource.kind.clone(), |sent| sent.kind.clone())
}

/// Writes a review for a webhook.
pub(super) fn write(
    version: &str,
    uid: &str,
    mut request: Map<String, Value>,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Value {
    let shown = |object: Option<&Object>| object.map_or(Value::Null, |object| object.as_value().clone());
    request.insert("uid".into(), uid.into());
    request.insert("object".into(), shown(object));
    request.insert("oldObject".into(), shown(old));
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// Returns Go's error for a field of a response with the wrong type.
pub(super) fn mistyped(review: &Value) -> Option<String> {
    const FIELDS: [TypedField; 11] = [
        ("/response", "object", "AdmissionReview.response of type v1.AdmissionResponse"),
        ("/response/uid", "string", "AdmissionResponse.response.uid of type types.UID"),
        ("/response/allowed", "bool", "AdmissionResponse.response.allowed of type bool"),
        ("/response/status", "object", "AdmissionResponse.response.status of type v1.Status"),
        ("/response/status/message", "string", "Status.response.status.message of type string"),
        ("/response/status/reason", "string", "Status.response.status.reason of type v1.StatusReason"),
        ("/response/status/code", "number", "Status.response.status.code of type int32"),
        ("/response/patch", "string", "AdmissionResponse.response.patch of type []uint8"),
        ("/response/patchType", "string", "AdmissionResponse.response.patchType of type v1.PatchType"),
        (
            "/response/auditAnnotations",
            "object",
            "AdmissionResponse.response.auditAnnotations of type map[string]string",
        ),
        ("/response/warnings", "array", "AdmissionResponse.response.warnings of type []string"),
    ];
    if let Some(why) = webhook::mistyped(review, &FIELDS) {
        return Some(why);
    }
    let response = &review["response"];
    let texts = response["warnings"].as_array().into_iter().flatten().map(|text| (text, "warnings"));
    let notes = response["auditAnnotations"].as_object().into_iter().flat_map(|notes| notes.values());
    let mut texts = texts.chain(notes.map(|text| (text, "auditAnnotations")));
    let (text, field) = texts.find(|(text, _)| !text.is_string() && !text.is_null())?;
    let field = format!("AdmissionResponse.response.{field} of type string");
    Some(webhook::unmarshal_error(json_type(text), &field))
}

/// The decision of a webhook.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// A JSON patch, not decoded yet; empty for none.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    /// The status of a denial.
    pub(super) status: Option<Value>,
    pub(super) warnings: Vec<String>,
    /// The memory of the response, held while the verdict is used.
    pub(super) memory: ResponseMemory,
}

impl Verdict {
    /// Decodes a response, and checks that it belongs to the request.
    pub(super) fn read(version: &str, uid: &str, mutating: bool, review: &Value) -> Result<Self, String> {
        use base64::Engine;
        let strict = version == "v1";
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let response = &review["response"];
        if !response.is_object() {
            return Err("webhook response was absent".into());
        }
        if strict {
            let response_uid = text(&response["uid"]);
            if response_uid != uid {
                return Err(format!("expected response.uid={uid:?}, got {response_uid:?}"));
            }
            let (kind, version) = (text(&review["kind"]), text(&review["apiVersion"]));
            if kind != "AdmissionReview" || version != "admission.k8s.io/v1" {
                return Err(format!(
                    "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {version}, Kind={kind}"
                ));
            }
        }
        let patch = base64::engine::general_purpose::STANDARD
            .decode(response["patch"].as_str().unwrap_or_default())
            .map_err(|_| "illegal base64 data in response.patch".to_owned())?;
        let patch_type = response["patchType"].as_str();
        match (strict, mutating) {
            (true, true) => match (patch.is_empty(), patch_type) {
                (false, None) => return Err("webhook returned response.patch but not response.patchType".into()),
                (true, Some(_)) => return Err("webhook returned response.patchType but not response.patch".into()),
                (_, Some("")) => return Err("webhook returned invalid response.patchType of \"\"".into()),
                _ => {}
            },
            (true, false) if !patch.is_empty() => {
                return Err("validating webhook may not return response.patch".into());
            }
            (true, false) if patch_type.is_some() => {
                return Err("validating webhook may not return response.patchType".into());
            }
            _ => {}
        }
        // Reviews in v1beta1 have no patch type.
        let patch_type = if strict { patch_type.unwrap_or_default() } else { "JSONPatch" }.to_owned();
        Ok(Self {
            allowed: response["allowed"] == true,
            patch,
            patch_type,
            status: Some(response["status"].clone()).filter(Value::is_object),
            warnings: response["warnings"].as_array().into_iter().flatten().map(text).collect(),
            memory: ResponseMemory::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_responses_are_rejected_with_gos_messages() {
        let fine = json!({"uid": "u", "allowed": true, "status": null, "warnings": ["w", null], "unknown": 1});
        assert_eq!(mistyped(&json!({"response": fine})), None);
        assert_eq!(mistyped(&json!({"response": null})), None);
        for (response, expected) in [
            (json!({"allowed": "yes"}), "string into Go struct field AdmissionResponse.response.allowed of type bool"),
            (json!({"uid": 1}), "number into Go struct field AdmissionResponse.response.uid of type types.UID"),
            (
                json!({"status": "no"}),
                "string into Go struct field AdmissionResponse.response.status of type v1.Status",
            ),
            (
                json!({"status": {"code": "403"}}),
                "string into Go struct field Status.response.status.code of type int32",
            ),
            (
                json!({"warnings": [1]}),
                "number into Go struct field AdmissionResponse.response.warnings of type string",
            ),
            (json!([]), "array into Go struct field AdmissionReview.response of type v1.AdmissionResponse"),
        ] {
            let found = mistyped(&json!({"response": response})).unwrap();
            assert_eq!(found, format!("json: cannot unmarshal {expected}"));
        }
    }
}
