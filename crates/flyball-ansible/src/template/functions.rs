//! `lookup` and related functions, and methods of values.

use super::lookups::{short, unknown_lookup};
use super::output::check_size;
use super::{Files, PLUGINS, Scope, arranged, format, from_json, methods, password, reject, time, undefined, weigh};
use crate::value::{Map, Value as Json};
use minijinja::formatting::FormatStyle;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, State};
use std::sync::Arc;

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_function("lookup", |state: &State<'_, '_>, kind: String, terms: Rest<Value>, options: Kwargs| {
        let found = look_up(state, &kind, &terms, &options)?;
        // As in Ansible, a single result is returned as it is, several are joined.
        match <[Value; 1]>::try_from(found) {
            Ok([one]) => Ok(one),
            Err(found) if !found.is_empty() && found.iter().all(|found| found.as_str().is_some()) => {
                let texts: Vec<_> = found.iter().filter_map(Value::as_str).collect();
                Ok(Value::from(texts.join(",")))
            }
            Err(found) => Ok(Value::from(found)),
        }
    });
    for name in ["query", "q"] {
        env.add_function(name, |state: &State<'_, '_>, kind: String, terms: Rest<Value>, options: Kwargs| {
            look_up(state, &kind, &terms, &options).map(Value::from)
        });
    }
    env.remove_global("debug");
    env.add_function("now", time::now_function);
    env.add_function("dict", |state: &State<'_, '_>, pairs: Option<Value>, fields: Kwargs| {
        let mut map = Map::new();
        for pair in pairs.iter().filter(|pairs| !pairs.is_kwargs()) {
            match to_json(state, pair)? {
                Json::Object(fields) => map.extend(fields),
                Json::Array(pairs) => {
                    for pair in pairs {
                        let (Some(key), Some(value)) = (pair.get(0), pair.get(1)) else {
                            return Err(reject("dict requires a map or a list of pairs"));
                        };
                        map.insert(key.as_str().map_or_else(|| key.to_string(), str::to_owned), value.clone());
                    }
                }
                _ => return Err(reject("dict requires a map or a list of pairs")),
            }
        }
        for name in fields.args() {
            map.insert(name.to_owned(), to_json(state, &fields.get::<Value>(name)?)?);
        }
        Ok(from_json(map))
    });
}

/// Charges fuel for a value, and converts it.
fn to_json(state: &State<'_, '_>, value: &Value) -> Result<Json, Error> {
    weigh(state, value)?;
    super::check_defined(value)?;
    super::to_json(value)
}

