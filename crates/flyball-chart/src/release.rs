//! The release of a rendering: `.Release` in templates.

use regex::Regex;
use std::sync::LazyLock;

/// An installation of a chart: name, namespace and revision.
///
/// `.Release.Service` is always `Helm`. See <https://helm.sh/docs/chart_template_guide/builtin_objects/>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `.Release.Name`.
    pub name: String,
    /// `.Release.Namespace`.
    pub namespace: String,
    /// `.Release.Revision`: 1 for an install, incremented by each upgrade and rollback.
    pub revision: u32,
    /// `.Release.IsUpgrade`; `.Release.IsInstall` is its negation.
    pub is_upgrade: bool,
}

const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The maximum length, which leaves room for suffixes.
const MAX_NAME_LENGTH: usize = 53;

static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new(NAME).expect("a constant pattern"));

impl Release {
    /// Validates the name.
    ///
    /// # Errors
    ///
    /// Returns Helm's message if the name is empty or invalid.
    pub fn check_name(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("release name \"\": no name provided".to_owned());
        }
        if self.name.len() > MAX_NAME_LENGTH || !PATTERN.is_match(&self.name) {
            let name = crate::quote::quote(self.name.as_bytes());
            return Err(format!(
                "release name {name}: invalid release name, must match regex {NAME} and the length must not be longer than {MAX_NAME_LENGTH}"
            ));
        }
        Ok(())
    }
}
