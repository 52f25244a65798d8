//! Jobs.

use flyball_core::Object;
use serde_json::Value;

/// Tells how many pods of a job succeeded.
pub(super) fn successful(job: &Object, _: &str) -> String {
    job.at(&["status", "succeeded"]).and_then(Value::as_i64).unwrap_or_default().to_string()
}
