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
    /// Send the token also where others could receive it: over http to another machine, and through the API server to
    /// the pods of NAMESPACE/DEPLOYMENT, whose certificates it does not verify
    #[arg(long)]
    pub(crate) insecure_operator_token: bool,
}

/// The credentials for operators.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(super) token: Option<String>,
    pub(super) insecure_token: bool,
    pub(super) authority: Option<Vec<u8>>,
}

impl TokenArgs {
    /// Returns the file with the token, if the command line names one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.operator_token_file.as_deref()
    }

    /// Returns the credentials, with the CA bundle of a file.
    pub(super) fn credentials(&self, authority: Option<&Path>) -> Result<Credentials> {
        let read = |path: &Path| fs::read(path).context(format!("cannot read {}", path.display()));
        let (token, authority) = (self.token()?, authority.map(read).transpose()?);
        Ok(Credentials { token, insecure_token: self.insecure_operator_token, authority })
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
