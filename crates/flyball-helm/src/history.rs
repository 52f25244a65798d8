//! The revisions of a release, stored in the Secrets of its namespace.
//!
//! The metadata of the Secrets are read from the cache; payloads are read from the API server, one at a time. Each
//! Secret belongs to the custom resource of its release, so that no other custom resource uses it.

mod secrets;

pub(crate) use secrets::{NoMemory, annotate, delete, load, update};

use crate::chunks::{self, Chunk, INDEX_TYPE, MAX_CHUNKS};
use crate::rendering::{Share, Slots};
use crate::resources::Owner;
use crate::storage::{MAX_HISTORY, PAYLOAD, Revision, SECRET_PREFIX, SECRET_TYPE, State, StorageError, secret_name};
use flyball::{Context, Index, ObjectKey, Result};
use flyball_chart::Seed;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DynamicObject;
use kube::core::{ObjectMeta, PartialObjectMeta};
use secrets::{Payload, chunks_of, create_chunks, delete_chunks, encode, load_within, patch, stored};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Annotation of a Secret with the digest of the revision's inputs.
const INPUTS: &str = "flyball.dev/release-inputs";
/// Annotation of a Secret with the number of completed steps of the revision.
const PROGRESS: &str = "flyball.dev/release-progress";
/// Annotation of a Secret with the number of failures of the revision.
const FAILURES: &str = "flyball.dev/release-failures";
/// Annotation of a Secret with the options that chart and values do not contain, when the revision began.
const OPTIONS: &str = "flyball.dev/release-options";
/// Annotation of a Secret with the seed of the release's random values, so that upgrades keep them.
const SEED: &str = "flyball.dev/release-seed";
/// Annotation of an index with the number of Secrets of the revision.
const CHUNKS: &str = "flyball.dev/release-chunks";
/// Limit of Secrets of a release, which the deployed and the newest revision may exceed.
const MAX_SECRETS: usize = 30;
/// Limit of the numbers of revisions, as in Helm. Secrets with others are not part of a release.
const MAX_VERSION: u32 = i32::MAX as u32;

/// Secrets with the names of revisions by namespace and release. Others may have written them without labels.
pub(crate) struct ByRelease;

impl Index for ByRelease {
    type Resource = PartialObjectMeta<Secret>;
    type Value = (String, String);

    fn values(secret: &PartialObjectMeta<Secret>) -> Vec<(String, String)> {
        let release = secret.metadata.name.as_deref().and_then(release_and_version).map(|(release, _)| release);
        release.and_then(|release| Some((secret.metadata.namespace.clone()?, release.to_owned()))).into_iter().collect()
    }
}

/// Secrets with chunks by the namespace and the name of their index.
pub(crate) struct ByIndex;

impl Index for ByIndex {
    type Resource = PartialObjectMeta<Secret>;
    type Value = (String, String);

    fn values(secret: &PartialObjectMeta<Secret>) -> Vec<(String, String)> {
        let meta = &secret.metadata;
        let index = meta.labels.as_ref().and_then(chunks::index_of);
        index.and_then(|index| Some((meta.namespace.clone()?, index.to_owned()))).into_iter().collect()
    }
}

/// Returns the release and the number in the name of a revision's Secret.
fn release_and_version(name: &str) -> Option<(&str, u32)> {
    let (release, version) = name.strip_prefix(SECRET_PREFIX)?.rsplit_once(".v")?;
    let version = version.parse().ok()?;
    (secret_name(release, version) == name).then_some((release, version))
}

/// A Secret that stores a revision.
#[derive(Clone, Debug)]
pub(crate) struct StoredRevision {
    pub(crate) version: u32,
    pub(crate) state: State,
    /// True if the Secret is the index of several chunks.
    is_index: bool,
    meta: ObjectMeta,
}

/// Annotations of a revision beside Helm's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RevisionAnnotations {
    /// The digest of its inputs.
    pub(crate) inputs: String,
    /// Number of completed steps.
    pub(crate) progress: usize,
    /// Number of failures.
    pub(crate) failures: u32,
    /// Options in annotations of the custom resource: another attempt is made when they change.
    pub(crate) options: String,
    /// Seed of random values, if known.
    pub(crate) seed: Option<Seed>,
}

