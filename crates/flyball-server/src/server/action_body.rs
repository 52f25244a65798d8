//! The body of an action during admission: the action is executed, and the body is not stored.

use super::call::{Call, document, writer};
use crate::admission::{Attributes, Operation, Writer};
use crate::catalog::{Catalog, Resource, Target, decode};
use crate::registry::{Registry, managed};
use crate::request::options::{Write, WriteOptions};
use flyball_core::{Object, Status};
use std::sync::Arc;

/// The body of an action, with its user.
pub(super) struct ActionBody<'c> {
    pub(super) object: Object,
    pub(super) writer: Writer<'c>,
    kind: Arc<Resource>,
}

/// The body of an action after admission.
pub(super) struct AdmittedAction<'a> {
    pub(super) object: Object,
    attributes: Attributes<'a>,
}

impl<'c> ActionBody<'c> {
    /// Reads the body as an object of an action's kind.
    pub(super) fn read(call: &'c Call, target: &Target, kind: &str) -> Result<Self, Status> {
        Self::read_as(call, target, Catalog::action(kind))
    }

    /// Decodes the body as a review of the target's kind.
    pub(super) fn question(call: &'c Call, target: &Target) -> Result<Self, Status> {
        Self::read_as(call, target, target.resource.clone())
    }

    fn read_as(call: &'c Call, target: &Target, kind: Arc<Resource>) -> Result<Self, Status> {
        let options = WriteOptions::read(&call.query, Write::Create)?;
        let document = document(call, &kind)?;
        let decoded = decode::body(&kind, document, &call.body, options.field_validation)?;
        call.warnings.add(decoded.warnings);
        let mut object = decoded.object;
        target.check_namespace(&object)?;
        if let Some(namespace) = &target.namespace {
            object.metadata_mut().insert("namespace".into(), namespace.as_str().into());
        }
        Ok(Self { object, writer: writer(call, options), kind })
    }

    /// Returns the options of a connect request, from its query.
    pub(super) fn options(call: &'c Call, kind: &str, object: Object) -> Self {
        Self { object, writer: writer(call, WriteOptions::default()), kind: Catalog::action(kind) }
    }

    /// Runs mutating admission of the body.
    pub(super) async fn admit<'a>(
        self,
        registry: &Registry,
        target: &'a Target,
        subresource: &'static str,
        operation: Operation,
    ) -> Result<AdmittedAction<'a>, Status>
    where
        'c: 'a,
    {
        let Self { mut object, writer, kind } = self;
        if operation == Operation::Create {
            let now = registry.clock.now_rfc3339();
            managed::sign(&registry.catalog.get(), &kind, &mut object, &writer.manager, subresource, &now);
        }
        let attributes = Attributes::of_action(target, subresource, &kind, operation, &writer);
        registry.admission.admit(&attributes, Some(&mut object)).await?;
        Ok(AdmittedAction { object, attributes })
    }
}

impl AdmittedAction<'_> {
    /// Runs validating admission of the body.
    pub(super) async fn review(&self, registry: &Registry) -> Result<(), Status> {
        registry.admission.validate(&self.attributes, Some(&self.object)).await
    }
}
