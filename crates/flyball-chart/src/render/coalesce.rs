//! Merging of the values of a user, of a chart and of its subcharts.
//!
//! The parent's values take precedence, maps are merged, other values are replaced; `global` is shared by all; null
//! deletes. See
//! <https://helm.sh/docs/chart_template_guide/subcharts_and_globals/>.

use crate::chart::Chart;
use crate::format::display;
use crate::quote::quote;
use serde_json::{Map, Value};

/// Warnings, as logged by Helm.
pub(crate) type Log = Vec<String>;

/// Treatment of nulls: they are kept if values will be coalesced again; otherwise they delete values.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Nulls {
    Delete,
    Stay,
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Merges values over those of a chart and of its subcharts.
///
/// # Errors
///
/// Fails if the values for a subchart are not a mapping.
pub(crate) fn coalesce(
    chart: &Chart,
    values: &Map<String, Value>,
    nulls: Nulls,
    log: &mut Log,
) -> Result<Map<String, Value>, String> {
    let mut all = values.clone();
    chart_values(chart, &mut all, "", nulls, log)?;
    Ok(all)
}

fn chart_values(
    chart: &Chart,
    dest: &mut Map<String, Value>,
    prefix: &str,
    nulls: Nulls,
    log: &mut Log,
) -> Result<(), String> {
    let prefix = join(prefix, chart.name());
    own_values(chart, dest, &prefix, nulls, log);
    for child in &chart.dependencies {
        let name = child.name();
        let mut inner = match dest.remove(name) {
            None => Map::new(),
            Some(Value::Object(inner)) => inner,
            Some(other) => return Err(format!("type mismatch on {name}: {}", bool_verb(&other))),
        };
        globals(&mut inner, dest, &prefix, log);
        chart_values(child, &mut inner, &prefix, nulls, log)?;
        dest.insert(name.to_owned(), Value::Object(inner));
    }
    Ok(())
}

/// `%t` of a value that is not a boolean.
fn bool_verb(value: &Value) -> String {
    let value = crate::value::Value::from(value);
    String::from_utf8_lossy(&crate::format::sprintf(b"%t", &[value], usize::MAX).text()).into_owned()
}

fn own_values(chart: &Chart, dest: &mut Map<String, Value>, prefix: &str, nulls: Nulls, log: &mut Log) {
    for (key, value) in &chart.values {
        match (dest.get_mut(key), value) {
            (None, value) => {
                dest.insert(key.clone(), value.clone());
            }
            (Some(Value::Null), _) if nulls == Nulls::Delete => {
                dest.remove(key);
            }
            (Some(Value::Object(above)), Value::Object(below)) => {
                let is_child = chart.dependencies.iter().any(|child| child.name() == key);
                let nulls = if is_child { Nulls::Stay } else { nulls };
                tables(above, below.clone(), &join(prefix, key), nulls, log);
            }
            (Some(Value::Object(_)), below) if !below.is_null() => {
                log.push(format!("warning: skipped value for {prefix}.{key}: Not a table."));
            }
            _ => {}
        }
    }
}

/// Merges a table with another one, which takes precedence.
pub(crate) fn tables(
    above: &mut Map<String, Value>,
    below: Map<String, Value>,
    prefix: &str,
    nulls: Nulls,
    log: &mut Log,
) {
    for (key, value) in below {
        let full = join(prefix, &key);
        match (above.get_mut(&key), value) {
            (Some(Value::Null), value) => {
                let deletes = nulls == Nulls::Delete && !value.is_null();
                if deletes {
                    above.remove(&key);
                }
            }
            (None, value) => {
                above.insert(key, value);
            }
            (Some(Value::Object(above)), Value::Object(below)) => tables(above, below, &full, nulls, log),
            (Some(_), below @ Value::Object(_)) => log.push(format!(
                "warning: cannot overwrite table with non table for {full} ({})",
                display(&crate::value::Value::from(&below))
            )),
            (Some(Value::Object(_)), below) if !below.is_null() => log.push(format!(
                "warning: destination for {full} is a table. Ignoring non-table value ({})",
                display(&crate::value::Value::from(&below))
            )),
            _ => {}
        }
    }
}

const GLOBAL: &str = "global";

/// Merges a chart's globals over those of a subchart.
fn globals(dest: &mut Map<String, Value>, source: &Map<String, Value>, prefix: &str, log: &mut Log) {
    let source = match source.get(GLOBAL) {
        None => Map::new(),
        Some(Value::Object(globals)) => globals.clone(),
        Some(_) => return log.push("warning: skipping globals because source global is not a table.".to_owned()),
    };
    let mut own = match dest.get(GLOBAL) {
        None => Map::new(),
        Some(Value::Object(globals)) => globals.clone(),
        Some(_) => return log.push("warning: skipping globals because destination global is not a table.".to_owned()),
    };
    for (key, value) in source {
        match (own.get(&key), value) {
            (Some(Value::Object(below)), Value::Object(mut above)) => {
                tables(&mut above, below.clone(), &join(prefix, &key), Nulls::Stay, log);
                own.insert(key, Value::Object(above));
            }
            (Some(below), Value::Object(_)) if !below.is_object() => {
                let key = quote(key.as_bytes());
                log.push(format!("Conflict: cannot merge map onto non-map for {key}. Skipping."));
            }
            (Some(Value::Object(_)), _) => log.push(format!("key {key} is table. Skipping")),
            (_, value) => {
                own.insert(key, value);
            }
        }
    }
    dest.insert(GLOBAL.to_owned(), Value::Object(own));
}
