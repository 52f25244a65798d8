//! Compiled rules of `x-kubernetes-validations`.

use super::{Program, compile};
use flyball_core::field::Path;
use serde_json::Value;
use std::sync::Arc;

/// A compiled entry of `x-kubernetes-validations`.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The expression that must be true.
    pub(crate) text: String,
    pub(crate) program: Result<Arc<Program>, String>,
    /// Message of the error if it is false.
    pub(crate) message: String,
    pub(crate) message_expression: Option<Arc<Program>>,
    /// Reason of the cause.
    pub(crate) reason: String,
    /// Path of a descendant field for the error, such as `.spec.name` or `['a-b']`.
    pub(crate) field_path: String,
    /// True if the rule is also evaluated for new values although it refers to `oldSelf`.
    pub(crate) optional_old_self: bool,
    pub(crate) uses_old_self: bool,
}

impl Rule {
    /// Parses an entry of `x-kubernetes-validations`.
    pub fn read(from: &Value) -> Self {
        let text = |name: &str| from.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let program = compile(&text("rule")).map(Arc::new);
        let optional_old_self = from.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default();
        let uses_old_self = program.as_ref().is_ok_and(|program| program.references().has_variable("oldSelf"));
        Self {
            text: text("rule"),
            program,
            message: text("message"),
            // `optionalOldSelf` applies only to the rule.
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

    /// Returns the message of a failure without a message expression.
    pub(crate) fn static_message(&self) -> String {
        let message = self.message.trim();
        if message.is_empty() { format!("failed rule: {}", self.text.trim()) } else { message.to_owned() }
    }

    /// Appends the rule's own path, in which every element is formatted with a dot.
    pub(crate) fn field(&self, path: &Path<'_>) -> String {
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
