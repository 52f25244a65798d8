//! Scanners of JSON text that allocate nothing.
//!
//! A cache that decoded every object would spend most of its time and memory on fields that are never read. These
//! scanners return the end of a value and the positions of an object's members; the caller decodes the piece that it
//! needs with serde. Skipped text is not validated: invalid JSON may pass here and is rejected when it is decoded.
//! [`decode()`] decodes whole values.

#![expect(clippy::should_implement_trait, reason = "`next` is fallible, and an error ends the iteration")]

mod containers;
mod decode;
mod number;
mod reserved;

pub use containers::{ContainerVisitor, Containers};
pub use decode::{decode, push_item};
pub use number::{InvalidNumber, number_end};
pub use reserved::{check_keys, has_reserved_keys};

use memchr::memchr2;
use serde::de::Error;
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::ops::Range;

/// An error of scanning malformed or truncated JSON, with its byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed JSON at byte {0}")]
pub struct MalformedJson(pub usize);

/// Returns the position of the first byte from `at` that is not white space.
#[inline]
pub fn blank(json: &[u8], mut at: usize) -> usize {
    while matches!(json.get(at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

/// Returns the end of the string whose opening quote is at `at`.
#[inline]
pub fn string_end(json: &[u8], at: usize) -> Result<usize, MalformedJson> {
    string(json, at).map(|(end, _)| end)
}

/// Returns the end of the string whose opening quote is at `at`, and whether there are escapes in it.
#[inline]
fn string(json: &[u8], at: usize) -> Result<(usize, bool), MalformedJson> {
    let (mut from, mut escaped) = (at + 1, false);
    loop {
        match quote_or_backslash(json, from) {
            Some(found) if json[found] == b'"' => return Ok((found + 1, escaped)),
            // The byte after a backslash never ends a string.
            Some(found) => (from, escaped) = (found + 2, true),
            None => return Err(MalformedJson(at)),
        }
    }
}

/// Returns the position of the first quote or backslash from `at`.
#[inline]
pub fn quote_or_backslash(json: &[u8], at: usize) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // The high bit of the first byte that is zero; bits after it may be set as well.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let mut rest = json.get(at..)?;
    // Most strings are too short for memchr to be faster.
    for _ in 0..4 {
        let Some((word, behind)) = rest.split_first_chunk() else { break };
        let word = u64::from_le_bytes(*word);
        let found = zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return Some(json.len() - rest.len() + found.trailing_zeros() as usize / 8);
        }
        rest = behind;
    }
    memchr2(b'"', b'\\', rest).map(|found| json.len() - rest.len() + found)
}

/// Returns the end of the value that starts at `at`.
#[inline]
pub fn value_end(json: &[u8], at: usize) -> Result<usize, MalformedJson> {
    match json.get(at) {
        Some(b'"') => string_end(json, at),
        Some(b'{' | b'[') => container_end(json, at + 1),
        Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            let ends = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r');
            Ok(json[at..].iter().position(ends).map_or(json.len(), |n| at + n))
        }
        _ => Err(MalformedJson(at)),
    }
}

/// Returns the end of the object or array that contains `at`, a position between members or before its end.
#[inline]
pub fn container_end(json: &[u8], mut at: usize) -> Result<usize, MalformedJson> {
    let mut depth = 1usize;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at = string_end(json, at)?,
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' if depth == 1 => return Ok(at + 1),
            b'}' | b']' => (depth, at) = (depth - 1, at + 1),
            _ => at += 1,
        }
    }
    Err(MalformedJson(at))
}

/// A member of an object: the positions of its key (without quotes) and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key, without its quotes.
    pub key: Range<usize>,
    /// The value, without white space around it.
    pub value: Range<usize>,
}

/// Iterates over the items of the object or array that starts at `at`.
///
/// Positions are relative to the whole text, so that parts can be cut out of it. After an error, the iteration ends.
struct Items<'a> {
    json: &'a [u8],
    at: usize,
    close: u8,
    first: bool,
}

impl<'a> Items<'a> {
    #[inline]
    fn new(json: &'a [u8], at: usize, open: u8, close: u8) -> Result<Self, MalformedJson> {
        let at = blank(json, at);
        if json.get(at) != Some(&open) {
            return Err(MalformedJson(at));
        }
        Ok(Self { json, at: at + 1, close, first: true })
    }

