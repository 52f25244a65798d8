//! Conditions of objects, as of `kubectl wait --for`.

use serde_json::Value;
use std::str::FromStr;

/// A condition of an object: `condition=Ready`, `condition=Ready=False`, `jsonpath={.status.phase}=Running`, or
/// `jsonpath={.status.ip}` for any value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    path: Vec<Part>,
    /// `None` if any value satisfies it.
    expected: Option<String>,
}

/// A part of a JSONPath.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Field(String),
    Index(usize),
    All,
    /// Items with this text in a field.
    Filter(String, String),
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("condition", rest)) if !rest.is_empty() => {
                let (kind, status) = rest.split_once('=').unwrap_or((rest, "True"));
                let fields = ["status", "conditions"].map(|name| Part::Field(name.to_owned()));
                let item = [Part::Filter("type".to_owned(), kind.to_owned()), Part::Field("status".to_owned())];
                Ok(Self { path: fields.into_iter().chain(item).collect(), expected: Some(status.to_owned()) })
            }
            Some(("jsonpath", rest)) => Self::of_path(rest),
            _ => Err("expected condition=TYPE, condition=TYPE=STATUS, or jsonpath={.PATH}=VALUE".to_owned()),
        }
    }
}

impl Condition {
    fn of_path(text: &str) -> Result<Self, String> {
        let text = text.trim_matches('\'');
        let (path, expected) = match text.strip_prefix('{') {
            Some(rest) => {
                let (path, rest) = rest.split_once('}').ok_or("the JSONPath has no closing brace")?;
                let rest = rest.trim_start_matches('\'');
                match rest.strip_prefix('=') {
                    Some(expected) => (path, Some(expected)),
                    None if rest.is_empty() => (path, None),
                    None => return Err(format!("unexpected text after the JSONPath: {rest}")),
                }
            }
            None => text.split_once('=').map_or((text, None), |(path, expected)| (path, Some(expected))),
        };
        Ok(Self { path: parse_path(path)?, expected: expected.map(str::to_owned) })
    }

    /// Returns true if an object satisfies it.
    pub(crate) fn holds(&self, object: &Value) -> bool {
        let mut found = vec![object];
        for part in &self.path {
            found = found.into_iter().flat_map(|value| part.select(value)).collect();
        }
        let fits = |value: &&Value| match (&self.expected, value) {
            (_, Value::Null) => false,
            (None, _) => true,
            (Some(expected), Value::String(text)) => text == expected,
            (Some(expected), value) => value.to_string() == *expected,
        };
        !found.is_empty() && found.iter().all(fits)
    }
}

impl Part {
    fn select<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let items = || value.as_array().into_iter().flatten();
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => value.get(*index).into_iter().collect(),
            Self::All => items().collect(),
            Self::Filter(field, text) => items().filter(|item| item[field] == **text).collect(),
        }
    }
}

/// Parses a path of fields, indices, `[*]` and filters of one field.
fn parse_path(path: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut rest) = (Vec::new(), path.strip_prefix('$').unwrap_or(path));
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (inner, after) = inner.split_once(']').ok_or_else(|| format!("{path} has no closing bracket"))?;
            parts.push(parse_bracket(inner).ok_or_else(|| {
                format!("[{inner}] is not supported: use ['field'], [0], [*] or [?(@.field==\"text\")]")
            })?);
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('.').ok_or_else(|| format!("{path}: expected a dot before {rest:?}"))?;
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        if name.is_empty() {
            return Err(format!("{path}: a field has no name"));
        }
        parts.push(Part::Field(name.to_owned()));
        rest = after;
    }
    if parts.is_empty() { Err("the JSONPath is empty".to_owned()) } else { Ok(parts) }
}

fn parse_bracket(inner: &str) -> Option<Part> {
    let quoted = |text: &str| text.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"']).map(str::to_owned);
    if inner == "*" {
        return Some(Part::All);
    }
    if let Some(filter) = inner.strip_prefix("?(@.").and_then(|filter| filter.strip_suffix(')')) {
        let (field, text) = filter.split_once("==")?;
        return Some(Part::Filter(field.trim().to_owned(), quoted(text.trim())?));
    }
    quoted(inner).map(Part::Field).or_else(|| inner.parse().ok().map(Part::Index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(condition: &str) -> bool {
        let object = json!({"status": {"phase": "Running", "ready": 2, "a.b": true, "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Failed", "status": "False"}]}});
        condition.parse::<Condition>().unwrap().holds(&object)
    }

    #[test]
    fn conditions_are_those_of_kubectl() {
        for condition in [
            "condition=Ready",
            "condition=Failed=False",
            "jsonpath={.status.phase}=Running",
            "jsonpath='{.status.phase}'=Running",
            "jsonpath=.status.ready=2",
            "jsonpath={.status['a.b']}=true",
            "jsonpath={.status.phase}",
            "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True",
            "jsonpath={.status.conditions[0].status}=True",
        ] {
            assert!(holds(condition), "{condition}");
        }
        for condition in
            ["condition=Failed", "condition=Other", "jsonpath={.status.conditions[*].status}=True", "jsonpath={.spec}"]
        {
            assert!(!holds(condition), "{condition}");
        }
    }

    #[test]
    fn errors_name_the_unsupported_part() {
        for (condition, why) in [
            ("ready", "expected condition=TYPE"),
            ("jsonpath={.a", "no closing brace"),
            ("jsonpath={a}", "expected a dot"),
            ("jsonpath={.a[?(@.b>1)]}", "is not supported"),
            ("jsonpath={}", "empty"),
        ] {
            let error = condition.parse::<Condition>().unwrap_err();
            assert!(error.contains(why), "{condition}: {error}");
        }
    }
}
