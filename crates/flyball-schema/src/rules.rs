//! Evaluation of the CEL rules of custom resources (`x-kubernetes-validations`).
//!
//! This module determines the evaluated rules, the values of their variables and their error messages; [`crate::cel`]
//! compiles and evaluates the expressions. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>.

mod value;

pub use value::to_cel;

use crate::cel::{BASE, Budget, Cel, Error, Rule};
use crate::schema::{Node, Shape};
use crate::validate::PreviousItems;
use flyball_core::field::{FieldError, Path};
use kube_cel::cel::Context;
use kube_cel::cel::objects::OptionalValue;
use serde_json::Value;
use std::sync::Arc;

/// The violations that rules find in a value.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Violations that reject the write.
    pub errors: Vec<FieldError>,
    /// Violations that become warnings, because the write does not change the value ("ratcheting", KEP-4008).
    pub tolerated: Vec<FieldError>,
}

/// The error of a rule.
enum Violation {
    /// The rule evaluates to false.
    NotTrue(FieldError),
    /// The rule cannot be evaluated.
    Broken(FieldError),
}

/// Evaluates the rules of a schema for a value and its descendants.
///
/// `unchanged` is true if a write changes only metadata, which rules cannot access.
pub fn validate(node: Node<'_>, value: &Value, old: Option<&Value>, unchanged: bool, path: &Path<'_>) -> Findings {
    let mut evaluator = RuleEvaluator { budget: Budget::of_rules(), findings: Findings::default() };
    evaluator.visit(node, value, PreviousValue { old, unchanged, parent_unchanged: unchanged }, path);
    evaluator.findings
}

/// The state of a value before a write.
#[derive(Clone, Copy)]
struct PreviousValue<'v> {
    old: Option<&'v Value>,
    /// The write does not change the value, or one of its ancestors.
    unchanged: bool,
    /// Like `unchanged`, for the parent of the value.
    parent_unchanged: bool,
}

impl<'v> PreviousValue<'v> {
    /// Returns the previous state of a part of the value.
    fn of_part(self, value: &Value, old: Option<&'v Value>) -> Self {
        let unchanged = self.unchanged || old == Some(value);
        Self { old, unchanged, parent_unchanged: self.unchanged }
    }
}

struct RuleEvaluator {
    budget: Budget,
    findings: Findings,
}

impl RuleEvaluator {
    fn visit(&mut self, node: Node<'_>, value: &Value, previous: PreviousValue<'_>, path: &Path<'_>) {
        let Some(demands) = node.get().constraints.as_deref().filter(|_| !value.is_null()) else { return };
        let old = previous.old.filter(|old| !old.is_null());
        if !demands.rules.is_empty() && self.budget.is_spent() {
            self.findings.errors.push(FieldError::invalid(path, kind_of(value), Error::OutOfBudget.to_string()));
            self.budget.stop();
        }
        for rule in &demands.rules {
            if self.budget.is_stopped() {
                return;
            }
            match run(rule, node, value, old, path, &self.budget) {
                None => {}
                Some(Violation::NotTrue(error)) if previous.unchanged && !rule.uses_old_self => {
                    self.findings.tolerated.push(error);
                }
                Some(Violation::NotTrue(error) | Violation::Broken(error)) => self.findings.errors.push(error),
            }
        }
        for id in &demands.all_of {
            // Violations of an allOf are tolerated only if the parent of the value is unchanged.
            self.visit(node.at(*id), value, PreviousValue { unchanged: previous.parent_unchanged, ..previous }, path);
        }
        match (value, &node.get().shape) {
            (Value::Array(items), _) => {
                let Some(inner) = node.items() else { return };
                let previous_items = PreviousItems::of(node, old);
                for (i, item) in items.iter().enumerate() {
                    self.visit(inner, item, previous.of_part(item, previous_items.find(item)), &path.index(i));
                }
            }
            (Value::Object(fields), shape) => {
                let (map, atomic) = match shape {
                    Shape::Map(map) => (true, map.atomic),
                    Shape::Struct(fields) => (false, fields.atomic),
                    _ => (false, false),
                };
                for (name, value) in fields {
                    let demanded = demands.metadata.filter(|_| name == "metadata").map(|id| node.at(id));
                    let Some(inner) = demanded.or_else(|| node.field(name)) else { continue };
                    let old = old.filter(|_| !atomic).and_then(|old| old.get(name));
                    let path = if map { path.key(name) } else { path.field(name) };
                    self.visit(inner, value, previous.of_part(value, old), &path);
                }
            }
            _ => {}
        }
    }
}

fn run(
    rule: &Rule,
    node: Node<'_>,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    budget: &Budget,
) -> Option<Violation> {
    if rule.uses_old_self && old.is_none() && !rule.optional_old_self {
        return None;
    }
    let mut context = BASE.new_inner_scope();
    context.add_variable_from_value("self", to_cel(Some(node), value));
    if rule.uses_old_self {
        let old = old.map(|old| to_cel(Some(node), old));
        let old = if rule.optional_old_self {
            Cel::Opaque(Arc::new(old.map_or_else(OptionalValue::none, OptionalValue::of)))
        } else {
            old.unwrap_or(Cel::Null)
        };
        context.add_variable_from_value("oldSelf", old);
    }
    let kind = kind_of(value);
    let text = if rule.message.is_empty() { rule.text.trim() } else { rule.message.trim() };
    let broke = |reason: String| Some(Violation::Broken(FieldError::invalid(path, kind, reason)));
    let program = match &rule.program {
        Ok(program) => program,
        Err(reason) => return broke(format!("rule compile error: {reason}")),
    };
    match program.run(&context, budget) {
        Ok(Cel::Bool(true)) => None,
        Ok(_) => Some(Violation::NotTrue(failure(rule, value, path, &context, budget))),
        Err(error @ Error::OutOfBudget) => broke(error.to_string()),
        Err(error @ Error::CostLimit) => {
            budget.stop();
            broke(format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {text}"
            ))
        }
        Err(error @ Error::NoSuchOverload) => broke(format!(
            "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {text}"
        )),
        Err(error) => broke(format!("{error} evaluating rule: {text}")),
    }
}

