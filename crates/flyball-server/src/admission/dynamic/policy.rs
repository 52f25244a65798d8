//! Admission policies: rules in CEL that change or reject requests, with bindings that select where they apply.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/> and
//! <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>.

mod mutating;
mod validating;

pub(in crate::admission) use mutating::MutatingAdmissionPolicy;
pub(in crate::admission) use validating::ValidatingAdmissionPolicy;

use super::condition::{Conditions, scope};
use super::configured::ConfigurationCache;
use super::matching::Constraints;
use super::{Attributes, Environment, review};
use crate::catalog::Resource;
use crate::kinds::{Kind, NAMESPACE};
use crate::storage::Store;
use flyball_core::{LabelSelector, Object, ObjectKey};
use flyball_schema::cel::{Budget, Cel, Error, Expression, Scope, TotalBudget};
use flyball_schema::rules::to_cel;
use serde_json::{Value, json};
use std::sync::Arc;

/// The fields of both kinds of policies.
struct Policy {
    name: String,
    constraints: Constraints,
    conditions: Conditions,
    /// True if evaluation errors are ignored.
    ignored: bool,
    /// The kind of its parameters, by version and name.
    params: Option<(String, String)>,
    variables: Vec<(String, Expression)>,
}

/// The requests that a policy matches, and its failure policy.
struct Binding {
    name: String,
    policy: String,
    constraints: Constraints,
    params: Option<Value>,
    deny: bool,
    warn: bool,
}

/// The policies of one kind, with their bindings.
struct Policies<P> {
    policies: ConfigurationCache<P>,
    bindings: ConfigurationCache<Binding>,
}

type PoliciesAndBindings<P> = (Arc<Vec<P>>, Arc<Vec<Binding>>);

impl<P> Policies<P> {
    fn new(policies: &Kind, read: fn(&Object) -> P, bindings: &Kind) -> Self {
        Self {
            policies: ConfigurationCache::new(policies, read),
            bindings: ConfigurationCache::new(bindings, Binding::read),
        }
    }

    /// Returns true if a bound policy may match writes of a resource.
    fn may_match(&self, store: &Store, plural: &str) -> bool
    where
        P: AsRef<Policy>,
    {
        self.get(store).is_some_and(|(policies, bindings)| {
            let is_bound = |name: &str| bindings.iter().any(|binding| binding.policy == name);
            let may_match = |policy: &Policy| policy.constraints.may_match(plural) && is_bound(&policy.name);
            policies.iter().any(|policy| may_match(policy.as_ref()))
        })
    }

    /// Returns the current policies; `None` if there are none.
    fn get(&self, store: &Store) -> Option<PoliciesAndBindings<P>> {
        let policies = self.policies.get(store);
        (!policies.is_empty()).then(|| (policies, self.bindings.get(store)))
    }
}

/// A policy that matches a request, with one of its bindings and one parameter.
struct Invocation<'p, P> {
    policy: &'p P,
    binding: &'p Binding,
    param: Option<Object>,
    /// The version in which it reviews the objects.
    shown_as: Arc<Resource>,
}

/// The reason why a policy cannot review a request.
struct PolicyUnusable<'p, P> {
    policy: &'p P,
    binding: Option<&'p Binding>,
    why: String,
}

/// Finds the policies that match a request, in order.
async fn invocations<'p, P: AsRef<Policy>>(
    env: &Environment,
    (policies, bindings): (&'p [P], &'p [Binding]),
    attributes: &Attributes<'_>,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Vec<Result<Invocation<'p, P>, PolicyUnusable<'p, P>>> {
    let mut found = Vec::new();
    for policy in policies {
        let common = policy.as_ref();
        let bound: Vec<&Binding> = bindings.iter().filter(|binding| binding.policy == common.name).collect();
        if bound.is_empty() {
            continue;
        }
        let shown_as = match common.constraints.find(env, attributes, object, old) {
            Ok(Some(shown_as)) => shown_as,
            Ok(None) => continue,
            Err(_) if common.ignored => continue,
            Err(status) => {
                let why = format!("failed to configure policy: {status}");
                found.push(Err(PolicyUnusable { policy, binding: None, why }));
                continue;
            }
        };
        for binding in bound {
            let params = match binding.constraints.covers(env, attributes, object, old) {
                Ok(true) => common.collect(env, attributes, binding).await,
                Ok(false) => continue,
                Err(status) => Err(status.message),
            };
            match params {
                Ok(params) => found.extend(
                    params
                        .into_iter()
                        .map(|param| Ok(Invocation { policy, binding, param, shown_as: shown_as.clone() })),
                ),
                Err(_) if common.ignored => {}
                Err(why) => {
                    let why = format!("failed to configure binding: {why}");
                    found.push(Err(PolicyUnusable { policy, binding: Some(binding), why }));
                }
            }
        }
    }
    found
}

