//! The contents of the CatalogSources, in memory, and the controller that loads them.
//!
//! A content is kept while its CatalogSource exists, also while it cannot be loaded again: an unreachable catalog
//! prevents no resolution whose bundles are known. The indexes for resolution are built once for each set of catalogs.
//!
//! Invariant: a content belongs to the CatalogSource with the same UID, so that no Subscription uses the bundles of a
//! deleted catalog.

mod controller;
mod host;
mod location;
mod status;

pub(crate) use controller::{CatalogSources, controller};
pub(crate) use location::UNTRUSTED_CONTENT;

use crate::api::CatalogSource;
use crate::catalog::{CatalogKey, Catalogs};
use crate::content::{Content, PackageBundle};
use crate::image::ImageName;
use crate::manifests::Manifests;
use crate::source::{CatalogClient, Loaded, SourceError, content_digest};
use flyball_core::time::{SignedDuration, Timestamp};
use kube::ResourceExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Number of sets of catalogs whose indexes are kept; most namespaces see the same set.
const MAX_INDEXES: usize = 8;
/// Time for which resolutions wait for the first content of a catalog: a slow one holds up the Subscriptions to its
/// packages only.
const FIRST_LOAD: SignedDuration = SignedDuration::from_secs(10);
/// Number of bundles from images whose objects are kept.
const MAX_UNPACKED: usize = 32;

/// The state of a catalog.
#[derive(Clone, Debug, Default)]
pub(crate) struct CatalogState {
    /// The newest content.
    pub(crate) content: Option<Arc<Content>>,
    /// The reason why it could not be loaded the last time.
    pub(crate) error: Option<String>,
}

impl CatalogState {
    /// Returns true if the first attempt to load it has not ended.
    pub(crate) fn is_unknown(&self) -> bool {
        self.content.is_none() && self.error.is_none()
    }
}

#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    state: CatalogState,
    /// Identifies the content.
    revision: String,
    /// Distinguishes contents.
    number: u64,
    /// Time of the last attempt to load it.
    loaded: Option<Timestamp>,
    /// True if the content has changed since it was loaded.
    is_stale: bool,
    /// Time at which a resolution began to wait for its first content.
    awaited: Option<Timestamp>,
    /// Number of failures to load it since the last success.
    failures: u32,
    /// Number of lost connections since the last successful check.
    losses: u32,
}

/// The identity of a set of catalogs: keys, contents and priorities.
type IndexKey = Vec<(CatalogKey, u64, i32)>;

/// The contents of all CatalogSources.
pub(crate) struct CatalogContents {
    client: Arc<dyn CatalogClient>,
    state: Mutex<State>,
}

/// The objects of a bundle from an image.
struct Unpacked {
    /// The name of the image, whose content may change.
    image: String,
    /// The digest of the image.
    digest: String,
    manifests: Arc<Manifests>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<CatalogKey, Entry>,
    indexes: VecDeque<(IndexKey, Arc<Catalogs>)>,
    unpacked: VecDeque<Unpacked>,
    next: u64,
}

/// Loads the content of a CatalogSource. The label [`CATALOG`](crate::api::labels::CATALOG) is required only if the
/// lifecycle manager has reported that it is missing: other managers use all contents.
///
/// # Errors
///
/// If the CatalogSource is invalid, or its content cannot be loaded.
pub async fn load(
    source: &CatalogSource,
    client: &kube::Client,
    catalogs: &dyn CatalogClient,
) -> Result<Loaded, String> {
    let trusted = (source.status.reason == location::UNTRUSTED_CONTENT).then_some("");
    let location = location::location(source, client, trusted).await.map_err(|failure| failure.message)?;
    let loaded = catalogs.load(&location, None).await.map_err(|error| error.to_string())?;
    loaded.ok_or_else(|| format!("{location} returned no content"))
}

/// Returns the key of a CatalogSource.
pub(crate) fn key_of(source: &CatalogSource) -> CatalogKey {
    CatalogKey { namespace: source.namespace().unwrap_or_default(), name: source.name_any() }
}

impl CatalogContents {
    pub(crate) fn new(client: Arc<dyn CatalogClient>) -> Self {
        Self { client, state: Mutex::default() }
    }

    /// Creates contents that were loaded, or could not be.
    pub(crate) fn of(client: Arc<dyn CatalogClient>, loaded: &[(CatalogSource, Result<Loaded, String>)]) -> Self {
        let contents = Self::new(client);
        for (source, loaded) in loaded {
            match loaded {
                Ok(loaded) => drop(contents.store(source, Some(loaded.clone()))),
                Err(error) => drop(contents.fail(source, error)),
            }
        }
        contents
    }