impl RevisionAnnotations {
    fn to_map(&self) -> BTreeMap<String, String> {
        let seed = self.seed.as_ref().map(|seed| (SEED, seed.to_hex()));
        let others = [
            (INPUTS, self.inputs.clone()),
            (PROGRESS, self.progress.to_string()),
            (FAILURES, self.failures.to_string()),
            (OPTIONS, self.options.clone()),
        ];
        others.into_iter().chain(seed).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl StoredRevision {
    fn of(meta: ObjectMeta) -> Option<Self> {
        let labels = meta.labels.as_ref()?;
        let (owner, release) = (labels.get("owner")?, labels.get("name")?);
        let version = labels.get("version")?.parse().ok()?;
        meta.name.as_deref().filter(|name| *name == secret_name(release, version))?;
        let (state, is_index) = (State::of(labels.get("status")?), chunks::is_index(labels));
        (owner == "helm" || is_index).then_some(Self { version, state, is_index, meta })
    }

    /// Returns the UID of the revision, which is unique even if numbers repeat.
    pub(crate) fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    /// Returns its annotations.
    pub(crate) fn annotations(&self) -> RevisionAnnotations {
        let annotation = |name: &str| {
            self.meta.annotations.as_ref().and_then(|annotations| annotations.get(name)).map(String::as_str)
        };
        let number = |name: &str| annotation(name).and_then(|text| text.parse().ok()).unwrap_or_default();
        RevisionAnnotations {
            inputs: annotation(INPUTS).unwrap_or_default().to_owned(),
            progress: number(PROGRESS),
            failures: number(FAILURES).try_into().unwrap_or(u32::MAX),
            options: annotation(OPTIONS).unwrap_or_default().to_owned(),
            seed: annotation(SEED).and_then(Seed::from_hex),
        }
    }

    /// Returns the time of the last write, in seconds since the Unix epoch.
    pub(crate) fn modified_at(&self) -> i64 {
        let label = |name: &str| self.meta.labels.as_ref()?.get(name)?.parse().ok();
        label("modifiedAt").or_else(|| label("createdAt")).unwrap_or_default()
    }

    /// Returns true if a custom resource with this UID controls it.
    pub(crate) fn is_controlled_by(&self, uid: &str) -> bool {
        let owners = self.meta.owner_references.iter().flatten();
        owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
    }

    /// Returns the number of its Secrets. Others may have written the annotation.
    fn secrets(&self) -> usize {
        let number: Option<usize> =
            self.meta.annotations.as_ref().and_then(|annotations| annotations.get(CHUNKS)?.parse().ok());
        number.filter(|_| self.is_index).unwrap_or(1).clamp(1, MAX_CHUNKS)
    }

    fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    fn key(&self) -> ObjectKey {
        self.sibling(self.name())
    }

    fn sibling(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.meta.namespace.as_deref(), name)
    }
}

/// The revisions of a release, the oldest first.
///
/// Anyone who may write Secrets in the namespace can add some. So a release that belongs to the custom resource
/// consists of the revisions that it controls and, like those that `helm rollback` writes, those without an owner with
/// the next numbers. Others only reserve their numbers. So do those that are not valid revisions of the release,
/// with any owner: a forged Secret can name any owner, and must not block the release.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The revisions of the release.
    pub(crate) revisions: Vec<StoredRevision>,
    /// Revisions without an owner that are older than the newest one of the custom resource: they are only deleted.
    pub(crate) obsolete: Vec<StoredRevision>,
    /// The other custom resource that owns further revisions, if any.
    pub(crate) other_owner: Option<String>,
    /// The other chart of a revision, if any.
    pub(crate) other_chart: Option<String>,
    /// The reasons why Secrets are not part of the release.
    pub(crate) problems: Vec<String>,
    /// The numbers of all Secrets.
    versions: BTreeSet<u32>,
}

/// The contents of revisions.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) deployed: Option<Revision>,
    /// The newest revision, if it is newer than the deployed one.
    pub(crate) newer: Option<Revision>,
}

impl History {
    /// Finds the revisions of a release.
    pub(crate) async fn read(cx: &Context<DynamicObject>, owner: &Owner<'_>) -> Result<Self> {
        let name = (owner.namespace.to_owned(), owner.release.to_owned());
        let secrets = cx.list_by::<ByRelease>(&name).await?;
        Ok(Self::of(secrets.into_iter().map(|secret| secret.metadata).collect(), owner))
    }

