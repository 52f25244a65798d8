//! Conversion of protobuf, the encoding of built-in kinds in Go clients, to JSON.
//!
//! The schema provides the field numbers ([`crate::notation`]) and the wire format of a few types: times, quantities
//! and similar types are messages in protobuf and strings in JSON. [`crate::decode`] processes the output further: it
//! prunes and applies defaults. See <https://protobuf.dev/programming-guides/encoding/>.

use crate::schema::{Node, Shape, Struct, Text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flyball_core::memory::{ITEM, NODE as MAP};
use flyball_core::time::{self, Timestamp};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::cell::Cell;

/// Maximum nesting depth of messages: that of JSON.
const DEPTH: usize = 127;

/// An error of decoding protobuf, with Go's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages are self-explanatory")]
pub enum Error {
    #[error("unexpected EOF")]
    Short,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal wireType {0}")]
    IllegalType(u64),
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongType { wire: u64, field: String },
    #[error("proto: illegal tag 0 (wire type {0})")]
    IllegalTag(u64),
    #[error("proto: unexpected end of group")]
    EndOfGroup,
    #[error("proto: exceeded max depth")]
    TooDeep,
    #[error("the object exceeds the memory limit")]
    TooLarge,
    #[error("proto: {0}")]
    Value(String),
}

/// The state of decoding: the nesting depth, and the remaining memory.
#[derive(Clone, Copy)]
struct DecodeState<'b> {
    depth: usize,
    remaining: &'b Cell<usize>,
}

impl DecodeState<'_> {
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    /// Charges memory before it is allocated.
    fn weigh(self, bytes: usize) -> Result<(), Error> {
        self.remaining.set(self.remaining.get().checked_sub(bytes).ok_or(Error::TooLarge)?);
        Ok(())
    }
}

/// Decodes a message of a built-in type into a value of at most about `max_memory` bytes of memory.
///
/// Messages without fields count as maps that defaulting will fill, although they have only two bytes on the wire.
pub fn read(node: Node<'_>, bytes: &[u8], max_memory: usize) -> Result<Value, Error> {
    message(node, bytes, DecodeState { depth: 0, remaining: &Cell::new(max_memory) })
}

/// Splits a message into its fields.
pub fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u32, WireValue<'_>), Error>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let field = next_field(&mut bytes);
        if field.is_err() {
            bytes = &[];
        }
        Some(field)
    })
}

/// The value of a field on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireValue<'b> {
    /// A number.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Length-delimited bytes: a string, a message, packed numbers.
    Bytes(&'b [u8]),
    /// Four bytes.
    Fixed32(u32),
    /// A group, which is obsolete; its content is skipped.
    Group,
}

impl<'b> WireValue<'b> {
    /// Returns the bytes, if the field is length-delimited.
    pub fn bytes(self, field: &str) -> Result<&'b [u8], Error> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.type_error(field)),
        }
    }

    fn varint(self, field: &str) -> Result<u64, Error> {
        match self {
            Self::Varint(number) => Ok(number),
            other => Err(other.type_error(field)),
        }
    }

    fn type_error(self, field: &str) -> Error {
        let wire = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32(_) => 5,
        };
        Error::WrongType { wire, field: field.to_owned() }
    }
}

fn next_field<'b>(bytes: &mut &'b [u8]) -> Result<(u32, WireValue<'b>), Error> {
    let tag = varint(bytes)?;
    let number = u32::try_from(tag >> 3).map_err(|_| Error::Overflow)?;
    let wire = match tag & 7 {
        0 => WireValue::Varint(varint(bytes)?),
        1 => WireValue::Fixed64(u64::from_le_bytes(read_bytes(bytes)?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| Error::Overflow)?;
            WireValue::Bytes(bytes.split_off(..length).ok_or(Error::Short)?)
        }
        3 => {
            skip_group(bytes)?;
            WireValue::Group
        }
        4 => return Err(Error::EndOfGroup),
        5 => WireValue::Fixed32(u32::from_le_bytes(read_bytes(bytes)?)),
        other => return Err(Error::IllegalType(other)),
    };
    if number == 0 {
        return Err(Error::IllegalTag(tag & 7));
    }
    Ok((number, wire))
}

