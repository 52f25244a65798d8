//! Ansible's filters, as far as operator roles use them.
//!
//! See <https://docs.ansible.com/ansible/latest/collections/ansible/builtin/index.html#filter-plugins>. None of them
//! runs programs; time and randomness are those of the [run](super::Sources).

mod collections;
mod regexes;

use super::output::{LimitedText, check_size};
use super::printf::{Operand, printf, type_name};
use super::{
    BYTES_PER_FUEL, from_json, lists, methods, modulo, numbers, operands, python, query, random, reject, texts, time,
    undefined, weigh,
};
use crate::value::Value as Json;
use crate::value::memory;
use crate::yaml;
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE};
pub(super) use collections::sorted;
use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Environment, Error, ErrorKind, State};
use serde_json::ser::{Formatter, PrettyFormatter};
use std::collections::BTreeMap;
use std::io;

/// Copies of a parsed value: ours, and that of the engine.
const COPIES: usize = 2;
/// Limit of the indentation of JSON.
const MAX_INDENT: usize = 16;

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
    collections::add(env);
    regexes::add(env);
    lists::add(env);
    modulo::add(env);
    operands::add(env);
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
        let is_sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
        ignore(&options, &["vault_to_text", "preprocess_unsafe"])?;
        options.assert_all_used()?;
        let value = arranged(to_json(state, &defined(value)?)?, is_sorted);
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
        let is_sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(true);
        options.assert_all_used()?;
        let indent = " ".repeat(indent.unwrap_or(4).min(MAX_INDENT));
        let formatter = PrettyFormatter::with_indent(indent.as_bytes());
        let json = written(&arranged(to_json(state, &defined(value)?)?, is_sorted), formatter)?;
        in_ascii(json, is_ascii)
    });
    env.add_filter("tojson", |state: &State<'_, '_>, value: Value, indent: Option<Value>, options: Kwargs| {
        let width = indent.clone().or(options.get("indent")?).and_then(|indent| usize::try_from(indent).ok());
        check_indented("tojson", state, &value, width.unwrap_or(2))?;
        minijinja::filters::tojson(&sorted(&value)?, indent, options)
    });
    // Ansible's lists and maps are not those of Python, which `pprint` would break into lines.
    env.add_filter("pprint", |state: &State<'_, '_>, value: Value| {
        weigh(state, &value)?;
        python::repr(&value)
    });
    env.add_filter("from_json", |state: &State<'_, '_>, text: String| {
        // Each map takes memory of its own, also in the engine.
        let maps = text.bytes().filter(|byte| *byte == b'{').count();
        state.consume_fuel((maps * memory::NODE * COPIES / BYTES_PER_FUEL) as u64)?;
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
            let is_sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(true);
            ignore(&options, &["allow_unicode"])?;
            options.assert_all_used()?;
            let mut out = LimitedText::default();
            yaml::emit(&mut out, &arranged(to_json(state, &defined(value)?)?, is_sorted), written)
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
    env.add_filter("string", |state: &State<'_, '_>, value: Value| {
        weigh(state, &value)?;
        python::text(&value)
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
            None => encoding.encode(String::from(defined(value)?)),
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
    env.add_filter("center", |state: &State<'_, '_>, value: Value, arguments: Rest<Value>, options: Kwargs| {
        let width = match (arguments.as_slice(), options.has("width")) {
            ([], false) => 80.into(),
            ([], true) => options.get("width")?,
            ([width], false) => width.clone(),
            _ => return Err(ErrorKind::TooManyArguments.into()),
        };
        options.assert_all_used()?;
        weigh(state, &value)?;
        methods::padded(&python::text(&value)?, "center", &[defined(width)?])
    });
    env.add_filter("quote", |state: &State<'_, '_>, text: Value| {
        weigh(state, &text)?;
        let text = if text.is_none() { String::new() } else { python::text(&text)? };
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

/// Returns a value with sorted fields if they are to be sorted.
fn arranged(value: Json, is_sorted: bool) -> Json {
    if is_sorted { value.sorted() } else { value }
}

/// Charges fuel for a value, and converts it.
fn to_json(state: &State<'_, '_>, value: &Value) -> Result<Json, Error> {
    weigh(state, value)?;
    super::check_defined(value)?;
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
    let bytes = usize::try_from(fuel).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_FUEL) / COPIES;
    let documents =
        yaml::documents_within(text, bytes.min(yaml::MAX_TEXT_MEMORY)).map_err(|problem| match problem {
            yaml::ScalarError::Memory(_) => ErrorKind::OutOfFuel.into(),
            problem => reject(yaml::invalid(&problem)),
        })?;
    let size: usize = documents.iter().map(memory::of).sum();
    state.consume_fuel((size * COPIES / BYTES_PER_FUEL) as u64)?;
    Ok(documents)
}
