//! Validating admission policies: rules in CEL that refuse requests, bound to where they hold.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>.

use super::condition::{Conditions, scope};
use super::matching::Constraints;
use super::{Attributes, review};
use crate::server::Inner;
use flyball_core::status::{Cause, Reason};
use flyball_core::{GroupResource, LabelSelector, Object, ObjectKey, Status};
use flyball_schema::cel::{Cel, Expression, Scope, to_cel};
use serde_json::{Value, json};

/// The longest message that an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;

/// A policy.
pub(super) struct Policy {
    name: String,
    constraints: Constraints,
    conditions: Conditions,
    /// Whether what cannot be worked out is let pass.
    ignored: bool,
    /// The kind of what it takes as parameters, by version and name.
    params: Option<(String, String)>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: Reason,
}

/// Where a policy holds, and what comes of a failure.
pub(super) struct Binding {
    name: String,
    policy: String,
    constraints: Constraints,
    params: Option<Value>,
    deny: bool,
    warn: bool,
}

/// Why a request does not pass a policy.
struct Failure {
    message: String,
    reason: Reason,
}

impl Policy {
    /// Reads a policy.
    pub(super) fn read(policy: &Object) -> Self {
        let spec = policy.get("spec").cloned().unwrap_or_default();
        let ignored = spec["failurePolicy"] == "Ignore";
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        let kind = &spec["paramKind"];
        Self {
            name: policy.name().to_owned(),
            constraints: Constraints::of_policy(&spec["matchConstraints"]),
            conditions: Conditions::read(&spec["matchConditions"], ignored),
            ignored,
            params: kind.is_object().then(|| (text(&kind["apiVersion"]), text(&kind["kind"]))),
            variables: list("variables")
                .iter()
                .map(|variable| (text(&variable["name"]), Expression::new(&text(&variable["expression"]))))
                .collect(),
            validations: list("validations").iter().map(Validation::read).collect(),
        }
    }

    /// Works the policy out with one parameter.
    fn evaluate(&self, mut scope: Scope) -> Vec<Failure> {
        let failed = |message: String| Failure { message, reason: Reason::Invalid };
        match self.conditions.evaluate(&scope) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(why) => return vec![failed(why)],
        }
        let broken = self.define(&mut scope);
        let mut failures = Vec::new();
        for validation in &self.validations {
            match validation.expression.run(&scope) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => failures.push(Failure { message: validation.say(&scope), reason: validation.reason.clone() }),
                Err(_) if self.ignored => {}
                Err(why) => failures.push(failed(explain(why, &broken))),
            }
        }
        failures
    }

    /// Gives the variables their values, each with those before it known; returns those that have none, and why.
    fn define(&self, scope: &mut Scope) -> Vec<(String, String)> {
        let mut broken = Vec::new();
        let mut values = Vec::new();
        for (name, expression) in &self.variables {
            scope.set_fields("variables", &values);
            match expression.run(scope) {
                Ok(value) => values.push((name.clone(), value)),
                Err(why) => {
                    let why = explain(why, &broken);
                    let why = why.split_once("' resulted in error: ").map_or(&*why, |(_, why)| why).to_owned();
                    broken.push((name.clone(), why));
                }
            }
        }
        scope.set_fields("variables", &values);
        broken
    }

    /// Finds the parameters that a binding names; `None` stands for no parameter at all.
    async fn collect(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        binding: &Binding,
    ) -> Result<Vec<Option<Object>>, String> {
        let (Some((version, kind)), Some(wanted)) = (&self.params, &binding.params) else { return Ok(vec![None]) };
        let catalog = inner.catalog();
        let found = catalog.resources().find(|resource| {
            resource.is_served() && resource.kind.api_version() == *version && *resource.kind.kind == **kind
        });
        let unknown = || format!("failed to find resource referenced by paramKind: '{version}, Kind={kind}'");
        let resource = found.ok_or_else(unknown)?;
        let given = wanted["namespace"].as_str().filter(|namespace| !namespace.is_empty());
        let namespace = match (resource.namespaced, given, attributes.namespace_name()) {
            (false, Some(_), _) => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
            }
            (false, None, _) => None,
            (true, Some(given), _) => Some(given),
            (true, None, "") => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into()
                );
            }
            (true, None, own) => Some(own),
        };
        let entries = match wanted["name"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => inner.store.get(&resource.table, &ObjectKey::new(namespace, name)).into_iter().collect(),
            None => {
                let selector = LabelSelector::from_value(&wanted["selector"]);
                let mut entries = inner.store.list(&resource.table, namespace).entries;
                entries.retain(|entry| selector.matches(|label| entry.facts.label(label)));
                entries
            }
        };
        if entries.is_empty() && wanted["parameterNotFoundAction"] == "Deny" {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
        }
        let entries = inner.shown(resource, entries).await.map_err(|status| status.message)?;
        Ok(entries.iter().map(|entry| Some(inner.object(resource, entry))).collect())
    }
}

