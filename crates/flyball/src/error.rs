//! Errors of reconciles, and their retries.

use crate::kind::InvalidName;
use std::backtrace::Backtrace;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// An error of a reconcile, with its retry.
///
/// `?` converts any error, strings included, to one that is retried with exponential backoff. Other retries are set on
/// the error:
///
/// ```
/// # use flyball::{Error, Result};
/// fn parse(size: &str) -> Result<u32> {
///     // No retry turns this into a number; a change of the object will run the reconcile again.
///     size.parse().map_err(|error| Error::from(error).context("spec.size").terminal())
/// }
/// assert_eq!(parse("many").unwrap_err().to_string(), "spec.size: invalid digit found in string");
/// ```
#[doc(alias = "TemporaryError")]
#[must_use = "an error does nothing until it is returned"]
pub struct Error(Box<ErrorDetails>);

struct ErrorDetails {
    source: Box<dyn StdError + Send + Sync>,
    context: Vec<String>,
    retry: Retry,
    /// The backtrace of a forbidden request.
    way: Option<Backtrace>,
}

/// The retry after a failed reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// After the backoff of the object.
    Backoff,
    /// After an external change.
    Wait,
    /// After a change that corrects the object.
    Terminal,
}

/// The result of a reconcile and of other functions that an author writes; `?` converts any error.
///
/// ```
/// fn port(text: &str) -> flyball::Result<u16> {
///     Ok(text.trim().parse()?)
/// }
/// assert!(port("many").is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Error {
    fn from(error: E) -> Self {
        let source = error.into();
        // No object can be created in a namespace that is being deleted, and this object will be deleted as well.
        let retry = match source.downcast_ref() {
            Some(error) if is_namespace_terminating(error) => Retry::Wait,
            _ if is_invalid_name(&*source) => Retry::Terminal,
            _ => Retry::Backoff,
        };
        let denied = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_forbidden());
        // Capturing is slow, and useless without symbols.
        let traced = cfg!(debug_assertions) && source.downcast_ref().is_some_and(denied);
        let way = traced.then(Backtrace::force_capture);
        Self(Box::new(ErrorDetails { source, context: Vec::new(), retry, way }))
    }
}