    /// Moves to the start of the next item, `None` after the last one.
    #[inline]
    fn advance(&mut self) -> Result<Option<usize>, MalformedJson> {
        let mut at = blank(self.json, self.at);
        if self.json.get(at) == Some(&self.close) {
            self.at = at;
            return Ok(None);
        }
        if !std::mem::replace(&mut self.first, false) {
            if self.json.get(at) != Some(&b',') {
                return Err(MalformedJson(at));
            }
            at = blank(self.json, at + 1);
        }
        Ok(Some(at))
    }
}

/// Iterates over the members of an object.
pub struct Members<'a> {
    items: Items<'a>,
    /// True if the last key has escapes.
    escaped: bool,
}

impl<'a> Members<'a> {
    /// Creates an iterator over the members of the object at byte `at`.
    #[inline]
    pub fn new(json: &'a [u8], at: usize) -> Result<Self, MalformedJson> {
        Ok(Self { items: Items::new(json, at, b'{', b'}')?, escaped: false })
    }

    /// Returns the next member, `None` after the last one.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Member>, MalformedJson> {
        let Some((key, start)) = self.begin()? else { return Ok(None) };
        let end = value_end(self.items.json, start)?;
        self.resume(end);
        Ok(Some(Member { key, value: start..end }))
    }

    /// Finds the start of a member's value, without searching its end.
    pub fn find(mut self, key: &str) -> Result<Option<usize>, MalformedJson> {
        while let Some((found, start)) = self.begin()? {
            if &self.items.json[found] == key.as_bytes() {
                return Ok(Some(start));
            }
            let end = value_end(self.items.json, start)?;
            self.resume(end);
        }
        Ok(None)
    }

    /// Returns the key of the next member and the start of its value; the caller must pass the end of the value to
    /// [`resume`](Self::resume).
    #[inline]
    pub fn begin(&mut self) -> Result<Option<(Range<usize>, usize)>, MalformedJson> {
        let Some(at) = self.items.advance()? else { return Ok(None) };
        let json = self.items.json;
        if json.get(at) != Some(&b'"') {
            return Err(MalformedJson(at));
        }
        let (key_end, escaped) = string(json, at)?;
        self.escaped = escaped;
        let colon = blank(json, key_end);
        if json.get(colon) != Some(&b':') {
            return Err(MalformedJson(colon));
        }
        Ok(Some((at + 1..key_end - 1, blank(json, colon + 1))))
    }

    /// Continues after a value.
    #[inline]
    pub fn resume(&mut self, end: usize) {
        self.items.at = end;
    }

    /// Returns the end of the object.
    pub fn end(self) -> Result<usize, MalformedJson> {
        container_end(self.items.json, self.items.at)
    }
}

/// Iterates over the elements of an array.
pub struct Elements<'a>(Items<'a>);

impl<'a> Elements<'a> {
    /// Creates an iterator over the elements of the array at byte `at`.
    pub fn new(json: &'a [u8], at: usize) -> Result<Self, MalformedJson> {
        Items::new(json, at, b'[', b']').map(Self)
    }

    /// Returns the position of the next element, `None` after the last one.
    pub fn next(&mut self) -> Result<Option<Range<usize>>, MalformedJson> {
        let Some(at) = self.begin()? else { return Ok(None) };
        let end = value_end(self.0.json, at)?;
        self.resume(end);
        Ok(Some(at..end))
    }

    /// Returns the start of the next element; the caller must pass its end to [`resume`](Self::resume).
    #[inline]
    pub fn begin(&mut self) -> Result<Option<usize>, MalformedJson> {
        self.0.advance()
    }

    /// Continues after an element.
    pub fn resume(&mut self, end: usize) {
        self.0.at = end;
    }

    /// Returns the end of the array, when there is no next element.
    pub fn end(&self) -> usize {
        self.0.at + 1
    }
}

/// A value in JSON text, which is decoded on demand.
#[derive(Clone, Copy, Debug)]
pub struct RawJson<'a>(pub &'a str);

/// A value in JSON text whose end is not known yet.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Returns true if the value is an object.
    pub fn is_object(self) -> bool {
        self.text.as_bytes().get(self.at) == Some(&b'{')
    }

    /// Creates an iterator over the members of the object.
    pub fn members(self) -> Result<NamedMembers<'a>, MalformedJson> {
        Ok(NamedMembers { text: self.text, members: Members::new(self.text.as_bytes(), self.at)? })
    }

    /// Returns its end, as an offset in the enclosing text.
    pub fn end(self) -> Result<usize, MalformedJson> {
        value_end(self.text.as_bytes(), self.at)
    }

    /// Returns the value and its end.
    pub fn read_value(self) -> Result<(RawJson<'a>, usize), MalformedJson> {
        let end = self.end()?;
        Ok((RawJson(&self.text[self.at..end]), end))
    }
}

