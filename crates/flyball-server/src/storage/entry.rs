//! One state of one object.

use super::Revision;
use bytes::Bytes;
use flyball_core::{Object, ObjectKey};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::cell::RefCell;
use std::sync::Arc;

/// How much room for writing a thread keeps.
const KEPT: usize = 64 << 10;

/// One state of one object; never changed once made.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: ObjectKey,
    pub(crate) revision: Revision,
    /// The object as JSON, without `apiVersion` and `kind`: those depend on the version in which it is asked for.
    pub(crate) body: Bytes,
    /// What selects the object.
    pub(crate) facts: Facts,
    /// The schema that the object was written by, as its owner numbers schemas.
    pub(crate) schema: u64,
}

/// The decoded facts of an object by which lists and watches select it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Labels, in order.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the kind's selectable fields, in the order that the kind lists them.
    pub(crate) fields: Box<[Box<str>]>,
}

impl Facts {
    /// Takes the labels of an object, and the values of the fields that its kind can be selected by.
    pub(crate) fn of(object: &Object, fields: Vec<String>) -> Self {
        let labels = object.labels().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())));
        Self { labels: labels.collect(), fields: fields.into_iter().map(String::into_boxed_str).collect() }
    }

    /// Looks a label up.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }
}

/// Writes JSON down in just the memory that it takes: entries are what memory is full of. What is written grows in room
/// that is used again and again, since a vector that is cut to its size leaves the rest as holes that nothing fits.
fn written(value: &serde_json::Value) -> Bytes {
    thread_local! {
        static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    ROOM.with_borrow_mut(|room| {
        room.clear();
        serde_json::to_writer(&mut *room, value).expect("JSON values can be written");
        let body = Bytes::copy_from_slice(room);
        room.shrink_to(KEPT);
        body
    })
}

impl Entry {
    /// Writes an object down; its `apiVersion` and `kind` are left out.
    pub(crate) fn new(key: ObjectKey, mut object: Object, revision: Revision, facts: Facts, schema: u64) -> Self {
        object.remove("apiVersion");
        object.remove("kind");
        object.metadata_mut().insert("resourceVersion".into(), revision.to_string().into());
        Self { key, revision, body: written(object.as_value()), facts, schema }
    }

    /// Returns the same state at another revision, as a removal shows it.
    pub(crate) fn at(&self, revision: Revision) -> Self {
        Self::new(self.key.clone(), self.object(), revision, self.facts.clone(), self.schema)
    }

    /// Returns the same state, selected by other facts.
    pub(crate) fn selected_by(&self, facts: Facts) -> Self {
        let Self { key, revision, body, facts: _, schema } = self;
        Self { key: key.clone(), revision: *revision, body: body.clone(), facts, schema: *schema }
    }

    /// Reads the object; `apiVersion` and `kind` are not in it.
    pub(crate) fn object(&self) -> Object {
        let value: serde_json::Value = serde_json::from_slice(&self.body).expect("storage holds what it wrote");
        Object::try_from(value).expect("storage holds objects only")
    }

    /// Tells whether the object is to be deleted, without reading the rest of it.
    pub(crate) fn is_deleting(&self) -> bool {
        #[derive(serde::Deserialize)]
        struct Shell {
            metadata: Metadata,
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            deletion_timestamp: Option<IgnoredAny>,
        }
        let shell: Shell = serde_json::from_slice(&self.body).expect("storage holds what it wrote");
        shell.metadata.deletion_timestamp.is_some()
    }

    /// Returns the metadata of the object as JSON, as it was written down.
    pub(crate) fn metadata(&self) -> &[u8] {
        #[derive(serde::Deserialize)]
        struct Shell<'e> {
            #[serde(borrow)]
            metadata: &'e RawValue,
        }
        let shell: Shell<'_> = serde_json::from_slice(&self.body).expect("storage holds what it wrote");
        shell.metadata.get().as_bytes()
    }

    /// Returns how many bytes the entry keeps alive.
    pub(crate) fn size(self: &Arc<Self>) -> usize {
        self.body.len() + size_of::<Self>()
    }
}
