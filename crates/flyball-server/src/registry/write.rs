//! What a write is: where it goes, who makes it, what it wants, what came of it.

use super::patch::Patch;
use super::resource::{Behaviour, Resource};
use crate::auth::User;
use crate::custom::schema_number;
use crate::kinds::Part;
use crate::request::options::WriteOptions;
use crate::response::Warnings;
use crate::server::Inner;
use crate::storage::{self, Entry, Revision};
use flyball_core::{Object, ObjectKey, Status};
use std::sync::Arc;

/// What a write goes to.
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

    /// Refuses an object that is not the one the path names.
    pub(crate) fn check_name(&self, object: &Object) -> Result<(), Status> {
        let name = self.name();
        if let (Some(own), Some(namespace)) = (object.namespace(), &self.namespace)
            && own != namespace
        {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
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

/// Says to a client why storage took no write, other than that another one came first.
pub(super) fn refusal(error: storage::Error) -> Status {
    match error {
        storage::Error::TooLarge { why } => Status::too_large(format!("Request entity too large: {why}")),
        // As a body is refused that is too deep to be read.
        storage::Error::TooDeep { why } => Status::bad_request(&*why),
        error => Status::internal(error),
    }
}

/// 400: an object does not say its name.
pub(crate) fn undeterminable(name: &str) -> Status {
    Status::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    ))
}

/// Who writes, and how.
pub(crate) struct Writer<'w> {
    pub(crate) user: &'w User,
    /// Name under which fields are owned.
    pub(crate) manager: String,
    pub(crate) options: WriteOptions,
    /// Takes what the writer is to be warned of, whatever comes of the write.
    pub(crate) warnings: &'w Warnings,
    /// Whether webhooks and policies look at the write: not at what the server does of itself.
    pub(crate) reviewed: bool,
}

impl<'w> Writer<'w> {
    /// The server itself, which may do anything and is not reviewed.
    pub(crate) fn server(user: &'w User, warnings: &'w Warnings) -> Self {
        Self { user, manager: "kube-apiserver".into(), options: WriteOptions::default(), warnings, reviewed: false }
    }
}

/// What a client wants an object to be.
pub(crate) enum Change {
    /// This.
    Replace(Object),
    /// What it is, patched.
    Patch(Patch),
    /// What it is, with this merged in.
    Apply(Object),
    /// What a function makes of it; for writes of the server's own.
    #[expect(clippy::type_complexity, reason = "spelled out once")]
    With(Box<dyn Fn(&mut Object) -> Result<(), Status> + Send + Sync>),
}

/// What came of a write.
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
    Shown(Box<Object>),
}

impl Inner {
    /// Makes the entry that holds an object that somebody wants stored, or refuses if there is too much of it.
    ///
    /// All that clients, webhooks, policies and controllers make of objects passes here.
    pub(super) fn bounded_entry(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        object: Object,
        revision: Revision,
        before: Option<&Arc<Entry>>,
    ) -> Result<Entry, storage::Error> {
        self.entry(resource, key, object, revision).bounded(before.map(|before| &**before))
    }

    /// Makes the entry that holds an object.
    pub(crate) fn entry(&self, resource: &Resource, key: &ObjectKey, mut object: Object, revision: Revision) -> Entry {
        let (schema, facts) = match &resource.behaviour {
            Behaviour::BuiltIn(kind) => {
                kind.stored.iter().for_each(|stored| (stored.write)(&mut object));
                (0, resource.facts(&object))
            }
            Behaviour::Custom(_) => {
                let stored = resource.stored_as(self);
                let stored = stored.as_deref().unwrap_or(resource);
                if stored.kind != resource.kind {
                    object = super::read::convert(resource, stored, object);
                }
                // What was written through another version may lack defaults of this one: they come with each read.
                let mut whole = object.clone();
                stored.default(&mut whole);
                let number = stored.schema_number;
                let number = if whole == object { number } else { schema_number::incomplete(number) };
                (number, stored.facts(&whole))
            }
        };
        Entry::new(key.clone(), object, revision, facts, schema)
    }
}
