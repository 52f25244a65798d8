//! New inputs from old ones: bytes changed anywhere, values of JSON changed in place, and inputs made large, wide or
//! deep.

use flyball_core::Rng;
use serde_json::{Value, json};

/// Common and unusual parts of inputs.
const WORDS: [&str; 44] = [
    "metadata",
    "name",
    "namespace",
    "labels",
    "managedFields",
    "fieldsV1",
    "f:spec",
    "k:{\"a\":1}",
    "v:1",
    ".",
    "..",
    "/",
    "//",
    "%",
    "%zz",
    "%00",
    "\0",
    "\u{feff}",
    "ä",
    "\n",
    "\r\n",
    "---\n",
    "&a [*a,*a]",
    "$patch",
    "$setElementOrder/containers",
    "$retainKeys",
    "null",
    "true",
    "-1",
    "9223372036854775808",
    "1e999",
    "NaN",
    "(",
    ")*",
    "((a+)+)+$",
    "[",
    "{",
    "\"",
    "'",
    "\\",
    ",",
    "=",
    "self.all(x,",
    "x-kubernetes-validations",
];

fn pick<'p, T>(all: &'p [T], rng: &Rng) -> &'p T {
    &all[rng.below(all.len() as u64) as usize]
}

/// Creates an input from those of the pool; with `amplified`, it first grows to about that many bytes.
pub(crate) fn mutate(pool: &[Vec<u8>], amplified: Option<usize>, rng: &Rng) -> Vec<u8> {
    let mut input = pick(pool, rng).clone();
    if let Some(size) = amplified {
        input = amplify(input, size, rng);
        // Half of the large inputs stay well-formed.
        if rng.below(2) == 0 {
            return input;
        }
        let other = pick::<Vec<u8>>(pool, rng);
        return change_bytes(input, other, rng);
    }
    for _ in 0..=rng.below(3) {
        let parsed = (rng.below(4) > 0).then(|| serde_json::from_slice::<Value>(&input).ok()).flatten();
        input = match parsed {
            Some(mut value) => {
                let other = serde_json::from_slice(pick::<Vec<u8>>(pool, rng)).unwrap_or(Value::Null);
                change_value(&mut value, &other, rng);
                value.to_string().into_bytes()
            }
            None => change_bytes(input, pick::<Vec<u8>>(pool, rng), rng),
        };
    }
    input
}

fn change_bytes(mut input: Vec<u8>, other: &[u8], rng: &Rng) -> Vec<u8> {
    let at = rng.below(input.len() as u64 + 1) as usize;
    let to = (at + rng.below(16) as usize).min(input.len());
    match rng.below(7) {
        0 => input.truncate(at),
        1 => drop(input.drain(at..to)),
        2 => drop(input.splice(at..at, pick(&WORDS, rng).bytes())),
        3 => {
            let piece = input[at..to].to_vec();
            drop(input.splice(at..at, piece.repeat(1 + rng.below(200) as usize)));
        }
        4 => {
            let from = rng.below(other.len() as u64 + 1) as usize;
            drop(input.splice(at..to, other[from..(from + 64).min(other.len())].iter().copied()));
        }
        5 => drop(input.splice(at..at, [rng.next() as u8])),
        _ => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
    }
    input
}

/// Makes an input larger or deeper, to about `size` bytes.
fn amplify(input: Vec<u8>, size: usize, rng: &Rng) -> Vec<u8> {
    match rng.below(5) {
        0 => repeat_slice(input, size, rng),
        1 | 2 => nest(input, size, rng),
        3 => match serde_json::from_slice(&input) {
            Ok(value) => widen(value, size, rng).to_string().into_bytes(),
            Err(_) => repeat_slice(input, size, rng),
        },
        _ => lengthen(input, size, rng),
    }
}

/// Repeats a short slice, or a whole line, where it is.
fn repeat_slice(mut input: Vec<u8>, size: usize, rng: &Rng) -> Vec<u8> {
    let at = rng.below(input.len() as u64) as usize;
    let line = rng.below(2) == 0;
    let start = if line { input[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) } else { at };
    let end = if line {
        input[at..].iter().position(|byte| *byte == b'\n').map_or(input.len(), |end| at + end + 1)
    } else {
        (at + 1 + rng.below(64) as usize).min(input.len())
    };
    let piece = input[start..end].to_vec();
    input.splice(start..start, piece.repeat(size / piece.len().max(1)));
    input
}

/// Text pairs that nest an input: before and after a part.
const NESTS: [(&str, &str); 12] = [
    ("{\"a\":", "}"),
    ("{\"properties\":{\"a\":", "}}"),
    ("[", "]"),
    ("(", ")"),
    ("{", "}"),
    ("- ", ""),
    ("!", ""),
    ("-", ""),
    ("{{ if 1 }}", "{{ end }}"),
    ("(a|", ")*"),
    ("\"", "\""),
    ("a: {", "}"),
];

/// Wraps a bracketed part, or all of the input, in many levels.
fn nest(input: Vec<u8>, size: usize, rng: &Rng) -> Vec<u8> {
    let openers: Vec<usize> = (0..input.len()).filter(|at| matches!(input[*at], b'{' | b'[' | b'(')).collect();
    let part = match openers.is_empty() {
        true => 0..input.len(),
        false => bracketed(&input, *pick(&openers, rng)),
    };
    let (open, close) = match input.get(part.start) {
        Some(b'{') if rng.below(2) == 0 => NESTS[rng.below(2) as usize],
        Some(b'[') if rng.below(2) == 0 => NESTS[2],
        Some(b'(') if rng.below(2) == 0 => NESTS[3],
        _ => *pick(&NESTS, rng),
    };
    // Depth limits are near 100: half of the inputs have about this depth.
    let most = size / (open.len() + close.len());
    let levels = if rng.below(2) == 0 { most } else { most.min(60 + rng.below(100) as usize) };
    let mut nested = input[..part.start].to_vec();
    nested.extend(open.repeat(levels).bytes());
    nested.extend(&input[part.clone()]);
    nested.extend(close.repeat(levels).bytes());
    nested.extend(&input[part.end..]);
    nested
}

