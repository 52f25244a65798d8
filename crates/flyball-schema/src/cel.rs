//! Rules in CEL that a custom resource's schema carries (`x-kubernetes-validations`).
//!
//! The language and Kubernetes' libraries come from `kube-cel`; this module says what a rule sees of an object, when it
//! runs, and how its failure reads. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>.

mod admission;
mod authorizer;
mod check;
mod cost;
mod expression;
mod functions;
mod guard;
mod location;
mod memory;
mod meter;
mod mutation;
mod netip;
mod places;
mod program;
mod rewrite;
mod types;
mod typing;

pub use admission::{namespace, object, published, request};
pub use authorizer::{Decide, Question, TYPE as AUTHORIZER};
pub use check::{Checked, check, check_among};
pub use cost::cardinality;
pub use expression::{Expression, Scope};
pub use kube_cel::cel::objects::Value as Cel;
pub use meter::{Budget, OUT_OF_BUDGET};
pub use mutation::to_json;
pub use program::{Program, compile};
pub use typing::Type;

use crate::schema::{ListKind, Node, Shape};
use crate::validate::Predecessors;
use flyball_core::field::{FieldError, Path};
use flyball_core::time;
use kube_cel::KubeCelExt;
use kube_cel::cel::Context;
use kube_cel::cel::objects::{Key, Map as CelMap, OptionalValue};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// An entry of `x-kubernetes-validations`, ready to run.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The expression that must be true.
    text: String,
    program: Result<Arc<Program>, String>,
    /// What to say if it is not true.
    message: String,
    message_expression: Option<Arc<Program>>,
    /// The cause's reason.
    reason: String,
    /// A field below that the error points at, such as `.spec.name` or `['a-b']`.
    field_path: String,
    /// Whether a rule on changes runs on new values too.
    optional_old_self: bool,
    uses_old_self: bool,
}

impl Rule {
    /// Reads an entry of `x-kubernetes-validations`.
    pub fn read(from: &Value) -> Self {
        let text = |name: &str| from.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let program = compile(&text("rule")).map(Arc::new);
        let optional_old_self = from.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default();
        let uses_old_self = program.as_ref().is_ok_and(|program| program.references().has_variable("oldSelf"));
        Self {
            text: text("rule"),
            program,
            message: text("message"),
            // An old value that may be missing is known to rules alone.
            message_expression: compile(&text("messageExpression"))
                .ok()
                .filter(|program| !optional_old_self || !program.references().has_variable("oldSelf"))
                .map(Arc::new),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self,
            uses_old_self,
        }
    }

    /// Returns what to say of a failure, if no expression says it.
    fn saying(&self) -> String {
        let message = self.message.trim();
        if message.is_empty() { format!("failed rule: {}", self.text.trim()) } else { message.to_owned() }
    }

