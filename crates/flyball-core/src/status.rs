//! `Status`, the response of failed requests, and of some successful ones.
//!
//! Follows `metav1.Status` and the constructors of `k8s.io/apimachinery/pkg/api/errors`; see
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/>.

use crate::field::{FieldError, aggregate};
use crate::{GroupResource, GroupVersionKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The machine-readable reason of a failed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "Kubernetes' own names")]
pub enum Reason {
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
    /// Any other reason.
    #[serde(untagged)]
    Other(Box<str>),
}

/// An API error with a human-readable message and a machine-readable reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// HTTP code.
    #[serde(default)]
    pub code: u16,
    /// Machine-readable reason; some errors have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Human-readable message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The rejected object and the causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
}

/// The object of a [`Status`], and the causes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind of the object, or for many errors its plural resource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The individual errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Number of seconds after which a client may retry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A single error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Type of error, such as `FieldValueRequired`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Human-readable message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl From<&FieldError> for Cause {
    fn from(error: &FieldError) -> Self {
        Self { reason: error.error_type.reason().into(), message: error.body(), field: error.field.clone() }
    }
}

/// Maximum number of causes of one `Status`.
pub const MAX_CAUSES: usize = 100;

/// Maximum total size of the causes of one `Status`, in bytes.
const MAX_CAUSE_BYTES: usize = 256 << 10;

/// Splits causes into the listed ones and the rest; `size` returns the size of a cause in bytes.
pub fn first_causes<T>(causes: &[T], size: impl Fn(&T) -> usize) -> (&[T], &[T]) {
    let mut bytes = 0;
    let fits = causes.iter().take(MAX_CAUSES).take_while(|cause| {
        let fits = bytes < MAX_CAUSE_BYTES;
        bytes += size(cause);
        fits
    });
    causes.split_at(fits.count())
}

/// The errors of an object, of which only as many are kept as a [`Status`] lists: an object may have hundreds of
/// thousands, of which each takes more memory than the wrong value.
#[derive(Debug, Default)]
pub struct Causes {
    first: Vec<FieldError>,
    omitted: usize,
}

impl Causes {
    /// Adds errors.
    pub fn extend(&mut self, errors: Vec<FieldError>) {
        let room = MAX_CAUSES - self.first.len();
        self.omitted += errors.len().saturating_sub(room);
        self.first.extend(errors.into_iter().take(room));
    }

    /// Returns true if there is no error.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Creates a 422 `Invalid`, as [`Status::invalid`] does.
    pub fn to_status(&self, kind: &GroupVersionKind, name: &str) -> Status {
        Status::of_causes(kind, name, &self.first, self.omitted)
    }
}

