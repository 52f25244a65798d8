//! The record of a chart in a revision, in Helm's format, so that Helm itself can roll back to it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flyball_chart::{Chart, Dependency, File, Metadata};
use serde_json::{Map, Value, json};

/// The file with the resolved versions of subcharts.
const LOCKS: [&str; 2] = ["Chart.lock", "requirements.lock"];

/// Encodes a chart without its subcharts, as Helm does.
pub(crate) fn of(chart: &Chart) -> Value {
    let files = |files: &[File]| -> Value {
        match files.is_empty() {
            true => Value::Null,
            false => files.iter().map(|file| json!({"name": file.path, "data": BASE64.encode(&file.data)})).collect(),
        }
    };
    let others: Vec<File> = chart.files().iter().filter(|file| !LOCKS.contains(&&*file.path)).cloned().collect();
    json!({
        "metadata": metadata(chart.metadata()),
        "lock": lock(chart),
        "templates": files(chart.templates()),
        "values": integral_floats(Value::Object(chart.values().clone())),
        "schema": chart.schema().map(|schema| BASE64.encode(schema)),
        "files": files(&others),
    })
}

fn lock(chart: &Chart) -> Value {
    let file = chart.files().iter().find(|file| LOCKS.contains(&&*file.path));
    let read = file.and_then(|file| serde_saphyr::from_str(&String::from_utf8_lossy(&file.data)).ok());
    read.unwrap_or_default()
}

fn metadata(of: &Metadata) -> Value {
    let maintainer = |who: &flyball_chart::Maintainer| {
        omit_empty([("name", json!(who.name)), ("email", json!(who.email)), ("url", json!(who.url))])
    };
    omit_empty([
        ("name", json!(of.name)),
        ("home", json!(of.home)),
        ("sources", json!(of.sources)),
        ("version", json!(of.version)),
        ("description", json!(of.description)),
        ("keywords", json!(of.keywords)),
        ("maintainers", of.maintainers.iter().map(maintainer).collect()),
        ("icon", json!(of.icon)),
        ("apiVersion", json!(of.api_version)),
        ("condition", json!(of.condition)),
        ("tags", json!(of.tags)),
        ("appVersion", json!(of.app_version)),
        ("deprecated", json!(of.deprecated)),
        ("annotations", json!(of.annotations)),
        ("kubeVersion", json!(of.kube_version)),
        ("dependencies", of.dependencies.iter().map(dependency).collect()),
        ("type", json!(of.chart_type)),
    ])
}

fn dependency(of: &Dependency) -> Value {
    let imported = |value: &flyball_chart::ImportValue| json!({"child": value.child, "parent": value.parent});
    let mut written = omit_empty([
        ("version", json!(of.version)),
        ("condition", json!(of.condition)),
        ("tags", json!(of.tags)),
        ("enabled", json!(of.enabled)),
        ("import-values", of.import_values.iter().map(imported).collect()),
        ("alias", json!(of.alias)),
    ]);
    (written["name"], written["repository"]) = (json!(of.name), json!(of.repository));
    written
}

/// Omits empty values, as Go does with `omitempty`.
fn omit_empty<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    };
    let fields = fields.into_iter().filter(|(_, value)| is_set(value));
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// Encodes whole floats as Go does: without a decimal point.
pub(crate) fn integral_floats(value: Value) -> Value {
    /// Smallest float that Go writes with an exponent.
    const MIN_EXPONENT_FORM: f64 = 1e15;
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < MIN_EXPONENT_FORM => json!(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(integral_floats).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, integral_floats(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_chart_matches_helm() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/release-secret");
        let decoded = std::fs::read_to_string(folder.join("decoded-1.json")).unwrap();
        let expected: Value = serde_json::from_str(&decoded).unwrap();
        let chart = Chart::open(&folder.join("chart")).unwrap();
        assert_eq!(of(&chart), expected["chart"]);
    }

    #[test]
    fn numbers_are_formatted_as_by_go() {
        assert_eq!(integral_floats(json!({"a": [3.0, 2.5, "3.0", 4]})).to_string(), r#"{"a":[3,2.5,"3.0",4]}"#);
    }
}
