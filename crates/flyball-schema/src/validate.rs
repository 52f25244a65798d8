//! Validation of custom resources against their schema.
//!
//! All errors are reported, with the messages of kube-apiserver, which are those of go-openapi. Parts that an update
//! does not change are not rejected, even if the schema has become stricter ("ratcheting", KEP-4008).

use crate::formats;
use crate::matching::{Matcher, Pattern};
use crate::schema::{Bound, Constraints, ListKind, Node, Shape};
use flyball_core::field::{BadValue, ErrorType, FieldError, Path};
use serde_json::{Number, Value};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Validates a value; `prefix` is the path of the value in its object, empty for the object itself.
///
/// `old` is the value before an update.
pub fn validate(node: Node<'_>, value: &Value, old: Option<&Value>, prefix: &str) -> Vec<FieldError> {
    let mut seen = BTreeSet::new();
    let validator = Validator { prefix, matcher: RefCell::default(), unmatched: OnceCell::new() };
    let mut errors = validator.run(node, value, old, "").errors;
    errors.extend(validator.unmatched.into_inner());
    // Several alternatives of a schema may have the same constraint.
    errors.retain(|error| seen.insert((error.error_type, error.to_string())));
    errors
}

struct Validator<'p> {
    prefix: &'p str,
    matcher: RefCell<Matcher>,
    /// The first string that was too long for its pattern. Unlike other errors, another alternative or `not` cannot
    /// compensate for it.
    unmatched: OnceCell<FieldError>,
}

/// The result of validating one value: the errors, and the number of checked constraints, which determines the best of
/// several failed alternatives.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    looked_at: u32,
}

impl Outcome {
    fn add(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    fn merge(&mut self, mut other: Self) {
        self.looked_at += other.looked_at;
        self.errors.append(&mut other.errors);
    }
}

impl Validator<'_> {
    fn field(&self, name: &str) -> String {
        let name = name.strip_prefix('.').unwrap_or(name);
        match (self.prefix, name) {
            ("", "") => Path::ROOT.to_string(),
            (prefix, "") => prefix.into(),
            ("", name) => name.into(),
            (prefix, name) => format!("{prefix}.{name}"),
        }
    }

    fn invalid(&self, name: &str, value: impl Into<BadValue>, what: &str) -> FieldError {
        FieldError::invalid(self.field(name), value, format!("{name} in body {what}"))
    }

    fn run(&self, node: Node<'_>, value: &Value, old: Option<&Value>, name: &str) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(demands) = node.get().constraints.as_deref() else { return outcome };
        if old == Some(value) {
            return outcome;
        }
        let mut step = |errors: Vec<FieldError>| {
            errors.into_iter().for_each(|error| outcome.add(error));
            outcome.looked_at += 1;
        };
        step(self.ty(node, demands, value, name).into_iter().collect());
        if value.is_null() {
            step(self.one_of_values(demands, value, name).into_iter().collect());
            return outcome;
        }
        let alternatives = self.alternatives(node, demands, value, old, name);
        outcome.merge(alternatives);
        let mut step = |errors: Vec<FieldError>| {
            errors.into_iter().for_each(|error| outcome.add(error));
            outcome.looked_at += 1;
        };
        match value {
            Value::String(text) => {
                step(self.text(demands, text, name).into_iter().collect());
                step(self.format(demands, text, name).into_iter().collect());
            }
            Value::Number(number) => step(self.number(demands, number, name)),
            _ => {}
        }
        if let Value::Array(items) = value {
            outcome.merge(self.items(node, demands, items, old, name));
        }
        if let Some(error) = self.one_of_values(demands, value, name) {
            outcome.add(error);
        }
        outcome.looked_at += 1;
        if let Value::Object(_) = value {
            outcome.merge(self.fields(node, demands, value, old, name));
        }
        outcome.looked_at += 1;
        outcome
    }

