//! Encoder: encodes objects and lists as responses, in the view and encoding that the client requested.
//!
//! Takes entries, objects and lists, returns responses. Long lists are encoded while they are sent. It depends only on
//! the response form of the request.

use crate::catalog::Resource;
use crate::codec::Codec;
use crate::registry::{ListResult, WrittenObject};
use crate::request::accept::{Encoding, Form, View};
use crate::response::{self, Body};
use crate::storage::Entry;
use crate::table::{self, Include};
use bytes::{BufMut, Bytes, BytesMut};
use flyball_core::status::Reason;
use flyball_core::{Clock, Object, Status};
use http::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Bytes of a list that are written at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes of stored objects that are decoded for a list or a watch at once.
pub(crate) const MAX_DECODED_BYTES: usize = 256 << 10;

/// Bytes that a slow row of a table counts for.
pub(crate) const SLOW_ROW_BYTES: usize = 64 << 10;

/// Bytes of a long list that are written before the first is sent: see [`Body::lazy`].
pub(crate) const FIRST_PIECE_BYTES: usize = 3 * CHUNK_BYTES;

/// Encodes objects of a resource as a client requests them.
#[derive(Clone)]
pub(crate) struct ResponseEncoder {
    pub(crate) codec: Arc<Codec>,
    pub(crate) clock: Clock,
    pub(crate) resource: Arc<Resource>,
    pub(crate) form: Form,
    pub(crate) include: Include,
}

impl ResponseEncoder {
    /// Encodes an object that was read or written.
    pub(crate) fn written(&self, code: u16, written: &WrittenObject) -> Result<Response<Body>, Status> {
        match (written, self.form.view, self.form.encoding) {
            (WrittenObject::Stored(entry), View::Whole, Encoding::Json) => {
                let mut bytes = BytesMut::from(&*self.codec.json(&self.resource, entry));
                bytes.put_u8(b'\n');
                Ok(response::new(code, "application/json", bytes.freeze()))
            }
            (WrittenObject::Stored(entry), ..) => self.object(code, &self.codec.decode(&self.resource, entry)?),
            (WrittenObject::Unstored(object), ..) => self.object(code, object),
        }
    }

