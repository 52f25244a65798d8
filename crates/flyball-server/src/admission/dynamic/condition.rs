//! Match conditions of webhooks and policies, in CEL.

use super::{Attributes, Environment};
use crate::auth::{Action, ActionTarget, Authorizer, Decision, User};
use flyball_core::field::aggregate;
use flyball_core::{Object, Status};
use flyball_schema::cel::{AuthorizationCheck, AuthorizeFn, Budget, Cel, Expression, Scope, TotalBudget};
use flyball_schema::rules::to_cel;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The `matchConditions` of a webhook or a policy.
pub(super) struct Conditions {
    conditions: Vec<Expression>,
    /// True if a condition that cannot be evaluated counts as false.
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

    /// Returns true if all conditions hold; an error counts only if none is false.
    pub(super) fn hold(
        &self,
        env: &Environment,
        attributes: &Attributes<'_>,
        request: Map<String, Value>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<bool, Status> {
        let found = self.evaluate(&scope(env, attributes, request, object, old), &attributes.budget);
        attributes.check_budget()?;
        found.map_err(|why| Status::forbidden(&attributes.resource.group_resource(), attributes.known_name(), why))
    }

    /// Like [`Self::hold`], with the plain reason of a failure.
    pub(super) fn evaluate(&self, scope: &Scope, total: &Arc<TotalBudget>) -> Result<bool, String> {
        let mut errors = Vec::new();
        let budget = Budget::of_conditions().within(total);
        for condition in &self.conditions {
            match condition.run(scope, &budget) {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(_) => errors.push(format!("expression '{}' resulted in error: not a boolean", condition.text())),
                Err(error) => errors.push(condition.message(&error)),
            }
        }
        if errors.is_empty() {
            return Ok(true);
        }
        if self.ignored {
            return Ok(false);
        }
        Err(aggregate(errors))
    }
}

/// Creates the variables of expressions for a request.
pub(super) fn scope(
    env: &Environment,
    attributes: &Attributes<'_>,
    request: Map<String, Value>,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Scope {
    let seen = |object: Option<&Object>| object.map_or(Cel::Null, |object| to_cel(None, object.as_value()));
    let mut scope = Scope::new();
    scope.set("object", seen(object));
    scope.set("oldObject", seen(old));
    scope.set("request", to_cel(None, &request.into()));
    let text = |text: &str| text.to_owned();
    let default_question = AuthorizationCheck {
        group: text(&attributes.resource.kind.group),
        resource: text(&attributes.resource.plural),
        subresource: text(attributes.subresource),
        namespace: text(attributes.namespace_name()),
        name: text(attributes.name),
        ..AuthorizationCheck::default()
    };
    scope.set_authorizer(default_question, decider(&env.authorizer, attributes.user));
    scope
}

/// Evaluates the `authorizer` variable of expressions.
fn decider(authorizer: &Arc<Authorizer>, user: &User) -> Arc<AuthorizeFn> {
    let (authorizer, user) = (authorizer.clone(), user.clone());
    Arc::new(move |question: &AuthorizationCheck| {
        let account = question.account.as_ref().map(|(namespace, name)| User::service_account(namespace, name));
        let on = match &question.path {
            Some(path) => ActionTarget::Path(path),
            None => ActionTarget::Resource {
                group: &question.group,
                resource: &question.resource,
                subresource: &question.subresource,
                namespace: &question.namespace,
                name: &question.name,
            },
        };
        let action = Action { user: account.as_ref().unwrap_or(&user), verb: &question.verb, on };
        match authorizer.decide(&action) {
            Decision::Allowed(reason) => (true, reason),
            Decision::NoOpinion => (false, String::new()),
        }
    })
}