fn skip_group(bytes: &mut &[u8]) -> Result<(), Error> {
    let mut open = 1;
    while open > 0 {
        let tag = varint(bytes)?;
        match tag & 7 {
            0 => drop(varint(bytes)?),
            1 => drop(read_bytes::<8>(bytes)?),
            2 => {
                let length = usize::try_from(varint(bytes)?).map_err(|_| Error::Overflow)?;
                bytes.split_off(..length).ok_or(Error::Short)?;
            }
            3 => open += 1,
            4 => open -= 1,
            5 => drop(read_bytes::<4>(bytes)?),
            other => return Err(Error::IllegalType(other)),
        }
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first().ok_or(Error::Short)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Error::Overflow)
}

fn read_bytes<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Error> {
    let chunk = bytes.split_off(..N).ok_or(Error::Short)?;
    chunk.try_into().map_err(|_| Error::Short)
}

fn message(node: Node<'_>, bytes: &[u8], at: DecodeState<'_>) -> Result<Value, Error> {
    if at.depth > DEPTH {
        return Err(Error::TooDeep);
    }
    at.weigh(MAP)?;
    match &node.get().shape {
        Shape::Struct(of) => {
            let mut out = Map::new();
            read_struct(node, of, bytes, at, &mut out)?;
            Ok(out.into())
        }
        Shape::Open(open) => {
            let mut out = Value::Null;
            for field in fields(bytes) {
                let (number, wire) = field?;
                let Some((_, sort)) = open.numbered.iter().find(|(known, _)| *known == number) else { continue };
                let inner = node.at(*sort);
                match (&mut out, inner.items()) {
                    (Value::Array(items), Some(_)) => push(inner, wire, "Items", at, items)?,
                    (out, Some(_)) => {
                        let mut items = Vec::new();
                        push(inner, wire, "Items", at, &mut items)?;
                        *out = items.into();
                    }
                    // An object takes precedence over the boolean that allows it.
                    (Value::Object(_) | Value::Array(_), None) => {}
                    (out, None) => *out = value(inner, wire, "Schema", at)?,
                }
            }
            Ok(out)
        }
        Shape::Text(Text::Quantity) => {
            Ok(lossy(first(bytes, 1, |wire| wire.bytes("String"))?.unwrap_or_default()).into())
        }
        Shape::Text(text @ (Text::Time | Text::MicroTime)) => moment(*text, bytes),
        Shape::Text(Text::Duration) => {
            let nanos = first(bytes, 1, |wire| wire.varint("Duration"))?.unwrap_or(0);
            Ok(flyball_core::time::format_duration(nanos as i64).into())
        }
        Shape::IntOrString => {
            let kind = first(bytes, 1, |wire| wire.varint("Type"))?.unwrap_or(0);
            Ok(match kind {
                0 => (first(bytes, 2, |wire| wire.varint("IntVal"))?.unwrap_or(0) as i32).into(),
                _ => lossy(first(bytes, 3, |wire| wire.bytes("StrVal"))?.unwrap_or_default()).into(),
            })
        }
        Shape::Any => match first(bytes, 1, |wire| wire.bytes("Raw"))?.unwrap_or_default() {
            [] => Ok(Value::Null),
            raw => {
                at.weigh(
                    raw.iter()
                        .map(|byte| match byte {
                            b'{' | b':' => MAP,
                            b',' | b'[' => ITEM,
                            _ => 1,
                        })
                        .sum(),
                )?;
                serde_json::from_slice(raw).map_err(|error| Error::Value(error.to_string()))
            }
        },
        // Protobuf has no map of lists: each list is in a separate message.
        Shape::List(_) => {
            let mut items = Vec::new();
            for field in fields(bytes) {
                let (number, wire) = field?;
                if number == 1 {
                    push(node, wire, "Items", at, &mut items)?;
                }
            }
            Ok(items.into())
        }
        _ => Err(Error::Value("a message in place of a plain value".into())),
    }
}

/// Returns the last value of one field of a message.
fn first<'b, T>(
    bytes: &'b [u8],
    number: u32,
    read: impl Fn(WireValue<'b>) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let mut found = None;
    for field in fields(bytes) {
        let (known, wire) = field?;
        if known == number {
            found = Some(read(wire)?);
        }
    }
    Ok(found)
}

