//! Validation of CEL rules in CRD schemas: invalid and too expensive rules are rejected.
//!
//! See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>.

use super::schema::{Position, Schema, flag, has, inner, text};
use flyball_core::field::{BadValue, FieldError, Path, go_json};
use flyball_schema::cel;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum cost of an expression.
const MAX_COST: u64 = 10_000_000;
/// Maximum cost of all expressions of a schema.
const MAX_TOTAL: u64 = 100_000_000;
/// Number of the most expensive expressions that the error of the total cost lists.
const NAMED: usize = 4;

/// Finds invalid rules, and rules that are too expensive individually or in total.
///
/// `broken` are the errors of the schema: rules at or above such a position are not compiled.
pub(super) fn validate(root: &Schema, path: &Path<'_>, broken: &[FieldError]) -> Vec<FieldError> {
    let broken = broken.iter().map(|error| error.field.clone()).collect();
    let mut rules = Rules { broken, ..Rules::default() };
    rules.visit(root, path, &SchemaPosition { is_root: true, barrier: None, cardinality: Some(1) });
    let Rules { mut errors, total, dearest, .. } = rules;
    if total > MAX_TOTAL {
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.extend(dearest.into_iter().map(|(_, path)| FieldError::forbidden(path, why)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, excess(what, total, MAX_TOTAL)));
    }
    errors
}

