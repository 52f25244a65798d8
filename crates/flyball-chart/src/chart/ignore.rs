//! `.helmignore`: files that are excluded from a chart.
//!
//! See <https://helm.sh/docs/chart_template_guide/helm_ignore_file/>. As in Helm, a rule with `!` excludes all files
//! that do not match it.

use super::ChartError;
use crate::glob::path_match;

/// The rules; the first match applies.
#[derive(Default)]
pub(super) struct Rules(Vec<Rule>);

struct Rule {
    pattern: String,
    negate: bool,
    only_folders: bool,
    /// True if the pattern is matched with the path instead of the file name.
    is_path: bool,
}

/// Hidden files in `templates/` are always excluded, as in Helm.
const HIDDEN_TEMPLATES: &str = "templates/.?*";

impl Rules {
    pub(super) fn parse(text: &str) -> Result<Rules, ChartError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let rules = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        rules.map(Rule::parse).collect::<Result<_, _>>().map(Rules)
    }

    pub(super) fn ignore(&self, path: &str, is_folder: bool) -> bool {
        for rule in &self.0 {
            let matches = rule.matches(path);
            if rule.negate {
                if (rule.only_folders && !is_folder) || !matches {
                    return true;
                }
            } else if matches && (is_folder || !rule.only_folders) {
                return true;
            }
        }
        path_match(HIDDEN_TEMPLATES, path) == Some(true)
    }
}

impl Rule {
    fn parse(line: &str) -> Result<Rule, ChartError> {
        if line.contains("**") {
            return Err(ChartError::Ignore("double-star (**) syntax is not supported".to_owned()));
        }
        if path_match(line, "abc").is_none() {
            return Err(ChartError::Ignore("syntax error in pattern".to_owned()));
        }
        let (negate, rule) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (only_folders, rule) = rule.strip_suffix('/').map_or((false, rule), |rest| (true, rest));
        let is_path = rule.contains('/');
        let pattern = rule.strip_prefix('/').unwrap_or(rule).to_owned();
        Ok(Rule { pattern, negate, only_folders, is_path })
    }

    fn matches(&self, path: &str) -> bool {
        let subject = if self.is_path { path } else { path.rsplit('/').next().unwrap_or(path) };
        path_match(&self.pattern, subject) == Some(true)
    }
}
