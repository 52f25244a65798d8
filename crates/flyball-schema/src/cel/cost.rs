//! Estimates of the maximum cost of an expression before its evaluation.
//!
//! A rule is rejected if it could take too long on the largest object that its schema allows. The cost model is that of
//! kube-apiserver. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#resource-use-by-validation-functions>.

use super::typing::{Schema, Type, field};
use kube_cel::cel::common::ast::{Expr, IdedExpr, LiteralValue};
use serde_json::Value;

/// Maximum size of a request, in bytes.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// The cost of traversing one character.
const COST_PER_CHARACTER: f64 = 0.1;
/// The cost of one character of a regular expression.
const PER_PATTERN_CHARACTER: f64 = 0.25;

/// Bounds of the number of characters, bytes or entries of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Size {
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) const fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }

    pub(super) const fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Multiplies and rounds up.
fn scaled(size: u64, by: f64) -> u64 {
    // Floats are converted to the nearest representable integer.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    let cost = (size as f64 * by).ceil() as u64;
    cost
}

/// Returns the cost of searching a string for a pattern.
pub(super) fn of_match(text: &str, pattern: &str) -> u64 {
    let chars = |text: &str| text.chars().count() as u64;
    scaled(chars(text) + 1, COST_PER_CHARACTER).saturating_mul(scaled(chars(pattern), PER_PATTERN_CHARACTER))
}

/// A position in the schema of an expression's variable.
#[derive(Clone, Copy, Debug)]
pub(super) enum SchemaPosition<'s> {
    Schema {
        schema: &'s Schema,
        whole: bool,
    },
    Metadata,
    /// A string without a length limit.
    Text,
    /// The key of a map.
    Key,
    /// A position outside the schema.
    Nowhere,
}

impl<'s> SchemaPosition<'s> {
    pub(super) fn field(self, name: &str) -> Self {
        match self {
            Self::Metadata => Self::Text,
            Self::Schema { schema, whole } => match field(schema, whole, name) {
                Some(Type::Metadata) => Self::Metadata,
                Some(_) if whole && matches!(name, "apiVersion" | "kind") => Self::Text,
                Some(_) => super::typing::property(schema, name).map_or(Self::Nowhere, Self::part),
                None => Self::Nowhere,
            },
            Self::Text | Self::Key | Self::Nowhere => Self::Nowhere,
        }
    }

    fn part(schema: &'s Schema) -> Self {
        Self::Schema { schema, whole: schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) }
    }

    /// Descends into the items of a list or the values of a map.
    pub(super) fn items(self) -> Self {
        let Self::Schema { schema, .. } = self else { return Self::Nowhere };
        let inner = |name: &str| schema.get(name).and_then(Value::as_object);
        inner("items").or_else(|| inner("additionalProperties")).map_or(Self::Nowhere, Self::part)
    }

    pub(super) fn keys(self) -> Self {
        let Self::Schema { schema, .. } = self else { return Self::Nowhere };
        if schema.get("additionalProperties").is_some_and(Value::is_object) { Self::Key } else { Self::Nowhere }
    }

    /// Returns the maximum size of a value at this position.
    pub(super) fn size(self) -> Option<Size> {
        match self {
            Self::Schema { schema, .. } => Some(Size::up_to(max_elements(schema))),
            Self::Metadata | Self::Key => Some(Size::up_to(0)),
            Self::Text => Some(Size::up_to(MAX_REQUEST - 2)),
            Self::Nowhere => None,
        }
    }
}

fn text<'s>(schema: &'s Schema, field: &str) -> &'s str {
    schema.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn bound(schema: &Schema, field: &str) -> Option<u64> {
    schema.get(field).and_then(Value::as_i64).map(|n| u64::try_from(n).unwrap_or_default())
}

fn is_int_or_string(schema: &Schema) -> bool {
    schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
}

/// Returns the maximum number of characters or entries of a value of a schema.
fn max_elements(schema: &Schema) -> u64 {
    let inner = |name: &str| schema.get(name).and_then(Value::as_object);
    // A character takes up to four bytes.
    let length = || bound(schema, "maxLength").map(|n| n.saturating_mul(4));
    if is_int_or_string(schema) {
        return length().unwrap_or(MAX_REQUEST - 2);
    }
    match (text(schema, "type"), text(schema, "format")) {
        ("array", _) => bound(schema, "maxItems")
            .unwrap_or_else(|| (MAX_REQUEST - 2) / (inner("items").map_or(0, min_bytes).saturating_add(1))),
        ("object", _) => match inner("additionalProperties") {
            Some(values) => bound(schema, "maxProperties")
                .unwrap_or_else(|| (MAX_REQUEST - 2) / min_bytes(values).saturating_add(6)),
            None => 0,
        },
        ("string", "byte") => bound(schema, "maxLength").unwrap_or(MAX_REQUEST - 2),
        ("string", "duration" | "date-time") => 32,
        ("string", "date") => 12,
        ("string", _) => length().unwrap_or_else(|| {
            let names = schema.get("enum").and_then(Value::as_array).filter(|names| !names.is_empty());
            let longest = |names: &Vec<Value>| names.iter().filter_map(Value::as_str).map(str::len).max();
            names.map_or(MAX_REQUEST - 2, |names| longest(names).unwrap_or_default() as u64)
        }),
        _ => 0,
    }
}

