//! YAML for people to read: apiVersion, kind and metadata first, then all other fields in alphabetical order.
//!
//! Texts are quoted as by kubectl, keys included: YAML 1.1 parsers interpret `on` and `1:30` as other types.

use serde_json::Value;
use std::cmp::Ordering;

/// Keys that come first at every level.
const FIRST: [&str; 5] = ["apiVersion", "kind", "metadata", "name", "namespace"];

/// Writes a value as a document. Equal values result in equal texts.
pub(crate) fn write(value: &Value) -> String {
    flyball_chart::to_yaml(value, order)
}

fn order(one: &str, other: &str) -> Ordering {
    let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    rank(one).cmp(&rank(other)).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_have_the_conventional_order() {
        let object = json!({"spec": {"b": [1.0, {"z": true, "name": "on"}], "a": {}}, "kind": "Site",
            "metadata": {"labels": {"x": "1"}, "name": "web"}, "apiVersion": "v1", "data": {"page": "a:\n  b\n", "none": null}});
        let expected = "apiVersion: v1
kind: Site
metadata:
  name: web
  labels:
    x: \"1\"
data:
  none: null
  page: |
    a:
      b
spec:
  a: {}
  b:
  - 1
  - name: \"on\"
    z: true
";
        assert_eq!(write(&object), expected);
        let again: Value = serde_saphyr::from_str(expected).unwrap();
        assert_eq!(again["data"], object["data"]);
    }

    #[test]
    fn strings_round_trip() {
        let texts = [
            "",
            "a",
            "on",
            "No",
            "1",
            "1.5",
            "10m",
            "1e3",
            "0x1f",
            "012",
            "1:30",
            "2001-01-01",
            ".5",
            "~",
            "- a",
            "a: b",
            "a #b",
            "*",
            "{}",
            "a\tb",
            "ü",
            " a",
            "a ",
            "a\n\nb",
            " a\nb",
            "a\nb\n",
            "a \nb",
            "'a'",
            "\"a\"",
            "null",
            "%",
            "@a",
            "[a",
            "!x",
            "|",
            ">",
            "key:",
            "--flag",
            "a\rb",
            "sha256:0a",
            "=",
            "<<",
            "1_000",
            ".inf",
            "+1",
            "?",
            "a, b",
        ];
        for text in texts {
            // kubectl writes a key `<<` plain as well, which reads as a merge; no key of Kubernetes is one.
            let key = text.trim_start_matches("<<");
            let value = json!({"a": [text], key: 1});
            let written = write(&value);
            let read: Value = serde_saphyr::from_str(&written).unwrap();
            assert_eq!(read, value, "{written}");
        }
    }
}
