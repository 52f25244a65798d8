//! Helm versions.

use std::fmt;
use std::str::FromStr;

/// A major version of Helm. Charts can read it, and messages differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HelmVersion {
    /// Helm 3.21.
    #[default]
    V3,
    /// Helm 4.1.
    V4,
}

impl HelmVersion {
    /// The version in `.Capabilities.HelmVersion`.
    pub(crate) fn number(self) -> &'static str {
        match self {
            HelmVersion::V3 => "v3.21.4",
            HelmVersion::V4 => "v4.1.4",
        }
    }

    /// Returns a message with the names of chart types in the Go packages of this version.
    pub(crate) fn go_types(self, message: &str) -> String {
        let types = ["Metadata", "Maintainer", "Dependency"];
        match self {
            HelmVersion::V3 => message.to_owned(),
            HelmVersion::V4 => types.iter().fold(message.to_owned(), |message, name| {
                message.replace(&format!("chart.{name}"), &format!("v2.{name}"))
            }),
        }
    }

    /// Returns the value for this version.
    pub(crate) fn choose<T>(self, of_3: T, of_4: T) -> T {
        match self {
            HelmVersion::V3 => of_3,
            HelmVersion::V4 => of_4,
        }
    }
}

impl FromStr for HelmVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "3" => Ok(HelmVersion::V3),
            "4" => Ok(HelmVersion::V4),
            _ => Err(format!("{text} must be 3 or 4")),
        }
    }
}

impl fmt::Display for HelmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.choose("3", "4"))
    }
}
