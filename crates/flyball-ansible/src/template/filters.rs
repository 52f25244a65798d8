//! Ansible's filters, as far as operator roles use them.
//!
//! See <https://docs.ansible.com/ansible/latest/collections/ansible/builtin/index.html#filter-plugins>. None of them
//! runs programs; time and randomness are those of the [run](super::Sources).

use super::expression::Expression;
use super::output::{LimitedText, check_size};
use super::printf::{Operand, printf, type_name};
use super::{
    BYTES_PER_FUEL, from_json, items, lists, methods, modulo, numbers, python, query, random, reject, texts, time,
    undefined, weigh,
};
use crate::yaml;
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE};
use flyball_core::memory;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, State};
use regex::Captures;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Limit of the indentation of JSON.
const MAX_INDENT: usize = 16;
/// The ways of `combine` to merge lists; the first one is the default.
const LIST_MERGES: [&str; 6] = ["replace", "keep", "append", "prepend", "append_rp", "prepend_rp"];
/// Nesting limit of flattened lists.
const MAX_DEPTH: usize = 64;

/// Filters that also have a name with the collection `ansible.builtin`.
const BUILTIN: [&str; 67] = [
    "b64decode",
    "b64encode",
    "basename",
    "bool",
    "checksum",
    "combine",
    "default",
    "dict2items",
    "difference",
    "dirname",
    "extract",
    "first",
    "flatten",
    "float",
    "format",
    "from_json",
    "from_yaml",
    "from_yaml_all",
    "groupby",
    "hash",
    "indent",
    "int",
    "intersect",
    "items2dict",
    "join",
    "last",
    "length",
    "list",
    "log",
    "lower",
    "mandatory",
    "map",
    "max",
    "min",
    "path_join",
    "pow",
    "product",
    "quote",
    "random",
    "regex_escape",
    "regex_findall",
    "regex_replace",
    "regex_search",
    "reject",
    "rejectattr",
    "replace",
    "root",
    "select",
    "selectattr",
    "sha1",
    "shuffle",
    "sort",
    "splitext",
    "strftime",
    "string",
    "subelements",
    "symmetric_difference",
    "ternary",
    "to_json",
    "to_nice_json",
    "to_nice_yaml",
    "to_uuid",
    "to_yaml",
    "type_debug",
    "union",
    "urlsplit",
    "zip_longest",
];

pub(super) fn add(env: &mut Environment<'static>) {
    for name in ["default", "d"] {
        env.add_filter(name, default);
    }
    env.add_filter("mandatory", |value: Value, message: Option<String>, options: Kwargs| {
        let message = message.or(options.get("msg")?);
        options.assert_all_used()?;
        match message.filter(|_| value.is_undefined()) {
            Some(message) => Err(reject(message)),
            None => defined(value),
        }
    });
    add_conversions(env);
    add_texts(env);
    add_collections(env);
    lists::add(env);
    modulo::add(env);
    numbers::add(env);
    random::add(env);
    texts::add(env);
    env.add_filter("strftime", time::strftime);
    for name in ["json_query", "community.general.json_query"] {
        env.add_filter(name, query::json_query);
    }
    for name in BUILTIN {
        env.add_filter(format!("ansible.builtin.{name}"), |state: &mut State<'_, '_>, arguments: Rest<Value>| {
            state.apply_filter(name, &arguments)
        });
    }
}

