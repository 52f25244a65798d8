//! Rules for `values.yaml`.

use super::source::Source;
use super::{Lint, LintOptions, Severity};
use crate::chart::schema;
use crate::helm::HelmVersion;
use crate::render::coalesce::{Nulls, tables};
use crate::yaml::{self, Data, Error};

const FILE: &str = "values.yaml";
const SCHEMA: &str = "values.schema.json";

pub(super) fn check(source: &Source, options: &LintOptions<'_>, lint: &mut Lint) {
    let exists = if source.entry(FILE).is_some() { Ok(()) } else { Err("file does not exist".to_owned()) };
    if !lint.rule(Severity::Info, FILE, exists) {
        return;
    }
    let mut log = Vec::new();
    let outcome = validate(source, options, &mut log);
    lint.warnings.append(&mut log);
    lint.rule(Severity::Error, FILE, outcome);
}

fn validate(source: &Source, options: &LintOptions<'_>, log: &mut Vec<String>) -> Result<(), String> {
    let type_name = options.helm().choose("chartutil.Values", "common.Values");
    let read = source.read(FILE).and_then(|text| match yaml::read(&text) {
        Ok(Data::Map(map)) => Ok(map),
        Ok(Data::Null) => Ok(std::collections::BTreeMap::new()),
        Ok(other) => Err(Error::to_string(&other.mismatch("Go value", type_name))),
        Err(error) => Err(error.to_string()),
    });
    let own = read.map_err(|message| format!("unable to parse YAML: {message}"))?;
    let own = own.into_iter().map(|(key, value)| (key, value.into_values())).collect();
    // Values of subcharts are not merged, because the rule applies only to the values of this chart.
    let mut all = options.values.as_map().clone();
    tables(&mut all, own, "", Nulls::Delete, log);
    let Ok(text) = source.read(SCHEMA) else { return Ok(()) };
    if text.is_empty() || (options.skip_schema_validation && options.helm() == HelmVersion::V4) {
        return Ok(());
    }
    schema::validate_one(&text, &all)
}