    fn ty(&self, node: Node<'_>, demands: &Constraints, value: &Value, name: &str) -> Option<FieldError> {
        let int_or_string = matches!(node.get().shape, Shape::IntOrString);
        let want = if int_or_string { "integer,string" } else { demands.ty.as_deref()? };
        let got = match value {
            Value::Null if node.nullable => return None,
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(n) if n.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let numeric = matches!(want, "number" | "integer");
        let formatted = demands.format.is_some() && !numeric && matches!(value, Value::String(_) | Value::Array(_));
        if got == want
            || int_or_string && matches!(got, "integer" | "string")
            || want == "number" && got == "integer"
            || want == "integer" && is_integral(value)
            || formatted
        {
            return None;
        }
        // For values that are neither strings nor lists, the error names the format, if there is one.
        let (want, got) = match (&demands.format, value) {
            (Some(format), Value::Bool(_) | Value::Object(_)) => (&**format, ""),
            (Some(format), Value::Number(n)) => (&**format, if n.is_f64() { "float64" } else { "int64" }),
            _ => (want, got),
        };
        let detail = format!("{name} in body must be of type {want}: {got:?}");
        Some(FieldError::type_invalid(self.field(name), got, detail))
    }

    fn one_of_values(&self, demands: &Constraints, value: &Value, name: &str) -> Option<FieldError> {
        let known = &demands.one_of_values;
        if known.is_empty() || known.contains(value) {
            return None;
        }
        let known = known.iter().map(|known| known.as_str().map_or_else(|| known.to_string(), str::to_owned));
        Some(FieldError::not_supported(self.field(name), value.clone(), known))
    }

    fn alternatives(
        &self,
        node: Node<'_>,
        demands: &Constraints,
        value: &Value,
        old: Option<&Value>,
        name: &str,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let run = |id| self.run(node.at(id), value, old, name);
        let failure = |what: String| FieldError::invalid(self.root_field(), "", format!("{name:?} {what}"));
        if !demands.any_of.is_empty() {
            match first_valid(demands.any_of.iter().map(|id| run(*id))) {
                Ok(valid) => outcome.merge(valid),
                Err(best) => {
                    outcome.add(failure("must validate at least one schema (anyOf)".into()));
                    outcome.merge(best);
                }
            }
        }
        if !demands.one_of.is_empty() {
            let results: Vec<Outcome> = demands.one_of.iter().map(|id| run(*id)).collect();
            let valid = results.iter().filter(|result| result.errors.is_empty()).count();
            match valid {
                0 => {
                    outcome.add(failure("must validate one and only one schema (oneOf). Found none valid".into()));
                    if let Err(best) = first_valid(results.into_iter()) {
                        outcome.merge(best);
                    }
                }
                1 => {
                    outcome.looked_at +=
                        results.iter().find(|result| result.errors.is_empty()).map_or(0, |result| result.looked_at)
                }
                n => outcome.add(failure(format!(
                    "must validate one and only one schema (oneOf). Found {n} valid alternatives"
                ))),
            }
        }
        if !demands.all_of.is_empty() {
            let mut valid = 0;
            for id in &demands.all_of {
                let result = run(*id);
                valid += usize::from(result.errors.is_empty());
                outcome.merge(result);
            }
            if valid < demands.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.add(failure(format!("must validate all the schemas (allOf){none}")));
            }
        }
        if demands.not.is_some_and(|id| run(id).errors.is_empty()) {
            outcome.add(failure("must not validate the schema (not)".into()));
        }
        outcome.looked_at += 2;
        outcome
    }

    /// Returns the field for errors without a field.
    fn root_field(&self) -> String {
        self.field("")
    }

    fn text(&self, demands: &Constraints, text: &str, name: &str) -> Option<FieldError> {
        let length = text.chars().count() as u64;
        if let Some(max) = demands.max_length.filter(|max| length > *max) {
            return Some(FieldError::too_long(self.field(name), max));
        }
        if let Some(min) = demands.min_length.filter(|min| length < *min) {
            return Some(self.invalid(name, text, &format!("should be at least {min} chars long")));
        }
        let pattern = demands.pattern.as_ref().filter(|pattern| !self.is_match(pattern, text, name))?;
        Some(self.invalid(name, text, &format!("should match '{}'", pattern.as_str())))
    }

