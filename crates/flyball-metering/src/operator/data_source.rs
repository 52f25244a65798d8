//! Reconciles ReportDataSources: imports the ranges of Prometheus queries that are complete.

use super::Shared;
use crate::api::{ImportStatus, PrometheusImporter, ReportDataSource, ReportDataSourceStatus};
use crate::meter::Subject;
use crate::source::prometheus::{Range, Values, query_range, samples};
use crate::store::Series;
use flyball::error_chain;
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use flyball::{Action, Condition, Context, Controller, Reconcile, Result};
use flyball_core::time::{Timestamp, parse_rfc3339, parse_unsigned_duration, rfc3339};
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;

/// Time before now that is not imported yet: Prometheus may still receive its values.
const LATENESS: i64 = 60;
/// Most chunks of one reconcile.
const MAX_CHUNKS: usize = 24;
/// Time after which a failed import is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// Returns the controller of ReportDataSources.
pub(super) fn controller(shared: Arc<Shared>) -> Controller<DataSources> {
    Controller::new(DataSources { shared }).deadline(Duration::from_secs(600))
}

/// Reconciles each ReportDataSource.
pub(super) struct DataSources {
    shared: Arc<Shared>,
}

impl Reconcile for DataSources {
    type Resource = ReportDataSource;

    async fn reconcile(&self, source: &ReportDataSource, cx: &Context<ReportDataSource>) -> Result<Action> {
        let Some(importer) = &source.spec.prometheus_metrics_importer else {
            let ready = Condition::new("Ready", true, "View");
            cx.set_status(&ReportDataSourceStatus { conditions: vec![ready], ..Default::default() }).await?;
            return Ok(Action::done());
        };
        let known = source.status.clone().unwrap_or_default().prometheus_metrics_import_status;
        let (condition, status, next) = match self.import(source, importer, cx).await? {
            Ok((status, next)) => (Condition::new("Ready", true, "Imported"), Some(status), next),
            Err((reason, problem)) => (Condition::new("Ready", false, reason).message(problem), known, RETRY),
        };
        let status = ReportDataSourceStatus { conditions: vec![condition], prometheus_metrics_import_status: status };
        cx.set_status(&status).await?;
        Ok(Action::requeue_after(next))
    }
}

/// A reason and a message for people.
type Problem = (&'static str, String);

/// The intervals of an importer in seconds.
struct Intervals {
    interval: Duration,
    step: i64,
    chunk: i64,
}

impl Intervals {
    fn of(importer: &PrometheusImporter) -> std::result::Result<Self, Problem> {
        let parse = |field: &str, text: &Option<String>, default: u64, range: std::ops::RangeInclusive<u64>| {
            let Some(text) = text else { return Ok(default) };
            let seconds = parse_unsigned_duration(text).map(|duration| duration.as_secs());
            seconds.filter(|seconds| range.contains(seconds)).ok_or_else(|| {
                let (low, high) = (range.start(), range.end());
                let problem = format!(
                    "spec.prometheusMetricsImporter.queryConfig.{field}: {text:?} is not from {low}s to {high}s"
                );
                ("InvalidSource", problem)
            })
        };
        let config = &importer.query_config;
        let interval = Duration::from_secs(parse("queryInterval", &config.query_interval, 300, 10..=86_400)?);
        let step = parse("stepSize", &config.step_size, 60, 1..=3600)?;
        let chunk = parse("chunkSize", &config.chunk_size, 3600, step..=86_400)?;
        let whole = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        Ok(Self { interval, step: whole(step), chunk: whole(chunk / step * step) })
    }
}

impl DataSources {
    async fn import(
        &self,
        source: &ReportDataSource,
        importer: &PrometheusImporter,
        cx: &Context<ReportDataSource>,
    ) -> Result<std::result::Result<(ImportStatus, Duration), Problem>> {
        let (own, allowed) = (source.namespace().unwrap_or_default(), &self.shared.settings.namespace);
        if own != *allowed {
            // Its labels name pods of all namespaces, and its query reads all of Prometheus.
            let problem = format!("prometheusMetricsImporter is allowed in namespace {allowed:?} only");
            return Ok(Err(("InvalidSource", problem)));
        }
        let (url, intervals) = match (self.url(importer), Intervals::of(importer)) {
            (Ok(url), Ok(intervals)) => (url, intervals),
            (Err(problem), _) | (_, Err(problem)) => return Ok(Err(problem)),
        };
        let store = self.shared.store()?;
        let (namespace, name) = (source.namespace().unwrap_or_default(), source.name_any());
        let progress = format!("datasource/{}", source.uid().unwrap_or_default());
        let created = source.meta().creation_timestamp.as_ref().map_or(cx.now(), |time| time.0).as_second();
        let from = importer.import_from.as_deref().and_then(parse_rfc3339).map_or(created, |time| time.as_second());
        let mut since = store.progress(&progress)?.unwrap_or_else(|| from.div_euclid(intervals.step) * intervals.step);
        let limit = (cx.now().as_second() - LATENESS).div_euclid(intervals.step) * intervals.step;
        let client = Client::new(Trust::System, Proxies::from_env()).map_err(flyball::Error::from)?;
        let (mut imported, mut late) = (0, 0);
        for _ in 0..MAX_CHUNKS {
            let until = limit.min(since + intervals.chunk);
            if until <= since {
                break;
            }
            let range = Range { since, until, step: intervals.step };
            let values: Vec<Values> = match query_range(&client, &url, &importer.query, range).await {
                Ok(values) => values,
                Err(error) => {
                    return Ok(Err(("ImportFailed", error_chain(&error).chars().take(1024).collect())));
                }
            };
            let (store, namespace, name, progress) = (store.clone(), namespace.clone(), name.clone(), progress.clone());
            let work = move || {
                let pods = store.existing(Subject::Pod, since, until)?;
                let claims = store.existing(Subject::Claim, since, until)?;
                let find = |subject: Subject, namespace: &str, name: &str| -> Option<Series> {
                    let known = if subject == Subject::Pod { &pods } else { &claims };
                    known.get(&(namespace.to_owned(), name.to_owned())).cloned()
                };
                let samples = samples((&namespace, &name), &values, range.step, find);
                let done = store.import(&samples)?;
                store.set_progress(&progress, until).map(|()| done)
            };
            let done = self.shared.compute(work).await?;
            (imported, late, since) = (imported + done.stored, late + done.late, until);
        }
        let next = if since < limit { Duration::from_secs(1) } else { intervals.interval };
        let end = Timestamp::from_second(since).map_or_else(|_| since.to_string(), rfc3339);
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Ok(Ok((ImportStatus { import_data_end_time: end, samples: number(imported), late: number(late) }, next)))
    }

    /// Returns the URL of the server. Objects choose among allowed servers only, since the operator reaches others.
    fn url(&self, importer: &PrometheusImporter) -> std::result::Result<String, Problem> {
        let allowed = &self.shared.settings.prometheus;
        let problem = |text: String| Err(("InvalidSource", text));
        match (&importer.prometheus_config, allowed.first()) {
            (Some(config), _) if allowed.contains(&config.url) => Ok(config.url.clone()),
            (Some(config), _) => problem(format!(
                "spec.prometheusMetricsImporter.prometheusConfig.url: {:?} is not one of --prometheus of the operator",
                config.url
            )),
            (None, Some(first)) => Ok(first.clone()),
            (None, None) => {
                problem("no Prometheus server is configured: start the operator with --prometheus URL".into())
            }
        }
    }
}