/// Names the variable that an expression could not be worked out for.
fn explain(why: String, broken: &[(String, String)]) -> String {
    for (name, cause) in broken {
        if let Some(start) = why.strip_suffix(&format!("no such key: {name}")) {
            return format!("{start}composited variable {name:?} fails to evaluate: {cause}");
        }
    }
    why
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

    /// Says what is wrong with a request.
    fn say(&self, scope: &Scope) -> String {
        let made = self.message_expression.as_ref().and_then(|expression| match expression.run(scope) {
            Ok(Cel::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        });
        let usable = |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
        made.filter(usable).unwrap_or_else(|| match self.message.as_str() {
            "" => format!("failed expression: {}", self.expression.text().trim()),
            message => message.to_owned(),
        })
    }
}

impl Binding {
    /// Reads a binding.
    pub(super) fn read(binding: &Object) -> Self {
        let spec = binding.get("spec").cloned().unwrap_or_default();
        let acts = |action: &str| spec["validationActions"].as_array().is_some_and(|all| all.contains(&action.into()));
        Self {
            name: binding.name().to_owned(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            constraints: Constraints::of_policy(&spec["matchResources"]),
            params: Some(spec["paramRef"].clone()).filter(Value::is_object),
            deny: acts("Deny"),
            warn: acts("Warn"),
        }
    }

    fn matches(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<bool, Status> {
        self.constraints.covers(inner, attributes, object, old)
    }
}

/// Lets policies refuse a request.
pub(super) async fn validate(
    inner: &Inner,
    (policies, bindings): (&[Policy], &[Binding]),
    attributes: &Attributes<'_>,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), Status> {
    let mut denied: Option<Status> = None;
    let mut deny = |policy: &Policy, binding: Option<&Binding>, failure: Failure| {
        denied.get_or_insert_with(|| refusal(attributes, policy, binding, failure));
    };
    for policy in policies {
        let bound: Vec<&Binding> = bindings.iter().filter(|binding| binding.policy == policy.name).collect();
        if bound.is_empty() {
            continue;
        }
        let configured = |what: &str, why: &dyn std::fmt::Display| Failure {
            message: format!("failed to configure {what}: {why}"),
            reason: Reason::Invalid,
        };
        let shown_as = match policy.constraints.find(inner, attributes, object, old) {
            Ok(Some(shown_as)) => shown_as,
            Ok(None) => continue,
            Err(_) if policy.ignored => continue,
            Err(status) => {
                deny(policy, None, configured("policy", &status));
                continue;
            }
        };
        for binding in bound {
            let params = match binding.matches(inner, attributes, object, old) {
                Ok(true) => policy.collect(inner, attributes, binding).await,
                Ok(false) => continue,
                Err(status) => Err(status.message),
            };
            let params = match params {
                Ok(params) => params,
                Err(_) if policy.ignored => continue,
                Err(why) => {
                    deny(policy, Some(binding), configured("binding", &why));
                    continue;
                }
            };
            let (object, old) = super::shown(inner, attributes, &shown_as, object, old).await?;
            for param in params {
                let request = review::describe(attributes, &shown_as);
                let mut scope = scope(inner, attributes, request, object.as_ref(), old.as_ref());
                scope.set("params", param.map_or(Cel::Null, |param| to_cel(None, param.as_value())));
                scope.set("namespaceObject", namespace(inner, attributes));
                for failure in policy.evaluate(scope) {
                    if binding.warn {
                        let (policy, binding) = (&policy.name, &binding.name);
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
        }
    }
    denied.map_or(Ok(()), Err)
}

/// Says that a policy refuses.
fn refusal(attributes: &Attributes<'_>, policy: &Policy, binding: Option<&Binding>, failure: Failure) -> Status {
    let bound = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{}'{bound} denied request: {}", policy.name, failure.message);
    let mut status = Status::forbidden(&attributes.resource.group_resource(), attributes.name, &message);
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

/// What expressions see of the request's namespace: null if there is none.
fn namespace(inner: &Inner, attributes: &Attributes<'_>) -> Cel {
    let key = attributes.namespace.map(|namespace| ObjectKey::new(None, namespace));
    let entry = key.and_then(|key| inner.store.get(&GroupResource::new("", "namespaces"), &key));
    let Some(mut namespace) = entry.map(|entry| entry.object()) else { return Cel::Null };
    namespace.metadata_mut().remove("managedFields");
    namespace.metadata_mut().remove("ownerReferences");
    let part = |field: &str| namespace.get(field).cloned().unwrap_or_else(|| json!({}));
    let status = json!({"phase": part("status")["phase"]});
    let seen = json!({"metadata": part("metadata"), "spec": part("spec"), "status": status});
    to_cel(None, &seen)
}