/// Formats the factor by which a cost exceeds its limit.
fn excess(what: &str, cost: u64, limit: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}")
    } else {
        format!("{factor:.1}")
    };
    format!(
        "{what} exceeds budget by factor of {factor}x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// The position of a schema within the schema of the CRD.
struct SchemaPosition {
    is_root: bool,
    /// The nearest ancestor whose old and new items cannot be correlated.
    barrier: Option<String>,
    /// Maximum number of values, if it is bounded.
    cardinality: Option<u64>,
}

#[derive(Default)]
struct Rules {
    errors: Vec<FieldError>,
    /// The positions of errors in a schema.
    broken: BTreeSet<String>,
    total: u64,
    /// The most expensive expressions in descending order.
    dearest: Vec<(u64, String)>,
}

impl Rules {
    fn visit(&mut self, schema: &Schema, path: &Path<'_>, at: &SchemaPosition) {
        let lists_correlate = text(schema, "x-kubernetes-list-type") == "map";
        let maps_correlate = text(schema, "x-kubernetes-map-type") != "atomic";
        let each = most(schema);
        inner(schema, path, &mut |schema, below, place| {
            if place == Position::Values {
                return;
            }
            let correlates = if place == Position::Items { lists_correlate } else { maps_correlate };
            let barrier = at.barrier.clone().or_else(|| (!correlates).then(|| path.to_string()));
            let cardinality = at.cardinality.zip(each).map(|(all, each)| all.saturating_mul(each));
            self.visit(schema, below, &SchemaPosition { is_root: false, barrier, cardinality });
        });
        let place = path.to_string();
        if self.broken.range(place.clone()..).next().is_some_and(|field| field.starts_with(&place)) {
            return;
        }
        let list = path.field("x-kubernetes-validations");
        // At the root and in embedded objects, rules can access `apiVersion`, `kind` and names.
        let whole = at.is_root || flag(schema, "x-kubernetes-embedded-resource");
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        for (i, rule) in rules.enumerate() {
            let Some(rule) = rule.as_object() else { continue };
            let path = list.index(i);
            let costs = check_rule(rule, schema, whole, &path, &mut self.errors);
            let times = at.cardinality.unwrap_or_else(|| cel::cardinality(schema));
            if let Some(cost) = costs.rule {
                self.count("estimated rule cost", cost.saturating_mul(times), path.field("rule").to_string());
            }
            if let Some(cost) = costs.message {
                let at = path.field("messageExpression").to_string();
                self.count("estimated messageExpression cost", cost, at);
            }
            if let Some(uses_old) = costs.uses_old {
                self.errors.extend(check_old(rule, uses_old, &path, at.barrier.as_deref()));
            }
        }
    }

    fn count(&mut self, what: &str, cost: u64, path: String) {
        if cost > MAX_COST {
            self.errors.push(FieldError::forbidden(path.as_str(), excess(what, cost, MAX_COST)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= MAX_TOTAL / 100 {
            self.dearest.push((cost, path));
            self.dearest.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.dearest.truncate(NAMED);
        }
    }
}

/// Returns the maximum number of direct children of a value, if it is bounded.
fn most(schema: &Schema) -> Option<u64> {
    let bound = |field: &str| schema.get(field).and_then(Value::as_i64).map(|n| u64::try_from(n).unwrap_or_default());
    match text(schema, "type") {
        "object" if has(schema, "additionalProperties") => bound("maxProperties"),
        "array" => bound("maxItems"),
        _ => Some(1),
    }
}

/// The costs of the valid expressions of a rule.
#[derive(Default)]
struct Costs {
    rule: Option<u64>,
    message: Option<u64>,
    /// True if the rule uses the old value.
    uses_old: Option<bool>,
}

/// Finds malformed rules before rules are compiled.
pub(super) fn forms(schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let list = path.field("x-kubernetes-validations");
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
    for (i, rule) in rules.enumerate() {
        let Some(rule) = rule.as_object() else { continue };
        let path = list.index(i);
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        let message_expression = text(rule, "messageExpression");
        if expression.is_empty() {
            errors.push(FieldError::required(path.field("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(path.field("message"), message, "message must be non-empty if specified"));
        } else if message.trim().contains(['\n', '\r']) {
            errors.push(FieldError::invalid(path.field("message"), message, "must not contain line breaks"));
        } else if expression.contains(['\n', '\r']) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(path.field("message"), detail));
        }
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(path.field("messageExpression"), detail));
        }
        let reason = text(rule, "reason");
        if has(rule, "reason") && !REASONS.contains(&reason) {
            errors.push(FieldError::not_supported(path.field("reason"), reason, REASONS));
        }
        let field_path = text(rule, "fieldPath");
        let at = path.field("fieldPath");
        if !field_path.is_empty() && field_path.trim().is_empty() {
            errors.push(FieldError::invalid(at, field_path, "must be non-empty if specified"));
        }
        if field_path.contains(['\n', '\r']) {
            errors.push(FieldError::invalid(at, field_path, "must not contain line breaks"));
        }
        if !field_path.is_empty() && field_at(schema, field_path, BracketPolicy::Allowed).is_err() {
            errors.push(FieldError::invalid(at, field_path, "must be a valid path"));
        }
    }
}

fn check_rule(rule: &Schema, schema: &Schema, whole: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Costs {
    let mut costs = Costs::default();
    let expression = text(rule, "rule");
    let shown = || BadValue::Raw(print(rule));
    match cel::compile(expression) {
        Err(why) => errors.push(FieldError::invalid(path.field("rule"), shown(), format!("compilation failed: {why}"))),
        Ok(program) => {
            costs.uses_old = Some(program.references().has_variable("oldSelf"));
            match cel::check(expression, schema, whole, flag(rule, "optionalOldSelf")) {
                Err(why) => {
                    errors.push(FieldError::invalid(path.field("rule"), shown(), format!("compilation failed: {why}")))
                }
                Ok(found) if found.made.is("bool") || found.made.is_dyn() => costs.rule = Some(found.cost),
                Ok(_) => errors.push(FieldError::invalid(
                    path.field("rule"),
                    shown(),
                    "cel expression must evaluate to a bool",
                )),
            }
        }
    }
    let message_expression = text(rule, "messageExpression");
    if message_expression.is_empty() {
        return costs;
    }
    let checked = cel::check(message_expression, schema, whole, flag(rule, "optionalOldSelf"));
    let detail = match checked {
        Err(why) => format!("messageExpression compilation failed: {why}"),
        Ok(found) if found.made.is("string") || found.made.is_dyn() => {
            costs.message = Some(found.cost);
            return costs;
        }
        Ok(_) => "messageExpression must evaluate to a string".to_owned(),
    };
    errors.push(FieldError::invalid(path.field("messageExpression"), shown(), detail));
    costs
}

/// Validates the use of the old value in a rule.
fn check_old(rule: &Schema, uses_old: bool, path: &Path<'_>, barrier: Option<&str>) -> Option<FieldError> {
    if uses_old {
        let barrier = barrier?;
        let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {barrier}");
        return Some(FieldError::invalid(path.field("rule"), text(rule, "rule"), detail));
    }
    has(rule, "optionalOldSelf").then(|| {
        let given = flag(rule, "optionalOldSelf");
        let detail = "may not be set if oldSelf is not used in rule";
        FieldError::invalid(path.field("optionalOldSelf"), given, detail)
    })
}

/// True if a path may contain fields in brackets: `['a-b']`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BracketPolicy {
    Allowed,
    Forbidden,
}

/// Resolves a path such as `.spec.name` to its elements and schema; an error is the reason why there is no such field.
pub(super) fn field_at<'s>(
    schema: &'s Schema,
    path: &str,
    brackets: BracketPolicy,
) -> Result<(Vec<String>, &'s Schema), String> {
    let mut steps = Vec::new();
    let (mut at, mut rest) = (schema, path);
    while let Some(token) = next_token(&mut rest) {
        let step = match token {
            "[" if brackets == BracketPolicy::Forbidden => return Err("array notation is not allowed".into()),
            "[" => {
                let quoted = next_token(&mut rest).ok_or(UNEXPECTED_END)?;
                let inner = quoted.strip_prefix('\'').and_then(|quoted| quoted.strip_suffix('\''));
                unescape(inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?)?
            }
            "." => next_token(&mut rest).ok_or(UNEXPECTED_END)?.to_owned(),
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let inner = match at.get("properties").and_then(Value::as_object) {
            Some(properties) => properties.get(&step),
            None => at.get("additionalProperties"),
        };
        at = inner.and_then(Value::as_object).ok_or("does not refer to a valid field")?;
        if token == "[" {
            let close = next_token(&mut rest).ok_or(UNEXPECTED_END)?;
            if close != "]" {
                return Err(format!("expected ] but got {close}"));
            }
        }
        steps.push(step);
    }
    Ok((steps, at))
}

const UNEXPECTED_END: &str = "unexpected end of JSON path";

/// Returns the next token: a delimiter, a quoted string, or the characters up to the next delimiter.
fn next_token<'p>(rest: &mut &'p str) -> Option<&'p str> {
    let end = match rest.as_bytes() {
        [] => return None,
        [b'\'', ..] => {
            let bytes = rest.as_bytes();
            let close = (1..bytes.len()).find(|i| bytes[*i] == b'\'' && bytes[i - 1] != b'\\');
            close.map_or(rest.len(), |close| close + 1)
        }
        [b'.' | b'[' | b']', ..] => 1,
        _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
    };
    let (token, after) = rest.split_at(end);
    *rest = after;
    Some(token)
}

/// Decodes the escapes of a quoted name.
fn unescape(quoted: &str) -> Result<String, String> {
    let mut name = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        name.push(match escaped {
            None => c,
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(plain @ ('\'' | '\\')) => plain,
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
        });
    }
    Ok(name)
}

/// Formats a rule like Go's internal type.
fn print(rule: &Schema) -> String {
    let quoted = |field: &str| go_json(&Value::from(text(rule, field)));
    let json_or_null = |field: &str| rule.get(field).map_or_else(|| "null".to_owned(), go_json);
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        quoted("rule"),
        quoted("message"),
        quoted("messageExpression"),
        json_or_null("reason"),
        quoted("fieldPath"),
        json_or_null("optionalOldSelf"),
    )
}
