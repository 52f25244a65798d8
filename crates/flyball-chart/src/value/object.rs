//! Values with fields and methods: values from Helm and sprig that are neither strings, numbers, lists nor maps.

mod moment;
mod version;

use super::{IntKind, Type, Value};
use crate::dates::{Moment, month_name, weekday_name};
use crate::semver::Version;
use flyball_core::time::format_duration;

/// A struct, or a named type.
pub(crate) enum Object {
    Record(Record),
    Moment(Moment),
    /// `time.Duration` in nanoseconds.
    Duration(i64),
    Month(u8),
    Weekday(u8),
    Version(Version),
}

/// A struct: fields in order, and its string form.
pub(crate) struct Record {
    pub(crate) type_name: &'static str,
    pub(crate) is_pointer: bool,
    /// Number of the first fields that belong to an embedded struct.
    pub(crate) embedded: usize,
    pub(crate) fields: Vec<Field>,
    /// Result of its `String` method.
    pub(crate) string: Option<String>,
}

/// A field of a struct.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// Its name in JSON.
    pub(crate) json: &'static str,
    pub(crate) omit_empty: bool,
    pub(crate) value: Value,
}

impl Field {
    /// A field with the same name in JSON.
    pub(crate) fn plain(name: &'static str, value: Value) -> Field {
        Field { name, json: name, omit_empty: false, value }
    }
}

impl Record {
    /// Returns the same struct with all strings in its fields marked as data.
    pub(crate) fn to_data(&self) -> Record {
        let field = |field: &Field| Field { value: field.value.to_data(), ..*field };
        Record { fields: self.fields.iter().map(field).collect(), string: self.string.clone(), ..*self }
    }
}

/// The body of a method.
pub(crate) type MethodBody = fn(&Object, &[Value]) -> Result<Value, String>;

/// A method with its parameters.
pub(crate) struct Method {
    pub(crate) params: &'static [Type],
    pub(crate) call: MethodBody,
}

impl Object {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Object::Record(record) => record.type_name,
            Object::Moment(_) => "time.Time",
            Object::Duration(_) => "time.Duration",
            Object::Month(_) => "time.Month",
            Object::Weekday(_) => "time.Weekday",
            Object::Version(_) => "*semver.Version",
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Object::Record(record) if record.is_pointer => "ptr",
            Object::Record(_) | Object::Moment(_) => "struct",
            Object::Duration(_) => "int64",
            Object::Month(_) | Object::Weekday(_) => "int",
            Object::Version(_) => "ptr",
        }
    }

    /// Returns true if its string form may contain the string that it was parsed from.
    pub(crate) fn is_made_of_texts(&self) -> bool {
        matches!(self, Object::Moment(_) | Object::Version(_))
    }

    pub(crate) fn truth(&self) -> bool {
        match self {
            Object::Duration(nanos) => *nanos != 0,
            Object::Month(number) | Object::Weekday(number) => *number != 0,
            _ => true,
        }
    }

    /// Returns the result of its `String` method, if it has one.
    pub(crate) fn string(&self) -> Option<String> {
        match self {
            Object::Record(record) => record.string.clone(),
            Object::Moment(moment) => Some(moment.to_string()),
            Object::Duration(nanos) => Some(format_duration(*nanos)),
            Object::Month(number) => Some(month_name(*number).to_owned()),
            Object::Weekday(number) => Some(weekday_name(*number).to_owned()),
            Object::Version(version) => Some(version.to_string()),
        }
    }

    /// Returns its number, if its underlying type is numeric.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Object::Duration(nanos) => Some(*nanos),
            Object::Month(number) | Object::Weekday(number) => Some(i64::from(*number)),
            _ => None,
        }
    }

    pub(crate) fn equals(&self, other: &Object) -> bool {
        match (self, other) {
            (Object::Moment(a), Object::Moment(b)) => a == b,
            (Object::Record(a), Object::Record(b)) => {
                a.type_name == b.type_name
                    && a.fields.iter().zip(&b.fields).all(|(a, b)| a.name == b.name && a.value.deep_equal(&b.value))
            }
            (Object::Version(a), Object::Version(b)) => a == b,
            _ => self.type_name() == other.type_name() && self.as_int().is_some() && self.as_int() == other.as_int(),
        }
    }

    /// Returns the fields of a struct.
    pub(crate) fn fields(&self) -> &[Field] {
        match self {
            Object::Record(record) => &record.fields,
            _ => &[],
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<Value> {
        self.fields().iter().find(|field| field.name == name).map(|field| field.value.clone())
    }

    pub(crate) fn method(&self, name: &str) -> Option<Method> {
        let simple = |call: MethodBody| Some(Method { params: &[], call });
        match (self, name) {
            (_, "String") if self.string().is_some() => {
                simple(|object, _| Ok(Value::str(object.string().unwrap_or_default())))
            }
            (Object::Record(record), "GitVersion") if record.type_name.ends_with(".KubeVersion") => {
                simple(|object, _| Ok(object.field("Version").unwrap_or(Value::Nil)))
            }
            (Object::Moment(_), name) => moment::method(name),
            (Object::Version(_), name) => version::method(name),
            (Object::Duration(_), "Seconds") => simple(|object, _| Ok(seconds(object, 1e9))),
            (Object::Duration(_), "Minutes") => simple(|object, _| Ok(seconds(object, 60e9))),
            (Object::Duration(_), "Hours") => simple(|object, _| Ok(seconds(object, 3600e9))),
            (Object::Duration(_), "Nanoseconds") => simple(|object, _| Ok(Value::int64(object.as_int().unwrap_or(0)))),
            (Object::Duration(_), "Milliseconds") => {
                simple(|object, _| Ok(Value::int64(object.as_int().unwrap_or(0) / 1_000_000)))
            }
            _ => None,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
fn seconds(object: &Object, unit: f64) -> Value {
    Value::Float(object.as_int().unwrap_or(0) as f64 / unit)
}

/// Returns a number as Go's `uint64`.
pub(crate) fn uint64(number: u64) -> Value {
    Value::Int(IntKind::Uint64, i64::from_ne_bytes(number.to_ne_bytes()))
}

/// Returns the date of a value, else Go's zero time.
pub(crate) fn moment(value: &Value) -> Moment {
    match value {
        Value::Object(object) => match object.as_ref() {
            Object::Moment(moment) => moment.clone(),
            _ => Moment::zero(),
        },
        _ => Moment::zero(),
    }
}