fn add_conversions(env: &mut Environment<'static>) {
    env.add_filter("to_json", |state: &State<'_, '_>, value: Value, options: Kwargs| {
        let is_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(true);
        let indent: Option<usize> = options.get("indent")?;
        ignore(&options, &["sort_keys", "vault_to_text", "preprocess_unsafe"])?;
        options.assert_all_used()?;
        let value = to_json(state, &defined(value)?)?;
        let json = match indent {
            None => written(&value, PythonFormatter)?,
            Some(indent) => {
                let indent = " ".repeat(indent.min(MAX_INDENT));
                written(&value, PrettyFormatter::with_indent(indent.as_bytes()))?
            }
        };
        in_ascii(json, is_ascii)
    });
    env.add_filter("to_nice_json", |state: &State<'_, '_>, value: Value, options: Kwargs| {
        let indent: Option<usize> = options.get("indent")?;
        let is_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(true);
        ignore(&options, &["sort_keys"])?;
        options.assert_all_used()?;
        let indent = " ".repeat(indent.unwrap_or(4).min(MAX_INDENT));
        let formatter = PrettyFormatter::with_indent(indent.as_bytes());
        let json = written(&to_json(state, &defined(value)?)?, formatter)?;
        in_ascii(json, is_ascii)
    });
    env.add_filter("tojson", |state: &State<'_, '_>, value: Value, indent: Option<Value>, options: Kwargs| {
        let width = indent.clone().or(options.get("indent")?).and_then(|indent| usize::try_from(indent).ok());
        check_indented("tojson", state, &value, width.unwrap_or(2))?;
        minijinja::filters::tojson(&value, indent, options)
    });
    env.add_filter("pprint", |state: &State<'_, '_>, value: Value| {
        check_indented("pprint", state, &value, 4)?;
        Ok::<_, Error>(minijinja::filters::pprint(&value))
    });
    env.add_filter("from_json", |state: &State<'_, '_>, text: String| {
        // Each map takes memory of its own.
        let maps = text.bytes().filter(|byte| *byte == b'{').count();
        state.consume_fuel((maps * memory::NODE / BYTES_PER_FUEL) as u64)?;
        parses(state, &text)?;
        let value: Json = serde_json::from_str(&text).map_err(|error| reject(format!("from_json: {error}")))?;
        Ok::<_, Error>(from_json(value))
    });
    for (name, indent, flow) in [("to_yaml", 2, None), ("to_nice_yaml", 4, Some(false))] {
        env.add_filter(name, move |state: &State<'_, '_>, value: Value, options: Kwargs| {
            let written = yaml::Options {
                indent: options.get::<Option<usize>>("indent")?.unwrap_or(indent),
                width: options.get::<Option<usize>>("width")?.unwrap_or(yaml::Options::WIDTH),
                flow: match options.has("default_flow_style") {
                    true => options.get("default_flow_style")?,
                    false => flow,
                },
                explicit_start: options.get::<Option<bool>>("explicit_start")?.unwrap_or(false),
            };
            // The fields of maps have the order of their names.
            ignore(&options, &["sort_keys", "allow_unicode"])?;
            options.assert_all_used()?;
            let mut out = LimitedText::default();
            yaml::emit(&mut out, &to_json(state, &defined(value)?)?, written)
                .map_err(|_| reject("to_yaml: the output is too large"))?;
            out.text()
        });
    }
    env.add_filter("from_yaml", |state: &State<'_, '_>, text: Value| match text.as_str() {
        // Values other than strings are already parsed.
        None => Ok(text),
        Some(text) => match documents(state, text)?.as_slice() {
            [] => Ok(Value::from(())),
            [document] => Ok(from_json(document)),
            several => Err(reject(format!("from_yaml: the text has {} documents: use from_yaml_all", several.len()))),
        },
    });
    env.add_filter("from_yaml_all", |state: &State<'_, '_>, text: Value| match text.as_str() {
        None => Ok(text),
        Some(text) => Ok::<_, Error>(from_json(documents(state, text)?)),
    });
    env.add_filter("bool", |value: Value| match value.as_str() {
        Some(word) => yaml::truth(&word.into()).unwrap_or(false),
        None => value.is_true(),
    });
    env.add_filter("int", |value: Value, default: Option<i64>, base: Option<u32>, options: Kwargs| {
        let default = default.or(options.get("default")?).unwrap_or(0);
        let base = base.or(options.get("base")?).unwrap_or(10);
        options.assert_all_used()?;
        Ok::<_, Error>(match value.as_str() {
            Some(text) => parse_int(text.trim(), base).unwrap_or(default),
            None => i64::try_from(value.clone())
                .or_else(|_| f64::try_from(value).map(|float| float as i64))
                .unwrap_or(default),
        })
    });
    env.add_filter("float", |value: Value, default: Option<f64>| match value.as_str() {
        Some(text) => text.trim().parse().unwrap_or(default.unwrap_or(0.0)),
        None => f64::try_from(value).unwrap_or(default.unwrap_or(0.0)),
    });
    env.add_filter("string", |state: &State<'_, '_>, value: Value| match value.kind() {
        ValueKind::Undefined => Err(undefined()),
        _ => weigh(state, &value).map(|()| python::text(&value)),
    });
    env.add_filter("type_debug", |state: &State<'_, '_>, value: Value| {
        weigh(state, &value)?;
        Ok::<_, Error>(if time::is_time(&value) { "datetime" } else { type_name(&value) })
    });
}

