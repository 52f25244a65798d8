//! Admission policies in CEL, which the API server evaluates without a running operator.
//!
//! A [`Policy`] declares rules and defaults for the objects of one kind. The operator's `manifests` contain the
//! resulting `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy`, each with its binding; the API server
//! evaluates them. See <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>
//! and <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>.
//!
//! # Schema, policy or webhook
//!
//! - Rules that depend only on an object's own fields belong in the schema of a custom resource, as constants, ranges
//!   and `x-kubernetes-validations`.
//! - A policy is for other kinds, and for rules that depend on the user (`request`, `authorizer`), on the namespace
//!   (`namespaceObject`) or on label selectors. It needs no certificate and is also enforced while the operator is
//!   down.
//! - A [webhook](crate::webhook) is for rules that cannot be expressed in CEL, such as those that depend on other
//!   objects.
//!
//! # Installation
//!
//! The operator needs no permission for its policies. The user who applies the manifests must be allowed to `create`
//! and `patch` `validatingadmissionpolicies`, `mutatingadmissionpolicies` and the `…bindings` of both, in
//! `admissionregistration.k8s.io`. API servers support the former since 1.30, the latter since 1.36; earlier ones
//! need a webhook instead, because this crate does not evaluate CEL. The API server rejects invalid expressions when
//! the policy is applied. For some seconds after a kind is created, writes with a default are rejected with 503,
//! until all API servers serve the kind; a retry is sufficient.

mod manifests;

use crate::kind::{Kind, Resource};
use crate::webhook::{Scope, scope_methods};
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, Variable};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;
use std::fmt;
use std::marker::PhantomData;

/// CEL rules that the API server enforces on the objects of one kind before they are stored.
///
/// ```
/// use flyball::{Operator, policy::{Policy, Reason, Rule}};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let pages = Policy::<ConfigMap>::new()
///     .variable("titles", "object.?data.titles.orValue('').split(',')")
///     .defaults("data.size", "string(size(variables.titles))")
///     .validates(Rule::new("int(object.data.size) <= 10", "a site has ten pages at most"))
///     .validates(
///         Rule::new("oldObject == null || object.data.domain == oldObject.data.domain", "a site stays where it is")
///             .reason(Reason::Forbidden),
///     );
/// let manifests = Operator::new("pages").policy(pages).manifests();
/// assert!(manifests.iter().any(|manifest| manifest["kind"] == "ValidatingAdmissionPolicy"));
/// ```
///
/// # Guarantees
///
/// - It applies to creations and updates through any version of the kind, converted to the version of `T`, and not to
///   other subresources than the status, to that only [on request](Self::with_status).
/// - Defaults come first, in the order of declaration; each sees the result of those before it. Rules see the object
///   that will be stored, and the first violation is reported.
/// - Objects that are being deleted are excluded, since a rule must not prevent a deletion; they are included
///   [on request](Self::while_deleting).
/// - An expression that fails, for example at a missing field, rejects the write, unless the policy is
///   [`optional`](Self::optional).
#[doc(alias = "ValidatingAdmissionPolicy")]
#[doc(alias = "MutatingAdmissionPolicy")]
pub struct Policy<T> {
    declared: Declaration,
    kind: PhantomData<fn(T)>,
}

/// A policy whose type is erased.
pub(crate) struct Declaration {
    scope: Scope,
    variables: Vec<Variable>,
    mutations: Vec<Mutation>,
    rules: Vec<Rule>,
    /// True if the policy applies to objects that are being deleted as well.
    while_deleting: bool,
}

/// A change of an object.
enum Mutation {
    /// A missing field is set to the value of an expression.
    Default { path: String, value: String },
    /// The apply configuration that an expression returns is applied.
    ApplyConfiguration(String),
}

/// A condition on an object: a CEL expression that has to be true.
///
/// Its variables are `object`, `oldObject` (null when an object is created), `request`, `namespaceObject`, `authorizer`
/// and the `variables`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    expression: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_expression: Option<String>,
    reason: Reason,
}

