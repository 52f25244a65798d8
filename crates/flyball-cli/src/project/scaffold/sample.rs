//! Samples: manifests that show a kind, and that tests apply.

use crate::error::{Error, Result};
use crate::project::Resource;
use crate::render::yaml;
use serde_json::{Map, Value, json};

/// Returns the name of the object of a sample.
pub(crate) fn name_of(sample: &str, file: &str) -> Result<String> {
    let read: Option<Value> =
        serde_saphyr::from_multiple(sample).ok().and_then(|all: Vec<Value>| all.into_iter().next());
    let name = read.as_ref().and_then(|object| object["metadata"]["name"].as_str());
    name.map(str::to_owned).ok_or_else(|| {
        Error::new(format!("the first object of config/samples/{file} has no name"))
            .hint("set metadata.name; the tests apply the sample and read it back")
    })
}

/// Creates a sample whose spec has these values. Comments are preserved if the text is a block mapping.
pub(crate) fn of_values(resource: &Resource, note: &str, text: &str, values: &Map<String, Value>) -> String {
    let Resource { group, version, kind, .. } = resource;
    let mut object = json!({
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "metadata": {"name": super::case::name(resource)},
    });
    let head = yaml::write(&object);
    let lines = text.trim_start_matches('\u{feff}').lines().skip_while(|line| line.trim_end() == "---");
    let indented: Vec<String> =
        lines.map(|line| if line.is_empty() { String::new() } else { format!("  {line}") }).collect();
    let with_comments = format!("{head}spec:\n  # {note}\n{}\n", indented.join("\n").trim_end());
    object["spec"] = values.clone().into();
    let is_equal = serde_saphyr::from_str::<Value>(&with_comments).is_ok_and(|read| is_same(&read, &object));
    match is_equal {
        true => with_comments,
        false => yaml::write(&object),
    }
}

/// Compares values; numbers may have different types.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| is_same(one, other)))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_keeps_comments_if_it_can() {
        let resource =
            Resource { group: "a.io".into(), version: "v1".into(), kind: "Site".into(), ..Resource::default() };
        let head = "apiVersion: a.io/v1\nkind: Site\nmetadata:\n  name: site-sample\nspec:";
        for (text, expected) in [
            (
                "---\n# One.\nsize: 1\n\nnote: |\n  a\n\n   b\n",
                " # note\n  # One.\n  size: 1\n\n  note: |\n    a\n\n     b\n",
            ),
            ("{size: 1, note: \"a\\n\\n b\\n\"}\n", " # note\n  {size: 1, note: \"a\\n\\n b\\n\"}\n"),
            ("%YAML 1.1\n---\nsize: 1\nnote: |\n  a\n\n   b\n", "  note: |\n    a\n\n     b\n  size: 1\n"),
        ] {
            let values = json!({"size": 1.0, "note": "a\n\n b\n"}).as_object().cloned().unwrap();
            let sample = of_values(&resource, "note", text, &values);
            assert_eq!(
                sample.split_once(head).map(|(_, rest)| rest.trim_start_matches(['\n', ' '])),
                Some(expected.trim_start()),
                "{sample}"
            );
            let read: Value = serde_saphyr::from_str(&sample).unwrap();
            assert_eq!(read["spec"]["note"], "a\n\n b\n");
        }
        let empty = of_values(&resource, "note", "# Nothing.\n", &Map::new());
        assert!(empty.ends_with("spec: {}\n"), "{empty}");
    }
}