impl Status {
    /// Creates a `Status` without details.
    pub fn new(code: u16, reason: impl Into<Option<Reason>>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), details: None }
    }

    /// Adds details.
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Adds the rejected object, identified by its resource.
    pub fn about(self, resource: &GroupResource, name: &str) -> Self {
        self.with_details(Details {
            name: name.into(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Details::default()
        })
    }

    /// Creates a 404 `NotFound`: the object does not exist.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, Reason::NotFound, format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// Creates a 404 `NotFound`: the resource or its version is not served.
    pub fn unknown_resource() -> Self {
        Self::new(404, Reason::NotFound, "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// Creates a 409 `AlreadyExists`: an object with this name exists.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(409, Reason::AlreadyExists, format!("{resource} \"{name}\" already exists")).about(resource, name)
    }

    /// Creates a 409 `Conflict`: the request conflicts with the state of the object.
    pub fn conflict(resource: &GroupResource, name: &str, reason: impl fmt::Display) -> Self {
        Self::new(409, Reason::Conflict, format!("Operation cannot be fulfilled on {resource} \"{name}\": {reason}"))
            .about(resource, name)
    }

    /// Creates a 409 `Conflict`: the object was changed since the caller read it.
    pub fn stale(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Creates a 403 `Forbidden`: a rule rejects the request, independently of the object's content.
    pub fn forbidden(resource: &GroupResource, name: &str, reason: impl fmt::Display) -> Self {
        let message = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {reason}"),
            (false, true) => format!("{resource} is forbidden: {reason}"),
            (false, false) => format!("{resource} \"{name}\" is forbidden: {reason}"),
        };
        Self::new(403, Reason::Forbidden, message).about(resource, name)
    }

    /// Creates a 400 `BadRequest`: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    /// Creates a 422 `Invalid`: the object is invalid. Lists all errors up to [`MAX_CAUSES`] and a limit for their
    /// total size, because each error may contain a value as large as the object. The message ends with the number of
    /// omitted errors.
    pub fn invalid(kind: &GroupVersionKind, name: &str, errors: &[FieldError]) -> Self {
        Self::of_causes(kind, name, errors, 0)
    }

    fn of_causes(kind: &GroupVersionKind, name: &str, errors: &[FieldError], more: usize) -> Self {
        let qualified =
            if kind.group.is_empty() { kind.kind.to_string() } else { format!("{}.{}", kind.kind, kind.group) };
        let (listed, omitted) = first_causes(errors, |error| error.field.len() + error.body().len());
        let mut message = format!("{qualified} \"{name}\" is invalid: {}", aggregate(listed));
        let omitted = omitted.len() + more;
        if omitted > 0 {
            message += &format!(", and {omitted} more errors");
        }
        Self::new(422, Reason::Invalid, message).with_details(Details {
            name: name.into(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            causes: listed.iter().map(Cause::from).collect(),
            ..Details::default()
        })
    }

    /// Creates a 405 `MethodNotAllowed`: the resource does not support this verb.
    pub fn method_not_allowed() -> Self {
        Self::new(405, Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
            .with_details(Details::default())
    }

    /// Creates a 500 `InternalError`: an internal error, or an error of a webhook.
    pub fn internal(reason: impl fmt::Display) -> Self {
        let message = format!("Internal error occurred: {reason}");
        let cause = Cause { message: reason.to_string(), ..Cause::default() };
        Self::new(500, Reason::InternalError, message)
            .with_details(Details { causes: vec![cause], ..Details::default() })
    }

    /// Creates a 410 `Expired`: the requested version is no longer available.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    /// Creates a 401 `Unauthorized`: the credentials are invalid.
    pub fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }

    /// Creates a 413 `RequestEntityTooLarge`: the request exceeds a limit of the server.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, Reason::RequestEntityTooLarge, message)
    }

    /// Creates a 429 `TooManyRequests`: the client may retry after `seconds`.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(429, Reason::TooManyRequests, message)
            .with_details(Details { retry_after_seconds: seconds, ..Details::default() })
    }

    /// Returns true if the status has this reason.
    pub fn is(&self, reason: Reason) -> bool {
        self.reason == Some(reason)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(reason) => f.write_str(reason),
            known => write!(f, "{known:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_object() {
        let deployments = GroupResource::new("apps", "deployments");
        assert_eq!(Status::not_found(&deployments, "web").message, "deployments.apps \"web\" not found");
        let pods = GroupResource::new("", "pods");
        assert_eq!(Status::forbidden(&pods, "", "no").message, "pods is forbidden: no");
    }

    #[test]
    fn causes_are_bounded_in_number_and_bytes() {
        let kind = GroupVersionKind::new("", "v1", "Pod");
        let listed = |value: &str, count: usize| {
            let errors: Vec<FieldError> = (0..count).map(|n| FieldError::invalid(format!("f{n}"), value, "")).collect();
            let status = Status::invalid(&kind, "p", &errors);
            (status.details.unwrap().causes.len(), status.message)
        };
        assert_eq!(listed("x", MAX_CAUSES).0, MAX_CAUSES);
        let (causes, message) = listed("x", 30_000);
        assert_eq!(causes, MAX_CAUSES);
        assert!(message.ends_with("], and 29900 more errors"), "{message}");
        // Values are truncated to 32 KiB, so eight fit into the limit of 256 KiB.
        assert_eq!(listed(&"x".repeat(100 << 10), 50).0, 8);
        assert_eq!(listed(&"x".repeat(3 << 20), 50).0, 8);
    }

    #[test]
    fn invalid_status_lists_every_cause() {
        let kind = GroupVersionKind::new("vm.example.com", "v1", "VmGroup");
        let status = Status::invalid(
            &kind,
            "vg-1",
            &[FieldError::required("spec.cpu", ""), FieldError::invalid("spec.memory", 9, "too much")],
        );
        assert_eq!(
            status.message,
            "VmGroup.vm.example.com \"vg-1\" is invalid: [spec.cpu: Required value, spec.memory: Invalid value: 9: too much]"
        );
        assert_eq!(status.details.unwrap().causes.len(), 2);
    }
}
