//! Validates a value against a schema, and returns all violations.

use super::Draft;
use super::text::{count, display, equal, number, quote, quoted, type_of};
use crate::functions::regexes;
use crate::message;
use flyball_core::pointer;
use regex::bytes::Regex;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Nesting limit of schemas.
const DEPTH: usize = 500;
/// The state of a validation.
const STEPS: usize = 5_000_000;

/// Estimated size of a violation in addition to its message.
const VIOLATION_SIZE: usize = 64;

/// The position of a value: that of its parent, and its key or index. Violations share it, since a key may be long.
type Location = Option<Rc<Step>>;

#[derive(Debug)]
struct Step {
    parent: Location,
    token: String,
}

/// Returns the JSON pointer of a location.
fn pointer(location: &Location) -> String {
    let (mut tokens, mut next) = (Vec::new(), location);
    while let Some(step) = next {
        tokens.push(step.token.as_str());
        next = &step.parent;
    }
    tokens.iter().rev().map(|token| format!("/{}", pointer::escape(token))).collect()
}

/// A violation with its position.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    location: Location,
    message: String,
    /// A reference, which is omitted if it has a single cause.
    is_reference: bool,
    /// Several violations at one position, without a common keyword.
    is_group: bool,
    causes: Vec<Violation>,
}

impl Violation {
    /// Formats it with its causes below.
    pub(super) fn show(&self, out: &mut String, depth: usize) {
        let mut inner = depth;
        if message::is_beyond_limit(out.len()) {
            return;
        }
        if !(self.is_reference && self.causes.len() == 1) {
            let location = quote(&pointer(&self.location));
            out.push_str(&format!("\n{}- at {location}: {}", "  ".repeat(depth), self.message));
            inner += 1;
        }
        self.causes.iter().for_each(|cause| cause.show(out, inner));
    }
}

/// Parts of a value that were evaluated, for `unevaluatedProperties`.
#[derive(Default, Clone)]
struct EvaluatedParts {
    properties: BTreeSet<String>,
    items: BTreeSet<usize>,
}

pub(super) struct Checker<'s> {
    root: &'s Value,
    draft: Draft,
    depth: usize,
    steps: usize,
    /// The reason why the schema itself is invalid.
    broken: Option<String>,
    /// The size of all violations. Beyond the limit of messages, one violation per value is enough.
    violation_bytes: usize,
    patterns: BTreeMap<&'s str, Regex>,
}

impl<'s> Checker<'s> {
    pub(super) fn new(root: &'s Value, draft: Draft) -> Self {
        Self { root, draft, depth: 0, steps: 0, broken: None, violation_bytes: 0, patterns: BTreeMap::new() }
    }

    /// Returns all violations of a value.
    ///
    /// # Errors
    ///
    /// Fails if the schema has an unresolvable reference or infinite recursion.
    pub(super) fn check(mut self, value: &Value) -> Result<Vec<Violation>, String> {
        let failure = self.value(self.root, value, &None).0;
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        Ok(match failure {
            None => Vec::new(),
            Some(group) if group.is_group => group.causes,
            Some(one) => vec![one],
        })
    }

    fn value(&mut self, schema: &'s Value, value: &Value, location: &Location) -> (Option<Violation>, EvaluatedParts) {
        if self.broken.is_some() {
            return (None, EvaluatedParts::default());
        }
        self.steps += 1;
        if self.depth >= DEPTH || self.steps > STEPS {
            self.broken
                .get_or_insert_with(|| format!("the schema is nested deeper than {DEPTH}, or recurses infinitely"));
            return (None, EvaluatedParts::default());
        }
        self.depth += 1;
        let result = stacker::maybe_grow(128 << 10, 1 << 20, || {
            let mut at =
                Position { checker: self, location, failures: Vec::new(), evaluation: EvaluatedParts::default() };
            at.schema(schema, value);
            let (failures, evaluation) = (at.failures, at.evaluation);
            (grouped(failures, location), evaluation)
        });
        self.depth -= 1;
        result
    }

    /// Resolves a reference: a pointer, an anchor or an identifier within the document.
    fn resolve(&self, reference: &str) -> Option<&'s Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let mut found = self.root;
        if !base.is_empty() && self.root.get("$id").and_then(Value::as_str) != Some(base) {
            let ends = |id: &str| id == base || id.ends_with(&format!("/{base}"));
            found = find(self.root, &|schema| schema.get("$id").and_then(Value::as_str).is_some_and(ends), DEPTH)?;
        }
        if fragment.is_empty() {
            return Some(found);
        }
        if fragment.starts_with('/') {
            return found.pointer(&fragment.replace("%25", "%").replace("%22", "\""));
        }
        let is = |schema: &Value, key: &str, name: &str| schema.get(key).and_then(Value::as_str) == Some(name);
        let plain = format!("#{fragment}");
        find(
            found,
            &|schema| {
                is(schema, "$anchor", fragment)
                    || is(schema, "$dynamicAnchor", fragment)
                    || is(schema, "$id", &plain)
                    || is(schema, "id", &plain)
            },
            DEPTH,
        )
    }
}

