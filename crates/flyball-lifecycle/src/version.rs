//! Versions and version ranges in the dialect of blang/semver, which OLM and operator-registry use.
//!
//! Unlike in npm or Cargo, a range has no rule for prereleases: `>1.0.0` includes `2.0.0-rc.1`, and `>=2.0.0` does not.

use semver::Version;
use std::cmp::Ordering;

/// Parses a version such as `1.2.3`, `v1.2` or `01.2`; missing numbers are zero.
///
/// Returns `None` for a text that is not a version.
#[doc(alias = "ParseTolerant")]
pub fn parse_tolerant(text: &str) -> Option<Version> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_leading_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
        return None;
    }
    parts.resize(3, "0".to_owned());
    Version::parse(&parts.join(".")).ok()
}

fn without_leading_zeros(part: &str) -> String {
    let rest = part.trim_start_matches('0');
    if part.len() > 1 && !rest.starts_with(|char: char| char.is_ascii_digit()) {
        return format!("0{rest}");
    }
    if part.len() > 1 { rest.to_owned() } else { part.to_owned() }
}

/// A set of versions: alternatives separated by `||`, each a list of comparisons such as `>=1.0.0 <2.0.0`.
#[derive(Clone, Debug)]
pub struct VersionRange(Vec<Vec<Comparison>>);

#[derive(Clone, Debug)]
struct Comparison {
    operator: Operator,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// A text that is not a version range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRange {
    /// An alternative is missing before or after `||`.
    #[error("{position} element in range is '||'")]
    MissingAlternative {
        /// `First` or `Last`.
        position: &'static str,
    },
    /// A comparison has no number.
    #[error("Could not get version from string: {part:?}")]
    NoVersion {
        /// The comparison.
        part: String,
    },
    /// A comparison has an unknown operator.
    #[error("Could not parse comparator {operator:?} in {part:?}")]
    UnknownOperator {
        /// The operator.
        operator: String,
        /// The comparison.
        part: String,
    },
    /// A comparison has an invalid version.
    #[error("Could not parse version {version:?} in {part:?}")]
    InvalidVersion {
        /// The version.
        version: String,
        /// The comparison.
        part: String,
    },
}

impl VersionRange {
    /// Parses a range.
    #[doc(alias = "ParseRange")]
    pub fn parse(text: &str) -> Result<Self, InvalidRange> {
        let parts = split(text);
        let mut alternatives = Vec::new();
        for (index, alternative) in parts.split(|part| part == "||").enumerate() {
            if alternative.is_empty() {
                let position = if index == 0 && !parts.is_empty() { "First" } else { "Last" };
                return Err(InvalidRange::MissingAlternative { position });
            }
            let mut comparisons = Vec::new();
            for part in alternative {
                comparisons.extend(comparisons_of(part)?);
            }
            alternatives.push(comparisons);
        }
        Ok(Self(alternatives))
    }

    /// Returns the versions of a range, or all, without those after a version.
    pub(crate) fn up_to(range: Option<Self>, version: &Version) -> Self {
        let limit = Comparison { operator: Operator::LessOrEqual, version: version.clone() };
        let mut alternatives = range.map_or_else(|| vec![Vec::new()], |range| range.0);
        alternatives.iter_mut().for_each(|all| all.push(limit.clone()));
        Self(alternatives)
    }

    /// Returns true if the range includes a version. Build metadata has no effect.
    pub fn includes(&self, version: &Version) -> bool {
        self.0.iter().any(|all| all.iter().all(|comparison| comparison.includes(version)))
    }
}

impl Comparison {
    fn includes(&self, version: &Version) -> bool {
        let order = version.cmp_precedence(&self.version);
        match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
        }
    }
}

