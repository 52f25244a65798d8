//! What the status of a custom resource tells of its release, in the operator-sdk's words.

use crate::storage::Revision;
use serde_json::{Value, json};

/// What is told at most of an error.
const LONGEST: usize = 16 << 10;

/// What went wrong with a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It could not be compared with what is there, or what is there could not be repaired.
    Reconcile,
    /// It could not be installed.
    Install,
    /// It could not be brought to another revision.
    Upgrade,
    /// It could not be uninstalled.
    Uninstall,
}

/// How a release is.
#[derive(Clone, Debug, Default)]
pub(super) struct Report<'a> {
    /// The revision that is installed.
    pub(super) deployed: Option<&'a Revision>,
    /// What is waited for.
    pub(super) waits: Option<String>,
    /// What went wrong.
    pub(super) trouble: Option<(Trouble, String)>,
    /// Whether it is gone.
    pub(super) uninstalled: bool,
}

impl Report<'_> {
    /// Makes the status of it.
    pub(super) fn status(&self) -> Value {
        let mut conditions = vec![json!({"type": "Initialized", "status": "True"})];
        if let Some((trouble, message)) = &self.trouble {
            let (kind, reason) = match trouble {
                Trouble::Reconcile => ("Irreconcilable", "ReconcileError"),
                Trouble::Install => ("ReleaseFailed", "InstallError"),
                Trouble::Upgrade => ("ReleaseFailed", "UpgradeError"),
                Trouble::Uninstall => ("ReleaseFailed", "UninstallError"),
            };
            let message: String = message.chars().take(LONGEST).collect();
            conditions.push(json!({"type": kind, "status": "True", "reason": reason, "message": message}));
        }
        let deployed = |holds: bool, reason: &str, message: &str| {
            let status = if holds { "True" } else { "False" };
            json!({"type": "Deployed", "status": status, "reason": reason, "message": message})
        };
        match (self.deployed, &self.waits) {
            _ if self.uninstalled => conditions.push(deployed(false, "UninstallSuccessful", "")),
            (Some(revision), _) => {
                let reason = if revision.version == 1 { "InstallSuccessful" } else { "UpgradeSuccessful" };
                conditions.push(deployed(true, reason, &revision.info.notes));
            }
            (None, Some(waits)) => conditions.push(deployed(false, "Installing", waits)),
            (None, None) => {}
        }
        let mut status = json!({"conditions": conditions});
        if let Some(revision) = self.deployed.filter(|_| !self.uninstalled) {
            status["deployedRelease"] = json!({"name": revision.name, "manifest": revision.manifest});
        }
        status
    }
}

/// Makes the status of a custom resource that is left alone.
pub(super) fn paused(known: &Value) -> Value {
    let mut conditions: Vec<Value> = known["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "Paused");
    conditions.push(json!({"type": "Paused", "status": "True", "reason": "PauseReconcileAnnotationTrue"}));
    let mut status = json!({"conditions": conditions});
    if let Some(release) = known.get("deployedRelease") {
        status["deployedRelease"] = release.clone();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_operator_sdks() {
        let mut revision = Revision { name: "a".into(), version: 1, manifest: "---\n".into(), ..Revision::default() };
        revision.info.notes = "Hello".into();
        let words = |report: Report<'_>| {
            let status = report.status();
            let word = |condition: &Value| {
                let text = |field: &str| condition[field].as_str().unwrap_or("-").to_owned();
                format!("{}={} {} {}", text("type"), text("status"), text("reason"), text("message"))
            };
            let conditions: Vec<String> = status["conditions"].as_array().unwrap().iter().map(word).collect();
            format!("{} {}", conditions.join(", "), status["deployedRelease"]["name"])
        };
        assert_eq!(
            words(Report { deployed: Some(&revision), ..Report::default() }),
            "Initialized=True - -, Deployed=True InstallSuccessful Hello \"a\""
        );
        let trouble = Some((Trouble::Upgrade, "no".to_owned()));
        revision.version = 2;
        assert_eq!(
            words(Report { deployed: Some(&revision), trouble, ..Report::default() }),
            "Initialized=True - -, ReleaseFailed=True UpgradeError no, Deployed=True UpgradeSuccessful Hello \"a\""
        );
        assert_eq!(
            words(Report { waits: Some("x".into()), ..Report::default() }),
            "Initialized=True - -, Deployed=False Installing x null"
        );
        assert_eq!(
            words(Report { deployed: Some(&revision), uninstalled: true, ..Report::default() }),
            "Initialized=True - -, Deployed=False UninstallSuccessful  null"
        );
        let paused = paused(&json!({"conditions": [{"type": "Deployed"}], "deployedRelease": {"name": "a"}}));
        assert_eq!(paused["conditions"][1]["type"], "Paused");
    }
}
