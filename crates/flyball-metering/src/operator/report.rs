//! Reconciles Reports: one period at a time, when it is over and its data is complete.

use super::catalog::{NamespaceCatalog, message, values};
use super::{QUERY_WORKERS, Shared};
use crate::api::{Report, ReportDataSource, ReportQuery, ReportStatus};
use crate::query::{Catalog, Definition, Error, InputKind, Limits, Request, Results, check, run_within};
use crate::schedule::{Period, missed_periods, next_period};
use crate::store::{PeriodResult, Quota, STATE, Store};
use flyball::{Action, Condition, Context, Controller, ObjectKey, Reconcile, Result};
use flyball_core::time::{Timestamp, parse_duration, parse_rfc3339, rfc3339};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a report whose data is incomplete is tried again.
const DEPENDENCY_RETRY: Duration = Duration::from_secs(30);
/// Time after which a report that failed for good is tried again, since its query may have changed.
const FAILURE_RETRY: Duration = Duration::from_secs(60);
/// Time between two periods of a report. Other reports have their turn, and the next period waits for no backoff.
const PERIOD_PAUSE: Duration = Duration::from_millis(1);
/// Missed periods that are counted for the condition.
const MAX_COUNTED_PERIODS: usize = 1000;

/// Returns the controller of Reports.
pub(super) fn controller(shared: Arc<Shared>) -> Controller<Reports> {
    let delete = PolicyRule {
        api_groups: Some(vec![crate::api::GROUP.to_owned()]),
        resources: Some(vec!["reports".to_owned()]),
        verbs: vec!["delete".to_owned()],
        ..PolicyRule::default()
    };
    // Few at a time, since a result may be large.
    let controller = Controller::new(Reports { shared }).concurrency(QUERY_WORKERS).shares_workers();
    // A report recovers when what it names appears.
    controller
        .refers_to::<ReportQuery>(references)
        .refers_to::<ReportDataSource>(references)
        .refers_to::<Report>(references)
        .allows(delete)
}

/// Returns the objects that a report names. The kind of a name depends on the declaration of its input.
fn references(report: &Report) -> Vec<ObjectKey> {
    let names = report.spec.inputs.iter().map(|input| &input.value).chain([&report.spec.query]);
    names.map(|name| ObjectKey::new(None, name)).collect()
}

/// Reconciles each Report.
pub(super) struct Reports {
    shared: Arc<Shared>,
}

impl Reconcile for Reports {
    type Resource = Report;

