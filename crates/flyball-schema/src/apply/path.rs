//! Path elements of fields, as in managedFields.

use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// An element of a path: a step from a value to one of its children.
///
/// The order is that of structured-merge-diff, and defines the order of conflicts in a response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathElement {
    /// A field of a struct or a key of a map: `f:name`.
    Field(Box<str>),
    /// The item of a list whose key fields have these values: `k:{"name":"web"}`.
    Key(Box<[(Box<str>, Scalar)]>),
    /// The item of a set that equals this value: `v:"web"`.
    Value(Scalar),
    /// The item of a list at this index: `i:0`.
    Index(usize),
}

/// A value that can identify a list item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Scalar {
    Number(Number),
    Text(Box<str>),
    Bool(bool),
    /// A list or map as JSON, which occurs only in managedFields written by clients.
    Json(Box<str>),
    Null,
}

/// A JSON number that can be ordered and hashed.
#[derive(Clone, Debug)]
pub struct Number(serde_json::Number);

impl Number {
    fn float(&self) -> f64 {
        self.0.as_f64().unwrap_or_default()
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0.as_i64(), other.0.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => self.float().total_cmp(&other.float()),
        }
    }
}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.float().to_bits().hash(state);
    }
}

impl From<&Value> for Scalar {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => Self::Number(Number(n.clone())),
            Value::String(s) => Self::Text(s.as_str().into()),
            Value::Array(_) | Value::Object(_) => Self::Json(value.to_string().into()),
        }
    }
}

impl From<&Scalar> for Value {
    fn from(scalar: &Scalar) -> Self {
        match scalar {
            Scalar::Null => Self::Null,
            Scalar::Bool(b) => Self::Bool(*b),
            Scalar::Number(Number(n)) => Self::Number(n.clone()),
            Scalar::Text(s) => Self::String(s.to_string()),
            Scalar::Json(json) => serde_json::from_str(json).unwrap_or_default(),
        }
    }
}

impl PathElement {
    /// Creates the path element of a field.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Parses an element of managedFields; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_at_checked(2)?;
        match kind {
            "f:" => Some(Self::field(rest)),
            "i:" => rest.parse().ok().map(Self::Index),
            "v:" => serde_json::from_str::<Value>(rest).ok().map(|value| Self::Value(Scalar::from(&value))),
            "k:" => {
                let fields: Map<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Self::Key(fields.iter().map(|(name, value)| (name.as_str().into(), value.into())).collect()))
            }
            _ => None,
        }
    }

    /// Formats the element as in managedFields.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Index(index) => format!("i:{index}"),
            Self::Value(value) => format!("v:{}", Value::from(value)),
            Self::Key(fields) => {
                let fields: Map<String, Value> =
                    fields.iter().map(|(name, value)| (name.to_string(), value.into())).collect();
                format!("k:{}", Value::Object(fields))
            }
        }
    }
}

/// Formats the element like in conflicts: `.spec`, `[name="web"]`, `[="web"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Value(value) => write!(f, "[={}]", Value::from(value)),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}={}", Value::from(value))).collect();
                write!(f, "[{}]", fields.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_round_trip() {
        for text in ["f:spec", "f:a/b", "i:3", "v:\"x\"", "v:5", r#"k:{"containerPort":80,"protocol":"TCP"}"#] {
            assert_eq!(PathElement::parse(text).unwrap().encode(), text);
        }
        for bad in ["", "f", "x:1", "i:x", "k:[]", "v:"] {
            assert_eq!(PathElement::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn elements_print_as_conflicts_show_them() {
        let print = |text| PathElement::parse(text).unwrap().to_string();
        assert_eq!(print("f:spec"), ".spec");
        assert_eq!(print(r#"k:{"port":80,"protocol":"TCP"}"#), r#"[port=80,protocol="TCP"]"#);
        assert_eq!(print("v:\"x\""), "[=\"x\"]");
    }
}
