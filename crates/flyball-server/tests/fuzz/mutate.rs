//! New inputs from old ones: bytes changed anywhere, or values of JSON changed where they stand.

use flyball_core::Rng;
use serde_json::{Value, json};

/// What inputs are full of, and what they should not hold.
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

/// Makes an input from those there are.
pub(crate) fn mutate(pool: &[Vec<u8>], rng: &Rng) -> Vec<u8> {
    let mut input = pick(pool, rng).clone();
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