    fn of(secrets: Vec<ObjectMeta>, owner: &Owner<'_>) -> Self {
        let version = |meta: &ObjectMeta| Some(release_and_version(meta.name.as_deref()?)?.1);
        let versions: BTreeSet<u32> = secrets.iter().filter_map(version).collect();
        let mut stored: Vec<StoredRevision> = secrets.into_iter().filter_map(StoredRevision::of).collect();
        stored.retain(|stored| stored.version <= MAX_VERSION);
        stored.sort_by_key(|stored| stored.version);
        let other_owner = stored.iter().find_map(|stored| owner.other_owner(&stored.meta));
        stored.retain(|stored| owner.other_owner(&stored.meta).is_none());
        let newest = stored.iter().rfind(|stored| stored.is_controlled_by(owner.uid)).map(|stored| stored.version);
        let Some(newest) = newest else {
            return Self { revisions: stored, other_owner, versions, ..Self::default() };
        };
        let gap = (newest..=MAX_VERSION).find(|version| !versions.contains(version)).unwrap_or(u32::MAX);
        stored.retain(|stored| stored.version < gap);
        let is_obsolete = |stored: &StoredRevision| stored.version < newest && !stored.is_controlled_by(owner.uid);
        let (obsolete, revisions) = stored.into_iter().partition(is_obsolete);
        Self { revisions, obsolete, other_owner, versions, ..Self::default() }
    }

    /// Reads the deployed and the newest revision, or returns [`NoMemory`]. Those that are not valid, or of another
    /// chart, are no longer part of the release.
    pub(crate) async fn contents(
        &mut self,
        cx: &Context<DynamicObject>,
        slots: &Slots,
        share: &Share,
        chart: &str,
    ) -> Result<Contents> {
        let mut contents = Contents::default();
        while let Some(stored) = self.deployed().cloned() {
            contents.deployed = self.valid(cx, slots, &stored, (share, 0), chart).await?;
            if contents.deployed.is_some() {
                break;
            }
        }
        let held = contents.deployed.as_ref().map_or(0, Revision::size);
        let deployed = self.deployed().map_or(0, |stored| stored.version);
        while let Some(stored) = self.last().filter(|stored| stored.version > deployed).cloned() {
            contents.newer = self.valid(cx, slots, &stored, (share, held), chart).await?;
            if contents.newer.is_some() {
                break;
            }
        }
        Ok(contents)
    }

    /// Reads a revision, and removes it from the release if it is not valid.
    async fn valid(
        &mut self,
        cx: &Context<DynamicObject>,
        slots: &Slots,
        stored: &StoredRevision,
        share: (&Share, usize),
        chart: &str,
    ) -> Result<Option<Revision>> {
        match load_within(cx, slots, stored, Some(share)).await {
            Ok(Some(revision)) => match revision.chart_name().filter(|name| *name != chart) {
                None => return Ok(Some(revision)),
                Some(other) => {
                    self.problems.push(format!("release Secret {} is of chart {other:?}", stored.key()));
                    self.other_chart.get_or_insert_with(|| other.to_owned());
                }
            },
            Ok(None) => {}
            Err(error) if error.downcast_ref::<StorageError>().is_some() => self.problems.push(error.to_string()),
            Err(error) => return Err(error),
        }
        self.revisions.retain(|other| other.version != stored.version);
        Ok(None)
    }

    /// Returns the other custom resource to which the release belongs.
    ///
    /// If the custom resource has revisions of its own, those of others are ignored: anyone who may write Secrets, or
    /// a custom resource with Secrets in its chart, can add them.
    pub(crate) fn conflicting_owner(&self, owner: &Owner<'_>) -> Option<&str> {
        self.other_owner.as_deref().filter(|_| !self.is_owned(owner))
    }

    /// Returns true if the custom resource controls a revision: it installed the release, or took it over.
    pub(crate) fn is_owned(&self, owner: &Owner<'_>) -> bool {
        self.revisions.iter().any(|stored| stored.is_controlled_by(owner.uid))
    }

    /// Returns the newest revision.
    pub(crate) fn last(&self) -> Option<&StoredRevision> {
        self.revisions.last()
    }

    /// Returns the deployed revision. Between the last two writes of an upgrade, it is already superseded.
    pub(crate) fn deployed(&self) -> Option<&StoredRevision> {
        let newest = |state| self.revisions.iter().rev().find(|stored| stored.state == state);
        newest(State::Deployed).or_else(|| newest(State::Superseded))
    }

    /// Returns the number of the next revision.
    pub(crate) fn next_version(&self) -> u32 {
        next_version(self.last().map_or(0, |stored| stored.version), &self.versions)
    }

