//! Problems of a catalog, each with its place and its remedy.

use std::collections::BTreeSet;
use std::fmt;

/// Maximum number of problems that are listed. Further ones are counted.
pub const MAX_PROBLEMS: usize = 100;

/// A violated rule of a catalog, with the remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The package.
    pub package: Option<String>,
    /// The channel.
    pub channel: Option<String>,
    /// The bundle.
    pub bundle: Option<String>,
    /// The reason.
    pub why: String,
    /// The change that solves it.
    pub remedy: String,
}

impl Problem {
    /// Creates a problem of a package.
    pub(super) fn of(package: &str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (why, remedy) = (why.into(), remedy.into());
        Self { package: Some(package.to_owned()), why, remedy, ..Self::default() }
    }

    pub(super) fn channel(mut self, channel: &str) -> Self {
        self.channel = Some(channel.to_owned());
        self
    }

    pub(super) fn bundle(mut self, bundle: &str) -> Self {
        self.bundle = Some(bundle.to_owned());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = [("package", &self.package), ("channel", &self.channel), ("bundle", &self.bundle)];
        let mut separator = "";
        for (what, name) in places.iter().filter_map(|(what, name)| Some((what, name.as_ref()?))) {
            write!(f, "{separator}{what} {name:?}")?;
            separator = ", ";
        }
        let separator = if separator.is_empty() { "" } else { ": " };
        write!(f, "{separator}{}; {}", self.why, self.remedy)
    }
}

/// The problems of a catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    listed: Vec<Problem>,
    count: usize,
    packages: BTreeSet<String>,
}

impl Problems {
    pub(super) fn push(&mut self, problem: Problem) {
        self.packages.extend(problem.package.clone());
        self.count += 1;
        if self.listed.len() < MAX_PROBLEMS {
            self.listed.push(problem);
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns their number, which may be more than are listed.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the first problems, at most [`MAX_PROBLEMS`].
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.listed.iter()
    }

    /// Returns the names of the packages with problems.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.packages.iter().map(String::as_str)
    }

    /// Returns true if a package has problems.
    pub fn concern(&self, package: &str) -> bool {
        self.packages.contains(package)
    }
}
