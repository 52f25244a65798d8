//! The release that a chart is rendered for: `.Release` in templates.

/// What a chart becomes when it is installed: a name, a namespace and a revision.
///
/// `.Release.Service` is always `Helm`. See <https://helm.sh/docs/chart_template_guide/builtin_objects/>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `.Release.Name`.
    pub name: String,
    /// `.Release.Namespace`.
    pub namespace: String,
    /// `.Release.Revision`: 1 for an install, one more for each upgrade and rollback.
    pub revision: u32,
    /// `.Release.IsUpgrade`; `.Release.IsInstall` is its opposite.
    pub is_upgrade: bool,
}