fn find<'s>(value: &'s Value, is: &dyn Fn(&Value) -> bool, depth: usize) -> Option<&'s Value> {
    if is(value) {
        return Some(value);
    }
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Object(fields) => fields.values().find_map(|inner| find(inner, is, depth)),
        Value::Array(items) => items.iter().find_map(|inner| find(inner, is, depth)),
        _ => None,
    }
}

fn grouped(mut failures: Vec<Violation>, location: &Location) -> Option<Violation> {
    match failures.len() {
        0 | 1 => failures.pop(),
        _ => Some(Violation {
            location: location.clone(),
            message: "validation failed".to_owned(),
            is_reference: false,
            is_group: true,
            causes: failures,
        }),
    }
}

/// A value at a position during validation.
struct Position<'c, 's> {
    checker: &'c mut Checker<'s>,
    location: &'c Location,
    failures: Vec<Violation>,
    evaluation: EvaluatedParts,
}

impl<'s> Position<'_, 's> {
    fn fail(&mut self, message: String) {
        self.fail_with(message, Vec::new());
    }

    fn fail_with(&mut self, message: String, causes: Vec<Violation>) {
        let message = message::write(message);
        let bytes = &mut self.checker.violation_bytes;
        *bytes = bytes.saturating_add(message.len() + VIOLATION_SIZE);
        let location = self.location.clone();
        self.add(Some(Violation { location, message, is_reference: false, is_group: false, causes }));
    }

    /// Adds a violation, unless there are too many.
    fn add(&mut self, failure: Option<Violation>) {
        if self.failures.is_empty() || !message::is_beyond_limit(self.checker.violation_bytes) {
            self.failures.extend(failure);
        }
    }

    fn schema(&mut self, schema: &'s Value, value: &Value) {
        let fields = match schema {
            Value::Bool(true) => return,
            Value::Bool(false) => return self.fail("false schema".to_owned()),
            Value::Object(fields) => fields,
            _ => return,
        };
        let is_old = self.checker.draft < Draft::V2019;
        if let (true, Some(reference)) = (is_old, fields.get("$ref").and_then(Value::as_str)) {
            // Before draft 2019-09, `$ref` disables its siblings.
            return self.reference(reference, value);
        }
        if !self.constants(fields, value) {
            return;
        }
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(reference) = fields.get(keyword).and_then(Value::as_str) {
                self.reference(reference, value);
            }
        }
        match value {
            Value::Object(object) => self.object(fields, object),
            Value::Array(items) => self.array(fields, items),
            Value::String(text) => self.string(fields, text),
            Value::Number(value) => self.number(fields, value.as_f64().unwrap_or(0.0)),
            _ => {}
        }
        self.conditions(fields, value);
        self.unevaluated(fields, value);
    }

    /// Type, constant, enumeration and format: if one of them is violated, the other keywords are skipped.
    fn constants(&mut self, fields: &'s Map<String, Value>, value: &Value) -> bool {
        let before = self.failures.len();
        if let Some(expected) = fields.get("type") {
            const ORDER: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
            let mut types: Vec<&str> = match expected {
                Value::String(one) => vec![one],
                Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            types.sort_by_key(|name| ORDER.iter().position(|known| known == name));
            let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
            let fits = types.iter().any(|name| *name == type_of(value) || (*name == "integer" && is_whole));
            if !fits && !types.is_empty() {
                self.fail(format!("got {}, want {}", type_of(value), types.join(" or ")));
                return false;
            }
        }
        if let Some(expected) = fields.get("const")
            && !equal(value, expected)
        {
            self.fail(match expected {
                Value::Array(_) | Value::Object(_) => "'const' failed".to_owned(),
                simple => format!("value must be {}", display(simple)),
            });
            return false;
        }
        if let Some(Value::Array(expected)) = fields.get("enum")
            && !expected.iter().any(|item| equal(value, item))
        {
            let is_simple = expected.iter().all(|item| !item.is_array() && !item.is_object());
            let values: Vec<String> = expected.iter().map(display).collect();
            self.fail(match (is_simple, values.as_slice()) {
                (true, [one]) => format!("value must be {one}"),
                (true, several) => format!("value must be one of {}", several.join(", ")),
                _ => "'enum' failed".to_owned(),
            });
            return false;
        }
        self.failures.len() == before
    }

    fn reference(&mut self, reference: &str, value: &Value) {
        if self.checker.broken.is_some() {
            return;
        }
        let Some(schema) = self.checker.resolve(reference) else {
            let message = format!(
                "reference {} in values.schema.json cannot be resolved; schemas are not fetched",
                quote(reference)
            );
            self.checker.broken.get_or_insert(message);
            return;
        };
        let (failure, evaluation) = self.checker.value(schema, value, self.location);
        self.merge(evaluation, failure.is_none());
        if let Some(failure) = failure {
            let causes = if failure.is_group { failure.causes } else { vec![failure] };
            let message = "validation failed".to_owned();
            let location = self.location.clone();
            self.add(Some(Violation { location, message, is_reference: true, is_group: false, causes }));
        }
    }

    fn merge(&mut self, evaluation: EvaluatedParts, is_good: bool) {
        if is_good {
            self.evaluation.properties.extend(evaluation.properties);
            self.evaluation.items.extend(evaluation.items);
        }
    }

    /// Validates the same value against another schema.
    fn same(&mut self, schema: &'s Value, value: &Value) -> Option<Violation> {
        let (failure, evaluation) = self.checker.value(schema, value, self.location);
        self.merge(evaluation, failure.is_none());
        failure
    }

    /// Validates a part of the value.
    fn part(&mut self, schema: &'s Value, value: &Value, token: &str) -> Option<Violation> {
        let location = Some(Rc::new(Step { parent: self.location.clone(), token: token.to_owned() }));
        self.checker.value(schema, value, &location).0
    }

    fn bound(&mut self, fields: &Map<String, Value>, keyword: &str, got: usize, is_good: fn(usize, usize) -> bool) {
        let limit = fields.get(keyword).and_then(Value::as_f64);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as casts saturate")]
        if let Some(limit) = limit.map(|limit| limit as usize)
            && !is_good(got, limit)
        {
            self.fail(format!("{keyword}: got {}, want {}", count(got), count(limit)));
        }
    }

    fn object(&mut self, fields: &'s Map<String, Value>, object: &Map<String, Value>) {
        self.bound(fields, "minProperties", object.len(), |got, want| got >= want);
        self.bound(fields, "maxProperties", object.len(), |got, want| got <= want);
        let missing = |names: &Value| -> Vec<String> {
            let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
            names.filter(|name| !object.contains_key(*name)).map(str::to_owned).collect()
        };
        if let Some(required) = fields.get("required") {
            match missing(required).as_slice() {
                [] => {}
                [one] => self.fail(format!("missing property {}", quote(one))),
                several => self.fail(format!("missing properties {}", quoted(several))),
            }
        }
        for keyword in ["dependencies", "dependentSchemas", "dependentRequired"] {
            let Some(Value::Object(rules)) = fields.get(keyword) else { continue };
            for (name, rule) in rules.iter().filter(|(name, _)| object.contains_key(*name)) {
                if rule.is_array() {
                    let missing = missing(rule);
                    if !missing.is_empty() {
                        self.fail(format!("properties {} required, if {} exists", quoted(&missing), quote(name)));
                    }
                } else {
                    let failure = self.same(rule, &Value::Object(object.clone()));
                    self.add(failure);
                }
            }
        }
        let properties = fields.get("properties").and_then(Value::as_object);
        let patterns = fields.get("patternProperties").and_then(Value::as_object);
        let mut extra = Vec::new();
        for (name, value) in object {
            let mut evaluated = false;
            if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                evaluated = true;
                let failure = self.part(schema, value, name);
                self.add(failure);
            }
            for (pattern, schema) in patterns.into_iter().flatten() {
                if self.matches(pattern, name) {
                    evaluated = true;
                    let failure = self.part(schema, value, name);
                    self.add(failure);
                }
            }
            match fields.get("additionalProperties").filter(|_| !evaluated) {
                None => {}
                Some(Value::Bool(false)) => {
                    evaluated = true;
                    extra.push(name.clone());
                }
                Some(schema) => {
                    evaluated = true;
                    let failure = self.part(schema, value, name);
                    self.add(failure);
                }
            }
            if evaluated {
                self.evaluation.properties.insert(name.clone());
            }
        }
        if !extra.is_empty() {
            self.fail(format!("additional properties {} not allowed", quoted(&extra)));
        }
        if let Some(schema) = fields.get("propertyNames") {
            for name in object.keys() {
                let failure = self.checker.value(schema, &Value::from(name.as_str()), self.location).0;
                if let Some(failure) = failure {
                    let causes = if failure.is_group { failure.causes } else { vec![failure] };
                    self.fail_with(format!("invalid propertyName {}", quote(name)), causes);
                }
            }
        }
    }

    fn matches(&mut self, pattern: &'s str, text: &str) -> bool {
        if let Some(regex) = self.checker.patterns.get(pattern) {
            return regex.is_match(text.as_bytes());
        }
        match regexes::pattern(pattern) {
            Ok(regex) => {
                let is_match = regex.is_match(text.as_bytes());
                self.checker.patterns.insert(pattern, regex);
                is_match
            }
            Err(message) => {
                self.checker.broken.get_or_insert(message);
                true
            }
        }
    }

    fn array(&mut self, fields: &'s Map<String, Value>, items: &[Value]) {
        self.bound(fields, "minItems", items.len(), |got, want| got >= want);
        self.bound(fields, "maxItems", items.len(), |got, want| got <= want);
        if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
            // Only values with equal hashes are compared.
            let mut prints: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            let same = (0..items.len()).find_map(|at| {
                let others = prints.entry(crate::values::floats(items[at].clone()).to_string()).or_default();
                let other = others.iter().copied().find(|other| equal(&items[*other], &items[at]));
                others.push(at);
                Some((other?, at))
            });
            if let Some((first, second)) = same {
                self.fail(format!("items at {} and {} are equal", count(first), count(second)));
            }
        }
        let prefix = match (fields.get("prefixItems"), fields.get("items")) {
            (Some(Value::Array(schemas)), _) | (_, Some(Value::Array(schemas))) => schemas.as_slice(),
            _ => &[],
        };
        let rest = match fields.get("items") {
            Some(Value::Array(_)) => fields.get("additionalItems"),
            other => other,
        };
        if let (Some(Value::Bool(false)), Some(Value::Array(_)), true) =
            (rest, fields.get("items"), items.len() > prefix.len())
        {
            self.fail(format!("last {} additionalItem(s) not allowed", count(items.len() - prefix.len())));
            return;
        }
        for (at, item) in items.iter().enumerate() {
            if let Some(schema) = prefix.get(at).or(rest) {
                self.evaluation.items.insert(at);
                let failure = self.part(schema, item, &at.to_string());
                self.add(failure);
            }
        }
        if let Some(schema) = fields.get("contains") {
            self.contains(fields, schema, items);
        }
    }

    fn contains(&mut self, fields: &'s Map<String, Value>, schema: &'s Value, items: &[Value]) {
        let (mut failures, mut matched) = (Vec::new(), Vec::new());
        for (at, item) in items.iter().enumerate() {
            match self.part(schema, item, &at.to_string()) {
                Some(_) if !failures.is_empty() && message::is_beyond_limit(self.checker.violation_bytes) => {}
                Some(failure) => failures.push(failure),
                None => {
                    matched.push(at);
                    self.evaluation.items.insert(at);
                }
            }
        }
        let bound = |keyword: &str| fields.get(keyword).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let positions = || matched.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let message = |word: &str, limit: usize| {
            let (limit, got) = (count(limit), count(matched.len()));
            format!(
                "{word} {limit} items required to match contains schema, but matched {got} items at {}",
                positions()
            )
        };
        match bound("minContains") {
            Some(least) if matched.len() < least => {
                let text = match matched.is_empty() {
                    true => format!("min {} items required to match contains schema, but none matched", count(least)),
                    false => message("min", least),
                };
                self.fail_with(text, failures);
            }
            None if matched.is_empty() => self.fail_with("no items match contains schema".to_owned(), failures),
            _ => {}
        }
        if let Some(most) = bound("maxContains").filter(|most| matched.len() > *most) {
            self.fail(message("max", most));
        }
    }

    fn string(&mut self, fields: &'s Map<String, Value>, text: &str) {
        let length = text.chars().count();
        self.bound(fields, "minLength", length, |got, want| got >= want);
        self.bound(fields, "maxLength", length, |got, want| got <= want);
        if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
            && !self.matches(pattern, text)
        {
            self.fail(format!("{} does not match pattern {}", quote(text), quote(pattern)));
        }
    }

    fn number(&mut self, fields: &'s Map<String, Value>, value: f64) {
        type Rule = fn(f64, f64) -> bool;
        let rules: [(&str, Rule); 4] = [
            ("minimum", |got, want| got >= want),
            ("maximum", |got, want| got <= want),
            ("exclusiveMinimum", |got, want| got > want),
            ("exclusiveMaximum", |got, want| got < want),
        ];
        for (keyword, is_good) in rules {
            if let Some(limit) = fields.get(keyword).and_then(Value::as_f64).filter(|limit| !is_good(value, *limit)) {
                self.fail(format!("{keyword}: got {}, want {}", number(value), number(limit)));
            }
        }
        if let Some(limit) = fields.get("multipleOf").and_then(Value::as_f64)
            && (value / limit).fract() != 0.0
        {
            self.fail(format!("multipleOf: got {}, want {}", number(value), number(limit)));
        }
    }

    fn conditions(&mut self, fields: &'s Map<String, Value>, value: &Value) {
        if let Some(schema) = fields.get("not")
            && self.checker.value(schema, value, self.location).0.is_none()
        {
            self.fail("'not' failed".to_owned());
        }
        let several = |keyword: &str| fields.get(keyword).and_then(Value::as_array);
        if let Some(schemas) = several("allOf") {
            let failures: Vec<Violation> = schemas.iter().filter_map(|schema| self.same(schema, value)).collect();
            if !failures.is_empty() {
                self.fail_with("'allOf' failed".to_owned(), failures);
            }
        }
        if let Some(schemas) = several("anyOf") {
            let failures: Vec<Violation> = schemas.iter().filter_map(|schema| self.same(schema, value)).collect();
            if failures.len() == schemas.len() && !schemas.is_empty() {
                self.fail_with("'anyOf' failed".to_owned(), failures);
            }
        }
        if let Some(schemas) = several("oneOf").filter(|schemas| !schemas.is_empty()) {
            let (mut failures, mut matched) = (Vec::new(), Vec::new());
            for (at, schema) in schemas.iter().enumerate() {
                match self.same(schema, value) {
                    Some(failure) => failures.push(failure),
                    None => matched.push(at),
                }
            }
            match matched.as_slice() {
                [] => self.fail_with("'oneOf' failed, none matched".to_owned(), failures),
                [_] => {}
                [first, second, ..] => {
                    self.fail(format!("'oneOf' failed, subschemas {first}, {second} matched"));
                }
            }
        }
        if let Some(schema) = fields.get("if") {
            let branch = if self.same(schema, value).is_none() { "then" } else { "else" };
            if let Some(schema) = fields.get(branch) {
                let failure = self.same(schema, value);
                self.add(failure);
            }
        }
    }

    fn unevaluated(&mut self, fields: &'s Map<String, Value>, value: &Value) {
        if let (Some(schema), Value::Object(object)) = (fields.get("unevaluatedProperties"), value) {
            for (name, value) in
                object.iter().filter(|(name, _)| !self.evaluation.properties.contains(*name)).collect::<Vec<_>>()
            {
                let failure = self.part(schema, value, name);
                self.add(failure);
                self.evaluation.properties.insert(name.clone());
            }
        }
        if let (Some(schema), Value::Array(items)) = (fields.get("unevaluatedItems"), value) {
            for (at, item) in items.iter().enumerate() {
                if self.evaluation.items.insert(at) {
                    let failure = self.part(schema, item, &at.to_string());
                    self.add(failure);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_schema_ends_the_check() {
        let root = json!({"$ref": "#", "allOf": [{"$ref": "#/nowhere"}, {"$ref": "#"}, {"$ref": "#"}]});
        let mut checker = Checker::new(&root, Draft::V2020);
        checker.value(&root, &json!({}), &None);
        assert!(checker.broken.is_some());
        assert!(checker.steps <= 2 * DEPTH, "{} steps", checker.steps);
    }

    /// The position of each violation names the long key.
    #[test]
    fn many_violations_below_a_long_key_are_bounded() {
        let schema = json!({"additionalProperties": {"items": {"type": "string", "minLength": 2}}});
        let (key, items) = ("k".repeat(100_000), vec![json!("a"); 100_000]);
        let value = json!({ key: items, "other": [1] });
        let _limit = message::Scope::new(64 << 10);
        let problems = Checker::new(&schema, Draft::V2020).check(&value).unwrap();
        fn count(problems: &[Violation]) -> usize {
            problems.iter().map(|problem| 1 + count(&problem.causes)).sum()
        }
        assert!((100..2_000).contains(&count(&problems)), "{} violations", count(&problems));
        let shown = crate::chart::schema::show(&problems);
        assert!(shown.contains("minLength: got 1, want 2") && shown.len() < 65 << 10, "{} bytes", shown.len());
    }
}
