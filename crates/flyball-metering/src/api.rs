//! The kinds of `metering.flyball.dev`.
//!
//! Kinds and fields are those of the metering operator. The group is our own, since queries are written in another SQL:
//! objects of `metering.openshift.io` would be accepted and fail.

mod report;
mod report_data_source;
mod report_query;

pub use report::{
    CronSchedule, DailySchedule, HourlySchedule, InputValue, MonthlySchedule, Report, ReportPeriod, ReportSchedule,
    ReportSpec, ReportStatus, WeeklySchedule,
};
pub use report_data_source::{
    ImportStatus, PrometheusConfig, PrometheusImporter, QueryConfig, QueryView, ReportDataSource, ReportDataSourceSpec,
    ReportDataSourceStatus,
};
pub use report_query::{
    QueryColumn, QueryInput, ReportQuery, ReportQuerySpec, ReportQueryStatus, Rollup, invalid_query,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The API group.
pub const GROUP: &str = "metering.flyball.dev";

/// Returns the definitions of all kinds.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![Report::crd(), ReportQuery::crd(), ReportDataSource::crd()]
}
