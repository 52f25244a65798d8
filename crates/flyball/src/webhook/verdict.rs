//! The response of a validator.

use flyball_core::field::FieldError;
use flyball_core::{GroupVersionKind, Reason, Status};

/// The response of a [`Validator`](super::Validator): allowed, allowed with warnings, or denied.
///
/// ```
/// use flyball::FieldError;
/// use flyball::webhook::Verdict;
///
/// # fn check(min: u32, max: u32) -> Verdict {
/// let mut errors = Vec::new();
/// if min > max {
///     errors.push(FieldError::invalid("spec.min", min, "must not be greater than spec.max"));
/// }
/// Verdict::from_errors(errors).warn("spec.max is deprecated: use spec.limits.max")
/// # }
/// # assert!(check(1, 2).is_allowed() && !check(3, 2).is_allowed());
/// ```
#[doc(alias = "admission.Response")]
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    rejection: Option<Rejection>,
    warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Rejection {
    Denied(String),
    Invalid(Vec<FieldError>),
}

impl Verdict {
    /// Admits the write.
    #[doc(alias = "Allowed")]
    pub fn allow() -> Self {
        Self { rejection: None, warnings: Vec::new() }
    }

    /// Rejects the write with 403 `Forbidden`, for a reason that is in no field.
    #[doc(alias = "Denied")]
    pub fn deny(why: impl Into<String>) -> Self {
        Self { rejection: Some(Rejection::Denied(why.into())), warnings: Vec::new() }
    }

    /// Rejects the write with 422 `Invalid` if there is an error, each error a cause. Collect all errors, so that the
    /// user can correct them at once.
    pub fn from_errors(errors: impl IntoIterator<Item = FieldError>) -> Self {
        let errors: Vec<_> = errors.into_iter().collect();
        Self { rejection: (!errors.is_empty()).then_some(Rejection::Invalid(errors)), warnings: Vec::new() }
    }

    /// Adds a warning for the user, whether the write is admitted or not. The API server truncates long warnings at
    /// 256 bytes if there are many.
    pub fn warn(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }

    /// Returns true if the write is admitted.
    pub fn is_allowed(&self) -> bool {
        self.rejection.is_none()
    }

    /// Splits the verdict into the rejection and the warnings.
    pub(super) fn into_parts(self, kind: &GroupVersionKind, name: &str) -> (Option<Status>, Vec<String>) {
        let rejection = self.rejection.map(|rejection| match rejection {
            Rejection::Denied(why) => Status::new(403, Reason::Forbidden, why),
            Rejection::Invalid(errors) => Status::invalid(kind, name, &errors),
        });
        (rejection, self.warnings)
    }
}
