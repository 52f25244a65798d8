//! Queries of one namespace neither read others nor hold them up.

use crate::sandbox::{query, run_sql, run_sql_within};
use crate::trace::Directory;
use flyball_metering::meter::{Meter, Subject};
use flyball_metering::query::{
    Builtins, Catalog, Definition, Error, InputDefinition, InputKind, Inputs, Limits, Request, Results, Source, check,
    run,
};
use flyball_metering::store::{Cell, Gauge, PeriodResult, Quota, STATE, Sample, Series, Store};
use std::collections::BTreeMap;
use std::time::Duration;

/// The amount of the other namespace, which no error and no result may depend on.
const SECRET: i64 = 7_654_321 * 3600;

/// Calls that fail, which shows that SQLite evaluated them.
const OVERFLOW: &str = "abs(-9223372036854775807 - 1)";

fn store(directory: &Directory) -> Store {
    let store = Store::open(&directory.0).unwrap();
    let series = |namespace: &str| Series::new(Subject::Pod, namespace, namespace, &format!("web-{namespace}"));
    let gauge = |namespace: &str, meter, value| Gauge { series: series(namespace), meter, since: 0, value };
    let usage = |namespace: &str, amount| Sample {
        series: series(namespace),
        meter: Meter::PodCpuUsage,
        since: 0,
        until: 3600,
        amount,
    };
    let mut gauges = Vec::new();
    for (namespace, value) in [("shop", 1), ("blog", SECRET / 3600)] {
        gauges.push(gauge(namespace, Meter::PodCpuRequest, value));
        gauges.push(gauge(namespace, Meter::PodPresence, 1));
    }
    store.set_gauges(&gauges).unwrap();
    store.import(&[usage("shop", 3600), usage("blog", SECRET)]).unwrap();
    store.set_progress(STATE, 3600).unwrap();
    let put = |namespace: &str, amount| {
        let result = PeriodResult { since: 0, until: 3600, rows: vec![vec![Cell::Integer(amount)]] };
        let columns = ["amount".to_owned()];
        store.put_result((namespace, namespace, "hourly"), &columns, &result, false, &Quota::default()).unwrap();
    };
    put("blog", SECRET);
    put("shop", 1);
    store
}

fn within(store: &Store, sql: &str, limits: Limits) -> Result<Results, Error> {
    run_sql_within(store, sql, &[], true, limits)
}

#[test]
fn expressions_are_not_evaluated_for_rows_of_other_namespaces() {
    let directory = Directory::new();
    let store = store(&directory);
    let inputs = [("Query", "pod-cpu-request"), ("Consumers", "consumer-raw")];
    for (source, amount) in [
        ("\"pod-cpu-request-raw\"", "pod_request_cpu_core_microseconds"),
        ("\"pod-cpu-usage-raw\"", "pod_usage_cpu_core_microseconds"),
        ("\"meter-raw\"", "amount"),
        ("Consumers", "pod_request_cpu_core_microseconds"),
        ("Query", "pod_request_cpu_core_microseconds"),
    ] {
        for condition in [
            format!("CASE {amount} WHEN {SECRET} THEN {OVERFLOW} END IS NULL"),
            format!("CASE WHEN {amount} > 1000000 THEN {OVERFLOW} END IS NULL"),
            format!("uid >= '' AND CASE WHEN {amount} > 1000000 THEN {OVERFLOW} END IS NULL"),
        ] {
            let text = match source {
                "Query" => "pod",
                "Consumers" => "tenant",
                _ => "uid",
            };
            let condition = condition.replace("uid", text);
            for sql in [
                format!("SELECT {amount} AS x FROM {source} WHERE {condition}"),
                format!("SELECT a.{amount} AS x FROM {source} a LEFT JOIN {source} b ON {condition}")
                    .replace(&format!("ON {text}"), &format!("ON b.{text}"))
                    .replace(&format!("CASE {amount}"), &format!("CASE b.{amount}"))
                    .replace(&format!("WHEN {amount}"), &format!("WHEN b.{amount}")),
                format!("SELECT count(*) AS x FROM {source} GROUP BY {amount} HAVING {condition}")
                    .replace(&format!("{text} >= ''"), "max(namespace) >= ''"),
            ] {
                let results = run_sql(&store, &sql, &inputs, true);
                assert!(results.is_ok(), "{sql}: {results:?}");
                assert!(!format!("{results:?}").contains(&SECRET.to_string()), "{sql}: {results:?}");
            }
        }
    }
}

