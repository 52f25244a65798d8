//! Versions and constraints of Masterminds/semver: `v1.2` is a version, `^1.2 || ~2` a constraint.
//!
//! See <https://github.com/Masterminds/semver#checking-version-constraints>.

use crate::helm::HelmVersion;
use crate::message;
use crate::quote::quote;
use regex::Regex;
use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;

/// A version; missing numbers are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pub(crate) pre: String,
    pub(crate) metadata: String,
    pub(crate) original: String,
}

static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    let identifiers = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)";
    let number = r"(0|[1-9]\d*)";
    Regex::new(&format!(
        r"^v?{number}(?:\.{number})?(?:\.{number})?(?:-({identifiers}(?:\.{identifiers})*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$"
    ).replace(r"\d", "[0-9]"))
    .expect("a constant pattern")
});

impl Version {
    /// Parses a version.
    ///
    /// # Errors
    ///
    /// If the text is not a version.
    pub fn parse(text: &str) -> Result<Version, String> {
        let parts = VERSION.captures(text).ok_or("invalid semantic version")?;
        let number = |at: usize| match parts.get(at) {
            None => Ok(0),
            Some(digits) => digits.as_str().parse::<u64>().map_err(|_| {
                let digits = message::quoted(digits.as_str());
                format!("error parsing version segment: strconv.ParseUint: parsing {digits}: value out of range")
            }),
        };
        let word = |at: usize| parts.get(at).map_or_else(String::new, |word| word.as_str().to_owned());
        Ok(Version {
            major: number(1)?,
            minor: number(2)?,
            patch: number(3)?,
            pre: word(4),
            metadata: word(5),
            original: text.to_owned(),
        })
    }

    fn prefix(&self) -> &'static str {
        if self.original.starts_with('v') { "v" } else { "" }
    }

    pub(crate) fn with_numbers(&self, major: u64, minor: u64, patch: u64) -> Version {
        let mut next =
            Version { major, minor, patch, pre: String::new(), metadata: String::new(), original: String::new() };
        next.original = format!("{}{next}", self.prefix());
        next
    }

    /// Compares two versions by their precedence, without the build metadata.
    #[allow(clippy::should_implement_trait, reason = "versions that differ in their text may be equal")]
    pub fn cmp(&self, other: &Version) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| compare_pre(&self.pre, &other.pre))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

fn compare_pre(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

const OPERATORS: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";
const PATTERN: &str = r"v?([0-9|x|X|\*]+)(\.[0-9|x|X|\*]+)?(\.[0-9|x|X|\*]+)?(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?";

struct Patterns {
    one: Regex,
    range: Regex,
    find: Regex,
    valid: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    // As in Go, white space is ASCII, which also keeps the patterns small.
    let regex = |text: String| Regex::new(&text.replace(r"\s", r"[\t\n\f\r ]")).expect("a constant pattern");
    Patterns {
        one: regex(format!(r"^\s*({OPERATORS})\s*({PATTERN})\s*$")),
        range: regex(format!(r"\s*({PATTERN})\s+-\s+({PATTERN})\s*")),
        find: regex(format!(r"({OPERATORS})\s*({PATTERN})")),
        valid: regex(format!(r"^(\s*({OPERATORS})\s*({PATTERN})\s*)((?:\s+|,\s*)({OPERATORS})\s*({PATTERN})\s*)*$")),
    }
});

/// The reason why a constraint is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The text is not a list of comparisons.
    Improper(String),
    /// A version in the text is invalid.
    Version,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(HelmVersion::default()))
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Returns the message of the library in a Helm version.
    pub(crate) fn message(&self, helm: HelmVersion) -> String {
        match self {
            Error::Improper(text) => {
                let text = message::excerpt(text);
                format!("improper constraint: {}", helm.choose(quote(text.as_bytes()), text.into_owned()))
            }
            Error::Version => "constraint parser error".to_owned(),
        }
    }
}

/// A version constraint: alternatives of lists of comparisons.
#[derive(Debug, Clone)]
pub struct Constraints(Vec<Vec<Constraint>>);

#[derive(Debug, Clone)]
struct Constraint {
    operator: String,
    version: Version,
    /// Number of specified parts: 3 if all are, 2 without the patch, 1 without minor and patch, 0 if none; `x` counts
    /// as missing.
    numbers: u8,
}

