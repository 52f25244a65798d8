//! Mutating admission policies.

use super::super::{
    Attributes, Environment, Plugin, PluginResult, Reinvocation, WriteCost, as_version, pass, write_back,
};
use super::{Binding, Invocation, Policies, Policy, explain, invocations};
use crate::catalog::{Resource, decode};
use crate::kinds::{MUTATING_ADMISSION_POLICY, MUTATING_ADMISSION_POLICY_BINDING};
use flyball_core::status::{Cause, Reason};
use flyball_core::{Object, Status};
use flyball_schema::apply::overlay;
use flyball_schema::cel::{Budget, Expression, Scope, TotalBudget, to_json};
use flyball_schema::patch::json;
use futures_util::future::Either;
use std::sync::Arc;

/// A mutating policy.
struct MutatingPolicy {
    policy: Policy,
    mutations: Vec<Mutation>,
    /// True if it is reinvoked after later changes.
    reinvoked: bool,
}

impl AsRef<Policy> for MutatingPolicy {
    fn as_ref(&self) -> &Policy {
        &self.policy
    }
}

/// A mutation: an expression, and the form of its result.
enum Mutation {
    /// An apply configuration.
    Fields(Expression),
    /// A JSON patch.
    Steps(Expression),
}

/// The reason of a failed mutation.
enum MutationError {
    /// A failure that the policy's failure policy decides on.
    Failed(String),
    Rejected(Status),
}

impl MutatingPolicy {
    /// Reads a policy.
    fn read(policy: &Object) -> Self {
        let spec = policy.get("spec").cloned().unwrap_or_default();
        let mutations = spec["mutations"].as_array().into_iter().flatten().map(|mutation| {
            let text = |field: &str| mutation[field]["expression"].as_str().unwrap_or_default().trim();
            if mutation["patchType"] == "JSONPatch" {
                Mutation::Steps(Expression::new(text("jsonPatch")))
            } else {
                Mutation::Fields(Expression::new(text("applyConfiguration")))
            }
        });
        Self {
            mutations: mutations.collect(),
            reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
            policy: Policy::read(policy, &spec),
        }
    }
}

impl Mutation {
    /// Applies the mutation to an object in one version of its kind.
    fn apply(
        &self,
        scope: &Scope,
        broken: &[(String, String)],
        kind: &Resource,
        object: &Object,
        total: &Arc<TotalBudget>,
    ) -> Result<Object, MutationError> {
        let (Self::Fields(expression) | Self::Steps(expression)) = self;
        let result = expression
            .run(scope, &Budget::of_rules().within(total))
            .map_err(|error| expression.message(&explain(error, broken)))
            .and_then(|result| to_json(&result));
        let result = result.map_err(MutationError::Failed)?;
        let internal = |why: String| MutationError::Rejected(Status::internal(why));
        let value = match self {
            Self::Fields(_) => {
                let mut patch = result;
                for field in ["apiVersion", "kind"] {
                    patch[field] = object.get(field).cloned().unwrap_or_default();
                }
                overlay(kind.schema.node(), object.as_value(), &patch)
                    .map_err(|error| MutationError::Failed(format!("error applying patch: {error}")))?
            }
            Self::Steps(_) => {
                let steps = result.as_array().map(Vec::as_slice).unwrap_or_default();
                let mut value = object.as_value().clone();
                match json::apply(&mut value, steps) {
                    Ok(()) => value,
                    // A failed test means that the patch does not apply.
                    Err(json::Error::TestFailed(_)) => return Ok(object.clone()),
                    Err(json::Error::Misfit(why)) => return Err(MutationError::Failed(format!("JSON Patch: {why}"))),
                    Err(json::Error::TooLarge(why)) => return Err(MutationError::Rejected(Status::too_large(why))),
                }
            }
        };
        let patched = Object::try_from(value).map_err(|_| internal("the patch leaves no object".into()))?;
        let (mut patched, unknown) = decode::read_as(kind, patched).map_err(internal)?;
        if kind.custom().is_none() && !unknown.is_empty() {
            let unknown: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
            return Err(internal(format!("strict decoding error: {}", unknown.join(", "))));
        }
        kind.default_within(&mut patched, Some(object)).map_err(MutationError::Rejected)?;
        Ok(patched)
    }
}

/// Runs the policies that change requests.
pub(in crate::admission) struct MutatingAdmissionPolicy {
    env: Environment,
    policies: Policies<MutatingPolicy>,
}

impl MutatingAdmissionPolicy {
    pub(in crate::admission) fn new(env: Environment) -> Self {
        let policies =
            Policies::new(&MUTATING_ADMISSION_POLICY, MutatingPolicy::read, &MUTATING_ADMISSION_POLICY_BINDING);
        Self { env, policies }
    }
}