    /// Stores a content; returns true if it is another one than before, or the catalog could not be loaded before.
    pub(crate) fn store(&self, source: &CatalogSource, loaded: Option<Loaded>) -> bool {
        let loaded = loaded.map(|Loaded { content, revision }| {
            let revision = if revision.is_empty() { content_digest(&content) } else { revision };
            Loaded { content, revision }
        });
        let mut state = self.state.lock();
        let number = state.next();
        let entry = state.entry(source);
        let had_error = entry.state.error.take().is_some();
        entry.failures = 0;
        let Some(Loaded { content, revision }) = loaded else { return had_error };
        if entry.state.content.is_some() && entry.revision == revision {
            return had_error;
        }
        (entry.state.content, entry.revision, entry.number) = (Some(content), revision, number);
        true
    }

    /// Stores the reason why a catalog could not be loaded; returns true if it is another one than before.
    pub(crate) fn fail(&self, source: &CatalogSource, error: &str) -> bool {
        let mut state = self.state.lock();
        let entry = state.entry(source);
        entry.failures = entry.failures.saturating_add(1);
        entry.state.error.replace(error.to_owned()).as_deref() != Some(error)
    }

    /// Returns the number of failures to load a catalog since the last success.
    fn failures(&self, source: &CatalogSource) -> u32 {
        self.state.lock().find(source).map_or(0, |entry| entry.failures)
    }

    /// Counts a lost connection, and returns the number of those since the last successful check.
    fn lose(&self, source: &CatalogSource) -> u32 {
        let mut state = self.state.lock();
        let entry = state.entry(source);
        entry.losses = entry.losses.saturating_add(1);
        entry.losses
    }

    /// Records a successful check of a connection.
    fn checked(&self, source: &CatalogSource) {
        self.state.lock().entry(source).losses = 0;
    }

    /// Drops the contents of CatalogSources that do not exist, and returns their keys.
    pub(crate) fn retain(&self, exists: impl Fn(&CatalogKey) -> bool) -> Vec<CatalogKey> {
        let mut state = self.state.lock();
        let gone: Vec<CatalogKey> = state.entries.keys().filter(|key| !exists(key)).cloned().collect();
        gone.iter().for_each(|key| state.remove(key));
        gone
    }

    /// Drops the content of a CatalogSource.
    pub(crate) fn remove(&self, key: &CatalogKey) {
        self.state.lock().remove(key);
    }

    /// Returns the revision of a content.
    pub(crate) fn revision(&self, source: &CatalogSource) -> Option<String> {
        let state = self.state.lock();
        state.find(source).filter(|entry| entry.state.content.is_some()).map(|entry| entry.revision.clone())
    }

    /// Returns the time until a catalog has to be loaded: at an interval, or after a pause if its content has changed.
    fn until_due(
        &self,
        source: &CatalogSource,
        now: Timestamp,
        interval: SignedDuration,
        pause: SignedDuration,
    ) -> Duration {
        let state = self.state.lock();
        let entry = state.find(source).filter(|entry| entry.state.content.is_some() && entry.state.error.is_none());
        let Some((entry, loaded)) = entry.and_then(|entry| Some((entry, entry.loaded?))) else { return Duration::ZERO };
        let interval = if entry.is_stale { pause.min(interval) } else { interval };
        // The clock may have been set back.
        let rest = (interval - now.duration_since(loaded)).min(interval);
        Duration::try_from(rest).unwrap_or_default()
    }

    /// Returns true if the content of a catalog has changed since it was loaded.
    fn is_stale(&self, source: &CatalogSource) -> bool {
        self.state.lock().find(source).is_some_and(|entry| entry.is_stale)
    }

    /// Records whether the content of a catalog has changed since it was loaded.
    fn set_stale(&self, source: &CatalogSource, is_stale: bool) {
        self.state.lock().entry(source).is_stale = is_stale;
    }

    /// Returns the rest of the time for which resolutions wait for the first content of a catalog, if they do.
    pub(crate) fn remaining_wait(&self, source: &CatalogSource, now: Timestamp) -> Option<Duration> {
        let mut state = self.state.lock();
        let is_other = |entry: &Entry| entry.uid != source.uid();
        if state.entries.get(&key_of(source)).is_some_and(is_other) {
            // It was created again, and this one is about to be noticed.
            return Duration::try_from(FIRST_LOAD).ok();
        }
        let entry = state.entry(source);
        if !entry.state.is_unknown() {
            return None;
        }
        let waited = now.duration_since(*entry.awaited.get_or_insert(now));
        Duration::try_from(FIRST_LOAD - waited).ok().filter(|rest| !rest.is_zero())
    }

