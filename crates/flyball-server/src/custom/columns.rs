//! The columns that a CRD declares, and the cells that they make of an object.

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
    steps: Vec<Step>,
}

/// A step of the JSON paths that columns are written in.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    /// Items whose field compares so with a value.
    Where(Vec<String>, String, Value),
}

/// What a CRD without columns shows besides the name, described as clients know it.
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in \
                   happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\n\
                   Populated by the system. Read-only. Null for lists. More info: \
                   https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Reads the columns of a version of a CRD.
pub(crate) fn read(version: &Value) -> Vec<Column> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": AGE})];
    let own = version["additionalPrinterColumns"].as_array().map_or(&[][..], Vec::as_slice);
    let columns = if own.is_empty() { age.iter() } else { own.iter() };
    columns
        .map(|column| Column {
            name: text(&column["name"]),
            ty: text(&column["type"]),
            format: text(&column["format"]),
            description: text(&column["description"]),
            priority: column["priority"].as_i64().unwrap_or(0),
            steps: parse(column["jsonPath"].as_str().unwrap_or_default()),
            path: text(&column["jsonPath"]),
        })
        .collect()
}

/// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`.
fn parse(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path.trim().trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner);
            let (token, after) = inner.split_at(end);
            rest = after.strip_prefix(']').unwrap_or(after);
            steps.extend(bracket(token.trim()));
        } else {
            let bare = rest.strip_prefix('.').unwrap_or(rest);
            let mut name = String::new();
            let mut chars = bare.char_indices();
            let mut end = bare.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
                    '.' | '[' => {
                        end = at;
                        break;
                    }
                    c => name.push(c),
                }
            }
            rest = &bare[end..];
            match name.as_str() {
                "" => {}
                "*" => steps.push(Step::Every),
                _ => steps.push(Step::Field(name)),
            }
        }
    }
    steps
}

/// Finds the bracket that ends a token, past those inside quotes.
fn closing(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ']') => return at,
            _ => {}
        }
    }
    text.len()
}

fn bracket(token: &str) -> Option<Step> {
    let unquoted = |text: &str| text.trim_matches(['\'', '"']).to_owned();
    if token == "*" {
        return Some(Step::Every);
    }
    if let Some(filter) = token.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let operator = ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|operator| filter.contains(operator))?;
        let (left, right) = filter.split_once(operator)?;
        let field = left.trim().trim_start_matches('@').trim_start_matches('.').split('.').map(str::to_owned).collect();
        let right = right.trim();
        let value = if right.starts_with(['"', '\'']) {
            Value::String(unquoted(right))
        } else {
            serde_json::from_str(right).unwrap_or_default()
        };
        return Some(Step::Where(field, operator.to_owned(), value));
    }
    if token.starts_with(['\'', '"']) {
        return Some(Step::Field(unquoted(token)));
    }
    token.parse().ok().map(Step::Index)
}

/// Follows a path; the first of several results counts.
fn follow<'v>(value: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => follow(fields.get(name)?, rest),
        (Step::Index(index), Value::Array(items)) => {
            let at = if *index < 0 { items.len().checked_sub(index.unsigned_abs() as usize)? } else { *index as usize };
            follow(items.get(at)?, rest)
        }
        (Step::Every, Value::Array(items)) => items.iter().find_map(|item| follow(item, rest)),
        (Step::Every, Value::Object(fields)) => fields.values().find_map(|value| follow(value, rest)),
        (Step::Where(field, operator, wanted), Value::Array(items)) => items
            .iter()
            .filter(|item| {
                let found = field.iter().try_fold(*item, |value, name| value.get(name));
                found.is_some_and(|found| compare(found, operator, wanted))
            })
            .find_map(|item| follow(item, rest)),
        _ => None,
    }
}

fn compare(found: &Value, operator: &str, wanted: &Value) -> bool {
    let order = match (found, wanted) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) if a == b => Some(std::cmp::Ordering::Equal),
        _ => None,
    };
    match operator {
        "==" => order.is_some_and(std::cmp::Ordering::is_eq),
        "!=" => order.is_none_or(std::cmp::Ordering::is_ne),
        "<" => order.is_some_and(std::cmp::Ordering::is_lt),
        "<=" => order.is_some_and(std::cmp::Ordering::is_le),
        ">" => order.is_some_and(std::cmp::Ordering::is_gt),
        _ => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

/// Makes the cell of a column.
pub(crate) fn cell(column: &Column, object: &Object, clock: &Clock) -> Value {
    let Some(value) = follow(object.as_value(), &column.steps).filter(|value| !value.is_null()) else {
        return Value::Null;
    };
    match (&*column.ty, value) {
        ("integer", Value::Number(n)) => {
            n.as_i64().or_else(|| n.as_f64().map(|n| n as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("integer" | "number" | "boolean", _) => Value::Null,
        ("date", Value::String(text)) => match time::parse_rfc3339(text) {
            Some(then) => time::human_duration(clock.now().duration_since(then)).into(),
            None => "<invalid>".into(),
        },
        ("date", _) => "<invalid>".into(),
        (_, Value::String(text)) => text.as_str().into(),
        (_, value) => value.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell_of(ty: &str, path: &str) -> Value {
        let object = Object::try_from(json!({
            "spec": {"n": 3, "f": 2.7, "s": "x", "port": 80, "list": [1, 2], "a.b": "dotted"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}], "at": "2026-01-01T00:00:00Z"},
        }))
        .unwrap();
        let version = json!({"additionalPrinterColumns": [{"name": "X", "type": ty, "jsonPath": path}]});
        let clock = Clock::new(|| "2026-01-01T00:01:00Z".parse().unwrap());
        cell(&read(&version)[0], &object, &clock)
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
            ("string", r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            ("string", ".spec.a\\.b", json!("dotted")),
            ("string", ".spec['a.b']", json!("dotted")),
            ("string", ".spec.none.at.all", Value::Null),
            ("date", ".status.at", json!("60s")),
            ("date", ".spec.s", json!("<invalid>")),
        ];
        for (ty, path, expected) in cases {
            assert_eq!(cell_of(ty, path), expected, "{ty} {path}");
        }
    }
}
