//! Constraints on a value of a custom resource beyond its type.

use super::Id;
use crate::cel::Rule;
use crate::matching::Pattern;
use serde_json::{Number, Value};

/// The constraints in the schema of a custom resource, in addition to its type.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    /// The `type` keyword.
    pub ty: Option<Box<str>>,
    /// The `format` keyword.
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
    /// The pattern that the string must match.
    pub pattern: Option<Pattern>,
    /// Minimum number of items.
    pub min_items: Option<u64>,
    /// Maximum number of items.
    pub max_items: Option<u64>,
    /// True if items must be unique.
    pub unique_items: bool,
    /// Minimum number of fields.
    pub min_properties: Option<u64>,
    /// Maximum number of fields.
    pub max_properties: Option<u64>,
    /// The required fields.
    pub required: Vec<Box<str>>,
    /// The allowed values.
    pub one_of_values: Vec<Value>,
    /// `allOf`.
    pub all_of: Vec<Id>,
    /// `anyOf`.
    pub any_of: Vec<Id>,
    /// `oneOf`.
    pub one_of: Vec<Id>,
    /// `not`.
    pub not: Option<Id>,
    /// The CRD's constraints on the metadata of an object; the schema itself contains those of Kubernetes.
    pub metadata: Option<Id>,
    /// CEL rules.
    pub rules: Vec<Rule>,
}

/// A minimum or maximum.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The number.
    pub value: Number,
    /// True if the number itself is not allowed.
    pub exclusive: bool,
}
