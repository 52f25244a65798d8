//! The bearer token for operators with secure metrics.

use crate::error::{Error, Result, ResultExt};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// Sets the token from outside of the command line, which other users of the machine can read.
const VARIABLE: &str = "FLYBALL_OPERATOR_TOKEN";

/// The flag for the token.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TokenArgs {
    /// File with the bearer token for operators with secure metrics; its content is in FLYBALL_OPERATOR_TOKEN otherwise
    #[arg(long, value_name = "FILE")]
    pub(super) operator_token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns the file with the token, if the command line names one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.operator_token_file.as_deref()
    }

    /// Returns the token, if one is set.
    pub(crate) fn token(&self) -> Result<Option<String>> {
        let Some(path) = &self.operator_token_file else {
            return Ok(std::env::var(VARIABLE).ok().filter(|token| !token.is_empty()));
        };
        let token = fs::read_to_string(path).context(format!("cannot read {}", path.display()))?;
        match token.trim() {
            "" => Err(Error::usage(format!("--operator-token-file {} is empty", path.display()))),
            token => Ok(Some(token.to_owned())),
        }
    }
}