fn failure(rule: &Rule, value: &Value, path: &Path<'_>, context: &Context<'_>, budget: &Budget) -> FieldError {
    let message = rule.message_expression.as_ref().and_then(|program| match program.run(context, budget) {
        Ok(Cel::String(text)) => Some(text.trim().to_owned()),
        _ => None,
    });
    let usable = |text: &String| !text.is_empty() && text.len() <= 5 * 1024 && !text.contains('\n');
    let detail = message.filter(usable).unwrap_or_else(|| rule.static_message());
    let field = rule.field(path);
    match rule.reason.as_str() {
        "FieldValueForbidden" => FieldError::forbidden(field, detail),
        "FieldValueRequired" => FieldError::required(field, detail),
        reason => {
            let duplicate = reason == "FieldValueDuplicate";
            let reported = if value.is_object() || value.is_array() { None } else { Some(value.clone()) };
            let mut error = if duplicate {
                FieldError::duplicate(field, Value::Null)
            } else {
                FieldError::invalid(field, Value::Null, detail)
            };
            error.value = reported.map(Into::into);
            error
        }
    }
}

/// The type of a value, which errors of rules contain instead of the value.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        _ => "integer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::compile;
    use crate::openapi;
    use serde_json::json;

    fn errors(spec: Value, value: Value, old: Option<Value>) -> Vec<String> {
        let root = openapi::read(Some(&json!({"type": "object", "properties": {"spec": spec}})));
        let (value, old) = (json!({"spec": value}), old.map(|old| json!({"spec": old})));
        validate(root.node(), &value, old.as_ref(), false, &Path::ROOT).errors.iter().map(ToString::to_string).collect()
    }

    fn rules(rules: Value) -> Value {
        json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string"}, "a-b": {"type": "integer"},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "at": {"type": "string", "format": "date-time"}, "namespace": {"type": "string"},
        }})
    }

    #[test]
    fn failed_rules_are_reported() {
        let rule = |rule: Value| rules(json!([rule]));
        let value = json!({"min": 3, "max": 2, "a-b": 1});
        assert_eq!(
            errors(
                rule(json!({"rule": "self.min <= self.max", "message": "min must not exceed max"})),
                value.clone(),
                None
            ),
            ["spec: Invalid value: min must not exceed max"]
        );
        assert_eq!(
            errors(rule(json!({"rule": "self.a__dash__b > 1"})), value.clone(), None),
            ["spec: Invalid value: failed rule: self.a__dash__b > 1"]
        );
        assert_eq!(
            errors(
                rule(json!({"rule": "false", "messageExpression": "'min is %d'.format([self.min])"})),
                value.clone(),
                None
            ),
            ["spec: Invalid value: min is 3"]
        );
        assert_eq!(
            errors(
                rule(json!({"rule": "false", "reason": "FieldValueForbidden", "fieldPath": ".name", "message": "no"})),
                value.clone(),
                None
            ),
            ["spec.name: Forbidden: no"]
        );
        assert_eq!(
            errors(rule(json!({"rule": "self.name == 'x'", "message": "m"})), value, None),
            ["spec: Invalid value: \"object\": no such key: name evaluating rule: m"]
        );
    }

    #[test]
    fn values_are_typed_by_their_schema() {
        let holds = |rule: &str, value: Value| errors(rules(json!([{"rule": rule}])), value, None).is_empty();
        assert!(holds("self.at < timestamp('2027-01-01T00:00:00Z')", json!({"at": "2026-01-01T00:00:00Z"})));
        assert!(holds("self.tags == ['a', 'b']", json!({"tags": ["b", "a"]})));
        assert!(holds("self.__namespace__ == 'x' && has(self.name) == false", json!({"namespace": "x", "name": null})));
        assert!(holds("type(self.min) == int && type(self.tags) != string", json!({"min": 1, "tags": []})));
        assert!(holds("quantity('1Gi').isGreaterThan(quantity('1M'))", json!({})));
    }

    #[test]
    fn transition_rules_see_the_old_value() {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "n never shrinks"}]},
            "opt": {"type": "string", "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() || self != 'never'", "optionalOldSelf": true}]},
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
                "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v"}]}}}});
        assert_eq!(
            errors(schema.clone(), json!({"n": 1}), Some(json!({"n": 2}))),
            ["spec.n: Invalid value: 1: n never shrinks"]
        );
        assert!(errors(schema.clone(), json!({"n": 1}), Some(json!({}))).is_empty());
        assert_eq!(errors(schema.clone(), json!({"opt": "never"}), None).len(), 1);
        let (old, new) = (json!({"l": [{"k": "x", "v": 1}]}), json!({"l": [{"k": "y", "v": 0}, {"k": "x", "v": 0}]}));
        assert_eq!(errors(schema, new, Some(old)), ["spec.l[1]: Invalid value: failed rule: self.v >= oldSelf.v"]);
    }

    #[test]
    fn malformed_rules_do_not_compile() {
        for text in ["", "self.", "((((", "'", "self.a >", "\u{0}", "1 +", "[[["] {
            assert!(compile(text).is_err(), "{text}");
        }
    }
}
