//! What a chart renders to.

use serde_json::Value;

/// A rendered chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rendered {
    /// In the order in which Helm installs them.
    pub manifests: Vec<Manifest>,
    /// By event and weight, not part of the release.
    pub hooks: Vec<Hook>,
    /// `templates/NOTES.txt`, or empty.
    pub notes: String,
}

/// A document that a template gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The template: `chart/templates/x.yaml`.
    pub path: String,
    /// As the template wrote it.
    pub text: String,
    /// What it says.
    pub object: Value,
}

/// A manifest that is applied at a point of the release's life. See <https://helm.sh/docs/topics/charts_hooks/>.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// The object.
    pub manifest: Manifest,
    /// When it is run.
    pub events: Vec<HookEvent>,
    /// The lower, the earlier.
    pub weight: i32,
    /// When it is deleted; none means before the next one is created.
    pub delete_policies: Vec<DeletePolicy>,
}

/// When a hook is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are Helm's own words")]
pub enum HookEvent {
    PreInstall,
    PostInstall,
    PreDelete,
    PostDelete,
    PreUpgrade,
    PostUpgrade,
    PreRollback,
    PostRollback,
    Test,
}

/// When a hook's object is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Helm's own words")]
pub enum DeletePolicy {
    BeforeHookCreation,
    HookSucceeded,
    HookFailed,
}

/// Why a chart does not render.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A template fails.
    #[error("{0}")]
    Template(String),
}