    /// Returns true if a string matches a pattern. A string that is too long for the pattern ends all matching.
    fn is_match(&self, pattern: &Pattern, text: &str, name: &str) -> bool {
        if self.unmatched.get().is_some() {
            return true;
        }
        let found = self.matcher.borrow_mut().is_match(pattern, text);
        found.unwrap_or_else(|_| {
            self.unmatched.get_or_init(|| too_long(self.field(name), pattern, text));
            true
        })
    }

    fn format(&self, demands: &Constraints, text: &str, name: &str) -> Option<FieldError> {
        let format = demands.format.as_deref()?;
        if formats::check(format, text)? {
            return None;
        }
        let detail = format!("{name} in body must be of type {format}: {}", flyball_core::field::go_quote(text));
        Some(FieldError::type_invalid(self.field(name), text, detail))
    }

    fn number(&self, demands: &Constraints, number: &Number, name: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let value = || Value::Number(number.clone());
        if demands.ty.as_deref() == Some("integer") {
            let format = demands.format.as_deref().filter(|format| matches!(*format, "int32" | "int64"));
            let integer = number
                .as_i64()
                .or_else(|| number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e18).map(|n| n as i64));
            let fits = integer.is_some_and(|n| format != Some("int32") || i32::try_from(n).is_ok());
            if !fits {
                let as_what =
                    format.map_or_else(|| "(default format)".into(), |format| format!("with format {format}"));
                errors.push(FieldError::invalid(
                    self.root_field(),
                    "",
                    format!("Checked value must be of type integer {as_what} in {name}"),
                ));
            }
        }
        if let Some(factor) = demands.multiple_of.as_ref().filter(|factor| !is_multiple(number, factor)) {
            errors.push(self.invalid(name, value(), &format!("should be a multiple of {factor}")));
        }
        if let Some(bound) = demands.minimum.as_ref().filter(|bound| beyond(&bound.value, number, bound)) {
            let relation = if bound.exclusive { "greater than" } else { "greater than or equal to" };
            errors.push(self.invalid(name, value(), &format!("should be {relation} {}", bound.value)));
        }
        if let Some(bound) = demands.maximum.as_ref().filter(|bound| beyond(number, &bound.value, bound)) {
            let relation = if bound.exclusive { "less than" } else { "less than or equal to" };
            errors.push(self.invalid(name, value(), &format!("should be {relation} {}", bound.value)));
        }
        errors
    }

    fn items(
        &self,
        node: Node<'_>,
        demands: &Constraints,
        items: &[Value],
        old: Option<&Value>,
        name: &str,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(schema) = node.items() {
            let previous_items = PreviousItems::of(node, old);
            for (i, item) in items.iter().enumerate() {
                let old = previous_items.find(item);
                outcome.merge(self.run(schema, item, old, &format!("{name}[{i}]")));
            }
        }
        let count = items.len() as u64;
        if let Some(min) = demands.min_items.filter(|min| count < *min) {
            outcome.add(self.invalid(name, count, &format!("should have at least {min} items")));
        }
        if let Some(max) = demands.max_items.filter(|max| count > *max) {
            outcome.add(FieldError::too_many(self.field(name), count, max));
        }
        let repeated = || items.len() != items.iter().collect::<HashSet<_>>().len();
        if demands.unique_items && repeated() {
            outcome.add(self.invalid(name, "", "shouldn't contain duplicates"));
        }
        outcome.looked_at += 2;
        outcome
    }

    fn fields(&self, node: Node<'_>, demands: &Constraints, value: &Value, old: Option<&Value>, name: &str) -> Outcome {
        let mut outcome = Outcome::default();
        let Value::Object(fields) = value else { return outcome };
        let count = fields.len() as u64;
        if let Some(min) = demands.min_properties.filter(|min| count < *min) {
            outcome.add(self.invalid(name, count, &format!("should have at least {min} properties")));
        }
        if let Some(max) = demands.max_properties.filter(|max| count > *max) {
            outcome.add(FieldError::too_many(self.field(name), count, max));
        }
        let join = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}.{inner}") };
        for (inner, value) in fields {
            let demanded = demands.metadata.filter(|_| inner == "metadata").map(|id| node.at(id));
            if let Some(schema) = demanded.or_else(|| node.field(inner)) {
                let old = old.and_then(|old| old.get(inner));
                outcome.merge(self.run(schema, value, old, &join(inner)));
            }
        }
        for inner in demands.required.iter().filter(|inner| !fields.contains_key(&***inner)) {
            outcome.add(FieldError::required(self.field(&join(inner)), ""));
        }
        outcome
    }
}