/// The part from an opening bracket to the one that closes it, or to the end.
fn bracketed(input: &[u8], start: usize) -> std::ops::Range<usize> {
    let (mut depth, mut quoted) = (0_usize, false);
    for (at, byte) in input.iter().enumerate().skip(start) {
        match byte {
            b'"' if at == 0 || input[at - 1] != b'\\' => quoted = !quoted,
            b'{' | b'[' | b'(' if !quoted => depth += 1,
            b'}' | b']' | b')' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return start..at + 1;
        }
    }
    start..input.len()
}

/// Adds copies of an item to an array, or fields with distinct keys to an object.
fn widen(mut value: Value, size: usize, rng: &Rng) -> Value {
    for _ in 0..16 {
        let place = any_place(&mut value, rng);
        let child = match place {
            Value::Object(fields) => fields.values().next(),
            Value::Array(items) => items.first(),
            _ => continue,
        };
        let child = child.cloned().unwrap_or(Value::Null);
        let copies = size / (child.to_string().len() + 10);
        match place {
            Value::Object(fields) => fields.extend((0..copies).map(|number| (format!("k{number}"), child.clone()))),
            Value::Array(items) => items.extend((0..copies).map(|number| distinct(&child, number))),
            _ => {}
        }
        break;
    }
    value
}

/// A copy of an item whose texts differ from those of other copies, so that keys of lists do.
fn distinct(item: &Value, number: usize) -> Value {
    match item {
        Value::String(text) => format!("{text}{number}").into(),
        Value::Object(fields) => {
            let renamed = |(key, value): (&String, &Value)| match value {
                Value::String(text) => (key.clone(), format!("{text}{number}").into()),
                value => (key.clone(), value.clone()),
            };
            Value::Object(fields.iter().map(renamed).collect())
        }
        item => item.clone(),
    }
}

/// Repeats one letter or digit where it is, so that a name, text or number becomes long.
fn lengthen(mut input: Vec<u8>, size: usize, rng: &Rng) -> Vec<u8> {
    let places: Vec<usize> = (0..input.len()).filter(|at| input[*at].is_ascii_alphanumeric()).collect();
    if places.is_empty() {
        return repeat_slice(input, size, rng);
    }
    let at = *pick(&places, rng);
    let byte = input[at];
    input.splice(at..at, std::iter::repeat_n(byte, size));
    input
}

fn count(value: &Value) -> u64 {
    1 + match value {
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    }
}

fn nth<'v>(value: &'v mut Value, at: &mut u64) -> Option<&'v mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().find_map(|value| nth(value, at)),
        Value::Array(items) => items.iter_mut().find_map(|value| nth(value, at)),
        _ => None,
    }
}

/// A place of a value, chosen at random.
fn any_place<'v>(value: &'v mut Value, rng: &Rng) -> &'v mut Value {
    let mut at = rng.below(count(value));
    nth(value, &mut at).expect("there are as many places as were counted")
}

fn odd(rng: &Rng) -> Value {
    let deep =
        |n: u64, list: bool| (0..n).fold(json!(1), |inner, _| if list { json!([inner]) } else { json!({"a": inner}) });
    match rng.below(12) {
        0 => Value::Null,
        1 => json!(rng.below(2) == 0),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1e300),
        5 => pick(&WORDS, rng).to_owned().into(),
        6 => "a".repeat(rng.below(3000) as usize).into(),
        7 => deep(rng.below(120), true),
        8 => deep(rng.below(120), false),
        9 => (0..rng.below(400)).map(|i| json!(format!("v{i}"))).collect(),
        10 => json!({}),
        _ => json!([]),
    }
}

fn change_value(value: &mut Value, other: &Value, rng: &Rng) {
    let mut other = other.clone();
    let piece = any_place(&mut other, rng).clone();
    let place = any_place(value, rng);
    match (rng.below(7), place) {
        (0, place) => *place = odd(rng),
        (1, place) => *place = piece,
        (2, Value::Object(fields)) => drop(fields.insert(pick(&WORDS, rng).to_string(), piece)),
        (3, Value::Object(fields)) => {
            if let Some(name) = fields.keys().nth(rng.below(fields.len().max(1) as u64) as usize).cloned() {
                let moved = fields.remove(&name).unwrap_or_default();
                fields.insert(format!("{name}{}", pick(&WORDS, rng)), moved);
            }
        }
        (2 | 3, Value::Array(items)) => items.push(items.first().cloned().unwrap_or(piece)),
        (4, Value::Array(items)) => drop((!items.is_empty()).then(|| items.remove(0))),
        (4, Value::Object(fields)) => drop(fields.keys().next().cloned().and_then(|name| fields.remove(&name))),
        (_, Value::String(text)) => {
            let changed = change_bytes(std::mem::take(text).into_bytes(), &[], rng);
            *text = String::from_utf8_lossy(&changed).into_owned();
        }
        (_, place) => *place = json!([place.clone()]),
    }
}
