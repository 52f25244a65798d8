//! Built-in queries that join others.

use super::{Definition, InputKind, columns, inputs};

/// A query that joins others.
pub(super) struct Join {
    pub(super) name: &'static str,
    columns: &'static [&'static str],
    inputs: &'static [(&'static str, InputKind, &'static str)],
    sql: &'static str,
}

#[rustfmt::skip]
pub(super) const JOINS: &[Join] = &[
    Join {
        name: "namespace-cpu-utilization",
        columns: &["namespace", "pod_usage_cpu_core_microseconds", "pod_request_cpu_core_microseconds",
            "total_cluster_capacity_cpu_core_microseconds", "pod_usage_cpu_core_seconds", "pod_request_cpu_core_seconds",
            "pod_cpu_usage_percent", "pod_cpu_request_percent", "total_cluster_capacity_cpu_core_seconds"],
        inputs: &[("NamespaceCPURequestReportName", InputKind::Report, ""),
            ("NamespaceCPUUsageReportName", InputKind::Report, ""),
            ("ClusterCpuCapacityReportName", InputKind::Report, ""),
            ("NamespaceCpuRequestQueryName", InputKind::Query, "namespace-cpu-request"),
            ("NamespaceCpuUsageQueryName", InputKind::Query, "namespace-cpu-usage"),
            ("ClusterCpuCapacityQueryName", InputKind::Query, "cluster-cpu-capacity")],
        sql: "SELECT reporting_start() AS period_start, reporting_end() AS period_end, r.namespace AS namespace,
                u.pod_usage_cpu_core_microseconds, r.pod_request_cpu_core_microseconds,
                c.total_cluster_capacity_cpu_core_microseconds, u.pod_usage_cpu_core_seconds,
                r.pod_request_cpu_core_seconds,
                u.pod_usage_cpu_core_seconds / c.total_cluster_capacity_cpu_core_seconds AS pod_cpu_usage_percent,
                r.pod_request_cpu_core_seconds / c.total_cluster_capacity_cpu_core_seconds AS pod_cpu_request_percent,
                c.total_cluster_capacity_cpu_core_seconds
              FROM NamespaceCpuRequestQueryName r LEFT JOIN ClusterCpuCapacityQueryName c ON true
              LEFT JOIN NamespaceCpuUsageQueryName u ON u.namespace = r.namespace ORDER BY r.namespace",
    },
    Join {
        name: "namespace-memory-utilization",
        columns: &["namespace", "pod_usage_memory_byte_seconds", "pod_request_memory_byte_seconds",
            "pod_memory_usage_percent", "pod_memory_request_percent", "total_cluster_capacity_memory_byte_seconds"],
        inputs: &[("NamespaceMemoryRequestReportName", InputKind::Report, ""),
            ("NamespaceMemoryUsageReportName", InputKind::Report, ""),
            ("ClusterMemoryCapacityReportName", InputKind::Report, ""),
            ("NamespaceMemoryRequestQueryName", InputKind::Query, "namespace-memory-request"),
            ("NamespaceMemoryUsageQueryName", InputKind::Query, "namespace-memory-usage"),
            ("ClusterMemoryCapacityQueryName", InputKind::Query, "cluster-memory-capacity")],
        sql: "SELECT reporting_start() AS period_start, reporting_end() AS period_end, r.namespace AS namespace,
                u.pod_usage_memory_byte_seconds, r.pod_request_memory_byte_seconds,
                u.pod_usage_memory_byte_seconds * 1.0 / c.total_cluster_capacity_memory_byte_seconds
                  AS pod_memory_usage_percent,
                r.pod_request_memory_byte_seconds * 1.0 / c.total_cluster_capacity_memory_byte_seconds
                  AS pod_memory_request_percent,
                c.total_cluster_capacity_memory_byte_seconds
              FROM NamespaceMemoryRequestQueryName r LEFT JOIN ClusterMemoryCapacityQueryName c ON true
              LEFT JOIN NamespaceMemoryUsageQueryName u ON u.namespace = r.namespace ORDER BY r.namespace",
    },
    Join {
        name: "cluster-cpu-utilization",
        columns: &["total_cluster_capacity_cpu_core_microseconds", "total_cluster_usage_cpu_core_microseconds",
            "total_cluster_capacity_cpu_core_seconds", "total_cluster_usage_cpu_core_seconds",
            "cluster_cpu_utilization_percent", "avg_cluster_capacity_cpu_cores", "avg_cluster_usage_cpu_cores",
            "avg_node_count", "avg_pod_count", "avg_pod_per_node_count"],
        inputs: &[("ClusterCpuCapacityReportName", InputKind::Report, ""),
            ("ClusterCpuUsageReportName", InputKind::Report, ""),
            ("ClusterCpuCapacityQueryName", InputKind::Query, "cluster-cpu-capacity"),
            ("ClusterCpuUsageQueryName", InputKind::Query, "cluster-cpu-usage")],
        sql: "SELECT reporting_start() AS period_start, reporting_end() AS period_end,
                c.total_cluster_capacity_cpu_core_microseconds, u.total_cluster_usage_cpu_core_microseconds,
                c.total_cluster_capacity_cpu_core_seconds, u.total_cluster_usage_cpu_core_seconds,
                u.total_cluster_usage_cpu_core_seconds / c.total_cluster_capacity_cpu_core_seconds
                  AS cluster_cpu_utilization_percent,
                c.avg_cluster_capacity_cpu_cores, u.avg_cluster_usage_cpu_cores, c.avg_node_count, u.avg_pod_count,
                u.avg_pod_count / c.avg_node_count AS avg_pod_per_node_count
              FROM ClusterCpuCapacityQueryName c JOIN ClusterCpuUsageQueryName u",
    },
    Join {
        name: "cluster-memory-utilization",
        columns: &["total_cluster_capacity_memory_byte_seconds", "total_cluster_usage_memory_byte_seconds",
            "cluster_memory_utilization_percent", "avg_cluster_capacity_memory_bytes",
            "avg_cluster_usage_memory_bytes", "avg_node_count", "avg_pod_count", "avg_pod_per_node_count"],
        inputs: &[("ClusterMemoryCapacityReportName", InputKind::Report, ""),
            ("ClusterMemoryUsageReportName", InputKind::Report, ""),
            ("ClusterMemoryCapacityQueryName", InputKind::Query, "cluster-memory-capacity"),
            ("ClusterMemoryUsageQueryName", InputKind::Query, "cluster-memory-usage")],
        sql: "SELECT reporting_start() AS period_start, reporting_end() AS period_end,
                c.total_cluster_capacity_memory_byte_seconds, u.total_cluster_usage_memory_byte_seconds,
                u.total_cluster_usage_memory_byte_seconds * 1.0 / c.total_cluster_capacity_memory_byte_seconds
                  AS cluster_memory_utilization_percent,
                c.avg_cluster_capacity_memory_bytes, u.avg_cluster_usage_memory_bytes, c.avg_node_count,
                u.avg_pod_count, u.avg_pod_count / c.avg_node_count AS avg_pod_per_node_count
              FROM ClusterMemoryCapacityQueryName c JOIN ClusterMemoryUsageQueryName u",
    },
    Join {
        name: "node-cpu-utilization",
        columns: &["node", "node_allocatable_cpu_core_microseconds", "pod_request_cpu_core_microseconds",
            "node_allocatable_cpu_core_seconds", "pod_request_cpu_core_seconds", "cpu_used_percent",
            "cpu_unused_percent"],
        inputs: &[("NodeCpuAllocatableRawDataSourceName", InputKind::DataSource, "node-cpu-allocatable-raw"),
            ("PodCpuRequestRawDataSourceName", InputKind::DataSource, "pod-cpu-request-raw")],
        sql: "WITH n AS (SELECT node, exact_sum(node_allocatable_cpu_core_microseconds) AS amount
                FROM NodeCpuAllocatableRawDataSourceName GROUP BY node),
              p AS (SELECT node, exact_sum(pod_request_cpu_core_microseconds) AS amount
                FROM PodCpuRequestRawDataSourceName GROUP BY node)
              SELECT reporting_start() AS period_start, reporting_end() AS period_end, n.node AS node,
                n.amount AS node_allocatable_cpu_core_microseconds,
                coalesce(p.amount, 0) AS pod_request_cpu_core_microseconds,
                n.amount / 1e6 AS node_allocatable_cpu_core_seconds,
                coalesce(p.amount, 0) / 1e6 AS pod_request_cpu_core_seconds,
                coalesce(p.amount, 0) * 1.0 / n.amount AS cpu_used_percent,
                1 - coalesce(p.amount, 0) * 1.0 / n.amount AS cpu_unused_percent
              FROM n LEFT JOIN p ON p.node = n.node ORDER BY n.node",
    },
    Join {
        name: "node-memory-utilization",
        columns: &["node", "node_allocatable_memory_byte_seconds", "pod_request_memory_byte_seconds",
            "memory_used_percent", "memory_unused_percent"],
        inputs: &[("NodeMemoryAllocatableRawDataSourceName", InputKind::DataSource, "node-memory-allocatable-raw"),
            ("PodMemoryRequestRawDataSourceName", InputKind::DataSource, "pod-memory-request-raw")],
        sql: "WITH n AS (SELECT node, exact_sum(node_allocatable_memory_byte_seconds) AS amount
                FROM NodeMemoryAllocatableRawDataSourceName GROUP BY node),
              p AS (SELECT node, exact_sum(pod_request_memory_byte_seconds) AS amount
                FROM PodMemoryRequestRawDataSourceName GROUP BY node)
              SELECT reporting_start() AS period_start, reporting_end() AS period_end, n.node AS node,
                n.amount AS node_allocatable_memory_byte_seconds,
                coalesce(p.amount, 0) AS pod_request_memory_byte_seconds,
                coalesce(p.amount, 0) * 1.0 / n.amount AS memory_used_percent,
                1 - coalesce(p.amount, 0) * 1.0 / n.amount AS memory_unused_percent
              FROM n LEFT JOIN p ON p.node = n.node ORDER BY n.node",
    },
    Join {
        name: "persistentvolumeclaim-phase",
        columns: &["namespace", "persistentvolumeclaim", "phase", "phase_seconds"],
        inputs: &[("PersistentvolumeclaimPhaseRawDataSourceName", InputKind::DataSource,
            "persistentvolumeclaim-phase-raw")],
        sql: "SELECT reporting_start() AS period_start, reporting_end() AS period_end, namespace,
                persistentvolumeclaim, phase, sum(seconds) AS phase_seconds
              FROM PersistentvolumeclaimPhaseRawDataSourceName GROUP BY namespace, persistentvolumeclaim, phase
              ORDER BY namespace, persistentvolumeclaim, phase",
    },
];

impl Join {
    pub(super) fn definition(&self) -> Definition {
        Definition {
            name: self.name.to_owned(),
            columns: columns(self.columns.iter().copied()),
            inputs: inputs(self.inputs.iter().copied()),
            sql: self.sql.to_owned(),
            rollup: None,
        }
    }
}