/// Returns the minimum size of a value of a schema, in bytes.
fn min_bytes(schema: &Schema) -> u64 {
    if is_int_or_string(schema) {
        return 1;
    }
    match (text(schema, "type"), text(schema, "format")) {
        ("array", _) => 2,
        ("object", _) if schema.get("additionalProperties").is_some_and(Value::is_object) => 2,
        ("object", _) => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let fields = required.filter_map(Value::as_str).filter_map(|name| {
                let field = schema.get("properties")?.get(name)?.as_object()?;
                let given = field.get("default").is_some_and(|default| !default.is_null());
                (!given).then(|| name.len() as u64 + min_bytes(field) + 4)
            });
            fields.fold(2, u64::saturating_add)
        }
        ("string", "duration") => 3,
        ("string", "date") => 12,
        ("string", "date-time") => 21,
        ("string", _) => 2,
        ("boolean", _) => 4,
        _ => 1,
    }
}

/// Returns the maximum number of values of a schema in one object.
pub fn cardinality(schema: &Schema) -> u64 {
    MAX_REQUEST / (min_bytes(schema) + 1)
}

/// The type, cost and size of a part of an expression.
#[derive(Clone, Debug)]
pub(super) struct Estimate<'s> {
    pub(super) ty: Type<'s>,
    pub(super) cost: u64,
    pub(super) size: Option<Size>,
    /// The size of each of its entries.
    pub(super) entry: Option<Size>,
    pub(super) schema_position: Option<SchemaPosition<'s>>,
}

impl<'s> Estimate<'s> {
    pub(super) fn of(ty: Type<'s>, cost: u64) -> Self {
        Self { size: scalar(&ty), ty, cost, entry: None, schema_position: None }
    }

    /// Returns the estimate of a value at a position of the schema.
    pub(super) fn at(ty: Type<'s>, cost: u64, schema_position: Option<SchemaPosition<'s>>) -> Self {
        Self {
            size: schema_position.and_then(SchemaPosition::size).or_else(|| scalar(&ty)),
            ty,
            cost,
            entry: None,
            schema_position,
        }
    }

    pub(super) fn size(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }
}

/// The size of a value of a fixed-size type.
fn scalar(ty: &Type<'_>) -> Option<Size> {
    let fixed = ["bool", "double", "duration", "int", "timestamp", "uint"].iter().any(|name| ty.is(name));
    fixed.then_some(Size::exactly(1))
}

/// The size of a literal.
pub(super) fn literal(of: &LiteralValue) -> Size {
    Size::exactly(match of {
        LiteralValue::String(text) => text.inner().chars().count() as u64,
        LiteralValue::Bytes(bytes) => bytes.inner().len() as u64,
        _ => 1,
    })
}

