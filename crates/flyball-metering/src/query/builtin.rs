//! The built-in queries, with the names, inputs and columns of the metering operator.
//!
//! Amounts of CPU have two columns: core-seconds as a number, as there, and core-microseconds as a whole number, whose
//! sums are exact. Byte-seconds are whole numbers.

mod joins;

use super::{Column, Definition, InputDefinition, InputKind, totals};
use joins::{JOINS, Join};

/// A query that adds up columns of a source by keys.
struct Sums {
    name: &'static str,
    keys: &'static [&'static str],
    amounts: Amounts,
    /// Column of the result, and expression over the sums.
    derived: &'static [(&'static str, &'static str)],
    source: (&'static str, &'static str),
    /// Condition on rows of the source.
    filter: &'static str,
    report: &'static str,
}

/// The amounts that a query adds up.
enum Amounts {
    /// Columns of the result, with expressions over the source.
    Expressions(&'static [(&'static str, &'static str)]),
    /// Columns of the result, with meters of a source that has a row for each of them.
    Meters(&'static [(&'static str, &'static str)]),
}

/// Length of the period in seconds.
const LENGTH: &str = "(reporting_end() - reporting_start())";

macro_rules! sums {
    ($name:literal by [$($key:literal),*] sum [$($sum:expr),*] derive [$($derived:expr),*]
     from $input:literal $source:literal $(where $filter:literal)? report $report:literal) => {
        Sums {
            name: $name,
            keys: &[$($key),*],
            amounts: Amounts::Expressions(&[$($sum),*]),
            derived: &[$($derived),*],
            source: ($input, $source),
            filter: concat!("" $(, $filter)?),
            report: $report,
        }
    };
}

const POD: &[&str] = &["pod", "namespace", "node"];
const OWNER: &[&str] = &["owner_group", "owner_kind", "owner_namespace", "owner_name"];

/// Columns that are derived from those of the totals of consumers.
const TOTALS_DERIVED: &[(&str, &str)] = &[
    ("pod_request_cpu_core_seconds", "pod_request_cpu_core_microseconds / 1e6"),
    ("pod_usage_cpu_core_seconds", "pod_usage_cpu_core_microseconds / 1e6"),
];
const TOTALS: Amounts = Amounts::Expressions(&totals::AMOUNTS);
const TOTALS_SOURCE: (&str, &str) = ("ConsumerRawDataSourceName", totals::SOURCE);

const PERFORMANCE: &[(&str, &str)] = &[
    ("api_calls", "api-calls"),
    ("reconciles", "reconciles"),
    ("reconcile_errors", "reconcile-errors"),
    ("reconcile_microseconds", "reconcile-microseconds"),
    ("external_calls", "external-calls"),
    ("external_call_microseconds", "external-call-microseconds"),
];
const PERFORMANCE_DERIVED: &[(&str, &str)] = &[
    ("reconcile_seconds", "reconcile_microseconds / 1e6"),
    ("avg_reconcile_seconds", "reconcile_microseconds / 1e6 / nullif(reconciles, 0)"),
];

#[rustfmt::skip]
const SUMS: &[Sums] = &[
    Sums { keys: POD, ..sums!("pod-cpu-request" by []
        sum [("pod_request_cpu_core_microseconds", "pod_request_cpu_core_microseconds")]
        derive [("pod_request_cpu_core_seconds", "pod_request_cpu_core_microseconds / 1e6")]
        from "PodCpuRequestRawDataSourceName" "pod-cpu-request-raw" report "PodCpuRequestReportName") },
    Sums { keys: POD, ..sums!("pod-cpu-limit" by []
        sum [("pod_limit_cpu_core_microseconds", "pod_limit_cpu_core_microseconds")]
        derive [("pod_limit_cpu_core_seconds", "pod_limit_cpu_core_microseconds / 1e6")]
        from "PodCpuLimitRawDataSourceName" "pod-cpu-limit-raw" report "PodCpuLimitReportName") },
    Sums { keys: POD, ..sums!("pod-cpu-usage" by []
        sum [("pod_usage_cpu_core_microseconds", "pod_usage_cpu_core_microseconds"),
             ("observed_seconds", "observed_seconds"), ("missing_seconds", "missing_seconds")]
        derive [("pod_usage_cpu_core_seconds", "pod_usage_cpu_core_microseconds / 1e6")]
        from "PodCpuUsageRawDataSourceName" "pod-cpu-usage-raw" report "PodCpuUsageReportName") },
    Sums { keys: POD, ..sums!("pod-memory-request" by []
        sum [("pod_request_memory_byte_seconds", "pod_request_memory_byte_seconds")] derive []
        from "PodMemoryRequestRawDataSourceName" "pod-memory-request-raw" report "PodMemoryRequestReportName") },
    Sums { keys: POD, ..sums!("pod-memory-limit" by []
        sum [("pod_limit_memory_byte_seconds", "pod_limit_memory_byte_seconds")] derive []
        from "PodMemoryLimitRawDataSourceName" "pod-memory-limit-raw" report "PodMemoryLimitReportName") },
    Sums { keys: POD, ..sums!("pod-memory-usage" by []
        sum [("pod_usage_memory_byte_seconds", "pod_usage_memory_byte_seconds"),
             ("observed_seconds", "observed_seconds"), ("missing_seconds", "missing_seconds")] derive []
        from "PodMemoryUsageRawDataSourceName" "pod-memory-usage-raw" report "PodMemoryUsageReportName") },
    sums!("namespace-cpu-request" by ["namespace"]
        sum [("pod_request_cpu_core_microseconds", "pod_request_cpu_core_microseconds")]
        derive [("pod_request_cpu_core_seconds", "pod_request_cpu_core_microseconds / 1e6")]
        from "PodCpuRequestRawDataSourceName" "pod-cpu-request-raw" report "NamespaceCPURequestReportName"),
    sums!("namespace-cpu-usage" by ["namespace"]
        sum [("pod_usage_cpu_core_microseconds", "pod_usage_cpu_core_microseconds"),
             ("observed_seconds", "observed_seconds"), ("missing_seconds", "missing_seconds")]
        derive [("pod_usage_cpu_core_seconds", "pod_usage_cpu_core_microseconds / 1e6")]
        from "PodCpuUsageRawDataSourceName" "pod-cpu-usage-raw" report "NamespaceCPUUsageReportName"),
    sums!("namespace-memory-request" by ["namespace"]
        sum [("pod_request_memory_byte_seconds", "pod_request_memory_byte_seconds")] derive []
        from "PodMemoryRequestRawDataSourceName" "pod-memory-request-raw" report "NamespaceMemoryRequestReportName"),
    sums!("namespace-memory-usage" by ["namespace"]
        sum [("pod_usage_memory_byte_seconds", "pod_usage_memory_byte_seconds"),
             ("observed_seconds", "observed_seconds"), ("missing_seconds", "missing_seconds")] derive []
        from "PodMemoryUsageRawDataSourceName" "pod-memory-usage-raw" report "NamespaceMemoryUsageReportName"),
    sums!("node-cpu-capacity" by ["node"]
        sum [("node_capacity_cpu_core_microseconds", "node_capacity_cpu_core_microseconds")]
        derive [("node_capacity_cpu_core_seconds", "node_capacity_cpu_core_microseconds / 1e6")]
        from "NodeCpuCapacityRawDataSourceName" "node-cpu-capacity-raw" report "NodeCpuCapacityReportName"),
    sums!("node-cpu-allocatable" by ["node"]
        sum [("node_allocatable_cpu_core_microseconds", "node_allocatable_cpu_core_microseconds")]
        derive [("node_allocatable_cpu_core_seconds", "node_allocatable_cpu_core_microseconds / 1e6")]
        from "NodeCpuAllocatableRawDataSourceName" "node-cpu-allocatable-raw" report "NodeCpuAllocatableReportName"),
    sums!("node-memory-capacity" by ["node"]
        sum [("node_capacity_memory_byte_seconds", "node_capacity_memory_byte_seconds")] derive []
        from "NodeMemoryCapacityRawDataSourceName" "node-memory-capacity-raw" report "NodeMemoryCapacityReportName"),
    sums!("node-memory-allocatable" by ["node"]
        sum [("node_allocatable_memory_byte_seconds", "node_allocatable_memory_byte_seconds")] derive []
        from "NodeMemoryAllocatableRawDataSourceName" "node-memory-allocatable-raw"
        report "NodeMemoryAllocatableReportName"),
    sums!("cluster-cpu-capacity" by []
        sum [("total_cluster_capacity_cpu_core_microseconds", "node_capacity_cpu_core_microseconds"),
             ("node_seconds", "seconds")]
        derive [("total_cluster_capacity_cpu_core_seconds", "total_cluster_capacity_cpu_core_microseconds / 1e6"),
                ("avg_cluster_capacity_cpu_cores", "total_cluster_capacity_cpu_core_microseconds / 1e6 / $LENGTH"),
                ("avg_node_count", "node_seconds * 1.0 / $LENGTH")]
        from "NodeCpuCapacityRawDataSourceName" "node-cpu-capacity-raw" report "ClusterCpuCapacityReportName"),
    sums!("cluster-memory-capacity" by []
        sum [("total_cluster_capacity_memory_byte_seconds", "node_capacity_memory_byte_seconds"),
             ("node_seconds", "seconds")]
        derive [("avg_cluster_capacity_memory_bytes", "total_cluster_capacity_memory_byte_seconds * 1.0 / $LENGTH"),
                ("avg_node_count", "node_seconds * 1.0 / $LENGTH")]
        from "NodeMemoryCapacityRawDataSourceName" "node-memory-capacity-raw" report "ClusterMemoryCapacityReportName"),
    sums!("cluster-cpu-usage" by []
        sum [("total_cluster_usage_cpu_core_microseconds", "pod_usage_cpu_core_microseconds"),
             ("pod_seconds", "observed_seconds")]
        derive [("total_cluster_usage_cpu_core_seconds", "total_cluster_usage_cpu_core_microseconds / 1e6"),
                ("avg_cluster_usage_cpu_cores", "total_cluster_usage_cpu_core_microseconds / 1e6 / $LENGTH"),
                ("avg_pod_count", "nullif(pod_seconds, 0) * 1.0 / $LENGTH")]
        from "PodCpuUsageRawDataSourceName" "pod-cpu-usage-raw" report "ClusterCpuUsageReportName"),
    sums!("cluster-memory-usage" by []
        sum [("total_cluster_usage_memory_byte_seconds", "pod_usage_memory_byte_seconds"),
             ("pod_seconds", "observed_seconds")]
        derive [("avg_cluster_usage_memory_bytes", "total_cluster_usage_memory_byte_seconds * 1.0 / $LENGTH"),
                ("avg_pod_count", "nullif(pod_seconds, 0) * 1.0 / $LENGTH")]
        from "PodMemoryUsageRawDataSourceName" "pod-memory-usage-raw" report "ClusterMemoryUsageReportName"),
    sums!("persistentvolumeclaim-request" by ["persistentvolumeclaim", "persistentvolume", "namespace", "storageclass"]
        sum [("volume_request_storage_byte_seconds", "volume_request_storage_byte_seconds")] derive []
        from "PersistentvolumeclaimRequestRawDataSourceName" "persistentvolumeclaim-request-raw"
        report "PersistentvolumeclaimRequestReportName"),
    sums!("persistentvolumeclaim-capacity" by ["namespace", "persistentvolumeclaim"]
        sum [("persistentvolumeclaim_capacity_byte_seconds", "persistentvolumeclaim_capacity_byte_seconds")] derive []
        from "PersistentvolumeclaimCapacityRawDataSourceName" "persistentvolumeclaim-capacity-raw"
        report "PersistentvolumeclaimCapacityReportName"),
    sums!("persistentvolumeclaim-usage" by ["namespace", "persistentvolumeclaim"]
        sum [("persistentvolumeclaim_usage_byte_seconds", "persistentvolumeclaim_usage_byte_seconds"),
             ("observed_seconds", "seconds")]
        derive [("persistentvolumeclaim_usage_bytes",
                 "persistentvolumeclaim_usage_byte_seconds * 1.0 / nullif(observed_seconds, 0)")]
        from "PersistentvolumeclaimUsageRawDataSourceName" "persistentvolumeclaim-usage-raw"
        report "PersistentvolumeclaimUsageReportName"),
    sums!("namespace-persistentvolumeclaim-request" by ["namespace"]
        sum [("volume_request_storage_byte_seconds", "volume_request_storage_byte_seconds")] derive []
        from "PersistentvolumeclaimRequestRawDataSourceName" "persistentvolumeclaim-request-raw"
        report "NamespacePersistentvolumeclaimRequestReportName"),
    sums!("namespace-persistentvolumeclaim-usage" by ["namespace"]
        sum [("persistentvolumeclaim_usage_byte_seconds", "persistentvolumeclaim_usage_byte_seconds")]
        derive [("persistentvolumeclaim_usage_bytes", "persistentvolumeclaim_usage_byte_seconds * 1.0 / $LENGTH")]
        from "PersistentvolumeclaimUsageRawDataSourceName" "persistentvolumeclaim-usage-raw"
        report "NamespacePersistentvolumeclaimUsageReportName"),
    sums!("cluster-persistentvolumeclaim-request" by []
        sum [("volume_request_storage_byte_seconds", "volume_request_storage_byte_seconds")] derive []
        from "PersistentvolumeclaimRequestRawDataSourceName" "persistentvolumeclaim-request-raw"
        report "ClusterPersistentvolumeclaimRequestReportName"),
    Sums { keys: OWNER, amounts: TOTALS, derived: TOTALS_DERIVED, source: TOTALS_SOURCE,
        ..sums!("custom-resource-usage" by [] sum [] derive [] from "" "" report "CustomResourceUsageReportName") },
    Sums { keys: &["owner_group", "owner_kind"], amounts: TOTALS, derived: TOTALS_DERIVED, source: TOTALS_SOURCE,
        ..sums!("kind-usage" by [] sum [] derive [] from "" "" report "KindUsageReportName") },
    Sums { keys: &["operator"], amounts: TOTALS, derived: TOTALS_DERIVED, source: TOTALS_SOURCE,
        ..sums!("operator-usage" by [] sum [] derive [] from "" "" report "OperatorUsageReportName") },
    Sums { keys: &["tenant"], amounts: TOTALS, derived: TOTALS_DERIVED, source: TOTALS_SOURCE,
        ..sums!("tenant-usage" by [] sum [] derive [] from "" "" report "TenantUsageReportName") },
    Sums { keys: &["namespace"], amounts: TOTALS, derived: TOTALS_DERIVED, source: TOTALS_SOURCE,
        ..sums!("namespace-usage" by [] sum [] derive [] from "" "" report "NamespaceUsageReportName") },
    Sums { keys: &["operator", "owner_group", "owner_kind"], amounts: Amounts::Meters(PERFORMANCE), derived: PERFORMANCE_DERIVED,
        ..sums!("operator-performance" by [] sum [] derive [] from "OperatorRawDataSourceName" "operator-raw"
            where "meter <> 'cache-byte-seconds'" report "OperatorPerformanceReportName") },
    sums!("operator-memory" by ["operator", "detail"]
        sum [("cache_byte_seconds", "amount"), ("observed_seconds", "seconds")]
        derive [("avg_cache_bytes", "cache_byte_seconds * 1.0 / nullif(observed_seconds, 0)")]
        from "OperatorRawDataSourceName" "operator-raw" where "meter = 'cache-byte-seconds'"
        report "OperatorMemoryReportName"),
];

/// Returns the names of all built-in queries, sorted.
pub fn builtin_names() -> Vec<&'static str> {
    let mut names: Vec<&str> =
        SUMS.iter().map(|query| query.name).chain(JOINS.iter().map(|query| query.name)).collect();
    names.sort_unstable();
    names
}

/// Returns the built-in query of a name.
pub fn builtin(name: &str) -> Option<Definition> {
    let sums = SUMS.iter().find(|query| query.name == name).map(Sums::definition);
    sums.or_else(|| JOINS.iter().find(|query| query.name == name).map(Join::definition))
}

impl Sums {
    fn definition(&self) -> Definition {
        let (input, source) = self.source;
        let filter = if self.filter.is_empty() { String::new() } else { format!(" WHERE {}", self.filter) };
        let keys = self.keys.join(", ");
        let (rows, sums, expression): (_, _, fn(&str) -> String) = match self.amounts {
            Amounts::Expressions(sums) => (format!("\"{input}\"{filter}"), sums, str::to_owned),
            // The rows of one meter are added up first, since each row costs a call per column.
            Amounts::Meters(sums) => (
                format!(
                    "(SELECT {keys}, meter, exact_sum(amount) AS amount FROM \"{input}\"{filter} GROUP BY {keys}, meter)"
                ),
                sums,
                |meter| format!("CASE meter WHEN '{meter}' THEN amount END"),
            ),
        };
        let names = sums.iter().chain(self.derived).map(|(name, _)| *name);
        let of_report: Vec<_> = sums.iter().map(|(name, _)| (*name, (*name).to_owned())).collect();
        let sums: Vec<_> = sums.iter().map(|(name, amount)| (*name, expression(amount))).collect();
        Definition {
            name: self.name.to_owned(),
            columns: columns(self.keys.iter().copied().chain(names)),
            inputs: inputs([(self.report, InputKind::Report, ""), (input, InputKind::DataSource, source)]),
            sql: self.sql(&rows, &sums),
            rollup: Some((self.report.to_owned(), self.sql(&format!("\"{}\"", self.report), &of_report))),
        }
    }

