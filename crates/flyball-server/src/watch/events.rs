//! The events of a watch as JSON, in the view that its client requested.
//!
//! Takes the events one by one and returns their text. Objects that are sent as stored are copied. Others are decoded:
//! once for all watches with the same view, and on another thread than those that serve connections if that takes long.
//! Invariant: the order of the events is kept.

use super::views::{EncodedViews, ViewKey};
use crate::bounds::Offload;
use crate::encoder::{MAX_DECODED_BYTES, ResponseEncoder, SLOW_ROW_BYTES};
use crate::request::accept::View;
use crate::storage::{Entry, Revision};
use crate::table;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::Either;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinError;

/// Number of bytes after which a watch pauses until they are sent.
const FRAME_BYTES: usize = 32 << 10;

/// Bytes of undecoded objects from which decoding them is a long computation.
const LONG_BYTES: usize = SLOW_ROW_BYTES;

/// The beginning of an object in the metadata view.
const METADATA_HEAD: &[u8] = br#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":"#;

/// Writes the events of a watch.
pub(super) struct EventWriter {
    pub(super) encoder: ResponseEncoder,
    views: Arc<EncodedViews>,
    offload: Option<Offload>,
    has_sent_headings: bool,
    /// The text of the first events.
    text: BytesMut,
    /// The events that follow, of which the first is not encoded.
    pending: Vec<PendingEvent>,
    /// The bytes of encoded objects, also of pending events.
    encoded: usize,
    /// The bytes of objects to be decoded.
    weight: usize,
}

enum PendingEvent {
    Text(Bytes),
    Undecoded { ty: &'static str, entry: Arc<Entry>, revision: Revision, key: ViewKey, has_headings: bool },
}

impl EventWriter {
    /// Creates a writer; without an offload, all objects are decoded in place.
    pub(super) fn new(encoder: ResponseEncoder, views: Arc<EncodedViews>, offload: Option<Offload>) -> Self {
        let (text, pending) = (BytesMut::new(), Vec::new());
        Self { encoder, views, offload, has_sent_headings: false, text, pending, encoded: 0, weight: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.pending.is_empty()
    }

    /// Returns true if the events should be sent before more are added.
    pub(super) fn is_full(&self) -> bool {
        self.encoded >= FRAME_BYTES || self.weight >= MAX_DECODED_BYTES
    }

    /// Adds an event of an object at a revision.
    pub(super) fn push(&mut self, ty: &'static str, entry: Arc<Entry>, revision: Revision) {
        let Self { encoder, text, pending, encoded, .. } = self;
        if encoder.form.view == View::Whole && is_as_written(encoder, &entry, revision) {
            *encoded += add(text, pending, ty, [&encoder.resource.head, &entry.body[1..]]);
            return;
        }
        let has_headings = encoder.form.view == View::Table && !std::mem::replace(&mut self.has_sent_headings, true);
        let key = ViewKey::new(encoder, &entry, has_headings);
        if let Some(object) = self.views.get(revision, &key) {
            *encoded += add(text, pending, ty, [&object, b""]);
            return;
        }
        self.weight += entry.body.len() + encoder.row_weight();
        pending.push(PendingEvent::Undecoded { ty, entry, revision, key, has_headings });
    }

    /// Adds an event of another object.
    pub(super) fn write(&mut self, ty: &'static str, object: &Value) {
        self.encoded += add(&mut self.text, &mut self.pending, ty, [object.to_string().as_bytes(), b""]);
    }

    /// Removes the events and returns their text, if there are any.
    pub(super) async fn encode(&mut self) -> Result<Option<Bytes>, JoinError> {
        let (mut text, pending) = (std::mem::take(&mut self.text), std::mem::take(&mut self.pending));
        let is_long = std::mem::take(&mut self.weight) >= LONG_BYTES;
        self.encoded = 0;
        if !pending.is_empty() {
            let (encoder, views) = (self.encoder.clone(), self.views.clone());
            let encode = move || {
                pending.into_iter().for_each(|event| event.encode(&encoder, &views, &mut text));
                text
            };
            let encoded = match self.offload.as_ref().filter(|_| is_long) {
                Some(offload) => Either::Left(offload.spawn(encode)),
                None => Either::Right(std::future::ready(Ok(encode()))),
            };
            text = encoded.await?;
        }
        Ok((!text.is_empty()).then(|| text.freeze()))
    }
}

impl PendingEvent {
    fn encode(self, encoder: &ResponseEncoder, views: &EncodedViews, out: &mut BytesMut) {
        let (ty, entry, revision, key, has_headings) = match self {
            Self::Text(text) => return out.put_slice(&text),
            Self::Undecoded { ty, entry, revision, key, has_headings } => (ty, entry, revision, key, has_headings),
        };
        // Another watch may have encoded it meanwhile.
        let object = views.get(revision, &key).or_else(|| {
            let object = encode(encoder, &entry, revision, has_headings)?;
            views.put(revision, key, object.clone());
            Some(object)
        });
        // An object that cannot be decoded has no events.
        object.iter().for_each(|object| put(out, ty, [object, b""]));
    }
}

/// Returns true if the state of an event is sent with the metadata that is stored.
fn is_as_written(encoder: &ResponseEncoder, entry: &Entry, revision: Revision) -> bool {
    entry.revision == revision && entry.schema == encoder.resource.schema_number && !encoder.form.beta
}

/// Encodes the object of an event; `None` if it cannot be decoded.
fn encode(encoder: &ResponseEncoder, entry: &Entry, revision: Revision, has_headings: bool) -> Option<Bytes> {
    let ResponseEncoder { codec, clock, resource, form, include } = encoder;
    let is_metadata = matches!(form.view, View::Metadata | View::MetadataList);
    if is_metadata && is_as_written(encoder, entry, revision) {
        return Some([METADATA_HEAD, entry.metadata(), b"}"].concat().into());
    }
    let mut object = codec.decode(resource, entry).ok()?;
    object.metadata_mut().insert("resourceVersion".into(), revision.to_string().into());
    let value = match form.view {
        View::Metadata | View::MetadataList => table::metadata_only(&object),
        View::Table => {
            let headings = if has_headings { table::headings(resource) } else { Value::Null };
            let row = table::row(resource, &object, *include, clock);
            table::table(json!({"resourceVersion": object.resource_version()}), headings, vec![row])
        }
        View::Whole => object.into(),
    };
    Some(form.versioned(value).to_string().into())
}

/// Adds an encoded event after those that are pending; returns its bytes.
fn add(text: &mut BytesMut, pending: &mut Vec<PendingEvent>, ty: &str, object: [&[u8]; 2]) -> usize {
    if pending.is_empty() {
        put(text, ty, object);
    } else {
        let mut event = BytesMut::new();
        put(&mut event, ty, object);
        pending.push(PendingEvent::Text(event.freeze()));
    }
    object.iter().map(|piece| piece.len()).sum()
}

fn put(out: &mut BytesMut, ty: &str, object: [&[u8]; 2]) {
    out.reserve(object.iter().map(|piece| piece.len()).sum::<usize>() + 32);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(ty.as_bytes());
    out.put_slice(b"\",\"object\":");
    object.iter().for_each(|piece| out.put_slice(piece));
    out.put_slice(b"}\n");
}
