//! Validation rules for metadata, for all fields with labels and annotations.
//!
//! Follows `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`.

use crate::field::{FieldError, Path};
use crate::{Object, names};
use serde_json::{Map, Value};

/// Maximum total size of the annotations of an object, in bytes.
pub const MAX_ANNOTATION_BYTES: usize = 256 << 10;

/// Validates labels.
pub fn validate_labels(labels: Option<&Map<String, Value>>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        errors.extend(names::qualified_name(key).into_iter().map(|e| FieldError::invalid(path, key.as_str(), e)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::label_value(value).into_iter().map(|e| FieldError::invalid(path, value, e)));
    }
    errors
}

/// Validates annotations.
pub fn validate_annotations(annotations: Option<&Map<String, Value>>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in annotations.into_iter().flat_map(Map::keys) {
        // Annotation keys are the only keys that may contain uppercase letters.
        errors.extend(
            names::qualified_name(&key.to_lowercase()).into_iter().map(|e| FieldError::invalid(path, key.as_str(), e)),
        );
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
