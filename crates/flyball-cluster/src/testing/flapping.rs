//! The fields that an operator reports as alternating between two values.

use super::Test;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Limit of fields in a message.
const MAX_FIELDS: usize = 5;

impl Test {
    /// Describes the alternating fields that the operator reported by events, for a message; empty if there are none.
    pub(super) async fn flapping_fields(&self) -> String {
        let events = Api::<Event>::all(self.client()).list(&ListParams::default()).await;
        let flapping = events.into_iter().flatten().filter(|event| event.reason.as_deref() == Some("Flapping"));
        let notes: BTreeSet<String> = flapping.filter_map(|event| event.note).collect();
        let mut text = String::new();
        for note in notes.into_iter().take(MAX_FIELDS) {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n  {note}");
        }
        if text.is_empty() { text } else { format!("; fields that alternate:{text}") }
    }
}
