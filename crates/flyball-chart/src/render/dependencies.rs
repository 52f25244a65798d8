//! Selection of subcharts by version, alias, condition and tags, and import of their values.
//!
//! See <https://helm.sh/docs/topics/charts/#tags-and-condition-fields-in-dependencies>.

use super::coalesce::{Log, Nulls, coalesce, tables};
use crate::chart::{Chart, Dependency};
use crate::quote::quote;
use crate::semver::is_compatible;
use serde_json::{Map, Value};

/// Removes disabled subcharts and imports values, starting at the chart.
///
/// # Errors
///
/// Fails if the values for a subchart are not a mapping.
pub(crate) fn process(chart: &mut Chart, values: &Map<String, Value>, log: &mut Log) -> Result<(), String> {
    enable(chart, values, "", log)?;
    import(chart, log)
}

fn enable(chart: &mut Chart, values: &Map<String, Value>, path: &str, log: &mut Log) -> Result<(), String> {
    if chart.metadata.dependencies.is_empty() {
        return Ok(());
    }
    let dependencies = &mut chart.metadata.dependencies;
    let is_named = |child: &Chart, dependencies: &[Dependency]| {
        dependencies.iter().any(|d| d.name == child.name() && is_compatible(&d.version, child.version()))
    };
    let mut children: Vec<Chart> =
        chart.dependencies.iter().filter(|child| !is_named(child, dependencies)).cloned().collect();
    for dependency in dependencies.iter_mut() {
        let found = chart
            .dependencies
            .iter()
            .find(|child| child.name() == dependency.name && is_compatible(&dependency.version, child.version()));
        if let Some(found) = found {
            let mut child = found.clone();
            if !dependency.alias.is_empty() {
                child.metadata.name.clone_from(&dependency.alias);
            }
            children.push(child);
        }
        if !dependency.alias.is_empty() {
            dependency.name.clone_from(&dependency.alias);
        }
    }
    chart.dependencies = children;
    let all = coalesce(chart, values, Nulls::Delete, log)?;
    for dependency in &mut chart.metadata.dependencies {
        dependency.enabled = by_tags(dependency, &all, log);
        if let Some(enabled) = by_condition(dependency, &all, path, log) {
            dependency.enabled = enabled;
        }
    }
    let dependencies = &chart.metadata.dependencies;
    let is_off = |name: &str| dependencies.iter().any(|dependency| !dependency.enabled && dependency.name == name);
    chart.dependencies.retain(|child| !is_off(child.name()));
    let remaining = dependencies.iter().filter(|dependency| !is_off(&dependency.name)).cloned().collect();
    for child in &mut chart.dependencies {
        let path = format!("{path}{}.", child.name());
        enable(child, &all, &path, log)?;
    }
    chart.metadata.dependencies = remaining;
    Ok(())
}

fn by_tags(dependency: &Dependency, values: &Map<String, Value>, log: &mut Log) -> bool {
    let Some(Value::Object(tags)) = values.get("tags") else { return true };
    let (mut has_true, mut has_false) = (false, false);
    for tag in &dependency.tags {
        match tags.get(tag) {
            None => {}
            Some(Value::Bool(true)) => has_true = true,
            Some(Value::Bool(false)) => has_false = true,
            Some(_) => log.push(format!("Warning: Tag '{tag}' for chart {} returned non-bool value", dependency.name)),
        }
    }
    has_true || !has_false
}

fn by_condition(dependency: &Dependency, values: &Map<String, Value>, path: &str, log: &mut Log) -> Option<bool> {
    for condition in dependency.condition.trim().split(',').filter(|condition| !condition.is_empty()) {
        match find(values, &format!("{path}{condition}")) {
            Some(Value::Bool(is)) => return Some(*is),
            None | Some(Value::Object(_)) => {}
            Some(_) => log.push(format!(
                "Warning: Condition path '{condition}' for chart {} returned non-bool value",
                dependency.name
            )),
        }
    }
    None
}

/// Returns the value at a path of keys.
fn find<'v>(values: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (values.get(first)?, rest) {
        (found, None) => Some(found),
        (Value::Object(inner), Some(rest)) => find(inner, rest),
        _ => None,
    }
}

fn import(chart: &mut Chart, log: &mut Log) -> Result<(), String> {
    for child in &mut chart.dependencies {
        import(child, log)?;
    }
    if chart.metadata.dependencies.is_empty() {
        return Ok(());
    }
    let mut all = coalesce(chart, &Map::new(), Nulls::Stay, log)?;
    let mut imported = Map::new();
    for dependency in &chart.metadata.dependencies {
        for value in &dependency.import_values {
            match table(&all, &format!("{}.{}", dependency.name, value.child)) {
                Ok(found) => tables(&mut imported, at_path(&value.parent, found), "", Nulls::Stay, log),
                Err(key) => {
                    let of = match value.is_export {
                        true => String::new(),
                        false => format!(" from chart {}", dependency.name),
                    };
                    let key = quote(key.as_bytes());
                    log.push(format!("Warning: ImportValues missing table{of}: {key} is not a table"));
                }
            }
        }
    }
    tables(&mut all, imported, "", Nulls::Stay, log);
    chart.values = all;
    Ok(())
}

/// Returns the table at a path, or the key that is not a table.
fn table(values: &Map<String, Value>, path: &str) -> Result<Map<String, Value>, String> {
    let mut found = values;
    for key in path.split('.') {
        match found.get(key) {
            Some(Value::Object(inner)) => found = inner,
            _ => return Err(key.to_owned()),
        }
    }
    Ok(found.clone())
}

/// A table below a path.
fn at_path(path: &str, table: Map<String, Value>) -> Map<String, Value> {
    if path == "." {
        return table;
    }
    let mut current = table;
    for key in path.split('.').rev() {
        current = Map::from_iter([(key.to_owned(), Value::Object(current))]);
    }
    current
}
