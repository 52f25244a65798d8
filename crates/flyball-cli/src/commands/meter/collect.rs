//! Collects a cluster from this machine, with the permissions of the user.

use crate::error::{Error, Result, ResultExt};
use crate::render::progress::Progress;
use flyball::{Clock, Rng};
use flyball_metering::OperatorPolls;
use flyball_metering::collect::{Collection, Collector, ReadableOwners, collect_once, watch};
use flyball_metering::meter::Subject;
use flyball_metering::source::resource_metrics::{PATH, PodMetricsList, Sampler};
use flyball_metering::store::{STATE, Sample, Store, USAGE_SINCE, USAGE_UNTIL};
use http::Request;
use kube::Client;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Interval of polls of usage.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Longest time until all objects are listed, unless the watch is longer.
const MAX_LIST_TIME: Duration = Duration::from_secs(30);
/// Interval at which a watch checks if its time is over.
const TICK: Duration = Duration::from_millis(100);
/// Explanation of missing usage.
pub(super) const NO_USAGE: &str = "no usage: the cluster does not serve metrics.k8s.io, or you may not read it";

/// Collects all objects of a namespace, or of all.
pub(super) async fn now(client: &Client, namespace: Option<&str>, tenant_label: Option<String>) -> Result<Collection> {
    let collection = Collection::new(Collector::new(tenant_label), Clock::system(), ReadableOwners::All);
    let collected = collect_once(client, &collection, namespace).await.context("cannot list pods and claims");
    collected.map_err(|error| match namespace {
        None if error.code() == Some(403) => error.hint("select a namespace that you may read: -n NAMESPACE"),
        _ => error,
    })?;
    Ok(collection)
}

/// Stores what was collected.
pub(super) fn store(store: &Store, collection: &Collection, time: i64) -> Result<()> {
    let gauges = collection.collector.lock().drain(time, true);
    store.set_gauges(&gauges).context("cannot store what was collected")?;
    store.set_progress(STATE, time).context("cannot store what was collected")
}

/// The scope of a collection from a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    /// Begin in seconds.
    pub(super) since: i64,
    /// End in seconds.
    pub(super) until: i64,
    /// True if the cluster serves the usage of pods.
    pub(super) has_usage: bool,
    /// The reason why an operator was not metered up to the end.
    pub(super) problem: Option<String>,
}

/// Lists the whole cluster, watches it for a time since then, and stores state and usage of this time, with the work
/// of operators.
pub(super) async fn watch_for(
    client: &Client,
    store: &Store,
    time: Duration,
    tenant_label: Option<String>,
    operators: Vec<OperatorPolls>,
) -> Result<Watched> {
    let collection = Collection::new(Collector::new(tenant_label), Clock::system(), ReadableOwners::All);
    let rng = Rng::from_os();
    let usage = Usage { client, store, collection: &collection, sampler: Sampler::default(), operators };
    let watched = tokio::select! {
        biased;
        done = watch(client.clone(), &rng, &collection, Some(store), || true) => {
            done.context("cannot store what was collected")?;
            None
        }
        counted = usage.count_for(time) => counted?,
    };
    collection.store_last(store).context("cannot store what was collected")?;
    watched.ok_or_else(|| {
        Error::new("the state of the cluster could not be read in this time")
            .hint("it takes the right to list pods, claims, nodes and workloads in all namespaces; or omit --for")
    })
}

/// Polls of usage, and of operators, during a watch.
struct Usage<'w> {
    client: &'w Client,
    store: &'w Store,
    collection: &'w Collection,
    sampler: Sampler,
    operators: Vec<OperatorPolls>,
}

impl Usage<'_> {
    /// Counts for a time since all objects are known; `None` if they do not become known.
    async fn count_for(mut self, time: Duration) -> Result<Option<Watched>> {
        let mut progress = Progress::new("listing the cluster");
        let listed = async {
            while !self.collection.is_synced() {
                sleep(TICK).await;
            }
        };
        if timeout(time.max(MAX_LIST_TIME), listed).await.is_err() {
            return Ok(None);
        }
        let since = Clock::system().now().as_second();
        self.store.set_progress(USAGE_SINCE, since).context("cannot store what is collected")?;
        let (begin, mut has_usage) = (Instant::now(), false);
        // An operator that does not respond now is probably a mistake in its address.
        self.poll_operators().await?;
        let mut next_poll = begin;
        while begin.elapsed() < time {
            if Instant::now() >= next_poll {
                has_usage |= self.poll(since).await?;
                // The next poll covers the time of one that failed.
                let _ = self.poll_operators().await;
                next_poll += POLL_INTERVAL;
            }
            let (passed, total) = (begin.elapsed().min(time).as_secs(), time.as_secs());
            progress.show(format!("watching the cluster: {passed} of {total} s"));
            sleep(TICK.min(time.saturating_sub(begin.elapsed()))).await;
        }
        has_usage |= self.poll(since).await?;
        let problem = self.poll_operators().await.err().map(|error| error.to_string());
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let polled = self.store.progress(USAGE_UNTIL).context("cannot read what was collected")?;
        let until = since.saturating_add(seconds).max(polled.unwrap_or(since));
        Ok(Some(Watched { since, until, has_usage, problem }))
    }

    /// Stores the usage of pods since a time. Returns false if the cluster serves none.
    async fn poll(&mut self, since: i64) -> Result<bool> {
        let Ok(list) = usage(self.client).await else { return Ok(false) };
        let samples: Vec<Sample> = {
            let collector = self.collection.collector.lock();
            let find = |namespace: &str, name: &str| {
                collector.find(Subject::Pod, namespace, name).map(|(series, since)| (series.clone(), since))
            };
            let samples = self.sampler.samples(&list, Clock::system().now().as_second(), find);
            // The window of the first values began earlier.
            samples.into_iter().filter_map(|sample| sample.after(since)).collect()
        };
        self.import(&samples).map(|()| true)
    }

    /// Stores the work of operators since the last poll.
    async fn poll_operators(&mut self) -> Result<()> {
        for at in 0..self.operators.len() {
            let operator = &mut self.operators[at];
            let polled = operator.poll(Clock::system().now().as_second()).await;
            let failed = format!("cannot meter the operator {}", operator.name());
            let samples = polled.map_err(|error| Error::new(format!("{failed}: {error}")))?;
            self.import(&samples)?;
        }
        Ok(())
    }

    fn import(&self, samples: &[Sample]) -> Result<()> {
        self.store.import(samples).context("cannot store usage")?;
        match samples.iter().map(|sample| sample.until).max() {
            Some(until) => self.store.set_progress(USAGE_UNTIL, until).context("cannot store usage"),
            None => Ok(()),
        }
    }
}

/// Returns the current usage of all pods.
pub(super) async fn usage(client: &Client) -> kube::Result<PodMetricsList> {
    let request = Request::get(PATH).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}
