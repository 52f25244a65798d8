//! Writes: the change that is asked for, and its result.

use super::Registry;
use super::patch::Patch;
use crate::admission::{Edit, Editor, Writer};
use crate::auth::User;
use crate::catalog::Target;
use crate::response::Warnings;
use crate::storage::{self, Entry};
use flyball_core::{Object, Status};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Says to a client why storage took no write, other than that another one came first.
pub(super) fn refusal(error: storage::Error) -> Status {
    match error {
        storage::Error::TooLarge { why } => Status::too_large(format!("Request entity too large: {why}")),
        // As a body is refused that is too deep to be read.
        storage::Error::TooDeep { why } => Status::bad_request(&*why),
        error => Status::internal(error),
    }
}

/// A change of an object, as a client asks for it.
pub(crate) enum Change {
    /// This.
    Replace(Object),
    /// The object as it is, patched.
    Patch(Patch),
    /// The object as it is, with this one merged in.
    Apply(Object),
    /// The result of a function on it; for writes of the server's own.
    With(Edit),
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) object: Written,
    pub(crate) created: bool,
}

/// An object that was written, or would have been.
#[derive(Debug)]
pub(crate) enum Written {
    Stored(Arc<Entry>),
    /// A dry run's, or one that ceased to be with this write.
    Unstored(Box<Object>),
}

impl Editor for Registry {
    fn edit<'a>(&'a self, target: &'a Target, user: &'a User, edit: Edit) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let warnings = Warnings::default();
            self.change(target, &Change::With(edit), &Writer::server(user, &warnings)).await.map(drop)
        })
    }
}
