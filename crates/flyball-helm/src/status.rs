//! The status of a custom resource, in the operator-sdk's terms.

use crate::redacted::redacted;
use crate::storage::Revision;
use flyball::Error;
use serde_json::{Value, json};
use std::fmt;

/// Length limit of a condition's message, in characters.
const MAX_MESSAGE: usize = 4096;
/// Length limit of the message for the columns, in characters.
const MAX_SUMMARY: usize = 512;
/// Length limit of a chart's notes in a condition, as in `metav1.Condition`.
const MAX_NOTES: usize = 32_768;
/// Size limit of a manifest in the status: etcd stores objects of up to 1.5 MiB.
const MAX_MANIFEST_BYTES: usize = 512 << 10;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedOperation {
    /// Comparing the release with the cluster, or repairing it.
    Reconcile,
    /// Installing it.
    Install,
    /// Upgrading it.
    Upgrade,
    /// Uninstalling it.
    Uninstall,
}

/// The error of a release, with the condition for it.
pub(crate) struct ReleaseError {
    pub(crate) failed_operation: FailedOperation,
    pub(crate) error: Error,
}

impl ReleaseError {
    /// Adds the failed operation to the message.
    pub(crate) fn of(failed_operation: FailedOperation, what: &str) -> impl Fn(Error) -> Self {
        move |error| Self { failed_operation, error: error.context(what) }
    }
}

/// The reason why a release waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// Other long renderings occupy the slots.
    Slot,
    /// Other large releases occupy the memory, and the stored release cannot be read.
    MemoryToRead,
    /// The cache does not contain the last revision yet, so the stored release is unknown.
    Cache,
    /// Other large releases occupy the memory.
    Memory,
    /// An object of the release, in its described state. The timeout ends at this time in seconds since the Unix epoch.
    Object(String, Option<i64>),
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slot => "waiting for other releases to be rendered",
            Self::MemoryToRead => "waiting for other large releases to read the stored one",
            Self::Cache => "waiting for the cache of release Secrets",
            Self::Memory => "waiting for other large releases",
            Self::Object(text, _) => text,
        })
    }
}

/// The state of a release.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report<'a> {
    /// The revision that is installed.
    pub(crate) deployed: Option<&'a Revision>,
    /// The reason why the release waits.
    pub(crate) waits: Option<WaitReason>,
    /// The error.
    pub(crate) failed_operation: Option<(FailedOperation, String)>,
    /// Number of the revision that failed, if there is one.
    pub(crate) failed_revision: Option<u32>,
    /// The Secrets that are not valid revisions of the release.
    pub(crate) invalid: Option<String>,
    /// The release is uninstalled.
    pub(crate) uninstalled: bool,
}

/// Type and reason of the condition about Secrets that are not valid revisions.
pub(crate) const INVALID_REVISION: (&str, &str) = ("InvalidRevision", "InvalidSecret");