fn add_texts(env: &mut Environment<'static>) {
    env.add_filter("b64encode", |value: Value, options: Kwargs| {
        let encoding = base64_of(&options)?;
        Ok::<_, Error>(match value.as_bytes() {
            Some(bytes) => encoding.encode(bytes),
            None => encoding.encode(String::from(value)),
        })
    });
    env.add_filter("b64decode", |text: String, options: Kwargs| {
        let bytes = base64_of(&options)?.decode(text.trim()).map_err(|error| reject(format!("b64decode: {error}")))?;
        String::from_utf8(bytes).map_err(|_| reject("b64decode: the decoded bytes are not valid UTF-8"))
    });
    env.add_filter("format", |state: &State<'_, '_>, text: String, arguments: Rest<Value>, options: Kwargs| {
        let operand = match (options.args().next().is_some(), arguments.0) {
            (false, arguments) => Operand::Tuple(arguments),
            (true, arguments) if arguments.is_empty() => {
                let names: Vec<String> = options.args().map(str::to_owned).collect();
                let named = names.into_iter().map(|name| Ok((options.get::<Value>(&name)?, name)));
                let named = named.map(|found| found.map(|(value, name)| (name, value)));
                Operand::Value(named.collect::<Result<BTreeMap<_, _>, Error>>()?.into())
            }
            _ => return Err(reject("can't handle positional and keyword arguments at the same time")),
        };
        printf(state, &text, &operand)
    });
    env.add_filter("center", |state: &State<'_, '_>, value: Value, width: Option<i64>| {
        weigh(state, &value)?;
        methods::padded(&python::text(&value), "center", &[width.unwrap_or(80).into()])
    });
    env.add_filter("regex_replace", regex_replace);
    env.add_filter(
        "regex_search",
        |state: &State<'_, '_>, text: String, pattern: String, groups: Rest<Value>, options: Kwargs| {
            let mut expression = regex_of(state, &pattern, &options)?;
            options.assert_all_used()?;
            let Some(found) = expression.find(state, &text)? else { return Ok(Value::from(())) };
            match groups.as_slice() {
                [] => Ok(found[0].into()),
                groups => {
                    groups.iter().map(|group| group_of(&found, group)).collect::<Result<Vec<_>, _>>().map(Value::from)
                }
            }
        },
    );
    env.add_filter("regex_findall", |state: &State<'_, '_>, text: String, pattern: String, options: Kwargs| {
        let mut expression = regex_of(state, &pattern, &options)?;
        options.assert_all_used()?;
        let one = |found: &Captures<'_>| -> Value {
            let text = |at: usize| found.get(at).map_or("", |part| part.as_str());
            match found.len() {
                1 | 2 => text(found.len() - 1).into(),
                several => (1..several).map(text).map(Value::from).collect::<Vec<_>>().into(),
            }
        };
        let mut all = Vec::new();
        expression.for_each(state, &text, usize::MAX, |found| {
            all.push(one(found));
            Ok(())
        })?;
        Ok::<_, Error>(all)
    });
    env.add_filter("regex_escape", |text: String, _: Kwargs| regex::escape(&text));
    env.add_filter("quote", |state: &State<'_, '_>, text: Value| {
        weigh(state, &text)?;
        let text = text.to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
        Ok::<_, Error>(match !text.is_empty() && text.chars().all(plain) {
            true => text,
            false => format!("'{}'", text.replace('\'', "'\"'\"'")),
        })
    });
    env.add_filter("basename", |path: String| path.rsplit('/').next().unwrap_or_default().to_owned());
    env.add_filter("dirname", |path: String| {
        path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned())
    });
    env.add_filter("path_join", |parts: Vec<String>| parts.join("/"));
}

