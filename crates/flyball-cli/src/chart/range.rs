//! Selects a version, as Helm does: the newest that satisfies a constraint.

use crate::error::{Error, Result, ResultExt};
use flyball_chart::{Constraints, Version};

/// Constraint of `--devel`, which pre-releases satisfy as well.
const DEVEL: &str = ">0.0.0-0";

/// A version, or a constraint on versions.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    text: String,
    constraints: Constraints,
}

impl Range {
    /// Reads the requested version; by default, all releases satisfy it, and with `devel` also pre-releases.
    ///
    /// # Errors
    ///
    /// If the text is not a constraint.
    pub(crate) fn requested(version: Option<&str>, devel: bool) -> Result<Self> {
        let text = version.map(str::trim).filter(|text| !text.is_empty());
        Self::parse(text.unwrap_or(if devel { DEVEL } else { "*" }))
            .map_err(|error| error.hint("use a version such as 1.2.3, or a constraint such as ^1.2 or '>=1.2 <2'"))
    }

    /// Reads a constraint.
    ///
    /// # Errors
    ///
    /// If the text is not one.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let constraints =
            Constraints::parse(text).context(format!("{text:?} is neither a version nor a constraint"))?;
        Ok(Self { text: text.to_owned(), constraints })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the version if the text is one, instead of a constraint.
    pub(crate) fn exact(&self) -> Option<&str> {
        Version::parse(&self.text).is_ok().then_some(&self.text)
    }

    pub(crate) fn allows(&self, version: &str) -> bool {
        Version::parse(version).is_ok_and(|version| self.constraints.allow(&version))
    }

    /// Selects from versions in descending order: the one with this text, else the first that is allowed.
    ///
    /// # Errors
    ///
    /// If there is none; `of` names the chart in the error.
    pub(crate) fn select<'v, V>(&self, versions: &'v [V], of: &str, text: impl Fn(&V) -> &str) -> Result<&'v V> {
        let same = versions.iter().find(|version| text(version) == self.text);
        same.or_else(|| versions.iter().find(|version| self.allows(text(version)))).ok_or_else(|| {
            let newest = |is_pre: bool| {
                let number = |version: &V| text(version).split('+').next().unwrap_or_default().to_owned();
                let is_of = |version: &&V| number(version).contains('-') == is_pre;
                versions.iter().find(is_of).map(&text)
            };
            let what = match self.text.as_str() {
                "*" => format!("{of} has no release"),
                constraint => format!("no version of {of} matches {constraint}"),
            };
            match (newest(false), newest(true)) {
                (Some(release), _) => Error::new(format!("{what}; newest: {release}")),
                (None, Some(pre)) => Error::new(format!("{what}; newest pre-release: {pre}"))
                    .hint("select pre-releases as well: --devel, or --version '>0.0.0-0'"),
                (None, None) => Error::new(format!("{what}: no versions found")),
            }
        })
    }
}

/// Sorts versions in descending order; other texts come last.
pub(crate) fn sorted<V>(versions: Vec<V>, text: impl Fn(&V) -> &str) -> Vec<V> {
    let parse = |version: V| (Version::parse(text(&version)).ok(), version);
    let mut parsed: Vec<(Option<Version>, V)> = versions.into_iter().map(parse).collect();
    parsed.sort_by(|(one, _), (other, _)| match (one, other) {
        (Some(one), Some(other)) => other.cmp(one),
        (one, other) => other.is_some().cmp(&one.is_some()),
    });
    parsed.into_iter().map(|(_, version)| version).collect()
}

/// Returns true if two texts are the same version.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    match (Version::parse(one), Version::parse(other)) {
        (Ok(one), Ok(other)) => one.cmp(&other).is_eq(),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_allowed_version_is_selected() {
        let versions = vec!["1.0.0", "bad", "2.0.0-rc.1", "1.9.3", "1.10.0+b.5", "v1.2.3", "0.9.0"];
        let versions = sorted(versions, |version| version);
        assert_eq!(versions, ["2.0.0-rc.1", "1.10.0+b.5", "1.9.3", "v1.2.3", "1.0.0", "0.9.0", "bad"]);
        for (requested, devel, expected) in [
            (None, false, Ok("1.10.0+b.5")),
            (None, true, Ok("2.0.0-rc.1")),
            (Some(""), false, Ok("1.10.0+b.5")),
            (Some("1.0.0"), true, Ok("1.0.0")),
            (Some("1.2.3"), false, Ok("v1.2.3")),
            (Some("1.9"), false, Ok("1.9.3")),
            (Some("~1.9"), false, Ok("1.9.3")),
            (Some("1.x"), false, Ok("1.10.0+b.5")),
            (Some("<1 || 1.0 - 1.5"), false, Ok("v1.2.3")),
            (Some(">=1.0.0 <1.10"), false, Ok("1.9.3")),
            (Some("^2.0.0-0"), false, Ok("2.0.0-rc.1")),
            (Some("^2"), false, Err("no version of site in https://x matches ^2; newest: 1.10.0+b.5")),
            (Some("!"), false, Err("\"!\" is neither a version nor a constraint: improper constraint: \"!\"")),
        ] {
            let selected = Range::requested(requested, devel)
                .and_then(|range| range.select(&versions, "site in https://x", |version| version).copied());
            let selected = selected.map_err(|error| error.to_string());
            assert_eq!(selected, expected.map_err(str::to_owned), "{requested:?} {devel}");
        }
        let all = Range::requested(None, false).unwrap();
        let error = all.select(&["1.0.0-a"], "site", |version| version).unwrap_err();
        assert_eq!(error.to_string(), "site has no release; newest pre-release: 1.0.0-a");
        assert!(error.hints()[0].contains("--devel"));
    }
}
