//! Series: the subjects of meters, and the custom resources that own them.

use super::{Caches, Result, Store};
use crate::meter::{Meter, Subject};
use rusqlite::{Connection, OptionalExtension, ToSql, Transaction, params};
use std::collections::HashMap;

/// Identifies a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(pub(crate) i64);

/// The custom resource that owns a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerRecord {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped resources.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A subject with all that amounts are attributed to. A pod whose owner changes has two series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    /// Kind of the subject.
    pub subject: Subject,
    /// UID of the object; empty if it has none.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Node of a pod.
    pub node: String,
    /// Storage class and volume of a claim, labels of a Prometheus series, kind in an operator's memory.
    pub detail: String,
    /// Name of the operator.
    pub operator: String,
    /// Tenant.
    pub tenant: String,
    /// Custom resource that owns it.
    pub owner: Option<OwnerRecord>,
}

impl Series {
    /// Creates a series of a subject without attributes.
    pub fn new(subject: Subject, uid: &str, namespace: &str, name: &str) -> Self {
        Self {
            subject,
            uid: uid.into(),
            namespace: namespace.into(),
            name: name.into(),
            node: String::new(),
            detail: String::new(),
            operator: String::new(),
            tenant: namespace.into(),
            owner: None,
        }
    }
}

impl Store {
    /// Returns the number of a series, which is stored if it is new.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn series_id(&self, series: &Series) -> Result<SeriesId> {
        self.write(|transaction, caches| series_id(transaction, caches, series))
    }

    /// Returns the series with this number.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn series(&self, id: SeriesId) -> Result<Option<Series>> {
        self.read(|connection| read_series(connection, id))
    }
}

impl Store {
    /// Returns the pods or claims that existed in an interval, by namespace and name; the newest of each name.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn existing(&self, subject: Subject, since: i64, until: i64) -> Result<HashMap<(String, String), Series>> {
        let meter = if subject == Subject::Pod { Meter::PodPresence } else { Meter::ClaimRequest };
        self.read(|connection| {
            let query = "SELECT series FROM flyball_gauge
                         WHERE meter = ?1 AND until > ?2 AND since < ?3 ORDER BY since, series";
            let mut statement = connection.prepare_cached(query)?;
            let ids = statement.query_map(params![meter.id(), since, until], |row| Ok(SeriesId(row.get(0)?)))?;
            let mut found = HashMap::new();
            for id in ids {
                if let Some(series) = read_series(connection, id?)? {
                    found.insert((series.namespace.clone(), series.name.clone()), series);
                }
            }
            Ok(found)
        })
    }
}

pub(super) fn series_id(
    transaction: &Transaction<'_>,
    caches: &mut Caches<'_>,
    series: &Series,
) -> rusqlite::Result<SeriesId> {
    if let Some(id) = caches.series.get(series) {
        return Ok(*id);
    }
    let consumer = consumer_id(transaction, caches, series)?;
    let (subject, Series { uid, namespace, name, node, detail, .. }) = (series.subject.id(), series);
    let values = params![subject, uid, namespace, name, node, detail, consumer];
    let query = "SELECT id FROM flyball_series WHERE subject = ?1 AND uid = ?2 AND namespace = ?3 AND name = ?4
                 AND node = ?5 AND detail = ?6 AND consumer = ?7";
    let insert = "INSERT INTO flyball_series (subject, uid, namespace, name, node, detail, consumer)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let id = find_or_insert(transaction, query, insert, values)?;
    caches.series.insert(series.clone(), SeriesId(id));
    Ok(SeriesId(id))
}

/// Returns the number of the consumer to which the amounts of a series are attributed.
fn consumer_id(transaction: &Transaction<'_>, caches: &mut Caches<'_>, series: &Series) -> rusqlite::Result<i64> {
    let owner = series.owner.as_ref().map(|owner| owner_id(transaction, caches, owner)).transpose()?;
    let values = params![owner, series.namespace, series.operator, series.tenant];
    let query = "SELECT id FROM flyball_consumer
                 WHERE owner IS ?1 AND namespace = ?2 AND operator = ?3 AND tenant = ?4";
    let insert = "INSERT INTO flyball_consumer (owner, namespace, operator, tenant) VALUES (?1, ?2, ?3, ?4)";
    find_or_insert(transaction, query, insert, values)
}

fn owner_id(transaction: &Transaction<'_>, caches: &mut Caches<'_>, owner: &OwnerRecord) -> rusqlite::Result<i64> {
    if let Some(id) = caches.owners.get(owner) {
        return Ok(*id);
    }
    let values = params![owner.group, owner.kind, owner.namespace, owner.name, owner.uid];
    let query = "SELECT id FROM flyball_owner
                 WHERE api_group = ?1 AND kind = ?2 AND namespace = ?3 AND name = ?4 AND uid = ?5";
    let insert = "INSERT INTO flyball_owner (api_group, kind, namespace, name, uid) VALUES (?1, ?2, ?3, ?4, ?5)";
    let id = find_or_insert(transaction, query, insert, values)?;
    caches.owners.insert(owner.clone(), id);
    Ok(id)
}

/// Returns the number of the row with these values, which is inserted if it is new.
fn find_or_insert(
    transaction: &Transaction<'_>,
    query: &str,
    insert: &str,
    values: &[&dyn ToSql],
) -> rusqlite::Result<i64> {
    let known = transaction.prepare_cached(query)?.query_row(values, |row| row.get(0)).optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    transaction.prepare_cached(insert)?.execute(values)?;
    Ok(transaction.last_insert_rowid())
}

pub(super) fn read_series(connection: &Connection, id: SeriesId) -> rusqlite::Result<Option<Series>> {
    let query = "SELECT s.subject, s.uid, s.namespace, s.name, s.node, s.detail, c.operator, c.tenant,
                        o.api_group, o.kind, o.namespace, o.name, o.uid
                 FROM flyball_series s JOIN flyball_consumer c ON c.id = s.consumer
                 LEFT JOIN flyball_owner o ON o.id = c.owner WHERE s.id = ?1";
    let read = |row: &rusqlite::Row<'_>| {
        let kind: Option<String> = row.get(9)?;
        let owner = match kind {
            Some(kind) => Some(OwnerRecord {
                group: row.get(8)?,
                kind,
                namespace: row.get(10)?,
                name: row.get(11)?,
                uid: row.get(12)?,
            }),
            None => None,
        };
        let subject: i64 = row.get(0)?;
        Ok(Series {
            subject: Subject::of_id(subject).unwrap_or(Subject::Labels),
            uid: row.get(1)?,
            namespace: row.get(2)?,
            name: row.get(3)?,
            node: row.get(4)?,
            detail: row.get(5)?,
            operator: row.get(6)?,
            tenant: row.get(7)?,
            owner,
        })
    };
    connection.prepare_cached(query)?.query_row([id.0], read).optional()
}
