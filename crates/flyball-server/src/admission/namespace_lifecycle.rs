//! NamespaceLifecycle: rejects objects of missing and terminating namespaces.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#namespacelifecycle>.

use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, decided};
use crate::kinds::NAMESPACE;
use crate::storage::Store;
use flyball_core::status::Cause;
use flyball_core::{Object, ObjectKey, Status};
use std::sync::Arc;

/// Namespaces that a cluster requires.
const PROTECTED_NAMESPACES: [&str; 2] = ["default", "kube-system"];

/// Checks the namespace of requests.
pub(super) struct NamespaceLifecycle {
    store: Arc<Store>,
}

impl NamespaceLifecycle {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Plugin for NamespaceLifecycle {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        _: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        decided(check(&self.store, attributes))
    }
}

fn check(store: &Store, attributes: &Attributes<'_>) -> Result<(), Status> {
    let namespaces = NAMESPACE.table();
    if attributes.is(&NAMESPACE) {
        if attributes.operation == Operation::Delete && PROTECTED_NAMESPACES.contains(&attributes.name) {
            return Err(attributes.forbidden("this namespace may not be deleted"));
        }
        return Ok(());
    }
    if attributes.resource.review().is_some() {
        // A review is not stored, and needs no namespace.
        return Ok(());
    }
    let (Operation::Create, Some(namespace), true) =
        (attributes.operation, attributes.namespace, attributes.resource.namespaced)
    else {
        return Ok(());
    };
    let Some(entry) = store.get(&namespaces, &ObjectKey::new(None, namespace)) else {
        return Err(Status::not_found(&namespaces, namespace));
    };
    if !entry.is_deleting() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = attributes.forbidden(why);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
    }
    Err(status)
}
