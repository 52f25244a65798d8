//! Printer columns of CRDs, and their cells for an object.

use super::json_path::JsonPath;
use flyball_core::field::{go_json, go_print};
use flyball_core::{Clock, Object, time};
use serde_json::{Value, json};

/// A declared column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) ty: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) path: String,
    parsed: JsonPath,
}

/// The description of the column that a CRD without columns has besides the name.
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in \
                   happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\n\
                   Populated by the system. Read-only. Null for lists. More info: \
                   https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Reads the columns of a version of a CRD, up to the first whose path cannot be read.
pub(crate) fn read(version: &Value) -> Vec<Column> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": AGE})];
    let own = version["additionalPrinterColumns"].as_array().map_or(&[][..], Vec::as_slice);
    let columns = if own.is_empty() { age.iter() } else { own.iter() };
    let column = |column: &Value| {
        Some(Column {
            name: text(&column["name"]),
            ty: text(&column["type"]),
            format: text(&column["format"]),
            description: text(&column["description"]),
            priority: column["priority"].as_i64().unwrap_or(0),
            parsed: JsonPath::parse(column["jsonPath"].as_str().unwrap_or_default())?,
            path: text(&column["jsonPath"]),
        })
    };
    columns.map_while(column).collect()
}

/// Makes the cell of a column.
pub(crate) fn cell(column: &Column, object: &Object, clock: &Clock) -> Value {
    let Some(value) = column.parsed.first(object.as_value()) else { return Value::Null };
    match (&*column.ty, value) {
        ("string", value) => text(value).into(),
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(n)) => {
            n.as_i64().or_else(|| n.as_f64().map(|n| n as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) if matches!(text.as_str(), "" | "null") => "<unknown>".into(),
        ("date", Value::String(text)) => match time::parse_rfc3339(text) {
            Some(then) => time::human_duration(clock.now().duration_since(then)).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// Prints a value as Go's templates do: lists and maps as JSON, all else bare.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".into(),
        Value::Array(_) | Value::Object(_) => go_json(value),
        value => go_print(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell_of(ty: &str, path: &str) -> Value {
        let object = Object::try_from(json!({
            "spec": {"n": 3, "f": 2.7, "s": "x", "port": 80, "list": [1, 2], "a.b": "dotted", "null": null, "empty": "", "large": 123_456_789.5},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}], "at": "2026-01-01T00:00:00Z"},
        }))
        .unwrap();
        let version = json!({"additionalPrinterColumns": [{"name": "X", "type": ty, "jsonPath": path}]});
        let clock = Clock::new(|| "2026-01-01T00:01:00Z".parse().unwrap());
        cell(&read(&version)[0], &object, &clock)
    }

    #[test]
    fn columns_end_before_a_path_that_cannot_be_read() {
        let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
        let version =
            json!({"additionalPrinterColumns": [column("a", ".spec.a"), column("b", ".spec.l["), column("c", ".x")]});
        assert_eq!(read(&version).iter().map(|column| &*column.name).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn cells_take_the_type_of_their_column() {
        let cases = [
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.f", json!(2)),
            ("integer", ".spec.s", Value::Null),
            ("string", ".spec.port", json!("80")),
            ("string", ".spec.list", json!("[1,2]")),
            ("string", ".spec.list[*]", json!("1")),
            ("string", ".spec.list[-1]", json!("2")),
            ("string", ".spec.list[-1:]", json!("2")),
            ("string", ".spec.null", json!("<no value>")),
            ("integer", ".spec.null", Value::Null),
            ("date", ".spec.n", Value::Null),
            ("string", r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            ("string", ".spec.a\\.b", json!("dotted")),
            ("string", ".spec['a.b']", json!("dotted")),
            ("string", ".spec.none.at.all", Value::Null),
            ("date", ".status.at", json!("60s")),
            ("date", ".spec.s", json!("<invalid>")),
            ("date", ".spec.empty", json!("<unknown>")),
            ("string", ".spec.large", json!("1.234567895e+08")),
        ];
        for (ty, path, expected) in cases {
            assert_eq!(cell_of(ty, path), expected, "{ty} {path}");
        }
    }
}