    /// Makes the custom resource the owner of the deployed and the newest revision, if Helm or another operator wrote
    /// them without an owner.
    ///
    /// Among custom resources of several kinds with the same name, the first one gets the release.
    pub(crate) async fn claim(&mut self, cx: &Context<DynamicObject>, owner: &Owner<'_>) -> Result<()> {
        let claimed = [self.deployed(), self.last()].map(|stored| stored.map(|stored| stored.version));
        for stored in self.revisions.iter_mut().filter(|stored| claimed.contains(&Some(stored.version))) {
            let mut owners = stored.meta.owner_references.clone().unwrap_or_default();
            if owners.iter().any(|owner| owner.controller == Some(true)) {
                continue;
            }
            owners.retain(|reference| reference.uid != owner.uid);
            owners.push(OwnerReference {
                api_version: owner.kind.gvk().api_version(),
                kind: owner.kind.name().to_owned(),
                name: owner.release.to_owned(),
                uid: owner.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            });
            *stored = patch(cx, stored, json!({"metadata": {"ownerReferences": owners}})).await?;
        }
        Ok(())
    }

    /// Deletes the newest revision, which was never deployed. The next one gets its number.
    pub(crate) async fn delete_last(&mut self, cx: &Context<DynamicObject>) -> Result<()> {
        let Some(last) = self.revisions.last() else { return Ok(()) };
        delete(cx, last).await?;
        self.versions.remove(&last.version);
        self.revisions.pop();
        Ok(())
    }

    /// Deletes chunks that no index names: those of an update that a crash interrupted.
    pub(crate) async fn delete_surplus_chunks(&self, cx: &Context<DynamicObject>) -> Result<()> {
        for index in &self.revisions {
            // Chunks of other operators are not counted.
            let is_complete = index.secrets() == 1 || chunks_of(cx, index).await?.len() < index.secrets();
            if is_complete {
                continue;
            }
            let data = cx.get::<Secret>(&index.key()).await?.and_then(|secret| secret.data).unwrap_or_default();
            let names = chunks::names(index.name(), &data).unwrap_or_default();
            let known: Vec<Chunk> = names.into_iter().map(|name| Chunk { name, data: Vec::new() }).collect();
            if !known.is_empty() {
                delete_chunks(cx, index, &known).await?;
            }
        }
        Ok(())
    }

