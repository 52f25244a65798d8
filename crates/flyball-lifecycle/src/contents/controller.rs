//! The controller of CatalogSources: loads their contents, and reports the state of the connection.

use super::location::{LoadFailure, location};
use super::status::{IDLE, READY, TRANSIENT_FAILURE, state_of, status_of};
use super::{CatalogContents, key_of};
use crate::api::CatalogSource;
use crate::catalog::CatalogKey;
use crate::packages::{CatalogSummary, PackageServer};
use crate::source::{Loaded, Location, SourceError};
use flyball::{Action, Channel, Context, Controller, ObjectKey, Reconcile, Result};
use flyball_core::time::{SignedDuration, parse_duration, rfc3339};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Timeout of loading a catalog. Resolution waits for the first attempt of every visible catalog.
const LOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval at which it is checked that a registry server answers.
const SERVER_INTERVAL: Duration = Duration::from_secs(10);
/// Delay after the first failure to load a catalog; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Maximum delay after a failure of a registry server, and of other sources.
const SERVER_RETRY: Duration = Duration::from_secs(10);
const SOURCE_RETRY: Duration = Duration::from_secs(60);
/// Longest interval at which the content of a registry server is loaded again, as in OLM.
const RELOAD_INTERVAL: SignedDuration = SignedDuration::from_mins(5);
/// Shortest time between two loads of a registry server that closes its connections.
const RELOAD_PAUSE: SignedDuration = SignedDuration::from_mins(1);
/// Pause after a load, as a multiple of its duration, and the longest such pause.
const PAUSE_FACTOR: u32 = 5;
const MAX_PAUSE: Duration = Duration::from_secs(5 * 60);
/// Interval at which an image without `updateStrategy` is polled.
const IMAGE_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Interval at which a ConfigMap is read, beside its changes.
const CONFIG_MAP_INTERVAL: Duration = Duration::from_secs(60);
/// Number of problems that are listed in the status.
const MAX_LISTED: usize = 5;
/// The shortest interval of a poll.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// The answer of a catalog to a load or a check.
#[derive(Default)]
struct Answer {
    /// The content, if it has changed.
    loaded: Option<Loaded>,
    /// Duration of the load; zero for a check.
    duration: Duration,
}

/// The reconciler of CatalogSources.
pub(crate) struct CatalogSources {
    pub(crate) contents: Arc<CatalogContents>,
    /// The server of PackageManifests.
    pub(crate) packages: Option<PackageServer>,
    /// Triggers the resolution of a namespace.
    pub(crate) resolve: Channel<Namespace>,
    /// The namespace whose catalogs all namespaces see.
    pub(crate) global_namespace: String,
}

impl Reconcile for CatalogSources {
    type Resource = CatalogSource;

    async fn reconcile(&self, source: &CatalogSource, cx: &Context<CatalogSource>) -> Result<Action> {
        let keys = cx.filter_map(None, |source: CatalogSource| Some(key_of(&source))).await?;
        let existing: BTreeSet<_> = keys.into_iter().collect();
        // ClusterCatalogs have no namespace; their controller keeps them.
        for gone in self.contents.retain(|key| key.namespace.is_empty() || existing.contains(key)) {
            self.packages.iter().for_each(|packages| packages.remove(&gone));
        }
        if state_of(source).is_empty() {
            self.report(source, IDLE, None, cx).await?;
        }
        let mut next = interval(source);
        let may_check = self.may_check(source, cx);
        let mut result = if may_check { self.check(source, cx).await } else { self.load(source, cx).await };
        if result.is_err() && state_of(source) == READY {
            self.report(source, IDLE, None, cx).await?;
            // A load connects by itself: its failure is no lost connection.
            if may_check {
                next = next.max(check_interval(self.contents.lose(source)));
                result = self.reconnect(source, cx).await;
            }
        }
        let has_changed = match result {
            Ok(Answer { loaded, duration }) => {
                // A catalog whose loads take long is loaded less often.
                next = next.max((PAUSE_FACTOR * duration).min(MAX_PAUSE));
                if self.contents.is_stale(source) {
                    next = next.min(self.until_due(source, cx));
                }
                let has_changed = self.contents.store(source, loaded);
                if has_changed {
                    self.publish(source);
                }
                self.report(source, READY, self.problem(source).as_ref().map(|text| ("InvalidPackages", &**text)), cx)
                    .await?;
                has_changed
            }
            Err(LoadFailure { reason, message }) => {
                self.report(source, TRANSIENT_FAILURE, Some((reason, &message)), cx).await?;
                next = retry(source, self.contents.failures(source)).min(interval(source));
                self.contents.fail(source, &message)
            }
        };
        if has_changed {
            self.wake(source, cx)?;
        }
        Ok(Action::requeue_after(next))
    }
}

