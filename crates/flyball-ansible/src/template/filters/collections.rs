//! Filters of lists and maps.

use super::super::output::check_size;
use super::super::printf::type_name;
use super::super::{from_json, items, reject, weigh, weight_of_fields};
use super::{ignore, to_json};
use crate::value::{Map, Value as Json};
use crate::yaml;
use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind};
use minijinja::{Environment, Error, State};
use std::collections::{BTreeMap, BTreeSet};

/// The ways of `combine` to merge lists; the first one is the default.
const LIST_MERGES: [&str; 6] = ["replace", "keep", "append", "prepend", "append_rp", "prepend_rp"];
/// Nesting limit of flattened lists.
const MAX_DEPTH: usize = 64;

pub(super) fn add(env: &mut Environment<'static>) {
    add_maps(env);
    add_sets(env);
    env.add_filter("unique", unique);
    env.add_filter("ternary", |value: Value, yes: Value, no: Value, none: Option<Value>| match none {
        Some(none) if value.is_none() => none,
        _ if value.is_true() => yes,
        _ => no,
    });
    env.add_filter("flatten", |state: &State<'_, '_>, list: Value, options: Kwargs| {
        let levels: Option<usize> = options.get("levels")?;
        ignore(&options, &["skip_nulls"])?;
        options.assert_all_used()?;
        let mut flat = Vec::new();
        flatten(&to_json(state, &list)?, levels.unwrap_or(MAX_DEPTH).min(MAX_DEPTH) + 1, &mut flat);
        Ok::<_, Error>(from_json(flat))
    });
    env.add_filter("extract", |key: Value, container: Value| container.get_item(&key));
}

/// Adds the filters of maps.
fn add_maps(env: &mut Environment<'static>) {
    env.add_filter("combine", combined);
    env.add_filter("dict2items", |state: &State<'_, '_>, map: Value, options: Kwargs| {
        let key: Option<String> = options.get("key_name")?;
        let value: Option<String> = options.get("value_name")?;
        options.assert_all_used()?;
        let (key, value) = (key.unwrap_or_else(|| "key".into()), value.unwrap_or_else(|| "value".into()));
        let Json::Object(fields) = to_json(state, &map)? else {
            return Err(reject("dict2items: the value must be a map"));
        };
        check_size("dict2items", fields.len().saturating_mul(key.len().saturating_add(value.len())))?;
        let item = |(name, field): (String, Json)| {
            Json::Object([(key.clone(), name.into()), (value.clone(), field)].into_iter().collect())
        };
        Ok(from_json(fields.into_iter().map(item).collect::<Vec<_>>()))
    });
    env.add_filter("items2dict", items_to_map);
}

/// Adds the filters that take lists as sets.
fn add_sets(env: &mut Environment<'static>) {
    env.add_filter("union", |state: &State<'_, '_>, left: Value, right: Value| {
        distinct(items(state, &left)?.into_iter().chain(items(state, &right)?), sorted)
    });
    env.add_filter("intersect", |state: &State<'_, '_>, left: Value, right: Value| chosen(state, &left, &right, true));
    env.add_filter("difference", |state: &State<'_, '_>, left: Value, right: Value| {
        chosen(state, &left, &right, false)
    });
    env.add_filter("symmetric_difference", |state: &State<'_, '_>, left: Value, right: Value| {
        Ok::<_, Error>([chosen(state, &left, &right, false)?, chosen(state, &right, &left, false)?].concat())
    });
}

/// The filter `combine`.
fn combined(state: &State<'_, '_>, first: Value, others: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let recursive = options.get::<Option<bool>>("recursive")?.unwrap_or(false);
    let lists: Option<String> = options.get("list_merge")?;
    if options.assert_all_used().is_err() {
        return Err(reject("'recursive' and 'list_merge' are the only valid keyword arguments"));
    }
    let lists = lists.as_deref().unwrap_or(LIST_MERGES[0]);
    if !LIST_MERGES.contains(&lists) {
        return Err(reject(
            "merge_hash: 'list_merge' argument can only be equal to 'replace', 'keep', 'append', 'prepend', \
             'append_rp' or 'prepend_rp'",
        ));
    }
    let mut all = maps(state, &first)?;
    for other in &*others {
        all.extend(maps(state, other)?);
    }
    // As in Ansible, from the last one to the first one, which decides about the order of equal maps.
    let mut last_to_first = all.into_iter().rev();
    let last = last_to_first.next().unwrap_or_default();
    let combined = last_to_first.try_fold(last, |known, map| combine(state, map, known, recursive, lists))?;
    Ok(from_json(combined))
}

/// The filter `items2dict`. Errors do not show the items, which may be secret.
fn items_to_map(
    state: &State<'_, '_>,
    list: Value,
    key: Option<String>,
    value: Option<String>,
    options: Kwargs,
) -> Result<Value, Error> {
    let key = key.or(options.get("key_name")?).unwrap_or_else(|| "key".into());
    let value = value.or(options.get("value_name")?).unwrap_or_else(|| "value".into());
    options.assert_all_used()?;
    weigh(state, &list)?;
    if !matches!(list.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Err(reject(format!("items2dict requires a list, got {} instead", type_name(&list))));
    }
    let mut map = Map::new();
    for item in list.try_iter()? {
        if item.kind() != ValueKind::Map {
            return Err(reject("items2dict requires a list of dictionaries"));
        }
        let (name, field) = (item.get_attr(&key)?, item.get_attr(&value)?);
        if name.is_undefined() || field.is_undefined() {
            return Err(reject(format!(
                "items2dict requires each dictionary in the list to contain the keys '{key}' and '{value}'"
            )));
        }
        map.insert(name.to_string(), super::super::to_json(&field)?);
    }
    Ok(from_json(map))
}

