//! What is asked about each `{{kind}}` before it is stored, or shown in another version.

{{uses}}

/// Makes the webhook.
pub fn webhook() -> Webhook<{{type}}> {
    Webhook::new()
    // +flyball:webhook
}
