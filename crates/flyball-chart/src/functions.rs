//! Functions of templates: Go's built-in ones, sprig's, and Helm's own.
//!
//! See <https://helm.sh/docs/chart_template_guide/function_list/> and <https://masterminds.github.io/sprig/>. A
//! function's parameters have types, because Go checks them before it calls.

mod builtins;
mod case;
mod certificates;
mod cost;
mod crypto;
mod dates;
mod decimal;
mod dicts;
pub(crate) mod encoding;
mod helm;
pub(crate) mod json;
mod lists;
mod logic;
mod numbers;
mod paths;
mod random;
pub(crate) mod regexes;
mod strings;
mod toml;
mod urls;
mod versions;

#[cfg(test)]
mod tests;

pub(crate) use helm::MESSAGE as FAILURE;

use crate::helm::HelmVersion;
use crate::text::{Marks, Text, Writer};
use crate::value::{IntKind, List, ListKind, Map, MapKind, Type, Value};
use crate::world::Call;
use cost::Cost;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A function: what it takes, what it costs, and what it does.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) params: &'static [Type],
    /// The last parameter may be given any number of times.
    pub(crate) is_variadic: bool,
    pub(crate) call: Body,
    pub(crate) handling: Handling,
    pub(crate) cost: Cost,
}

/// Treatment of arguments by a function, which decides which parts of the result are data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handling {
    /// Returns an argument, or a value without text. It reads at most one item.
    Moves,
    /// The same, but it goes through lists and maps, without looking into what they hold.
    Copies,
    /// Builds a text, and keeps track of which parts of it are data.
    Marks,
    /// Returns a new value: if any argument is data, the whole result is data.
    Makes,
}

/// Functions that make nothing.
const MOVES: &[&str] = &[
    "and",
    "call",
    "coalesce",
    "default",
    "dict",
    "empty",
    "get",
    "hasKey",
    "include",
    "index",
    "kindIs",
    "kindOf",
    "len",
    "list",
    "lookup",
    "not",
    "or",
    "required",
    "set",
    "ternary",
    "tpl",
    "tuple",
    "typeIs",
    "typeIsLike",
    "typeOf",
    "unset",
];

/// Functions that make lists and maps of what there is.
const COPIES: &[&str] = &[
    "all",
    "any",
    "append",
    "chunk",
    "compact",
    "concat",
    "dig",
    "first",
    "initial",
    "keys",
    "last",
    "mustAppend",
    "mustChunk",
    "mustCompact",
    "mustFirst",
    "mustInitial",
    "mustLast",
    "mustPrepend",
    "mustPush",
    "mustRest",
    "mustReverse",
    "mustSlice",
    "omit",
    "pick",
    "pluck",
    "prepend",
    "push",
    "rest",
    "reverse",
    "slice",
    "values",
];

/// Functions that know which parts of what they make are data, or that look into lists and maps and give what is in
/// them.
const MARKS: &[&str] = &[
    "cat",
    "deepCopy",
    "has",
    "indent",
    "join",
    "merge",
    "mergeOverwrite",
    "mustDeepCopy",
    "mustHas",
    "mustMerge",
    "mustMergeOverwrite",
    "mustToYaml",
    "mustUniq",
    "mustWithout",
    "nindent",
    "print",
    "printf",
    "println",
    "quote",
    "replace",
    "squote",
    "toString",
    "toYaml",
    "trim",
    "trimAll",
    "trimPrefix",
    "trimSuffix",
    "trimall",
    "trunc",
    "uniq",
    "without",
];

fn handling(name: &str) -> Handling {
    if MOVES.contains(&name) {
        Handling::Moves
    } else if COPIES.contains(&name) {
        Handling::Copies
    } else if MARKS.contains(&name) {
        Handling::Marks
    } else {
        Handling::Makes
    }
}

type Body = fn(&Call<'_>, &[Value]) -> Result<Value, String>;

/// The largest text that a function makes.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// The longest list that a function makes.
const MAX_LIST_ITEMS: usize = 1 << 20;

const ANY: Type = Type::Any;
const REFLECT: Type = Type::Reflect;
const STR: Type = Type::Str;
const INT: Type = Type::Int(IntKind::Int);
const BOOL: Type = Type::Bool;
const FLOAT: Type = Type::Float;
const DICT: Type = Type::Map(MapKind::Any);
const TIME: Type = Type::Object("time.Time");

/// Finds a function by its name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    static FUNCTIONS: LazyLock<BTreeMap<&'static str, Function>> = LazyLock::new(functions);
    FUNCTIONS.get(name)
}

/// Returns true if a version of Helm has a function.
pub(crate) fn is_in(name: &str, helm: HelmVersion) -> bool {
    let is_new = name == "mustToYaml";
    find(name).is_some() && (helm == HelmVersion::V4 || !is_new)
}