/// Iterates over the members of an object with their names.
pub struct NamedMembers<'a> {
    text: &'a str,
    members: Members<'a>,
}

impl<'a> NamedMembers<'a> {
    /// Returns the next member, `None` after the last one.
    pub fn next(&mut self) -> Result<Option<(Cow<'a, str>, RawJson<'a>)>, MalformedJson> {
        let Some((name, value)) = self.begin()? else { return Ok(None) };
        let (value, end) = value.read_value()?;
        self.resume(end);
        Ok(Some((name, value)))
    }

    /// Returns the next member; the caller must pass the end of its value to [`resume`](Self::resume).
    pub fn begin(&mut self) -> Result<Option<(Cow<'a, str>, Cursor<'a>)>, MalformedJson> {
        let Some((key, at)) = self.members.begin()? else { return Ok(None) };
        let name = match self.members.escaped {
            true => unquoted(&self.text[key.start - 1..=key.end]).ok_or(MalformedJson(key.start))?,
            false => Cow::Borrowed(&self.text[key]),
        };
        Ok(Some((name, Cursor { text: self.text, at })))
    }

    /// Continues after a value.
    pub fn resume(&mut self, end: usize) {
        self.members.resume(end);
    }

    /// Returns the end of the object.
    pub fn end(self) -> Result<usize, MalformedJson> {
        self.members.end()
    }
}

impl<'a> RawJson<'a> {
    /// Creates an iterator over the members of the object.
    pub fn members(self) -> Result<NamedMembers<'a>, MalformedJson> {
        self.cursor().members()
    }

    /// Returns a cursor at the start of the value.
    pub fn cursor(self) -> Cursor<'a> {
        Cursor { text: self.0, at: 0 }
    }

    /// Finds a member of an object.
    pub fn find(self, name: &str) -> Result<Option<Self>, MalformedJson> {
        let mut members = self.members()?;
        while let Some((found, value)) = members.next()? {
            if found == name {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Returns the elements of an array; `None` for other values.
    pub fn elements(self) -> Option<Vec<Self>> {
        let (mut elements, mut found) = (Elements::new(self.0.as_bytes(), 0).ok()?, Vec::new());
        while let Some(element) = elements.next().ok()? {
            found.push(RawJson(&self.0[element]));
        }
        Some(found)
    }

    /// Returns true if the values are equal. Numbers are compared as floats.
    pub fn is(self, value: &Value) -> bool {
        match value {
            Value::Null => self.0 == "null",
            Value::Bool(value) => self.0 == if *value { "true" } else { "false" },
            Value::String(value) => self.text().is_some_and(|text| text == **value),
            Value::Number(value) => serde_json::from_str::<Number>(self.0)
                .is_ok_and(|number| number == *value || number.as_f64() == value.as_f64()),
            Value::Array(_) | Value::Object(_) => self.decode().is_some_and(|decoded| decoded == *value),
        }
    }

    /// Returns a string; `None` for other values.
    pub fn text(self) -> Option<Cow<'a, str>> {
        unquoted(self.0)
    }

    /// Parses the value; `None` if it is invalid.
    pub fn decode(self) -> Option<Value> {
        serde_json::from_str(self.0).ok()
    }
}

/// Decodes the parts of a value that are in `shape`: of objects the members that `shape` has as well, other values
/// completely.
pub fn decode_like(json: &str, shape: &Value) -> serde_json::Result<Value> {
    let Value::Object(shape) = shape else { return serde_json::from_str(json) };
    let Ok(mut members) = Members::new(json.as_bytes(), 0) else { return serde_json::from_str(json) };
    let mut found = Map::new();
    while let Some(member) = members.next().map_err(serde_json::Error::custom)? {
        let name = text(&json.as_bytes()[member.key.start - 1..=member.key.end]);
        let name = name.ok_or_else(|| serde_json::Error::custom(MalformedJson(member.key.start)))?;
        if let Some(shape) = shape.get(&*name) {
            found.insert(name.into_owned(), decode_like(&json[member.value], shape)?);
        }
    }
    Ok(found.into())
}

/// Reads a string value; `None` for other types.
#[inline]
pub fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    unquoted(std::str::from_utf8(value).ok()?)
}