    /// Creates the Secrets of a new revision, after deleting old revisions.
    pub(crate) async fn create(
        &mut self,
        cx: &Context<DynamicObject>,
        slots: &Slots,
        revision: &Revision,
        annotations: &RevisionAnnotations,
    ) -> Result<StoredRevision> {
        let secret = revision.secret_name();
        let payload = encode(slots, revision, None).await?;
        self.prune(cx, payload.secrets()).await?;
        let mut annotations = annotations.to_map();
        let (type_, mut labels, data) = match &payload {
            Payload::Whole(payload) => {
                (SECRET_TYPE, revision.labels(), [(PAYLOAD.to_owned(), ByteString(payload.clone()))].into())
            }
            Payload::Chunked(chunks) => {
                annotations.insert(CHUNKS.into(), chunks.len().to_string());
                create_chunks(cx, &secret, chunks).await?;
                (INDEX_TYPE, chunks::index_labels(revision), chunks::index(chunks))
            }
        };
        labels.insert("createdAt".into(), cx.now().as_second().to_string());
        let metadata = ObjectMeta {
            name: Some(secret),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let secret = Secret { metadata, type_: Some(type_.into()), data: Some(data), ..Secret::default() };
        let stored = stored(cx.create(&secret).await?)?;
        delete_chunks(cx, &stored, payload.chunks()).await?;
        Ok(stored)
    }

    /// Deletes old revisions, but never the deployed one, until one more with this number of Secrets is within the
    /// limits.
    async fn prune(&mut self, cx: &Context<DynamicObject>, incoming: usize) -> Result<()> {
        let deployed = self.deployed().map(|stored| stored.version);
        let mut count = self.obsolete.len() + self.revisions.len();
        let mut secrets =
            incoming + self.obsolete.iter().chain(&self.revisions).map(StoredRevision::secrets).sum::<usize>();
        let mut deleted = BTreeSet::new();
        for stored in self.obsolete.iter().chain(&self.revisions) {
            if count < MAX_HISTORY && secrets <= MAX_SECRETS {
                break;
            }
            if Some(stored.version) != deployed {
                delete(cx, stored).await?;
                deleted.insert(stored.version);
                count -= 1;
                secrets -= stored.secrets();
            }
        }
        self.obsolete.retain(|stored| !deleted.contains(&stored.version));
        self.revisions.retain(|stored| !deleted.contains(&stored.version));
        Ok(())
    }
}

/// Returns the first free number after that of a revision. If a forged revision has the last number, this is the first
/// free one of all.
fn next_version(last: u32, versions: &BTreeSet<u32>) -> u32 {
    let is_free = |version: &u32| !versions.contains(version);
    let next = (last.saturating_add(1)..=MAX_VERSION).find(is_free).or_else(|| (1..=MAX_VERSION).find(is_free));
    next.expect("a namespace has fewer Secrets than numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball::Kind;

    /// Returns the numbers of a release's revisions, of its obsolete ones, and of the next one, for Secrets with these
    /// numbers and controllers.
    fn versions(stored: &[(u32, &str)]) -> (Vec<u32>, Vec<u32>, u32) {
        let stored = stored.iter().map(|(version, uid)| {
            let controller = json!([{"apiVersion": "v1", "kind": "Site", "name": "a", "uid": uid, "controller": true}]);
            let labels = json!({"owner": "helm", "name": "a", "version": version.to_string(), "status": "deployed"});
            let owners = if uid.is_empty() { json!([]) } else { controller };
            let meta = json!({"name": secret_name("a", *version), "labels": labels, "ownerReferences": owners});
            serde_json::from_value(meta).unwrap()
        });
        let kind = Kind::new("example.com", "v1", "Site");
        let owner = Owner { release: "a", namespace: "b", kind: &kind, uid: "own" };
        let history = History::of(stored.collect(), &owner);
        let versions = |stored: &[StoredRevision]| stored.iter().map(|stored| stored.version).collect();
        (versions(&history.revisions), versions(&history.obsolete), history.next_version())
    }

    #[test]
    fn forged_revisions_only_reserve_their_numbers() {
        assert_eq!(versions(&[]), (vec![], vec![], 1));
        for forger in ["", "other"] {
            let own = [(3, "own"), (4, "own")];
            let with = |forged: &[u32]| {
                let forged = forged.iter().map(|version| (*version, forger));
                versions(&own.into_iter().chain(forged).collect::<Vec<_>>())
            };
            assert_eq!(with(&[u32::MAX]), (vec![3, 4], vec![], 5), "{forger:?}");
            assert_eq!(with(&[6, 7]), (vec![3, 4], vec![], 5), "{forger:?}");
        }
        assert_eq!(versions(&[(1, "own"), (2, "other"), (3, "other")]), (vec![1], vec![], 4));
        // Any owner can be forged.
        assert_eq!(versions(&[(1, "own"), (u32::MAX, "own")]), (vec![1], vec![], 2));
        assert_eq!(versions(&[(1, "own"), (MAX_VERSION, "own")]), (vec![1, MAX_VERSION], vec![], 2));
    }

    #[test]
    fn names_without_labels_reserve_their_numbers() {
        for (name, expected) in [
            ("sh.helm.release.v1.a.v12", Some(("a", 12))),
            ("sh.helm.release.v1.a.v1.v2", Some(("a.v1", 2))),
            ("sh.helm.release.v1.a.v01", None),
            ("sh.helm.release.v1.a.v+1", None),
            ("sh.helm.release.v1.a.v1-0123", None),
            ("a.v1", None),
        ] {
            assert_eq!(release_and_version(name), expected, "{name}");
        }
        let kind = Kind::new("example.com", "v1", "Site");
        let owner = Owner { release: "a", namespace: "b", kind: &kind, uid: "own" };
        let unlabeled = ObjectMeta { name: Some(secret_name("a", 1)), ..ObjectMeta::default() };
        let history = History::of(vec![unlabeled], &owner);
        assert_eq!((history.revisions.len(), history.next_version()), (0, 2));
    }

    #[test]
    fn revisions_of_helm_follow_the_own_ones() {
        assert_eq!(versions(&[(1, ""), (2, "own"), (3, ""), (4, "other"), (5, "")]), (vec![2, 3, 5], vec![1], 6));
        // A release of Helm alone may be adopted.
        assert_eq!(versions(&[(1, ""), (9, ""), (u32::MAX, "")]), (vec![1, 9], vec![], 10));
    }

    #[test]
    fn number_of_secrets_is_bounded() {
        let secrets = |kind: &str, number: &str| {
            let labels =
                json!({"owner": "a", "name": "a", "version": "1", "status": "failed", "key": "a", "type": kind});
            let labels = if kind.is_empty() {
                json!({"owner": "helm", "name": "a", "version": "1", "status": "failed"})
            } else {
                labels
            };
            let meta = json!({"name": secret_name("a", 1), "labels": labels, "annotations": {CHUNKS: number}});
            StoredRevision::of(serde_json::from_value(meta).unwrap()).unwrap().secrets()
        };
        assert_eq!((secrets("", "5"), secrets("index", "5"), secrets("index", "x")), (1, 5, 1));
        assert_eq!((secrets("index", "0"), secrets("index", "18446744073709551615")), (1, MAX_CHUNKS));
    }
}
