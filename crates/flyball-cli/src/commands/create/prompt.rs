//! Group, version and kind of a new API, from flags or from a terminal.

use super::exit_with_usage_error;
use crate::error::Result;
use crate::project::names;
use crate::render::prompt;

/// Returns group, version and kind, and asks for missing ones on a terminal.
pub(super) fn prompt_names([group, version, kind]: [Option<&str>; 3]) -> Result<[String; 3]> {
    let flags = [("--group", group), ("--version", version), ("--kind", kind)];
    let missing: Vec<&str> = flags.iter().filter(|(_, value)| value.is_none()).map(|(flag, _)| *flag).collect();
    if !missing.is_empty() && !prompt::is_available() {
        exit_with_usage_error(&format!("required without a terminal: {}", missing.join(", ")));
    }
    Ok([
        flag_or_prompt("group", group, None, names::group_or_core)?,
        flag_or_prompt("version", version, Some("v1alpha1"), names::version)?,
        flag_or_prompt("kind", kind, None, names::kind)?,
    ])
}

fn flag_or_prompt(
    flag: &str,
    value: Option<&str>,
    proposed: Option<&str>,
    check: fn(&str) -> Result<String, String>,
) -> Result<String> {
    match value {
        Some(value) => Ok(value.to_owned()),
        None => prompt::read_text(flag, proposed, check),
    }
}