fn too_long(field: String, pattern: &Pattern, text: &str) -> FieldError {
    let detail = format!("too long to be matched with its pattern '{}' ({} bytes)", pattern.as_str(), text.len());
    FieldError { error_type: ErrorType::TooLong, field, value: None, detail }
}

/// Returns the first outcome without errors, or the failed outcome with the most checked constraints.
fn first_valid(outcomes: impl Iterator<Item = Outcome>) -> Result<Outcome, Outcome> {
    let mut best: Option<Outcome> = None;
    for outcome in outcomes {
        if outcome.errors.is_empty() {
            return Ok(outcome);
        }
        if best.as_ref().is_none_or(|best| outcome.looked_at > best.looked_at) {
            best = Some(outcome);
        }
    }
    Err(best.unwrap_or_default())
}

/// Returns true if `more` exceeds `less`, or equals it if the limit is exclusive.
fn beyond(more: &Number, less: &Number, bound: &Bound) -> bool {
    match (more.as_i64(), less.as_i64()) {
        (Some(more), Some(less)) => more > less || bound.exclusive && more == less,
        _ => {
            let (more, less) = (more.as_f64().unwrap_or_default(), less.as_f64().unwrap_or_default());
            more > less || bound.exclusive && more >= less
        }
    }
}

fn is_multiple(number: &Number, factor: &Number) -> bool {
    if let (Some(n), Some(factor)) = (number.as_i64(), factor.as_i64()) {
        return factor != 0 && n % factor == 0;
    }
    let (n, factor) = (number.as_f64().unwrap_or_default(), factor.as_f64().unwrap_or_default());
    let ratio = if factor < 1.0 { 1.0 / factor * n } else { n / factor };
    (ratio - ratio.round()).abs() < 1e-9
}

/// The items of an old list by their keys, to find the previous state of new items.
pub(crate) struct PreviousItems<'s, 'v> {
    keys: &'s [Box<str>],
    items: HashMap<Vec<Option<&'v Value>>, &'v Value>,
}

impl<'s, 'v> PreviousItems<'s, 'v> {
    pub(crate) fn of(node: Node<'s>, old: Option<&'v Value>) -> Self {
        let keys = match &node.get().shape {
            Shape::List(list) => match &list.kind {
                ListKind::Map(keys) => &keys[..],
                ListKind::Atomic | ListKind::Set => &[],
            },
            _ => &[],
        };
        let old = old.and_then(Value::as_array).filter(|_| !keys.is_empty());
        let mut items = HashMap::new();
        for item in old.into_iter().flatten() {
            items.entry(identity(keys, item)).or_insert(item);
        }
        Self { keys, items }
    }

    /// Returns the previous state of an item.
    pub(crate) fn find(&self, item: &'v Value) -> Option<&'v Value> {
        if self.items.is_empty() { None } else { self.items.get(&identity(self.keys, item)).copied() }
    }
}

fn identity<'v>(keys: &[Box<str>], item: &'v Value) -> Vec<Option<&'v Value>> {
    keys.iter().map(|key| item.get(&**key)).collect()
}

