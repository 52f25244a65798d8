//! The tables that queries read: views of the store for the period and the namespace of a report.
//!
//! Invariant: SQLite evaluates no expression of a user for a row outside of the namespace. A condition beside those of
//! the user would not ensure this, since SQLite chooses their order. A materialized expression is a fence that SQLite
//! moves no condition across.

use super::functions::SCOPE;
use super::growth::{Size, Sizes};
use super::period::Period;
use crate::meter::{Meter, Subject};
use crate::store::TABLE_PREFIX;
use rusqlite::{Connection, Result};

/// Columns of a consumer and its owner.
pub(super) const CONSUMER: &str = "coalesce(o.api_group, '') AS owner_group, coalesce(o.kind, '') AS owner_kind,
    coalesce(o.namespace, '') AS owner_namespace, coalesce(o.name, '') AS owner_name, coalesce(o.uid, '') AS owner_uid,
    c.operator AS operator, c.tenant AS tenant";

/// Creates the views in the temporary schema of a connection, and returns their sizes.
pub(super) fn create(connection: &Connection, period: &Period, is_scoped: bool) -> Result<Sizes> {
    let views = Views { period, is_scoped };
    let (mut sql, mut sizes) = (String::new(), Sizes::new());
    for (name, select) in views.all() {
        sizes.insert(name.clone(), Size::of_view(&select, is_scoped));
        let select = if is_scoped { fenced(&select) } else { select };
        sql.push_str(&format!("CREATE TEMP VIEW \"{name}\" AS {select};\n"));
    }
    connection.execute_batch(&sql).map(|()| sizes)
}

/// Adds the condition of a report that is limited to a namespace to one on series.
pub(super) fn scoped(condition: &str, is_scoped: bool) -> String {
    match is_scoped {
        true => format!("{condition} AND s.namespace = {SCOPE}()"),
        false => condition.to_owned(),
    }
}

/// Separates a select from the expressions of those who read it. Users cannot use the name, since it has the prefix.
pub(super) fn fenced(select: &str) -> String {
    format!("WITH {TABLE_PREFIX}rows AS MATERIALIZED ({select}) SELECT * FROM {TABLE_PREFIX}rows")
}

struct Views<'v> {
    period: &'v Period,
    is_scoped: bool,
}

