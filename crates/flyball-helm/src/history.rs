//! The revisions of a release, stored in the Secrets of its namespace.
//!
//! The metadata of the Secrets are read from the cache; payloads are read from the API server, one at a time.

use crate::rendering::Slots;
use crate::storage::{HISTORY, PAYLOAD, Revision, SECRET_TYPE, State, secret_name};
use flyball::{Context, Index, ObjectKey, Result};
use flyball_chart::Seed;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Annotation of a Secret with the digest of the revision's inputs.
const INPUTS: &str = "flyball.dev/release-inputs";
/// Annotation of a Secret with the number of completed steps of the revision.
const PROGRESS: &str = "flyball.dev/release-progress";
/// Annotation of a Secret with the number of failures of the revision.
const FAILURES: &str = "flyball.dev/release-failures";
/// Annotation of a Secret with the seed of the release's random values, so that upgrades keep them.
const SEED: &str = "flyball.dev/release-seed";

/// Secrets with revisions by namespace and release.
pub(crate) struct ByRelease;

impl Index for ByRelease {
    type Resource = PartialObjectMeta<Secret>;
    type Value = (String, String);

    fn values(secret: &PartialObjectMeta<Secret>) -> Vec<(String, String)> {
        let stored = StoredRevision::of(secret.metadata.clone());
        let place = |stored: StoredRevision| Some((stored.meta.namespace?, stored.meta.labels?.remove("name")?));
        stored.and_then(place).into_iter().collect()
    }
}

/// A Secret that stores a revision.
#[derive(Clone, Debug)]
pub(crate) struct StoredRevision {
    pub(crate) version: u32,
    pub(crate) state: State,
    meta: ObjectMeta,
}

/// Annotations of a revision beside Helm's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// The digest of its inputs.
    pub(crate) inputs: String,
    /// Number of completed steps.
    pub(crate) progress: usize,
    /// Number of failures.
    pub(crate) failures: u32,
    /// Seed of random values, if known.
    pub(crate) seed: Option<Seed>,
}

impl StoredRevision {
    fn of(meta: ObjectMeta) -> Option<Self> {
        let labels = meta.labels.as_ref()?;
        let (owner, release) = (labels.get("owner")?, labels.get("name")?);
        let version = labels.get("version")?.parse().ok()?;
        let is_named = meta.name.as_deref() == Some(&secret_name(release, version));
        let state = State::of(labels.get("status")?);
        (owner == "helm" && is_named).then_some(Self { version, state, meta })
    }

    /// Returns the UID of the revision, which is unique even if numbers repeat.
    pub(crate) fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    /// Returns its annotations.
    pub(crate) fn notes(&self) -> Notes {
        let note = |name: &str| self.meta.annotations.as_ref().and_then(|notes| notes.get(name)).map(String::as_str);
        let number = |name: &str| note(name).and_then(|text| text.parse().ok()).unwrap_or_default();
        Notes {
            inputs: note(INPUTS).unwrap_or_default().to_owned(),
            progress: number(PROGRESS),
            failures: number(FAILURES).try_into().unwrap_or(u32::MAX),
            seed: note(SEED).and_then(Seed::from_hex),
        }
    }

    /// Returns the time of the last write, in seconds since the Unix epoch.
    pub(crate) fn modified_at(&self) -> i64 {
        let label = |name: &str| self.meta.labels.as_ref()?.get(name)?.parse().ok();
        label("modifiedAt").or_else(|| label("createdAt")).unwrap_or_default()
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.meta.namespace.as_deref(), self.meta.name.as_deref().unwrap_or_default())
    }
}

/// The revisions of a release, the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct History(pub(crate) Vec<StoredRevision>);

impl History {
    /// Finds the revisions of a release.
    pub(crate) async fn read(cx: &Context<DynamicObject>, namespace: &str, release: &str) -> Result<Self> {
        let secrets = cx.list_by::<ByRelease>(&(namespace.to_owned(), release.to_owned())).await?;
        let mut stored: Vec<StoredRevision> =
            secrets.into_iter().filter_map(|secret| StoredRevision::of(secret.metadata)).collect();
        stored.sort_by_key(|stored| stored.version);
        Ok(Self(stored))
    }

    /// Returns the newest revision.
    pub(crate) fn last(&self) -> Option<&StoredRevision> {
        self.0.last()
    }

    /// Returns the deployed revision. Between the last two writes of an upgrade, it is already superseded.
    pub(crate) fn deployed(&self) -> Option<&StoredRevision> {
        let newest = |state| self.0.iter().rev().find(|stored| stored.state == state);
        newest(State::Deployed).or_else(|| newest(State::Superseded))
    }