    /// Returns the SQL that adds up expressions over rows, each with the name of its column.
    fn sql(&self, rows: &str, sums: &[(&str, String)]) -> String {
        let keys = self.keys.join(", ");
        let (grouped, ordered) = match self.keys.is_empty() {
            true => (String::new(), String::new()),
            false => (format!("GROUP BY {keys}"), format!("ORDER BY {keys}")),
        };
        let sums = sums.iter().map(|(name, expression)| format!("exact_sum({expression}) AS {name}"));
        let inner: Vec<String> = self.keys.iter().map(ToString::to_string).chain(sums).collect();
        let derived = self.derived.iter();
        let derived = derived.map(|(name, expression)| format!("{} AS {name}", expression.replace("$LENGTH", LENGTH)));
        let outer: Vec<String> = std::iter::once("*".to_owned()).chain(derived).collect();
        format!(
            "SELECT reporting_start() AS period_start, reporting_end() AS period_end, {}
             FROM (SELECT {} FROM {rows} {grouped} HAVING count(*) > 0) {ordered}",
            outer.join(", "),
            inner.join(", ")
        )
    }
}

/// Declares the columns of a query, after those of its period.
fn columns<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Column> {
    ["period_start", "period_end"].into_iter().chain(names).map(column).collect()
}

fn column(name: &str) -> Column {
    let units = [
        ("period_", "timestamp", "date"),
        ("core_microseconds", "bigint", "cpu_core_microseconds"),
        ("core_seconds", "double", "cpu_core_seconds"),
        ("byte_seconds", "bigint", "byte_seconds"),
        ("microseconds", "bigint", "microseconds"),
        ("avg_", "double", ""),
        ("percent", "double", "ratio"),
        ("_seconds", "bigint", "seconds"),
        ("usage_bytes", "double", "bytes"),
        ("api_calls", "bigint", ""),
        ("external_calls", "bigint", ""),
        ("reconcile", "bigint", ""),
    ];
    let (kind, unit) = match name {
        "pod" => ("varchar", "kubernetes_pod"),
        "namespace" | "owner_namespace" => ("varchar", "kubernetes_namespace"),
        "node" => ("varchar", "kubernetes_node"),
        "persistentvolumeclaim" => ("varchar", "kubernetes_persistentvolumeclaim"),
        "reconcile_seconds" => ("double", "seconds"),
        _ => {
            units.iter().find(|(part, ..)| name.contains(part)).map_or(("varchar", ""), |(_, kind, unit)| (kind, unit))
        }
    };
    Column { name: name.to_owned(), kind: kind.to_owned(), unit: unit.to_owned(), hidden: false }
}

fn inputs(inputs: impl IntoIterator<Item = (&'static str, InputKind, &'static str)>) -> Vec<InputDefinition> {
    let period = [("ReportingStart", InputKind::Time, ""), ("ReportingEnd", InputKind::Time, "")];
    let input = |(name, kind, default): (&str, InputKind, &str)| InputDefinition {
        name: name.to_owned(),
        kind,
        required: false,
        default: (!default.is_empty()).then(|| default.to_owned()),
    };
    period.into_iter().chain(inputs).map(input).collect()
}
