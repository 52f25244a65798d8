//! YAML, JSON, TOML, and encodings of bytes as text.

use super::{ANY, STR, Table, bytes, cost, json, text, toml};
use crate::context::Call;
use crate::text::Text;
use crate::value::object::Object;
use crate::value::{Map, MapKind, Value};
use crate::yaml::{self, Data, Origin, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

pub(super) fn add(table: &mut Table) {
    table.add("toYaml", cost::escapes, &[ANY], |call, args| indented(call, to_yaml(&args[0])));
    table.add("mustToYaml", cost::escapes, &[ANY], |call, args| indented(call, yaml_text(&args[0])?));
    table.add("toYamlPretty", cost::letters, &[ANY], |call, args| match data(&args[0], false) {
        Ok(data) => indented(call, Value::str(yaml::write(&data, Version::Three).trim_end_matches('\n'))),
        Err(_) => Ok(Value::str("")),
    });
    table.add("fromYaml", cost::letters, &[STR], |call, args| {
        take_reading(call, args)?;
        Ok(match yaml::read_map(bytes(&args[0])) {
            Ok(map) => Value::from(&Data::Map(map).into_values()),
            Err(error) => with_error(error.to_string()),
        })
    });
    table.add("fromYamlArray", cost::letters, &[STR], |call, args| {
        take_reading(call, args)?;
        let list = yaml::read(bytes(&args[0])).and_then(|data| match data {
            Data::Null => Ok(Vec::new()),
            Data::List(items) => Ok(items),
            other => Err(other.mismatch("Go value", "[]interface {}")),
        });
        Ok(match list {
            Ok(items) => Value::from(&Data::List(items).into_values()),
            Err(error) => Value::list(vec![Value::str(error.to_string())]),
        })
    });
    table.add("toJson", cost::escapes, &[ANY], |_, args| {
        Ok(Value::str(json::write(&args[0], true).unwrap_or_default()))
    });
    table.add("mustToJson", cost::escapes, &[ANY], |_, args| json::write(&args[0], true).map(Value::str));
    table.add("toPrettyJson", cost::escapes, &[ANY], |call, args| {
        indented(call, Value::str(json::write(&args[0], true).map(|text| json::indent(&text)).unwrap_or_default()))
    });
    table.add("mustToPrettyJson", cost::escapes, &[ANY], |call, args| {
        indented(call, Value::str(json::indent(&json::write(&args[0], true)?)))
    });
    table.add("toRawJson", cost::escapes, &[ANY], |_, args| json::write(&args[0], false).map(Value::str));
    table.add("mustToRawJson", cost::escapes, &[ANY], |_, args| json::write(&args[0], false).map(Value::str));
    table.add("mustFromJson", cost::letters, &[STR], |call, args| {
        take_reading(call, args)?;
        json::read(bytes(&args[0]))
    });
    table.add("fromJson", cost::letters, &[STR], |call, args| {
        take_reading(call, args)?;
        Ok(match json::read(bytes(&args[0])) {
            Ok(value @ Value::Map(_)) => value,
            Ok(Value::Nil) => Value::Map(Map::empty(MapKind::Any)),
            Ok(other) => with_error(mismatch(&other, "map[string]interface {}")),
            Err(message) => with_error(message),
        })
    });
    table.add("fromJsonArray", cost::letters, &[STR], |call, args| {
        take_reading(call, args)?;
        Ok(match json::read(bytes(&args[0])) {
            Ok(value @ Value::List(_)) => value,
            Ok(Value::Nil) => Value::list(Vec::new()),
            Ok(other) => Value::list(vec![Value::str(mismatch(&other, "[]interface {}"))]),
            Err(message) => Value::list(vec![Value::str(message)]),
        })
    });
    table.add("toToml", cost::escapes, &[ANY], |_, args| {
        Ok(Value::str(toml::write(&args[0]).unwrap_or_else(|message| message)))
    });
    table.add("mustToToml", cost::escapes, &[ANY], |_, args| toml::write(&args[0]).map(Value::str));
    table.add("fromToml", cost::letters, &[STR], |call, args| {
        take_reading(call, args)?;
        Ok(toml::read(&text(&args[0])).unwrap_or_else(with_error))
    });
    table.add("b64enc", cost::letters, &[STR], |_, args| Ok(Value::str(json::base64(bytes(&args[0])))));
    table.add("b64dec", cost::letters, &[STR], |_, args| {
        Ok(from_base64(bytes(&args[0])).map_or_else(Value::str, Value::str))
    });
    table.add("b32enc", cost::letters, &[STR], |_, args| Ok(Value::str(base32(bytes(&args[0])))));
    table.add("b32dec", cost::letters, &[STR], |_, args| {
        Ok(from_base32(bytes(&args[0])).map_or_else(Value::str, Value::str))
    });
}

/// Charges a string with indented lines, which may be much longer than its source.
fn indented(call: &Call<'_>, text: Value) -> Result<Value, String> {
    call.context.charge(bytes(&text).len() / 4, 0)?;
    Ok(text)
}

/// Charges parsing a string in which every other byte may become a value.
fn take_reading(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    const BYTES_PER_BYTE: usize = 24;
    let length = bytes(&args[0]).len();
    call.context.charge(length, length.saturating_mul(BYTES_PER_BYTE))
}

fn with_error(message: String) -> Value {
    Value::map([("Error".to_owned(), Value::str(message))].into_iter().collect())
}

fn mismatch(value: &Value, expected: &str) -> String {
    let is = match value {
        Value::Bool(_) => "bool",
        Value::Float(_) => "number",
        Value::Str(_) => "string",
        Value::List(_) => "array",
        _ => "object",
    };
    format!("json: cannot unmarshal {is} into Go value of type {expected}")
}

/// `toYaml`: values that cannot be encoded become an empty string.
pub(crate) fn to_yaml(value: &Value) -> Value {
    yaml_text(value).unwrap_or(Value::str(""))
}

fn yaml_text(value: &Value) -> Result<Value, String> {
    let data = data(value, true)?;
    data.check_readable()?;
    let origin = if value.is_data() { origin(value) } else { Origin::Chart };
    let (text, marks) = yaml::write_marked(&data, &origin, Version::Two);
    let text = Text::new(text.as_bytes(), marks);
    let end = text.strip_suffix(b"\n").map_or(text.len(), <[u8]>::len);
    Ok(Value::Str(text.part(0..end)))
}

/// Parts of a value that are untrusted data.
fn origin(value: &Value) -> Origin {
    match value {
        Value::List(list) => Origin::List(list.items.iter().map(origin).collect()),
        Value::Map(map) => {
            let entries = map.entries.borrow();
            Origin::Map(entries.iter().map(|(key, value)| (key.to_string(), (key.is_data(), origin(value)))).collect())
        }
        other if other.is_data() => Origin::Data,
        _ => Origin::Chart,
    }
}

/// Converts a value to plain data. As with a round trip through JSON, whole floats become integers, and structs have
/// their JSON names.
fn data(value: &Value, by_json: bool) -> Result<Data, String> {
    const DEPTH: usize = 1_000;
    if value.is_deeper_than(DEPTH) {
        return Err(format!("the value is nested deeper than {DEPTH}"));
    }
    data_within(value, by_json)
}

/// Converts a value within the nesting limit to plain data.
fn data_within(value: &Value, by_json: bool) -> Result<Data, String> {
    Ok(match value {
        Value::Nil => Data::Null,
        Value::Bool(is) => Data::Bool(*is),
        Value::Int(..) => match crate::format::display(value).parse() {
            Ok(whole) => Data::Int(whole),
            Err(_) => Data::Float(super::numbers::to_float(value)),
        },
        Value::Float(number) if by_json => {
            let text = json::float(*number)?;
            match (text.parse::<i64>(), text.parse::<u64>()) {
                (Ok(whole), _) => Data::Int(whole),
                (_, Ok(whole)) => Data::Uint(whole),
                _ => Data::Float(*number),
            }
        }
        Value::Float(number) => Data::Float(*number),
        Value::Str(bytes) if by_json => Data::Str(yaml::folded(&String::from_utf8_lossy(bytes)).into_owned()),
        Value::Str(bytes) => Data::Str(String::from_utf8_lossy(bytes).into_owned()),
        Value::Bytes(bytes) if by_json => Data::Str(json::base64(bytes)),
        Value::Bytes(_) => Data::List(
            value
                .items()
                .unwrap_or_default()
                .iter()
                .map(|item| data_within(item, by_json))
                .collect::<Result<_, _>>()?,
        ),
        Value::List(list) if list.is_nil && by_json => Data::Null,
        Value::List(list) => {
            Data::List(list.items.iter().map(|item| data_within(item, by_json)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let entries = map.entries.borrow();
            Data::Map(
                entries
                    .iter()
                    .map(|(k, v)| Ok((k.to_string(), data_within(v, by_json)?)))
                    .collect::<Result<_, String>>()?,
            )
        }
        Value::Object(object) => match object.as_ref() {
            Object::Record(record) => {
                let fields = record.fields.iter().filter(|field| !by_json || !field.omit_empty || field.value.truth());
                let named = fields.map(|field| {
                    let name = if by_json { field.json.to_owned() } else { field.name.to_lowercase() };
                    Ok((name, data_within(&field.value, by_json)?))
                });
                Data::Map(named.collect::<Result<_, String>>()?)
            }
            Object::Moment(moment) => Data::Str(moment.rfc3339_nano()),
            Object::Version(version) => Data::Str(version.to_string()),
            other => Data::Int(other.as_int().unwrap_or(0)),
        },
    })
}

fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

fn without_line_breaks(text: &[u8]) -> Cow<'_, [u8]> {
    match text.iter().any(|byte| is_line_break(*byte)) {
        true => text.iter().copied().filter(|byte| !is_line_break(*byte)).collect(),
        false => text.into(),
    }
}

/// Returns the bits of the characters, or the position of an invalid character.
pub(crate) fn from_base64(text: &[u8]) -> Result<Vec<u8>, String> {
    let letters = without_line_breaks(text);
    STANDARD
        .decode(&letters)
        .or_else(|_| {
            // Go ignores trailing bits.
            let lenient = base64::engine::GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
            base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, lenient).decode(&letters)
        })
        .map_err(|_| {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
            let body = letters.iter().take_while(|byte| is_letter(**byte)).count();
            let padding = letters[body..].iter().take_while(|byte| **byte == b'=').count();
            // Returns the position of the first invalid character, or of missing padding.
            let position = match (body % 4, padding) {
                (0 | 1, _) if body < letters.len() => body,
                (2 | 3, 0) if body < letters.len() => body,
                (2, 1) if body + 1 < letters.len() => body + 1,
                (2, 2..) => body + 2,
                (3, 1..) => body + 1,
                (rest, _) => letters.len() - if padding > 0 { 0 } else { rest },
            };
            let mut letters_at = text.iter().enumerate().filter(|(_, byte)| !is_line_break(**byte));
            let position = letters_at.nth(position).map_or(text.len(), |(at, _)| at);
            format!("illegal base64 data at input byte {position}")
        })
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(5) {
        let mut block = [0; 5];
        block[..chunk.len()].copy_from_slice(chunk);
        let bits = block.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        let letters = (chunk.len() * 8).div_ceil(5);
        for at in 0..8 {
            let index = usize::try_from(bits >> (35 - 5 * at) & 31).unwrap_or(0);
            out.push(if at < letters { char::from(BASE32[index]) } else { '=' });
        }
    }
    out
}

fn from_base32(text: &[u8]) -> Result<Vec<u8>, String> {
    let letters = without_line_breaks(text);
    let error = |at: usize| format!("illegal base32 data at input byte {at}");
    let mut out = Vec::new();
    for (number, chunk) in letters.chunks(8).enumerate() {
        let body = chunk.iter().take_while(|byte| **byte != b'=').count();
        let mut bits = 0u64;
        for (at, byte) in chunk[..body].iter().enumerate() {
            let Some(value) = BASE32.iter().position(|letter| letter == byte) else {
                return Err(error(number * 8 + at));
            };
            bits |= u64::try_from(value).unwrap_or(0) << (35 - 5 * at);
        }
        let is_whole = chunk.len() == 8 && chunk[body..].iter().all(|byte| *byte == b'=');
        if !is_whole || !matches!(body, 2 | 4 | 5 | 7 | 8) {
            return Err(error(number * 8 + body.min(chunk.len())));
        }
        out.extend(&bits.to_be_bytes()[3..][..body * 5 / 8]);
    }
    Ok(out)
}
