//! Filters that combine lists.

use super::{from_json, items, reject, to_json};
use crate::value::Value as Json;
use minijinja::value::{Kwargs, Rest, Tuple, Value};
use minijinja::{Environment, Error, State};

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("product", |state: &State<'_, '_>, first: Value, others: Rest<Value>| {
        let mut rows = vec![Vec::new()];
        for list in std::iter::once(&first).chain(&*others) {
            let list = items(state, list)?;
            let cells = rows.len().saturating_mul(list.len()).saturating_mul(others.len() + 1);
            state.consume_fuel(cells as u64)?;
            let extended = |row: &Vec<Value>| -> Vec<Vec<Value>> {
                list.iter().map(|item| [row.as_slice(), std::slice::from_ref(item)].concat()).collect()
            };
            rows = rows.iter().flat_map(extended).collect();
        }
        Ok::<_, Error>(rows.into_iter().map(|row| Tuple::from(row).into()).collect::<Vec<Value>>())
    });
    env.add_filter("zip_longest", |state: &State<'_, '_>, first: Value, others: Rest<Value>, options: Kwargs| {
        let fill: Option<Value> = options.get("fillvalue")?;
        options.assert_all_used()?;
        let lists = std::iter::once(&first).chain(&*others).map(|list| items(state, list));
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        let length = lists.iter().map(Vec::len).max().unwrap_or_default();
        state.consume_fuel(length.saturating_mul(lists.len()) as u64)?;
        let fill = fill.unwrap_or_else(|| Value::from(()));
        let cells = |at: usize| lists.iter().map(|list| list.get(at).unwrap_or(&fill).clone()).collect::<Vec<_>>();
        Ok::<_, Error>((0..length).map(|at| Tuple::from(cells(at)).into()).collect::<Vec<Value>>())
    });
    env.add_filter("subelements", subelements);
}

/// Pairs each map of a list with the items of a list in it.
fn subelements(
    state: &State<'_, '_>,
    list: Value,
    path: Value,
    skip_missing: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let skip_missing = skip_missing.or(options.get("skip_missing")?).unwrap_or(false);
    options.assert_all_used()?;
    let path: Vec<String> = match path.as_str() {
        Some(path) => path.split('.').map(str::to_owned).collect(),
        None => items(state, &path)?.iter().map(ToString::to_string).collect(),
    };
    super::weigh(state, &list)?;
    let elements: Vec<Json> = match to_json(&list)? {
        Json::Array(elements) => elements,
        Json::Object(fields) => fields.into_iter().map(|(_, element)| element).collect(),
        _ => return Err(reject("subelements: the value must be a list or a map")),
    };
    let mut pairs = Vec::new();
    for element in elements {
        let found = path.iter().try_fold(&element, |value, field| value.get(field));
        let inner = match found {
            Some(Json::Array(inner)) => inner.clone(),
            Some(_) => return Err(reject(format!("subelements: the key {} must have a list", path.join(".")))),
            None if skip_missing => Vec::new(),
            None => return Err(reject(format!("subelements: could not find '{}' key", path.join(".")))),
        };
        for item in inner {
            state.consume_fuel(super::weight(&element).map_err(reject)?)?;
            pairs.push(Value::from((from_json(&element), from_json(item))));
        }
    }
    Ok(pairs.into())
}
