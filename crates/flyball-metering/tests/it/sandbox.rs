//! Queries of users: they read, within limits, and change nothing.

use crate::trace::Directory;
use flyball_metering::meter::{Meter, Subject};
use flyball_metering::query::{
    Builtins, Catalog, Column, Definition, Error, InputDefinition, InputKind, Inputs, Limits, Request, Results, Source,
    run, run_within,
};
use flyball_metering::store::{Cell, Gauge, STATE, Series, Store};
use std::time::Duration;

fn store(directory: &Directory) -> Store {
    let store = Store::open(&directory.0).unwrap();
    let pod = |namespace: &str| Gauge {
        series: Series::new(Subject::Pod, namespace, namespace, &format!("web-{namespace}")),
        meter: Meter::PodCpuRequest,
        since: 0,
        value: 1_000_000,
    };
    store.set_gauges(&[pod("shop"), pod("blog")]).unwrap();
    store.set_progress(STATE, 3600).unwrap();
    store
}

pub(crate) fn query(sql: &str) -> Definition {
    let column = |name: &str| Column { name: name.into(), kind: "varchar".into(), unit: String::new(), hidden: false };
    let input = |name: &str, kind| InputDefinition { name: name.into(), kind, required: false, default: None };
    Definition {
        name: "mine".into(),
        columns: vec![column("x")],
        inputs: vec![
            input("Name", InputKind::Text),
            input("Query", InputKind::Query),
            input("Consumers", InputKind::DataSource),
            input("ReportingStart", InputKind::Time),
        ],
        sql: sql.into(),
        rollup: None,
    }
}

pub(crate) fn run_sql(store: &Store, sql: &str, inputs: &[(&str, &str)], is_scoped: bool) -> Result<Results, Error> {
    run_sql_within(store, sql, inputs, is_scoped, Limits::default())
}

pub(crate) fn run_sql_within(
    store: &Store,
    sql: &str,
    inputs: &[(&str, &str)],
    is_scoped: bool,
    limits: Limits,
) -> Result<Results, Error> {
    let inputs: Inputs = inputs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let query = query(sql);
    let (since, until, inputs, namespace, catalog) = (0, 3600, &inputs, "shop", &Builtins);
    let request = Request { query: &query, since, until, inputs, namespace, is_scoped, catalog };
    run_within(store, &request, limits)
}

#[test]
fn queries_cannot_write_or_read_other_tables() {
    let directory = Directory::new();
    let store = store(&directory);
    for sql in [
        "DELETE FROM \"pod-cpu-request-raw\"",
        "CREATE TABLE y (x)",
        "CREATE TEMP VIEW y AS SELECT 1 AS x",
        "DROP VIEW \"pod-cpu-request-raw\"",
        "PRAGMA user_version = 7",
        "PRAGMA database_list",
        "ATTACH 'x.db' AS y",
        "VACUUM INTO 'copy.db'",
        "SELECT sql AS x FROM sqlite_master",
        "SELECT sql AS x FROM sqlite_temp_master",
        "SELECT sql AS x FROM temp.sqlite_schema",
        "SELECT name AS x FROM pragma_database_list",
        "SELECT name AS x FROM dbstat",
        "SELECT uid AS x FROM flyball_series",
        "SELECT uid AS x FROM main.FLYBALL_SERIES",
        "SELECT uid AS x FROM \"Flyball_series\"",
        "WITH \"meter-raw\" AS (SELECT uid FROM main.flyball_series) SELECT uid AS x FROM \"meter-raw\"",
        "SELECT flyball_scope() AS x",
        "SELECT load_extension('x') AS x",
        "SELECT random() AS x",
        "SELECT datetime('now') AS x",
        "SELECT readfile('/etc/passwd') AS x",
        "SELECT randomblob(1000000000) AS x",
        "SELECT 1 AS x; SELECT 2 AS x",
        "SELECT 1 AS y",
        "",
        "SELECT printf('%1000000000d', 1) AS x",
    ] {
        let failed = run_sql(&store, sql, &[], false);
        assert!(failed.is_err(), "{sql}: {failed:?}");
        assert!(failed.unwrap_err().is_permanent(), "{sql}");
    }
    assert_eq!(run_sql(&store, "SELECT pod AS x FROM \"pod-cpu-request-raw\"", &[], false).unwrap().rows.len(), 2);
}

