//! Jobs.

use super::Deletion;
use flyball_core::Object;
use serde_json::Value;

/// The pods of a job stay unless the client says otherwise.
pub(super) const DELETION: Deletion = Deletion {
    orphans: true,
    warning: Some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
    ),
    ..Deletion::AT_ONCE
};

/// Returns how many pods of a job succeeded.
pub(super) fn successful(job: &Object, _: &str) -> String {
    job.at(&["status", "succeeded"]).and_then(Value::as_i64).unwrap_or_default().to_string()
}
