//! Entries: states of objects, with size limits.
//!
//! The limits of writes are enforced here, after all stages that change objects (defaults, patches, admission, managed
//! fields). The limits of reads are higher, so that every stored object can be read.

use super::identity::Identity;
use super::past::{PastBytes, PastState};
use super::{Error, Revision};
use crate::limits;
use bytes::Bytes;
use flyball_core::json::{self, Members};
use flyball_core::{Object, ObjectKey};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

/// Size of the buffer that a thread keeps for encoding, in bytes.
const RETAINED_BUFFER_BYTES: usize = 64 << 10;

/// Maximum nesting depth of a stored object. JSON parsers accept up to 127 levels, and lists, events and reviews add a
/// few levels.
pub(crate) const MAX_DEPTH: u8 = 120;

/// Maximum number of bytes of a written object: the limit of request bodies.
pub(crate) const MAX_BYTES: usize = limits::MAX_BODY_BYTES;

/// The reason why a stored object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored object cannot be read: {why}")]
pub(crate) struct EntryError {
    why: String,
}

/// An immutable state of an object.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: ObjectKey,
    pub(crate) revision: Revision,
    /// The object as JSON, without `apiVersion` and `kind`, which depend on the requested version.
    pub(crate) body: Bytes,
    /// The decoded fields that select the object.
    pub(crate) facts: SelectableFields,
    /// The number of the schema of the write, assigned by the owner of the schemas.
    pub(crate) schema: u64,
    /// The depth of the object.
    pub(crate) depth: u8,
    /// Set when the entry is neither current nor in a window any more.
    pub(crate) past: OnceLock<PastState>,
    /// Decoded when a token is verified by the object.
    pub(crate) identity: OnceLock<Option<Box<Identity>>>,
}

/// The decoded fields of an object by which lists and watches select it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SelectableFields {
    /// Labels, in order.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the kind's selectable fields, in the order of the kind.
    pub(crate) fields: Box<[Box<str>]>,
}

impl SelectableFields {
    /// Returns the labels of an object and the values of its selectable fields.
    pub(crate) fn of(object: &Object, fields: Vec<String>) -> Self {
        let labels = object.labels().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())));
        Self { labels: labels.collect(), fields: fields.into_iter().map(String::into_boxed_str).collect() }
    }

    /// Returns the value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }
}

/// Encodes JSON into an exactly sized buffer, because entries use most of the memory. Encoding uses a reusable buffer,
/// because shrinking a vector would fragment the heap.
///
/// Also returns the nesting depth.
fn written(value: &serde_json::Value) -> (Bytes, u8) {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|room| {
        room.clear();
        let mut depth = Depth::default();
        let mut serializer = serde_json::Serializer::with_formatter(&mut *room, &mut depth);
        serde::Serialize::serialize(value, &mut serializer).expect("JSON values can be written");
        let body = Bytes::copy_from_slice(room);
        room.shrink_to(RETAINED_BUFFER_BYTES);
        (body, depth.deepest)
    })
}

/// A writer of JSON without white space that records the nesting depth.
#[derive(Default)]
struct Depth {
    now: u8,
    deepest: u8,
}

impl Depth {
    fn down(&mut self) {
        self.now = self.now.saturating_add(1);
        self.deepest = self.deepest.max(self.now);
    }
}

impl serde_json::ser::Formatter for &mut Depth {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.down();
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.now = self.now.saturating_sub(1);
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.down();
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.now = self.now.saturating_sub(1);
        writer.write_all(b"}")
    }
}

/// Parses a value without building it, and returns its nesting depth.
struct Measure;