/// Finds duplicate items in lists of type set or map. Duplicates in metadata are valid, because its list types only
/// define merging.
pub fn validate_lists(node: Node<'_>, value: &Value, path: &Path<'_>) -> Vec<FieldError> {
    validate_lists_of(node, value, path, true)
}

fn validate_lists_of(node: Node<'_>, value: &Value, path: &Path<'_>, is_object: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match value {
        Value::Object(fields) => {
            let map = matches!(node.get().shape, Shape::Map(_));
            let has_metadata = is_object || node.embedded;
            for (name, value) in fields.iter().filter(|(name, _)| !has_metadata || *name != "metadata") {
                let Some(inner) = node.field(name) else { continue };
                let path = if map { path.key(name) } else { path.field(name) };
                errors.extend(validate_lists_of(inner, value, &path, false));
            }
        }
        Value::Array(items) => {
            if let Shape::List(list) = &node.get().shape {
                errors.extend(repeated(&list.kind, items, path));
            }
            if let Some(inner) = node.items() {
                for (i, item) in items.iter().enumerate() {
                    errors.extend(validate_lists_of(inner, item, &path.index(i), false));
                }
            }
        }
        _ => {}
    }
    errors
}

/// Returns true if a number with a decimal point is an integer.
fn is_integral(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn repeated(kind: &ListKind, items: &[Value], path: &Path<'_>) -> Vec<FieldError> {
    let identity = |item: &Value| match kind {
        ListKind::Map(keys) => {
            let known = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
            Value::Object(known.collect())
        }
        ListKind::Atomic | ListKind::Set => item.clone(),
    };
    if *kind == ListKind::Atomic {
        return Vec::new();
    }
    if let ListKind::Map(_) = kind
        && let Some((i, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null())
    {
        let detail = "must be an object for an array of list-type map";
        return vec![FieldError::invalid(path.index(i), item.clone(), detail)];
    }
    let mut seen = BTreeSet::new();
    let mut reported = BTreeSet::new();
    let mut errors = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let identity = identity(item);
        let text = identity.to_string();
        if !seen.insert(text.clone()) && reported.insert(text) {
            errors.push(FieldError::duplicate(path.index(i), identity));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi;
    use serde_json::json;

    fn errors(schema: Value, value: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}});
        let root = openapi::read(Some(&schema));
        let object = json!({"spec": {"x": value}});
        validate(root.node(), &object, None, "").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn texts_too_long_for_a_pattern_are_rejected_despite_alternatives() {
        let schema = json!({"type": "string", "pattern": "((?:aaaaaaaaaa){1,100}){1,10}b"});
        let text = json!("a".repeat(70_000));
        let expected = [
            "spec.x: Too long: too long to be matched with its pattern '((?:aaaaaaaaaa){1,100}){1,10}b' (70000 bytes)",
        ];
        assert_eq!(errors(schema.clone(), text.clone()), expected);
        assert_eq!(errors(json!({"type": "string", "not": schema}), text.clone()).last().unwrap(), expected[0]);
        assert_eq!(errors(json!({"type": "string", "anyOf": [schema, {"type": "string"}]}), text), expected);
        let list = json!({"type": "array", "items": schema});
        let found = errors(list, json!(vec!["a".repeat(100); 10_000]));
        let rejected: Vec<&String> = found.iter().filter(|error| error.contains("too long to be matched")).collect();
        assert!(rejected.len() == 1 && rejected[0].starts_with("spec.x["), "{rejected:?}");
    }

    #[test]
    fn violations_have_kubernetes_messages() {
        assert_eq!(
            errors(json!({"type": "integer"}), json!("a")),
            [r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#]
        );
        assert_eq!(
            errors(json!({"type": "integer", "format": "int32"}), json!(true)),
            [r#"spec.x: Invalid value: "": spec.x in body must be of type int32: """#]
        );
        assert_eq!(errors(json!({"type": "integer", "format": "int32"}), json!(2.0)), [""; 0]);
        assert_eq!(
            errors(json!({"type": "string", "format": "date"}), json!(1)),
            [r#"spec.x: Invalid value: "int64": spec.x in body must be of type date: "int64""#]
        );
        assert_eq!(
            errors(json!({"type": "integer", "maximum": 4}), json!(5)),
            ["spec.x: Invalid value: 5: spec.x in body should be less than or equal to 4"]
        );
        assert_eq!(
            errors(json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": true}), json!(0.5)),
            ["spec.x: Invalid value: 0.5: spec.x in body should be greater than 0.5"]
        );
        assert_eq!(
            errors(json!({"type": "integer", "multipleOf": 5}), json!(7)),
            ["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"]
        );
        assert_eq!(
            errors(json!({"type": "integer", "enum": [1, 5]}), json!(2)),
            [r#"spec.x: Unsupported value: 2: supported values: "1", "5""#]
        );
        assert_eq!(
            errors(json!({"type": "string", "maxLength": 3}), json!("abcd")),
            ["spec.x: Too long: may not be more than 3 bytes"]
        );
        assert_eq!(
            errors(json!({"type": "string", "minLength": 2}), json!("é")),
            [r#"spec.x: Invalid value: "é": spec.x in body should be at least 2 chars long"#]
        );
        assert_eq!(
            errors(json!({"type": "string", "pattern": "^a$"}), json!("b")),
            [r#"spec.x: Invalid value: "b": spec.x in body should match '^a$'"#]
        );
        assert_eq!(
            errors(json!({"type": "string", "format": "ipv4"}), json!("b")),
            [r#"spec.x: Invalid value: "b": spec.x in body must be of type ipv4: "b""#]
        );
        assert_eq!(
            errors(json!({"type": "array", "maxItems": 1, "items": {"type": "integer"}}), json!([1, 2])),
            ["spec.x: Too many: 2: must have at most 1 item"]
        );
        assert_eq!(
            errors(json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}), json!({})),
            ["spec.x.a: Required value"]
        );
        assert_eq!(
            errors(json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"k": 1})),
            [r#"spec.x.k: Invalid value: "integer": spec.x.k in body must be of type string: "integer""#]
        );
    }

    #[test]
    fn one_of_reports_the_best_failed_alternative() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
        assert_eq!(errors(schema.clone(), json!({"a": "x"})), Vec::<String>::new());
        assert_eq!(
            errors(schema.clone(), json!({})),
            [
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid"#,
                "spec.x.a: Required value"
            ]
        );
        assert_eq!(
            errors(schema, json!({"a": "x", "b": "y"})),
            [
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
            ]
        );
    }

    #[test]
    fn updates_skip_unchanged_fields() {
        let root = openapi::read(Some(
            &json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 1}, "b": {"type": "string"}}}),
        ));
        let (old, new) = (json!({"a": "long", "b": "x"}), json!({"a": "long", "b": "y"}));
        assert!(validate(root.node(), &new, Some(&old), "").is_empty());
        assert_eq!(validate(root.node(), &new, None, "").len(), 1);
        assert_eq!(validate(root.node(), &json!({"a": "longer"}), Some(&old), "").len(), 1);
    }

    #[test]
    fn duplicate_items_of_sets_and_maps_are_rejected() {
        let root = openapi::read(Some(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}})));
        let value = json!({"set": ["a", "b", "a", "a"], "map": [{"k": "x"}, {"k": "x", "v": 1}]});
        let errors: Vec<String> =
            validate_lists(root.node(), &value, &Path::ROOT).iter().map(ToString::to_string).collect();
        assert_eq!(errors, [r#"map[1]: Duplicate value: {"k":"x"}"#, r#"set[2]: Duplicate value: "a""#]);
    }
}
