//! Validating admission policies.

use super::super::{Attributes, Environment, Plugin, PluginResult, WriteCost, as_version, pass};
use super::{Binding, Invocation, Policies, Policy, explain, invocations};
use crate::kinds::{VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING};
use flyball_core::status::{Cause, Reason};
use flyball_core::{Object, Status};
use flyball_schema::cel::{Budget, Cel, Error, Expression, Scope, TotalBudget};
use futures_util::future::Either;
use serde_json::Value;
use std::sync::Arc;

/// Maximum length of the message of an expression.
const MAX_MESSAGE: usize = 5 * 1024;

/// A validating policy.
struct ValidatingPolicy {
    policy: Policy,
    validations: Vec<Validation>,
}

impl AsRef<Policy> for ValidatingPolicy {
    fn as_ref(&self) -> &Policy {
        &self.policy
    }
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: Reason,
}

/// The reason why a policy rejects a request.
struct Violation {
    message: String,
    reason: Reason,
}

impl ValidatingPolicy {
    /// Reads a policy.
    fn read(policy: &Object) -> Self {
        let spec = policy.get("spec").cloned().unwrap_or_default();
        let validations = spec["validations"].as_array().into_iter().flatten().map(Validation::read).collect();
        Self { policy: Policy::read(policy, &spec), validations }
    }

    /// Evaluates the policy with one parameter.
    fn evaluate(&self, mut scope: Scope, total: &Arc<TotalBudget>) -> Vec<Violation> {
        let failed = |message: String| Violation { message, reason: Reason::Invalid };
        match self.policy.conditions.evaluate(&scope, total) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(why) => return vec![failed(why)],
        }
        let broken = self.policy.define(&mut scope, total);
        let (mut failures, budget) = (Vec::new(), Budget::of_rules().within(total));
        for validation in &self.validations {
            match validation.expression.run(&scope, &budget) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => failures.push(Violation {
                    message: validation.message(&scope, &budget),
                    reason: validation.reason.clone(),
                }),
                Err(error @ Error::OutOfBudget) => {
                    return if self.policy.ignored { Vec::new() } else { vec![failed(error.to_string())] };
                }
                Err(_) if self.policy.ignored => {}
                Err(error) => failures.push(failed(validation.expression.message(&explain(error, &broken)))),
            }
        }
        failures
    }
}

impl Validation {
    fn read(validation: &Value) -> Self {
        let text = |field: &str| validation[field].as_str().unwrap_or_default();
        Self {
            expression: Expression::new(text("expression")),
            message: text("message").trim().to_owned(),
            message_expression: Some(text("messageExpression"))
                .filter(|text| !text.trim().is_empty())
                .map(Expression::new),
            reason: serde_json::from_value(validation["reason"].clone()).unwrap_or(Reason::Invalid),
        }
    }

    /// Returns the message of a violation.
    fn message(&self, scope: &Scope, budget: &Budget) -> String {
        let text = self.message_expression.as_ref().and_then(|expression| match expression.run(scope, budget) {
            Ok(Cel::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        });
        let usable = |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
        text.filter(usable).unwrap_or_else(|| match self.message.as_str() {
            "" => format!("failed expression: {}", self.expression.text().trim()),
            message => message.to_owned(),
        })
    }
}

/// Runs the policies that reject requests.
pub(in crate::admission) struct ValidatingAdmissionPolicy {
    env: Environment,
    policies: Policies<ValidatingPolicy>,
}

impl ValidatingAdmissionPolicy {
    pub(in crate::admission) fn new(env: Environment) -> Self {
        let policies =
            Policies::new(&VALIDATING_ADMISSION_POLICY, ValidatingPolicy::read, &VALIDATING_ADMISSION_POLICY_BINDING);
        Self { env, policies }
    }
}

impl WriteCost for ValidatingAdmissionPolicy {
    fn is_slow(&self, plural: &str, _: Option<&str>) -> bool {
        self.policies.may_match(&self.env.store, plural)
    }
}

impl Plugin for ValidatingAdmissionPolicy {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        if !attributes.is_seen_by_policies() {
            return pass();
        }
        let Some((policies, bindings)) = self.policies.get(&self.env.store) else { return pass() };
        Either::Right(Box::pin(async move {
            validate(&self.env, (&policies, &bindings), attributes, object, attributes.old).await
        }))
    }
}

/// Runs validating policies.
async fn validate(
    env: &Environment,
    configured: (&[ValidatingPolicy], &[Binding]),
    attributes: &Attributes<'_>,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), Status> {
    let mut denied: Option<Status> = None;
    let mut deny = |policy: &ValidatingPolicy, binding: Option<&Binding>, failure: Violation| {
        denied.get_or_insert_with(|| rejection(attributes, &policy.policy, binding, failure));
    };
    for found in invocations(env, configured, attributes, object, old).await {
        let invocation = match found {
            Ok(invocation) => invocation,
            Err(wrong) => {
                deny(wrong.policy, wrong.binding, Violation { message: wrong.why, reason: Reason::Invalid });
                continue;
            }
        };
        let (object, old) = as_version(&env.codec, attributes, &invocation.shown_as, object, old).await?;
        let scope = invocation.scope(env, attributes, object.as_ref(), old.as_ref());
        let Invocation { policy, binding, .. } = invocation;
        let failures = policy.evaluate(scope, &attributes.budget);
        attributes.check_budget()?;
        for failure in failures {
            if binding.warn {
                let (policy, binding) = (&policy.policy.name, &binding.name);
                let why = &failure.message;
                attributes.warnings.add([format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {why}"
                )]);
            }
            if binding.deny {
                deny(policy, Some(binding), failure);
            }
        }
    }
    denied.map_or(Ok(()), Err)
}

/// Returns the error of a policy that denies a request.
fn rejection(attributes: &Attributes<'_>, policy: &Policy, binding: Option<&Binding>, failure: Violation) -> Status {
    let bound = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{}'{bound} denied request: {}", policy.name, failure.message);
    let mut status = Status::forbidden(&attributes.resource.group_resource(), attributes.known_name(), &message);
    status.code = match failure.reason {
        Reason::Forbidden => 403,
        Reason::Unauthorized => 401,
        Reason::RequestEntityTooLarge => 413,
        _ => 422,
    };
    status.reason = Some(failure.reason);
    let cause = Cause { message, ..Cause::default() };
    status.details.iter_mut().for_each(|details| details.causes.push(cause.clone()));
    status
}
