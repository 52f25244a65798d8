//! Webhooks for `{{kind}}`.

{{uses}}

/// Returns the webhooks.
pub fn webhook() -> Webhook<{{type}}> {
    Webhook::new()
    // +flyball:webhook
}
