//! Numbers: conversions of spf13/cast, wrapping arithmetic, sequences.

use super::decimal::Decimal;
use super::{ANY, FLOAT, INT, MAX_LIST_ITEMS, STR, Table, cost, float, int, ints, text};
use crate::format::display;
use crate::number::{parse_float, parse_int};
use crate::value::{IntKind, Value};

pub(super) fn add(table: &mut Table) {
    table.add("atoi", cost::deep, &[STR], |_, args| Ok(Value::int(parse_int(&text(&args[0]), 10).unwrap_or(0))));
    table.add("int", cost::deep, &[ANY], |_, args| Ok(Value::int(to_int(&args[0]))));
    table.add("int64", cost::deep, &[ANY], |_, args| Ok(Value::int64(to_int(&args[0]))));
    table.add("float64", cost::deep, &[ANY], |_, args| Ok(Value::Float(to_float(&args[0]))));
    table.add("toDecimal", cost::deep, &[ANY], |_, args| {
        Ok(Value::int64(parse_int(&display(&args[0]), 8).unwrap_or(0)))
    });
    table.add("add1", cost::deep, &[ANY], |_, args| Ok(Value::int64(to_int(&args[0]).wrapping_add(1))));
    table.variadic("add", cost::deep, &[ANY], |_, args| {
        Ok(Value::int64(args.iter().map(to_int).fold(0, i64::wrapping_add)))
    });
    table.add("sub", cost::deep, &[ANY, ANY], |_, args| {
        Ok(Value::int64(to_int(&args[0]).wrapping_sub(to_int(&args[1]))))
    });
    table.add("div", cost::deep, &[ANY, ANY], |_, args| divide(args, i64::wrapping_div));
    table.add("mod", cost::deep, &[ANY, ANY], |_, args| divide(args, i64::wrapping_rem));
    table.variadic("mul", cost::deep, &[ANY, ANY], |_, args| {
        Ok(Value::int64(args.iter().map(to_int).fold(1, i64::wrapping_mul)))
    });
    table.add("add1f", cost::deep, &[ANY], |_, args| decimals(&args[0], &[Value::int(1)], Decimal::add));
    table.variadic("addf", cost::deep, &[ANY], |_, args| decimals(&Value::Float(0.0), args, Decimal::add));
    table.variadic("subf", cost::deep, &[ANY, ANY], |_, args| decimals(&args[0], &args[1..], Decimal::sub));
    table.variadic("mulf", cost::deep, &[ANY, ANY], |_, args| decimals(&args[0], &args[1..], Decimal::mul));
    table.variadic("divf", cost::deep, &[ANY, ANY], |_, args| {
        if args[1..].iter().any(|arg| to_float(arg) == 0.0) {
            return Err("decimal division by 0".to_owned());
        }
        decimals(&args[0], &args[1..], Decimal::div)
    });
    for name in ["max", "biggest"] {
        table.variadic(name, cost::deep, &[ANY, ANY], |_, args| {
            Ok(Value::int64(args.iter().map(to_int).max().unwrap_or(0)))
        });
    }
    table.variadic("min", cost::deep, &[ANY, ANY], |_, args| {
        Ok(Value::int64(args.iter().map(to_int).min().unwrap_or(0)))
    });
    table.variadic("maxf", cost::deep, &[ANY, ANY], |_, args| {
        Ok(Value::Float(args.iter().map(to_float).fold(f64::NEG_INFINITY, f64::max)))
    });
    table.variadic("minf", cost::deep, &[ANY, ANY], |_, args| {
        Ok(Value::Float(args.iter().map(to_float).fold(f64::INFINITY, f64::min)))
    });
    table.add("ceil", cost::deep, &[ANY], |_, args| Ok(Value::Float(to_float(&args[0]).ceil())));
    table.add("floor", cost::deep, &[ANY], |_, args| Ok(Value::Float(to_float(&args[0]).floor())));
    table.variadic("round", cost::deep, &[ANY, INT, FLOAT], |_, args| {
        #[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
        let power = 10f64.powf(int(&args[1]) as f64);
        let bound = args.get(2).map_or(0.5, float);
        let scaled = power * to_float(&args[0]);
        let rounded = if scaled.fract() >= bound { scaled.ceil() } else { scaled.floor() };
        Ok(Value::Float(rounded / power))
    });
    table.add("until", cost::deep, &[INT], |_, args| {
        let count = int(&args[0]);
        Ok(ints(range(0, count, if count < 0 { -1 } else { 1 })?))
    });
    table.add("untilStep", cost::deep, &[INT, INT, INT], |_, args| {
        Ok(ints(range(int(&args[0]), int(&args[1]), int(&args[2]))?))
    });
    table.variadic("seq", cost::deep, &[INT], |_, args| {
        let numbers: Vec<i64> = args.iter().map(int).collect();
        let numbers = match numbers.as_slice() {
            [end] => {
                let step = if *end < 1 { -1 } else { 1 };
                range(1, end.saturating_add(step), step)?
            }
            [start, end] => {
                let step = if end < start { -1 } else { 1 };
                range(*start, end.saturating_add(step), step)?
            }
            [start, step, end] if end < start => {
                if *step > 0 {
                    return Ok(Value::str(""));
                }
                range(*start, end.saturating_sub(1), *step)?
            }
            [start, step, end] => range(*start, end.saturating_add(1), *step)?,
            _ => Vec::new(),
        };
        Ok(Value::str(numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")))
    });
}

/// Go's conversion: truncates toward zero, and returns the smallest number if the value is out of range.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "bounds are checked before")]
fn truncate(number: f64) -> i64 {
    if number.is_nan() || number >= i64::MAX as f64 || number < i64::MIN as f64 { i64::MIN } else { number as i64 }
}

/// Sprig's `toInt64`.
pub(super) fn to_int(value: &Value) -> i64 {
    match value {
        Value::Bool(is) => i64::from(*is),
        Value::Int(_, number) => *number,
        Value::Float(number) => truncate(*number),
        Value::Str(_) => {
            let text = text(value);
            let whole = match text.split_once('.') {
                Some((whole, fraction)) if fraction.bytes().all(|b| b.is_ascii_digit()) => {
                    if matches!(whole, "" | "-" | "+") { "0" } else { whole }
                }
                _ => &text,
            };
            parse_int(whole, 0).unwrap_or(0)
        }
        Value::Object(object) => object.as_int().unwrap_or(0),
        _ => 0,
    }
}

/// Sprig's `toFloat64`.
pub(super) fn to_float(value: &Value) -> f64 {
    match value {
        Value::Float(number) => *number,
        Value::Str(_) => parse_float(&text(value)).unwrap_or(0.0),
        #[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
        Value::Int(IntKind::Uint64, number) => u64::from_ne_bytes(number.to_ne_bytes()) as f64,
        #[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
        other => to_int(other) as f64,
    }
}

fn divide(args: &[Value], by: fn(i64, i64) -> i64) -> Result<Value, String> {
    match to_int(&args[1]) {
        0 => Err("runtime error: integer divide by zero".to_owned()),
        divisor => Ok(Value::int64(by(to_int(&args[0]), divisor))),
    }
}

fn decimals(first: &Value, others: &[Value], apply: fn(Decimal, Decimal) -> Decimal) -> Result<Value, String> {
    let decimal = |value: &Value| {
        let number = to_float(value);
        if number.is_finite() {
            Ok(Decimal::from(number))
        } else {
            Err(format!("Cannot create a Decimal from {number}"))
        }
    };
    let mut result = decimal(first)?;
    for other in others {
        result = apply(result, decimal(other)?);
    }
    Ok(Value::Float(result.to_float()))
}

/// Returns the numbers from one to another, ascending or descending.
fn range(start: i64, stop: i64, step: i64) -> Result<Vec<i64>, String> {
    let mut numbers = Vec::new();
    if step == 0 || (stop < start) != (step < 0) {
        return Ok(numbers);
    }
    let mut at = start;
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        if numbers.len() >= MAX_LIST_ITEMS {
            return Err(format!("the sequence has more than {MAX_LIST_ITEMS} numbers"));
        }
        numbers.push(at);
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    Ok(numbers)
}
