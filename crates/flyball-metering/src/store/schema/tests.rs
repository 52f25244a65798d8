use super::*;
use crate::meter::{Meter, Subject};
use crate::store::{Error, FILE, OwnerRecord, Series, SeriesId, Store};
use std::path::PathBuf;

/// The tables of version 1; those of version 2 have sizes of results as well.
const FIRST: &str = "
CREATE TABLE flyball_owner (
    id INTEGER PRIMARY KEY, api_group TEXT NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL
) STRICT;
CREATE INDEX flyball_owner_uid ON flyball_owner (uid);
CREATE TABLE flyball_series (
    id INTEGER PRIMARY KEY, subject INTEGER NOT NULL, uid TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    node TEXT NOT NULL, detail TEXT NOT NULL, operator TEXT NOT NULL, tenant TEXT NOT NULL, owner INTEGER
) STRICT;
CREATE INDEX flyball_series_uid ON flyball_series (uid, subject);
CREATE TABLE flyball_gauge (
    meter INTEGER NOT NULL, until INTEGER NOT NULL, series INTEGER NOT NULL, since INTEGER NOT NULL,
    value INTEGER NOT NULL, PRIMARY KEY (meter, until, series, since)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_usage_300 (
    meter INTEGER NOT NULL, bucket INTEGER NOT NULL, series INTEGER NOT NULL, amount INTEGER NOT NULL,
    seconds INTEGER NOT NULL, PRIMARY KEY (meter, bucket, series)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_usage_3600 (
    meter INTEGER NOT NULL, bucket INTEGER NOT NULL, series INTEGER NOT NULL, amount INTEGER NOT NULL,
    seconds INTEGER NOT NULL, PRIMARY KEY (meter, bucket, series)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_usage_86400 (
    meter INTEGER NOT NULL, bucket INTEGER NOT NULL, series INTEGER NOT NULL, amount INTEGER NOT NULL,
    seconds INTEGER NOT NULL, PRIMARY KEY (meter, bucket, series)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_complete (
    series INTEGER NOT NULL, meter INTEGER NOT NULL, through INTEGER NOT NULL, PRIMARY KEY (series, meter)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_progress (source TEXT PRIMARY KEY, through INTEGER NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_report (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, name TEXT NOT NULL, columns TEXT NOT NULL
) STRICT;
CREATE TABLE flyball_period (
    report INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL, lines INTEGER NOT NULL,
    PRIMARY KEY (report, until)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_result (
    report INTEGER NOT NULL, until INTEGER NOT NULL, line INTEGER NOT NULL, cells TEXT NOT NULL,
    PRIMARY KEY (report, until, line)
) WITHOUT ROWID, STRICT;
INSERT INTO flyball_owner VALUES (1, 'example.com', 'Site', 'shop', 'web', 'u');
INSERT INTO flyball_series VALUES (1, 1, 'p1', 'shop', 'web-1', 'n1', '', 'site', 'team', 1);
INSERT INTO flyball_series VALUES (2, 1, 'p2', 'shop', 'web-2', 'n1', '', 'site', 'team', 1);
INSERT INTO flyball_series VALUES (3, 1, 'p3', 'shop', 'web-3', 'n1', '', '', 'shop', NULL);
INSERT INTO flyball_gauge VALUES (1, 1099511627776, 1, 60, 250000);
INSERT INTO flyball_progress VALUES ('state', 3600);
";

struct Directory(PathBuf);

impl Directory {
    /// Creates a directory with a database of these contents.
    fn with(name: &str, sql: &str, version: i64) -> Self {
        let path = std::env::temp_dir().join(format!("flyball-schema-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let connection = Connection::open(path.join(FILE)).unwrap();
        connection.execute_batch(sql).unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns each table and index with its SQL, without white space.
fn schema_of(store: &Store) -> Vec<(String, Vec<String>)> {
    let columns = |connection: &Connection, table: &str| {
        let mut statement = connection.prepare(&format!("SELECT name, type FROM pragma_table_info('{table}')"))?;
        let names =
            statement.query_map([], |row| Ok(format!("{} {}", row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        names.collect::<rusqlite::Result<Vec<_>>>()
    };
    let read = |connection: &Connection| {
        let mut statement =
            connection.prepare("SELECT name FROM sqlite_schema WHERE name LIKE 'flyball%' ORDER BY name")?;
        let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        names.into_iter().map(|name| Ok((name.clone(), columns(connection, &name)?))).collect()
    };
    store.read(read).unwrap()
}

#[test]
fn databases_of_older_versions_are_upgraded() {
    let empty = Directory::with("new", "", 0);
    let expected = schema_of(&Store::open(&empty.0).unwrap());
    let early = FIRST.replace("flyball_gauge", OLD_GAUGES);
    let second = |sql: &str| format!("{sql}{SIZES_OF_RESULTS}");
    let cases = [
        ("1", FIRST.to_owned(), 1),
        ("1-level", early.clone(), 1),
        ("2", second(FIRST), 2),
        ("2-level", second(&early), 2),
    ];
    for (name, sql, version) in cases {
        let directory = Directory::with(name, &sql, version);
        let store = Store::open(&directory.0).unwrap();
        assert_eq!(schema_of(&store), expected, "{name}");
        let mut series = Series::new(Subject::Pod, "p1", "shop", "web-1");
        (series.node, series.operator, series.tenant) = ("n1".into(), "site".into(), "team".into());
        let [group, kind, namespace, owner, uid] = ["example.com", "Site", "shop", "web", "u"].map(str::to_owned);
        series.owner = Some(OwnerRecord { group, kind, namespace, name: owner, uid });
        let gauges = store.open_gauges().unwrap();
        assert_eq!(gauges.len(), 1, "{name}");
        assert_eq!((&gauges[0].series, gauges[0].meter, gauges[0].value), (&series, Meter::PodCpuRequest, 250_000));
        assert_eq!(store.series_id(&series).unwrap(), SeriesId(1), "{name}: it is the same series");
        let alone = store.series(SeriesId(3)).unwrap().unwrap();
        assert_eq!((alone.owner, alone.tenant), (None, "shop".to_owned()), "{name}");
        let count = "SELECT count(*) FROM flyball_consumer";
        let consumers = store.read(|of| of.query_row(count, [], |row| row.get::<_, i64>(0)));
        assert_eq!(consumers.unwrap(), 2, "{name}");
        drop(store);
        Store::open(&directory.0).unwrap();
    }
}

#[test]
fn databases_of_newer_versions_and_other_programs_are_rejected() {
    let newer = Directory::with("newer", FIRST, VERSION + 1);
    let error = Store::open(&newer.0).unwrap_err();
    assert!(matches!(error, Error::Version { found, .. } if found == VERSION + 1), "{error}");
    assert!(error.to_string().contains("use the newer program"), "{error}");
    let other = Directory::with("other", "CREATE TABLE notes (text TEXT)", VERSION);
    let error = Store::open(&other.0).unwrap_err().to_string();
    assert!(error.contains("has no table flyball_owner: restore a backup"), "{error}");
}