impl CatalogSources {
    /// Returns true if a check is enough: for a server that was connected, until its next load is due.
    fn may_check(&self, source: &CatalogSource, cx: &Context<CatalogSource>) -> bool {
        let is_connected = !source.spec.address.is_empty() && state_of(source) == READY;
        is_connected && !self.until_due(source, cx).is_zero()
    }

    async fn check(&self, source: &CatalogSource, cx: &Context<CatalogSource>) -> Result<Answer, LoadFailure> {
        let location = location(source, cx.client(), Some(&self.global_namespace)).await?;
        limited(&location, self.contents.client.check(&location)).await?;
        self.contents.checked(source);
        Ok(Answer::default())
    }

    async fn load(&self, source: &CatalogSource, cx: &Context<CatalogSource>) -> Result<Answer, LoadFailure> {
        let location = location(source, cx.client(), Some(&self.global_namespace)).await?;
        let known = self.contents.revision(source);
        let began = Instant::now();
        let loaded = limited(&location, self.contents.client.load(&location, known.as_deref())).await;
        self.contents.loaded_at(source, cx.now());
        let loaded = loaded?;
        self.contents.set_stale(source, false);
        Ok(Answer { loaded, duration: began.elapsed() })
    }

    /// Connects to a server again whose connection was lost. It may have been restarted, with another content: then it
    /// is loaded, but at most once in [`RELOAD_PAUSE`], whatever the server does.
    async fn reconnect(&self, source: &CatalogSource, cx: &Context<CatalogSource>) -> Result<Answer, LoadFailure> {
        let location = location(source, cx.client(), Some(&self.global_namespace)).await?;
        let Some(known) = self.contents.revision(source) else { return self.load(source, cx).await };
        if limited(&location, self.contents.client.is_unchanged(&location, &known)).await? {
            return Ok(Answer::default());
        }
        self.contents.set_stale(source, true);
        if !self.until_due(source, cx).is_zero() {
            return Ok(Answer::default());
        }
        self.load(source, cx).await
    }

    /// Returns the time until the content of a registry server is loaded again.
    fn until_due(&self, source: &CatalogSource, cx: &Context<CatalogSource>) -> Duration {
        self.contents.until_due(source, cx.now(), reload_interval(source), RELOAD_PAUSE)
    }

    /// Passes the packages of a catalog to the server of PackageManifests.
    fn publish(&self, source: &CatalogSource) {
        let Some(packages) = &self.packages else { return };
        let Some(content) = self.contents.state(source).content else { return };
        let created = source.creation_timestamp().map(|time| rfc3339(time.0)).unwrap_or_default();
        let summary = CatalogSummary {
            key: key_of(source),
            display_name: source.spec.display_name.clone(),
            publisher: source.spec.publisher.clone(),
            labels: source.labels().clone(),
            created,
        };
        packages.insert(&summary, &content);
    }

    /// Describes the invalid packages, which are not served.
    fn problem(&self, source: &CatalogSource) -> Option<String> {
        let content = self.contents.state(source).content?;
        let problems = content.problems();
        let listed: Vec<String> = problems.iter().take(MAX_LISTED).map(ToString::to_string).collect();
        let rest = problems.count() - listed.len();
        let more = if rest == 0 { String::new() } else { format!("; and {rest} more") };
        (!problems.is_empty()).then(|| format!("invalid packages are not served: {}{more}", listed.join("; ")))
    }

    async fn report(
        &self,
        source: &CatalogSource,
        state: &str,
        problem: Option<(&str, &str)>,
        cx: &Context<CatalogSource>,
    ) -> Result<()> {
        let newest = cx.get::<CatalogSource>(cx.key()).await?;
        let newest = newest.filter(|newest| newest.uid() == source.uid());
        cx.set_status(&status_of(newest.as_ref().unwrap_or(source), state, problem, Time(cx.now()))).await
    }

    /// Triggers the resolution of the namespaces that see a catalog.
    fn wake(&self, source: &CatalogSource, cx: &Context<CatalogSource>) -> Result<()> {
        let namespace = source.namespace().unwrap_or_default();
        if namespace == self.global_namespace {
            for key in cx.caches().keys::<Namespace>(None)? {
                self.resolve.wake(&key);
            }
        } else {
            self.resolve.wake(&ObjectKey::new(None, &namespace));
        }
        Ok(())
    }
}

/// Awaits a response of a catalog, with a timeout.
async fn limited<T>(location: &Location, response: impl Future<Output = Result<T, SourceError>>) -> Result<T, String> {
    match timeout(LOAD_TIMEOUT, response).await {
        Ok(response) => response.map_err(|error| error.to_string()),
        Err(_) => Err(format!("{location} is not loaded after {} seconds", LOAD_TIMEOUT.as_secs())),
    }
}

