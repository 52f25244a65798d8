//! `values.schema.json`: validation of values.
//!
//! Helm validates with santhosh-tekuri/jsonschema, whose messages are reproduced. Drafts 4 to 2020-12 are supported as
//! far as charts use them. References must be within the document, because schemas are not fetched.

mod check;
mod meta;
mod text;

use super::Chart;
use crate::functions::json;
use crate::message;
use crate::value::Value as TemplateValue;
use check::{Checker, Violation};
use serde_json::{Map, Value};

/// Checks values against the schemas of a chart and of its subcharts.
///
/// # Errors
///
/// Returns all violations, grouped by chart.
pub(crate) fn validate(chart: &Chart, values: &Map<String, Value>) -> Result<(), String> {
    let mut all = String::new();
    if let Some(schema) = &chart.schema
        && let Err(message) = validate_one(schema, values)
    {
        all.push_str(&format!("{}:\n{message}", chart.name()));
    }
    for child in &chart.dependencies {
        match values.get(child.name()) {
            None | Some(Value::Null) => {}
            Some(Value::Object(values)) => {
                if let Err(message) = validate(child, values) {
                    all.push_str(&message);
                }
            }
            Some(other) => {
                let is = TemplateValue::from(other).type_name();
                let name = child.name();
                all.push_str(&format!("{name}:\ninvalid type for values: expected object (map), got {is}\n"));
            }
        }
    }
    if all.is_empty() { Ok(()) } else { Err(all) }
}

/// Checks values against one schema.
///
/// # Errors
///
/// Returns all violations.
pub(crate) fn validate_one(schema: &[u8], values: &Map<String, Value>) -> Result<(), String> {
    let root: Value = match serde_json::from_slice(schema) {
        Ok(root) => root,
        // The messages of Go's decoder.
        Err(error) => return Err(json::decoding_error(schema).unwrap_or_else(|| error.to_string())),
    };
    let draft = Draft::of(&root)?;
    let (meta, url) = meta::schema(draft);
    let problems = Checker::new(&meta, Draft::V2020).check(&root)?;
    if !problems.is_empty() {
        let message = show(&problems);
        return Err(format!(
            "\"file:///values.schema.json#\" is not valid against metaschema: jsonschema validation failed with '{url}#'{message}"
        ));
    }
    let problems = Checker::new(&root, draft).check(&Value::Object(values.clone()))?;
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{}\n", show(&problems).trim_start_matches('\n'))),
    }
}

fn show(problems: &[Violation]) -> String {
    let mut out = String::new();
    problems.iter().for_each(|problem| problem.show(&mut out, 0));
    message::write(out)
}

/// A version of JSON Schema.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Draft {
    V4,
    V6,
    V7,
    V2019,
    V2020,
}

impl Draft {
    fn of(root: &Value) -> Result<Draft, String> {
        let Some(url) = root.get("$schema").and_then(Value::as_str) else { return Ok(Draft::V2020) };
        let bare = url.trim_end_matches('#').trim_start_matches("http://").trim_start_matches("https://");
        Ok(match bare {
            "json-schema.org/draft-04/schema" => Draft::V4,
            "json-schema.org/draft-06/schema" => Draft::V6,
            "json-schema.org/draft-07/schema" => Draft::V7,
            "json-schema.org/draft/2019-09/schema" => Draft::V2019,
            "json-schema.org/schema" | "json-schema.org/draft/2020-12/schema" => Draft::V2020,
            _ => {
                return Err(format!(
                    "failing loading {url:?}: schemas are not fetched; use a draft of json-schema.org"
                ));
            }
        })
    }
}
