//! The functions of queries.

use super::parse::Node;
use super::{Evaluation, Problem, order};
use crate::value::{Map, Value as Json};
use serde_json::Number;
use std::borrow::Cow;
use std::cmp::Ordering;

/// Calls a function.
pub(super) fn call(evaluation: &Evaluation<'_>, name: &str, arguments: &[Node], value: &Json) -> Result<Json, Problem> {
    let reject = |problem: &str| Problem::Query(format!("{name}(): {problem}"));
    let (mut values, mut reference) = (Vec::new(), None);
    for argument in arguments {
        match argument {
            Node::Reference(node) => reference = Some(&**node),
            other => values.push(evaluation.own(evaluation.of(other, Cow::Borrowed(value))?)?),
        }
    }
    let charge = |work: usize| (evaluation.charge)(work as u64);
    let by = |item: &Json| -> Result<Json, Problem> {
        let node = reference.ok_or_else(|| reject("an expression with & is required"))?;
        evaluation.own(evaluation.of(node, Cow::Borrowed(item))?)
    };
    Ok(match (name, &mut values[..]) {
        ("length", [Json::Array(items)]) => items.len().into(),
        ("length", [Json::Object(fields)]) => fields.len().into(),
        ("length", [Json::String(text)]) => text.chars().count().into(),
        ("keys", [Json::Object(fields)]) => fields.keys().cloned().collect::<Vec<_>>().into(),
        ("values", [Json::Object(fields)]) => std::mem::take(fields).into_iter().map(|(_, field)| field).collect(),
        ("contains", [Json::String(text), Json::String(part)]) => text.contains(part.as_str()).into(),
        ("contains", [Json::String(_), _]) => false.into(),
        ("contains", [Json::Array(items), item]) => items.iter().any(|other| super::is_equal(item, other)).into(),
        ("starts_with", [Json::String(text), Json::String(part)]) => text.starts_with(part.as_str()).into(),
        ("ends_with", [Json::String(text), Json::String(part)]) => text.ends_with(part.as_str()).into(),
        ("join", [Json::String(separator), Json::Array(items)]) => {
            charge(separator.len().saturating_mul(items.len()) / crate::template::BYTES_PER_FUEL)?;
            let texts: Option<Vec<_>> = items.iter().map(Json::as_str).collect();
            texts.ok_or_else(|| reject("the list must contain strings"))?.join(separator).into()
        }
        ("not_null", all) => all.iter_mut().find(|one| !one.is_null()).map(std::mem::take).unwrap_or_default(),
        ("reverse", [Json::Array(items)]) => {
            items.reverse();
            std::mem::take(items).into()
        }
        ("reverse", [Json::String(text)]) => text.chars().rev().collect::<String>().into(),
        ("sort", [Json::Array(items)]) => {
            check_order(items).map_err(reject)?;
            items.sort_by(|left, right| order(left, right).unwrap_or(Ordering::Equal));
            std::mem::take(items).into()
        }
        ("max" | "min", [Json::Array(items)]) => {
            check_order(items).map_err(reject)?;
            let items = std::mem::take(items).into_iter().map(|item| (item.clone(), item));
            extreme(items, name == "max")
        }
        ("sort_by" | "max_by" | "min_by", [Json::Array(items)]) => {
            let keyed = std::mem::take(items).into_iter().map(|item| Ok((by(&item)?, item)));
            let mut keyed = keyed.collect::<Result<Vec<_>, Problem>>()?;
            check_order(&keyed.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()).map_err(reject)?;
            if name != "sort_by" {
                return Ok(extreme(keyed.into_iter(), name == "max_by"));
            }
            keyed.sort_by(|(left, _), (right, _)| order(left, right).unwrap_or(Ordering::Equal));
            keyed.into_iter().map(|(_, item)| item).collect()
        }
        ("map", [Json::Array(items)]) => items.iter().map(by).collect::<Result<Vec<_>, _>>()?.into(),
        ("merge", all) => {
            let mut merged = Map::new();
            for one in all {
                let Json::Object(fields) = one else { return Err(reject("all arguments must be maps")) };
                merged.extend(std::mem::take(fields));
            }
            merged.into()
        }
        ("to_array", [Json::Array(items)]) => std::mem::take(items).into(),
        ("to_array", [one]) => Json::Array(vec![std::mem::take(one)]),
        ("to_string", [Json::String(text)]) => std::mem::take(text).into(),
        ("to_string", [one]) => one.to_string().into(),
        ("to_number", [Json::Number(number)]) => Json::Number(number.clone()),
        ("to_number", [Json::String(text)]) => {
            serde_json::from_str::<Number>(text).map(Json::Number).unwrap_or_default()
        }
        ("to_number", [_]) => Json::Null,
        ("type", [one]) => match one {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        }
        .into(),
        ("abs", [Json::Number(number)]) => match number.as_i64().and_then(i64::checked_abs) {
            Some(whole) => whole.into(),
            None => number.as_f64().map(f64::abs).into(),
        },
        ("ceil", [Json::Number(number)]) => rounded(number, f64::ceil),
        ("floor", [Json::Number(number)]) => rounded(number, f64::floor),
        ("sum" | "avg", [Json::Array(items)]) => {
            let numbers: Option<Vec<_>> = items.iter().map(Json::as_f64).collect();
            let numbers = numbers.ok_or_else(|| reject("the list must contain numbers"))?;
            let sum: f64 = numbers.iter().sum();
            match name {
                "avg" if numbers.is_empty() => Json::Null,
                "avg" => (sum / numbers.len() as f64).into(),
                _ if items.iter().all(|item| item.is_i64()) => (sum as i64).into(),
                _ => sum.into(),
            }
        }
        _ => return Err(reject("unknown function, or invalid arguments")),
    })
}

/// Rejects items other than only numbers or only texts.
fn check_order(items: &[Json]) -> Result<(), &'static str> {
    match items.iter().all(Json::is_number) || items.iter().all(Json::is_string) {
        true => Ok(()),
        false => Err("the values must be all numbers or all strings"),
    }
}

/// Returns the first item with the largest or smallest key; null if there is none.
fn extreme(items: impl Iterator<Item = (Json, Json)>, largest: bool) -> Json {
    let wanted = if largest { Ordering::Greater } else { Ordering::Less };
    let better =
        |best: (Json, Json), next: (Json, Json)| if order(&next.0, &best.0) == Some(wanted) { next } else { best };
    items.reduce(better).map_or(Json::Null, |(_, item)| item)
}

fn rounded(number: &Number, round: impl Fn(f64) -> f64) -> Json {
    if number.is_f64() {
        number.as_f64().map(|number| round(number) as i64).into()
    } else {
        Json::Number(number.clone())
    }
}