impl Report<'_> {
    /// Builds the status.
    pub(crate) fn status(&self) -> Value {
        let mut conditions = vec![json!({"type": "Initialized", "status": "True"})];
        if let Some((failed_operation, message)) = &self.failed_operation {
            conditions.push(true_condition(failed_operation.condition(), message));
        }
        if let Some(message) = &self.invalid {
            conditions.push(true_condition(INVALID_REVISION, message));
        }
        let deployed = |holds: bool, reason: &str, message: &str| {
            let status = if holds { "True" } else { "False" };
            json!({"type": "Deployed", "status": status, "reason": reason, "message": message})
        };
        if let (Some(_), Some(waits)) = (self.deployed, &self.waits) {
            let (reason, message) = (self.progressing(), truncated(&waits.to_string()));
            conditions.push(json!({"type": PROGRESSING, "status": "True", "reason": reason, "message": message}));
        }
        match (self.deployed, &self.waits) {
            _ if self.uninstalled => conditions.push(deployed(false, UNINSTALLED, "")),
            (Some(revision), _) => {
                let notes: String = revision.info.notes.chars().take(MAX_NOTES).collect();
                conditions.push(deployed(true, installed(revision), &notes));
            }
            (None, Some(waits)) => conditions.push(deployed(false, "Installing", &truncated(&waits.to_string()))),
            (None, None) => {}
        }
        let mut status = json!({"conditions": conditions, "release": self.release()});
        if let Some(revision) = self.deployed.filter(|_| !self.uninstalled) {
            status["deployedRelease"] = json!({"name": revision.name});
            if revision.manifest.len() <= MAX_MANIFEST_BYTES
                && let Some(manifest) = redacted(&revision.manifest)
            {
                status["deployedRelease"]["manifest"] = manifest.into();
            }
        }
        status
    }

    /// Returns the reason why a deployed release waits.
    pub(crate) fn progressing(&self) -> &'static str {
        if self.failed_operation.is_some() { "RollingBack" } else { "Upgrading" }
    }

    /// Summarizes the release as `helm list` does, for the columns of `kubectl get`.
    fn release(&self) -> Value {
        let revision = self.deployed.filter(|_| !self.uninstalled);
        let (status, reason) = match (&self.failed_operation, &self.waits, revision) {
            _ if self.uninstalled => ("uninstalled", UNINSTALLED),
            (Some((failed_operation, _)), Some(_), _) => ("pending-rollback", failed_operation.condition().1),
            (Some((failed_operation, _)), ..) => ("failed", failed_operation.condition().1),
            (None, Some(_), None) => ("pending-install", "Installing"),
            (None, Some(_), Some(_)) => ("pending-upgrade", self.progressing()),
            (None, None, Some(revision)) => ("deployed", installed(revision)),
            (None, None, None) => ("unknown", ""),
        };
        let mut release = json!({"status": status, "reason": reason});
        let problem = self.failed_operation.as_ref().map(|(_, problem)| problem.clone());
        let message = problem.or_else(|| self.waits.as_ref().map(ToString::to_string));
        if let Some(message) = message.filter(|_| !self.uninstalled) {
            release["message"] = message.chars().take(MAX_SUMMARY).collect::<String>().into();
        }
        if let Some(failed_revision) = self.failed_revision {
            release["failedRevision"] = failed_revision.into();
        }
        if let Some(revision) = revision {
            release["revision"] = revision.version.into();
            release["chart"] = revision.chart_label().into();
        }
        release
    }
}

/// The types of all conditions.
pub(crate) const CONDITIONS: [&str; 7] =
    ["Initialized", "Deployed", "ReleaseFailed", "Irreconcilable", PROGRESSING, PAUSED, INVALID_REVISION.0];

/// The condition of a paused custom resource.
const PAUSED: &str = "Paused";

/// The condition of a deployed release that waits for an upgrade or a rollback.
pub(crate) const PROGRESSING: &str = "Progressing";

/// The reason of an uninstalled release.
pub(crate) const UNINSTALLED: &str = "UninstallSuccessful";

/// Returns the reason of a deployed revision.
pub(crate) fn installed(revision: &Revision) -> &'static str {
    if revision.version == 1 { "InstallSuccessful" } else { "UpgradeSuccessful" }
}

impl FailedOperation {
    /// Returns the type and the reason of the condition.
    pub(crate) fn condition(self) -> (&'static str, &'static str) {
        match self {
            FailedOperation::Reconcile => ("Irreconcilable", "ReconcileError"),
            FailedOperation::Install => ("ReleaseFailed", "InstallError"),
            FailedOperation::Upgrade => ("ReleaseFailed", "UpgradeError"),
            FailedOperation::Uninstall => ("ReleaseFailed", "UninstallError"),
        }
    }
}

fn true_condition((kind, reason): (&str, &str), message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": truncated(message)})
}

/// Returns true if a status already has a condition of this type with this reason.
pub(crate) fn has_reason(status: &Value, kind: &str, reason: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["reason"] == reason)
}