/// Returns a map, or the maps of a list.
fn maps(state: &State<'_, '_>, value: &Value) -> Result<Vec<Map>, Error> {
    match to_json(state, value)? {
        Json::Object(map) => Ok(vec![map]),
        Json::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Json::Object(map) => Ok(map),
                other => Err(reject(format!("combine requires maps, not {}", yaml::type_name(&other)))),
            })
            .collect(),
        other => Err(reject(format!("combine requires maps, not {}", yaml::type_name(&other)))),
    }
}

/// Combines two maps; fields of the second one take precedence. A field keeps its place in the first one, unless the
/// maps are equal.
fn combine(state: &State<'_, '_>, mut into: Map, from: Map, recursive: bool, lists: &str) -> Result<Map, Error> {
    // Each level of nested maps is compared.
    state.consume_fuel(weight_of_fields(&from).map_err(reject)?)?;
    if into == from {
        return Ok(from);
    }
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Json::Object(known)), Json::Object(value)) if recursive => {
                *known = combine(state, std::mem::take(known), value, recursive, lists)?;
            }
            (Some(Json::Array(known)), Json::Array(mut value)) => match lists {
                "keep" => {}
                "append" => known.append(&mut value),
                // Equal items of the first list are omitted.
                "append_rp" => {
                    without(known, &value);
                    known.append(&mut value);
                }
                "prepend_rp" => {
                    without(known, &value);
                    value.append(known);
                    *known = value;
                }
                "prepend" => {
                    value.append(known);
                    *known = value;
                }
                _ => *known = value,
            },
            (_, value) => drop(into.insert(key, value)),
        }
    }
    Ok(into)
}

/// Removes items that are in another list.
fn without(items: &mut Vec<Json>, other: &[Json]) {
    let text = |item: &Json| item.sorted().to_string();
    let other: BTreeSet<String> = other.iter().map(text).collect();
    items.retain(|item| !other.contains(&text(item)));
}

/// Returns the distinct items of a list that are, or are not, in another list.
fn chosen(state: &State<'_, '_>, of: &Value, other: &Value, is_in: bool) -> Result<Vec<Value>, Error> {
    let other = items(state, other)?.iter().map(sorted).collect::<Result<BTreeSet<_>, _>>()?;
    let mut found = Vec::new();
    for item in items(state, of)? {
        if other.contains(&sorted(&item)?) == is_in {
            found.push(item);
        }
    }
    distinct(found, sorted)
}

/// Returns the first one of items with equal keys.
fn distinct(
    items: impl IntoIterator<Item = Value>,
    key: impl Fn(&Value) -> Result<Value, Error>,
) -> Result<Vec<Value>, Error> {
    let (mut known, mut found) = (BTreeSet::new(), Vec::new());
    for item in items {
        if known.insert(key(&item)?) {
            found.push(item);
        }
    }
    Ok(found)
}

/// Returns a value with the fields of all maps sorted, since the order of two maps depends on that of their fields.
pub(in super::super) fn sorted(value: &Value) -> Result<Value, Error> {
    Ok(match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.map(|item| sorted(&item)).collect::<Result<Vec<_>, _>>()?;
            if value.is_tuple() { Tuple::from(items).into() } else { items.into() }
        }
        ValueKind::Map => {
            let field = |key: Value| Ok((key.clone(), sorted(&value.get_item(&key)?)?));
            let fields = value.try_iter()?.map(field).collect::<Result<Vec<_>, Error>>()?;
            Value::from_pairs(fields.into_iter().collect::<BTreeMap<Value, Value>>())
        }
        _ => value.clone(),
    })
}

/// The filter `unique`.
fn unique(state: &State<'_, '_>, list: Value, options: Kwargs) -> Result<Vec<Value>, Error> {
    let attribute: Option<String> = options.get("attribute")?;
    let is_exact = options.get::<Option<bool>>("case_sensitive")?.unwrap_or(false);
    options.assert_all_used()?;
    let items = items(state, &list)?;
    // As in Ansible, which then compares without Jinja's filter.
    let is_hashable = |item: &Value| item.is_tuple() || !matches!(item.kind(), ValueKind::Seq | ValueKind::Map);
    let is_exact = is_exact || attribute.is_none() && !items.iter().all(is_hashable);
    distinct(items, |item| {
        let mut key = item.clone();
        for name in attribute.iter().flat_map(|path| path.split('.')) {
            key = match name.parse::<usize>() {
                Ok(index) => key.get_item(&index.into())?,
                Err(_) => key.get_attr(name)?,
            };
        }
        match key.as_str() {
            Some(text) if !is_exact => Ok(text.to_lowercase().into()),
            _ => sorted(&key),
        }
    })
}

fn flatten(value: &Json, levels: usize, into: &mut Vec<Json>) {
    match value {
        Json::Array(items) if levels > 0 => items.iter().for_each(|item| flatten(item, levels - 1, into)),
        Json::Null => {}
        other => into.push(other.clone()),
    }
}