fn add_collections(env: &mut Environment<'static>) {
    env.add_filter("combine", |state: &State<'_, '_>, first: Value, others: Rest<Value>, options: Kwargs| {
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
        let mut combined = Map::new();
        for map in all {
            combine(&mut combined, map, recursive, lists);
        }
        Ok::<_, Error>(from_json(combined))
    });
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
    env.add_filter(
        "items2dict",
        |state: &State<'_, '_>, list: Value, key: Option<String>, value: Option<String>, options: Kwargs| {
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
                map.insert(name.to_string(), super::to_json(&field)?);
            }
            Ok::<_, Error>(from_json(map))
        },
    );
    env.add_filter("ternary", |value: Value, yes: Value, no: Value, none: Option<Value>| match none {
        Some(none) if value.is_none() => none,
        _ if value.is_true() => yes,
        _ => no,
    });
    env.add_filter("union", |state: &State<'_, '_>, left: Value, right: Value| {
        let mut known = BTreeSet::new();
        let all = items(state, &left)?.into_iter().chain(items(state, &right)?);
        Ok::<_, Error>(all.filter(|item| known.insert(item.clone())).collect::<Vec<_>>())
    });
    env.add_filter("intersect", |state: &State<'_, '_>, left: Value, right: Value| chosen(state, &left, &right, true));
    env.add_filter("difference", |state: &State<'_, '_>, left: Value, right: Value| {
        chosen(state, &left, &right, false)
    });
    env.add_filter("symmetric_difference", |state: &State<'_, '_>, left: Value, right: Value| {
        Ok::<_, Error>([chosen(state, &left, &right, false)?, chosen(state, &right, &left, false)?].concat())
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

fn default(value: Value, arguments: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let falsy = match arguments.get(1) {
        Some(falsy) => falsy.is_true(),
        None => options.get::<Option<bool>>("boolean")?.unwrap_or(false),
    };
    let other = match arguments.first() {
        Some(other) => other.clone(),
        None => options.get::<Option<Value>>("default_value")?.unwrap_or_else(|| "".into()),
    };
    options.assert_all_used()?;
    Ok(if value.is_undefined() || (falsy && !value.is_true()) { other } else { value })
}

fn defined(value: Value) -> Result<Value, Error> {
    if value.is_undefined() { Err(undefined()) } else { Ok(value) }
}

/// Returns the alphabet for options of `b64encode` and `b64decode`.
fn base64_of(options: &Kwargs) -> Result<GeneralPurpose, Error> {
    let encoding = options.get::<Option<String>>("encoding")?.unwrap_or_default().to_ascii_lowercase();
    if !matches!(encoding.as_str(), "" | "utf-8" | "utf8" | "ascii" | "us-ascii") {
        return Err(reject(format!("the built-in executor does not support encoding {encoding}; supported: utf-8")));
    }
    let is_urlsafe = options.get::<Option<bool>>("urlsafe")?.unwrap_or(false);
    options.assert_all_used()?;
    Ok(if is_urlsafe { URL_SAFE } else { STANDARD })
}

/// Accepts options without effect here.
fn ignore(options: &Kwargs, names: &[&str]) -> Result<(), Error> {
    names.iter().try_for_each(|name| options.get::<Option<Value>>(name).map(drop))
}

fn parse_int(text: &str, base: u32) -> Option<i64> {
    if !(2..=36).contains(&base) {
        return None;
    }
    let whole = i64::from_str_radix(text.trim_start_matches("0x"), base).ok();
    whole.or_else(|| text.parse::<f64>().ok().filter(|float| base == 10 && float.is_finite()).map(|float| float as i64))
}

/// Formats JSON as Python does: with spaces after commas and colons.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// Escapes other characters than ASCII, up to the size limit.
fn in_ascii(json: String, is_ascii: bool) -> Result<String, Error> {
    if !is_ascii || json.is_ascii() {
        return Ok(json);
    }
    check_size("to_json", json.len().saturating_mul(3))?;
    Ok(texts::ascii(&json))
}

/// Writes a value as JSON, up to the size limit.
fn written(value: &Json, formatter: impl Formatter) -> Result<String, Error> {
    let mut out = LimitedText::default();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    serde::Serialize::serialize(value, &mut serializer).map_err(|error| reject(error.to_string()))?;
    out.text()
}

/// Checks the size of an indented text in advance: each line may be indented by the whole depth of the value.
fn check_indented(what: &str, state: &State<'_, '_>, value: &Value, indent: usize) -> Result<(), Error> {
    let (lines, depth) = lines_and_depth(&to_json(state, value)?);
    check_size(what, lines.saturating_mul(depth).saturating_mul(indent))
}

fn lines_and_depth(value: &Json) -> (usize, usize) {
    let add = |(lines, depth): (usize, usize), inner: &Json| {
        let (more, deeper) = lines_and_depth(inner);
        (lines + more, depth.max(deeper + 1))
    };
    match value {
        Json::Array(items) => items.iter().fold((2, 0), add),
        Json::Object(fields) => fields.values().fold((2, 0), add),
        _ => (1, 0),
    }
}

fn regex_of(state: &State<'_, '_>, pattern: &str, options: &Kwargs) -> Result<Expression, Error> {
    let flag = |name: &str| options.get::<Option<bool>>(name).map(|flag| flag.unwrap_or(false));
    Expression::new(state, pattern, flag("ignorecase")?, flag("multiline")?)
}

/// The filter `regex_replace`. The size of the result is checked in advance: a replacement may repeat the whole text.
fn regex_replace(
    state: &State<'_, '_>,
    text: String,
    pattern: String,
    with: Option<String>,
    options: Kwargs,
) -> Result<String, Error> {
    let mut expression = regex_of(state, &pattern, &options)?;
    let count = options.get::<Option<usize>>("count")?.filter(|count| *count > 0).unwrap_or(usize::MAX);
    options.assert_all_used()?;
    let with = replacement(&with.unwrap_or_default());
    let references = with.matches('$').count();
    let (mut out, mut from) = (String::new(), 0);
    expression.for_each(state, &text, count, |found| {
        let whole = found.get_match();
        out.push_str(&text[from..whole.start()]);
        from = whole.end();
        // A group is part of the match.
        check_size("regex_replace", out.len() + with.len() + references.saturating_mul(whole.len()))?;
        found.expand(&with, &mut out);
        Ok(())
    })?;
    out.push_str(&text[from..]);
    Ok(out)
}

/// Converts Python's `\1` and `\g<name>` to `${1}` and `${name}`.
fn replacement(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '$']) {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if rest[at..].starts_with('$') {
            out.push_str("$$");
            rest = after;
        } else if let Some((name, remaining)) = after.strip_prefix("g<").and_then(|after| after.split_once('>')) {
            out.push_str(&format!("${{{name}}}"));
            rest = remaining;
        } else if let Some(digit) = after.chars().next().filter(char::is_ascii_digit) {
            out.push_str(&format!("${{{digit}}}"));
            rest = &after[1..];
        } else {
            let letter = after.chars().next();
            out.push_str(match letter {
                Some('n') => "\n",
                Some('t') => "\t",
                Some('\\') => "\\",
                _ => "\\",
            });
            let known = letter.is_some_and(|letter| matches!(letter, 'n' | 't' | '\\'));
            rest = if known { &after[1..] } else { after };
        }
    }
    out + rest
}