impl Error {
    /// Prepends a description of the failed action.
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.0.context.push(what.to_string());
        self
    }

    /// Requests no retry: an external change has to come first, and triggers the next reconcile.
    pub fn wait(mut self) -> Self {
        self.0.retry = Retry::Wait;
        self
    }

    /// Requests no retry: the object itself is invalid, and has to be corrected. Counted apart from other errors.
    #[doc(alias = "TerminalError")]
    #[doc(alias = "PermanentError")]
    pub fn terminal(mut self) -> Self {
        self.0.retry = Retry::Terminal;
        self
    }

    /// Returns the cause, if it has this type.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.0.source.downcast_ref()
    }

    /// Returns the `Status` of the API server, if that is the cause.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self.downcast_ref() {
            Some(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    /// Returns the response to a failed request, if it is this error or a cause of it.
    pub(crate) fn response(&self) -> Option<&kube::core::Status> {
        let first: &(dyn StdError + 'static) = &*self.0.source;
        let mut chain = std::iter::successors(Some(first), |&error| error.source());
        chain.find_map(|error| match error.downcast_ref() {
            Some(kube::Error::Api(status)) => Some(&**status),
            _ => None,
        })
    }

    /// Returns the source location of a forbidden request, such as `src/operator.rs:41`; `None` for other errors, and
    /// in release builds.
    ///
    /// It is the innermost frame of the backtrace that is neither in this crate nor in a dependency.
    pub fn call_site(&self) -> Option<String> {
        let folder = std::env::current_dir().unwrap_or_default();
        call_site(&format!("{:#}", self.0.way.as_ref()?), &folder.to_string_lossy())
    }

    /// Returns true if the object is retried because of this error: it neither [waits](Self::wait) nor is
    /// [terminal](Self::terminal).
    pub fn is_retried(&self) -> bool {
        self.retry() == Retry::Backoff
    }

    pub(crate) fn retry(&self) -> Retry {
        self.0.retry
    }

    /// Creates the error of a missed deadline.
    pub(crate) fn deadline(after: Duration) -> Self {
        format!("the reconcile exceeded its deadline of {} s", after.as_secs_f64()).into()
    }
}

/// Returns the innermost frame of a full backtrace whose file is neither in the standard library, nor in a registry,
/// nor in this crate, relative to a directory.
fn call_site(trace: &str, folder: &str) -> Option<String> {
    let libraries = ["/rustc/", "/library/std/", "/.cargo/", concat!(env!("CARGO_MANIFEST_DIR"), "/src/")];
    let places = trace.lines().filter_map(|line| line.trim_start().strip_prefix("at "));
    let place = places.into_iter().find(|place| !libraries.iter().any(|library| place.contains(library)))?;
    // The column is not needed.
    let line = place.rsplit_once(':').map_or(place, |(line, _)| line);
    let seen = line.strip_prefix(folder).map(|rest| rest.trim_start_matches('/'));
    Some(seen.unwrap_or(line).trim_start_matches("./").to_owned())
}

/// Returns true if the API server refused to create an object because its namespace is being deleted.
///
/// A reconcile that returns such an error waits without a retry, since the object will be deleted as well. Use this
/// function where the error would count as a failure otherwise.
///
/// ```
/// # use flyball::{Result, is_namespace_terminating};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::{Api, api::PostParams};
/// async fn publish(api: &Api<ConfigMap>, page: &ConfigMap) -> Result<()> {
///     match api.create(&PostParams::default(), page).await {
///         Err(error) if is_namespace_terminating(&error) => Ok(()), // the object is not needed any more
///         other => Ok(other.map(drop)?),
///     }
/// }
/// # use serde_json::json;
/// # let refused = |cause| json!({"code": 403, "reason": "Forbidden", "details": {"causes": [{"reason": cause}]}});
/// # let error = |cause| kube::Error::Api(serde_json::from_value(refused(cause)).unwrap());
/// # assert!(is_namespace_terminating(&error("NamespaceTerminating")) && !is_namespace_terminating(&error("Other")));
/// ```
#[doc(alias = "HasStatusCause")]
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_forbidden() && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Returns true if the object contains an invalid name.
fn is_invalid_name(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    match error.downcast_ref() {
        Some(kube::Error::Service(error)) => error.is::<InvalidName>(),
        _ => error.is::<InvalidName>(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for context in self.0.context.iter().rev() {
            write!(f, "{context}: ")?;
        }
        f.write_str(&chain(&*self.0.source))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.0.retry)
    }
}

/// Formats an error with its causes, each text once; an error of the API server by its message.
///
/// ```
/// let error = "many".parse::<u16>().unwrap_err();
/// assert_eq!(flyball::error_chain(&error), "invalid digit found in string");
/// ```
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let (mut text, mut next) = (String::new(), Some(error));
    while let Some(error) = next {
        let message = match error.downcast_ref() {
            Some(kube::Error::Api(status)) if !status.message.is_empty() => {
                next = None;
                status.message.clone()
            }
            _ => {
                next = error.source();
                error.to_string()
            }
        };
        if text.is_empty() {
            text = message;
        } else if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use kube::core::Status;
    use serde_json::json;

    #[test]
    fn errors_retry_with_backoff_by_default() {
        let error = |text: &str| Error::from(text);
        assert_eq!(error("a").retry(), Retry::Backoff);
        assert_eq!(error("a").wait().retry(), Retry::Wait);
        assert_eq!(error("a").terminal().retry(), Retry::Terminal);
        assert_eq!(error("a").context("b").context("c").to_string(), "c: b: a");
        let io = Error::from(std::io::Error::other("disk"));
        assert!(io.downcast_ref::<std::io::Error>().is_some());
    }

    #[test]
    fn invalid_name_is_terminal() {
        let check = || Kind::new("", "v1", "Pod").check(["ns", "../a"]).unwrap_err();
        for error in [Error::from(check()), kube::Error::Service(check().into()).into()] {
            assert_eq!(error.retry(), Retry::Terminal);
            assert!(error.to_string().contains("\"../a\" is not a valid name"), "{error}");
        }
    }

    #[test]
    fn forbidden_request_reports_its_call_site() {
        let trace = "   0: std::backtrace::Backtrace::force_capture
             at /rustc/1234/library/std/src/backtrace.rs:312:17
   1: flyball::reconcile::context::Context<K>::apply::{{closure}}
             at /home/me/.cargo/registry/src/index/flyball-0.1.0/src/apply.rs:90:9
   2: <app::Sites as flyball::reconcile::Reconcile>::reconcile::{{closure}}
             at /home/me/app/src/operator.rs:41:13
   3: app::main
             at /home/me/app/src/main.rs:1:1
";
        assert_eq!(call_site(trace, "/home/me/app").as_deref(), Some("src/operator.rs:41"));
        assert_eq!(call_site(trace, "/elsewhere").as_deref(), Some("/home/me/app/src/operator.rs:41"));
        assert_eq!(call_site("", "/"), None);
        let status = |code| kube::Error::Api(Status::failure("no", "Forbidden").with_code(code).boxed());
        assert_eq!(Error::from("other").call_site(), None);
        assert_eq!(Error::from(status(403)).0.way.is_some(), cfg!(debug_assertions));
    }

    #[test]
    fn response_is_found_among_the_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot publish")]
        struct Publish(#[source] kube::Error);
        let response = || kube::Error::Api(Status::failure("no", "Forbidden").with_code(403).boxed());
        assert_eq!(Error::from(response()).context("apply").response().map(|status| status.code), Some(403));
        assert_eq!(Error::from(Publish(response())).response().map(|status| status.code), Some(403));
        assert!(Error::from("a forbidden name").response().is_none());
    }

    #[test]
    fn error_of_terminating_namespace_waits() {
        let status = json!({"code": 403, "reason": "Forbidden", "message": "no",
            "details": {"causes": [{"reason": "NamespaceTerminating"}]}});
        let status: Status = serde_json::from_value(status).unwrap();
        let error = Error::from(kube::Error::Api(status.boxed()));
        assert_eq!(error.retry(), Retry::Wait);
        assert_eq!(error.status().unwrap().code, 403);
        let other = Status::failure("no", "Forbidden").with_code(403);
        assert_eq!(Error::from(kube::Error::Api(other.boxed())).retry(), Retry::Backoff);
    }

    #[test]
    fn error_chain_contains_each_cause_once() {
        let error =
            || kube::Error::Api(Status::failure("widgets \"a\" is forbidden", "Forbidden").with_code(403).boxed());
        assert_eq!(chain(&error()), "widgets \"a\" is forbidden");
        let disk = || std::io::Error::other("disk full");
        assert_eq!(chain(&kube::Error::Service(disk().into())), "ServiceError: disk full");
    }
}
