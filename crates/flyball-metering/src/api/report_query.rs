//! Types of `ReportQuery` in `metering.flyball.dev/v1alpha1`.

use crate::query::{Column, Definition, InputDefinition, InputKind};
use flyball::Condition;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A query of reports: SQL, its columns and inputs.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "metering.flyball.dev",
    version = "v1alpha1",
    kind = "ReportQuery",
    plural = "reportqueries",
    namespaced,
    doc = "SQL over metering data",
    status = "ReportQueryStatus",
    printcolumn(name = "Valid", type_ = "string", json_path = ".status.conditions[?(@.type==\"Valid\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ReportQuerySpec {
    /// Columns of the result.
    #[schemars(length(min = 1, max = 64))]
    pub columns: Vec<QueryColumn>,
    /// Inputs that a report can set.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub inputs: Vec<QueryInput>,
    /// SELECT in the dialect of SQLite.
    #[schemars(length(min = 1, max = 32_768))]
    pub query: String,
    /// SELECT that replaces the query if a report sets an input of type Report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollup: Option<Rollup>,
}

/// A column of the results of a ReportQuery.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QueryColumn {
    /// Name.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,62}$"))]
    pub name: String,
    /// Type: `timestamp` for seconds that are printed as a time, or another one, for people.
    #[serde(rename = "type")]
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Unit, for people.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub unit: String,
    /// Omits the column in tables.
    #[serde(default)]
    pub table_hidden: bool,
}

/// An input of a ReportQuery, which a Report sets.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct QueryInput {
    /// Name.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,62}$"))]
    pub name: String,
    /// Type: `string` (default), `int`, `time`, `Report`, `ReportDataSource` or `ReportQuery`.
    #[serde(rename = "type", default)]
    #[schemars(regex(pattern = "^(string|int|integer|time|Report|ReportDataSource|ReportQuery)?$"))]
    pub kind: String,
    /// True if a report must set it.
    #[serde(default)]
    pub required: bool,
    /// Value if a report does not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub default: Option<String>,
}

/// The query over an earlier report.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Rollup {
    /// Name of an input of type Report.
    #[schemars(length(min = 1, max = 63))]
    pub input: String,
    /// SELECT over the table of the name of the input.
    #[schemars(length(min = 1, max = 32_768))]
    pub query: String,
}

/// Observed state of a query.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportQueryStatus {
    /// `Valid`: reports can use the query.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl From<&ReportQuery> for Definition {
    fn from(query: &ReportQuery) -> Self {
        let column = |column: &QueryColumn| Column {
            name: column.name.clone(),
            kind: column.kind.clone(),
            unit: column.unit.clone(),
            hidden: column.table_hidden,
        };
        let input = |input: &QueryInput| InputDefinition {
            name: input.name.clone(),
            kind: match input.kind.as_str() {
                "time" => InputKind::Time,
                "int" | "integer" => InputKind::Integer,
                "Report" => InputKind::Report,
                "ReportDataSource" => InputKind::DataSource,
                "ReportQuery" => InputKind::Query,
                _ => InputKind::Text,
            },
            required: input.required,
            default: input.default.clone(),
        };
        Self {
            name: query.name_any(),
            columns: query.spec.columns.iter().map(column).collect(),
            inputs: query.spec.inputs.iter().map(input).collect(),
            sql: query.spec.query.clone(),
            rollup: query.spec.rollup.as_ref().map(|rollup| (rollup.input.clone(), rollup.query.clone())),
        }
    }
}

/// Returns the problem of a query that its schema does not exclude.
pub fn invalid_query(query: &Definition) -> Option<String> {
    let mut names = BTreeSet::new();
    if let Some(twice) = query.columns.iter().find(|column| !names.insert(&column.name)) {
        return Some(format!("spec.columns: {:?} occurs twice", twice.name));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = query.inputs.iter().find(|input| !names.insert(&input.name)) {
        return Some(format!("spec.inputs: {:?} occurs twice", twice.name));
    }
    let (input, _) = query.rollup.as_ref()?;
    let declared = query.inputs.iter().find(|declared| declared.name == *input);
    match declared.map(|declared| declared.kind) {
        Some(InputKind::Report) => None,
        _ => Some(format!("spec.rollup.input: {input:?} is not an input of type Report")),
    }
}
