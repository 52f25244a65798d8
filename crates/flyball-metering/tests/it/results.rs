//! Stored results: their bounds, pages and permissions.

use crate::sandbox::run_sql;
use crate::trace::Directory;
use flyball_metering::query::Error;
use flyball_metering::store::{Cell, PeriodResult, Quota, Store};

/// Stores a result of rows of one text each.
fn put(store: &Store, namespace: &str, until: i64, rows: usize, length: usize, quota: &Quota) {
    let rows = (0..rows).map(|row| vec![Cell::Text(format!("{row:length$}"))]).collect();
    let result = PeriodResult { since: until - 1, until, rows };
    store.put_result((namespace, namespace, "r"), &["x".to_owned()], &result, false, quota).unwrap();
}

/// Returns end and number of rows of each period of a namespace.
fn periods(store: &Store, namespace: &str) -> Vec<(i64, usize)> {
    let stored = store.report(namespace, "r").unwrap().unwrap();
    let results = store.results(&stored, i64::MIN, i64::MAX).unwrap();
    results.iter().map(|result| (result.until, result.rows.len())).collect()
}

#[test]
fn values_and_rows_of_results_are_bounded() {
    let directory = Directory::new();
    let store = Store::open(&directory.0).unwrap();
    let text = |length: usize| format!("replace('{}', 'a', '{}')", "a".repeat(length / 100), "a".repeat(100));
    let failed = run_sql(&store, &format!("SELECT {} AS x", text(70_000)), &[], false).unwrap_err();
    assert!(matches!(failed, Error::TooLarge { .. }), "{failed:?}");
    // Characters that are longer in JSON.
    let failed = run_sql(&store, &format!("SELECT replace({}, 'a', '\u{1}') AS x", text(20_000)), &[], false);
    assert!(matches!(failed, Err(Error::TooLarge { .. })), "{failed:?}");
    assert!(run_sql(&store, &format!("SELECT {} AS x", text(60_000)), &[], false).is_ok());
}

#[test]
fn oldest_results_of_a_report_make_room_in_bytes() {
    let directory = Directory::new();
    let store = Store::open(&directory.0).unwrap();
    let quota = Quota { report_bytes: 100_000, ..Quota::default() };
    for until in 1..=20 {
        put(&store, "shop", until, 10, 1000, &quota);
    }
    let kept = periods(&store, "shop");
    // Each takes some 11 kB.
    assert!((7..=9).contains(&kept.len()) && kept.last() == Some(&(20, 10)), "{kept:?}");
    // A result that is larger than the quota replaces all others.
    put(&store, "shop", 21, 200, 1000, &quota);
    assert_eq!(periods(&store, "shop"), [(21, 200)]);
}

#[test]
fn namespaces_keep_their_share_of_results() {
    let directory = Directory::new();
    let store = Store::open(&directory.0).unwrap();
    let quota = Quota { namespace_bytes: 60_000, total_bytes: 100_000, ..Quota::default() };
    put(&store, "small", 1, 10, 1000, &quota);
    for until in 1..=20 {
        put(&store, "shop", until, 10, 1000, &quota);
    }
    assert!(periods(&store, "shop").len() <= 5, "{:?}", periods(&store, "shop"));
    // Others grow: the largest namespaces make room, and not the small one.
    for until in 1..=20 {
        put(&store, "blog", until, 10, 1000, &quota);
        put(&store, "docs", until, 10, 1000, &quota);
    }
    assert_eq!(periods(&store, "small"), [(1, 10)]);
    let total: usize = ["small", "shop", "blog", "docs"].map(|namespace| periods(&store, namespace).len()).iter().sum();
    assert!(total <= 9, "{total}");
    assert!(periods(&store, "docs").last() == Some(&(20, 10)) && !periods(&store, "blog").is_empty());
}

#[test]
fn pages_are_bounded_and_add_up_to_all_results() {
    let directory = Directory::new();
    let store = Store::open(&directory.0).unwrap();
    let quota = Quota::default();
    put(&store, "shop", 1, 2500, 4, &quota);
    put(&store, "shop", 2, 0, 0, &quota);
    put(&store, "shop", 3, 20, 60_000, &quota);
    put(&store, "shop", 4, 1, 4, &quota);
    let stored = store.report("shop", "r").unwrap().unwrap();
    let (mut pages, mut rows, mut count) = (store.pages(&stored, 0, 9).unwrap(), Vec::new(), 0);
    while let Some(page) = pages.next_page().unwrap() {
        let length = |rows: &[Vec<Cell>]| format!("{rows:?}").len();
        assert!(page.iter().map(|period| period.rows.len()).sum::<usize>() <= 1000);
        assert!(page.iter().map(|period| length(&period.rows)).sum::<usize>() < 400_000);
        rows.extend(page.into_iter().flat_map(|period| period.rows));
        count += 1;
    }
    assert_eq!((rows.len(), count > 6), (2521, true), "{count}");
    let all: Vec<Vec<Cell>> =
        store.results(&stored, 0, 9).unwrap().into_iter().flat_map(|result| result.rows).collect();
    assert_eq!(rows, all);
    assert_eq!(periods(&store, "shop"), [(1, 2500), (2, 0), (3, 20), (4, 1)]);
    assert_eq!(store.results(&stored, 1, 3).unwrap().len(), 2);
}

#[test]
fn store_of_version_1_is_upgraded() {
    let directory = Directory::new();
    std::fs::create_dir_all(&directory.0).unwrap();
    put(&Store::open(&directory.0).unwrap(), "shop", 1, 3, 1000, &Quota::default());
    let file = directory.0.join("metering.sqlite");
    let old = rusqlite::Connection::open(&file).unwrap();
    old.execute_batch(
        "ALTER TABLE flyball_period DROP COLUMN bytes; ALTER TABLE flyball_report DROP COLUMN bytes;
         DROP TABLE flyball_consumer; ALTER TABLE flyball_series DROP COLUMN consumer;
         ALTER TABLE flyball_series ADD COLUMN owner INTEGER;
         ALTER TABLE flyball_series ADD COLUMN operator TEXT NOT NULL DEFAULT '';
         ALTER TABLE flyball_series ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
         PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(old);
    let store = Store::open(&directory.0).unwrap();
    assert_eq!(periods(&store, "shop"), [(1, 3)]);
    // Earlier results count.
    put(&store, "shop", 2, 3, 1000, &Quota { report_bytes: 5000, ..Quota::default() });
    assert_eq!(periods(&store, "shop"), [(2, 3)]);
}

#[cfg(unix)]
#[test]
fn history_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let check_files = || {
        for entry in std::fs::read_dir(&directory.0).unwrap() {
            assert_eq!(mode(&entry.as_ref().unwrap().path()), 0o600, "{entry:?}");
        }
    };
    let store = Store::open(&directory.0).unwrap();
    put(&store, "shop", 1, 1, 1, &Quota::default());
    assert_eq!(mode(&directory.0), 0o700);
    check_files();
    drop(store);
    // Files of an earlier version.
    let file = directory.0.join("metering.sqlite");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    put(&Store::open(&directory.0).unwrap(), "shop", 2, 1, 1, &Quota::default());
    check_files();
}
