//! Random strings and numbers, generated from the rendering's seed.

use super::json::base64;
use super::{INT, STR, Table, cost, int, text};
use crate::context::Call;
use crate::value::Value;

/// Limit of random characters per call.
const MAX_CHARS: i64 = 1 << 20;

pub(super) fn add(table: &mut Table) {
    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    table.add("randAlphaNum", cost::letters, &[INT], |call, args| {
        draw(call, int(&args[0]), &format!("{LETTERS}0123456789"))
    });
    table.add("randAlpha", cost::letters, &[INT], |call, args| draw(call, int(&args[0]), LETTERS));
    table.add("randNumeric", cost::letters, &[INT], |call, args| draw(call, int(&args[0]), "0123456789"));
    table.add("randAscii", cost::letters, &[INT], |call, args| {
        let printable: String = (' '..='~').collect();
        draw(call, int(&args[0]), &printable)
    });
    table.add("randInt", cost::letters, &[INT, INT], |call, args| {
        let (least, bound) = (int(&args[0]), int(&args[1]));
        match bound.checked_sub(least).and_then(|span| u64::try_from(span).ok()).filter(|span| *span > 0) {
            Some(span) => Ok(Value::int(least + i64::try_from(call.context.draws.below(span)).unwrap_or(0))),
            None => Err("invalid argument to Intn".to_owned()),
        }
    });
    table.add("randBytes", cost::letters, &[INT], |call, args| {
        let count = checked(call, int(&args[0]))?;
        Ok(Value::str(base64(&bytes(call, count))))
    });
    table.add("shuffle", draws, &[STR], |call, args| {
        let mut chars: Vec<char> = text(&args[0]).chars().collect();
        for at in (1..chars.len()).rev() {
            let bound = u64::try_from(at + 1).unwrap_or(u64::MAX);
            chars.swap(at, usize::try_from(call.context.draws.below(bound)).unwrap_or(0));
        }
        Ok(Value::str(chars.into_iter().collect::<String>()))
    });
    table.add("uuidv4", cost::letters, &[], |call, _| {
        let mut id = bytes(call, 16);
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        let hex = flyball_core::hex::encode(&id);
        Ok(Value::str(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])))
    });
}

/// Cost of shuffling the characters of a string.
fn draws(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    let length = text(&args[0]).len();
    cost::letters(call, args)?;
    call.context.charge(length, length * size_of::<char>())
}

fn checked(call: &Call<'_>, count: i64) -> Result<usize, String> {
    if count > MAX_CHARS {
        return Err(format!("at most {MAX_CHARS} random characters per call"));
    }
    let count = usize::try_from(count).map_err(|_| "the count is negative".to_owned())?;
    call.context.charge(count, count * 4)?;
    Ok(count)
}

/// Random bytes.
pub(super) fn bytes(call: &Call<'_>, count: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(count + 8);
    while out.len() < count {
        out.extend(call.context.draws.next().to_le_bytes());
    }
    out.truncate(count);
    out
}

fn draw(call: &Call<'_>, count: i64, from: &str) -> Result<Value, String> {
    let letters: Vec<char> = from.chars().collect();
    let bound = u64::try_from(letters.len()).unwrap_or(1);
    let one = |_| letters[usize::try_from(call.context.draws.below(bound)).unwrap_or(0)];
    Ok(Value::str((0..checked(call, count)?).map(one).collect::<String>()))
}
