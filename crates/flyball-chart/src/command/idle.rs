//! Flags of `helm template` that have no effect, because nothing is installed. Their values are checked as by Helm.

use super::flags::{invalid_argument, not_parsed, parse_bool};
use crate::HelmVersion;
use crate::quote::quote;
use flyball_core::time::parse_duration;

/// Labels of the Secrets of releases, which users cannot set.
const SYSTEM_LABELS: [&str; 6] = ["name", "owner", "status", "version", "createdAt", "modifiedAt"];

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct IdleFlags {
    #[arg(long, hide = true)]
    pub(super) skip_crds: bool,
    #[arg(long, hide = true)]
    hide_notes: bool,
    #[arg(long, hide = true)]
    create_namespace: bool,
    #[arg(long, hide = true)]
    replace: bool,
    #[arg(long, hide = true)]
    force: bool,
    #[arg(long, hide = true)]
    force_replace: bool,
    #[arg(long, hide = true)]
    force_conflicts: bool,
    #[arg(long, hide = true)]
    server_side: bool,
    #[arg(long, hide = true)]
    atomic: bool,
    #[arg(long, hide = true)]
    rollback_on_failure: bool,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)]
    wait: Option<Option<String>>,
    #[arg(long, hide = true)]
    wait_for_jobs: bool,
    #[arg(long, hide = true)]
    timeout: Option<String>,
    #[arg(long, hide = true)]
    description: Option<String>,
    #[arg(short, long, hide = true, value_delimiter = ',')]
    labels: Vec<String>,
    #[arg(long, hide = true)]
    disable_openapi_validation: bool,
}

impl IdleFlags {
    /// Rejects flags that a version of Helm does not have, and invalid values. Returns Helm's warnings.
    pub(super) fn check(&self, helm: HelmVersion) -> Result<Vec<String>, String> {
        let of_4 = [
            (self.force_conflicts, "--force-conflicts"),
            (self.force_replace, "--force-replace"),
            (self.rollback_on_failure, "--rollback-on-failure"),
            (self.server_side, "--server-side"),
        ];
        if let Some((_, flag)) = of_4.iter().find(|(is_set, _)| *is_set && helm == HelmVersion::V3) {
            return Err(format!("unknown flag: {flag}"));
        }
        self.check_values()?;
        let mut warnings = Vec::new();
        if let Some(Some(wait)) = &self.wait {
            warnings.extend(check_wait(wait, helm)?);
        }
        if helm == HelmVersion::V4 {
            warnings.extend(self.check_4()?);
        }
        Ok(warnings)
    }

    fn check_values(&self) -> Result<(), String> {
        if let Some(timeout) = &self.timeout {
            parse_duration(timeout).map_err(|error| invalid_argument("--timeout", timeout, &error.to_string()))?;
        }
        for label in &self.labels {
            let Some((name, _)) = label.split_once('=') else {
                let problem = format!("{label} must be formatted as key=value");
                return Err(invalid_argument("-l, --labels", label, &problem));
            };
            if SYSTEM_LABELS.contains(&name) {
                let system = SYSTEM_LABELS.join(" ");
                return Err(format!(
                    "user supplied labels contains system reserved label name. System labels: [{system}]"
                ));
            }
        }
        Ok(())
    }

    fn check_4(&self) -> Result<Vec<String>, String> {
        for (is_set, flag) in [(self.force_replace, "force-replace"), (self.force, "force")] {
            if is_set && self.force_conflicts {
                return Err(exclusive(&[flag, "force-conflicts"]));
            }
        }
        let deprecated =
            [(self.atomic, "atomic", "--rollback-on-failure"), (self.force, "force", "--force-replace")].into_iter();
        Ok(deprecated.filter(|(is_set, ..)| *is_set).map(|(_, flag, instead)| deprecation(flag, instead)).collect())
    }
}

/// Helm's message about flags of which only one may be set.
pub(super) fn exclusive(group: &[&str]) -> String {
    let mut set = group.to_vec();
    set.sort_unstable();
    let (group, set) = (group.join(" "), set.join(" "));
    format!("if any flags in the group [{group}] are set none of the others can be; [{set}] were all set")
}

/// Helm's warning about a deprecated flag.
pub(super) fn deprecation(flag: &str, instead: &str) -> String {
    format!("Flag --{flag} has been deprecated, use {instead} instead")
}

/// A warning in the log of Helm 4.
pub(super) fn warning(text: &str) -> String {
    format!("level=WARN msg={}", quote(text.as_bytes()))
}

fn check_wait(wait: &str, helm: HelmVersion) -> Result<Option<String>, String> {
    let instead = match (helm, wait) {
        (HelmVersion::V3, _) if parse_bool(wait).is_some() => return Ok(None),
        (HelmVersion::V3, _) => return Err(invalid_argument("--wait", wait, &not_parsed("ParseBool", wait))),
        (HelmVersion::V4, "watcher" | "hookOnly" | "legacy") => return Ok(None),
        (HelmVersion::V4, "true") => "watcher",
        (HelmVersion::V4, "false") => "hookOnly",
        (HelmVersion::V4, _) => {
            let input = quote(wait.as_bytes());
            let problem = format!("invalid wait input {input}. Valid inputs are watcher, hookOnly, and legacy");
            return Err(invalid_argument("--wait", wait, &problem));
        }
    };
    let text = format!("--wait={wait} is deprecated (boolean value) and can be replaced with --wait={instead}");
    Ok(Some(warning(&text)))
}
