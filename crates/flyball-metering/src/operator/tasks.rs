//! Background tasks: watches, polls, retention, and the endpoint.

use super::Shared;
use crate::access::Access;
use crate::api::Report;
use crate::collect::{Collection, Collector, watch};
use crate::endpoint;
use crate::meter::Subject;
use crate::source::counters::{Counters, METRICS_PATH};
use crate::source::ledger::{OVERLAP_SECONDS, RECONCILES_PATH, Reader, Reconciles, STATE_PATH, State, cache_samples};
use crate::source::resource_metrics::{PATH, PodMetricsList, Sampler};
use crate::store::{Sample, Store};
use bytes::Bytes;
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use flyball::{Clock, Task, TaskContext};
use flyball_core::time::{Timestamp, rfc3339};
use http::{Request, StatusCode};
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

/// Interval of retention.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
/// Timeout of a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest response of an operator.
const MAX_LEDGER_BYTES: usize = 32 << 20;
/// Longest interval that one poll covers.
const MAX_POLL_SECONDS: i64 = 3600;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Returns all tasks.
pub(super) fn all(shared: &Arc<Shared>) -> Vec<Task> {
    let mut tasks = vec![collect(shared.clone()), prune(shared.clone())];
    if let Some(interval) = shared.settings.poll_interval {
        for url in shared.settings.operators.clone() {
            tasks.push(poll_operator(shared.clone(), &url, interval));
        }
    }
    tasks.extend(shared.settings.address.map(|address| {
        let shared = shared.clone();
        Task::new("endpoint of results", move |cx| async move {
            let listener = TcpListener::bind(address).await?;
            let access = Arc::new(Access::new(cx.client().clone()));
            tokio::select! {
                biased;
                () = cx.stopped() => {}
                () = endpoint::serve(listener, shared.store()?, access) => {}
            }
            Ok(())
        })
    }));
    tasks
}