impl WriteCost for MutatingAdmissionPolicy {
    fn is_slow(&self, plural: &str, _: Option<&str>) -> bool {
        self.policies.may_match(&self.env.store, plural)
    }

    fn changes_objects(&self) -> bool {
        !self.policies.policies.get(&self.env.store).is_empty()
    }
}

impl Plugin for MutatingAdmissionPolicy {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        reinvocation: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        let Some(object) = object.filter(|_| attributes.is_seen_by_policies()) else { return pass() };
        let Some((policies, bindings)) = self.policies.get(&self.env.store) else { return pass() };
        Either::Right(Box::pin(async move {
            mutate(&self.env, (&policies, &bindings), attributes, reinvocation, object, attributes.old).await
        }))
    }
}

/// Runs mutating policies in order: each sees the changes of those before it.
async fn mutate(
    env: &Environment,
    configured: (&[MutatingPolicy], &[Binding]),
    attributes: &Attributes<'_>,
    reinvocation: &mut Reinvocation,
    object: &mut Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    let mut failures: Vec<String> = Vec::new();
    // An evaluation error is an invalid object; a misconfigured policy is a denial.
    let mut reason = Reason::Invalid;
    for found in invocations(env, configured, attributes, Some(object), old).await {
        match found {
            Ok(invocation) => {
                let failed = run_policy(env, &invocation, attributes, reinvocation, object, old).await?;
                if !invocation.policy.policy.ignored {
                    let rejection = |why: &String| rejection(&invocation.policy.policy, Some(invocation.binding), why);
                    failures.extend(failed.iter().map(rejection));
                }
            }
            Err(wrong) => {
                if failures.is_empty() {
                    reason = Reason::Forbidden;
                }
                failures.push(rejection(&wrong.policy.policy, wrong.binding, &wrong.why));
            }
        }
    }
    let Some(first) = failures.first() else { return Ok(()) };
    let mut status = Status::forbidden(&attributes.resource.group_resource(), attributes.known_name(), first);
    status.message.clone_from(first);
    status.reason = Some(reason);
    let causes = failures.into_iter().map(|message| Cause { message, ..Cause::default() });
    let causes: Vec<Cause> = causes.collect();
    status.details.iter_mut().for_each(|details| details.causes.clone_from(&causes));
    Err(status)
}

/// Runs a mutating policy; returns the failures that its failure policy decides on.
async fn run_policy(
    env: &Environment,
    invocation: &Invocation<'_, MutatingPolicy>,
    attributes: &Attributes<'_>,
    reinvocation: &mut Reinvocation,
    object: &mut Object,
    old: Option<&Object>,
) -> Result<Vec<String>, Status> {
    let Invocation { policy, binding, .. } = invocation;
    let param = invocation.param.as_ref().map(|param| format!("{:?}", param.key())).unwrap_or_default();
    let id = format!("policy {}/{}/{param}", policy.policy.name, binding.name);
    let kind = attributes.sent.clone().unwrap_or_else(|| invocation.shown_as.clone());
    let (Some(before), old) = as_version(&env.codec, attributes, &invocation.shown_as, Some(object), old).await? else {
        return Ok(Vec::new());
    };
    let see = |object: &Object| invocation.scope(env, attributes, Some(object), old.as_ref());
    let holds = policy.policy.conditions.evaluate(&see(&before), &attributes.budget);
    attributes.check_budget()?;
    match holds {
        Ok(true) => {}
        Ok(false) => return Ok(Vec::new()),
        Err(why) => return Ok(vec![why]),
    }
    if !reinvocation.must_run(&id) {
        return Ok(Vec::new());
    }
    let (mut after, mut failures) = (before.clone(), Vec::new());
    for mutation in &policy.mutations {
        let mut scope = see(&after);
        let broken = policy.policy.define(&mut scope, &attributes.budget);
        match mutation.apply(&scope, &broken, &kind, &after, &attributes.budget) {
            Ok(changed) => after = changed,
            Err(MutationError::Failed(why)) => failures.push(why),
            Err(MutationError::Rejected(status)) => return Err(status),
        }
    }
    attributes.check_budget()?;
    let changed = after != before;
    if changed {
        write_back(&env.codec, attributes, &invocation.shown_as, after, object).await?;
    }
    reinvocation.record_run(&id, policy.reinvoked, changed);
    Ok(failures)
}

fn rejection(policy: &Policy, binding: Option<&Binding>, why: &str) -> String {
    match binding {
        Some(binding) => format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name),
        None => format!("policy {:?} denied request: {why}", policy.name),
    }
}
