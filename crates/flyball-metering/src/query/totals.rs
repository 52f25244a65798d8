//! The source `consumer-raw`: all amounts of a period, added up for each consumer.
//!
//! A consumer is an owner with namespace, operator and tenant. A month has many more pods than consumers. SQLite would
//! sort the rows of all pods to add them up, which takes longer than to read them. So they are added up here, and
//! SQLite gets the sums.
//!
//! Invariant: only rows in the scope of the report are added up, and sums are exact.

use super::functions::{Exact, sum_overflow};
use super::period::Period;
use super::views;
use crate::meter::{Meter, Subject};
use rusqlite::{Connection, Result, ToSql, params_from_iter};
use std::collections::BTreeMap;

/// Name of the source.
pub(super) const SOURCE: &str = "consumer-raw";

/// Columns of the source, each with the meter of a subject that it adds up.
const COLUMNS: [(&str, Meter, Subject); 12] = [
    ("pod_seconds", Meter::PodPresence, Subject::Pod),
    ("pod_request_cpu_core_microseconds", Meter::PodCpuRequest, Subject::Pod),
    ("pod_usage_cpu_core_microseconds", Meter::PodCpuUsage, Subject::Pod),
    ("pod_request_memory_byte_seconds", Meter::PodMemoryRequest, Subject::Pod),
    ("pod_usage_memory_byte_seconds", Meter::PodMemoryUsage, Subject::Pod),
    ("volume_request_storage_byte_seconds", Meter::ClaimRequest, Subject::Claim),
    ("volume_usage_storage_byte_seconds", Meter::ClaimUsage, Subject::Claim),
    ("api_calls", Meter::ApiCalls, Subject::Resource),
    ("reconciles", Meter::Reconciles, Subject::Resource),
    ("reconcile_microseconds", Meter::ReconcileTime, Subject::Resource),
    ("external_calls", Meter::ExternalCalls, Subject::Resource),
    ("external_call_microseconds", Meter::ExternalTime, Subject::Resource),
];

/// The columns of amounts, each with itself as the expression that a query adds up.
pub(super) const AMOUNTS: [(&str, &str); COLUMNS.len()] = {
    let mut amounts = [("", ""); COLUMNS.len()];
    let mut at = 0;
    while at < amounts.len() {
        amounts[at] = (COLUMNS[at].0, COLUMNS[at].0);
        at += 1;
    }
    amounts
};

/// The sums of a consumer; `None` for a meter without rows.
type Sums = [Option<i128>; COLUMNS.len()];

/// Creates the source in the temporary schema of a connection, without rows.
pub(super) fn create(connection: &Connection, is_scoped: bool) -> Result<()> {
    let names = AMOUNTS.map(|(name, _)| name).join(", ");
    let select = format!(
        "SELECT c.namespace AS namespace, {}, {names}
         FROM flyball_total t JOIN flyball_consumer c ON c.id = t.consumer LEFT JOIN flyball_owner o ON o.id = c.owner",
        views::CONSUMER
    );
    // SQLite may begin with the consumers, which are those of all namespaces.
    let select = if is_scoped { views::fenced(&select) } else { select };
    connection.execute_batch(&format!(
        "CREATE TEMP TABLE flyball_total (consumer INTEGER PRIMARY KEY, {names});
         CREATE TEMP VIEW \"{SOURCE}\" AS {select}"
    ))
}

/// Adds the sums of a period to the source.
pub(super) fn fill(connection: &Connection, period: &Period, is_scoped: bool) -> Result<()> {
    let mut totals: BTreeMap<i64, Sums> = BTreeMap::new();
    for (at, (_, meter, subject)) in COLUMNS.into_iter().enumerate() {
        let condition = views::scoped(&format!("s.subject = {}", subject.id()), is_scoped);
        // A cross join keeps the order of the tables: rows of amounts are read in the order of their key.
        let select = format!(
            "SELECT s.consumer, v.value, v.factor FROM ({}) v CROSS JOIN flyball_series s ON s.id = v.series
             WHERE {condition}",
            period.rows(meter)
        );
        let mut statement = connection.prepare(&select)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (value, factor): (i64, i64) = (row.get(1)?, row.get(2)?);
            let sum = &mut totals.entry(row.get(0)?).or_default()[at];
            let amount = i128::from(value) * i128::from(factor);
            *sum = Some(sum.unwrap_or(0).checked_add(amount).ok_or_else(sum_overflow)?);
        }
    }
    let places = vec!["?"; COLUMNS.len() + 1].join(", ");
    let mut insert = connection.prepare(&format!("INSERT INTO flyball_total VALUES ({places})"))?;
    for (consumer, sums) in totals {
        let sums = sums.map(|sum| sum.map(Exact));
        let sums = sums.iter().map(|sum| sum as &dyn ToSql);
        insert.execute(params_from_iter(std::iter::once(&consumer as &dyn ToSql).chain(sums)))?;
    }
    Ok(())
}
