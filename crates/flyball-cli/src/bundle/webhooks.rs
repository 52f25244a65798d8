//! The webhooks of a CSV, from webhook configurations and conversions.

use super::Parts;
use serde_json::{Value, json};

/// Fields of a webhook that a CSV can hold.
const FIELDS: [&str; 8] = [
    "admissionReviewVersions",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "reinvocationPolicy",
    "rules",
    "sideEffects",
    "timeoutSeconds",
];
/// Fields that the lifecycle manager sets itself.
const OWN_FIELDS: [&str; 3] = ["name", "clientConfig", "namespaceSelector"];

/// Returns `webhookdefinitions`, and the fields that a CSV cannot hold.
pub(super) fn definitions(parts: &Parts, deployment: &str, port: &Value) -> (Vec<Value>, Vec<String>) {
    let (mut definitions, mut lost) = (Vec::new(), Vec::new());
    for configuration in &parts.webhook_configurations {
        let is_mutating = configuration["kind"] == "MutatingWebhookConfiguration";
        let kind = if is_mutating { "MutatingAdmissionWebhook" } else { "ValidatingAdmissionWebhook" };
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            let mut definition = json!({
                "type": kind, "generateName": webhook["name"], "deploymentName": deployment,
                "containerPort": 443, "targetPort": port,
                "webhookPath": webhook["clientConfig"]["service"]["path"],
            });
            for (field, value) in webhook.as_object().into_iter().flatten() {
                if FIELDS.contains(&field.as_str()) {
                    definition[field] = value.clone();
                } else if !OWN_FIELDS.contains(&field.as_str()) {
                    lost.push(format!("{field} of webhook {}", webhook["name"].as_str().unwrap_or_default()));
                }
            }
            definitions.push(definition);
        }
    }
    if let Some((_, path)) = parts.conversions.first() {
        let names: Vec<&String> = parts.conversions.iter().map(|(name, _)| name).collect();
        definitions.push(json!({
            "type": "ConversionWebhook", "generateName": "conversion", "deploymentName": deployment,
            "containerPort": 443, "targetPort": port, "webhookPath": path, "conversionCRDs": names,
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        }));
    }
    (definitions, lost)
}