fn moment(text: Text, bytes: &[u8]) -> Result<Value, Error> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let seconds = first(bytes, 1, |wire| wire.varint("Seconds"))?.unwrap_or(0) as i64;
    let nanos = first(bytes, 2, |wire| wire.varint("Nanos"))?.unwrap_or(0) as i32;
    let nanos = if text == Text::MicroTime { nanos } else { 0 };
    let moment = Timestamp::new(seconds, nanos).map_err(|error| Error::Value(error.to_string()))?;
    Ok(if text == Text::MicroTime { time::rfc3339_micro(moment) } else { time::rfc3339(moment) }.into())
}

fn read_struct(
    node: Node<'_>,
    of: &Struct,
    bytes: &[u8],
    at: DecodeState<'_>,
    out: &mut Map<String, Value>,
) -> Result<(), Error> {
    for field in fields(bytes) {
        let (number, wire) = field?;
        if let Some((name, field)) = of.fields.iter().find(|(_, field)| field.number == number) {
            let inner = node.at(field.schema);
            match &inner.get().shape {
                Shape::List(_) => {
                    let list = out.entry(&**name).or_insert_with(|| Value::Array(Vec::new()));
                    let Value::Array(items) = list else { unreachable!("just made as a list") };
                    push(inner, wire, name, at, items)?;
                }
                Shape::Map(map) => {
                    let entries = out.entry(&**name).or_insert_with(|| Value::Object(Map::new()));
                    let Value::Object(entries) = entries else { unreachable!("just made as a map") };
                    let entry = wire.bytes(name)?;
                    let key = lossy(first(entry, 1, |wire| wire.bytes(name))?.unwrap_or_default());
                    let values = map.values.map(|values| node.at(values));
                    let read = |wire| values.map_or(Ok(Value::Null), |values| value(values, wire, name, at));
                    let value = match first(entry, 2, read)? {
                        Some(value) => value,
                        None => values.map_or(Value::Null, crate::decode::zero),
                    };
                    at.weigh(MAP / 8 + key.len())?;
                    entries.insert(key.into_owned(), value);
                }
                _ => {
                    out.insert(name.to_string(), value(inner, wire, name, at)?);
                }
            }
        } else if let Some((_, embedded)) = of.embedded.iter().find(|(known, _)| *known == number) {
            if at.depth > DEPTH {
                return Err(Error::TooDeep);
            }
            let inner = node.at(*embedded);
            let of = inner.as_struct().expect("only structs are embedded");
            read_struct(inner, of, wire.bytes(&of.name)?, at.deeper(), out)?;
        }
    }
    Ok(())
}

/// Adds the content of a list field: an item, or several packed numbers.
fn push(
    list: Node<'_>,
    wire: WireValue<'_>,
    name: &str,
    at: DecodeState<'_>,
    items: &mut Vec<Value>,
) -> Result<(), Error> {
    let Some(item) = list.items() else { return Ok(()) };
    match (&item.get().shape, wire) {
        (Shape::Boolean | Shape::Integer(_), WireValue::Bytes(mut packed)) => {
            while !packed.is_empty() {
                at.weigh(ITEM)?;
                items.push(value(item, WireValue::Varint(varint(&mut packed)?), name, at)?);
            }
        }
        _ => {
            at.weigh(ITEM)?;
            items.push(value(item, wire, name, at)?);
        }
    }
    Ok(())
}

