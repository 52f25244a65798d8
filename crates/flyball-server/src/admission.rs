//! Admission: rules that look beyond the object itself.
//!
//! Runs on the computed candidate of a write, inside the registry's loop, and again if another write came first. First
//! all plugins may change the candidate, then all may refuse it. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>.

mod escalation;
mod limits;
mod namespace;
mod nodes;
mod pods;
mod quota;
mod services;
mod volumes;

pub(crate) use limits::whole;

use crate::auth::User;
use crate::kinds::Part;
use crate::registry::{Resource, Target, Writer};
use crate::server::Inner;
use flyball_core::{Object, Status};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

/// What admission knows of a write besides the object.
pub(crate) struct Attributes<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) part: Part,
    pub(crate) operation: Operation,
    pub(crate) user: &'a User,
    pub(crate) dry_run: bool,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(target: &'a Target, operation: Operation, writer: &Writer<'a>) -> Self {
        Self {
            resource: &target.resource,
            namespace: target.namespace.as_deref(),
            name: target.name.as_deref().unwrap_or_default(),
            part: target.part,
            operation,
            user: writer.user,
            dry_run: writer.options.dry_run,
        }
    }

    /// Tells whether the write is to a built-in kind.
    fn is(&self, group: &str, plural: &str) -> bool {
        self.resource.custom().is_none() && *self.resource.kind.group == *group && *self.resource.plural == *plural
    }
}

/// The plugins, in the order in which they run.
#[derive(Default)]
pub(crate) struct Admission;

impl Admission {
    /// Lets plugins change a candidate.
    #[expect(clippy::unused_async, reason = "webhooks will be called from here")]
    pub(crate) async fn admit(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        namespace::check(inner, attributes)?;
        if attributes.is("", "pods") && attributes.part == Part::Whole {
            match old {
                None => {
                    limits::admit(inner, attributes, object);
                    pods::admit(inner, attributes, object)?;
                }
                Some(old) => pods::admit_change(object, old),
            }
        }
        if attributes.operation == Operation::Create {
            volumes::admit(inner, attributes, object);
            nodes::admit(attributes, object);
        }
        if attributes.is("", "services") {
            services::allocate(inner, attributes, object, old)?;
        }
        Ok(())
    }

    /// Lets plugins refuse a candidate, or a deletion.
    pub(crate) async fn validate(
        &self,
        inner: &Inner,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        if attributes.operation == Operation::Delete {
            namespace::check(inner, attributes)?;
        }
        if let Some(object) = object {
            escalation::check(inner, attributes, object, old)?;
            limits::validate(inner, attributes, object)?;
            volumes::validate(inner, attributes, object, old)?;
            // The last one, as it takes something.
            quota::take(inner, attributes, object, old).await?;
        }
        Ok(())
    }
}
