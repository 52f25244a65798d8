//! Functions of templates: Go's built-in ones, sprig's, and Helm's own.
//!
//! See <https://helm.sh/docs/chart_template_guide/function_list/> and <https://masterminds.github.io/sprig/>.
//! Parameters have types, because Go checks them before a call.

mod builtins;
mod case;
mod certificates;
mod cost;
pub(crate) mod crypto;
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

use crate::context::Call;
use crate::helm::HelmVersion;
use crate::text::{Marks, Text, Writer};
use crate::value::{IntKind, List, ListKind, Map, MapKind, Type, Value};
use cost::Cost;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A function: its parameters, its cost, and its implementation.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) params: &'static [Type],
    /// The last parameter is variadic.
    pub(crate) is_variadic: bool,
    pub(crate) call: Body,
    pub(crate) handling: Handling,
    pub(crate) cost: Cost,
}

/// The use of arguments by a function, which determines the untrusted parts of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handling {
    /// Returns an argument, or a value without strings. Reads at most one item.
    Moves,
    /// Like `Moves`, but iterates over lists and maps, without descending into their items.
    Copies,
    /// Builds a string, and tracks which parts of it are data.
    Marks,
    /// Returns a new value: if any argument is data, the whole result is data.
    Makes,
}

/// Functions that return an argument, or a value without strings.
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

/// Functions that build lists and maps from existing values.
const COPYING_FUNCTIONS: &[&str] = &[
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

/// Functions that track which parts of the result are data, or that descend into lists and maps.
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
    } else if COPYING_FUNCTIONS.contains(&name) {
        Handling::Copies
    } else if MARKS.contains(&name) {
        Handling::Marks
    } else {
        Handling::Makes
    }
}

type Body = fn(&Call<'_>, &[Value]) -> Result<Value, String>;

/// Size limit of a string from a function.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Length limit of a list from a function.
const MAX_LIST_ITEMS: usize = 1 << 20;

const ANY: Type = Type::Any;
const REFLECT: Type = Type::Reflect;
const STR: Type = Type::Str;
const INT: Type = Type::Int(IntKind::Int);
const BOOL: Type = Type::Bool;
const FLOAT: Type = Type::Float;
const DICT: Type = Type::Map(MapKind::Any);
const TIME: Type = Type::Object("time.Time");

/// The functions that a template may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionSet {
    /// Functions of a version of Helm.
    Helm(HelmVersion),
    /// Functions of slim-sprig whose results depend on the arguments and the environment only.
    Slim,
}

/// Functions that slim-sprig lacks.
const NOT_IN_SLIM: &[&str] = &[
    "abbrev",
    "abbrevboth",
    "add1f",
    "addf",
    "bcrypt",
    "buildCustomCert",
    "camelcase",
    "decryptAES",
    "deepCopy",
    "derivePassword",
    "divf",
    "encryptAES",
    "fromJsonArray",
    "fromToml",
    "fromYaml",
    "fromYamlArray",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "htpasswd",
    "include",
    "initials",
    "kebabcase",
    "lookup",
    "merge",
    "mergeOverwrite",
    "mulf",
    "mustDeepCopy",
    "mustMerge",
    "mustMergeOverwrite",
    "mustToToml",
    "mustToYaml",
    "nospace",
    "randAlpha",
    "randAlphaNum",
    "randAscii",
    "randBytes",
    "randNumeric",
    "required",
    "semver",
    "semverCompare",
    "sha512sum",
    "shuffle",
    "snakecase",
    "subf",
    "swapcase",
    "toToml",
    "toYaml",
    "toYamlPretty",
    "tpl",
    "untitle",
    "uuidv4",
    "wrap",
    "wrapWith",
];

/// Functions of slim-sprig whose results change from start to start of an operator.
const UNSTABLE: &[&str] = &["ago", "getHostByName", "now", "randInt"];

