//! `authorizer`: authorization checks in expressions.
//!
//! A check is built method by method (`authorizer.group('').resource('pods').check('get')`), and sent to the authorizer
//! when it is complete. See
//! <https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library>.

use super::typing::{BOOL, STRING, Type};
use flyball_core::names::{dns_label, dns_subdomain};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Opaque, Value as Cel};
use kube_cel::cel::{Context, ExecutionError, ResolveResult};
use std::fmt;
use std::sync::Arc;

/// An authorization check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationCheck {
    /// Non-resource path.
    pub path: Option<String>,
    /// Group of the resource.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Namespace, empty for all.
    pub namespace: String,
    /// Name of the object, empty for any.
    pub name: String,
    /// The operation.
    pub verb: String,
    /// The service account to check, by namespace and name; `None` for the user of the request.
    pub account: Option<(String, String)>,
}

/// A function that decides a check; the string is the reason.
pub type AuthorizeFn = dyn Fn(&AuthorizationCheck) -> (bool, String) + Send + Sync;

/// The stages of a check under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Authorizer => AUTHORIZER,
            Self::Path => PATH,
            Self::Group => GROUP,
            Self::Resource => RESOURCE,
        }
    }
}

const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
const PATH: &str = "kubernetes.authorization.PathCheck";
const GROUP: &str = "kubernetes.authorization.GroupCheck";
const RESOURCE: &str = "kubernetes.authorization.ResourceCheck";
const DECISION: &str = "kubernetes.authorization.Decision";

/// The variable of the check of the request itself, a field of `authorizer`.
pub(super) const REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// The type of `authorizer`.
pub const TYPE: Type<'_> = Type::Plain(AUTHORIZER);

/// Returns true if a type is one of the authorizer library.
pub(super) fn is_own(ty: &Type<'_>) -> bool {
    matches!(ty, Type::Plain(name) if name.starts_with("kubernetes.authorization."))
}

/// Returns the type of a field of `authorizer`.
pub(super) fn field<'s>(of: &Type<'_>, name: &str) -> Option<Type<'s>> {
    (of.is(AUTHORIZER) && name == "requestResource").then_some(Type::Plain(RESOURCE))
}

/// Returns the type of a method of a check or a decision; `None` if there is no such method.
pub(super) fn method<'s>(name: &str, target: &Type<'s>, arguments: &[Type<'s>]) -> Option<Type<'s>> {
    let Type::Plain(target) = target else { return None };
    let (count, result) = match (*target, name) {
        (AUTHORIZER, "path") => (1, Type::Plain(PATH)),
        (AUTHORIZER, "group") => (1, Type::Plain(GROUP)),
        (AUTHORIZER, "serviceAccount") => (2, TYPE),
        (GROUP, "resource") | (RESOURCE, "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector") => {
            (1, Type::Plain(RESOURCE))
        }
        (PATH | RESOURCE, "check") => (1, Type::Plain(DECISION)),
        (DECISION, "allowed" | "errored") => (0, BOOL),
        (DECISION, "error" | "reason") => (0, STRING),
        _ => return None,
    };
    let texts = arguments.iter().all(|argument| argument.is_dyn() || argument.is("string"));
    (texts && arguments.len() == count).then_some(result)
}

/// A check under construction.
#[derive(Clone)]
struct CheckBuilder {
    stage: Stage,
    question: AuthorizationCheck,
    decide: Arc<AuthorizeFn>,
}

impl fmt::Debug for CheckBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.question.fmt(f)
    }
}

impl PartialEq for CheckBuilder {
    fn eq(&self, other: &Self) -> bool {
        self.stage == other.stage && self.question == other.question
    }
}

impl Eq for CheckBuilder {}

impl Opaque for CheckBuilder {
    fn runtime_type_name(&self) -> &str {
        self.stage.name()
    }
}

/// The decision.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    allowed: bool,
    reason: String,
}

impl Opaque for Decision {
    fn runtime_type_name(&self) -> &str {
        DECISION
    }
}

/// Creates the value of `authorizer`.
pub(super) fn authorizer(decide: Arc<AuthorizeFn>) -> Cel {
    Cel::Opaque(Arc::new(CheckBuilder { stage: Stage::Authorizer, question: AuthorizationCheck::default(), decide }))
}

