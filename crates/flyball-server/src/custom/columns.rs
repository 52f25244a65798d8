//! Printer columns of CRDs, and their cells for an object.

use super::json_path::{Budget, JsonPath};
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

/// The description of the default column of a CRD without columns.
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

/// Number of columns from which the computation of a row is offloaded.
const MANY_COLUMNS: usize = 20;

/// Characters of a cell that cost as much as a visited value.
const CHARS_PER_VISIT: usize = 16;

/// Returns true if a row of these columns may be a long computation.
pub(crate) fn are_slow(columns: &[Column]) -> bool {
    columns.len() >= MANY_COLUMNS || columns.iter().any(|column| column.parsed.descends())
}

/// Creates the cells of an object. Cells beyond the budget of a row are null, as are those whose path finds no value.
pub(crate) fn cells(columns: &[Column], object: &Object, clock: &Clock) -> impl Iterator<Item = Value> {
    let mut budget = Budget::of_row();
    columns.iter().map(move |column| cell(column, object, clock, &mut budget))
}

fn cell(column: &Column, object: &Object, clock: &Clock, budget: &mut Budget) -> Value {
    let Some(value) = column.parsed.first(object.as_value(), budget) else { return Value::Null };
    match (&*column.ty, value) {
        ("string", value) => {
            let text = text(value);
            // Many columns can repeat a long text.
            budget.spend(text.len() / CHARS_PER_VISIT).map_or(Value::Null, |()| text.into())
        }
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
        cells(&read(&version), &object, &clock).next().unwrap()
    }

    #[test]
    fn columns_of_a_row_share_a_budget() {
        let items: Vec<Value> = (0..900).map(|n| json!({"b": [{"c": n}, {"c": n}]})).collect();
        let object = Object::try_from(json!({"spec": {"a": items, "text": "x".repeat(100_000)}})).unwrap();
        let clock = Clock::new(|| "2026-01-01T00:00:00Z".parse().unwrap());
        let set = |path: &str, count: usize| {
            let column = json!({"name": "X", "type": "string", "jsonPath": path});
            let columns = read(&json!({"additionalPrinterColumns": vec![column; count]}));
            let cells: Vec<Value> = cells(&columns, &object, &clock).collect();
            let set = cells.iter().take_while(|cell| !cell.is_null()).count();
            assert!(cells.len() == count && cells[set..].iter().all(Value::is_null));
            set
        };
        // Each column visits some 47,000 values.
        assert_eq!(set(".spec..*..*", 1), 1);
        assert!((2..20).contains(&set(".spec..*..*", 20_000)));
        assert_eq!(set(".spec.text", 20), 20);
        assert!((20..40).contains(&set(".spec.text", 20_000)));
        assert_eq!(set(".spec.a[0].b[0].c", 700), 700);
    }

    #[test]
    fn rows_of_many_columns_or_descendants_are_slow() {
        let slow = |path: &str, count: usize| {
            let column = json!({"name": "X", "type": "string", "jsonPath": path});
            are_slow(&read(&json!({"additionalPrinterColumns": vec![column; count]})))
        };
        assert!(!slow(".spec.a", 10) && slow(".spec.a", 20) && slow(".spec..a", 1));
        assert!(!slow("", 0));
    }

    #[test]
    fn columns_from_an_invalid_path_on_are_omitted() {
        let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
        let version =
            json!({"additionalPrinterColumns": [column("a", ".spec.a"), column("b", ".spec.l["), column("c", ".x")]});
        assert_eq!(read(&version).iter().map(|column| &*column.name).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn cells_convert_to_the_type_of_their_column() {
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
