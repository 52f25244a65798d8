//! The document of OpenAPI version 2 as protobuf, which is the only encoding that kubectl accepts.
//!
//! A message of gnostic's `openapi.v2` has a field for each key of the JSON, so a table of keys, numbers and types
//! describes the encoding. See <https://github.com/google/gnostic/blob/main/openapiv2/OpenAPIv2.proto>.

use serde_json::Value;

/// The media type that clients request.
pub(super) const REQUESTED_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The media type of the response, as in kube-apiserver.
pub(super) const RETURNED_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A message: its fields, and the number of the field for extensions (keys that begin with `x-`).
struct Message {
    fields: &'static [(&'static str, u32, Form)],
    extensions: u32,
}

/// The protobuf form of a value of JSON.
enum Form {
    Text,
    Flag,
    Integer,
    Double,
    /// Any value, as YAML.
    Any,
    Of(&'static Message),
    /// Writes each item of a list, or a single value, as a separate field.
    Each(&'static Form),
    /// A message of one field.
    Within(u32, &'static Form),
    /// An object, whose entries are messages of name and value in a field of this number.
    Entries(u32, &'static Form),
    /// Additional properties: a schema, or just whether there may be some.
    Additional,
    /// A parameter, in the message of its location.
    Parameter,
}

use Form::{Additional, Any, Double, Each, Entries, Flag, Integer, Of, Parameter, Text, Within};

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, Of(&INFO)),
        ("paths", 8, Entries(2, &Of(&PATH))),
        ("definitions", 9, Entries(1, &Of(&SCHEMA))),
    ],
    extensions: 16,
};

static INFO: Message = Message { fields: &[("title", 1, Text), ("version", 2, Text)], extensions: 7 };

static PATH: Message = Message {
    fields: &[
        ("get", 2, Of(&OPERATION)),
        ("put", 3, Of(&OPERATION)),
        ("post", 4, Of(&OPERATION)),
        ("delete", 5, Of(&OPERATION)),
        ("patch", 8, Of(&OPERATION)),
        ("parameters", 9, Each(&Within(1, &Parameter))),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Each(&Text)),
        ("consumes", 7, Each(&Text)),
        ("parameters", 8, Each(&Within(1, &Parameter))),
        ("responses", 9, Entries(1, &Within(1, &Of(&RESPONSE)))),
    ],
    extensions: 13,
};

static RESPONSE: Message =
    Message { fields: &[("description", 1, Text), ("schema", 2, Within(1, &Of(&SCHEMA)))], extensions: 5 };

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Flag),
        ("schema", 5, Of(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("uniqueItems", 20, Flag),
    ],
    extensions: 23,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("uniqueItems", 19, Flag),
    ],
    extensions: 22,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Flag),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Flag),
        ("maxLength", 11, Integer),
        ("minLength", 12, Integer),
        ("pattern", 13, Text),
        ("maxItems", 14, Integer),
        ("minItems", 15, Integer),
        ("uniqueItems", 16, Flag),
        ("maxProperties", 17, Integer),
        ("minProperties", 18, Integer),
        ("required", 19, Each(&Text)),
        ("enum", 20, Each(&Any)),
        ("additionalProperties", 21, Additional),
        ("type", 22, Within(1, &Each(&Text))),
        ("items", 23, Within(1, &Of(&SCHEMA))),
        ("allOf", 24, Each(&Of(&SCHEMA))),
        ("properties", 25, Entries(1, &Of(&SCHEMA))),
        ("example", 30, Any),
    ],
    extensions: 31,
};

/// Writes a document.
pub(super) fn document(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    message(&DOCUMENT, value, &mut out);
    out
}

fn message(form: &Message, value: &Value, out: &mut Vec<u8>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        if let Some((_, number, form)) = form.fields.iter().find(|(name, ..)| name == key) {
            field(*number, form, value, out);
        } else if key.starts_with("x-") {
            entry(form.extensions, key, &Any, value, out);
        }
    }
}

/// Writes a field; one whose value has the wrong type is omitted.
fn field(number: u32, form: &Form, value: &Value, out: &mut Vec<u8>) {
    match form {
        Text => {
            if let Some(text) = value.as_str() {
                bytes(number, text.as_bytes(), out);
            }
        }
        Flag => tagged(number, 0, u64::from(value == &Value::Bool(true)), out),
        Integer => {
            if let Some(integer) = value.as_i64() {
                tagged(number, 0, integer.cast_unsigned(), out);
            }
        }
        Double => {
            if let Some(double) = value.as_f64() {
                varint(u64::from(number) << 3 | 1, out);
                out.extend(double.to_le_bytes());
            }
        }
        Any => nested(number, out, |out| bytes(2, format!("{value}\n").as_bytes(), out)),
        Of(form) => nested(number, out, |out| message(form, value, out)),
        Each(form) => match value.as_array() {
            Some(items) => items.iter().for_each(|item| field(number, form, item, out)),
            None => field(number, form, value, out),
        },
        Within(inner, form) => nested(number, out, |out| field(*inner, form, value, out)),
        Entries(inner, form) => nested(number, out, |out| {
            value.as_object().into_iter().flatten().for_each(|(key, value)| entry(*inner, key, form, value, out));
        }),
        Additional => nested(number, out, |out| match value {
            Value::Bool(_) => field(2, &Flag, value, out),
            schema => field(1, &Of(&SCHEMA), schema, out),
        }),
        Parameter => nested(number, out, |out| match value.get("in").and_then(Value::as_str) {
            Some("body") => field(1, &Of(&BODY_PARAMETER), value, out),
            Some("path") => nested(2, out, |out| field(4, &Of(&PATH_PARAMETER), value, out)),
            _ => nested(2, out, |out| field(3, &Of(&QUERY_PARAMETER), value, out)),
        }),
    }
}

/// Writes a message of a name and a value.
fn entry(number: u32, name: &str, form: &Form, value: &Value, out: &mut Vec<u8>) {
    nested(number, out, |out| {
        bytes(1, name.as_bytes(), out);
        field(2, form, value, out);
    });
}

fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(number, &inner, out);
}

fn bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    tagged(number, 2, bytes.len() as u64, out);
    out.extend(bytes);
}

fn tagged(number: u32, wire: u64, value: u64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire, out);
    varint(value, out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schema_fields_are_encoded() {
        let mut out = Vec::new();
        message(
            &SCHEMA,
            &json!({"type": "object", "required": ["a"], "x-b": 1, "additionalProperties": true}),
            &mut out,
        );
        // additionalProperties: {boolean: true}; required: a; type: {value: object};
        // extension: {name: x-b, value: {yaml: 1}}
        let expected = [
            &[0xaa, 1, 2, 0x10, 1][..],
            &[0x9a, 1, 1, b'a'],
            b"\xb2\x01\x08\x0a\x06object",
            b"\xfa\x01\x0b\x0a\x03x-b\x12\x04\x12\x021\n",
        ];
        assert_eq!(out, expected.concat());
    }
}
