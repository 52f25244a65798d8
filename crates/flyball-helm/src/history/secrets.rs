//! The Secrets of a revision: reading, writing and deleting them, with their chunks.

use super::{ByIndex, CHUNKS, History, RevisionAnnotations, StoredRevision};
use crate::chunks::{self, CHUNK_TYPE, Chunk};
use crate::rendering::{Share, Slots};
use crate::resources::Owner;
use crate::storage::{self, PAYLOAD, Revision, StorageError, encode_packed, secret_name};
use flyball::{Context, Error, ObjectKey, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde_json::{Value, json};

/// The encoded form of a revision.
pub(super) enum Payload {
    /// The payload of one Secret.
    Whole(Vec<u8>),
    /// The chunks of several.
    Chunked(Vec<Chunk>),
}

impl Payload {
    pub(super) fn secrets(&self) -> usize {
        self.chunks().len().max(1)
    }

    pub(super) fn chunks(&self) -> &[Chunk] {
        match self {
            Self::Whole(_) => &[],
            Self::Chunked(chunks) => chunks,
        }
    }
}

impl History {
    /// Returns true if the API server has the Secret of this revision, and the cache does not: the cache is behind, for
    /// example after a change of the leader.
    pub(crate) async fn is_behind(&self, cx: &Context<DynamicObject>, owner: &Owner<'_>, version: u64) -> Result<bool> {
        let Some(version) = u32::try_from(version).ok().filter(|version| !self.versions.contains(version)) else {
            return Ok(false);
        };
        let key = ObjectKey::new(Some(owner.namespace), &secret_name(owner.release, version));
        // The cache has only Secrets that are revisions.
        let stored = cx.get::<Secret>(&key).await?.and_then(|secret| StoredRevision::of(secret.metadata));
        Ok(stored.is_some_and(|stored| stored.is_controlled_by(owner.uid)))
    }
}

/// There is no memory for a stored revision now.
#[derive(Debug, thiserror::Error)]
#[error("other large releases occupy the memory")]
pub(crate) struct NoMemory;

/// Reads a revision; `None` if it does not exist.
pub(crate) async fn load(
    cx: &Context<DynamicObject>,
    slots: &Slots,
    stored: &StoredRevision,
) -> Result<Option<Revision>> {
    load_within(cx, slots, stored, None).await
}

/// Reads a revision. With a share, and the size of what it holds already, the revision is charged before it is decoded.
pub(super) async fn load_within(
    cx: &Context<DynamicObject>,
    slots: &Slots,
    stored: &StoredRevision,
    share: Option<(&Share, usize)>,
) -> Result<Option<Revision>> {
    let key = stored.key();
    let wrong = |error: StorageError| Error::from(error).context(format_args!("release Secret {key}"));
    let Some(secret) = cx.get::<Secret>(&key).await? else { return Ok(None) };
    let mut data = secret.data.unwrap_or_default();
    let mut packed = match data.remove(PAYLOAD) {
        Some(payload) => storage::packed(&payload.0).map_err(wrong)?,
        None if !stored.is_index => return Err(wrong(StorageError::NoPayload)),
        None => {
            let mut packed = chunks::chunk(Some(&data)).map_err(wrong)?.to_vec();
            for name in chunks::names(stored.name(), &data).map_err(wrong)? {
                let chunk = cx.get::<Secret>(&stored.sibling(&name)).await?;
                let chunk = chunk.ok_or_else(|| wrong(StorageError::NoChunk { name: name.clone() }))?;
                let text = chunks::chunk(chunk.data.as_ref());
                packed.extend_from_slice(text.map_err(|error| wrong(error).context(format_args!("chunk {name}")))?);
            }
            packed
        }
    };
    if let Some((share, held)) = share {
        let weight;
        (weight, packed) = slots.offload(move || (Revision::weigh(&packed), packed)).await?;
        if !slots.may_hold(share, held + weight.map_err(wrong)?) {
            return Err(NoMemory.into());
        }
    }
    let name = stored.name().to_owned();
    let check = move |revision: Revision| match revision.secret_name() {
        actual if actual == name => Ok(revision),
        name => Err(StorageError::OtherRevision { name }),
    };
    slots.offload(move || Revision::unpack(&packed).and_then(check)).await?.map(Some).map_err(wrong)
}

/// Updates the Secrets of a revision, unless they have changed meanwhile.
pub(crate) async fn update(
    cx: &Context<DynamicObject>,
    slots: &Slots,
    before: &StoredRevision,
    revision: &Revision,
    annotations: &RevisionAnnotations,
) -> Result<StoredRevision> {
    // The type of a Secret cannot be changed.
    let payload = encode(slots, revision, Some(before.is_index)).await?;
    let mut annotations = annotations.to_map();
    let (mut labels, data) = match &payload {
        Payload::Whole(payload) => (revision.labels(), json!({PAYLOAD: ByteString(payload.clone())})),
        Payload::Chunked(chunks) => {
            annotations.insert(CHUNKS.into(), chunks.len().to_string());
            create_chunks(cx, before.name(), chunks).await?;
            (chunks::index_labels(revision), json!(chunks::index(chunks)))
        }
    };
    labels.insert("modifiedAt".into(), cx.now().as_second().to_string());
    let change = json!({"metadata": {"labels": labels, "annotations": annotations}, "data": data});
    let stored = patch(cx, before, change).await?;
    delete_chunks(cx, &stored, payload.chunks()).await?;
    Ok(stored)
}

/// Encodes a revision, in several chunks if it is large or has several.
pub(super) async fn encode(slots: &Slots, revision: &Revision, is_chunked: Option<bool>) -> Result<Payload> {
    let revision = revision.clone();
    let encode = move || -> Result<Payload, StorageError> {
        let packed = revision.pack()?;
        match is_chunked.unwrap_or_else(|| chunks::is_needed(&packed)) {
            true => Ok(Payload::Chunked(chunks::split(&revision.secret_name(), &packed)?)),
            false => Ok(Payload::Whole(encode_packed(&packed))),
        }
    };
    // The revision does not change, so a retry cannot succeed.
    slots.offload(encode).await?.map_err(|error| Error::from(error).terminal())
}

/// Creates the Secrets of all chunks but the first one, which is in the index.
pub(super) async fn create_chunks(cx: &Context<DynamicObject>, index: &str, chunks: &[Chunk]) -> Result<()> {
    for chunk in chunks.iter().skip(1) {
        let key = cx.sibling(&chunk.name);
        if let Some(known) = cx.get::<Secret>(&key).await? {
            // An earlier attempt wrote it.
            if known.data.as_ref() == Some(&chunk.data()) {
                continue;
            }
            return Err(format!("Secret {key} exists and is not a chunk of release Secret {index}: delete it").into());
        }
        let metadata = ObjectMeta {
            name: Some(chunk.name.clone()),
            labels: Some(chunks::chunk_labels(index)),
            ..ObjectMeta::default()
        };
        let secret = Secret {
            metadata,
            type_: Some(CHUNK_TYPE.into()),
            immutable: Some(true),
            data: Some(chunk.data()),
            ..Secret::default()
        };
        cx.create(&secret).await?;
    }
    Ok(())
}

/// Deletes the Secrets of a revision's chunks except some.
pub(super) async fn delete_chunks(cx: &Context<DynamicObject>, index: &StoredRevision, except: &[Chunk]) -> Result<()> {
    for chunk in chunks_of(cx, index).await? {
        if !except.iter().any(|except| chunk.metadata.name.as_deref() == Some(&except.name)) {
            cx.delete(&Secret { metadata: chunk.metadata, ..Secret::default() }).await?;
        }
    }
    Ok(())
}

/// Returns the Secrets with the chunks of a revision, from the cache.
pub(super) async fn chunks_of(
    cx: &Context<DynamicObject>,
    index: &StoredRevision,
) -> Result<Vec<PartialObjectMeta<Secret>>> {
    if !index.is_index {
        return Ok(Vec::new());
    }
    let key = (index.meta.namespace.clone().unwrap_or_default(), chunks::key_label(index.name()));
    let mut found = cx.list_by::<ByIndex>(&key).await?;
    found.retain(|chunk| {
        let is_chunk = |name: &str| name.strip_prefix(index.name()).is_some_and(|rest| rest.starts_with('-'));
        chunk.metadata.name.as_deref().is_some_and(is_chunk) && chunk.metadata.deletion_timestamp.is_none()
    });
    Ok(found)
}

/// Sets annotations of a revision.
pub(crate) async fn annotate(
    cx: &Context<DynamicObject>,
    before: &StoredRevision,
    annotations: &RevisionAnnotations,
) -> Result<StoredRevision> {
    patch(cx, before, json!({"metadata": {"annotations": annotations.to_map()}})).await
}

/// Deletes a revision. Without its index, chunks are not read any more.
pub(crate) async fn delete(cx: &Context<DynamicObject>, stored: &StoredRevision) -> Result<()> {
    cx.delete(&Secret { metadata: stored.meta.clone(), ..Secret::default() }).await?;
    delete_chunks(cx, stored, &[]).await
}

pub(super) async fn patch(
    cx: &Context<DynamicObject>,
    before: &StoredRevision,
    mut change: Value,
) -> Result<StoredRevision> {
    change["metadata"]["resourceVersion"] = json!(before.meta.resource_version);
    let namespace = before.meta.namespace.as_deref().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(cx.client().clone(), namespace);
    let name = before.meta.name.as_deref().unwrap_or_default();
    let secret = secrets.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
    cx.record_write(&secret);
    stored(secret)
}

pub(super) fn stored(secret: Secret) -> Result<StoredRevision> {
    let name = secret.name_any();
    StoredRevision::of(secret.metadata).ok_or_else(|| format!("Secret {name} has lost its release labels").into())
}
