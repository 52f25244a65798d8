//! Types of `Report` in `metering.flyball.dev/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A report: the results of a query, once or by a schedule.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[kube(
    group = "metering.flyball.dev",
    version = "v1alpha1",
    kind = "Report",
    namespaced,
    doc = "The results of a ReportQuery, once or by a schedule",
    status = "ReportStatus",
    printcolumn(name = "Query", type_ = "string", json_path = ".spec.query"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule.period"),
    printcolumn(name = "Running", type_ = "string", json_path = ".status.conditions[?(@.type==\"Running\")].reason"),
    printcolumn(name = "Failed", type_ = "string", json_path = ".status.conditions[?(@.type==\"Failure\")].reason"),
    printcolumn(name = "Last Report Time", type_ = "string", json_path = ".status.lastReportTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.schedule) || (has(self.reportingStart) && has(self.reportingEnd))",
     "message": "a report without schedule needs reportingStart and reportingEnd"},
    {"rule":
        "!has(self.runImmediately) || !self.runImmediately || (has(self.reportingStart) && has(self.reportingEnd))",
     "message": "runImmediately needs reportingStart and reportingEnd"},
    {"rule": "!has(self.reportingStart) || !has(self.reportingEnd) || self.reportingStart < self.reportingEnd",
     "message": "reportingEnd must be later than reportingStart"}
]))]
pub struct ReportSpec {
    /// Name of a ReportQuery in the namespace of the report, or of a built-in query.
    #[schemars(length(min = 1, max = 253))]
    pub query: String,
    /// Schedule; without one, the report runs once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ReportSchedule>,
    /// Begin of the first period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub reporting_start: Option<String>,
    /// End of the last period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub reporting_end: Option<String>,
    /// Time after its creation at which the report is deleted, if no other report reads it; such as `720h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub expiration: Option<String>,
    /// Runs the report at once, instead of when its period is over and all data has arrived.
    #[serde(default)]
    pub run_immediately: bool,
    /// Keeps the results of the newest period only.
    #[serde(default)]
    pub overwrite_existing_data: bool,
    /// Values of the inputs of the query.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub inputs: Vec<InputValue>,
}

/// The value of an input.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct InputValue {
    /// Name of the input.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Value: a text, a time, or the name of a report, source or query.
    #[schemars(length(max = 1024))]
    pub value: String,
}

/// The schedule of a report. Times are in UTC.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.period != 'cron' || has(self.cron)", "message": "the period cron needs cron.expression"}
]))]
pub struct ReportSchedule {
    /// Length of the periods.
    pub period: ReportPeriod,
    /// Times of hourly reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hourly: Option<HourlySchedule>,
    /// Times of daily reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily: Option<DailySchedule>,
    /// Times of weekly reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weekly: Option<WeeklySchedule>,
    /// Times of monthly reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly: Option<MonthlySchedule>,
    /// Times of other reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<CronSchedule>,
}

/// The length of periods.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ReportPeriod {
    /// An hour.
    Hourly,
    /// A day.
    Daily,
    /// A week.
    Weekly,
    /// A month.
    Monthly,
    /// The times of a cron expression.
    Cron,
}

/// Times of hourly reports.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct HourlySchedule {
    /// Minute.
    #[schemars(range(min = 0, max = 59))]
    pub minute: i64,
    /// Second.
    #[schemars(range(min = 0, max = 59))]
    pub second: i64,
}

/// Times of daily reports.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct DailySchedule {
    /// Hour.
    #[schemars(range(min = 0, max = 23))]
    pub hour: i64,
    /// Minute.
    #[schemars(range(min = 0, max = 59))]
    pub minute: i64,
    /// Second.
    #[schemars(range(min = 0, max = 59))]
    pub second: i64,
}

/// Times of weekly reports.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct WeeklySchedule {
    /// Day in full, such as `wednesday`; `monday` if absent.
    #[schemars(regex(pattern = "^((sun|mon|tues|wednes|thurs|fri|satur)day)?$"))]
    pub day_of_week: String,
    /// Hour.
    #[schemars(range(min = 0, max = 23))]
    pub hour: i64,
    /// Minute.
    #[schemars(range(min = 0, max = 59))]
    pub minute: i64,
    /// Second.
    #[schemars(range(min = 0, max = 59))]
    pub second: i64,
}

/// Times of monthly reports.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MonthlySchedule {
    /// Day; 1 if absent. A month without that day has no report.
    #[schemars(range(min = 0, max = 31))]
    pub day_of_month: i64,
    /// Hour.
    #[schemars(range(min = 0, max = 23))]
    pub hour: i64,
    /// Minute.
    #[schemars(range(min = 0, max = 59))]
    pub minute: i64,
    /// Second.
    #[schemars(range(min = 0, max = 59))]
    pub second: i64,
}

/// Times of other reports.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct CronSchedule {
    /// Cron expression, such as `*/5 * * * *`.
    #[schemars(length(min = 1, max = 128))]
    pub expression: String,
}

/// Observed state of a report.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportStatus {
    /// `Running`: a period is being reported. `Failure`: the report cannot run.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// End of the last period with results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_report_time: Option<String>,
    /// End of the next period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_report_time: Option<String>,
    /// Rows of the last period.
    pub rows: i64,
}