fn value(node: Node<'_>, wire: WireValue<'_>, name: &str, at: DecodeState<'_>) -> Result<Value, Error> {
    Ok(match &node.get().shape {
        Shape::Boolean => (wire.varint(name)? != 0).into(),
        Shape::Integer(32) => (wire.varint(name)? as i32).into(),
        Shape::Integer(_) => (wire.varint(name)? as i64).into(),
        Shape::Number => match wire {
            WireValue::Fixed64(bits) => Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, Value::Number),
            other => return Err(other.type_error(name)),
        },
        Shape::Text(Text::Plain) => lossy(wire.bytes(name)?).into(),
        Shape::Text(Text::Bytes) => BASE64.encode(wire.bytes(name)?).into(),
        _ => message(node, wire.bytes(name)?, at.deeper())?,
    })
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::Library;
    use serde_json::json;

    const TYPES: &str = "package core/v1\n\nkind Thing\n  metadata meta.ObjectMeta @1\n  spec ThingSpec @2\nstruct ThingSpec\n  replicas *int32 @1\n  \
                         limits {}Quantity @2\n  ports []int64 @3\n  at Time @4\n  port IntOrString @5\n  data {}bytes @6\n  ...Source @7\n  \
                         extra {}Words @8\n  any *Any @9\n  open *AnyOrBool @10\nstruct Source\n  path! string @1\nalias Words []string\n\
                         open AnyOrBool Source @2 bool @1\n";

    fn read_hex(hex: &str) -> Result<Value, String> {
        let digits: String = hex.split_whitespace().collect();
        let bytes: Vec<u8> =
            (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
        let library = Library::read(&[TYPES]);
        read(library.get("core/v1", "Thing").unwrap().node(), &bytes, 1 << 20).map_err(|error| error.to_string())
    }

    #[test]
    fn types_decode_to_their_json_form() {
        let cases = [
            ("0a 03 0a 01 61", json!({"metadata": {"name": "a"}})),
            ("12 0b 08 ff ff ff ff ff ff ff ff ff 01", json!({"spec": {"replicas": -1}})),
            ("12 0d 12 0b 0a 03 63 70 75 12 04 0a 02 31 6d", json!({"spec": {"limits": {"cpu": "1m"}}})),
            ("12 06 18 01 1a 02 02 03", json!({"spec": {"ports": [1, 2, 3]}})),
            ("12 02 22 00", json!({"spec": {"at": null}})),
            ("12 06 22 04 08 3c 10 05", json!({"spec": {"at": "1970-01-01T00:01:00Z"}})),
            ("12 06 2a 04 08 00 10 50", json!({"spec": {"port": 80}})),
            ("12 07 2a 05 08 01 1a 01 78", json!({"spec": {"port": "x"}})),
            ("12 08 32 06 0a 01 6b 12 01 ff", json!({"spec": {"data": {"k": "/w=="}}})),
            ("12 05 3a 03 0a 01 70", json!({"spec": {"path": "p"}})),
            ("12 0d 42 0b 0a 01 6b 12 06 0a 01 61 0a 01 62", json!({"spec": {"extra": {"k": ["a", "b"]}}})),
            ("12 06 4a 04 0a 02 7b 7d", json!({"spec": {"any": {}}})),
            ("12 04 52 02 08 01", json!({"spec": {"open": true}})),
            ("12 09 52 07 08 01 12 03 0a 01 78", json!({"spec": {"open": {"path": "x"}}})),
            ("f8 07 01 1a 01 00", json!({})),
        ];
        for (hex, expected) in cases {
            assert_eq!(read_hex(hex), Ok(expected), "{hex}");
        }
    }

    #[test]
    fn malformed_messages_are_rejected() {
        let cases = [
            ("0a", "unexpected EOF"),
            ("0a 05 61", "unexpected EOF"),
            ("0f", "proto: illegal wireType 7"),
            ("08 01", "proto: wrong wireType = 0 for field metadata"),
            ("02 00", "proto: illegal tag 0 (wire type 2)"),
            ("ff ff ff ff ff ff ff ff ff ff 01", "proto: integer overflow"),
            ("0c", "proto: unexpected end of group"),
        ];
        for (hex, expected) in cases {
            assert_eq!(read_hex(hex), Err(expected.to_owned()), "{hex}");
        }
    }

    #[test]
    fn empty_items_count_towards_memory() {
        let thing = Library::read(&[TYPES]);
        let read = |bytes: &[u8]| read(thing.get("core/v1", "Thing").unwrap().node(), bytes, 1 << 20).map(drop);
        // Values of a map, packed numbers, and JSON in a string: few bytes each.
        let length = |bytes: usize| [(bytes % 128) as u8 | 128, (bytes / 128 % 128) as u8 | 128, (bytes / 16384) as u8];
        let spec = |content: Vec<u8>| [&[0x12][..], &length(content.len()), &content].concat();
        let open = |count: usize| spec([0x42, 0].repeat(count));
        assert_eq!((read(&open(1)), read(&open(100_000))), (Ok(()), Err(Error::TooLarge)));
        let packed = |count: usize| spec([&[0x1a][..], &length(count), &vec![1; count]].concat());
        assert_eq!((read(&packed(10_000)), read(&packed(100_000))), (Ok(()), Err(Error::TooLarge)));
        let any = |count: usize| {
            let json = format!("[{}0]", "{},".repeat(count));
            let raw = [&[0x0a][..], &length(json.len()), json.as_bytes()].concat();
            spec([&[0x4a][..], &length(raw.len()), &raw].concat())
        };
        assert_eq!((read(&any(1000)), read(&any(10_000))), (Ok(()), Err(Error::TooLarge)));
    }
}
