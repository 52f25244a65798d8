//! Background tasks: watches, polls, retention, and the endpoint.

use super::Shared;
use super::poll::{self, BoxError, TIMEOUT};
use crate::access::Access;
use crate::api::Report;
use crate::collect::{Collection, Collector, watch};
use crate::endpoint;
use crate::meter::Subject;
use crate::source::resource_metrics::{PATH, PodMetricsList, Sampler};
use crate::store::Store;
use flyball::{Clock, Task, TaskContext};
use http::Request;
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

/// Interval of retention.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);

/// Returns all tasks.
pub(super) fn all(shared: &Arc<Shared>) -> Vec<Task> {
    let mut tasks = vec![collect(shared.clone()), prune(shared.clone())];
    if let Some(interval) = shared.settings.poll_interval {
        for url in shared.settings.operators.clone() {
            tasks.push(poll::operator(shared.clone(), &url, interval));
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
            let list: PodMetricsList = timeout(TIMEOUT, cx.client().request(request)).await?.map_err(explain)?;
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

/// Explains the error of a poll of usage.
fn explain(error: kube::Error) -> BoxError {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            "the API metrics.k8s.io is not installed in the cluster: install metrics-server, or use --prometheus".into()
        }
        error => error.into(),
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
