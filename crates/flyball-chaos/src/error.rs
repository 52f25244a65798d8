//! Errors of experiments.

use std::path::PathBuf;
use std::{fmt, io};

/// Error of an experiment, of its plan or of its undo.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server rejected a request, or did not respond.
    #[error("cannot {action} {object}")]
    Api {
        /// The verb, such as `patch`.
        action: &'static str,
        /// The object or the list.
        object: String,
        /// The response.
        source: Box<kube::Error>,
    },
    /// The API server did not respond in time.
    #[error("cannot {action} {object}: no response within {seconds} s")]
    Timeout {
        /// The verb, such as `patch`.
        action: &'static str,
        /// The object or the list.
        object: String,
        /// The timeout.
        seconds: u64,
    },
    /// A safety rule forbids the change.
    #[error("refused: {reason}")]
    Refused {
        /// The rule and the remedy.
        reason: String,
    },
    /// A field of an experiment is invalid.
    #[error("experiment {experiment:?}: {field}: {problem}")]
    Invalid {
        /// The name of the experiment.
        experiment: String,
        /// The path of the field.
        field: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// An object that the command names does not exist, or is ambiguous.
    #[error("{0}")]
    Target(String),
    /// An experiment does not apply to the operator.
    #[error("{0}")]
    NotApplicable(String),
    /// The state file cannot be read or written.
    #[error("cannot {action} the state file {}", path.display())]
    StateFile {
        /// The verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The state file is not usable.
    #[error("the state file {} {problem}", path.display())]
    StateContent {
        /// The file.
        path: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },
}

/// Result with the error of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn api(action: &'static str, object: impl fmt::Display, source: kube::Error) -> Self {
        Self::Api { action, object: object.to_string(), source: Box::new(source) }
    }

    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }

    /// Returns the code of the API server's response.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// Formats the error with its causes, bounded and without control characters.
    pub fn text(&self) -> String {
        let mut text = self.to_string();
        match self {
            Self::Api { source, .. } => {
                let cause = match &**source {
                    kube::Error::Api(status) => status.message.clone(),
                    other => other.to_string(),
                };
                text = format!("{text}: {cause}");
            }
            Self::StateFile { source, .. } => text = format!("{text}: {source}"),
            _ => {}
        }
        crate::text::clean(&text)
    }
}