/// Splits a range at spaces, except for those after an operator. As in blang/semver, parts of one character are
/// ignored.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut start, mut last) = (Vec::new(), 0, ' ');
    for (at, char) in text.char_indices() {
        if char != ' ' {
            last = char;
        } else if !matches!(last, '>' | '<' | '=') {
            parts.push(&text[start..at]);
            start = at + 1;
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().filter(|part| part.len() > 1).map(|part| part.replace(' ', "")).collect()
}

/// Returns the comparisons of a part; a wildcard such as `1.x` is a lower and an upper bound.
fn comparisons_of(part: &str) -> Result<Vec<Comparison>, InvalidRange> {
    if !part.contains('x') {
        return Ok(vec![comparison(part)?]);
    }
    let (operator, version) = split_operator(part)?;
    let parts = version.split('.').count();
    let flat = version.replacen(".x.x", ".x", 1).replacen(".x", ".0", 1);
    let flat = if flat.split('.').count() == 2 { format!("{flat}.0") } else { flat };
    let next = || match Version::parse(&flat) {
        Ok(Version { major, minor, .. }) if version.ends_with(".x") && parts == 3 => format!("{major}.{}.0", minor + 1),
        Ok(Version { major, .. }) if version.ends_with(".x") && parts == 2 => format!("{}.0.0", major + 1),
        _ => String::new(),
    };
    let bounds = match operator {
        ">" => vec![format!(">={}", next())],
        ">=" => vec![format!(">={flat}")],
        "<" => vec![format!("<{flat}")],
        "<=" => vec![format!("<{}", next())],
        "" | "=" | "==" => vec![format!(">={flat}"), format!("<{}", next())],
        "!=" | "!" => vec![format!("<{flat}"), format!(">={}", next())],
        _ => {
            return Err(InvalidRange::UnknownOperator { operator: operator.to_owned(), part: part.to_owned() });
        }
    };
    bounds.iter().map(|bound| comparison(bound)).collect()
}

fn split_operator(part: &str) -> Result<(&str, &str), InvalidRange> {
    let at = part.find(|char: char| char.is_ascii_digit());
    let at = at.ok_or_else(|| InvalidRange::NoVersion { part: part.to_owned() })?;
    Ok(part.split_at(at))
}

fn comparison(part: &str) -> Result<Comparison, InvalidRange> {
    let (operator, version) = split_operator(part)?;
    let operator = match operator {
        "" | "=" | "==" => Operator::Equal,
        "!" | "!=" => Operator::NotEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        _ => return Err(InvalidRange::UnknownOperator { operator: operator.to_owned(), part: part.to_owned() }),
    };
    let invalid = || InvalidRange::InvalidVersion { version: version.to_owned(), part: part.to_owned() };
    Ok(Comparison { operator, version: Version::parse(version).map_err(|_| invalid())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_versions() {
        let check = |range: &str, inside: &[&str], outside: &[&str]| {
            let parsed = VersionRange::parse(range).expect(range);
            let includes = |version: &&str| parsed.includes(&Version::parse(version).expect("a version"));
            assert!(inside.iter().all(includes), "{range} includes {inside:?}");
            assert!(!outside.iter().any(includes), "{range} excludes {outside:?}");
        };
        check(">=1.0.0 <3.0.0", &["1.0.0", "2.9.9", "3.0.0-rc.1"], &["1.0.0-rc.1", "3.0.0"]);
        check(">= 1.0.0  < 3.0.0", &["1.0.0"], &["3.0.0"]);
        check("<1.0.0 || >=2.0.0 !2.1.0", &["0.9.0", "2.0.0", "2.2.0"], &["1.5.0", "2.1.0"]);
        check("1.x", &["1.0.0", "1.9.9"], &["0.9.0", "2.0.0"]);
        check("1.2.x", &["1.2.9"], &["1.3.0"]);
        check(">1.x", &["2.0.0"], &["1.9.9"]);
        check("!=1.2.x", &[], &["1.2.3", "1.1.0", "1.3.0"]);
        check("1.2.3+build", &["1.2.3"], &["1.2.4"]);
    }

    #[test]
    fn ranges_are_limited_to_a_version() {
        let version = |text: &str| Version::parse(text).expect("a version");
        let limited = VersionRange::up_to(None, &version("2.0.0"));
        assert!(limited.includes(&version("2.0.0")) && !limited.includes(&version("2.0.1")));
        let range = VersionRange::parse("<1.0.0 || >=1.5.0").expect("a range");
        let limited = VersionRange::up_to(Some(range), &version("2.0.0"));
        assert!(limited.includes(&version("0.9.0")) && limited.includes(&version("1.6.0")));
        assert!(!limited.includes(&version("1.2.0")) && !limited.includes(&version("3.0.0")));
    }

    #[test]
    fn invalid_ranges_are_errors() {
        let check = |range: &str, expected: &str| {
            let error = VersionRange::parse(range).expect_err(range);
            assert_eq!(error.to_string(), expected, "{range}");
        };
        check("not a range", "Could not get version from string: \"not\"");
        check("|| 1.0.0", "First element in range is '||'");
        check("1.0.0 ||", "Last element in range is '||'");
        check("~1.0.0", "Could not parse comparator \"~\" in \"~1.0.0\"");
        check(">=1.0", "Could not parse version \"1.0\" in \">=1.0\"");
        check("", "Last element in range is '||'");
    }

    #[test]
    fn versions_are_completed() {
        let check = |text: &str, expected: Option<&str>| {
            let version = parse_tolerant(text).map(|version| version.to_string());
            assert_eq!(version.as_deref(), expected, "{text}");
        };
        check("v1.0", Some("1.0.0"));
        check("2", Some("2.0.0"));
        check(" 01.002.3-rc.1 ", Some("1.2.3-rc.1"));
        check("00.0.0", Some("0.0.0"));
        check("1.2-rc", None);
        check("latest", None);
    }
}