    /// Returns the number of the next revision.
    pub(crate) fn next_version(&self) -> u32 {
        self.last().map_or(1, |stored| stored.version.saturating_add(1))
    }

    /// Deletes old revisions to make room for one more, but never the deployed one.
    pub(crate) async fn make_room(&mut self, cx: &Context<DynamicObject>) -> Result<()> {
        let deployed = self.deployed().map(|stored| stored.version);
        let mut surplus = (self.0.len() + 1).saturating_sub(HISTORY);
        let mut at = 0;
        while surplus > 0 && at < self.0.len() {
            if Some(self.0[at].version) == deployed {
                at += 1;
                continue;
            }
            delete(cx, &self.0.remove(at)).await?;
            surplus -= 1;
        }
        Ok(())
    }
}

/// Reads a revision; `None` if its Secret does not exist.
pub(crate) async fn load(
    cx: &Context<DynamicObject>,
    slots: &Slots,
    stored: &StoredRevision,
) -> Result<Option<Revision>> {
    let key = stored.key();
    let Some(secret) = cx.get::<Secret>(&key).await? else { return Ok(None) };
    let payload = secret.data.and_then(|mut data| data.remove(PAYLOAD));
    let payload = payload.ok_or_else(|| format!("release Secret {key} has no data.{PAYLOAD}: delete the Secret"))?;
    let revision = slots
        .offload(move || Revision::decode(&payload.0))
        .await?
        .map_err(|error| flyball::Error::from(error).context(format_args!("release Secret {key}")))?;
    Ok(Some(revision))
}

/// Creates the Secret of a new revision.
pub(crate) async fn create(
    cx: &Context<DynamicObject>,
    slots: &Slots,
    revision: &Revision,
    notes: &Notes,
) -> Result<StoredRevision> {
    let mut labels = revision.labels();
    labels.insert("createdAt".into(), cx.now().as_second().to_string());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(revision.secret_name()),
            labels: Some(labels),
            annotations: Some(annotations(notes)),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.into()),
        data: Some([(PAYLOAD.to_owned(), encode(slots, revision).await?)].into()),
        ..Secret::default()
    };
    stored(cx.create(&secret).await?)
}

/// Updates the Secret of a revision, unless it has changed meanwhile.
pub(crate) async fn update(
    cx: &Context<DynamicObject>,
    slots: &Slots,
    before: &StoredRevision,
    revision: &Revision,
    notes: &Notes,
) -> Result<StoredRevision> {
    let mut labels = revision.labels();
    labels.insert("modifiedAt".into(), cx.now().as_second().to_string());
    let payload = json!({PAYLOAD: encode(slots, revision).await?});
    patch(cx, before, json!({"metadata": {"labels": labels, "annotations": annotations(notes)}, "data": payload})).await
}

async fn encode(slots: &Slots, revision: &Revision) -> Result<ByteString> {
    let revision = revision.clone();
    Ok(ByteString(slots.offload(move || revision.encode()).await??))
}

/// Sets annotations of a revision.
pub(crate) async fn note(
    cx: &Context<DynamicObject>,
    before: &StoredRevision,
    notes: &Notes,
) -> Result<StoredRevision> {
    patch(cx, before, json!({"metadata": {"annotations": annotations(notes)}})).await
}

/// Deletes a revision.
pub(crate) async fn delete(cx: &Context<DynamicObject>, stored: &StoredRevision) -> Result<()> {
    cx.delete(&Secret { metadata: stored.meta.clone(), ..Secret::default() }).await
}

async fn patch(cx: &Context<DynamicObject>, before: &StoredRevision, mut change: Value) -> Result<StoredRevision> {
    change["metadata"]["resourceVersion"] = json!(before.meta.resource_version);
    let namespace = before.meta.namespace.as_deref().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(cx.client().clone(), namespace);
    let name = before.meta.name.as_deref().unwrap_or_default();
    let secret = secrets.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
    cx.record_write(&secret);
    stored(secret)
}

fn stored(secret: Secret) -> Result<StoredRevision> {
    let name = secret.name_any();
    StoredRevision::of(secret.metadata).ok_or_else(|| format!("Secret {name} has lost its release labels").into())
}

fn annotations(notes: &Notes) -> BTreeMap<String, String> {
    let seed = notes.seed.as_ref().map(|seed| (SEED, seed.to_hex()));
    let notes = [
        (INPUTS, notes.inputs.clone()),
        (PROGRESS, notes.progress.to_string()),
        (FAILURES, notes.failures.to_string()),
    ];
    notes.into_iter().chain(seed).map(|(name, value)| (name.to_owned(), value)).collect()
}