    /// Records an attempt to load a catalog.
    fn loaded_at(&self, source: &CatalogSource, now: Timestamp) {
        self.state.lock().entry(source).loaded = Some(now);
    }

    /// Returns the client that loads catalogs.
    pub(crate) fn client(&self) -> &dyn CatalogClient {
        &*self.client
    }

    /// Returns the content of a catalog by its key alone.
    pub(crate) fn content(&self, key: &CatalogKey) -> Option<Arc<Content>> {
        self.state.lock().entries.get(key)?.state.content.clone()
    }

    /// Returns the state of a catalog.
    pub(crate) fn state(&self, source: &CatalogSource) -> CatalogState {
        self.state.lock().find(source).map(|entry| entry.state.clone()).unwrap_or_default()
    }

    /// Returns the catalogs with a content, indexed.
    pub(crate) fn catalogs(&self, sources: &[&CatalogSource]) -> Arc<Catalogs> {
        let mut state = self.state.lock();
        let identity = |source: &&CatalogSource| {
            let entry = state.find(source).filter(|entry| entry.state.content.is_some())?;
            let priority = source.spec.priority.clamp(i32::MIN.into(), i32::MAX.into());
            Some((key_of(source), entry.number, i32::try_from(priority).unwrap_or_default()))
        };
        let mut key: IndexKey = sources.iter().filter_map(identity).collect();
        key.sort();
        if let Some((_, known)) = state.indexes.iter().find(|(known, _)| *known == key) {
            return known.clone();
        }
        let catalog = |(name, _, priority): &(CatalogKey, u64, i32)| {
            let content = state.entries.get(name)?.state.content.as_ref()?;
            Some(content.to_catalog(name.clone(), *priority))
        };
        let indexed = Arc::new(Catalogs::new(key.iter().filter_map(catalog).collect()));
        if state.indexes.len() >= MAX_INDEXES {
            state.indexes.pop_front();
        }
        state.indexes.push_back((key, indexed.clone()));
        indexed
    }

    /// Returns the objects of a bundle if the registry of its image does not have to be asked for them.
    pub(crate) fn known_manifests(&self, bundle: &PackageBundle) -> Option<Arc<Manifests>> {
        if let Some(manifests) = bundle.manifests() {
            return manifests.ok().map(Arc::new);
        }
        let name: ImageName = bundle.image.parse().ok()?;
        self.unpacked(&name.digest?)
    }

    /// Returns the objects of a bundle as they were when its image was pulled the last time. The caller checks that
    /// they are those that it needs.
    pub(crate) fn last_manifests(&self, bundle: &PackageBundle) -> Option<Arc<Manifests>> {
        let state = self.state.lock();
        state.unpacked.iter().rev().find(|known| known.image == bundle.image).map(|known| known.manifests.clone())
    }

    fn unpacked(&self, digest: &str) -> Option<Arc<Manifests>> {
        let state = self.state.lock();
        state.unpacked.iter().find(|known| known.digest == digest).map(|known| known.manifests.clone())
    }

    /// Returns the objects of a bundle: those in the catalog, or those in its image.
    ///
    /// # Errors
    ///
    /// If the image cannot be pulled, or the objects are not a bundle.
    pub(crate) async fn manifests(
        &self,
        bundle: &PackageBundle,
        source: &CatalogSource,
        client: &kube::Client,
    ) -> Result<Arc<Manifests>, String> {
        if let Some(known) = self.known_manifests(bundle) {
            return Ok(known);
        }
        let secrets = location::secrets(source, client).await?;
        let digest = self.client.digest(bundle, &secrets).await.map_err(|error| error.to_string())?;
        if let Some(known) = digest.as_deref().and_then(|digest| self.unpacked(digest)) {
            return Ok(known);
        }
        let manifests = self.client.manifests(bundle, &secrets).await.map_err(|error| match error {
            // The caller names the bundle.
            SourceError::Manifests { source, .. } => source.to_string(),
            error => error.to_string(),
        })?;
        let manifests = Arc::new(manifests);
        if let Some(digest) = digest {
            let mut state = self.state.lock();
            if state.unpacked.len() >= MAX_UNPACKED {
                state.unpacked.pop_front();
            }
            state.unpacked.push_back(Unpacked { image: bundle.image.clone(), digest, manifests: manifests.clone() });
        }
        Ok(manifests)
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Removes a content and the indexes of it.
    fn remove(&mut self, gone: &CatalogKey) {
        self.entries.remove(gone);
        self.indexes.retain(|(set, _)| set.iter().all(|(key, ..)| key != gone));
    }

    fn find(&self, source: &CatalogSource) -> Option<&Entry> {
        self.entries.get(&key_of(source)).filter(|entry| entry.uid == source.uid())
    }

    /// Returns the entry of a CatalogSource, a new one if there is none or it belongs to a deleted object.
    fn entry(&mut self, source: &CatalogSource) -> &mut Entry {
        let uid = source.uid();
        let fresh = || Entry {
            uid: uid.clone(),
            state: CatalogState::default(),
            revision: String::new(),
            number: 0,
            loaded: None,
            is_stale: false,
            awaited: None,
            failures: 0,
            losses: 0,
        };
        let entry = self.entries.entry(key_of(source)).or_insert_with(fresh);
        if entry.uid != uid {
            *entry = fresh();
        }
        entry
    }
}

impl fmt::Debug for CatalogContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogContents").field("catalogs", &self.state.lock().entries.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Blobs;
    use crate::source::{Location, Sources};
    use futures_util::future::BoxFuture;

