//! The bearer token for operators with secure metrics.

use crate::error::{Result, ResultExt};
use clap::Args;
use std::fs;
use std::path::PathBuf;

/// Sets the token from outside of the command line, which other users of the machine can read.
pub(super) const VARIABLE: &str = "FLYBALL_OPERATOR_TOKEN";

/// The flag for the token.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TokenArgs {
    /// File with the bearer token for operators with secure metrics; its content is in FLYBALL_OPERATOR_TOKEN otherwise
    #[arg(long, value_name = "FILE")]
    pub(super) operator_token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns the token, if one is set.
    pub(crate) fn token(&self) -> Result<Option<String>> {
        let token = match &self.operator_token_file {
            Some(path) => Some(fs::read_to_string(path).context(format!("cannot read {}", path.display()))?),
            None => std::env::var(VARIABLE).ok(),
        };
        Ok(token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()))
    }
}
