//! `authorizer`: what an expression may ask about who may do what.
//!
//! A question is built up method by method (`authorizer.group('').resource('pods').check('get')`) and put to whoever
//! decides when it is complete. See <https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library>.

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Opaque, Value as Cel};
use kube_cel::cel::{Context, ExecutionError, ResolveResult};
use std::fmt;
use std::sync::Arc;

/// A question about who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// A path that is no resource.
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
    /// What is to be done.
    pub verb: String,
    /// The service account that asks, by namespace and name; else whoever sent the request does.
    pub account: Option<(String, String)>,
}

/// Decides a question; the text says why.
pub type Decide = dyn Fn(&Question) -> (bool, String) + Send + Sync;

/// A question that is being built up.
#[derive(Clone)]
struct Asking {
    question: Question,
    decide: Arc<Decide>,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.question.fmt(f)
    }
}

impl PartialEq for Asking {
    fn eq(&self, other: &Self) -> bool {
        self.question == other.question
    }
}

impl Eq for Asking {}

impl Opaque for Asking {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Authorizer"
    }
}

/// What was decided.
#[derive(Debug, PartialEq, Eq)]
struct Decided {
    allowed: bool,
    reason: String,
}

impl Opaque for Decided {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Decision"
    }
}

/// Makes the value of `authorizer`.
pub fn authorizer(decide: Arc<Decide>) -> Cel {
    Cel::Opaque(Arc::new(Asking { question: Question::default(), decide }))
}

fn asking(this: &Cel) -> Result<&Asking, ExecutionError> {
    match this {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Asking>().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn decided(this: &Cel) -> Result<&Decided, ExecutionError> {
    match this {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Decided>().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn with(this: &Cel, change: impl FnOnce(&mut Question)) -> ResolveResult {
    let mut asking = asking(this)?.clone();
    change(&mut asking.question);
    Ok(Cel::Opaque(Arc::new(asking)))
}

/// Adds the methods of questions and decisions.
pub(super) fn add(context: &mut Context<'_>) {
    type Text = Arc<String>;
    let text = |text: Text| String::clone(&text);
    context.add_function("path", move |This(this): This<Cel>, path: Text| {
        with(&this, |question| question.path = Some(text(path)))
    });
    context.add_function("group", move |This(this): This<Cel>, group: Text| {
        with(&this, |question| question.group = text(group))
    });
    context.add_function("resource", move |This(this): This<Cel>, resource: Text| {
        with(&this, |question| question.resource = text(resource))
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
    context.add_function("serviceAccount", move |This(this): This<Cel>, namespace: Text, name: Text| {
        with(&this, |question| question.account = Some((text(namespace), text(name))))
    });
    context.add_function("check", move |This(this): This<Cel>, verb: Text| -> ResolveResult {
        let mut asking = asking(&this)?.clone();
        asking.question.verb = text(verb);
        let (allowed, reason) = (asking.decide)(&asking.question);
        Ok(Cel::Opaque(Arc::new(Decided { allowed, reason })))
    });
    context.add_function("allowed", |This(this): This<Cel>| -> ResolveResult { Ok(decided(&this)?.allowed.into()) });
    context.add_function("errored", |This(this): This<Cel>| -> ResolveResult {
        decided(&this)?;
        Ok(false.into())
    });
    context.add_function("error", |This(this): This<Cel>| -> ResolveResult {
        decided(&this)?;
        Ok(String::new().into())
    });
    context
        .add_function("reason", |This(this): This<Cel>| -> ResolveResult { Ok(decided(&this)?.reason.clone().into()) });
}
