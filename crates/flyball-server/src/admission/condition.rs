//! Conditions in CEL under which a webhook or a policy is asked at all.

use super::Attributes;
use crate::server::Inner;
use flyball_core::field::aggregate;
use flyball_core::{Object, Status};
use flyball_schema::cel::{Cel, Expression, Scope, to_cel};
use serde_json::{Map, Value};

/// The `matchConditions` of a webhook or a policy.
pub(super) struct Conditions {
    conditions: Vec<Expression>,
    /// Whether a condition that cannot be worked out counts as false.
    ignored: bool,
}

impl Conditions {
    pub(super) fn read(conditions: &Value, ignored: bool) -> Self {
        let texts = conditions.as_array().into_iter().flatten();
        let texts = texts.map(|condition| condition["expression"].as_str().unwrap_or_default());
        Self { conditions: texts.map(Expression::new).collect(), ignored }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Tells whether all conditions hold; an error counts only if none is false.
    pub(super) fn hold(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        request: Map<String, Value>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<bool, Status> {
        let scope = scope(inner, attributes, request, object, old);
        self.hold_in(&scope, attributes)
    }

    /// The same, with what expressions see given.
    pub(super) fn hold_in(&self, scope: &Scope, attributes: &Attributes<'_>) -> Result<bool, Status> {
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match condition.run(scope) {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(_) => errors.push(format!("expression '{}' resulted in error: not a boolean", condition.text())),
                Err(why) => errors.push(why),
            }
        }
        if errors.is_empty() {
            return Ok(true);
        }
        if self.ignored {
            return Ok(false);
        }
        Err(Status::forbidden(&attributes.resource.group_resource(), attributes.name, aggregate(errors)))
    }
}

/// Makes what expressions see of a request.
pub(super) fn scope(
    _inner: &Inner,
    _attributes: &Attributes<'_>,
    request: Map<String, Value>,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Scope {
    let seen = |object: Option<&Object>| object.map_or(Cel::Null, |object| to_cel(None, object.as_value()));
    let mut scope = Scope::new();
    scope.set("object", seen(object));
    scope.set("oldObject", seen(old));
    scope.set("request", to_cel(None, &request.into()));
    scope
}
