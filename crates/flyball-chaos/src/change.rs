//! Changes of a cluster as data: each names one object, and contains all that its undo needs.

use crate::api::Reference;
use crate::edit::Edit;
use flyball_core::metadata::SERVER_MANAGED_FIELDS;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Label of created objects: the run.
pub const RUN_LABEL: &str = "chaos.flyball.dev/run";
/// Annotation of edited objects: the run and the experiment.
pub const EXPERIMENT_ANNOTATION: &str = "chaos.flyball.dev/experiment";
/// Annotation of edited objects: the edits, for an undo by hand.
pub const UNDO_ANNOTATION: &str = "chaos.flyball.dev/undo";
/// Annotation of a namespace that refuses experiments; in kube-system, for the whole cluster.
pub const PROTECTED_ANNOTATION: &str = "chaos.flyball.dev/protected";
/// Finalizer that keeps a deleted object until its fault ends.
pub const FINALIZER: &str = "chaos.flyball.dev/block";
/// Prefix of labels and annotations of this crate.
pub(crate) const PREFIX: &str = "chaos.flyball.dev/";

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "change")]
pub enum Change {
    /// Edits fields.
    #[serde(rename_all = "camelCase")]
    Edit {
        /// The object.
        object: Reference,
        /// Its UID: a new object of the name is not edited.
        uid: String,
        /// The fields.
        edits: Vec<Edit>,
    },
    /// Creates an object. Its undo deletes the object if it has the label of the run.
    #[serde(rename_all = "camelCase")]
    Create {
        /// The object with its kind, name and labels.
        object: Value,
    },
    /// Deletes an object. Its undo creates it again, unless the operator did.
    #[serde(rename_all = "camelCase")]
    Delete {
        /// The object.
        object: Reference,
        /// Its UID.
        uid: String,
        /// The object without the fields that the API server sets. Nothing for pods, which their owners replace.
        original: Option<Value>,
    },
}

/// Progress of a change: planned, made or undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Progress {
    /// Recorded, and possibly made.
    Planned,
    /// Confirmed by the API server.
    Made,
    /// Undone, or without effect anymore.
    Undone,
}

impl Change {
    /// Returns the object.
    pub fn object(&self) -> Reference {
        match self {
            Self::Edit { object, .. } | Self::Delete { object, .. } => object.clone(),
            Self::Create { object } => Reference::of(object),
        }
    }

    /// Creates the deletion of an object with its undo.
    pub(crate) fn delete(object: &Value) -> Self {
        let reference = Reference::of(object);
        let original = (reference.kind != "Pod").then(|| restorable(object));
        Self::Delete { uid: uid(object), object: reference, original }
    }

    /// Creates edits of an object.
    pub(crate) fn edit(object: &Value, edits: Vec<Edit>) -> Self {
        Self::Edit { object: Reference::of(object), uid: uid(object), edits }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edit { object, edits, .. } => {
                let paths: Vec<String> = edits.iter().map(|edit| crate::text::clean(edit.path())).collect();
                write!(f, "edit {object}: {}", paths.join(", "))
            }
            Self::Create { object } => write!(f, "create {}", Reference::of(object)),
            Self::Delete { object, .. } => write!(f, "delete {object}"),
        }
    }
}

pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Returns an object without the fields that the API server sets.
fn restorable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in SERVER_MANAGED_FIELDS.into_iter().chain(["deletionTimestamp", "deletionGracePeriodSeconds"]) {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !key.starts_with(PREFIX));
        }
        if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}