#[test]
fn expressions_are_not_evaluated_for_consumers_of_other_namespaces() {
    let directory = Directory::new();
    let store = store(&directory);
    for condition in [
        format!("CASE WHEN namespace = 'blog' THEN {OVERFLOW} END IS NULL"),
        format!("namespace = 'blog' AND CASE WHEN tenant LIKE 'blo%' THEN {OVERFLOW} ELSE 1 END"),
        format!("CASE WHEN namespace <> 'shop' THEN {OVERFLOW} END IS NULL AND tenant >= ''"),
    ] {
        let sql = format!("SELECT namespace AS x FROM Consumers WHERE {condition}");
        let results = run_sql(&store, &sql, &[("Consumers", "consumer-raw")], true);
        assert!(results.is_ok(), "{sql}: {results:?}");
    }
}

#[test]
fn expressions_are_not_evaluated_for_results_of_other_reports() {
    let directory = Directory::new();
    let store = store(&directory);
    let mut query =
        query(&format!("SELECT amount AS x FROM Report WHERE CASE amount WHEN {SECRET} THEN {OVERFLOW} END IS NULL"));
    query.inputs = vec![InputDefinition {
        name: "Report".into(),
        kind: InputKind::Report,
        required: true,
        default: Some("hourly".into()),
    }];
    for (namespace, is_scoped) in [("shop", true), ("shop", false)] {
        let (since, until, inputs, catalog) = (0, 3600, &Inputs::new(), &Builtins);
        let request = Request { query: &query, since, until, inputs, namespace, is_scoped, catalog };
        assert_eq!(run(&store, &request).unwrap().rows, [[Cell::Integer(1)]]);
    }
}

#[test]
fn errors_contain_no_values_of_rows() {
    let directory = Directory::new();
    let store = store(&directory);
    let from = "FROM \"pod-cpu-request-raw\"";
    for expression in [
        "input('amount=' || pod_request_cpu_core_microseconds)",
        "input(pod)",
        "\"input\"(pod)",
        "input /* ( */ (pod)",
        "exact_sum(pod)",
        "integral(1, pod)",
        "integral(pod_request_cpu_core_microseconds / 1e3, 2)",
        "portion(pod, pod, pod, pod)",
        "label(pod_request_cpu_core_microseconds, CAST(pod AS BLOB))",
        "label('{}', NULL)",
        "rfc3339(pod)",
        "json_extract('{}', pod)",
        "json_extract('{}', '$' || pod)",
        "json_extract(pod, '$')",
        "pod LIKE pod ESCAPE pod",
        "ntile(pod) OVER ()",
        "nth_value(pod, pod) OVER ()",
        "sum(9223372036854775807 - length(pod))",
    ] {
        let failed = run_sql(&store, &format!("SELECT {expression} AS x {from}"), &[], false);
        let Err(error) = failed else { panic!("{expression}: {failed:?}") };
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let text = format!("{error}: {cause}");
        for value in ["web-", "shop", "blog", "3600", &SECRET.to_string()] {
            assert!(!text.contains(value), "{expression}: {text}");
        }
        assert!(error.is_permanent(), "{expression}: {text}");
    }
}

#[test]
fn inputs_that_a_query_does_not_declare_are_found_without_running_it() {
    let directory = Directory::new();
    let store = store(&directory);
    let checked = |sql: &str| {
        let (query, inputs) = (query(sql), Inputs::new());
        let (since, until, namespace, catalog) = (0, 0, "shop", &Builtins);
        let request = Request { query: &query, since, until, inputs: &inputs, namespace, is_scoped: true, catalog };
        check(&store, &request, Limits::default())
    };
    for sql in ["SELECT input('Other') AS x", "SELECT :Other AS x", "SELECT ? AS x", "SELECT input(\"Name\") AS x"] {
        assert!(checked(sql).is_err(), "{sql}");
    }
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) AS x FROM n";
    for sql in ["SELECT input('Name') AS x", "SELECT :Name AS x -- input(x)", endless] {
        assert!(checked(sql).is_ok(), "{sql}");
    }
}

/// A text of 1000 times 1000 characters, as SQL.
fn million() -> String {
    let thousand = "a".repeat(1000);
    format!("replace('{thousand}', 'a', '{thousand}')")
}