impl<'de> DeserializeSeed<'de> for Measure {
    type Value = u8;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u8, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Measure {
    type Value = u8;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<u8, E> {
        Ok(0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<u8, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<u8, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<u8, E> {
        Ok(0)
    }

    fn visit_str<E>(self, _: &str) -> Result<u8, E> {
        Ok(0)
    }

    fn visit_unit<E>(self) -> Result<u8, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<u8, A::Error> {
        let mut deepest = 0;
        while let Some(depth) = access.next_element_seed(Self)? {
            deepest = deepest.max(depth);
        }
        Ok(deepest.saturating_add(1))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<u8, A::Error> {
        let mut deepest = 0;
        while let Some((_, depth)) = access.next_entry_seed(Self, Self)? {
            deepest = deepest.max(depth);
        }
        Ok(deepest.saturating_add(1))
    }
}

/// Parses the body of an object without building it, and returns its nesting depth.
pub(crate) fn measure(body: &[u8]) -> Result<u8, EntryError> {
    let unreadable = |error: serde_json::Error| EntryError { why: error.to_string() };
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let depth = Measure.deserialize(&mut deserializer).map_err(unreadable)?;
    deserializer.end().map_err(unreadable)?;
    if has_metadata(body) { Ok(depth) } else { Err(EntryError { why: "it is not an object with metadata".into() }) }
}

/// Returns true if valid JSON is an object whose metadata is an object as well.
fn has_metadata(body: &[u8]) -> bool {
    let Ok(mut members) = Members::new(body, 0) else { return false };
    let mut count = 0;
    while let Ok(Some(member)) = members.next() {
        if json::text(&body[member.key.start - 1..=member.key.end]).as_deref() == Some("metadata") {
            count += 1;
            if body[member.value.start] != b'{' {
                return false;
            }
        }
    }
    count == 1
}

impl Entry {
    /// Encodes an object without `apiVersion` and `kind`.
    pub(crate) fn new(
        key: ObjectKey,
        object: Object,
        revision: Revision,
        facts: SelectableFields,
        schema: u64,
    ) -> Self {
        Self::with(key, object, revision, |_| (facts, schema))
    }

    /// Encodes an object without `apiVersion` and `kind`. `describe` returns its selectable fields and the number of
    /// its schema.
    pub(crate) fn with(
        key: ObjectKey,
        mut object: Object,
        revision: Revision,
        describe: impl FnOnce(Object) -> (SelectableFields, u64),
    ) -> Self {
        object.remove("apiVersion");
        object.remove("kind");
        object.metadata_mut().insert("resourceVersion".into(), revision.to_string().into());
        let (body, depth) = written(object.as_value());
        let (facts, schema) = describe(object);
        Self { key, revision, body, facts, schema, depth, past: OnceLock::new(), identity: OnceLock::new() }
    }

    /// Creates an entry from its stored form, without selectable fields and depth.
    pub(super) fn recovered(key: ObjectKey, revision: Revision, schema: u64, body: &[u8]) -> Self {
        let (body, facts) = (Bytes::copy_from_slice(body), SelectableFields::default());
        Self { key, revision, body, facts, schema, depth: 0, past: OnceLock::new(), identity: OnceLock::new() }
    }

    /// Rejects an entry that exceeds the limits, unless the previous entry exceeded them at least as much.
    pub(crate) fn bounded(self, before: Option<&Self>) -> Result<Self, Error> {
        let grows = |size: fn(&Self) -> usize| before.is_none_or(|before| size(before) < size(&self));
        let (bytes, depth) = (self.body.len(), self.depth);
        let name = self.key.name();
        if bytes > MAX_BYTES && grows(|entry| entry.body.len()) {
            let why = format!(
                "{name:?} is too large: with its managed fields it has {bytes} bytes; at most {MAX_BYTES} are stored"
            );
            return Err(Error::TooLarge { why: why.into() });
        }
        if depth > MAX_DEPTH && grows(|entry| entry.depth.into()) {
            let why = format!(
                "{name:?} is nested {depth} levels deep with its managed fields; at most {MAX_DEPTH} levels are stored"
            );
            return Err(Error::TooDeep { why: why.into() });
        }
        if limits::excess(&self.body).is_some() && grows(|entry| limits::excess(&entry.body).unwrap_or_default()) {
            return Err(Error::TooLarge { why: limits::too_much_memory(name).into() });
        }
        Ok(self)
    }

    /// Returns the same state at another revision, for a removal.
    pub(crate) fn at(&self, revision: Revision) -> Self {
        Self {
            key: self.key.clone(),
            revision,
            body: self.body_at(revision).unwrap_or_else(|| self.body.clone()),
            facts: self.facts.clone(),
            schema: self.schema,
            depth: self.depth,
            past: OnceLock::new(),
            identity: OnceLock::new(),
        }
    }

    /// Replaces the resource version in the stored JSON; `None` if it has none.
    fn body_at(&self, revision: Revision) -> Option<Bytes> {
        let find = |at, field| Members::new(&self.body, at).ok()?.find(field).ok()?;
        let start = find(find(0, "metadata")?, "resourceVersion")?;
        let end = json::value_end(&self.body, start).ok()?;
        let version = format!("\"{revision}\"");
        Some([&self.body[..start], version.as_bytes(), &self.body[end..]].concat().into())
    }

    /// Returns the same state with other selectable fields.
    pub(crate) fn selected_by(&self, facts: SelectableFields) -> Self {
        let Self { key, revision, body, facts: _, schema, depth, past: _, identity: _ } = self;
        Self {
            key: key.clone(),
            revision: *revision,
            body: body.clone(),
            facts,
            schema: *schema,
            depth: *depth,
            past: OnceLock::new(),
            identity: OnceLock::new(),
        }
    }

    /// Decodes the object, without `apiVersion` and `kind`.
    pub(crate) fn object(&self) -> Result<Object, EntryError> {
        let value: serde_json::Value = json::check_keys(&self.body)
            .and_then(|()| json::decode(&self.body))
            .map_err(|error| EntryError { why: error.to_string() })?;
        Object::try_from(value).map_err(|_| EntryError { why: "it is not a JSON object".into() })
    }

    /// Returns true if the object is being deleted, without decoding the rest of it.
    pub(crate) fn is_deleting(&self) -> bool {
        #[derive(serde::Deserialize)]
        struct ObjectHead {
            metadata: Metadata,
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            deletion_timestamp: Option<IgnoredAny>,
        }
        serde_json::from_slice(&self.body).is_ok_and(|shell: ObjectHead| shell.metadata.deletion_timestamp.is_some())
    }

    /// Returns the fields by which tokens are verified; `None` if the object is malformed.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.get_or_init(|| Identity::read(&self.body).map(Box::new)).as_deref()
    }

    /// Returns the stored JSON of the metadata.
    pub(crate) fn metadata(&self) -> &[u8] {
        let metadata = || {
            let start = Members::new(&self.body, 0)?.find("metadata")?;
            start.map(|start| json::value_end(&self.body, start).map(|end| &self.body[start..end])).transpose()
        };
        metadata().ok().flatten().unwrap_or(b"{}")
    }

    /// Returns the memory of the entry in bytes.
    pub(crate) fn size(self: &Arc<Self>) -> usize {
        self.body.len() + size_of::<Self>()
    }

    /// Records that the entry is neither current nor in a window any more.
    pub(super) fn become_past(self: &Arc<Self>, all: &PastBytes) {
        self.past.get_or_init(|| all.add(self.size()));
    }

    /// Returns the memory of the entry in bytes, if it is a past state.
    pub(super) fn past_bytes(&self) -> usize {
        self.past.get().map_or(0, PastState::bytes)
    }
}
