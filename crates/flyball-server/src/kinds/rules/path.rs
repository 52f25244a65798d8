//! Paths in file systems, without `..`.

use super::super::field::Field;
use flyball_core::field::FieldError;

/// No step of the path may lead upwards.
pub(crate) fn no_backsteps(field: &Field<'_>) -> Option<FieldError> {
    climbs(field.text()).then(|| field.invalid("must not contain '..'"))
}

/// Returns whether a step of a path leads upwards.
pub(crate) fn climbs(path: &str) -> bool {
    path.split('/').any(|step| step == "..")
}

/// The path must lead downwards from where it begins.
pub(crate) fn descending(field: &Field<'_>) -> Vec<FieldError> {
    let absolute = field.text().starts_with('/').then(|| field.invalid("must be a relative path"));
    absolute.into_iter().chain(no_backsteps(field)).collect()
}

/// Like [`descending`], without the prefix that is reserved for the kubelet.
pub(crate) fn unreserved(field: &Field<'_>) -> Vec<FieldError> {
    let mut errors = descending(field);
    if field.text().starts_with("..") && !field.text().starts_with("../") {
        errors.push(field.invalid("must not start with '..'"));
    }
    errors
}