    #[test]
    fn removed_contents_are_in_no_index() {
        let contents = CatalogContents::new(Arc::new(Sources::default()));
        let mut source = CatalogSource::new(Some("team"), "catalog");
        source.metadata.uid = Some("1".to_owned());
        let loaded = Loaded { content: Arc::new(Content::default()), revision: "1".to_owned() };
        assert!(contents.store(&source, Some(loaded)));
        drop(contents.catalogs(&[&source]));
        contents.remove(&CatalogKey { namespace: "team".to_owned(), name: "other".to_owned() });
        assert_eq!(contents.state.lock().indexes.len(), 1);
        contents.remove(&key_of(&source));
        let state = contents.state.lock();
        assert!(state.entries.is_empty() && state.indexes.is_empty());
    }

    /// A registry whose tag moves.
    #[derive(Default)]
    struct Moving {
        digest: Mutex<String>,
        pulls: Mutex<usize>,
    }

    impl CatalogClient for Moving {
        fn load<'c>(
            &'c self,
            _: &'c Location,
            _: Option<&'c str>,
        ) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
            Box::pin(async { Ok(None) })
        }

        fn digest<'c>(
            &'c self,
            _: &'c PackageBundle,
            _: &'c [String],
        ) -> BoxFuture<'c, Result<Option<String>, SourceError>> {
            let digest = self.digest.lock().clone();
            Box::pin(async move { Ok(Some(digest)) })
        }

        fn manifests<'c>(
            &'c self,
            _: &'c PackageBundle,
            _: &'c [String],
        ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
            *self.pulls.lock() += 1;
            let name = format!("of-{}", self.digest.lock());
            let csv = serde_json::json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "metadata": {"name": name},
            });
            Box::pin(async move { Ok(Manifests::new(vec![csv]).expect("it is a bundle")) })
        }
    }

    #[tokio::test]
    async fn bundles_are_unpacked_once_for_each_digest_and_again_when_a_tag_moves() {
        let registry = Arc::new(Moving::default());
        let contents = CatalogContents::new(registry.clone());
        let text = "{schema: olm.package, name: a, defaultChannel: b}\n---\n\
                    {schema: olm.channel, package: a, name: b, entries: [{name: a.v1}]}\n---\n\
                    {schema: olm.bundle, package: a, name: a.v1, image: 'x/y:latest', properties: []}\n";
        let mut blobs = Blobs::default();
        blobs.add("catalog.yaml", text.as_bytes()).unwrap();
        let content = Content::unchecked(blobs);
        let bundle = content.bundle("a", "a.v1").unwrap();
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no request is needed"))
        });
        let client = kube::Client::new(service, "default");
        let source = CatalogSource::new(Some("team"), "catalog");
        let unpack = async |digest: &str| {
            digest.clone_into(&mut registry.digest.lock());
            contents.manifests(bundle, &source, &client).await.unwrap().name().to_owned()
        };
        for (digest, pulls) in [("sha256:1", 1), ("sha256:1", 1), ("sha256:2", 2), ("sha256:1", 2)] {
            assert_eq!(unpack(digest).await, format!("of-{digest}"));
            assert_eq!(*registry.pulls.lock(), pulls);
        }
        assert!(contents.known_manifests(bundle).is_none(), "the tag may have moved");
        assert_eq!(contents.last_manifests(bundle).unwrap().name(), "of-sha256:2");
    }
}
