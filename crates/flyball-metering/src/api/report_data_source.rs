//! Types of `ReportDataSource` in `metering.flyball.dev/v1alpha1`.

use super::report::InputValue;
use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A source of queries: a Prometheus query, or another ReportQuery.
///
/// The sources `pod-usage-cpu-cores`, `pod-usage-memory-bytes` and `persistentvolumeclaim-usage-bytes` are the usage
/// of pods and claims; others are tables of their own.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[kube(
    group = "metering.flyball.dev",
    version = "v1alpha1",
    kind = "ReportDataSource",
    namespaced,
    doc = "A source of metering data",
    status = "ReportDataSourceStatus",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "Newest Metric",
        type_ = "string",
        json_path = ".status.prometheusMetricsImportStatus.importDataEndTime"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.prometheusMetricsImporter) != has(self.reportQueryView)",
     "message": "set either prometheusMetricsImporter or reportQueryView"}
]))]
pub struct ReportDataSourceSpec {
    /// Imports a Prometheus query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus_metrics_importer: Option<PrometheusImporter>,
    /// Reads another query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_query_view: Option<QueryView>,
}

/// Import of the results of a Prometheus query.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusImporter {
    /// PromQL.
    #[schemars(length(min = 1, max = 8192))]
    pub query: String,
    /// Begin of the import; the creation of the source if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub import_from: Option<String>,
    /// Intervals.
    #[serde(default)]
    pub query_config: QueryConfig,
    /// The server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus_config: Option<PrometheusConfig>,
}

/// Intervals of an import, as Go durations.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryConfig {
    /// Time between imports: `5m` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub query_interval: Option<String>,
    /// Time between values: `60s` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub step_size: Option<String>,
    /// Time of one request: `1h` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub chunk_size: Option<String>,
}

/// Connection to a Prometheus server.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub struct PrometheusConfig {
    /// URL; one of those that the operator allows.
    #[schemars(length(max = 2048))]
    pub url: String,
}

/// Another query as a source.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct QueryView {
    /// Name of the ReportQuery.
    #[schemars(length(min = 1, max = 253))]
    pub query_name: String,
    /// Values of its inputs.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub inputs: Vec<InputValue>,
}

/// Observed state of a source.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportDataSourceStatus {
    /// `Ready`: the last import succeeded.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Progress of the import.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus_metrics_import_status: Option<ImportStatus>,
}

/// Progress of an import.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ImportStatus {
    /// Time up to which the source is imported.
    pub import_data_end_time: String,
    /// Samples of the last import.
    pub samples: i64,
    /// Samples of the last import that were imported before, or arrived late.
    pub late: i64,
}
