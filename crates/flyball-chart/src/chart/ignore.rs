//! `.helmignore`: files that are excluded from a chart.
//!
//! See <https://helm.sh/docs/chart_template_guide/helm_ignore_file/>. As in Helm, a rule with `!` excludes all files
//! that do not match it.

use super::ChartError;
use crate::glob::PathPattern;

/// The rules; the first match applies.
#[derive(Default)]
pub(super) struct Rules(Vec<Rule>);

struct Rule {
    pattern: PathPattern,
    negate: bool,
    only_directories: bool,
    /// True if the pattern is matched with the path instead of the file name.
    is_path: bool,
}

impl Rules {
    pub(super) fn parse(text: &str) -> Result<Rules, ChartError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let rules = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        rules.map(Rule::parse).collect::<Result<_, _>>().map(Rules)
    }

    pub(super) fn ignore(&self, path: &str, is_directory: bool) -> bool {
        for rule in &self.0 {
            let matches = rule.matches(path);
            if rule.negate {
                if (rule.only_directories && !is_directory) || !matches {
                    return true;
                }
            } else if matches && (is_directory || !rule.only_directories) {
                return true;
            }
        }
        is_hidden_template(path)
    }
}

/// Hidden files in `templates/` are always excluded, as in Helm with its rule `templates/.?*`.
fn is_hidden_template(path: &str) -> bool {
    path.strip_prefix("templates/.").is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

impl Rule {
    fn parse(line: &str) -> Result<Rule, ChartError> {
        if line.contains("**") {
            return Err(ChartError::Ignore("double-star (**) syntax is not supported".to_owned()));
        }
        let (negate, rule) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (only_directories, rule) = rule.strip_suffix('/').map_or((false, rule), |rest| (true, rest));
        let is_path = rule.contains('/');
        let pattern = PathPattern::new(rule.strip_prefix('/').unwrap_or(rule))
            .ok_or_else(|| ChartError::Ignore("syntax error in pattern".to_owned()))?;
        Ok(Rule { pattern, negate, only_directories, is_path })
    }

    fn matches(&self, path: &str) -> bool {
        let subject = if self.is_path { path } else { path.rsplit('/').next().unwrap_or(path) };
        self.pattern.matches(subject)
    }
}
