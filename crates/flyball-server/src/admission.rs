//! Admission: rules that look beyond the object itself.
//!
//! Runs on the computed candidate of a write, inside the registry's loop, and again if another write came first. First
//! all plugins may change the candidate, then all may refuse it. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

mod certificates;
mod condition;
mod configured;
mod devices;
mod escalation;
mod limits;
mod matching;
mod namespace;
mod nodes;
mod pods;
mod policy;
mod quota;
mod review;
mod services;
mod volumes;
mod webhook;

pub(crate) use limits::whole;

use crate::auth::User;
use crate::kinds::Part;
use crate::registry::{Catalog, Resource, Target, Writer, scale};
use crate::request::options::DeleteOptions;
use crate::response::Warnings;
use crate::server::Inner;
use configured::Configured;
use flyball_core::{Object, Status};
use policy::{Binding, Mutating, Validating};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use webhook::Webhook;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// A connection is asked for, to what runs in a container or behind a service.
    Connect,
}

impl Operation {
    /// The name in rules and reviews.
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// What admission knows of a write besides the object.
pub(crate) struct Attributes<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) part: Part,
    subresource: &'static str,
    /// The kind of what is sent, where that is not what is kept: a scale, a binding, a command for a container.
    sent: Option<Arc<Resource>>,
    pub(crate) operation: Operation,
    pub(crate) user: &'a User,
    /// Whether nothing is to come of the write.
    pub(crate) dry_run: bool,
    /// The options of the request, as webhooks and policies are shown them.
    options: Value,
    warnings: &'a Warnings,
    /// Whether webhooks and policies look at the write.
    reviewed: bool,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(target: &'a Target, operation: Operation, writer: &Writer<'a>) -> Self {
        Self {
            resource: &target.resource,
            namespace: target.namespace.as_deref(),
            name: target.name.as_deref().unwrap_or_default(),
            part: target.part,
            subresource: target.part.name(),
            sent: (target.part == Part::Scale).then(|| Catalog::action("Scale")),
            operation,
            user: writer.user,
            dry_run: writer.options.dry_run,
            options: writer.options.as_value(if operation == Operation::Create {
                "CreateOptions"
            } else {
                "UpdateOptions"
            }),
            warnings: writer.warnings,
            reviewed: writer.reviewed,
        }
    }

    /// What admission knows of a deletion.
    pub(crate) fn of_deletion(target: &'a Target, options: &DeleteOptions, writer: &Writer<'a>) -> Self {
        Self { dry_run: options.dry_run, options: options.as_value(), ..Self::new(target, Operation::Delete, writer) }
    }

    /// What admission knows of an action: what is done with an object other than writing it.
    pub(crate) fn of_action(
        target: &'a Target,
        subresource: &'static str,
        sent: &Arc<Resource>,
        operation: Operation,
        writer: &Writer<'a>,
    ) -> Self {
        let attributes = Self::new(target, operation, writer);
        let options = if operation == Operation::Connect { Value::Null } else { attributes.options };
        Self { subresource, sent: Some(sent.clone()), options, ..attributes }
    }

    /// Tells whether what is sent is acted upon, and not kept.
    fn is_action(&self) -> bool {
        self.sent.is_some() && self.part != Part::Scale
    }

    /// The namespace of the request: a namespace's own is itself.
    fn namespace_name(&self) -> &str {
        if self.is("", "namespaces") { self.name } else { self.namespace.unwrap_or_default() }
    }

    /// The name by which a refusal calls what it is about.
    fn known_name(&self) -> &str {
        if self.name.is_empty() { "Unknown" } else { self.name }
    }

    fn subresource(&self) -> &'static str {
        self.subresource
    }

    fn is_seen_by_webhooks(&self) -> bool {
        self.reviewed && !matching::is_exempt(self.resource)
    }

    fn is_seen_by_policies(&self) -> bool {
        self.reviewed && !matching::is_exempt_from_policies(self.resource)
    }

    /// Tells whether the write is to a built-in kind.
    fn is(&self, group: &str, plural: &str) -> bool {
        self.resource.custom().is_none() && *self.resource.kind.group == *group && *self.resource.plural == *plural
    }
}