fn unquoted(value: &str) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix('"')?.strip_suffix('"')?;
    match inner.as_bytes().contains(&b'\\') {
        true => serde_json::from_str(value).ok().map(Cow::Owned),
        false => Some(Cow::Borrowed(inner)),
    }
}

/// Reads an integer value; `None` for other values.
#[inline]
pub fn integer(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn members(json: &str) -> Result<Vec<(String, String)>, MalformedJson> {
        let (mut members, mut found) = (Members::new(json.as_bytes(), 0)?, Vec::new());
        while let Some(member) = members.next()? {
            found.push((json[member.key].to_owned(), json[member.value].to_owned()));
        }
        Ok(found)
    }

    #[test]
    fn members_are_found_despite_whitespace_and_escapes() {
        let json = r#" { "a" : 1 , "b\"":"x\\" , "c":{"d":[1,"]}"]},"e": null}"#;
        let found = members(json).unwrap();
        let expected = [("a", "1"), ("b\\\"", "\"x\\\\\""), ("c", r#"{"d":[1,"]}"]}"#), ("e", "null")];
        assert_eq!(found, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert_eq!(Members::new(json.as_bytes(), 0).unwrap().find("e").unwrap().map(|at| &json[at..]), Some("null}"));
    }

    #[test]
    fn truncated_text_is_malformed() {
        let whole = r#"{"a":{"b":["c",-1.5e3]},"d":"e\"f"}"#;
        assert_eq!(members(whole).unwrap().len(), 2);
        for cut in 0..whole.len() {
            assert!(members(&whole[..cut]).is_err(), "{}", &whole[..cut]);
        }
        for bad in ["[]", r#"{"a" 1}"#, r#"{"a":1 "b":2}"#, "{a:1}", r#"{"a":}"#, r#"{"a":1,}"#] {
            assert!(members(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn escapes_in_strings_are_decoded() {
        assert_eq!(text(br#""plain""#).as_deref(), Some("plain"));
        assert_eq!(text(br#""\u003ca\u003e""#).as_deref(), Some("<a>"));
        assert_eq!(text(b"1"), None);
        assert_eq!(integer(b"-7"), Some(-7));
        assert_eq!(integer(b"1.5"), None);
    }

    #[test]
    fn only_requested_members_are_decoded() {
        let text = r#"{"a": {"b": 1, "c\u003c": [{"d": 2, "e": 3}], "f": nonsense}, "g": 4, "h": {"i": 5}}"#;
        let shape = json!({"a": {"b": null, "c<": [{"d": null}]}, "g": {"x": null}, "h": 0, "j": 0});
        let found = json!({"a": {"b": 1, "c<": [{"d": 2, "e": 3}]}, "g": 4, "h": {"i": 5}});
        assert_eq!(decode_like(text, &shape).unwrap(), found);
        assert!(decode_like(text, &json!({"a": {"f": null}})).is_err());
        assert!(decode_like(r#"{"a": 1"#, &shape).is_err());
        assert!(decode_like(r#"{"\x": 1}"#, &shape).is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn items_match_serde(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            let bytes = text.as_bytes();
            // Parsed as in serde: not every float survives a round trip through text.
            let value: Value = serde_json::from_str(&text).unwrap();
            match &value {
                Value::Object(map) => {
                    let mut members = Members::new(bytes, 0).unwrap();
                    for (key, value) in map {
                        let member = members.next().unwrap().unwrap();
                        let quoted = &bytes[member.key.start - 1..member.key.end + 1];
                        let read = super::text(quoted).unwrap();
                        prop_assert_eq!(read.as_ref(), key);
                        prop_assert_eq!(&serde_json::from_slice::<Value>(&bytes[member.value]).unwrap(), value);
                    }
                    prop_assert_eq!(members.next().unwrap(), None);
                }
                Value::Array(elements) => {
                    let mut found = Elements::new(bytes, 0).unwrap();
                    for element in elements {
                        let range = found.next().unwrap().unwrap();
                        prop_assert_eq!(&serde_json::from_slice::<Value>(&bytes[range]).unwrap(), element);
                    }
                    prop_assert_eq!(found.next().unwrap(), None);
                }
                _ => prop_assert_eq!(value_end(bytes, 0).unwrap(), bytes.len()),
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\a1 ".to_vec()), 0..40)) {
            if let Ok(mut members) = Members::new(&bytes, 0) {
                while let Ok(Some(_)) = members.next() {}
            }
            if let Ok(mut elements) = Elements::new(&bytes, 0) {
                while let Ok(Some(_)) = elements.next() {}
            }
        }
    }
}
