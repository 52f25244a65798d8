//! Paths in file systems, without `..`.

use super::super::field::Field;
use flyball_core::field::FieldError;

/// The path must not contain `..`.
pub(crate) fn no_backsteps(field: &Field<'_>) -> Option<FieldError> {
    climbs(field.text()).then(|| field.invalid("must not contain '..'"))
}

/// Returns true if a path contains `..`.
pub(crate) fn climbs(path: &str) -> bool {
    path.split('/').any(|step| step == "..")
}

/// The path must be relative and must not contain `..`.
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