impl Constraints {
    /// Parses a constraint.
    ///
    /// # Errors
    ///
    /// If the text is not a constraint.
    pub fn parse(text: &str) -> Result<Constraints, Error> {
        let mut text = text.to_owned();
        let ranges: Vec<(String, String)> = PATTERNS
            .range
            .captures_iter(&text)
            .map(|parts| (parts[0].to_owned(), format!(">= {}, <= {} ", &parts[1], &parts[11])))
            .collect();
        for (from, to) in ranges {
            text = text.replacen(&from, &to, 1);
        }
        let group = |part: &str| {
            if !PATTERNS.valid.is_match(part) {
                return Err(Error::Improper(part.to_owned()));
            }
            PATTERNS.find.find_iter(part).map(|found| Constraint::parse(found.as_str())).collect()
        };
        text.split("||").map(group).collect::<Result<_, _>>().map(Constraints)
    }

    /// Returns true if a version satisfies the constraint.
    pub fn allow(&self, version: &Version) -> bool {
        self.0.iter().any(|group| {
            let takes_pre = group.iter().any(|constraint| !constraint.version.pre.is_empty());
            (takes_pre || version.pre.is_empty()) && group.iter().all(|constraint| constraint.allows(version))
        })
    }
}

impl Constraint {
    fn parse(text: &str) -> Result<Constraint, Error> {
        let parts = PATTERNS.one.captures(text).ok_or_else(|| Error::Improper(text.to_owned()))?;
        let part = |at: usize| parts.get(at).map_or("", |found| found.as_str());
        let is_open = |part: &str| matches!(part.trim_start_matches('.'), "" | "x" | "X" | "*");
        let (major, minor, patch, pre) = (part(3), part(4), part(5), part(6));
        let (numbers, version) = if is_open(major) {
            (0, format!("0.0.0{pre}"))
        } else if is_open(minor) {
            (1, format!("{major}.0.0{pre}"))
        } else if is_open(patch) {
            (2, format!("{major}{minor}.0{pre}"))
        } else {
            (3, part(2).to_owned())
        };
        let version = Version::parse(&version).map_err(|_| Error::Version)?;
        Ok(Constraint { operator: part(1).to_owned(), version, numbers })
    }

    fn allows(&self, version: &Version) -> bool {
        let required = &self.version;
        let order = version.cmp(required);
        let (major, minor) = (version.major == required.major, version.minor == required.minor);
        match self.operator.as_str() {
            "!=" => match self.numbers {
                3 => order.is_ne(),
                0 => !major || !minor || version.patch != required.patch || order.is_ne(),
                1 => !major,
                _ => !major || !minor || compare_pre(&version.pre, &required.pre).is_ne(),
            },
            ">" => match self.numbers {
                1 => version.major > required.major,
                2 => version.major > required.major || (major && version.minor > required.minor),
                _ => order.is_gt(),
            },
            "<" => order.is_lt(),
            ">=" | "=>" => order.is_ge(),
            "<=" | "=<" => match self.numbers {
                3 => order.is_le(),
                1 => version.major <= required.major,
                _ => version.major < required.major || (major && version.minor <= required.minor),
            },
            "^" => order.is_ge() && self.is_caret(version),
            "" | "=" if self.numbers == 3 => order.is_eq(),
            // `~`, `~>` and an equality with missing parts.
            _ => order.is_ge() && self.is_tilde(version),
        }
    }

    fn is_tilde(&self, version: &Version) -> bool {
        let required = &self.version;
        let is_zero = (required.major, required.minor, required.patch) == (0, 0, 0);
        if is_zero && matches!(self.numbers, 0 | 3) {
            return true;
        }
        version.major == required.major && (self.numbers == 1 || version.minor == required.minor)
    }

    fn is_caret(&self, version: &Version) -> bool {
        let required = &self.version;
        if required.major > 0 || self.numbers == 1 {
            return version.major == required.major;
        }
        if version.major > 0 {
            return false;
        }
        if required.minor > 0 || self.numbers == 2 {
            return version.minor == required.minor;
        }
        version.minor == 0 && version.patch == required.patch
    }
}

/// Returns true if a version satisfies a comparison; errors count as false.
pub(crate) fn is_compatible(constraint: &str, version: &str) -> bool {
    match (Constraints::parse(constraint), Version::parse(version)) {
        (Ok(constraints), Ok(version)) => constraints.allow(&version),
        _ => false,
    }
}
