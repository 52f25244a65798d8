//! The operator on a control plane in the test process.

use crate::trace::Directory;
use flyball_cluster::testing::Test;
use flyball_core::time::Timestamp;
use flyball_metering::api::{Report, ReportQuery};
use flyball_metering::store::{Cell, Store};
use flyball_metering::{Settings, operator};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, team: red}}
    spec: {containers: [{name: c, image: web, resources: {requests: {cpu: 250m, memory: 64Mi}}}]}
";

fn settings(data: PathBuf) -> Settings {
    Settings {
        namespace: "default".into(),
        tenant_label: Some("team".into()),
        poll_interval: None,
        grace: Duration::from_secs(60),
        has_threads: false,
        ..Settings::new(data)
    }
}

async fn start(directory: &Directory) -> Test {
    let data = directory.0.clone();
    Test::of(move || operator(settings(data.clone()))).nodes(2).start().await
}

fn report(name: &str, query: &str, period: &str, inputs: &[(&str, &str)]) -> String {
    let inputs: Vec<_> = inputs.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let spec = json!({"query": query, "schedule": {"period": period}, "inputs": inputs});
    json!({"apiVersion": "metering.flyball.dev/v1alpha1", "kind": "Report", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

fn text(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap().to_string()
}

/// Returns the time at which a pod was created.
async fn server_time(test: &Test) -> i64 {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = test.api();
    pods.list(&Default::default()).await.unwrap().items[0].metadata.creation_timestamp.clone().unwrap().0.as_second()
}

async fn status(test: &Test, name: &str) -> flyball_metering::api::ReportStatus {
    test.api::<Report>().get(name).await.unwrap().status.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn scheduled_report_and_roll_up_equal_the_exact_amounts() {
    let directory = Directory::new();
    let test = start(&directory).await;
    test.apply(WEB).await;
    test.apply(&report("hourly", "namespace-cpu-request", "hourly", &[])).await;
    let inputs = [("NamespaceCPURequestReportName", "hourly")];
    test.apply(
        &report("rollup", "namespace-cpu-request", "cron", &inputs)
            .replace("\"period\":\"cron\"", "\"period\":\"cron\",\"cron\":{\"expression\":\"0 */3 * * *\"}"),
    )
    .await;
    for _ in 0..8 {
        sleep(Duration::from_secs(3600)).await;
    }
    test.eventually("the roll-up has results", async || status(&test, "rollup").await.last_report_time.is_some()).await;
    let store = Store::open(&directory.0).unwrap();
    let namespace = test.namespace();
    let results = |name: &str| {
        let stored = store.report(namespace, name).unwrap().unwrap();
        let at = stored.columns.iter().position(|column| column == "pod_request_cpu_core_microseconds").unwrap();
        let results = store.results(&stored, 0, i64::MAX).unwrap();
        let amount = |row: &Vec<Cell>| if let Cell::Integer(amount) = row[at] { amount } else { 0 };
        let amounts =
            results.iter().map(|result| (result.since, result.until, result.rows.iter().map(amount).sum::<i64>()));
        amounts.collect::<Vec<_>>()
    };
    let (hourly, rollup) = (results("hourly"), results("rollup"));
    assert!(hourly.len() >= 6 && !rollup.is_empty(), "{hourly:?} {rollup:?}");
    // Two pods with a quarter of a core for an hour: all periods begin after the pods.
    for (since, until, amount) in &hourly {
        assert_eq!((until - since, *amount), (3600, 3600 * 500_000), "{hourly:?}");
    }
    for (since, until, amount) in &rollup {
        assert_eq!(*amount, (until - since) * 500_000);
        let parts = hourly.iter().filter(|(from, to, _)| from >= since && to <= until);
        assert_eq!(parts.map(|(_, _, amount)| amount).sum::<i64>(), *amount);
    }
    // Periods follow each other without a gap.
    assert!(hourly.windows(2).all(|pair| pair[0].1 == pair[1].0));
}

#[tokio::test(start_paused = true)]
async fn operator_that_was_stopped_continues_where_it_was() {
    let directory = Directory::new();
    let mut test = start(&directory).await;
    test.apply(WEB).await;
    test.apply(&report("hourly", "namespace-cpu-request", "hourly", &[])).await;
    for _ in 0..3 {
        sleep(Duration::from_secs(3600)).await;
    }
    test.crash().await;
    sleep(Duration::from_secs(2 * 3600)).await;
    test.restart().await;
    for _ in 0..2 {
        sleep(Duration::from_secs(3600)).await;
    }
    let store = Store::open(&directory.0).unwrap();
    let stored = store.report(test.namespace(), "hourly").unwrap().unwrap();
    let results = store.results(&stored, 0, i64::MAX).unwrap();
    assert!(results.len() >= 5, "{}", results.len());
    assert!(results.windows(2).all(|pair| pair[0].until == pair[1].since));
    for result in &results {
        assert!(result.rows[0].contains(&Cell::Integer(3600 * 500_000)), "{result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_requests_and_own_queries_are_reported() {
    let directory = Directory::new();
    let test = start(&directory).await;
    test.apply(WEB).await;
    test.apply(
        "
apiVersion: metering.flyball.dev/v1alpha1
kind: ReportQuery
metadata: {name: teams}
spec:
  columns: [{name: team, type: varchar}, {name: seconds, type: bigint}]
  inputs: [{name: Minimum, type: int, default: '1'}]
  query: |
    SELECT tenant AS team, sum(seconds) AS seconds FROM \"pod-cpu-request-raw\"
    GROUP BY tenant HAVING sum(seconds) >= :Minimum
",
    )
    .await;
    test.apply(
        "
apiVersion: metering.flyball.dev/v1alpha1
kind: ReportQuery
metadata: {name: writes}
spec:
  columns: [{name: x, type: varchar}]
  query: DELETE FROM \"pod-cpu-request-raw\"
",
    )
    .await;
    sleep(Duration::from_secs(600)).await;
    let valid = async |name: &str| {
        let query = test.api::<ReportQuery>().get(name).await.unwrap();
        query.status.unwrap_or_default().conditions.first().map(|condition| condition.status.clone())
    };
    assert_eq!((valid("teams").await.as_deref(), valid("writes").await.as_deref()), (Some("True"), Some("False")));
    // One pod less from now on.
    let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
    test.api::<Deployment>().patch("web", &PatchParams::default(), &patch).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = test.api();
    let started = pods.list(&Default::default()).await.unwrap().items[0].metadata.creation_timestamp.clone().unwrap().0;
    let text = |seconds: i64| Timestamp::from_second(seconds).unwrap().to_string();
    let spec = json!({"query": "teams", "reportingStart": text(started.as_second()),
        "reportingEnd": text(started.as_second() + 1100)});
    let once = json!({"apiVersion": "metering.flyball.dev/v1alpha1", "kind": "Report",
        "metadata": {"name": "once"}, "spec": spec});
    test.apply(&once.to_string()).await;
    test.eventually("the report is finished", async || {
        status(&test, "once").await.conditions.iter().any(|condition| condition.reason == "Finished")
    })
    .await;
    let store = Store::open(&directory.0).unwrap();
    let stored = store.report(test.namespace(), "once").unwrap().unwrap();
    let results = store.results(&stored, 0, i64::MAX).unwrap();
    let [team, Cell::Integer(seconds)] = &results[0].rows[0][..] else { panic!("{results:?}") };
    assert_eq!(team, &Cell::Text("red".into()));
    // 1100 s of the pod that stays, and some 600 s of the other one.
    assert!((1650..1750).contains(seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_stored_is_stored_later() {
    let directory = Directory::new();
    let test = start(&directory).await;
    sleep(Duration::from_secs(60)).await;
    let other = rusqlite::Connection::open(directory.0.join("metering.sqlite")).unwrap();
    let full = "CREATE TRIGGER full BEFORE INSERT ON flyball_gauge BEGIN SELECT RAISE(ABORT, 'disk full'); END";
    other.execute_batch(full).unwrap();
    test.apply(WEB).await;
    sleep(Duration::from_secs(1200)).await;
    other.execute_batch("DROP TRIGGER full").unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = test.api();
    let started = pods.list(&Default::default()).await.unwrap().items[0].metadata.creation_timestamp.clone().unwrap().0;
    let text = |seconds: i64| Timestamp::from_second(seconds).unwrap().to_string();
    let spec = json!({"query": "namespace-cpu-request", "reportingStart": text(started.as_second() + 60),
        "reportingEnd": text(started.as_second() + 1060)});
    let once = json!({"apiVersion": "metering.flyball.dev/v1alpha1", "kind": "Report",
        "metadata": {"name": "once"}, "spec": spec});
    test.apply(&once.to_string()).await;
    test.eventually("the report is finished", async || {
        status(&test, "once").await.conditions.iter().any(|condition| condition.reason == "Finished")
    })
    .await;
    let store = Store::open(&directory.0).unwrap();
    let stored = store.report(test.namespace(), "once").unwrap().unwrap();
    let results = store.results(&stored, 0, i64::MAX).unwrap();
    // Two pods with a quarter of a core.
    assert!(results[0].rows[0].contains(&Cell::Integer(1000 * 500_000)), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn invalid_reports_are_rejected_with_the_field() {
    let directory = Directory::new();
    let test = start(&directory).await;
    let apply = async |spec: serde_json::Value| {
        let report = json!({"apiVersion": "metering.flyball.dev/v1alpha1", "kind": "Report",
            "metadata": {"name": "wrong"}, "spec": spec});
        let patch = Patch::Apply(report);
        let applied = test.api::<Report>().patch("wrong", &PatchParams::apply("test"), &patch).await;
        applied.map_or_else(|error| error.to_string(), |_| String::new())
    };
    for (spec, expected) in [
        (json!({"query": "pod-cpu-request"}), "needs reportingStart and reportingEnd"),
        (json!({"query": "q", "schedule": {"period": "cron"}}), "needs cron.expression"),
        (json!({"query": "q", "schedule": {"period": "yearly"}}), "Unsupported value"),
        (
            json!({"query": "q", "reportingStart": "2026-02-01T00:00:00Z", "reportingEnd": "2026-01-01T00:00:00Z"}),
            "must be later",
        ),
        (json!({"query": "q", "schedule": {"period": "hourly", "hourly": {"minute": 60}}}), "less than or equal to 59"),
    ] {
        let error = apply(spec).await;
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // A query that does not exist is a condition, since it may be created later.
    assert_eq!(
        apply(json!({"query": "nothing", "schedule": {"period": "hourly"}, "reportingStart": "1970-01-01T00:00:00Z"}))
            .await,
        ""
    );
    test.eventually("the condition names the query", async || {
        let status = status(&test, "wrong").await;
        status.conditions.iter().any(|condition| condition.message.contains("\"nothing\""))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn missed_periods_run_back_to_back() {
    let directory = Directory::new();
    let test = start(&directory).await;
    test.apply(WEB).await;
    sleep(Duration::from_secs(120)).await;
    let now = server_time(&test).await;
    let (start, periods) = ((now / 3600 - 400) * 3600, 400);
    let spec = json!({"query": "namespace-cpu-request", "schedule": {"period": "hourly"},
        "reportingStart": text(start), "reportingEnd": text(start + periods * 3600 - 60)});
    let hourly = json!({"apiVersion": "metering.flyball.dev/v1alpha1", "kind": "Report",
        "metadata": {"name": "hourly"}, "spec": spec});
    test.apply(&hourly.to_string()).await;
    let mut left = Vec::new();
    let began = tokio::time::Instant::now();
    loop {
        let status = status(&test, "hourly").await;
        let running = status.conditions.iter().find(|condition| condition.kind == "Running");
        match running {
            Some(running) if running.reason == "Finished" => break,
            Some(running) if running.reason == "Scheduled" => {
                assert_eq!(running.status, "True");
                left.extend(running.message.split(' ').next().and_then(|count| count.parse::<i64>().ok()));
            }
            _ => {}
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{status:?}");
        sleep(Duration::from_millis(10)).await;
    }
    // The condition counts down.
    assert!(left.len() > 1 && left.is_sorted_by(|one, other| one >= other), "{left:?}");
    assert!(left[0] > 200 && *left.last().unwrap() < 100, "{left:?}");
    let store = Store::open(&directory.0).unwrap();
    let stored = store.report(test.namespace(), "hourly").unwrap().unwrap();
    let results = store.results(&stored, 0, i64::MAX).unwrap();
    assert!(results.windows(2).all(|pair| pair[0].until == pair[1].since));
    assert_eq!((results.len(), results[0].since), (400, start));
}

#[tokio::test(start_paused = true)]
async fn unknown_names_are_reported_at_once_until_they_exist() {
    let directory = Directory::new();
    let test = start(&directory).await;
    let failure = async |name: &str| {
        let conditions = status(&test, name).await.conditions;
        let failure = conditions.into_iter().find(|condition| condition.kind == "Failure");
        failure.filter(|failure| failure.status == "True").map(|failure| failure.message).unwrap_or_default()
    };
    let waits = async |name: &str| {
        let conditions = status(&test, name).await.conditions;
        conditions.iter().any(|condition| condition.reason == "ReportingPeriodWaiting")
    };
    test.apply(&report("early", "teams", "monthly", &[])).await;
    test.apply(&report("typo", "namespace-cpu-request", "monthly", &[("NamespaceCpuReport", "hourly")])).await;
    let inputs = [("NamespaceCPURequestReportName", "hourly")];
    test.apply(&report("rollup", "namespace-cpu-request", "monthly", &inputs)).await;
    sleep(Duration::from_secs(5)).await;
    let early = failure("early").await;
    assert!(early.contains("there is no ReportQuery \"teams\"") && early.contains("create it"), "{early}");
    let typo = failure("typo").await;
    assert!(typo.contains("\"NamespaceCpuReport\" is not declared"), "{typo}");
    assert!(typo.contains("use one of") && typo.contains("NamespaceCPURequestReportName"), "{typo}");
    let rollup = failure("rollup").await;
    assert!(rollup.contains("there is no Report \"hourly\"") && rollup.contains("create it"), "{rollup}");
    // A query whose SQL is wrong, then one that is right.
    let query = |sql: &str| {
        json!({"apiVersion": "metering.flyball.dev/v1alpha1", "kind": "ReportQuery", "metadata": {"name": "teams"},
            "spec": {"columns": [{"name": "team", "type": "varchar"}], "query": sql}})
        .to_string()
    };
    test.apply(&query("SELECT tenant AS team FROM absent")).await;
    test.apply(&report("hourly", "namespace-cpu-request", "hourly", &[])).await;
    sleep(Duration::from_secs(5)).await;
    let early = failure("early").await;
    assert!(early.contains("no such table: absent"), "{early}");
    assert_eq!((failure("rollup").await, waits("rollup").await), (String::new(), true));
    test.apply(&query("SELECT tenant AS team FROM \"pod-cpu-request-raw\"")).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!((failure("early").await, waits("early").await), (String::new(), true));
}
