//! Collects a cluster from this machine, with the permissions of the user.

use crate::error::{Error, Result, ResultExt};
use flyball::{Clock, Rng};
use flyball_metering::collect::{Collection, Collector, ReadableOwners, collect_once, watch};
use flyball_metering::meter::Subject;
use flyball_metering::source::resource_metrics::{PATH, PodMetricsList, Sampler};
use flyball_metering::store::{STATE, Sample, Store, USAGE_SINCE, USAGE_UNTIL};
use http::Request;
use kube::Client;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval of polls of usage.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(15);

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

/// Watches the whole cluster for a time since now, and stores state and usage of this time.
pub(super) async fn watch_for(
    client: &Client,
    store: &Store,
    (since, time): (i64, Duration),
    tenant_label: Option<String>,
) -> Result<()> {
    let collection = Collection::new(Collector::new(tenant_label), Clock::system(), ReadableOwners::All);
    let until = Instant::now() + time;
    store.set_progress(USAGE_SINCE, since).context("cannot store what is collected")?;
    let rng = Rng::from_os();
    tokio::select! {
        biased;
        done = watch(client.clone(), &rng, &collection, Some(store), || Instant::now() < until) => {
            done.context("cannot store what was collected")?;
        }
        failed = poll_usage(client, store, &collection, since) => return failed,
    }
    if store.progress(STATE).context("cannot read what was collected")?.is_none() {
        return Err(Error::new("the state of the cluster could not be read in this time")
            .hint("it takes the right to list pods, claims, nodes and workloads in all namespaces; or omit --for"));
    }
    Ok(())
}

/// Polls usage until the store fails, and stores that since a time. A cluster without it has no usage.
async fn poll_usage(client: &Client, store: &Store, collection: &Collection, since: i64) -> Result<()> {
    let mut sampler = Sampler::default();
    loop {
        if let Ok(list) = usage(client).await {
            let samples: Vec<Sample> = {
                let collector = collection.collector.lock();
                let find = |namespace: &str, name: &str| {
                    collector.find(Subject::Pod, namespace, name).map(|(series, since)| (series.clone(), since))
                };
                let samples = sampler.samples(&list, Clock::system().now().as_second(), find);
                // The window of the first values began earlier.
                samples.into_iter().filter_map(|sample| sample.after(since)).collect()
            };
            store.import(&samples).context("cannot store usage")?;
            if let Some(until) = samples.iter().map(|sample| sample.until).max() {
                store.set_progress(USAGE_UNTIL, until).context("cannot store usage")?;
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns the current usage of all pods.
pub(super) async fn usage(client: &Client) -> kube::Result<PodMetricsList> {
    let request = Request::get(PATH).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}
