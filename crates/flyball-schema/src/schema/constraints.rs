//! Constraints on a value of a custom resource beyond its type.

use super::Id;
use crate::cel::Rule;
use crate::matching::Pattern;
use serde_json::{Number, Value};

/// The constraints in the schema of a custom resource, beyond the sort of value.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    /// The `type` that it names.
    pub ty: Option<Box<str>>,
    /// The `format` that it names.
    pub format: Option<Box<str>>,
    /// The minimum.
    pub minimum: Option<Bound>,
    /// The maximum.
    pub maximum: Option<Bound>,
    /// The number must be a multiple of this one.
    pub multiple_of: Option<Number>,
    /// Minimum number of characters.
    pub min_length: Option<u64>,
    /// Maximum number of characters.
    pub max_length: Option<u64>,
    /// The pattern that the text must match.
    pub pattern: Option<Pattern>,
    /// Minimum number of items.
    pub min_items: Option<u64>,
    /// Maximum number of items.
    pub max_items: Option<u64>,
    /// No item may occur twice.
    pub unique_items: bool,
    /// Minimum number of fields.
    pub min_properties: Option<u64>,
    /// Maximum number of fields.
    pub max_properties: Option<u64>,
    /// The required fields.
    pub required: Vec<Box<str>>,
    /// The only values allowed.
    pub one_of_values: Vec<Value>,
    /// All of these must hold.
    pub all_of: Vec<Id>,
    /// One or more of these must hold.
    pub any_of: Vec<Id>,
    /// Exactly one of these must hold.
    pub one_of: Vec<Id>,
    /// This must not hold.
    pub not: Option<Id>,
    /// The CRD's constraints on the metadata of an object; the schema itself holds those of Kubernetes.
    pub metadata: Option<Id>,
    /// CEL rules.
    pub rules: Vec<Rule>,
}

/// A minimum or maximum.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The number.
    pub value: Number,
    /// The number itself is not allowed.
    pub exclusive: bool,
}
