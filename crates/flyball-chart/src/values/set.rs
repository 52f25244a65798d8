//! The syntax of `--set`: `a.b=c,list={x,y},servers[0].port=80`, with `\` as escape character.
//!
//! See <https://helm.sh/docs/intro/using_helm/#the-format-and-limitations-of---set>.

use super::{ReadFile, floats};
use crate::quote::quote;
use serde_json::{Map, Value};

/// Limit of list indices.
const MAX_INDEX: i64 = 65536;
/// Limit of dots in a name.
const DEPTH: usize = 30;

/// The type of values.
pub(super) enum Mode<'r> {
    /// Numbers, booleans and null are recognized.
    Typed,
    /// Strings only.
    Text,
    /// Values are file names.
    File(ReadFile<'r>),
    /// Values are JSON.
    Json,
    /// The rest after the `=` is the value.
    Literal,
}

/// Reason for the end of parsing: the end of the argument, or an error.
enum Stop {
    End,
    Bad(String),
}

type Step<T = ()> = Result<T, Stop>;

fn bad<T>(message: impl Into<String>) -> Step<T> {
    Err(Stop::Bad(message.into()))
}

/// Sets the values of the argument.
pub(super) fn parse(argument: &str, into: &mut Map<String, Value>, mode: &Mode<'_>) -> Result<(), String> {
    let mut parser = Parser { text: argument.chars().collect(), at: 0, mode };
    loop {
        match parser.key(into, 0) {
            Ok(()) => {}
            Err(Stop::End) => return Ok(()),
            Err(Stop::Bad(message)) => return Err(message),
        }
    }
}

struct Parser<'a> {
    text: Vec<char>,
    at: usize,
    mode: &'a Mode<'a>,
}

/// Returns Go's name for the type of a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn conversion<T>(value: &Value, expected: &str) -> Step<T> {
    bad(format!("unable to parse key: interface conversion: interface {{}} is {}, not {expected}", go_type(value)))
}

fn set(map: &mut Map<String, Value>, key: String, value: Value) {
    if !key.is_empty() {
        map.insert(key, value);
    }
}

