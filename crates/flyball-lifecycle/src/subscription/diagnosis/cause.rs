//! A reason for the state of an object.

use serde::Serialize;

/// The effect of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// There is no progress until it is resolved.
    Blocking,
    /// The cause ends without a change, or by an approval.
    Waiting,
    /// The cause only explains the state.
    Notice,
}

/// A reason for the state of a Subscription or a ClusterServiceVersion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// The effect.
    pub severity: Severity,
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// The field; empty if it is the object as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The reason.
    pub message: String,
    /// The remedy; empty if none is needed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Cause {
    pub(super) fn new(severity: Severity, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity, object: object.into(), field: String::new(), message: message.into(), remedy: String::new() }
    }

    pub(super) fn field(mut self, field: &str) -> Self {
        field.clone_into(&mut self.field);
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// Returns a message with its reason, if there is one.
pub(super) fn with_reason(reason: &str, message: &str) -> String {
    [reason, message].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}