#[test]
fn functions_of_long_texts_end_soon() {
    let directory = Directory::new();
    let store = store(&directory);
    let numbers = "n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)";
    let too_long = format!(
        "WITH RECURSIVE h(s) AS (SELECT {}), {numbers}
         SELECT count(*) AS x FROM n, h WHERE instr(s || i, substr(s, 1, 500000) || 'b' || i) > 0",
        million()
    );
    let failed = within(&store, &too_long, Limits::default()).unwrap_err();
    assert!(matches!(failed, Error::TooLarge { .. }), "{failed:?}");
    // Searches whose time is not the product of the lengths.
    let text = format!("h(s) AS (SELECT replace('{}', 'a', '{}'))", "a".repeat(600), "a".repeat(100));
    for expression in [
        "instr(s || i, substr(s, 1, 30000) || 'b')",
        "replace(s || i, substr(s, 1, 30000) || 'b', 'c')",
        "trim(s || i, s)",
        "s || i LIKE '%a%a%a%a%a%a%a%b'",
    ] {
        let sql = format!("WITH RECURSIVE {text}, {numbers} SELECT count(*) AS x FROM n, h WHERE {expression} IS NULL");
        match within(&store, &sql, Limits::default()) {
            Ok(results) => assert_eq!(results.rows, [[Cell::Integer(0)]], "{expression}"),
            // LIKE takes the product, and pays for it.
            Err(error) => {
                assert!(matches!(error, Error::Budget { .. } | Error::Time { .. }), "{expression}: {error:?}")
            }
        }
    }
}

#[test]
fn queries_end_within_their_time_and_memory() {
    let directory = Directory::new();
    let store = store(&directory);
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) AS x FROM n";
    let limits = Limits { instructions: u64::MAX, time: Duration::from_millis(50), memory: None };
    let failed = within(&store, endless, limits).unwrap_err();
    assert!(matches!(failed, Error::Time { .. }) && !failed.is_permanent(), "{failed:?}");
    if !cfg!(target_os = "linux") {
        return;
    }
    let large = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000),
         h(s) AS (SELECT replace('{}', 'a', '{}')), big(t) AS MATERIALIZED (SELECT s || i FROM n, h)
         SELECT max(length(t)) AS x FROM big a JOIN big b USING (t)",
        "a".repeat(600),
        "a".repeat(100)
    );
    let limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    let failed = within(&store, &large, limits).unwrap_err();
    assert!(matches!(failed, Error::Memory { .. }) && !failed.is_permanent(), "{failed:?}");
}

#[test]
fn queries_limit_no_other_connection_of_the_process() {
    let directory = Directory::new();
    let store = store(&directory);
    within(&store, "SELECT 1 AS x", Limits::default()).unwrap();
    let other = rusqlite::Connection::open_in_memory().unwrap();
    let limit: i64 = other.pragma_query_value(None, "hard_heap_limit", |row| row.get(0)).unwrap();
    assert_eq!(limit, 0);
}

/// Queries that each read the one before fifty times.
struct Nested(BTreeMap<String, Definition>);

impl Catalog for Nested {
    fn query(&self, name: &str) -> Option<Definition> {
        self.0.get(name).cloned()
    }

    fn source(&self, _: &str) -> Option<Source> {
        None
    }
}

#[test]
fn queries_that_grow_exponentially_are_rejected() {
    let directory = Directory::new();
    let store = store(&directory);
    let queries = (0..6).map(|depth| {
        let read = format!("SELECT x FROM \"Of{depth}\"");
        let mut nested =
            query(&if depth == 0 { "SELECT 1 AS x".to_owned() } else { [read.as_str(); 50].join(" UNION ALL ") });
        nested.name = format!("b{depth}");
        nested.inputs = (depth > 0)
            .then(|| InputDefinition {
                name: format!("Of{depth}"),
                kind: InputKind::Query,
                required: true,
                default: Some(format!("b{}", depth - 1)),
            })
            .into_iter()
            .collect();
        (nested.name.clone(), nested)
    });
    let catalog = Nested(queries.collect());
    let (query, inputs) = (catalog.query("b5").unwrap(), Inputs::new());
    let (since, until, namespace) = (0, 3600, "shop");
    let request =
        Request { query: &query, since, until, inputs: &inputs, namespace, is_scoped: true, catalog: &catalog };
    let failed = check(&store, &request, Limits::default()).unwrap_err();
    assert!(matches!(failed, Error::Rejected { .. }), "{failed:?}");
}