/// Creates the value of `authorizer.requestResource`: a check of the request's resource, without its verb.
pub(super) fn request_resource(question: AuthorizationCheck, decide: Arc<AuthorizeFn>) -> Cel {
    Cel::Opaque(Arc::new(CheckBuilder { stage: Stage::Resource, question, decide }))
}

fn check_builder(this: &Cel) -> Result<&CheckBuilder, ExecutionError> {
    match this {
        Cel::Opaque(opaque) => opaque.downcast_ref::<CheckBuilder>().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn decision(this: &Cel) -> Result<&Decision, ExecutionError> {
    match this {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Decision>().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// Advances a check from one stage to the next.
fn step(this: &Cel, from: Stage, to: Stage, change: impl FnOnce(&mut AuthorizationCheck)) -> ResolveResult {
    let mut check_builder = check_builder(this)?.clone();
    if check_builder.stage != from {
        return Err(ExecutionError::NoSuchOverload);
    }
    check_builder.stage = to;
    change(&mut check_builder.question);
    Ok(Cel::Opaque(Arc::new(check_builder)))
}

/// Changes the resource of a check.
fn with(this: &Cel, change: impl FnOnce(&mut AuthorizationCheck)) -> ResolveResult {
    step(this, Stage::Resource, Stage::Resource, change)
}

/// Rejects invalid arguments, with the messages of kube-apiserver.
fn need(fine: bool, function: &str, reason: &str) -> Result<(), ExecutionError> {
    if fine { Ok(()) } else { Err(ExecutionError::function_error(function, reason)) }
}

/// Adds the methods of checks and decisions.
pub(super) fn add(context: &mut Context<'_>) {
    type Text = Arc<String>;
    let text = |text: Text| String::clone(&text);
    context.add_function("path", move |This(this): This<Cel>, path: Text| {
        need(!path.is_empty(), "path", "path must not be empty")?;
        step(&this, Stage::Authorizer, Stage::Path, |question| question.path = Some(text(path)))
    });
    context.add_function("group", move |This(this): This<Cel>, group: Text| {
        step(&this, Stage::Authorizer, Stage::Group, |question| question.group = text(group))
    });
    context.add_function("resource", move |This(this): This<Cel>, resource: Text| {
        need(!resource.is_empty(), "resource", "resource must not be empty")?;
        step(&this, Stage::Group, Stage::Resource, |question| question.resource = text(resource))
    });
    context.add_function("subresource", move |This(this): This<Cel>, subresource: Text| {
        with(&this, |question| question.subresource = text(subresource))
    });
    context.add_function("namespace", move |This(this): This<Cel>, namespace: Text| {
        with(&this, |question| question.namespace = text(namespace))
    });
    context.add_function("name", move |This(this): This<Cel>, name: Text| {
        with(&this, |question| question.name = text(name))
    });
    // Selectors have no effect on the decision, as in upstream's RBAC: a restricted request is allowed if the
    // unrestricted one is.
    for selector in ["fieldSelector", "labelSelector"] {
        context.add_function(selector, |This(this): This<Cel>, _: Text| with(&this, |_| {}));
    }
    context.add_function("serviceAccount", move |This(this): This<Cel>, namespace: Text, name: Text| {
        need(dns_subdomain(&name).is_empty(), "serviceAccount", "Invalid service account name")?;
        need(dns_label(&namespace).is_empty(), "serviceAccount", "Invalid service account namespace")?;
        let account = Some((text(namespace), text(name)));
        step(&this, Stage::Authorizer, Stage::Authorizer, |question| question.account = account)
    });
    context.add_function("check", move |This(this): This<Cel>, verb: Text| -> ResolveResult {
        let mut check_builder = check_builder(&this)?.clone();
        if !matches!(check_builder.stage, Stage::Path | Stage::Resource) {
            return Err(ExecutionError::NoSuchOverload);
        }
        check_builder.question.verb = text(verb);
        let (allowed, reason) = (check_builder.decide)(&check_builder.question);
        Ok(Cel::Opaque(Arc::new(Decision { allowed, reason })))
    });
    context.add_function("allowed", |This(this): This<Cel>| -> ResolveResult { Ok(decision(&this)?.allowed.into()) });
    context.add_function("errored", |This(this): This<Cel>| -> ResolveResult {
        decision(&this)?;
        Ok(false.into())
    });
    context.add_function("error", |This(this): This<Cel>| -> ResolveResult {
        decision(&this)?;
        Ok(String::new().into())
    });
    context.add_function("reason", |This(this): This<Cel>| -> ResolveResult {
        Ok(decision(&this)?.reason.clone().into())
    });
}

#[cfg(test)]
mod tests {
    use super::super::{AUTHORIZER, Budget, Cel, Expression, Scope, check_among};
    use super::AuthorizationCheck;
    use std::sync::Arc;

    fn evaluate(expression: &str) -> Result<Cel, String> {
        let mut scope = Scope::new();
        let request = AuthorizationCheck {
            resource: "pods".into(),
            namespace: "a".into(),
            name: "x".into(),
            ..AuthorizationCheck::default()
        };
        let decide = |question: &AuthorizationCheck| match &question.account {
            Some((namespace, name)) => (true, format!("{namespace}/{name}")),
            None if question.path.is_some() => (question.path.as_deref() == Some("/healthz"), String::new()),
            None => {
                let AuthorizationCheck { resource, subresource, namespace, name, verb, .. } = question;
                (verb == "get", format!("{verb} {resource}/{subresource} {namespace}/{name}"))
            }
        };
        scope.set_authorizer(request, Arc::new(decide));
        let expression = Expression::new(expression);
        expression.run(&scope, &Budget::of_rules()).map_err(|error| expression.message(&error))
    }

    #[test]
    fn checks_are_built_by_chained_calls() {
        let cases = [
            ("authorizer.requestResource.check('get').reason()", "get pods/ a/x"),
            ("authorizer.requestResource.subresource('exec').name('y').check('get').reason()", "get pods/exec a/y"),
            (
                "authorizer.group('').resource('nodes').fieldSelector('a=b').labelSelector('?').check('list').reason()",
                "list nodes/ /",
            ),
            ("authorizer.serviceAccount('n', 's').group('').resource('x').check('get').reason()", "n/s"),
            ("string(authorizer.path('/healthz').check('get').allowed())", "true"),
            ("string(authorizer.requestResource.check('list').errored())", "false"),
            ("authorizer.requestResource.check('list').error()", ""),
        ];
        for (expression, response) in cases {
            assert_eq!(evaluate(expression), Ok(Cel::from(response)), "{expression}");
        }
    }

    #[test]
    fn invalid_checks_are_rejected() {
        let cases = [
            ("authorizer.path('').check('get').allowed()", "path must not be empty"),
            ("string(authorizer.path('').check('get').allowed())", "path must not be empty"),
            ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
            ("authorizer.serviceAccount('n', 'A B').path('/').check('get').allowed()", "Invalid service account name"),
            (
                "authorizer.serviceAccount('A', 'b').path('/').check('get').allowed()",
                "Invalid service account namespace",
            ),
            (
                "[1, 2, 3].all(i, authorizer.path('/healthz').check('get').allowed())",
                "operation cancelled: actual cost limit exceeded",
            ),
        ];
        for (expression, reason) in cases {
            let error = evaluate(expression).expect_err(expression);
            assert!(error.ends_with(&format!("resulted in error: {reason}")), "{expression}: {error}");
        }
    }

    #[test]
    fn chained_calls_have_distinct_types() {
        let check = |text: &str| check_among(text, &[("authorizer", AUTHORIZER)]).map(|result| result.to_string());
        assert_eq!(check("authorizer.requestResource.check('get').allowed()").as_deref(), Ok("bool"));
        let cases = [
            (
                "authorizer.path('/x').resource('x')",
                "1:31: found no matching overload for 'resource' applied to 'kubernetes.authorization.PathCheck.(string)'",
            ),
            (
                "authorizer.check('get')",
                "1:17: found no matching overload for 'check' applied to 'kubernetes.authorization.Authorizer.(string)'",
            ),
            (
                "authorizer.requestResource.check(1)",
                "1:33: found no matching overload for 'check' applied to 'kubernetes.authorization.ResourceCheck.(int)'",
            ),
            ("authorizer.foo", "1:11: unexpected failed resolution of 'kubernetes.authorization.Authorizer'"),
            (
                "has(authorizer.requestResource)",
                "1:4: unexpected failed resolution of 'kubernetes.authorization.Authorizer'",
            ),
        ];
        for (expression, reason) in cases {
            let error = check(expression).expect_err(expression);
            assert_eq!(error.lines().next(), Some(format!("ERROR: <input>:{reason}").as_str()), "{expression}");
        }
    }
}
