//! Errors of commands: message, cause, hints and exit code.

use std::error::Error as StdError;
use std::{fmt, io};

/// Error of a command.
#[derive(Debug)]
pub(crate) struct Error {
    kind: ErrorKind,
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    hints: Vec<String>,
}

/// Kind of a failure, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The command failed.
    Failure,
    /// The command line is invalid in a way that clap does not check.
    Usage,
    /// Ctrl-C ended the command.
    Interrupted,
}

impl ErrorKind {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Failure => 1,
            Self::Usage => 2,
            // As of a shell, for a program that the signal ended.
            Self::Interrupted => 130,
        }
    }
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failure, what: what.into(), source: None, hints: Vec::new() }
    }

    /// Creates an error with a cause.
    pub(crate) fn caused(what: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..Self::new(what) }
    }

    /// Creates a usage error that clap cannot detect.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, ..Self::new(what) }
    }

    /// Creates the error of a command that Ctrl-C ended before its result.
    pub(crate) fn interrupted() -> Self {
        Self { kind: ErrorKind::Interrupted, ..Self::new("interrupted") }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the hints.
    pub(crate) fn hints(&self) -> &[String] {
        &self.hints
    }

    /// Adds a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Puts the subject of the failed action before the message.
    pub(crate) fn within(mut self, subject: &str) -> Self {
        self.what = format!("{subject}: {}", self.what);
        self
    }

    /// Returns the code of the API server's response, if it caused the error.
    pub(crate) fn code(&self) -> Option<u16> {
        match self.source.as_deref()?.downcast_ref()? {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// Returns true if the server did not speak TLS, or its certificate is not trusted.
    pub(crate) fn is_tls_failure(&self) -> bool {
        let mut source: Option<&dyn StdError> = self.source.as_deref().map(|source| source as _);
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<io::Error>()
                && (error.kind() == io::ErrorKind::UnexpectedEof
                    || error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()))
            {
                return true;
            }
            source = error.source();
        }
        false
    }

    /// Returns true if the API server denies the permission.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Returns true if the object or its kind does not exist.
    pub(crate) fn is_absence(&self) -> bool {
        let source = self.source.as_deref().and_then(|source| source.downcast_ref());
        matches!(source, Some(kube::Error::Discovery(_))) || self.code() == Some(404)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let mut printed = self.what.clone();
        let mut source: Option<&dyn StdError> = self.source.as_deref().map(|source| source as _);
        while let Some(error) = source {
            let (text, next) = match (error.downcast_ref(), error.downcast_ref::<serde_saphyr::Error>()) {
                // The API server's message is for people; the client's context is not.
                (Some(kube::Error::Api(status)), _) => (status.message.clone(), None),
                (Some(kube::Error::Service(_)), _) => (String::new(), error.source()),
                // The excerpt of the file and the cause repeat the message.
                (_, Some(error)) => (yaml_problem(error), None),
                _ => (text_of(error), error.source()),
            };
            // Many errors repeat their cause.
            if !printed.contains(&text) {
                write!(f, ": {text}")?;
                printed = text;
            }
            source = next;
        }
        Ok(())
    }
}

/// Returns the text of an error of YAML, without advice for programmers.
pub(crate) fn yaml_problem(error: &serde_saphyr::Error) -> String {
    repeated_key(error).unwrap_or_else(|| error.without_snippet().to_string())
}

/// Returns the text of an error of YAML with an excerpt of the file.
pub(crate) fn yaml_problem_with_excerpt(error: &serde_saphyr::Error) -> String {
    repeated_key(error).unwrap_or_else(|| error.to_string())
}

fn repeated_key(error: &serde_saphyr::Error) -> Option<String> {
    let error = error.without_snippet();
    let is_repeated = matches!(error, serde_saphyr::Error::DuplicateMappingKey { .. });
    is_repeated.then(|| error.render_with_formatter(&serde_saphyr::UserMessageFormatter))
}

/// Returns the text of an error, without the numbers of operating system errors.
fn text_of(error: &(dyn StdError + 'static)) -> String {
    let text = error.to_string();
    let number = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    let Some(number) = number else { return text };
    text.strip_suffix(&format!(" (os error {number})")).map(str::to_owned).unwrap_or(text)
}

/// Adds the failed action to an error.
pub(crate) trait ResultExt<T> {
    fn context(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> ResultExt<T> for Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error::caused(what, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn each_cause_is_printed_once() {
        let yaml = serde_saphyr::from_str::<Value>("a: [").expect_err("the bracket is open");
        let text = Error::caused("a.yaml is not valid YAML", yaml).to_string();
        assert_eq!(text, "a.yaml is not valid YAML: unclosed bracket '[' at line 1, column 4");
        let yaml = serde_saphyr::from_str::<Value>("a: 1\na: 2\n").expect_err("the key is there twice");
        let text = Error::caused("a.yaml is not valid YAML", yaml).to_string();
        assert_eq!(text, "a.yaml is not valid YAML: duplicate mapping key: a not allowed here at line 2, column 1");
        let refused = io::Error::from_raw_os_error(111);
        let service = kube::Error::Service(refused.into());
        assert_eq!(Error::caused("no response", service).to_string(), "no response: Connection refused");
    }
}