fn group_of(found: &Captures<'_>, group: &Value) -> Result<Value, Error> {
    let name = group.as_str().unwrap_or_default();
    let name =
        name.strip_prefix("\\g<").and_then(|name| name.strip_suffix('>')).unwrap_or(name.trim_start_matches('\\'));
    let part = match name.parse::<usize>() {
        Ok(number) => found.get(number),
        Err(_) => found.name(name),
    };
    part.map(|part| part.as_str().into()).ok_or_else(|| reject(format!("the expression has no group {name}")))
}

/// Returns a map, or the maps of a list.
fn maps(state: &State<'_, '_>, value: &Value) -> Result<Vec<Map<String, Json>>, Error> {
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

fn combine(into: &mut Map<String, Json>, from: Map<String, Json>, recursive: bool, lists: &str) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Json::Object(known)), Json::Object(value)) if recursive => combine(known, value, recursive, lists),
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
}

/// Removes items that are in another list.
fn without(items: &mut Vec<Json>, other: &[Json]) {
    let other: BTreeSet<String> = other.iter().map(Json::to_string).collect();
    items.retain(|item| !other.contains(&item.to_string()));
}

/// Charges fuel for a value, and converts it.
fn to_json(state: &State<'_, '_>, value: &Value) -> Result<Json, Error> {
    weigh(state, value)?;
    super::to_json(value)
}

/// Charges fuel for a text before it is parsed.
fn parses(state: &State<'_, '_>, text: &str) -> Result<(), Error> {
    state.consume_fuel(text.len() as u64 / 4)
}

/// Parses YAML. Its values take fuel by their memory, before they are created.
fn documents(state: &State<'_, '_>, text: &str) -> Result<Vec<Json>, Error> {
    parses(state, text)?;
    let fuel = state.fuel_levels().map_or(u64::MAX, |(_, remaining)| remaining);
    let bytes = usize::try_from(fuel).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_FUEL);
    let documents =
        yaml::documents_within(text, bytes.min(yaml::MAX_TEXT_MEMORY)).map_err(|problem| match problem {
            yaml::ScalarError::Memory(_) => minijinja::ErrorKind::OutOfFuel.into(),
            problem => reject(yaml::invalid(&problem)),
        })?;
    let size: usize = documents.iter().map(memory::of).sum();
    state.consume_fuel((size / BYTES_PER_FUEL) as u64)?;
    Ok(documents)
}

/// Returns the distinct items of a list that are, or are not, in another list.
fn chosen(state: &State<'_, '_>, of: &Value, other: &Value, is_in: bool) -> Result<Vec<Value>, Error> {
    let other: BTreeSet<Value> = items(state, other)?.into_iter().collect();
    let mut known = BTreeSet::new();
    let is_chosen = |item: &Value| other.contains(item) == is_in && known.insert(item.clone());
    let mut found = items(state, of)?;
    found.retain(is_chosen);
    Ok(found)
}

fn flatten(value: &Json, levels: usize, into: &mut Vec<Json>) {
    match value {
        Json::Array(items) if levels > 0 => items.iter().for_each(|item| flatten(item, levels - 1, into)),
        Json::Null => {}
        other => into.push(other.clone()),
    }
}