/// Returns the interval of `updateStrategy`.
fn configured_interval(source: &CatalogSource) -> Option<Duration> {
    let poll = source.spec.update_strategy.as_ref().and_then(|strategy| strategy.registry_poll.as_ref())?;
    let nanos = parse_duration(&poll.interval).ok().and_then(|nanos| u64::try_from(nanos).ok())?;
    Some(Duration::from_nanos(nanos).max(MIN_INTERVAL))
}

/// Returns the interval at which the content of a registry server is loaded again.
fn reload_interval(source: &CatalogSource) -> SignedDuration {
    let configured = configured_interval(source).and_then(|interval| SignedDuration::try_from(interval).ok());
    configured.map_or(RELOAD_INTERVAL, |interval| interval.min(RELOAD_INTERVAL))
}

/// Returns the interval at which a catalog is loaded again, or, for a registry server, checked.
fn interval(source: &CatalogSource) -> Duration {
    match (source.spec.address.is_empty(), source.spec.image.is_empty()) {
        (false, _) => SERVER_INTERVAL,
        (true, false) => configured_interval(source).unwrap_or(IMAGE_INTERVAL),
        (true, true) => configured_interval(source).unwrap_or(CONFIG_MAP_INTERVAL),
    }
}

/// Returns the interval of checks of a server after a number of lost connections in a row.
fn check_interval(losses: u32) -> Duration {
    SERVER_INTERVAL.saturating_mul(2u32.saturating_pow(losses.saturating_sub(1).min(16))).min(SOURCE_RETRY)
}

/// Returns the delay of the next attempt after a number of failures before this one.
fn retry(source: &CatalogSource, failures: u32) -> Duration {
    let limit = if source.spec.address.is_empty() { SOURCE_RETRY } else { SERVER_RETRY };
    FIRST_RETRY.saturating_mul(2u32.saturating_pow(failures.min(16))).min(limit)
}

/// Creates the controller.
pub(crate) fn controller(reconciler: CatalogSources) -> Controller<CatalogSources> {
    let (contents, packages) = (reconciler.contents.clone(), reconciler.packages.clone());
    Controller::new(reconciler)
        .name("catalogsource")
        // No reconcile follows the deletion of the last CatalogSource.
        .watches_by_key::<CatalogSource>(move |key, caches| {
            if caches.get::<CatalogSource>(key)?.is_none() {
                let namespace = key.namespace().unwrap_or_default().to_owned();
                let gone = CatalogKey { namespace, name: key.name().to_owned() };
                contents.remove(&gone);
                packages.iter().for_each(|packages| packages.remove(&gone));
            }
            Ok(Vec::new())
        })
        .reads::<ConfigMap>()
        .reads::<Secret>()
        .watches_by_key::<Namespace>(|_, _| Ok(Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[test]
    fn attempts_are_repeated_with_backoff() {
        let mut source = CatalogSource::new(Some("team"), "catalog");
        source.spec.address = "catalog:50051".to_owned();
        let delays: Vec<u64> = (0..6).map(|failures| retry(&source, failures).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
        let intervals: Vec<u64> = (1..6).map(|losses| check_interval(losses).as_secs()).collect();
        assert_eq!(intervals, [10, 20, 40, 60, 60]);
        source.spec.address.clear();
        assert_eq!(retry(&source, 40).as_secs(), 60);
        assert_eq!(interval(&source), CONFIG_MAP_INTERVAL);
        source.spec.image = "registry.example/catalog".to_owned();
        assert_eq!(interval(&source), IMAGE_INTERVAL);
    }

    #[test]
    fn registry_servers_are_loaded_again_after_five_minutes_at_the_latest() {
        for (configured, expected) in [("45m", RELOAD_INTERVAL), ("1m", SignedDuration::from_mins(1))] {
            let poll = serde_json::json!({"registryPoll": {"interval": configured}});
            let mut source = CatalogSource::new(Some("team"), "catalog");
            source.spec.update_strategy = serde_json::from_value(poll).unwrap();
            assert_eq!(reload_interval(&source), expected, "{configured}");
        }
        assert_eq!(reload_interval(&CatalogSource::new(Some("team"), "catalog")), RELOAD_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_catalogs_fail_after_the_timeout() {
        let location = Location::Grpc { address: "catalog:50051".to_owned(), source: "1".to_owned() };
        assert_eq!(limited(&location, ready(Ok(1))).await, Ok(1));
        let error = limited::<()>(&location, pending()).await.unwrap_err();
        assert_eq!(error, "registry catalog:50051 is not loaded after 120 seconds");
    }
}