    async fn reconcile(&self, report: &Report, cx: &Context<Report>) -> Result<Action> {
        if let Some(action) = self.expire(report, cx).await? {
            return Ok(action);
        }
        let created = report.meta().creation_timestamp.as_ref().map_or(cx.now(), |time| time.0);
        let period = match next_period(report, created.as_second()) {
            Ok(Some(period)) => period,
            Ok(None) => return self.finish(report, cx).await,
            Err(error) => return fail(report, cx, "InvalidReport", error.to_string()).await,
        };
        let namespace = report.namespace().unwrap_or_default();
        let catalog = NamespaceCatalog::read(cx, &namespace).await?;
        let Some(query) = catalog.query(&report.spec.query) else {
            let problem = format!(
                "spec.query: there is no ReportQuery {:?} in this namespace, and no such built-in query: create it, or \
                 choose a built-in query: flyball meter report",
                report.spec.query
            );
            return fail(report, cx, "InvalidReport", problem).await;
        };
        if let Some(problem) = unknown_input(report, &query, cx).await? {
            return fail(report, cx, "InvalidReport", problem).await;
        }
        let now = cx.now().as_second();
        let due = if report.spec.run_immediately { now } else { period.until + seconds(self.shared.settings.grace) };
        if now < due {
            if let Some(problem) = self.check(report, query, catalog, period).await? {
                return fail(report, cx, "InvalidReport", problem).await;
            }
            let waiting = Condition::new("Running", false, "ReportingPeriodWaiting")
                .message(format!("waiting until {}, the end of the period, and for late data", time(due)));
            set(report, cx, waiting, no_failure(), Some(period)).await?;
            return Ok(Action::requeue_after(Duration::from_secs((due - now).unsigned_abs())));
        }
        if let Some(problem) = self.unmet(report, &query, period, cx).await? {
            let waiting = Condition::new("Running", false, "ReportingPeriodUnmetDependencies").message(problem);
            set(report, cx, waiting, no_failure(), Some(period)).await?;
            return Ok(Action::requeue_after(DEPENDENCY_RETRY));
        }
        match self.run(report, query, catalog, period, run_within).await {
            Ok(results) => self.store(report, period, results, cx).await,
            Err(error) if error.is_permanent() || matches!(error, Error::Memory { .. } | Error::Time { .. }) => {
                fail(report, cx, "GenerateReportFailed", message(&error)).await
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Reports {
    /// Returns the problem for which the query of a report will fail when its period is over, without reading data.
    async fn check(
        &self,
        report: &Report,
        query: Definition,
        catalog: NamespaceCatalog,
        period: Period,
    ) -> Result<Option<String>> {
        match self.run(report, query, catalog, period, check).await {
            Err(error) if error.is_permanent() => Ok(Some(message(&error))),
            // The period may still get these results, and limits depend on the load.
            Ok(()) | Err(Error::UnknownReport { .. } | Error::Memory { .. } | Error::Time { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs or checks the query of a report for a period.
    async fn run<T: Send + 'static>(
        &self,
        report: &Report,
        query: Definition,
        catalog: NamespaceCatalog,
        period: Period,
        run: fn(&Store, &Request<'_>, Limits) -> crate::query::Result<T>,
    ) -> crate::query::Result<T> {
        let (inputs, store) = (values(&report.spec.inputs), self.shared.store()?);
        let namespace = report.namespace().unwrap_or_default();
        let is_scoped = namespace != self.shared.settings.namespace;
        let work = move |limits| {
            let Period { since, until } = period;
            let (inputs, namespace, catalog) = (&inputs, namespace.as_str(), &catalog);
            run(&store, &Request { query: &query, since, until, inputs, namespace, is_scoped, catalog }, limits)
        };
        self.shared.query(work).await
    }

    /// Stores the results of a period, and plans the next one.
    async fn store(&self, report: &Report, period: Period, results: Results, cx: &Context<Report>) -> Result<Action> {
        let rows = i64::try_from(results.rows.len()).unwrap_or(i64::MAX);
        let columns: Vec<String> = results.columns.iter().map(|column| column.name.clone()).collect();
        let (uid, namespace, name) =
            (report.uid().unwrap_or_default(), report.namespace().unwrap_or_default(), report.name_any());
        let result = PeriodResult { since: period.since, until: period.until, rows: results.rows };
        let (store, overwrite) = (self.shared.store()?, report.spec.overwrite_existing_data);
        let quota = self.quota(&namespace);
        let stored = move || store.put_result((&uid, &namespace, &name), &columns, &result, overwrite, &quota);
        self.shared.compute(stored).await?;
        let mut done = report.clone();
        let status = done.status.get_or_insert_default();
        (status.last_report_time, status.rows) = (Some(time(period.until)), rows);
        let created = report.meta().creation_timestamp.as_ref().map_or(cx.now(), |time| time.0);
        match next_period(&done, created.as_second()) {
            Ok(Some(next)) => {
                let over = cx.now().as_second() - seconds(self.shared.settings.grace);
                let missed = missed_periods(&done, created.as_second(), over, MAX_COUNTED_PERIODS).unwrap_or_default();
                set(&done, cx, progress(missed, next), no_failure(), Some(next)).await?;
                Ok(Action::requeue_after(PERIOD_PAUSE))
            }
            Ok(None) => self.finish(&done, cx).await,
            Err(error) => fail(&done, cx, "InvalidReport", error.to_string()).await,
        }
    }

    /// Returns the quota of the results of a namespace. That of the cluster's reports has no share.
    fn quota(&self, namespace: &str) -> Quota {
        let quota = Quota::default();
        match namespace == self.shared.settings.namespace {
            true => Quota { namespace_bytes: quota.total_bytes, ..quota },
            false => quota,
        }
    }

    async fn finish(&self, report: &Report, cx: &Context<Report>) -> Result<Action> {
        let finished = Condition::new("Running", false, "Finished").message("all periods have results");
        set(report, cx, finished, no_failure(), None).await?;
        match expires(report) {
            Some(at) => {
                Ok(Action::requeue_after(Duration::from_secs((at - cx.now().as_second()).max(1).unsigned_abs())))
            }
            None => Ok(Action::done()),
        }
    }

    /// Returns the data that the period still lacks.
    async fn unmet(
        &self,
        report: &Report,
        query: &Definition,
        period: Period,
        cx: &Context<Report>,
    ) -> Result<Option<String>> {
        if report.spec.run_immediately {
            return Ok(None);
        }
        let complete = self.shared.store()?.progress(STATE)?;
        let Some(complete) = complete else { return Ok(Some("the state of the cluster is not known yet".to_owned())) };
        if complete < period.until {
            let (complete, until) = (time(complete), time(period.until));
            return Ok(Some(format!("the state of the cluster is known until {complete}, the period ends at {until}")));
        }
        for input in report.spec.inputs.iter().take(32) {
            let kind = query.inputs.iter().find(|declared| declared.name == input.name).map(|declared| declared.kind);
            if kind != Some(InputKind::Report) {
                continue;
            }
            let key = ObjectKey::new(report.namespace().as_deref(), &input.value);
            let Some(source) = cx.get::<Report>(&key).await? else {
                return Ok(Some(missing_report(&input.name, &input.value)));
            };
            let status = source.status.unwrap_or_default();
            let last = status.last_report_time.as_deref().and_then(parse_rfc3339).map(|time| time.as_second());
            let is_finished = status.conditions.iter().any(|condition| condition.reason == "Finished");
            if !is_finished && last.is_none_or(|last| last < period.until) {
                let problem = format!(
                    "input {}: the Report {:?} has no results until {} yet",
                    input.name,
                    input.value,
                    time(period.until)
                );
                return Ok(Some(problem));
            }
        }
        Ok(None)
    }

    /// Deletes a report after its expiration, unless others read it.
    async fn expire(&self, report: &Report, cx: &Context<Report>) -> Result<Option<Action>> {
        let Some(at) = expires(report) else { return Ok(None) };
        if cx.now().as_second() < at {
            return Ok(None);
        }
        let (namespace, name) = (report.namespace().unwrap_or_default(), report.name_any());
        let others: Vec<Report> = cx.list(Some(&namespace)).await?;
        let is_read = others.iter().any(|other| other.spec.inputs.iter().any(|input| input.value == name));
        if is_read {
            return Ok(None);
        }
        let preconditions = Preconditions { uid: report.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        Api::<Report>::namespaced(cx.client().clone(), &namespace).delete(&name, &parameters).await?;
        Ok(Some(Action::done()))
    }
}

/// Returns the problem of an input that the query does not declare, or that names a Report that does not exist.
async fn unknown_input(report: &Report, query: &Definition, cx: &Context<Report>) -> Result<Option<String>> {
    for input in &report.spec.inputs {
        let Some(declared) = query.inputs.iter().find(|declared| declared.name == input.name) else {
            let names: Vec<&str> = query.inputs.iter().map(|input| input.name.as_str()).collect();
            let (name, query, names) = (&input.name, &query.name, names.join(", "));
            return Ok(Some(format!(
                "spec.inputs: input {name:?} is not declared by ReportQuery {query:?}: use one of {names}"
            )));
        };
        let key = ObjectKey::new(report.namespace().as_deref(), &input.value);
        if declared.kind == InputKind::Report && cx.get::<Report>(&key).await?.is_none() {
            return Ok(Some(missing_report(&input.name, &input.value)));
        }
    }
    Ok(None)
}

fn missing_report(input: &str, name: &str) -> String {
    format!("spec.inputs: input {input}: there is no Report {name:?} in this namespace: create it, or change the value")
}

/// Returns the condition of a report after a period, with the number of further periods that are over.
fn progress(missed: usize, next: Period) -> Condition {
    let until = time(next.until);
    let periods = match missed {
        0 => {
            let waiting = Condition::new("Running", false, "ReportingPeriodWaiting");
            return waiting.message(format!("the next period ends at {until}"));
        }
        1 => "1 period is".to_owned(),
        MAX_COUNTED_PERIODS.. => format!("{MAX_COUNTED_PERIODS} or more periods are"),
        more => format!("{more} periods are"),
    };
    let message = format!("{periods} over and without results; the next one ends at {until}");
    Condition::new("Running", true, "Scheduled").message(message)
}

/// Returns the time at which a report expires.
fn expires(report: &Report) -> Option<i64> {
    let nanos = parse_duration(report.spec.expiration.as_deref()?).ok().filter(|nanos| *nanos > 0)?;
    let created = report.meta().creation_timestamp.as_ref()?.0.as_second();
    Some(created + nanos / 1_000_000_000)
}

fn no_failure() -> Condition {
    Condition::new("Failure", false, "NoFailure")
}

async fn fail(report: &Report, cx: &Context<Report>, reason: &str, problem: String) -> Result<Action> {
    let running = Condition::new("Running", false, reason);
    set(report, cx, running, Condition::new("Failure", true, reason).message(problem), None).await?;
    Ok(Action::requeue_after(FAILURE_RETRY))
}

async fn set(
    report: &Report,
    cx: &Context<Report>,
    running: Condition,
    failure: Condition,
    next: Option<Period>,
) -> Result<()> {
    let known = report.status.clone().unwrap_or_default();
    let next_report_time = next.map(|next| time(next.until));
    cx.set_status(&ReportStatus { conditions: vec![running, failure], next_report_time, ..known }).await
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), rfc3339)
}