/// Shows the objects of a request in one version, and as the part that is written.
async fn shown(
    inner: &Inner,
    attributes: &Attributes<'_>,
    shown_as: &Resource,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(Option<Object>, Option<Object>), Status> {
    let show = async |object: Option<&Object>| match object {
        None => Ok(None),
        Some(object) if attributes.part == Part::Scale => scale::of(attributes.resource, object).map(Some),
        Some(object) if attributes.is_action() => Ok(Some(object.clone())),
        Some(object) => inner.as_version(attributes.resource, shown_as, object.clone()).await.map(Some),
    };
    Ok((show(object).await?, show(old).await?))
}

/// Makes of what a webhook or a policy left what the request writes.
async fn take_back(
    inner: &Inner,
    attributes: &Attributes<'_>,
    shown_as: &Resource,
    patched: Object,
    object: &mut Object,
) -> Result<(), Status> {
    if attributes.part == Part::Scale {
        return scale::write(attributes.resource, object, &patched);
    }
    if attributes.is_action() {
        *object = patched;
        return Ok(());
    }
    *object = inner.as_version(shown_as, attributes.resource, patched).await?;
    Ok(())
}

/// How often those that change a request have been asked.
#[derive(Default)]
pub(super) struct Rounds {
    /// Whether all are run for the second time, since something changed the request after others had seen it.
    again: bool,
    wanted: bool,
    /// Those that want to see later changes, and were asked after the last one.
    settled: BTreeSet<String>,
    /// Those that something changed the request behind.
    outdated: BTreeSet<String>,
}

impl Rounds {
    /// Tells whether one is to be asked in this round.
    fn asks(&self, id: &str) -> bool {
        !self.again || self.outdated.contains(id)
    }

    /// Notes that one was asked.
    fn asked(&mut self, id: &str, reinvoked: bool, changed: bool) {
        if changed {
            self.outdated.append(&mut self.settled);
            self.wanted = true;
        }
        if reinvoked {
            self.settled.insert(id.to_owned());
        }
    }
}

/// The plugins, in the order in which they run.
pub(crate) struct Admission {
    mutating: Configured<Vec<Webhook>>,
    validating: Configured<Vec<Webhook>>,
    mutating_policies: Configured<Mutating>,
    mutating_bindings: Configured<Binding>,
    policies: Configured<Validating>,
    bindings: Configured<Binding>,
    draws: services::Draws,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            mutating: Configured::new("mutatingwebhookconfigurations", webhook::read),
            validating: Configured::new("validatingwebhookconfigurations", webhook::read),
            mutating_policies: Configured::new("mutatingadmissionpolicies", Mutating::read),
            mutating_bindings: Configured::new("mutatingadmissionpolicybindings", Binding::read),
            policies: Configured::new("validatingadmissionpolicies", Validating::read),
            bindings: Configured::new("validatingadmissionpolicybindings", Binding::read),
            draws: services::Draws::default(),
        }
    }
}

impl Admission {
    /// Lets plugins change a candidate.
    pub(crate) async fn admit(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        let mut rounds = Rounds::default();
        self.admit_once(inner, attributes, &mut rounds, object, old).await?;
        if rounds.wanted {
            rounds.again = true;
            self.admit_once(inner, attributes, &mut rounds, object, old).await?;
        }
        Ok(())
    }

    async fn admit_once(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        rounds: &mut Rounds,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        namespace::check(inner, attributes)?;
        if attributes.is_action() {
            return self.ask_mutating(inner, attributes, rounds, object, old).await;
        }
        if attributes.is("", "pods") && attributes.part == Part::Whole {
            match old {
                None => {
                    limits::admit(inner, attributes, object)?;
                    pods::admit(inner, attributes, object)?;
                }
                Some(old) => pods::admit_change(object, old),
            }
        }
        if attributes.operation == Operation::Create {
            volumes::admit(inner, attributes, object);
            nodes::admit(attributes, object);
            certificates::admit(attributes, object);
        }
        self.ask_mutating(inner, attributes, rounds, object, old).await?;
        if attributes.is("", "services") {
            services::allocate(inner, &self.draws, attributes, object, old)?;
        }
        Ok(())
    }

    /// Lets what users configured change a request.
    async fn ask_mutating(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        rounds: &mut Rounds,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        if attributes.is_seen_by_policies() {
            let policies = (self.mutating_policies.get(&inner.store), self.mutating_bindings.get(&inner.store));
            policy::mutate(inner, (&policies.0, &policies.1), attributes, rounds, object, old).await?;
        }
        if attributes.is_seen_by_webhooks() {
            let hooks = self.mutating.get(&inner.store);
            webhook::mutate(inner, &hooks, attributes, rounds, Some(object), old).await?;
        }
        Ok(())
    }

    /// Lets plugins refuse a candidate.
    pub(crate) async fn validate(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        object: &Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        escalation::check(inner, attributes, object, old)?;
        certificates::check(inner, attributes, object, old)?;
        limits::validate(inner, attributes, object)?;
        volumes::validate(inner, attributes, object, old)?;
        devices::check(inner, attributes, object, old)?;
        self.review(inner, attributes, Some(object), old).await?;
        // The last one, as it takes something.
        quota::take(inner, attributes, object, old).await
    }

    /// Lets plugins refuse a deletion.
    pub(crate) async fn validate_deletion(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        old: &Object,
    ) -> Result<(), Status> {
        namespace::check(inner, attributes)?;
        if attributes.is_seen_by_webhooks() {
            let hooks = self.mutating.get(&inner.store);
            webhook::mutate(inner, &hooks, attributes, &mut Rounds::default(), None, Some(old)).await?;
        }
        self.review(inner, attributes, None, Some(old)).await
    }

    /// Lets what users configured refuse a request; for an action, that is all there is to ask.
    pub(crate) async fn review(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        if attributes.is_seen_by_policies() {
            let (policies, bindings) = (self.policies.get(&inner.store), self.bindings.get(&inner.store));
            policy::validate(inner, (&policies, &bindings), attributes, object, old).await?;
        }
        if attributes.is_seen_by_webhooks() {
            webhook::validate(inner, &self.validating.get(&inner.store), attributes, object, old).await?;
        }
        Ok(())
    }
}
