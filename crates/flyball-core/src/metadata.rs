//! Validation rules for metadata, for all fields with labels and annotations.
//!
//! Follows `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`.

use crate::field::{ErrorType, FieldError, Path};
use crate::status::MAX_CAUSES;
use crate::{Object, names};
use serde_json::{Map, Value};

/// Maximum total size of the annotations of an object, in bytes.
pub const MAX_ANNOTATION_BYTES: usize = 256 << 10;

/// Metadata that only the API server sets.
pub const SERVER_MANAGED_FIELDS: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// The fields of [`SERVER_MANAGED_FIELDS`] that change with writes.
pub const REVISION_FIELDS: [&str; 3] = ["generation", "managedFields", "resourceVersion"];

/// Validates labels.
pub fn validate_labels(labels: Option<&Map<String, Value>>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        push_invalid(&mut errors, path, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        push_invalid(&mut errors, path, value, names::label_value(value));
    }
    errors
}

/// Adds the errors of a value; without text if a `Status` does not list them, because each takes far more memory than a
/// short key.
pub fn push_invalid(errors: &mut Vec<FieldError>, path: &Path<'_>, value: &str, reasons: Vec<String>) {
    for reason in reasons {
        let is_listed = errors.len() < MAX_CAUSES;
        errors.push(match is_listed {
            true => FieldError::invalid(path, value, reason),
            false => FieldError::unlisted(ErrorType::Invalid),
        });
    }
}

/// Validates annotations.
pub fn validate_annotations(annotations: Option<&Map<String, Value>>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in annotations.into_iter().flat_map(Map::keys) {
        // Annotation keys are the only keys that may contain uppercase letters.
        push_invalid(&mut errors, path, key, names::qualified_name(&key.to_lowercase()));
    }
    if !annotations.is_none_or(annotations_fit) {
        errors.push(FieldError::too_long(path, MAX_ANNOTATION_BYTES as u64));
    }
    errors
}

/// Returns true if the total size of the annotations is within [`MAX_ANNOTATION_BYTES`].
pub fn annotations_fit(annotations: &Map<String, Value>) -> bool {
    annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum::<usize>()
        <= MAX_ANNOTATION_BYTES
}

/// Returns finalizers, with their indexes, that are neither standard nor qualified by a domain. Different clients might
/// use such a name for different purposes.
pub fn unqualified_finalizers(object: &Object) -> impl Iterator<Item = (usize, &str)> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    object.finalizers().enumerate().filter(|(_, finalizer)| !finalizer.contains('/') && !STANDARD.contains(finalizer))
}

/// Rejects unqualified finalizers.
pub fn validate_finalizers(object: &Object) -> Vec<FieldError> {
    let (metadata, reason) =
        (Path::new("metadata"), "name is neither a standard finalizer name nor is it fully qualified");
    let path = metadata.field("finalizers");
    unqualified_finalizers(object).map(|(i, finalizer)| FieldError::invalid(path.index(i), finalizer, reason)).collect()
}