    fn run(
        &self,
        node: Node<'_>,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        budget: &Budget,
    ) -> Option<Failure> {
        if self.uses_old_self && old.is_none() && !self.optional_old_self {
            return None;
        }
        let mut context = BASE.new_inner_scope();
        context.add_variable_from_value("self", to_cel(Some(node), value));
        if self.uses_old_self {
            let old = old.map(|old| to_cel(Some(node), old));
            let old = if self.optional_old_self {
                Cel::Opaque(Arc::new(old.map_or_else(OptionalValue::none, OptionalValue::of)))
            } else {
                old.unwrap_or(Cel::Null)
            };
            context.add_variable_from_value("oldSelf", old);
        }
        let kind = kind_of(value);
        let rule = if self.message.is_empty() { self.text.trim() } else { self.message.trim() };
        let broke = |why: String| Some(Failure::Broken(FieldError::invalid(path, kind, why)));
        let program = match &self.program {
            Ok(program) => program,
            Err(why) => return broke(format!("rule compile error: {why}")),
        };
        match program.run(&context, budget) {
            Ok(Cel::Bool(true)) => None,
            Ok(_) => Some(Failure::NotTrue(self.failure(value, path, &context, budget))),
            Err(why) if why == OUT_OF_BUDGET => broke(why),
            Err(why) if why == meter::EXCEEDED => {
                budget.stop();
                broke(format!(
                    "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
                ))
            }
            Err(why) if why == "no such overload" => broke(format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
            )),
            Err(why) => broke(format!("{why} evaluating rule: {rule}")),
        }
    }

    fn failure(&self, value: &Value, path: &Path<'_>, context: &Context<'_>, budget: &Budget) -> FieldError {
        let said = self.message_expression.as_ref().and_then(|program| match program.run(context, budget) {
            Ok(Cel::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        });
        let usable = |text: &String| !text.is_empty() && text.len() <= 5 * 1024 && !text.contains('\n');
        let detail = said.filter(usable).unwrap_or_else(|| self.saying());
        let field = self.field(path);
        match self.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(field, detail),
            "FieldValueRequired" => FieldError::required(field, detail),
            reason => {
                let duplicate = reason == "FieldValueDuplicate";
                let shown = if value.is_object() || value.is_array() { None } else { Some(value.clone()) };
                let mut error = if duplicate {
                    FieldError::duplicate(field, Value::Null)
                } else {
                    FieldError::invalid(field, Value::Null, detail)
                };
                error.value = shown.map(Into::into);
                error
            }
        }
    }

    /// Appends the rule's own path, of which every step prints with a dot.
    fn field(&self, path: &Path<'_>) -> String {
        let mut steps = String::new();
        let mut rest = self.field_path.as_str();
        while !rest.is_empty() {
            let (step, after) = if let Some(quoted) = rest.strip_prefix("['") {
                quoted.split_once("']").unwrap_or((quoted, ""))
            } else {
                let bare = rest.strip_prefix('.').unwrap_or(rest);
                bare.split_at(bare.find(['.', '[']).unwrap_or(bare.len()))
            };
            steps += &format!(".{step}");
            rest = after;
        }
        if path.is_root() && !steps.is_empty() { steps[1..].to_owned() } else { format!("{path}{steps}") }
    }
}

/// The type of a value, as errors of rules show it in its place.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        _ => "integer",
    }
}

/// The functions that rules may call: the same for all.
static BASE: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    types::add(&mut context);
    rewrite::add(&mut context);
    authorizer::add(&mut context);
    meter::add(&mut context);
    guard::add(&mut context);
    memory::add(&mut context);
    context
});

/// What rules find wrong with a value.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What is refused.
    pub errors: Vec<FieldError>,
    /// What is but warned of, since the write leaves the value as it was ("ratcheting", KEP-4008).
    pub tolerated: Vec<FieldError>,
}

/// How a rule fails.
enum Failure {
    /// It does not hold.
    NotTrue(FieldError),
    /// It cannot be run.
    Broken(FieldError),
}

/// Runs the rules of a schema over a value and all that it holds.
///
/// `unchanged` says that a write leaves all of the object as it was; of what rules see, metadata is no part.
pub fn validate(node: Node<'_>, value: &Value, old: Option<&Value>, unchanged: bool, path: &Path<'_>) -> Findings {
    let mut walk = Walk { budget: Budget::of_rules(), findings: Findings::default() };
    walk.visit(node, value, Before { old, unchanged, parent_unchanged: unchanged }, path);
    walk.findings
}

/// What is known of a value as it was before a write.
#[derive(Clone, Copy)]
struct Before<'v> {
    old: Option<&'v Value>,
    /// Whether the write leaves the value as it was, or something that holds it.
    unchanged: bool,
    /// The same of what holds the value.
    parent_unchanged: bool,
}

impl<'v> Before<'v> {
    /// The same of a part of the value.
    fn of_part(self, value: &Value, old: Option<&'v Value>) -> Self {
        let unchanged = self.unchanged || old == Some(value);
        Self { old, unchanged, parent_unchanged: self.unchanged }
    }
}

struct Walk {
    budget: Budget,
    findings: Findings,
}

