//! Levels and versions of Pod Security, and the policy that the labels of a namespace select.
//!
//! See <https://kubernetes.io/docs/concepts/security/pod-security-admission/>.

use flyball_core::field::FieldError;
use std::fmt;

/// A level, from the least to the most strict one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    const ALL: [Self; 3] = [Self::Privileged, Self::Baseline, Self::Restricted];

    fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == text)
    }
}

/// The version of Kubernetes whose checks apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A minor version of Kubernetes 1.
    Minor(u64),
    Latest,
}

impl Version {
    /// The minor version; versions beyond the newest checks have these.
    pub(super) fn minor(self) -> u64 {
        match self {
            Self::Minor(minor) => minor,
            Self::Latest => u64::MAX,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let digits = text.strip_prefix("v1.")?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        // Go's integers end here.
        let minor = digits.parse().ok().filter(|minor| is_number && *minor <= i64::MAX as u64)?;
        Some(Self::Minor(minor))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(out, "v1.{minor}"),
            Self::Latest => out.write_str("latest"),
        }
    }
}

/// A level in a version, such as `restricted:latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl LevelVersion {
    const DEFAULT: Self = Self { level: Level::Privileged, version: Version::Latest };
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.level.name(), self.version)
    }
}

/// The labels of a mode: its level and its version.
type Labels = [&'static str; 2];

const ENFORCE: Labels = ["pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/enforce-version"];
const AUDIT: Labels = ["pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/audit-version"];
const WARN: Labels = ["pod-security.kubernetes.io/warn", "pod-security.kubernetes.io/warn-version"];

/// The policy of a namespace. The mode `audit` has no effect, because there is no audit log.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) warn: LevelVersion,
    /// The errors of invalid labels. Such a label enforces the strictest level, but audits and warns of nothing.
    pub(super) errors: Vec<FieldError>,
}

/// A mode as its labels specify it.
struct Mode {
    policy: LevelVersion,
    /// The level of the label, if it is valid.
    level: Option<Level>,
    has_level: bool,
    has_version: bool,
}

impl Policy {
    /// Reads the labels of a namespace.
    pub(super) fn of<'l>(label: impl Fn(&str) -> Option<&'l str>) -> Self {
        let mut errors = Vec::new();
        let enforce = Self::mode(ENFORCE, Level::Restricted, &label, &mut errors);
        Self::mode(AUDIT, Level::Privileged, &label, &mut errors);
        let warn = Self::mode(WARN, Level::Privileged, &label, &mut errors);
        let (enforced, mut warned) = (enforce.policy, warn.policy);
        // By default, warnings are as strict as an explicit level to enforce: they are about workloads as well.
        if !warn.has_level && enforce.level.is_some_and(|level| level > warned.level) {
            warned.level = enforced.level;
            if !warn.has_version {
                warned.version = enforced.version;
            }
        }
        Self { enforce: enforced, warn: warned, errors }
    }

    /// Reads the labels of a mode, given the level of an invalid one.
    fn mode<'l>(
        [level_key, version_key]: Labels,
        invalid: Level,
        label: &impl Fn(&str) -> Option<&'l str>,
        errors: &mut Vec<FieldError>,
    ) -> Mode {
        let mut reject = |key: &str, value: &str, why: &str| {
            errors.push(FieldError::invalid(format_args!("metadata.labels[{key}]"), value, why));
        };
        let mut policy = LevelVersion::DEFAULT;
        let given = label(level_key);
        let level = given.and_then(Level::parse);
        if let Some(given) = given {
            policy.level = level.unwrap_or(invalid);
            if level.is_none() {
                reject(level_key, given, "must be one of privileged, baseline, restricted");
            }
        }
        let version = label(version_key);
        if let Some(version) = version {
            policy.version = Version::parse(version).unwrap_or(Version::Latest);
            if Version::parse(version).is_none() {
                reject(version_key, version, "must be \"latest\" or \"v1.x\"");
            }
        }
        Mode { policy, level, has_level: given.is_some(), has_version: version.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Labels<'a> = &'a [(&'a str, &'a str)];

    /// Returns the enforced policy, that of warnings, and the errors for labels without their prefix.
    fn policy(labels: &[(&str, &str)]) -> (String, String, Vec<String>) {
        let find = |key: &str| {
            let key = key.strip_prefix("pod-security.kubernetes.io/")?;
            labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
        };
        let policy = Policy::of(find);
        let errors = policy.errors.iter().map(ToString::to_string).collect();
        (policy.enforce.to_string(), policy.warn.to_string(), errors)
    }

    #[test]
    fn labels_select_levels_and_versions() {
        let cases: [(Labels<'_>, &str, &str); 9] = [
            (&[], "privileged:latest", "privileged:latest"),
            (&[("enforce", "baseline")], "baseline:latest", "baseline:latest"),
            (&[("enforce", "baseline"), ("enforce-version", "v1.0")], "baseline:v1.0", "baseline:v1.0"),
            (&[("enforce-version", "v1.30")], "privileged:v1.30", "privileged:latest"),
            (&[("enforce", "restricted"), ("warn", "privileged")], "restricted:latest", "privileged:latest"),
            (&[("enforce", "restricted"), ("warn-version", "v1.9")], "restricted:latest", "restricted:v1.9"),
            (&[("enforce", "baseline"), ("warn", "restricted")], "baseline:latest", "restricted:latest"),
            (&[("warn", "baseline"), ("warn-version", "v1.36")], "privileged:latest", "baseline:v1.36"),
            (&[("audit", "restricted")], "privileged:latest", "privileged:latest"),
        ];
        for (labels, enforce, warn) in cases {
            assert_eq!(policy(labels), (enforce.into(), warn.into(), Vec::new()), "{labels:?}");
        }
    }

    #[test]
    fn invalid_labels_enforce_the_strictest_level_and_warn_of_nothing() {
        let labels = [
            ("warn-version", "v1.01"),
            ("warn", "Baseline"),
            ("audit", ""),
            ("audit-version", "1.2"),
            ("enforce", "none"),
            ("enforce-version", "v1.9223372036854775808"),
        ];
        let (enforce, warn, errors) = policy(&labels);
        assert_eq!((&*enforce, &*warn), ("restricted:latest", "privileged:latest"));
        let expected = |key: &str, value: &str, why: &str| {
            format!("metadata.labels[pod-security.kubernetes.io/{key}]: Invalid value: {value:?}: {why}")
        };
        let level = "must be one of privileged, baseline, restricted";
        let version = "must be \"latest\" or \"v1.x\"";
        let expected = [
            expected("enforce", "none", level),
            expected("enforce-version", "v1.9223372036854775808", version),
            expected("audit", "", level),
            expected("audit-version", "1.2", version),
            expected("warn", "Baseline", level),
            expected("warn-version", "v1.01", version),
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn versions_are_parsed_as_in_kube_apiserver() {
        let cases = [("v1.0", true), ("v1.36", true), ("v1.9223372036854775807", true), ("latest", true)];
        let invalid =
            ["", "v1", "v1.", "v1.+1", "v1.-1", "v1.00", "v2.0", "1.30", "v1.30.1", "Latest", "v1.3 ", "v1.٣"];
        for (text, valid) in cases.into_iter().chain(invalid.map(|text| (text, false))) {
            assert_eq!(Version::parse(text).map(|version| version.to_string()), valid.then(|| text.into()), "{text}");
        }
    }
}
