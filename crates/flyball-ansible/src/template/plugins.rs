//! Lookups that only arrange their terms, such as `dict` and `together`, for templates and for the loops `with_…`.

use super::sequence::sequence;
use super::weight;
use crate::value::{Value as Json, json};
use crate::yaml::{to_text, type_name};

/// The supported ones.
pub(crate) const PLUGINS: [&str; 8] =
    ["dict", "indexed_items", "items", "list", "nested", "sequence", "subelements", "together"];

/// Returns the results of a lookup. Each is charged before it is created.
pub(crate) fn arranged(
    kind: &str,
    terms: Vec<Json>,
    charge: &dyn Fn(u64) -> Result<(), String>,
) -> Result<Vec<Json>, String> {
    match kind {
        "items" => Ok(flattened(terms)),
        "list" => Ok(terms),
        "indexed_items" => Ok(flattened(terms).into_iter().enumerate().map(|(at, item)| json!([at, item])).collect()),
        "dict" => fields(terms),
        "together" => together(lists(kind, terms)?, charge),
        "nested" => nested(lists(kind, terms)?, charge),
        "subelements" => subelements(terms, charge),
        "sequence" => {
            let texts = terms.iter().map(|term| sequence(&to_text(term))).collect::<Result<Vec<_>, _>>()?;
            Ok(texts.into_iter().flatten().map(Json::from).collect())
        }
        other => Err(format!("unknown lookup {other}")),
    }
}

/// Returns the items of a list, and of lists in it.
fn flattened(items: Vec<Json>) -> Vec<Json> {
    items.into_iter().flat_map(|item| if let Json::Array(items) = item { items } else { vec![item] }).collect()
}

/// Returns the entries of maps.
fn fields(terms: Vec<Json>) -> Result<Vec<Json>, String> {
    let mut found = Vec::new();
    for term in flattened(terms) {
        match term {
            Json::Object(fields) => {
                found.extend(fields.into_iter().map(|(key, value)| json!({"key": key, "value": value})));
            }
            other => return Err(format!("with_dict expects a dict, not {}", type_name(&other))),
        }
    }
    Ok(found)
}

fn lists(kind: &str, terms: Vec<Json>) -> Result<Vec<Vec<Json>>, String> {
    match terms.is_empty() {
        true => Err(format!("with_{kind} requires at least one element in each list")),
        false => Ok(terms.into_iter().map(|term| flattened(vec![term])).collect()),
    }
}

/// Returns the first items of all lists, then the second ones, and so on.
fn together(lists: Vec<Vec<Json>>, charge: &dyn Fn(u64) -> Result<(), String>) -> Result<Vec<Json>, String> {
    let length = lists.iter().map(Vec::len).max().unwrap_or_default();
    charge(length.saturating_mul(lists.len()) as u64)?;
    let row = |at: usize| lists.iter().map(|list| list.get(at).cloned().unwrap_or_default()).collect();
    Ok((0..length).map(|at| Json::Array(flattened(row(at)))).collect())
}

/// Returns all combinations of items; those of the last list vary first.
fn nested(lists: Vec<Vec<Json>>, charge: &dyn Fn(u64) -> Result<(), String>) -> Result<Vec<Json>, String> {
    let mut rows: Vec<Vec<Json>> = vec![Vec::new()];
    for list in lists {
        let mut longer = Vec::new();
        let weights = list.iter().map(weight).collect::<Result<Vec<_>, _>>()?;
        for row in &rows {
            let size = row.iter().map(weight).sum::<Result<u64, String>>()?;
            for (item, weight) in list.iter().zip(&weights) {
                charge(size.saturating_add(*weight))?;
                longer.push(row.iter().cloned().chain(flattened(vec![item.clone()])).collect());
            }
        }
        rows = longer;
    }
    Ok(rows.into_iter().map(Json::Array).collect())
}

/// Pairs each map with the items of a list in it.
fn subelements(terms: Vec<Json>, charge: &dyn Fn(u64) -> Result<(), String>) -> Result<Vec<Json>, String> {
    let (Some(elements), Some(path)) = (terms.first(), terms.get(1).and_then(Json::as_str)) else {
        return Err("subelements lookup expects a list of two or three items".to_owned());
    };
    let skips = terms.get(2).and_then(|flags| flags.get("skip_missing")).and_then(crate::yaml::truth).unwrap_or(false);
    let elements: Vec<&Json> = match elements {
        Json::Array(elements) => elements.iter().collect(),
        Json::Object(fields) => fields.values().collect(),
        other => return Err(format!("subelements: first a dict or a list expected, not {}", type_name(other))),
    };
    let path: Vec<&str> = path.split('.').collect();
    let mut pairs = Vec::new();
    // Results of skipped tasks have no list.
    let is_skipped = |element: &&Json| element.get("skipped").is_some_and(|skipped| *skipped != false);
    for element in elements.into_iter().filter(|element| !is_skipped(element)) {
        let found = path.iter().try_fold(element, |value, field| value.get(*field));
        let inner = match found {
            Some(Json::Array(inner)) => inner.as_slice(),
            Some(_) if skips => &[],
            Some(_) => return Err(format!("subelements: the key {} should point to a list", path.join("."))),
            None if skips => &[],
            None => return Err(format!("subelements: could not find '{}' key in iterated item", path.join("."))),
        };
        // As in Ansible, the map of a pair has no longer that list.
        let mut rest = element.clone();
        without(&mut rest, &path);
        for item in inner {
            charge(weight(element)?)?;
            pairs.push(json!([rest, item]));
        }
    }
    Ok(pairs)
}

/// Removes a field at a path.
fn without(value: &mut Json, path: &[&str]) {
    match path {
        [] => {}
        [last] => drop(value.as_object_mut().map(|fields| fields.remove(last))),
        [first, rest @ ..] => value.get_mut(*first).into_iter().for_each(|inner| without(inner, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn combinations_are_charged_before_they_are_created() {
        let heavy = json!("a".repeat(1 << 20));
        let (charged, calls) = (Cell::new(0), Cell::new(0));
        let charge = |work: u64| {
            charged.set(charged.get() + work);
            calls.set(calls.get() + 1);
            if calls.get() > 1_000 { Err("too much".to_owned()) } else { Ok(()) }
        };
        let terms = vec![json!([heavy]), json!(vec![1; 100]), json!(vec![1; 100_000])];
        assert_eq!(arranged("nested", terms, &charge), Err("too much".to_owned()));
        assert!(charged.get() >= 1_000 * weight(&heavy).unwrap(), "each row has a copy of the first item");
        calls.set(0);
        let rows = arranged("nested", vec![json!([1, [2]]), json!(["a"])], &charge).unwrap();
        assert_eq!(rows, [json!([1, "a"]), json!([2, "a"])]);
    }
}
