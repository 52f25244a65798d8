//! What is asked about each `{{kind}}` before it is stored, or shown in another version.

use crate::api::{{module}}::{{type}};
use flyball::Webhook;

/// Makes the webhook.
pub fn webhook() -> Webhook<{{type}}> {
    Webhook::new()
    // +flyball:webhook
}