    /// Encodes an object.
    pub(crate) fn object(&self, code: u16, object: &Object) -> Result<Response<Body>, Status> {
        let value = match self.form.view {
            View::Whole => return Ok(response::value(code, self.form, object.as_value())),
            View::Metadata => table::metadata_only(object),
            View::Table => {
                let version = json!({"resourceVersion": object.resource_version()});
                let row = table::row(&self.resource, object, self.include, &self.clock);
                table::table(version, table::headings(&self.resource), vec![row])
            }
            View::MetadataList if self.resource.custom().is_some() => {
                return Err(Status::new(500, None, "content is not a list"));
            }
            View::MetadataList => {
                let (group, kind) = (self.resource.internal_group(), &self.resource.kind.kind);
                let message = format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list (*{group}.{kind})"
                );
                return Err(Status::new(406, Reason::NotAcceptable, message));
            }
        };
        Ok(response::value(code, self.form, &self.form.versioned(value)))
    }

    /// Encodes a list.
    pub(crate) fn list(&self, listed: ListResult) -> Result<Response<Body>, Status> {
        let metadata = self.list_metadata(&listed);
        let (key, list) = match (self.form.view, self.form.encoding) {
            (View::Whole, Encoding::Json) => return Ok(self.stream_list(&metadata, listed)),
            (View::Whole, Encoding::Yaml) => {
                let (kind, version) = (&self.resource.list_kind, self.resource.kind.api_version());
                ("items", json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": []}))
            }
            (View::MetadataList, _) => {
                // Go writes a nil list as null.
                let is_null = listed.entries.is_empty() && self.resource.custom().is_none();
                let items = if is_null { Value::Null } else { json!([]) };
                (
                    "items",
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}),
                )
            }
            (View::Table, _) => ("rows", table::table(metadata, table::headings(&self.resource), Vec::new())),
            (View::Metadata, _) => {
                let list = match self.resource.custom() {
                    Some(_) => "unstructured.UnstructuredList".to_owned(),
                    None => format!("{}.{}", self.resource.internal_group(), self.resource.list_kind),
                };
                let message =
                    format!("you requested PartialObjectMetadata, but the requested object is a list (*{list})");
                return Err(Status::new(406, Reason::NotAcceptable, message));
            }
        };
        let list = self.form.versioned(list);
        match list {
            Value::Object(list) if !listed.entries.is_empty() => Ok(self.stream_view(&list, key, listed)),
            list => Ok(response::value(200, self.form, &list)),
        }
    }

    fn list_metadata(&self, listed: &ListResult) -> Value {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), listed.revision.to_string().into());
        match &listed.next {
            Some(page) => {
                metadata.insert("continue".into(), page.token().into());
            }
            None if self.resource.custom().is_some() && self.form.view == View::Whole => {
                metadata.insert("continue".into(), "".into());
            }
            None => {}
        }
        if let Some(remaining) = listed.remaining {
            metadata.insert("remainingItemCount".into(), remaining.into());
        }
        Value::Object(metadata)
    }

    fn list_head(&self, metadata: &Value) -> Bytes {
        let text = |text: &str| Value::from(text).to_string();
        let (kind, version) = (text(&self.resource.list_kind), text(&self.resource.kind.api_version()));
        format!("{{\"kind\":{kind},\"apiVersion\":{version},\"metadata\":{metadata},\"items\":[").into()
    }

    /// Writes one object of a list: only items of custom resources have `apiVersion` and `kind`.
    fn item(&self, out: &mut BytesMut, entry: &Entry) {
        let custom = self.resource.custom().is_some();
        match (entry.schema == self.resource.schema_number, custom) {
            (true, false) => out.put_slice(&entry.body),
            (true, true) => {
                out.put_slice(&self.resource.head);
                out.put_slice(&entry.body[1..]);
            }
            (false, true) => out.put_slice(&self.codec.json(&self.resource, entry)),
            (false, false) => {
                let Ok(mut object) = self.codec.decode(&self.resource, entry) else {
                    return out.put_slice(&entry.body);
                };
                object.remove("apiVersion");
                object.remove("kind");
                out.put_slice(object.as_value().to_string().as_bytes());
            }
        }
    }

    fn stream_list(&self, metadata: &Value, listed: ListResult) -> Response<Body> {
        let converts = listed.entries.iter().any(|entry| entry.schema != self.resource.schema_number);
        let (this, mut is_first) = (self.clone(), true);
        let items = chunks(listed, 0, Bytes::from_static(b"]}\n"), move |out, entry| {
            if !std::mem::take(&mut is_first) {
                out.put_u8(b',');
            }
            this.item(out, entry);
        });
        let pieces = std::iter::once(self.list_head(metadata)).chain(items);
        response::new(200, "application/json", Body::lazy(pieces, converts))
    }

    /// Encodes a list, with its items under `key`, in another view or encoding.
    fn stream_view(&self, list: &Map<String, Value>, key: &'static str, listed: ListResult) -> Response<Body> {
        let [before, after] = response::around(self.form.encoding, list, key);
        let (this, mut is_first) = (self.clone(), true);
        let items = chunks(listed, self.row_weight(), after.into(), move |out, entry| {
            let Some(value) = this.view(entry) else { return };
            let mut list = this.form.versioned(json!({ key: [value] }));
            response::item(this.form.encoding, out, std::mem::take(&mut is_first), list[key][0].take());
        });
        let pieces = std::iter::once(before.into()).chain(items);
        response::new(200, self.form.content_type(), Body::lazy(pieces, true))
    }

    /// Returns the bytes that an object in the view counts for, besides its own.
    pub(crate) fn row_weight(&self) -> usize {
        let has_slow_rows = || self.resource.custom().is_some_and(|custom| custom.has_slow_rows());
        if self.form.view == View::Table && has_slow_rows() { SLOW_ROW_BYTES } else { 0 }
    }

    /// Returns one object of a list in the view; `None` if it cannot be decoded.
    fn view(&self, entry: &Entry) -> Option<Value> {
        if self.form.view == View::Whole {
            let mut text = BytesMut::new();
            self.item(&mut text, entry);
            return serde_json::from_slice(&text).ok();
        }
        let object = self.codec.decode(&self.resource, entry).ok()?;
        Some(match self.form.view {
            View::Table => table::row(&self.resource, &object, self.include, &self.clock),
            _ => table::metadata_only(&object),
        })
    }
}

/// Writes the items and the end of a list in pieces: neither a piece nor its decoded objects are much larger than one
/// object. Each object counts for `weight` bytes besides its own.
fn chunks(
    listed: ListResult,
    weight: usize,
    end: Bytes,
    mut write: impl FnMut(&mut BytesMut, &Entry) + Send + 'static,
) -> impl Iterator<Item = Bytes> + Send + 'static {
    let ListResult { entries, mut memory, pending, .. } = listed;
    pending.fill(entries);
    let mut open = true;
    std::iter::from_fn(move || {
        if !open {
            return None;
        }
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        let mut decoded = 0;
        while chunk.len() < CHUNK_BYTES && decoded < MAX_DECODED_BYTES {
            let Some(entry) = pending.pop() else {
                open = false;
                drop(memory.take());
                chunk.put_slice(&end);
                break;
            };
            write(&mut chunk, &entry);
            decoded += entry.body.len() + weight;
        }
        Some(chunk.freeze())
    })
}