fn set_index(list: &mut Vec<Value>, index: i64, value: Value) -> Step {
    if index < 0 {
        return bad(format!("negative {index} index not allowed"));
    }
    if index > MAX_INDEX {
        return bad(format!("index of {index} is greater than maximum supported index of {MAX_INDEX}"));
    }
    let index = usize::try_from(index).unwrap_or(0);
    if list.len() <= index {
        list.resize(index + 1, Value::Null);
    }
    list[index] = value;
    Ok(())
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.text.get(self.at).copied();
        self.at += usize::from(c.is_some());
        c
    }

    /// Splits a text at the first of several characters; `None` at the end.
    fn until(&mut self, stops: &str) -> (String, Option<char>) {
        let mut found = String::new();
        while let Some(c) = self.next() {
            if stops.contains(c) {
                return (found, Some(c));
            }
            if c == '\\' && !matches!(self.mode, Mode::Literal) {
                match self.next() {
                    Some(c) => found.push(c),
                    None => return (found, None),
                }
            } else {
                found.push(c);
            }
        }
        (found, None)
    }

    fn key(&mut self, map: &mut Map<String, Value>, depth: usize) -> Step {
        let stops = if matches!(self.mode, Mode::Literal) { "=[." } else { "=[,." };
        let (key, stop) = self.until(stops);
        match stop {
            None if key.is_empty() => Err(Stop::End),
            None => bad(format!("key {} has no value", quote(key.as_bytes()))),
            Some('[') => {
                let index = self.index()?;
                let mut list = match map.get(&key) {
                    None => Vec::new(),
                    Some(Value::Array(list)) => list.clone(),
                    Some(other) => return conversion(other, "[]interface {}"),
                };
                let result = self.item(&mut list, index, depth);
                set(map, key, Value::Array(list));
                result
            }
            Some('=') => {
                let (value, result) = self.value()?;
                set(map, key, value);
                result
            }
            Some(',') => {
                let message = format!("key {} has no value (cannot end with ,)", quote(key.as_bytes()));
                set(map, key, Value::from(""));
                bad(message)
            }
            Some(_) => {
                if depth + 1 > DEPTH {
                    return bad(format!(
                        "value name nested level is greater than maximum supported nested level of {DEPTH}"
                    ));
                }
                let mut inner = match map.get(&key) {
                    None => Map::new(),
                    Some(Value::Object(inner)) => inner.clone(),
                    Some(other) => return conversion(other, "map[string]interface {}"),
                };
                let result = self.key(&mut inner, depth + 1);
                if result.is_ok() && inner.is_empty() {
                    return bad(format!("key map {} has no value", quote(key.as_bytes())));
                }
                if !inner.is_empty() {
                    set(map, key, Value::Object(inner));
                }
                result
            }
        }
    }

    fn index(&mut self) -> Step<i64> {
        let (digits, stop) = self.until("]");
        if stop.is_none() {
            return bad("error parsing index: EOF");
        }
        match digits.parse() {
            Ok(index) => Ok(index),
            Err(_) => {
                let digits = quote(digits.as_bytes());
                bad(format!("error parsing index: strconv.Atoi: parsing {digits}: invalid syntax"))
            }
        }
    }

    fn item(&mut self, list: &mut Vec<Value>, index: i64, depth: usize) -> Step {
        if index < 0 {
            return bad(format!("negative {index} index not allowed"));
        }
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let (key, stop) = self.until("[.=");
        if !key.is_empty() {
            let runes: Vec<String> = key.chars().map(|c| format!("'{c}'")).collect();
            return bad(format!("unexpected data at end of array index: [{}]", runes.join(" ")));
        }
        match stop {
            None => Err(Stop::End),
            Some('=') => {
                let (value, result) = self.value()?;
                set_index(list, index, value)?;
                // After the last item of a list, the end of input is not an error yet.
                if matches!(result, Err(Stop::End)) { Ok(()) } else { result }
            }
            Some('[') => {
                let next = self.index()?;
                let mut inner = match list.get(at) {
                    None | Some(Value::Null) => Vec::new(),
                    Some(Value::Array(inner)) => inner.clone(),
                    Some(other) => return conversion(other, "[]interface {}"),
                };
                self.item(&mut inner, next, depth)?;
                set_index(list, index, Value::Array(inner))
            }
            Some(_) => {
                let mut inner = match list.get(at) {
                    Some(Value::Object(inner)) => inner.clone(),
                    _ => Map::new(),
                };
                let result = self.key(&mut inner, depth);
                if let Err(Stop::Bad(message)) = result {
                    return Err(Stop::Bad(message));
                }
                set_index(list, index, Value::Object(inner))?;
                result
            }
        }
    }

    /// Parses the value after an `=`; returns whether the argument ends with it.
    fn value(&mut self) -> Step<(Value, Step)> {
        match self.mode {
            Mode::Json => return Ok((self.json()?, Ok(()))),
            Mode::Literal => {
                let rest: String = self.text[self.at..].iter().collect();
                self.at = self.text.len();
                return Ok((Value::from(rest), Ok(())));
            }
            Mode::Typed | Mode::Text | Mode::File(_) => {}
        }
        match self.text.get(self.at) {
            None => Ok((Value::from(""), Err(Stop::End))),
            Some('{') => {
                self.at += 1;
                Ok((self.list()?, Ok(())))
            }
            Some(_) => {
                let (text, _) = self.until(",");
                Ok((self.read(text)?, Ok(())))
            }
        }
    }

    fn list(&mut self) -> Step<Value> {
        let mut items = Vec::new();
        loop {
            let (text, stop) = self.until(",}");
            match stop {
                None => return bad("list must terminate with '}'"),
                Some('}') => {
                    self.at += usize::from(self.text.get(self.at) == Some(&','));
                    items.push(self.read(text)?);
                    return Ok(Value::Array(items));
                }
                Some(_) => items.push(self.read(text)?),
            }
        }
    }

    fn read(&self, text: String) -> Step<Value> {
        if let Mode::File(read) = self.mode {
            return match read(&text) {
                Ok(bytes) => Ok(Value::from(String::from_utf8_lossy(&bytes))),
                Err(message) => bad(message),
            };
        }
        if matches!(self.mode, Mode::Text) {
            return Ok(Value::from(text));
        }
        Ok(match text.to_ascii_lowercase().as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            "0" => Value::from(0),
            _ if text.starts_with('0') => Value::from(text),
            _ => text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from),
        })
    }

    /// Parses a JSON value and the comma after it; no value is null.
    fn json(&mut self) -> Step<Value> {
        if self.skip_to_value() {
            return Ok(Value::Null);
        }
        let rest: String = self.text[self.at..].iter().collect();
        let mut stream = serde_json::Deserializer::from_str(&rest).into_iter::<Value>();
        let value = match stream.next() {
            Some(Ok(value)) => floats(value),
            Some(Err(error)) => return bad(error.to_string()),
            None => return bad("EOF"),
        };
        self.at += rest[..stream.byte_offset()].chars().count();
        self.skip_to_value();
        Ok(value)
    }

    /// Skips white space and a comma; returns whether no value precedes it.
    fn skip_to_value(&mut self) -> bool {
        while let Some(c) = self.next() {
            if c == ',' {
                return true;
            }
            if !c.is_whitespace() {
                self.at -= 1;
                return false;
            }
        }
        true
    }
}
