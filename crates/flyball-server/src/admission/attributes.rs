//! Attributes: the request that admission checks, besides its object.

use crate::auth::User;
use crate::catalog::{Catalog, Resource, Target};
use crate::kinds::{Kind, NAMESPACE, POD, Part};
use crate::request::options::{DeleteOptions, WriteOptions};
use crate::response::Warnings;
use flyball_core::{Object, Status};
use flyball_schema::cel::TotalBudget;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// A connection to a container or a service.
    Connect,
}

impl Operation {
    /// The name in rules and reviews.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The attributes of a request besides its object.
pub(crate) struct Attributes<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) part: Part,
    pub(super) subresource: &'static str,
    /// The kind of the body, if it is not that of the stored object: a scale, a binding, options of a connection.
    pub(super) sent: Option<Arc<Resource>>,
    /// The object before the write.
    pub(crate) old: Option<&'a Object>,
    pub(crate) operation: Operation,
    pub(crate) user: &'a User,
    /// True if the write is a dry run.
    pub(crate) dry_run: bool,
    /// The options of the request, for webhooks and policies.
    pub(super) options: Value,
    pub(crate) warnings: &'a Warnings,
    /// True if webhooks and policies review the write.
    reviewed: bool,
    /// The cost budget of all expressions of webhooks and policies.
    pub(super) budget: Arc<TotalBudget>,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(target: &'a Target, operation: Operation, writer: &Writer<'a>) -> Self {
        Self {
            resource: &target.resource,
            namespace: target.namespace.as_deref(),
            name: target.name.as_deref().unwrap_or_default(),
            part: target.part,
            subresource: target.part.name(),
            old: None,
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
            budget: Arc::default(),
        }
    }

    /// Replaces the name of the path.
    pub(crate) fn with_name(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    /// Sets the object before the write.
    pub(crate) fn with_old(self, old: &'a Object) -> Self {
        Self { old: Some(old), ..self }
    }

    /// Returns the attributes of a deletion.
    pub(crate) fn of_deletion(target: &'a Target, options: &DeleteOptions, writer: &Writer<'a>) -> Self {
        Self { dry_run: options.dry_run, options: options.as_value(), ..Self::new(target, Operation::Delete, writer) }
    }

    /// Returns the attributes of an action, such as a binding, an eviction or a connection.
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

    /// Returns true if the body is an action, which is not stored.
    pub(super) fn is_action(&self) -> bool {
        self.sent.is_some() && self.part != Part::Scale
    }

    /// The namespace of the request; for a request for a namespace, its own name.
    pub(super) fn namespace_name(&self) -> &str {
        if self.is(&NAMESPACE) { self.name } else { self.namespace.unwrap_or_default() }
    }

    /// The name of the object in errors.
    pub(crate) fn known_name(&self) -> &str {
        if self.name.is_empty() { "Unknown" } else { self.name }
    }

    /// Rejects the request.
    pub(super) fn forbidden(&self, why: impl std::fmt::Display) -> Status {
        Status::forbidden(&self.resource.group_resource(), self.known_name(), why)
    }

    /// Rejects the request if its expressions exceed their budget, regardless of failure policies: an expensive policy
    /// must not disable others.
    pub(super) fn check_budget(&self) -> Result<(), Status> {
        let why = "the expressions of admission policies and webhooks exceed the cost budget of one request";
        if self.budget.is_exceeded() { Err(self.forbidden(why)) } else { Ok(()) }
    }

    /// Returns true if webhooks see the request.
    pub(super) fn is_seen_by_webhooks(&self) -> bool {
        self.reviewed && !self.resource.is_exempt_from_webhooks()
    }

    /// Returns true if policies see the request.
    pub(super) fn is_seen_by_policies(&self) -> bool {
        self.reviewed && !self.resource.is_exempt_from_policies()
    }

    /// Returns true if an object of a built-in kind is written, or a part of it.
    pub(super) fn writes(&self, kind: &Kind) -> bool {
        !self.is_action() && self.is(kind)
    }

    /// Returns true if an object of a built-in kind is created.
    pub(super) fn creates(&self, kind: &Kind) -> bool {
        self.operation == Operation::Create && self.writes(kind)
    }

    /// Returns true if the request sets the resources of a pod: by its creation or a resize.
    pub(super) fn sizes_pod(&self) -> bool {
        self.creates(&POD) || self.operation == Operation::Update && self.part == Part::Resize && self.writes(&POD)
    }

    /// Returns true if the request is about a built-in kind.
    pub(super) fn is(&self, kind: &Kind) -> bool {
        self.resource.is(kind)
    }
}

/// The user of a write, and its options.
pub(crate) struct Writer<'w> {
    pub(crate) user: &'w User,
    /// The field manager.
    pub(crate) manager: String,
    /// The program, as its `User-Agent`.
    pub(crate) agent: &'w str,
    /// The verb of the request.
    pub(crate) verb: &'w str,
    pub(crate) options: WriteOptions,
    /// Collects warnings, also if the write fails.
    pub(crate) warnings: &'w Warnings,
    /// True if webhooks and policies review the write; false for the server's own writes.
    pub(crate) reviewed: bool,
}

impl<'w> Writer<'w> {
    /// The server itself, which has all permissions and is not reviewed.
    pub(crate) fn server(user: &'w User, warnings: &'w Warnings) -> Self {
        let (manager, options) = ("kube-apiserver".into(), WriteOptions::default());
        Self { user, manager, agent: "kube-apiserver", verb: "update", options, warnings, reviewed: false }
    }
}

/// Reinvocation: the webhooks and policies that must run again, since others changed the request after them.
#[derive(Default)]
pub(crate) struct Reinvocation {
    /// True in the second round, which follows if the request was changed after a plugin with reinvocation ran.
    pub(super) again: bool,
    pub(super) is_due: bool,
    /// Webhooks and policies with reinvocation that ran after the last change.
    settled: BTreeSet<String>,
    /// Webhooks and policies after which the object was changed.
    outdated: BTreeSet<String>,
}

impl Reinvocation {
    /// Returns true if a webhook or policy must run in this round.
    pub(super) fn must_run(&self, id: &str) -> bool {
        !self.again || self.outdated.contains(id)
    }

    /// Records that one ran.
    pub(super) fn record_run(&mut self, id: &str, reinvoked: bool, changed: bool) {
        if changed {
            self.outdated.append(&mut self.settled);
            self.is_due = true;
        }
        if reinvoked {
            self.settled.insert(id.to_owned());
        }
    }
}
