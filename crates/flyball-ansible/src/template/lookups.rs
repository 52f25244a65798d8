//! Names of lookups, and their terms that are checked at load time.

use super::PLUGINS;

/// The only supported path: each evaluation creates another password.
pub(super) const NO_FILE: &str = "/dev/null";

/// Supported lookups, besides [`PLUGINS`].
const LOOKUPS: [&str; 9] = ["template", "file", "env", "vars", "varnames", "random_choice", "k8s", "password", "pipe"];

pub(super) fn is_supported(kind: &str) -> bool {
    LOOKUPS.contains(&kind) || PLUGINS.contains(&kind)
}

/// Returns the message about an unsupported lookup.
pub(super) fn unknown_lookup(kind: &str) -> String {
    match kind {
        "pipe" => {
            "the built-in executor supports lookup pipe only for the program date, with a literal format".to_owned()
        }
        "password" => {
            format!("the built-in executor supports lookup password only with the path {}", NO_FILE)
        }
        _ => {
            let supported = [&LOOKUPS[..], &PLUGINS].concat().join(", ");
            format!("the built-in executor does not support lookup {kind}; supported: {supported}")
        }
    }
}

/// Removes the collection of a supported lookup.
pub(super) fn short(kind: &str) -> &str {
    match kind.rsplit_once('.') {
        Some(("ansible.builtin" | "ansible.legacy", name)) => name,
        Some(("kubernetes.core" | "community.kubernetes", "k8s")) => "k8s",
        _ => kind,
    }
}

/// Returns the format of a command such as `date +%F`; `None` if it is another command.
pub(super) fn date_format(command: &str) -> Option<String> {
    if command.contains(['$', '`', ';', '|', '&', '<', '>', '(', ')', '\\']) {
        return None;
    }
    let mut rest = command.trim().strip_prefix("date")?;
    let mut format = "%a %b %e %H:%M:%S %Z %Y".to_owned();
    while !rest.is_empty() {
        let word = rest.strip_prefix(' ')?.trim_start();
        let quote = word.chars().find(|letter| matches!(letter, '\'' | '"' | ' ')).filter(|letter| *letter != ' ');
        let end = match quote {
            Some(quote) => word.match_indices(quote).nth(1)?.0 + 1,
            None => word.find(' ').unwrap_or(word.len()),
        };
        rest = &word[end..];
        let word: String = word[..end].chars().filter(|letter| Some(*letter) != quote).collect();
        format = match word.as_str() {
            "-u" | "--utc" | "--universal" => format,
            "-I" | "--iso-8601" | "-Idate" | "--iso-8601=date" => "%Y-%m-%d".to_owned(),
            "-Iminutes" | "--iso-8601=minutes" => "%Y-%m-%dT%H:%M%:z".to_owned(),
            "-Iseconds" | "--iso-8601=seconds" => "%Y-%m-%dT%H:%M:%S%:z".to_owned(),
            "-R" | "--rfc-email" => "%a, %d %b %Y %H:%M:%S %z".to_owned(),
            other => other.strip_prefix('+')?.to_owned(),
        };
    }
    Some(format)
}
