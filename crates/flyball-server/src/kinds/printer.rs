//! Table printers: rows, columns, and accessors of objects.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>.

use flyball_core::{Clock, Object, time};
use serde_json::{Map, Value};

/// A column of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading {
    pub(crate) name: &'static str,
    pub(crate) ty: &'static str,
    pub(crate) format: &'static str,
    /// Priority 0 is always printed, others only in wide output.
    pub(crate) priority: i64,
    pub(crate) description: &'static str,
}

/// The description of the column of names.
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request \
                    the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration \
                    definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// The description of the column of ages.
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in \
                       happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in \
                       UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/\
                       sig-architecture/api-conventions.md#metadata";

impl Heading {
    pub(crate) const NAME: Self = Self { format: "name", ..Self::text("Name", NAME) };
    pub(super) const AGE: Self = Self::text("Age", CREATED);
    const CREATED: Self = Self { ty: "date", ..Self::text("Created At", CREATED) };

    pub(super) const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, ty: "string", format: "", priority: 0, description }
    }

    pub(super) const fn number(name: &'static str, description: &'static str) -> Self {
        Self { ty: "integer", ..Self::text(name, description) }
    }

    pub(super) const fn flag(name: &'static str, description: &'static str) -> Self {
        Self { ty: "boolean", ..Self::text(name, description) }
    }

    /// Restricts the column to wide output.
    pub(super) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Value>,
    /// The conditions of the row.
    pub(crate) conditions: Option<Value>,
}

impl<const N: usize> From<[Value; N]> for Row {
    fn from(cells: [Value; N]) -> Self {
        Self { cells: cells.into(), conditions: None }
    }
}

/// Prints an object as a row.
pub(crate) type Printer = fn(&View<'_>) -> Row;

/// The columns of kinds without a printer.
pub(super) const PLAIN: &[Heading] = &[Heading::NAME, Heading::CREATED];

/// Prints the row of a kind without a printer.
pub(super) fn plain(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("metadata.creationTimestamp").into()])
}

/// The columns of [`named`].
pub(super) const NAMED: &[Heading] = &[Heading::NAME, Heading::AGE];

/// Prints the name and the age of an object.
pub(super) fn named(view: &View<'_>) -> Row {
    Row::from([view.name(), view.age()])
}

/// An object for printers; absent fields are returned as empty.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) object: &'a Object,
    pub(crate) clock: &'a Clock,
}

static NULL: Value = Value::Null;

/// Returns the value at a path with dots.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').try_fold(value, |value, step| value.get(step)).unwrap_or(&NULL)
}

/// Returns the items of a list.
pub(super) fn list<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// Returns a string, empty if there is none.
pub(super) fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    at(value, path).as_str().unwrap_or_default()
}

/// Returns a number, 0 if there is none.
pub(super) fn int(value: &Value, path: &str) -> i64 {
    at(value, path).as_i64().unwrap_or_default()
}

impl<'a> View<'a> {
    pub(super) fn at(&self, path: &str) -> &'a Value {
        at(self.object.as_value(), path)
    }

    pub(super) fn name(&self) -> Value {
        self.object.name().into()
    }

    pub(super) fn text(&self, path: &str) -> &'a str {
        self.at(path).as_str().unwrap_or_default()
    }

    /// Returns a string, or another one if there is none.
    pub(super) fn text_or(&self, path: &str, none: &str) -> Value {
        let text = self.text(path);
        if text.is_empty() { none.into() } else { text.into() }
    }

    pub(super) fn int(&self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or_default()
    }

    pub(super) fn flag(&self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or_default()
    }

    pub(super) fn list(&self, path: &str) -> &'a [Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    /// Formats the age of a time.
    pub(super) fn since(&self, time: &str) -> String {
        match time::parse_rfc3339(time) {
            Some(time) => time::human_duration(self.clock.now().duration_since(time)),
            None => "<unknown>".into(),
        }
    }

    pub(super) fn age(&self) -> Value {
        self.since(self.text("metadata.creationTimestamp")).into()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.object.deletion_timestamp().is_some()
    }

    /// Formats the labels of a map.
    pub(super) fn labels(&self, path: &str) -> Value {
        match self.at(path).as_object().filter(|labels| !labels.is_empty()) {
            Some(labels) => pairs(labels).join(",").into(),
            None => NONE.into(),
        }
    }

    /// Formats a label selector.
    pub(super) fn selector(&self, path: &str) -> Value {
        let text = selector(self.at(path));
        if text.is_empty() { NONE.into() } else { text.into() }
    }

    /// Formats the names of containers and their images.
    pub(super) fn containers(&self, path: &str) -> [Value; 2] {
        ["name", "image"].map(|field| {
            let texts: Vec<&str> = self.list(path).iter().map(|container| text(container, field)).collect();
            texts.join(",").into()
        })
    }

    /// Returns true if a condition is true.
    pub(super) fn is_true(&self, condition: &str) -> bool {
        let found = self.list("status.conditions").iter().find(|known| text(known, "type") == condition);
        found.is_some_and(|condition| text(condition, "status") == "True")
    }
}

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
pub(super) const UNKNOWN: &str = "<unknown>";

fn pairs(labels: &Map<String, Value>) -> Vec<String> {
    let mut pairs: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.sort();
    pairs
}

/// Formats a label selector in the syntax of queries.
pub(super) fn selector(selector: &Value) -> String {
    let mut requirements: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        requirements.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for requirement in list(selector, "matchExpressions") {
        let key = text(requirement, "key");
        let mut values: Vec<&str> = list(requirement, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let written = match text(requirement, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        requirements.push((key, written));
    }
    requirements.sort_by_key(|(key, _)| *key);
    requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// Returns the name of an object, with a marker if an annotation makes it the default.
pub(super) fn marked(view: &View<'_>, annotation: &str) -> Value {
    match view.object.annotation(annotation) {
        Some("true") => format!("{} (default)", view.object.name()).into(),
        _ => view.name(),
    }
}

/// Formats the first few strings, and the number of the others.
pub(super) fn first(texts: &[String], shown: usize) -> String {
    let head = texts[..texts.len().min(shown)].join(",");
    if texts.len() > shown { format!("{head} + {} more...", texts.len() - shown) } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_printed_in_order_of_keys() {
        let check = |value: Value, text: &str| assert_eq!(selector(&value), text);
        let expressions =
            json!([{"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]);
        check(json!({"matchLabels": {"b": "1"}, "matchExpressions": expressions}), "a in (x,y),b=1,!c");
        check(Value::Null, "");
    }

    #[test]
    fn long_lists_are_abbreviated() {
        let texts: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!((first(&texts, 2).as_str(), first(&texts, 3).as_str()), ("a,b + 1 more...", "a,b,c"));
    }
}
