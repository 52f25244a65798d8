//! Approval of CRDs that define an API in a group of Kubernetes itself.
//!
//! See <https://github.com/kubernetes/enhancements/pull/1111>.

use flyball_core::Object;
use flyball_core::field::{FieldError, Path, go_quote};
use serde_json::Value;

const ANNOTATION: &str = "api-approved.kubernetes.io";

/// The approval of a CRD's API, by its annotation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Approval {
    Missing,
    Approved,
    /// The API is explicitly unapproved.
    Unapproved,
    Invalid,
}

impl Approval {
    /// Returns the approval of a CRD; `None` if it needs none.
    pub(super) fn of(crd: &Object) -> Option<Self> {
        let group = crd.at(&["spec", "group"]).and_then(Value::as_str).unwrap_or_default();
        let is_own = |own: &&&str| group.strip_suffix(**own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        ["k8s.io", "kubernetes.io"].iter().find(is_own)?;
        Some(match crd.annotation(ANNOTATION).unwrap_or_default() {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Unapproved,
            text if is_url(text) => Self::Approved,
            _ => Self::Invalid,
        })
    }

    /// Returns status, reason and message of its condition.
    pub(super) fn condition(self, crd: &Object) -> (&'static str, &'static str, String) {
        let text = crd.annotation(ANNOTATION).unwrap_or_default();
        match self {
            Self::Missing => ("False", "MissingAnnotation", self.message()),
            Self::Approved => ("True", "ApprovedAnnotation", format!("approved in {text}")),
            Self::Unapproved => ("False", "UnapprovedAnnotation", format!("not approved: {}", go_quote(text))),
            Self::Invalid => ("False", "InvalidAnnotation", self.message()),
        }
    }

    fn message(self) -> String {
        let what =
            if self == Self::Missing { "" } else { " with either a URL or a reason starting with \"unapproved\"" };
        format!(
            "protected groups must have approval annotation {ANNOTATION:?}{what}, see https://github.com/kubernetes/enhancements/pull/1111"
        )
    }
}

fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        named && !host.is_empty() && !text.contains(|c: char| c == ' ' || c.is_control())
    })
}

/// Validates that APIs of Kubernetes' own groups are approved. Existing CRDs without approval remain valid.
pub(super) fn validate(crd: &Object, old: Option<&Object>) -> Option<FieldError> {
    let approval = Approval::of(crd)?;
    if old.is_some_and(|old| Approval::of(old) == Some(approval)) {
        return None;
    }
    let metadata = Path::new("metadata");
    let annotations = metadata.field("annotations");
    let at = annotations.key(ANNOTATION);
    match approval {
        Approval::Approved | Approval::Unapproved => None,
        Approval::Missing => Some(FieldError::required(at, approval.message())),
        Approval::Invalid => {
            Some(FieldError::invalid(at, crd.annotation(ANNOTATION).unwrap_or_default(), approval.message()))
        }
    }
}
