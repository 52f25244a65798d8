//! Kinds of `apiextensions.k8s.io`.

use crate::kinds::definition;
use crate::kinds::kind::{Deletion, Kind, Subresource as Sub};

const GROUP: &str = "apiextensions.k8s.io";

/// The category of what extends the API.
const EXTENSIONS: &str = "api-extensions";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "CustomResourceDefinition", "customresourcedefinitions")
    .declares_resources()
    .stored_as_json()
    .registry_path("apiextensions.k8s.io/customresourcedefinitions")
    .short(&["crd", "crds"])
    .category(EXTENSIONS)
    .cluster()
    .generation()
    .versioned_updates()
    .deleted_as_object()
    .subresources(&[Sub::STATUS])
    .default(definition::default)
    .prepare(definition::prepare)
    .validate(definition::validate)
    .warn(definition::warn)
    .deletion(Deletion {
        outlives: |crd| crd.deletion_timestamp().is_none(),
        mark: definition::mark,
        ..Deletion::AT_ONCE
    })];