#[test]
fn queries_end_within_their_budget() {
    let directory = Directory::new();
    let store = store(&directory);
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) AS x FROM n";
    // However long it takes on this machine.
    let limits = Limits { time: Duration::from_secs(3600), ..Limits::default() };
    let failed = run_sql_within(&store, endless, &[], false, limits).unwrap_err();
    assert!(matches!(failed, Error::Budget { .. }), "{failed:?}");
    let many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 500000) SELECT x FROM n";
    let failed = run_sql(&store, many, &[], false).unwrap_err();
    assert!(matches!(failed, Error::TooLarge { .. }), "{failed:?}");
    let large_sort = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100000),
        s(t) AS (SELECT 'x' UNION ALL SELECT t || t FROM s WHERE length(t) < 500000),
        long(t) AS (SELECT max(t) FROM s)
        SELECT max(y) AS x FROM (SELECT t || x AS y FROM n, long ORDER BY 1 DESC LIMIT 10000000)";
    let failed = run_sql(&store, large_sort, &[], false).unwrap_err();
    assert!(matches!(failed, Error::TooLarge { .. }), "{failed:?}");
    assert!(failed.is_permanent() && run_sql(&store, "SELECT 1 AS x", &[], false).is_ok());
}

#[test]
fn inputs_are_values_and_never_text_of_the_query() {
    let directory = Directory::new();
    let store = store(&directory);
    let hostile = "x' OR 1=1; DROP TABLE flyball_series; --";
    for sql in ["SELECT input('Name') AS x", "SELECT :Name AS x"] {
        let results = run_sql(&store, sql, &[("Name", hostile)], false).unwrap();
        assert_eq!(results.rows, [[Cell::Text(hostile.into())]]);
    }
    let start = run_sql(&store, "SELECT :ReportingStart AS x", &[("ReportingStart", "1970-01-01T00:01:00Z")], false);
    assert_eq!(start.unwrap().rows, [[Cell::Integer(60)]]);
    for (name, value) in [("Unknown", "x"), ("ReportingStart", "yesterday"), ("Query", "no-such-query")] {
        assert!(run_sql(&store, "SELECT 1 AS x", &[(name, value)], false).is_err(), "{name}");
    }
    let nested = run_sql(&store, "SELECT namespace AS x FROM Query", &[("Query", "namespace-cpu-request")], false);
    assert_eq!(nested.unwrap().rows.len(), 2);
}

/// A catalog with one hostile query.
struct Hostile(Definition);

impl Catalog for Hostile {
    fn query(&self, name: &str) -> Option<Definition> {
        (name == "hostile").then(|| self.0.clone())
    }

    fn source(&self, _: &str) -> Option<Source> {
        None
    }
}

#[test]
fn queries_that_others_read_are_restricted_as_well() {
    let directory = Directory::new();
    let store = store(&directory);
    let outer = query("SELECT x FROM Query");
    let inputs = Inputs::from([("Query".to_owned(), "hostile".to_owned())]);
    let run = |sql: &str| {
        let mut hostile = query(sql);
        hostile.inputs.retain(|input| input.name != "Query");
        let catalog = Hostile(hostile);
        let (since, until, namespace) = (0, 3600, "shop");
        run(
            &store,
            &Request { query: &outer, since, until, inputs: &inputs, namespace, is_scoped: true, catalog: &catalog },
        )
    };
    for sql in [
        // SQLite executes some pragmas while it parses them: this one would stop all databases of the process.
        "SELECT 1 AS x); PRAGMA hard_heap_limit = 1; --",
        "SELECT 1 AS x); DROP VIEW \"meter-raw\"; --",
        "SELECT file AS x FROM pragma_database_list",
        "SELECT sql AS x FROM sqlite_temp_master",
        "SELECT uid AS x FROM flyball_series",
        "SELECT random() AS x",
        "SELECT x FROM Query",
    ] {
        assert!(run(sql).is_err(), "{sql}");
    }
    let results = run("SELECT namespace AS x FROM \"pod-cpu-request-raw\" -- a comment").unwrap();
    assert_eq!(results.rows, [[Cell::Text("shop".into())]]);
}

#[test]
fn scoped_reports_see_their_namespace_only() {
    let directory = Directory::new();
    let store = store(&directory);
    for (sql, inputs) in [
        ("SELECT namespace AS x FROM \"pod-cpu-request-raw\"", vec![]),
        ("SELECT namespace AS x FROM \"pod-cpu-request-raw\" UNION SELECT namespace FROM \"meter-raw\"", vec![]),
        ("SELECT namespace AS x FROM Query", vec![("Query", "namespace-cpu-request")]),
        ("SELECT namespace AS x FROM temp.\"pod-cpu-request-raw\"", vec![]),
    ] {
        let results = run_sql(&store, sql, &inputs, true).unwrap();
        assert_eq!(results.rows, [[Cell::Text("shop".into())]], "{sql}");
    }
}