impl Walk {
    fn visit(&mut self, node: Node<'_>, value: &Value, before: Before<'_>, path: &Path<'_>) {
        let Some(demands) = node.get().constraints.as_deref().filter(|_| !value.is_null()) else { return };
        let old = before.old.filter(|old| !old.is_null());
        if !demands.rules.is_empty() && self.budget.is_spent() {
            self.findings.errors.push(FieldError::invalid(path, kind_of(value), OUT_OF_BUDGET));
            self.budget.stop();
        }
        for rule in &demands.rules {
            if self.budget.is_stopped() {
                return;
            }
            match rule.run(node, value, old, path, &self.budget) {
                None => {}
                Some(Failure::NotTrue(error)) if before.unchanged && !rule.uses_old_self => {
                    self.findings.tolerated.push(error);
                }
                Some(Failure::NotTrue(error) | Failure::Broken(error)) => self.findings.errors.push(error),
            }
        }
        for id in &demands.all_of {
            // What an allOf says is tolerated only if what holds the value is unchanged.
            self.visit(node.at(*id), value, Before { unchanged: before.parent_unchanged, ..before }, path);
        }
        match (value, &node.get().shape) {
            (Value::Array(items), _) => {
                let Some(inner) = node.items() else { return };
                let predecessors = Predecessors::of(node, old);
                for (i, item) in items.iter().enumerate() {
                    self.visit(inner, item, before.of_part(item, predecessors.find(item)), &path.index(i));
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
                    self.visit(inner, value, before.of_part(value, old), &path);
                }
            }
            _ => {}
        }
    }
}

/// Turns JSON into what an expression sees of it: typed by the schema, fields under their escaped names, null as absent.
pub fn to_cel(node: Option<Node<'_>>, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match n.as_i64() {
            Some(n) if !node.is_some_and(|node| matches!(node.get().shape, Shape::Number)) => Cel::Int(n),
            _ => Cel::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => text_to_cel(node, text),
        Value::Array(items) => {
            let inner = node.and_then(Node::items);
            let mut items: Vec<&Value> = items.iter().collect();
            // Sets and maps are equal in any order; a list of theirs that is sorted compares so.
            match node.map(|node| &node.get().shape) {
                Some(Shape::List(list)) if list.kind == ListKind::Set => items.sort_by_key(|item| item.to_string()),
                Some(Shape::List(list)) => {
                    if let ListKind::Map(keys) = &list.kind {
                        items.sort_by_key(|item| {
                            keys.iter().map(|key| item.get(&**key).map(Value::to_string)).collect::<Vec<_>>()
                        });
                    }
                }
                _ => {}
            }
            Cel::List(Arc::new(items.into_iter().map(|item| to_cel(inner, item)).collect()))
        }
        Value::Object(fields) => {
            let named = node.is_some_and(|node| node.as_struct().is_some());
            let mut map = HashMap::with_capacity(fields.len());
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let value = to_cel(node.and_then(|node| node.field(name)), value);
                if named && RESERVED.contains(&name.as_str()) {
                    map.insert(Key::String(Arc::new(format!("__{name}__"))), value.clone());
                }
                let name = if named { escape(name) } else { name.clone() };
                map.insert(Key::String(Arc::new(name)), value);
            }
            Cel::Map(CelMap { map: Arc::new(map) })
        }
    }
}

fn text_to_cel(node: Option<Node<'_>>, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    let format = node.and_then(|node| node.get().constraints.as_deref()).and_then(|demands| demands.format.as_deref());
    match format {
        Some("date-time") => time::parse_rfc3339(text)
            .and_then(|time| {
                chrono::DateTime::from_timestamp(time.as_second(), time.subsec_nanosecond().unsigned_abs())
            })
            .map_or_else(plain, |time| Cel::Timestamp(time.fixed_offset())),
        Some("duration") => crate::decode::parse_duration(text)
            .map_or_else(plain, |nanos| Cel::Duration(chrono::Duration::nanoseconds(nanos))),
        _ => plain(),
    }
}

/// Tells whether a name is a word of the language.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Words of the language, which a field's name may be too.
const RESERVED: [&str; 22] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "__name__",
];

/// Turns an identifier back into a field's name.
fn unescape(name: &str) -> String {
    let reserved = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = reserved.filter(|word| RESERVED.contains(word)) {
        return word.to_owned();
    }
    name.replace("__slash__", "/").replace("__dash__", "-").replace("__dot__", ".").replace("__underscores__", "__")
}

/// Turns a field's name into an identifier.
fn escape(name: &str) -> String {
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_rule_that_fails_says_so() {
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
    fn rules_on_changes_see_what_was() {
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
    fn what_cannot_be_compiled_does_not_bring_the_server_down() {
        for text in ["", "self.", "((((", "'", "self.a >", "\u{0}", "1 +", "[[["] {
            assert!(compile(text).is_err(), "{text}");
        }
    }
}
