//! Strict parsing of `Chart.yaml`: unknown fields and duplicate keys are errors.

use crate::quote::quote;
use crate::yaml::{self, Data};

const METADATA: &[&str] = &[
    "name",
    "home",
    "sources",
    "version",
    "description",
    "keywords",
    "maintainers",
    "icon",
    "apiVersion",
    "condition",
    "tags",
    "appVersion",
    "deprecated",
    "annotations",
    "kubeVersion",
    "dependencies",
    "type",
];
const MAINTAINER: &[&str] = &["name", "email", "url"];
const DEPENDENCY: &[&str] =
    &["name", "version", "repository", "condition", "tags", "enabled", "import-values", "alias"];

/// Checks the text and the decoded data.
///
/// # Errors
///
/// Returns the message of sigs.k8s.io/yaml about the first unknown field, or about duplicate keys.
pub(super) fn check(text: &[u8], data: &Data) -> Result<(), String> {
    let duplicates = yaml::duplicates(text);
    if !duplicates.is_empty() {
        let line = |(line, key): &(usize, String)| {
            format!("\n  line {line}: key {} already set in map", quote(key.as_bytes()))
        };
        let lines: String = duplicates.iter().map(line).collect();
        return Err(format!("error converting YAML to JSON: yaml: unmarshal errors:{lines}"));
    }
    match unknown(data, METADATA) {
        Some(key) => {
            let key = quote(key.as_bytes());
            Err(format!("error unmarshaling JSON: while decoding JSON: json: unknown field {key}"))
        }
        None => Ok(()),
    }
}

/// Returns the first unknown field, in the order of keys.
fn unknown<'d>(data: &'d Data, known: &[&str]) -> Option<&'d str> {
    let Data::Map(fields) = data else { return None };
    fields.iter().find_map(|(key, value)| {
        let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(key)) else { return Some(key.as_str()) };
        let inner = match *name {
            "maintainers" => MAINTAINER,
            "dependencies" => DEPENDENCY,
            _ => return None,
        };
        let Data::List(items) = value else { return None };
        items.iter().find_map(|item| unknown(item, inner))
    })
}