/// Calls a Python method. The engine charges a result after its creation, so results that may be large are checked in
/// advance.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(Value::UNDEFINED);
    }
    methods::check_defined(method, arguments)?;
    match (value.as_str(), method, arguments) {
        (Some(separator), "join", [list]) => {
            weigh(state, list)?;
            // The length of values such as `map.values()` is unknown.
            let count = list.len().map_or_else(|| Ok::<_, Error>(list.try_iter()?.count()), Ok)?;
            check_size(method, count.saturating_mul(separator.len()))?;
            if list.try_iter()?.any(|item| item.is_undefined()) {
                return Err(undefined());
            }
        }
        (Some(text), "format", arguments) => format::charge(state, text, arguments)?,
        (Some(text), "format_map", [map]) if map.kind() == ValueKind::Map => {
            let fields = map.try_iter()?.map(|key| Ok((key.to_string(), map.get_item(&key)?)));
            let arguments = [Value::from(fields.collect::<Result<Kwargs, Error>>()?)];
            format::charge(state, text, &arguments)?;
            return minijinja::formatting::format(FormatStyle::StrFormat, text, &arguments).map(Value::from);
        }
        // The engine would return null.
        (None, "get", [key, default]) if default.is_undefined() && value.kind() == ValueKind::Map => {
            return value.get_item(key);
        }
        (None, "index", _) => weigh(state, value)?,
        _ => {}
    }
    if let Some(result) = time::method(value, method, arguments) {
        return result;
    }
    let text = value.as_str().filter(|_| value.kind() == ValueKind::String);
    let result = text.and_then(|text| methods::of_text(text, method, arguments));
    if let Some(result) = result.or_else(|| methods::of_other(value, method, arguments)) {
        return result;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

fn look_up(state: &State<'_, '_>, kind: &str, terms: &[Value], options: &Kwargs) -> Result<Vec<Value>, Error> {
    let scope = Scope::of(state)?;
    let kind = short(kind);
    if kind == "k8s" {
        return objects(&scope, terms, options);
    }
    if PLUGINS.contains(&kind) {
        return arrange(state, &scope, kind, terms, options);
    }
    let text = |term: &Value| {
        term.as_str().map(str::to_owned).ok_or_else(|| reject(format!("{kind}: {term} must be a string")))
    };
    let mut found = Vec::new();
    for term in terms {
        match kind {
            "template" => {
                let name = text(term)?;
                let found_in = |files: &Arc<Files>| Some((files.clone(), files.template(&name)?.clone()));
                let template = scope.files().iter().find_map(found_in);
                let (files, (path, template)) =
                    template.ok_or_else(|| reject(format!("template {}", scope.absence(&name))))?;
                let rendered = scope.render_file(&files, &name, &template);
                found.push(rendered.map_err(|error| reject(format!("{}: {error}", path.display())))?.into());
            }
            "file" => {
                let name = text(term)?;
                let file = scope.files().iter().find_map(|files| files.file(&name));
                let (_, file) = file.ok_or_else(|| reject(format!("file {}", scope.absence(&name))))?;
                found.push(file.trim_end().into());
            }
            "env" => {
                let default: Option<Value> = options.get("default")?;
                let name = text(term)?;
                let value = Some(name)
                    .filter(|name| scope.may_read_environment(name))
                    .and_then(|name| std::env::var(name).ok())
                    .map(Value::from);
                found.push(value.or(default).unwrap_or_else(|| "".into()));
            }
            "vars" => {
                let name = text(term)?;
                let value = scope.variable(&name).or(options.get("default")?);
                found.push(value.ok_or_else(|| reject(format!("'{name}' is undefined")))?);
            }
            "varnames" => found.extend(scope.names(state, &text(term)?)?.into_iter().map(Value::from)),
            "random_choice" => {
                weigh(state, term)?;
                let items: Vec<Value> = term.try_iter()?.collect();
                let drawn = match items.len() as u64 {
                    0 => return Err(reject("random_choice: the list is empty")),
                    count => scope.sources().below(count).map_err(reject)?,
                };
                found.push(items[drawn as usize].clone());
            }
            "password" => found.push(password::of(&scope, &text(term)?, options)?.into()),
            "pipe" => found.push(time::date(&scope, &text(term)?)?.into()),
            other => return Err(reject(unknown_lookup(other))),
        }
    }
    assert_no_others(options)?;
    Ok(found)
}

/// Rejects options, besides those without effect here.
fn assert_no_others(options: &Kwargs) -> Result<(), Error> {
    for option in ["wantlist", "errors", "convert_data", "rstrip", "lstrip"] {
        let _: Option<Value> = options.get(option)?;
    }
    options.assert_all_used()
}

/// Returns the results of a lookup that only arranges its terms.
fn arrange(
    state: &State<'_, '_>,
    scope: &Scope,
    kind: &str,
    terms: &[Value],
    options: &Kwargs,
) -> Result<Vec<Value>, Error> {
    let mut terms = terms.iter().map(|term| to_json(state, term)).collect::<Result<Vec<_>, _>>()?;
    if kind == "sequence" {
        // Options are alternative to a term such as `start=1 end=5`.
        let names = ["start", "end", "count", "stride", "format"];
        let option = |name: &&str| Ok(options.get::<Option<Value>>(name)?.map(|value| format!("{name}={value}")));
        let options: Vec<String> =
            names.iter().filter_map(|name| option(name).transpose()).collect::<Result<_, Error>>()?;
        terms.extend((!options.is_empty()).then(|| options.join(" ").into()));
    }
    assert_no_others(options)?;
    let found = arranged(kind, terms, &|work| scope.charge_work(work)).map_err(reject)?;
    found.iter().try_for_each(|item| super::weight(item).map(drop)).map_err(reject)?;
    Ok(from_json(found).try_iter()?.collect())
}

/// Returns objects of the cluster.
fn objects(scope: &Scope, terms: &[Value], options: &Kwargs) -> Result<Vec<Value>, Error> {
    let mut query = Map::new();
    let names =
        ["cluster_info", "api_version", "kind", "resource_name", "namespace", "label_selector", "field_selector"];
    for name in names {
        if let Some(value) = options.get::<Option<Value>>(name)?.filter(|value| !value.is_none()) {
            query.insert(name.to_owned(), super::to_json(&value)?);
        }
    }
    options.assert_all_used()?;
    if !terms.is_empty() || !["kind", "cluster_info"].iter().any(|name| query.contains_key(*name)) {
        return Err(reject("lookup k8s requires kind or cluster_info, and no other positional arguments"));
    }
    match scope.sources().query(query) {
        Some(found) => Ok(from_json(found).try_iter()?.collect()),
        None => Err(reject("lookup k8s is only available in tasks")),
    }
}