/// Returns the cost of a call including its arguments, and the sizes of its result and of the result's entries.
pub(super) fn of_call(
    name: &str,
    target: Option<&Estimate<'_>>,
    arguments: &[Estimate<'_>],
    written: &[IdedExpr],
    in_sets: bool,
) -> (u64, Option<Size>, Option<Size>) {
    let sum = |seen: &[Estimate<'_>]| seen.iter().fold(0, |sum: u64, argument| sum.saturating_add(argument.cost));
    let parts = sum(arguments).saturating_add(target.map_or(0, |target| target.cost));
    match (name, arguments) {
        ("_&&_" | "_||_", _) => (parts, None, None),
        ("_?_:_", [condition, a, b]) => {
            let entry = a.entry.zip(b.entry).map(|(a, b)| a.or(b));
            (condition.cost.saturating_add(a.cost.max(b.cost)), Some(a.size().or(b.size())), entry)
        }
        ("dyn", [of]) => (parts.saturating_add(1), of.size, of.entry),
        _ => {
            let (call_cost, size) = call_cost(name, target, arguments, written, in_sets);
            let entry = match (name, arguments) {
                ("_+_", [a, b]) => a.entry.zip(b.entry).map(|(a, b)| a.or(b)),
                _ => None,
            };
            (parts.saturating_add(call_cost), size, entry)
        }
    }
}

/// Returns the cost of the call itself, and the size of its result.
fn call_cost(
    name: &str,
    target: Option<&Estimate<'_>>,
    arguments: &[Estimate<'_>],
    written: &[IdedExpr],
    in_sets: bool,
) -> (u64, Option<Size>) {
    let over = |size: Size| scaled(size.max, COST_PER_CHARACTER);
    let pattern = |size: Size| scaled(size.max, PER_PATTERN_CHARACTER);
    match (name, target, arguments) {
        ("contains" | "intersects", _, [a, b]) if in_sets => (a.size().times(b.size()).max.saturating_add(1), None),
        ("equivalent", _, [a, b]) if in_sets => (scaled(a.size().times(b.size()).max, 2.0).saturating_add(1), None),
        ("_==_", _, [a, b]) if is_of_kubernetes(&a.ty) && is_of_kubernetes(&b.ty) => (1, None),
        ("_==_" | "_!=_", _, [a, b]) => (scaled(a.size().max.min(b.size().max), COST_PER_CHARACTER), None),
        ("_<_" | "_<=_" | "_>_" | "_>=_", _, [a, b]) if may_be_text(&a.ty) && may_be_text(&b.ty) => {
            (scaled(a.size().max.min(b.size().max), COST_PER_CHARACTER), None)
        }
        ("@in", _, [_, b]) if !matches!(b.ty, Type::Map(..) | Type::Object { .. }) => (b.size().max, None),
        ("_+_", _, [a, b]) if matches!(a.ty, Type::List(_)) || matches!(b.ty, Type::List(_)) => {
            (1, Some(a.size().plus(b.size())))
        }
        ("_+_", _, [a, b]) if may_be_text(&a.ty) && may_be_text(&b.ty) => {
            let size = a.size().plus(b.size());
            (over(size), Some(size))
        }
        ("_[_]", _, [a, _]) => (1, a.entry),
        ("matches", Some(target), [of]) => {
            (over(target.size().plus(Size::exactly(1))).saturating_mul(pattern(of.size())), None)
        }
        ("find" | "findAll", Some(target), [of, ..]) => {
            let cost = over(target.size().plus(Size::exactly(1))).saturating_mul(pattern(of.size()));
            (cost, Some(Size::up_to(target.size().max)))
        }
        ("contains", Some(target), [of]) => (over(target.size()).saturating_mul(over(of.size())), None),
        ("startsWith" | "endsWith", Some(_), [of]) => (over(of.size()), None),
        ("format", Some(target), _) => (over(target.size()), None),
        ("bytes", None, [of]) if of.ty.is("string") => {
            (over(of.size()), Some(Size { max: of.size().max.saturating_mul(4), ..of.size() }))
        }
        ("string", None, [of]) if of.ty.is("bytes") => {
            (over(of.size()), Some(Size { min: of.size().min / 4, ..of.size() }))
        }
        ("check", Some(_), _) => (350_000, None),
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => match &target.ty {
            Type::List(items) => {
                let each = match target.schema_position.map(SchemaPosition::items).and_then(SchemaPosition::size) {
                    _ if !items.is("string") && !items.is("bytes") => 1,
                    size => over(size.unwrap_or(Size::UNKNOWN)).saturating_add(1),
                };
                (target.size().max.saturating_mul(each), None)
            }
            _ => (over(target.size()), None),
        },
        ("url", _, [of]) | ("lowerAscii" | "upperAscii" | "trim" | "substring", Some(of), _) => {
            (over(of.size()), Some(of.size()))
        }
        ("replace", Some(target), [old, new, ..]) => {
            (scaled(target.size().max, 2.0 * COST_PER_CHARACTER), Some(replaced(target.size(), old.size(), new.size())))
        }
        ("split", Some(target), _) => {
            let limit = match written.get(1).map(|limit| &limit.expr) {
                Some(Expr::Literal(LiteralValue::Int(limit))) => u64::try_from(*limit.inner()).unwrap_or(u64::MAX),
                _ => target.size().max,
            };
            (scaled(target.size().max, 2.0 * COST_PER_CHARACTER), Some(Size::up_to(limit)))
        }
        ("join", Some(target), of) => {
            let items = target.size();
            let each = target
                .schema_position
                .map(SchemaPosition::items)
                .and_then(SchemaPosition::size)
                .unwrap_or(Size::UNKNOWN);
            let between = Size { min: items.min.saturating_sub(1), max: items.max.saturating_sub(1) };
            let gaps = of.first().map_or(Size::exactly(0), |gap| gap.size().times(between));
            let size = items.times(each).plus(gaps);
            (over(size), Some(size))
        }
        ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", None, [of, ..]) => {
            (over(of.size()), None)
        }
        // Addresses have 4 or 16 bytes, and both are traversed.
        ("containsIP" | "containsCIDR", Some(_), [of, ..]) => {
            let masked = if name == "containsCIDR" { over(Size::exactly(16)) + 1 } else { 0 };
            let parsed = if of.ty.is("string") { over(of.size()) } else { 0 };
            ((over(Size::exactly(32)) + masked).saturating_add(parsed), None)
        }
        ("validate", Some(_), [of, ..]) => (scaled(over(of.size()), 128.0 * PER_PATTERN_CHARACTER), None),
        _ => (1, None),
    }
}

fn is_of_kubernetes(ty: &Type<'_>) -> bool {
    matches!(ty, Type::Plain(name) if name.contains('.'))
}

fn may_be_text(ty: &Type<'_>) -> bool {
    ty.is_dyn() || ty.is("string") || ty.is("bytes")
}

/// The size of a string after replacements.
fn replaced(size: Size, old: Size, new: Size) -> Size {
    let (longest, unreplaced) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (size.max.div_ceil(old.min), 0)
    };
    let (fewest, least) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (size.min.div_ceil(old.max), 0)
    };
    Size { min: fewest, max: longest }.times(new).plus(Size { min: least, max: unreplaced })
}