/// Reason of a rejection, which determines its status code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Reason {
    /// 422: the object is invalid.
    #[default]
    Invalid,
    /// 403: the write is forbidden.
    Forbidden,
    /// 401: the write is forbidden for this user.
    Unauthorized,
    /// 413: the object is too large.
    RequestEntityTooLarge,
}

impl Rule {
    /// Creates a rule with the message of a violation.
    pub fn new(expression: impl Into<String>, message: impl Into<String>) -> Self {
        let (expression, message) = (expression.into(), message.into());
        Self { expression, message, message_expression: None, reason: Reason::Invalid }
    }

    /// Sets a CEL expression for the message; if it fails, the constant message is used.
    pub fn message_expression(mut self, expression: impl Into<String>) -> Self {
        self.message_expression = Some(expression.into());
        self
    }

    /// Sets the reason of a rejection: [`Reason::Invalid`] by default.
    pub fn reason(mut self, reason: Reason) -> Self {
        self.reason = reason;
        self
    }
}

impl<T: Resource> Policy<T> {
    /// Creates a policy without rules.
    pub fn new() -> Self {
        let scope = Scope::of::<T>();
        let (variables, mutations, rules) = (Vec::new(), Vec::new(), Vec::new());
        let declared = Declaration { scope, variables, mutations, rules, while_deleting: false };
        Self { declared, kind: PhantomData }
    }

    /// Rejects creations and updates that violate a rule.
    pub fn validates(mut self, rule: Rule) -> Self {
        self.declared.rules.push(rule);
        self
    }

    /// Sets a missing field to the value of an expression: `defaults("spec.replicas", "3")`.
    ///
    /// The path is written as in a [`FieldError`](crate::FieldError), with keys that are not names in brackets:
    /// `metadata.labels[example.com/tier]`. It does not lead into lists. Missing parents are created.
    pub fn defaults(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.declared.mutations.push(Mutation::Default { path: path.into(), value: value.into() });
        self
    }

    /// Applies the result of an expression as server-side apply does: `Object{spec: Object.spec{replicas:
    /// object.spec.replicas + 1}}`. It may be evaluated again for the same write, and must not change the object
    /// again.
    pub fn applies(mut self, expression: impl Into<String>) -> Self {
        self.declared.mutations.push(Mutation::ApplyConfiguration(expression.into()));
        self
    }

    /// Names an expression `variables.name` for the expressions after it.
    pub fn variable(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.declared.variables.push(Variable { name: name.into(), expression: expression.into() });
        self
    }

    /// Applies the policy to updates of the status as well: for kinds whose status determines the actions of an
    /// operator.
    #[doc(alias = "subresource")]
    pub fn with_status(mut self) -> Self {
        self.declared.scope.status = true;
        self
    }

    /// Applies the policy to objects that are being deleted as well, which anyone who may delete an object can keep
    /// with a finalizer. The rules have to accept the removal of finalizers, or the objects cannot be deleted.
    pub fn while_deleting(mut self) -> Self {
        self.declared.while_deleting = true;
        self
    }

    scope_methods!("policy", "for which an expression fails");

    pub(crate) fn declared(self) -> Declaration {
        self.declared
    }
}

impl<T: Resource> Default for Policy<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Policy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Declaration { scope, .. } = &self.declared;
        f.debug_struct("Policy")
            .field("kind", &scope.kind)
            .field("rules", &self.declared.describe())
            .finish_non_exhaustive()
    }
}

impl Declaration {
    pub(crate) fn kind(&self) -> &Kind {
        &self.scope.kind
    }

    /// Returns defaults and rules as text for people.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mutations = self.mutations.iter().map(|mutation| match mutation {
            Mutation::Default { path, value } => format!("{path} = {value}"),
            Mutation::ApplyConfiguration(expression) => expression.clone(),
        });
        mutations.chain(self.rules.iter().map(|rule| rule.expression.clone())).collect()
    }
}