/// Watches state, and polls the usage of pods.
fn collect(shared: Arc<Shared>) -> Task {
    Task::new("collector", move |cx| async move {
        let store = shared.store()?;
        let time = cx.clone();
        let collector = Collector::new(shared.settings.tenant_label.clone());
        let collection = Collection::new(collector, Clock::new(move || time.now()), shared.settings.readable());
        collection.restore(&store)?;
        let polls = async {
            match shared.settings.poll_interval {
                Some(interval) => poll_usage(&cx, &store, &collection, interval).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cx.stopped() => Ok(()),
            done = watch(cx.client().clone(), cx.rng(), &collection, Some(&store), || true) => Ok(done?),
            () = polls => Ok(()),
        }
    })
}

/// Polls `metrics.k8s.io`. While it does not respond, usage is missing.
async fn poll_usage(cx: &TaskContext, store: &Store, collection: &Collection, interval: Duration) {
    let (mut sampler, mut is_available) = (Sampler::default(), true);
    loop {
        sleep(interval).await;
        if !collection.is_synced() {
            continue;
        }
        let poll = async {
            let request = Request::get(PATH).body(Vec::new())?;
            let list: PodMetricsList = timeout(POLL_TIMEOUT, cx.client().request(request)).await??;
            let samples = {
                let collector = collection.collector.lock();
                let find = |namespace: &str, name: &str| {
                    collector.find(Subject::Pod, namespace, name).map(|(series, since)| (series.clone(), since))
                };
                sampler.samples(&list, cx.now().as_second(), find)
            };
            store.import(&samples)?;
            Ok::<_, BoxError>(())
        };
        let done = poll.await;
        if let (Err(error), true) = (&done, is_available) {
            tracing::warn!(error = &**error, "no usage of pods from metrics.k8s.io: it counts as missing");
        }
        is_available = done.is_ok();
    }
}

/// Polls the ledger of an operator, or its counters if it has none.
fn poll_operator(shared: Arc<Shared>, address: &str, interval: Duration) -> Task {
    let (name, url) = address.split_once('=').unwrap_or(("", address));
    let mut poller = OperatorPoller {
        name: if name.is_empty() { url.to_owned() } else { name.to_owned() },
        url: url.trim_end_matches('/').to_owned(),
        reader: Reader::default(),
        counters: Counters::default(),
    };
    Task::new(format!("poll of operator {}", poller.name), move |cx| async move {
        let client = Client::new(Trust::System, Proxies::from_env())?;
        let store = shared.store()?;
        let (mut last, mut is_available) = (cx.now().as_second(), true);
        loop {
            tokio::select! { biased; () = cx.stopped() => return Ok(()), () = sleep(interval) => {} }
            let now = cx.now().as_second();
            if now <= last {
                continue;
            }
            let samples = poller.poll(&client, last.max(now - MAX_POLL_SECONDS), now).await;
            let stored = samples.and_then(|samples| Ok(store.import(&samples)?));
            match stored {
                Ok(_) => (last, is_available) = (now, true),
                Err(error) if is_available => {
                    tracing::warn!(error = &*error, operator = poller.name, "cannot meter an operator");
                    is_available = false;
                }
                Err(_) => {}
            }
        }
    })
}

/// The state of polls of one operator.
struct OperatorPoller {
    name: String,
    url: String,
    reader: Reader,
    counters: Counters,
}

impl OperatorPoller {
    async fn poll(&mut self, client: &Client, since: i64, now: i64) -> Result<Vec<Sample>, BoxError> {
        let from = Timestamp::from_second(since - OVERLAP_SECONDS).map_or_else(|_| String::new(), rfc3339);
        let path = format!("{}{RECONCILES_PATH}?limit=1000&since={from}", self.url);
        let Some(page) = get(client, &path).await? else {
            let text = get(client, &format!("{}{METRICS_PATH}", self.url))
                .await?
                .ok_or("it has neither ledger nor metrics")?;
            return Ok(self.counters.samples(&self.name, &String::from_utf8_lossy(&text), since, now));
        };
        let page: Reconciles = serde_json::from_slice(&page)?;
        let state = get(client, &format!("{}{STATE_PATH}", self.url)).await?.ok_or("it has no state")?;
        let state: State = serde_json::from_slice(&state)?;
        if page.omitted > 0 {
            let omitted = page.omitted;
            tracing::warn!(operator = self.name, omitted, "more reconciles than were read: reduce --poll-interval");
        }
        let mut samples = self.reader.samples(&page, since, now);
        samples.extend(cache_samples(&state, since, now));
        Ok(samples)
    }
}

/// Returns the body of a page, none if there is no such page.
async fn get(client: &Client, url: &str) -> Result<Option<Bytes>, BoxError> {
    let request = Request::get(url).body(Bytes::new())?;
    let response = timeout(POLL_TIMEOUT, client.fetch(request, MAX_LEDGER_BYTES)).await??;
    match response.status() {
        StatusCode::NOT_FOUND => Ok(None),
        status if status.is_success() => Ok(Some(response.into_body())),
        status => Err(format!("the operator responds with status {status}").into()),
    }
}

/// Removes old data, and the results of deleted reports.
fn prune(shared: Arc<Shared>) -> Task {
    Task::new("retention", move |cx| async move {
        loop {
            tokio::select! { biased; () = cx.stopped() => return Ok(()), () = sleep(PRUNE_INTERVAL) => {} }
            let (store, now, retention) = (shared.store()?, cx.now().as_second(), shared.settings.retention);
            let known = cx.caches().list::<Report>(None).ok();
            let known = known.map(|reports| reports.iter().filter_map(ResourceExt::uid).collect::<BTreeSet<String>>());
            let work = move || {
                store.prune(now, retention)?;
                for uid in store.report_uids()? {
                    if known.as_ref().is_some_and(|known| !known.contains(&uid)) {
                        store.remove_report(&uid)?;
                    }
                }
                Ok::<_, crate::store::Error>(())
            };
            if let Err(error) = shared.compute(work).await {
                tracing::warn!(error = &error as &dyn StdError, "cannot remove old data");
            }
        }
    })
}