impl Views<'_> {
    fn all(&self) -> Vec<(String, String)> {
        let mut views = Vec::new();
        let mut add = |name: &str, select: String| views.push((name.to_owned(), select));
        let cpu = |prefix: &str| {
            format!("v.amount AS {prefix}_cpu_core_microseconds, v.amount / 1e6 AS {prefix}_cpu_core_seconds")
        };
        let memory = |prefix: &str| format!("v.amount AS {prefix}_memory_byte_seconds");
        let storage = |prefix: &str| format!("v.amount AS {prefix}_byte_seconds");
        add("pod-cpu-request-raw", self.pods(Meter::PodCpuRequest, &cpu("pod_request")));
        add("pod-cpu-limit-raw", self.pods(Meter::PodCpuLimit, &cpu("pod_limit")));
        add("pod-memory-request-raw", self.pods(Meter::PodMemoryRequest, &memory("pod_request")));
        add("pod-memory-limit-raw", self.pods(Meter::PodMemoryLimit, &memory("pod_limit")));
        add("pod-cpu-usage-raw", self.pod_usage(Meter::PodCpuUsage, &cpu("pod_usage")));
        add("pod-memory-usage-raw", self.pod_usage(Meter::PodMemoryUsage, &memory("pod_usage")));
        add("node-cpu-capacity-raw", self.nodes(Meter::NodeCpuCapacity, &cpu("node_capacity")));
        add("node-cpu-allocatable-raw", self.nodes(Meter::NodeCpuAllocatable, &cpu("node_allocatable")));
        add("node-memory-capacity-raw", self.nodes(Meter::NodeMemoryCapacity, &memory("node_capacity")));
        add("node-memory-allocatable-raw", self.nodes(Meter::NodeMemoryAllocatable, &memory("node_allocatable")));
        let request = storage("volume_request_storage");
        add("persistentvolumeclaim-request-raw", self.claims(&self.period.gauge(Meter::ClaimRequest), &request));
        let capacity = storage("persistentvolumeclaim_capacity");
        add("persistentvolumeclaim-capacity-raw", self.claims(&self.period.gauge(Meter::ClaimCapacity), &capacity));
        let usage = storage("persistentvolumeclaim_usage");
        add("persistentvolumeclaim-usage-raw", self.claims(&self.period.usage(Meter::ClaimUsage), &usage));
        add("persistentvolumeclaim-phase-raw", self.phases());
        add("operator-raw", self.operators());
        add("datasource-raw", self.values());
        add("meter-raw", self.meters());
        views
    }

    /// Wraps a query for series and amount with the attributes of a subject.
    fn series(&self, amounts: &str, subject: Subject, columns: &str) -> String {
        let condition = scoped(&format!("s.subject = {}", subject.id()), self.is_scoped);
        format!(
            "SELECT {columns}, v.seconds AS seconds, s.uid AS uid, {CONSUMER}
             FROM ({amounts}) v JOIN flyball_series s ON s.id = v.series
             LEFT JOIN flyball_consumer c ON c.id = s.consumer LEFT JOIN flyball_owner o ON o.id = c.owner
             WHERE {condition}"
        )
    }

    fn pods(&self, meter: Meter, amount: &str) -> String {
        let columns = format!("s.name AS pod, s.namespace AS namespace, s.node AS node, {amount}");
        self.series(&self.period.gauge(meter), Subject::Pod, &columns)
    }

    /// Usage of pods, with the time in which a pod existed without a sample.
    fn pod_usage(&self, meter: Meter, amount: &str) -> String {
        let (usage, presence) = (self.period.usage_parts(meter), self.period.gauge_parts(Meter::PodPresence));
        // The parts are added up once, since SQLite sorts the rows of all pods for it. Usage without values is unknown.
        let amounts = format!(
            "SELECT series, exact_sum(amount) AS amount, sum(seconds) AS seconds, sum(present) AS present FROM (
               SELECT series, amount, seconds, 0 AS present FROM ({usage}) UNION ALL
               SELECT series, NULL AS amount, 0 AS seconds, seconds AS present FROM ({presence})
             ) GROUP BY series"
        );
        let columns = format!(
            "s.name AS pod, s.namespace AS namespace, s.node AS node, {amount}, v.seconds AS observed_seconds,
             max(v.present - v.seconds, 0) AS missing_seconds"
        );
        self.series(&amounts, Subject::Pod, &columns)
    }

    fn nodes(&self, meter: Meter, amount: &str) -> String {
        self.series(&self.period.gauge(meter), Subject::Node, &format!("s.name AS node, {amount}"))
    }

    fn claims(&self, amounts: &str, amount: &str) -> String {
        let columns = format!(
            "s.name AS persistentvolumeclaim, s.namespace AS namespace, label(s.detail, 'volume') AS persistentvolume,
             label(s.detail, 'storageclass') AS storageclass, {amount}"
        );
        self.series(amounts, Subject::Claim, &columns)
    }

    fn phases(&self) -> String {
        let phases = [("Pending", Meter::ClaimPending), ("Bound", Meter::ClaimBound), ("Lost", Meter::ClaimLost)];
        let select = |(phase, meter): (&str, Meter)| {
            let columns = format!("s.name AS persistentvolumeclaim, s.namespace AS namespace, '{phase}' AS phase");
            self.series(&self.period.gauge(meter), Subject::Claim, &columns)
        };
        phases.map(select).join(" UNION ALL ")
    }

    /// The work of operators, by custom resource, and the memory of their caches, by kind.
    fn operators(&self) -> String {
        let select = |(meter, name, subject): (Meter, &str, Subject)| {
            let columns = format!(
                "'{name}' AS meter, s.namespace AS namespace, s.name AS name, s.detail AS detail, v.amount AS amount"
            );
            self.series(&self.period.usage(meter), subject, &columns)
        };
        [
            (Meter::ApiCalls, "api-calls", Subject::Resource),
            (Meter::Reconciles, "reconciles", Subject::Resource),
            (Meter::ReconcileErrors, "reconcile-errors", Subject::Resource),
            (Meter::ReconcileTime, "reconcile-microseconds", Subject::Resource),
            (Meter::ExternalCalls, "external-calls", Subject::Resource),
            (Meter::ExternalTime, "external-call-microseconds", Subject::Resource),
            (Meter::CacheMemory, "cache-byte-seconds", Subject::Kind),
        ]
        .map(select)
        .join(" UNION ALL ")
    }

    /// Series of Prometheus queries, by bucket.
    fn values(&self) -> String {
        let parts = self.period.usage_parts(Meter::Value);
        let condition = scoped(&format!("s.subject = {}", Subject::Labels.id()), self.is_scoped);
        format!(
            "SELECT s.name AS datasource, s.namespace AS namespace, s.detail AS labels, v.bucket AS \"timestamp\",
                    v.length AS length, v.seconds AS timeprecision, v.amount AS amount_microseconds,
                    v.amount / 1e6 AS amount_seconds, v.amount / 1e6 / nullif(v.seconds, 0) AS amount
             FROM ({parts}) v JOIN flyball_series s ON s.id = v.series WHERE {condition}"
        )
    }

    /// Everything that is attributed to owners: one row for each series and meter.
    fn meters(&self) -> String {
        let pod = |name: &str, amounts: String| (name.to_owned(), amounts, Subject::Pod);
        let gauge = |meter| self.period.gauge(meter);
        let usage = |meter| self.period.usage(meter);
        let rows = [
            pod("pod-seconds", gauge(Meter::PodPresence)),
            pod("cpu-request", gauge(Meter::PodCpuRequest)),
            pod("memory-request", gauge(Meter::PodMemoryRequest)),
            pod("cpu-usage", usage(Meter::PodCpuUsage)),
            pod("memory-usage", usage(Meter::PodMemoryUsage)),
            ("storage-request".to_owned(), gauge(Meter::ClaimRequest), Subject::Claim),
            ("storage-usage".to_owned(), usage(Meter::ClaimUsage), Subject::Claim),
            ("api-calls".to_owned(), usage(Meter::ApiCalls), Subject::Resource),
            ("reconciles".to_owned(), usage(Meter::Reconciles), Subject::Resource),
            ("reconcile-microseconds".to_owned(), usage(Meter::ReconcileTime), Subject::Resource),
            ("external-calls".to_owned(), usage(Meter::ExternalCalls), Subject::Resource),
            ("external-call-microseconds".to_owned(), usage(Meter::ExternalTime), Subject::Resource),
        ];
        let select = |(name, amounts, subject): (String, String, Subject)| {
            let columns = format!(
                "'{name}' AS meter, s.name AS name, s.namespace AS namespace, s.node AS node, v.amount AS amount"
            );
            self.series(&amounts, subject, &columns)
        };
        rows.map(select).join(" UNION ALL ")
    }
}