/// Finds a function of a set by its name.
pub(crate) fn find(name: &str, set: FunctionSet) -> Option<&'static Function> {
    static FUNCTIONS: LazyLock<BTreeMap<&'static str, Function>> = LazyLock::new(functions);
    let is_in_set = match set {
        FunctionSet::Helm(helm) => {
            // Helm removes access to the environment.
            !matches!(name, "env" | "expandenv") && (helm == HelmVersion::V4 || name != "mustToYaml")
        }
        FunctionSet::Slim => !NOT_IN_SLIM.contains(&name) && !UNSTABLE.contains(&name),
    };
    FUNCTIONS.get(name).filter(|_| is_in_set)
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

/// Builder of the function table.
struct Table(BTreeMap<&'static str, Function>);

impl Table {
    fn add(&mut self, name: &'static str, cost: Cost, params: &'static [Type], call: Body) {
        self.0.insert(name, Function { params, is_variadic: false, call, handling: handling(name), cost });
    }

    /// Adds a variadic function.
    fn variadic(&mut self, name: &'static str, cost: Cost, params: &'static [Type], call: Body) {
        self.0.insert(name, Function { params, is_variadic: true, call, handling: handling(name), cost });
    }

    /// Adds a function with one or two names: the second one is sprig's variant that returns errors.
    fn both(&mut self, name: &'static str, must: &'static str, cost: Cost, params: &'static [Type], call: Body) {
        self.add(name, cost, params, call);
        self.add(must, cost, params, call);
    }
}

/// Go's message about a nil dereference.
const NIL_POINTER: &str = "runtime error: invalid memory address or nil pointer dereference";

/// Returns the text of a string argument.
fn text(value: &Value) -> Cow<'_, str> {
    value.text().unwrap_or_default()
}

/// Returns the bytes of a string argument.
fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::Str(text) => text,
        Value::Bytes(bytes) => bytes,
        _ => &[],
    }
}

/// Returns the text of a string argument, with its data marks.
fn marked(value: &Value) -> Text {
    match value {
        Value::Str(text) => text.clone(),
        _ => Text::new(&[], Marks::new()),
    }
}

/// Converts the bytes of a string to characters, because some functions of sprig treat each byte as a character.
fn byte_chars(value: &Value) -> impl Iterator<Item = char> {
    bytes(value).iter().map(|byte| char::from(*byte))
}

/// Returns the number of an integer argument.
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

/// Returns the map of a map argument; nil is an empty map.
fn dict(value: &Value) -> Map {
    match value {
        Value::Map(map) => map.clone(),
        _ => Map::empty(MapKind::Any),
    }
}

/// Sprig's `strval`: the string form of any value.
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

/// Sprig's `strval` with data marks.
fn strval_marked(value: &Value) -> Text {
    match value {
        Value::Str(text) => text.clone(),
        other => {
            let text = Text::new(&strval(other), Marks::new());
            if other.is_data() { text.to_data() } else { text }
        }
    }
}

/// Sprig's `strslice`, with data marks.
fn strslice_marked(value: &Value) -> Vec<Text> {
    match value.items() {
        Some(items) => items.iter().filter(|item| !matches!(item, Value::Nil)).map(strval_marked).collect(),
        None if matches!(value, Value::Nil) => Vec::new(),
        None => vec![strval_marked(value)],
    }
}

/// Returns a written string if it is within the size limit.
fn written(writer: Writer) -> Result<Value, String> {
    if writer.len() > MAX_TEXT_BYTES {
        return Err(format!("the text is larger than {MAX_TEXT_BYTES} bytes"));
    }
    Ok(Value::Str(writer.text()))
}

/// Sprig's `strslice`: the string forms of the items that are not nil, or of the value itself.
fn strslice(value: &Value) -> Vec<Vec<u8>> {
    match value.items() {
        Some(items) => items.iter().filter(|item| !matches!(item, Value::Nil)).map(strval).collect(),
        None if matches!(value, Value::Nil) => Vec::new(),
        None => vec![strval(value)],
    }
}

/// Returns a string if it is within the size limit.
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
