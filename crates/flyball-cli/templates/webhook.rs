//! Webhooks for `{{kind}}`.

{{uses}}

/// Returns the webhook configuration.
pub fn webhook() -> Webhook<{{type}}> {
    Webhook::new()
    // +flyball:webhook
}