fn functions() -> BTreeMap<&'static str, Function> {
    let mut table = Table(BTreeMap::new());
    builtins::add(&mut table);
    strings::add(&mut table);
    case::add(&mut table);
    numbers::add(&mut table);
    lists::add(&mut table);
    dicts::add(&mut table);
    logic::add(&mut table);
    encoding::add(&mut table);
    dates::add(&mut table);
    regexes::add(&mut table);
    paths::add(&mut table);
    urls::add(&mut table);
    versions::add(&mut table);
    random::add(&mut table);
    crypto::add(&mut table);
    certificates::add(&mut table);
    helm::add(&mut table);
    table.0
}

/// Functions that are being collected.
struct Table(BTreeMap<&'static str, Function>);

impl Table {
    fn add(&mut self, name: &'static str, cost: Cost, params: &'static [Type], call: Body) {
        self.0.insert(name, Function { params, is_variadic: false, call, handling: handling(name), cost });
    }

    /// A function whose last parameter may be given any number of times.
    fn variadic(&mut self, name: &'static str, cost: Cost, params: &'static [Type], call: Body) {
        self.0.insert(name, Function { params, is_variadic: true, call, handling: handling(name), cost });
    }

    /// A function of one name or two: the second is sprig's for those who want errors.
    fn both(&mut self, name: &'static str, must: &'static str, cost: Cost, params: &'static [Type], call: Body) {
        self.add(name, cost, params, call);
        self.add(must, cost, params, call);
    }
}

/// Go's message for a nil that is dereferenced.
const NIL_POINTER: &str = "runtime error: invalid memory address or nil pointer dereference";

/// The text of an argument whose parameter is one.
fn text(value: &Value) -> Cow<'_, str> {
    value.text().unwrap_or_default()
}

/// The bytes of an argument whose parameter is a text.
fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::Str(text) => text,
        Value::Bytes(bytes) => bytes,
        _ => &[],
    }
}

/// A text, with its marks, of an argument whose parameter is one.
fn marked(value: &Value) -> Text {
    match value {
        Value::Str(text) => text.clone(),
        _ => Text::new(&[], Marks::new()),
    }
}

/// The bytes of a text as characters: some functions of sprig take each byte for one.
fn byte_chars(value: &Value) -> impl Iterator<Item = char> {
    bytes(value).iter().map(|byte| char::from(*byte))
}

/// The number of an argument whose parameter is one.
fn int(value: &Value) -> i64 {
    match value {
        Value::Int(_, number) => *number,
        _ => 0,
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Float(number) => *number,
        _ => 0.0,
    }
}

/// The map of an argument whose parameter is one; nil is an empty one.
fn dict(value: &Value) -> Map {
    match value {
        Value::Map(map) => map.clone(),
        _ => Map::empty(MapKind::Any),
    }
}

/// Sprig's `strval`: the text of anything.
fn strval(value: &Value) -> Vec<u8> {
    match value {
        Value::Str(text) => text.to_vec(),
        Value::Bytes(bytes) => bytes.to_vec(),
        other => {
            let mut out = Vec::new();
            crate::format::plain(&mut out, other);
            out
        }
    }
}

/// The same with its marks.
fn strval_marked(value: &Value) -> Text {
    match value {
        Value::Str(text) => text.clone(),
        other => {
            let text = Text::new(&strval(other), Marks::new());
            if other.is_data() { text.to_data() } else { text }
        }
    }
}

/// Sprig's `strslice`, with marks.
fn strslice_marked(value: &Value) -> Vec<Text> {
    match value.items() {
        Some(items) => items.iter().filter(|item| !matches!(item, Value::Nil)).map(strval_marked).collect(),
        None if matches!(value, Value::Nil) => Vec::new(),
        None => vec![strval_marked(value)],
    }
}

/// A text that a function wrote, if it is not too large.
fn written(writer: Writer) -> Result<Value, String> {
    if writer.len() > MAX_TEXT_BYTES {
        return Err(format!("the text is larger than {MAX_TEXT_BYTES} bytes"));
    }
    Ok(Value::Str(writer.text()))
}

/// Sprig's `strslice`: texts of the items that are not nil, or of the value itself.
fn strslice(value: &Value) -> Vec<Vec<u8>> {
    match value.items() {
        Some(items) => items.iter().filter(|item| !matches!(item, Value::Nil)).map(strval).collect(),
        None if matches!(value, Value::Nil) => Vec::new(),
        None => vec![strval(value)],
    }
}

/// A text that a function makes, if it is not too large.
fn bounded(text: Vec<u8>) -> Result<Value, String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!("the text is larger than {MAX_TEXT_BYTES} bytes"));
    }
    Ok(Value::str(text))
}

/// Sprig's `empty`.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(object) => object.as_int() == Some(0),
        other => !other.truth(),
    }
}

fn ints(numbers: Vec<i64>) -> Value {
    Value::List(List::new(ListKind::Ints, numbers.into_iter().map(Value::int).collect()))
}