/// Returns true if a status already has this message in a condition of this type.
pub(crate) fn has_condition(status: &Value, (kind, reason): (&str, &str), message: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let message = truncated(message);
    conditions
        .into_iter()
        .any(|condition| condition["type"] == kind && condition["reason"] == reason && condition["message"] == message)
}

fn truncated(message: &str) -> String {
    message.chars().take(MAX_MESSAGE).collect()
}

/// Builds the status of a paused custom resource.
pub(crate) fn paused(known: &Value) -> Value {
    let mut conditions: Vec<Value> = known["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != PAUSED);
    conditions.push(json!({"type": PAUSED, "status": "True", "reason": "PauseReconcileAnnotationTrue"}));
    let mut status = json!({"conditions": conditions});
    for field in ["deployedRelease", "release"] {
        if let Some(known) = known.get(field) {
            status[field] = known.clone();
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_contains_no_values_of_secrets() {
        let manifest = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {key: pass}\n".into();
        let revision = Revision { name: "a".into(), manifest, ..Revision::default() };
        let status = Report { deployed: Some(&revision), ..Report::default() }.status();
        let shown = status["deployedRelease"]["manifest"].as_str().unwrap();
        assert!(shown.contains("kind: Secret") && shown.contains("key") && !status.to_string().contains("pass"));
    }

    #[test]
    fn conditions_match_operator_sdk() {
        let chart = json!({"metadata": {"name": "site", "version": "0.1.0"}});
        let mut revision =
            Revision { name: "a".into(), version: 1, manifest: "---\n".into(), chart, ..Revision::default() };
        revision.info.notes = "Hello".into();
        let words = |report: Report<'_>| {
            let status = report.status();
            let word = |condition: &Value| {
                let text = |field: &str| condition[field].as_str().unwrap_or("-").to_owned();
                format!("{}={} {} {}", text("type"), text("status"), text("reason"), text("message"))
            };
            let conditions: Vec<String> = status["conditions"].as_array().unwrap().iter().map(word).collect();
            let release = &status["release"];
            let release = ["status", "revision", "chart", "failedRevision", "message"]
                .map(|field| release[field].to_string())
                .join(" ");
            format!("{} {} {release}", conditions.join(", "), status["deployedRelease"]["name"])
        };
        assert_eq!(
            words(Report { deployed: Some(&revision), ..Report::default() }),
            "Initialized=True - -, Deployed=True InstallSuccessful Hello \"a\" \"deployed\" 1 \"site-0.1.0\" null null"
        );
        let failed_operation = Some((FailedOperation::Upgrade, "no".to_owned()));
        revision.version = 2;
        assert_eq!(
            words(Report {
                deployed: Some(&revision),
                failed_operation,
                failed_revision: Some(3),
                ..Report::default()
            }),
            "Initialized=True - -, ReleaseFailed=True UpgradeError no, Deployed=True UpgradeSuccessful Hello \"a\" \"failed\" 2 \"site-0.1.0\" 3 \"no\""
        );
        assert_eq!(
            words(Report {
                deployed: Some(&revision),
                waits: Some(WaitReason::Object("x".into(), None)),
                ..Report::default()
            }),
            "Initialized=True - -, Progressing=True Upgrading x, Deployed=True UpgradeSuccessful Hello \"a\" \"pending-upgrade\" 2 \"site-0.1.0\" null \"x\""
        );
        assert_eq!(
            words(Report { waits: Some(WaitReason::Object("x".into(), None)), ..Report::default() }),
            "Initialized=True - -, Deployed=False Installing x null \"pending-install\" null null null \"x\""
        );
        assert_eq!(
            words(Report { deployed: Some(&revision), uninstalled: true, ..Report::default() }),
            "Initialized=True - -, Deployed=False UninstallSuccessful  null \"uninstalled\" null null null null"
        );
        let paused = paused(&json!({"conditions": [{"type": "Deployed"}], "deployedRelease": {"name": "a"}}));
        assert_eq!(paused["conditions"][1]["type"], "Paused");
    }
}
