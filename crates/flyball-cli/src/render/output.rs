//! Answers for programs.

use crate::error::{Result, ResultExt};
use crate::render::terminal::{escape_json, print_line};
use crate::render::yaml;
use clap::ValueEnum;
use serde::Serialize;

/// A format that programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Json,
    Yaml,
}

impl Output {
    /// Prints a value in this format.
    pub(crate) fn print(self, value: &impl Serialize) -> Result<()> {
        print_line(&self.write(value)?);
        Ok(())
    }

    /// Prints one of many values: JSON as a line, YAML as a document.
    pub(crate) fn print_next(self, value: &impl Serialize) -> Result<()> {
        print_line(&self.write_next(value)?);
        Ok(())
    }

    /// Writes one of many values: JSON on a line, YAML as a document.
    pub(crate) fn write_next(self, value: &impl Serialize) -> Result<String> {
        match self {
            Self::Json => {
                let json = serde_json::to_string(value).context("cannot write JSON")?;
                Ok(escape_json(&json).into_owned())
            }
            Self::Yaml => Ok(format!("---\n{}", self.write(value)?)),
        }
    }

    fn write(self, value: &impl Serialize) -> Result<String> {
        match self {
            Self::Json => {
                let json = serde_json::to_string_pretty(value).context("cannot write JSON")?;
                Ok(escape_json(&json).into_owned())
            }
            Self::Yaml => {
                let value = serde_json::to_value(value).context("cannot write YAML")?;
                Ok(yaml::write(&value).trim_end().to_owned())
            }
        }
    }
}
