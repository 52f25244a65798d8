//! The target of a request: an object or a part of one.

use super::resource::Resource;
use crate::kinds::Part;
use flyball_core::{Object, ObjectKey, Status};
use std::sync::Arc;

/// An object of a resource, a part of it, or all objects of a namespace.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    /// Name in the path; none for a create.
    pub(crate) name: Option<String>,
    pub(crate) part: Part,
}

impl Target {
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_deref(), self.name())
    }

    /// Rejects an object that names another namespace than the path.
    pub(crate) fn check_namespace(&self, object: &Object) -> Result<(), Status> {
        match (object.namespace(), &self.namespace) {
            (Some(own), Some(namespace)) if own != namespace => Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            )),
            _ => Ok(()),
        }
    }

    /// Rejects an object that is not the one the path names.
    pub(crate) fn check_name(&self, object: &Object) -> Result<(), Status> {
        let name = self.name();
        self.check_namespace(object)?;
        if object.name().is_empty() {
            return Err(undeterminable(name));
        }
        if object.name() != name {
            let message =
                format!("the name of the object ({}) does not match the name on the URL ({name})", object.name());
            return Err(Status::bad_request(message));
        }
        Ok(())
    }
}

/// Creates the error (400) for an object without a name.
pub(crate) fn undeterminable(name: &str) -> Status {
    Status::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    ))
}