impl<P> Invocation<'_, P> {
    /// Returns the variables of the policy's expressions.
    fn scope(
        &self,
        env: &Environment,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Scope {
        let request = review::describe(attributes, &self.shown_as);
        let mut scope = scope(env, attributes, request, object, old);
        scope.set("params", self.param.as_ref().map_or(Cel::Null, |param| to_cel(None, param.as_value())));
        scope.set("namespaceObject", namespace(env, attributes));
        scope
    }
}

impl Policy {
    fn read(policy: &Object, spec: &Value) -> Self {
        let ignored = spec["failurePolicy"] == "Ignore";
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = &spec["paramKind"];
        Self {
            name: policy.name().to_owned(),
            constraints: Constraints::of_policy(&spec["matchConstraints"]),
            conditions: Conditions::read(&spec["matchConditions"], ignored),
            ignored,
            params: kind.is_object().then(|| (text(&kind["apiVersion"]), text(&kind["kind"]))),
            variables: spec["variables"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|variable| (text(&variable["name"]), Expression::new(&text(&variable["expression"]))))
                .collect(),
        }
    }

    /// Evaluates the variables in order; returns those that failed, with their errors.
    fn define(&self, scope: &mut Scope, total: &Arc<TotalBudget>) -> Vec<(String, String)> {
        let budget = Budget::of_rules().within(total);
        let mut broken = Vec::new();
        let mut values = Vec::new();
        for (name, expression) in &self.variables {
            scope.set_fields("variables", &values);
            // Unused variables are not evaluated.
            match expression.run(scope, &budget) {
                Ok(value) => values.push((name.clone(), value)),
                Err(error) => {
                    let cause = explain(error, &broken).to_string();
                    broken.push((name.clone(), cause));
                }
            }
        }
        scope.set_fields("variables", &values);
        broken
    }

    /// Finds the parameters of a binding; `None` means no parameter.
    async fn collect(
        &self,
        env: &Environment,
        attributes: &Attributes<'_>,
        binding: &Binding,
    ) -> Result<Vec<Option<Object>>, String> {
        let (Some((version, kind)), Some(params)) = (&self.params, &binding.params) else { return Ok(vec![None]) };
        let catalog = env.codec.catalog();
        let unknown = || format!("failed to find resource referenced by paramKind: '{version}, Kind={kind}'");
        let resource = catalog.served(version, kind).ok_or_else(unknown)?;
        let param_namespace = params["namespace"].as_str().filter(|namespace| !namespace.is_empty());
        let namespace = match (resource.namespaced, param_namespace, attributes.namespace_name()) {
            (false, Some(_), _) => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
            }
            (false, None, _) => None,
            (true, Some(param_namespace), _) => Some(param_namespace),
            (true, None, "") => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into()
                );
            }
            (true, None, own) => Some(own),
        };
        let entries = match params["name"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => env.store.get(&resource.table, &ObjectKey::new(namespace, name)).into_iter().collect(),
            None => {
                let selector = LabelSelector::from_value(&params["selector"]);
                let mut entries = env.store.list(&resource.table, namespace).entries;
                entries.retain(|entry| selector.matches(|label| entry.facts.label(label)));
                entries
            }
        };
        if entries.is_empty() && params["parameterNotFoundAction"] == "Deny" {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
        }
        let (entries, _memory) = env.codec.convert_all(resource, entries).await.map_err(|status| status.message)?;
        Ok(entries.iter().filter_map(|entry| Some(Some(env.codec.decode(resource, entry).ok()?))).collect())
    }
}

/// Replaces the error of a missing key by the one of the failed variable with this name.
fn explain(error: Error, broken: &[(String, String)]) -> Error {
    let Error::NoSuchKey(key) = &error else { return error };
    let Some((name, cause)) = broken.iter().find(|(name, _)| name == key) else { return error };
    Error::Function(format!("composited variable {name:?} fails to evaluate: {cause}"))
}

impl Binding {
    /// Reads a binding.
    fn read(binding: &Object) -> Self {
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
}

/// Returns the namespace of the request for expressions; null if there is none.
fn namespace(env: &Environment, attributes: &Attributes<'_>) -> Cel {
    let key = attributes.namespace.map(|namespace| ObjectKey::new(None, namespace));
    let entry = key.and_then(|key| env.store.get(&NAMESPACE.table(), &key));
    let Some(mut namespace) = entry.and_then(|entry| entry.object().ok()) else { return Cel::Null };
    namespace.metadata_mut().remove("managedFields");
    namespace.metadata_mut().remove("ownerReferences");
    let part = |field: &str| namespace.get(field).cloned().unwrap_or_else(|| json!({}));
    let status = json!({"phase": part("status")["phase"]});
    let seen = json!({"metadata": part("metadata"), "spec": part("spec"), "status": status});
    to_cel(None, &seen)
}
