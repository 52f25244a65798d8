//! Methods of Python's strings and bytes, and those of lists and maps that change nothing.
//!
//! See <https://docs.python.org/3/library/stdtypes.html#string-methods>. Positions are those of characters, as in
//! Python. The engine charges a result after its creation, so sizes of results are checked in advance.

use super::codecs::{decoded, encoded};
use super::letters::{capitalized, folded, is_of_class, is_space, swapped, titled};
use super::output::check_size;
use super::printf::type_name;
use super::{reject, undefined};
use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind};

/// Methods of strings besides those that the engine has: `format` and `join`.
pub(super) const STRING_METHODS: [&str; 43] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];

/// Methods of other values: of bytes, lists and maps.
pub(super) const OTHER_METHODS: [&str; 4] = ["copy", "decode", "hex", "index"];

/// Rejects undefined arguments, which the engine would take for an empty string, or for an omitted argument.
///
/// # Errors
/// If an argument is undefined, other than the default of `get`, which may be unused or have a default itself.
pub(super) fn check_defined(method: &str, arguments: &[Value]) -> Result<(), Error> {
    let has_undefined = |options: &Value| -> Result<bool, Error> {
        let mut names = options.try_iter()?;
        Ok(names.any(|name| options.get_item(&name).is_ok_and(|option| option.is_undefined())))
    };
    let required = if method == "get" { 1 } else { arguments.len() };
    for argument in arguments.iter().take(required) {
        if argument.is_undefined() || argument.is_kwargs() && has_undefined(argument)? {
            return Err(undefined());
        }
    }
    Ok(())
}

/// Returns an argument that must be an integer.
fn integer(value: &Value) -> Result<i64, Error> {
    let is_integer = value.is_integer() || value.kind() == ValueKind::Bool;
    match i64::try_from(value.clone()) {
        Ok(number) if is_integer => Ok(number),
        _ => Err(reject(format!("'{}' object cannot be interpreted as an integer", type_name(value)))),
    }
}

/// Calls a method of a string; `None` if it is another one.
pub(super) fn of_text(text: &str, method: &str, arguments: &[Value]) -> Option<Result<Value, Error>> {
    if !STRING_METHODS.contains(&method) || method == "format_map" {
        return None;
    }
    Some(call(text, method, arguments))
}

fn call(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let none = || no_arguments(method, arguments);
    Ok(match method {
        "capitalize" => none().map(|()| capitalized(text).into())?,
        "casefold" => none().map(|()| folded(text).into())?,
        "center" | "ljust" | "rjust" => padded(text, method, arguments)?.into(),
        "zfill" => zero_filled(text, arguments)?.into(),
        "expandtabs" => expanded(text, arguments)?.into(),
        "encode" => encoded(text, arguments)?,
        "count" | "find" | "index" | "rfind" | "rindex" => found(text, method, arguments)?,
        "startswith" | "endswith" => has_affix(text, method, arguments)?.into(),
        "lower" => none().map(|()| text.to_lowercase().into())?,
        "upper" => none().map(|()| text.to_uppercase().into())?,
        "swapcase" => none().map(|()| swapped(text).into())?,
        "title" => none().map(|()| titled(text).into())?,
        "strip" | "lstrip" | "rstrip" => stripped(text, method, arguments)?.into(),
        "partition" | "rpartition" => parts(text, method, arguments)?,
        "removeprefix" => text.strip_prefix(&*affix(arguments)?).unwrap_or(text).into(),
        "removesuffix" => text.strip_suffix(&*affix(arguments)?).unwrap_or(text).into(),
        "replace" => replaced(text, arguments)?.into(),
        "split" => split(text, arguments, false)?,
        "rsplit" => split(text, arguments, true)?,
        "splitlines" => lines(text, arguments)?,
        _ => {
            none()?;
            is_of_class(text, method).ok_or(ErrorKind::UnknownMethod)?.into()
        }
    })
}

fn no_arguments(method: &str, arguments: &[Value]) -> Result<(), Error> {
    match arguments.len() {
        0 => Ok(()),
        count => Err(reject(format!("str.{method}() takes no arguments ({count} given)"))),
    }
}

/// Pads a text by the method `center`, `ljust` or `rjust`.
pub(super) fn padded(text: &str, method: &str, arguments: &[Value]) -> Result<String, Error> {
    if arguments.is_empty() {
        return Err(reject(format!("{method} expected at least 1 argument, got 0")));
    }
    let (width, fill): (Value, Option<Value>) = from_args(arguments)?;
    let width = integer(&width)?;
    let fill = fill.unwrap_or_else(|| " ".into());
    let fill = fill
        .as_str()
        .ok_or_else(|| reject(format!("The fill character must be a unicode character, not {}", type_name(&fill))))?;
    if fill.chars().count() != 1 {
        return Err(reject("The fill character must be exactly one character long"));
    }
    let width = usize::try_from(width).unwrap_or(0);
    check_size(method, width.saturating_mul(fill.len()).saturating_add(text.len()))?;
    let missing = width.saturating_sub(text.chars().count());
    // As CPython distributes an odd number.
    let left = match method {
        "center" => missing / 2 + (missing & width & 1),
        "ljust" => 0,
        _ => missing,
    };
    Ok(fill.repeat(left) + text + &fill.repeat(missing - left))
}

fn zero_filled(text: &str, arguments: &[Value]) -> Result<String, Error> {
    let (width,): (Value,) = from_args(arguments)?;
    let width = usize::try_from(integer(&width)?).unwrap_or(0);
    check_size("zfill", width.saturating_add(text.len()))?;
    let zeros = "0".repeat(width.saturating_sub(text.chars().count()));
    let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
    Ok(format!("{sign}{zeros}{digits}"))
}

fn expanded(text: &str, arguments: &[Value]) -> Result<String, Error> {
    let (size, options): (Option<i64>, Kwargs) = from_args(arguments)?;
    let size = size.or(options.get("tabsize")?).unwrap_or(8);
    options.assert_all_used()?;
    let size = usize::try_from(size).unwrap_or(0);
    check_size("expandtabs", text.matches('\t').count().saturating_mul(size).saturating_add(text.len()))?;
    let (mut out, mut column) = (String::new(), 0);
    for letter in text.chars() {
        match letter {
            '\t' if size > 0 => {
                let spaces = size - column % size;
                out.push_str(&" ".repeat(spaces));
                column += spaces;
            }
            '\t' => {}
            letter => {
                out.push(letter);
                column = if matches!(letter, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    Ok(out)
}

/// Returns the characters from one position to another, as in `text[start:end]`; `None` if the start is behind the end.
fn window(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(usize, &str)> {
    let count = text.chars().count();
    let position = |at: i64| match usize::try_from(at) {
        Ok(at) => at,
        Err(_) => count.saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let start = start.map_or(0, position);
    let end = end.map_or(count, position).min(count);
    let offset = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(offset, _)| offset);
    (start <= end).then(|| (start, &text[offset(start)..offset(end)]))
}

fn found(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (part, start, end): (String, Option<i64>, Option<i64>) = from_args(arguments)?;
    let window = window(text, start, end);
    if method == "count" {
        return Ok(window.map_or(0, |(_, text)| text.matches(&part).count()).into());
    }
    let at = window.and_then(|(start, text)| {
        let at = if method.starts_with('r') { text.rfind(&part) } else { text.find(&part) };
        Some(start + text[..at?].chars().count())
    });
    match at {
        Some(at) => Ok(at.into()),
        None if method.ends_with("index") => Err(reject("substring not found")),
        None => Ok((-1).into()),
    }
}

fn has_affix(text: &str, method: &str, arguments: &[Value]) -> Result<bool, Error> {
    let (affix, start, end): (Value, Option<i64>, Option<i64>) = from_args(arguments)?;
    let mut affixes = Vec::new();
    match affix.kind() {
        ValueKind::String => affixes.push(affix),
        ValueKind::Seq if affix.is_tuple() => affixes.extend(affix.try_iter()?),
        _ => {
            let kind = type_name(&affix);
            return Err(reject(format!("{method} first arg must be str or a tuple of str, not {kind}")));
        }
    }
    let window = window(text, start, end).map(|(_, text)| text);
    for affix in &affixes {
        let affix = affix
            .as_str()
            .ok_or_else(|| reject(format!("tuple for {method} must only contain str, not {}", type_name(affix))))?;
        let has = |text: &str| if method == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) };
        if window.is_some_and(has) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn stripped<'t>(text: &'t str, method: &str, arguments: &[Value]) -> Result<&'t str, Error> {
    let (letters,): (Option<String>,) = from_args(arguments)?;
    let is_stripped = |letter: char| match &letters {
        Some(letters) => letters.contains(letter),
        None => is_space(letter),
    };
    Ok(match method {
        "strip" => text.trim_matches(is_stripped),
        "lstrip" => text.trim_start_matches(is_stripped),
        _ => text.trim_end_matches(is_stripped),
    })
}

fn affix(arguments: &[Value]) -> Result<String, Error> {
    let (affix,): (String,) = from_args(arguments)?;
    Ok(affix)
}

fn parts(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (separator,): (String,) = from_args(arguments)?;
    if separator.is_empty() {
        return Err(reject("empty separator"));
    }
    let parts = match method {
        "partition" => {
            text.split_once(&separator).map_or([text, "", ""], |(before, after)| [before, &separator, after])
        }
        _ => text.rsplit_once(&separator).map_or(["", "", text], |(before, after)| [before, &separator, after]),
    };
    Ok(Tuple::from(parts.map(Value::from)).into())
}

fn replaced(text: &str, arguments: &[Value]) -> Result<String, Error> {
    if arguments.last().is_some_and(Value::is_kwargs) {
        return Err(reject("str.replace() takes no keyword arguments"));
    }
    let (old, new, count): (String, String, Option<i64>) = from_args(arguments)?;
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let matches = text.matches(&old).count().min(count);
    check_size("replace", text.len().saturating_add(matches.saturating_mul(new.len())))?;
    Ok(text.replacen(&old, &new, count))
}

fn split(text: &str, arguments: &[Value], from_end: bool) -> Result<Value, Error> {
    let (separator, limit, options): (Option<Value>, Option<i64>, Kwargs) = from_args(arguments)?;
    let separator = separator.or(options.get("sep")?).filter(|separator| !separator.is_none());
    let limit = limit.or(options.get("maxsplit")?).and_then(|limit| usize::try_from(limit).ok());
    options.assert_all_used()?;
    let limit = limit.unwrap_or(usize::MAX).saturating_add(1);
    let separator = match &separator {
        None => None,
        Some(separator) => Some(separator.as_str().ok_or_else(|| reject("must be str or None"))?),
    };
    let mut found: Vec<&str> = match (separator, from_end) {
        (Some(""), _) => return Err(reject("empty separator")),
        (Some(separator), false) => text.splitn(limit, separator).collect(),
        (Some(separator), true) => text.rsplitn(limit, separator).collect(),
        (None, _) => words(text, limit, from_end),
    };
    if from_end {
        found.reverse();
    }
    Ok(found.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

/// Splits at spaces, with the rest of the text as the last one.
fn words(text: &str, limit: usize, from_end: bool) -> Vec<&str> {
    let trim = |text: &'_ str| -> usize {
        // The number of bytes to remove.
        match from_end {
            true => text.len() - text.trim_end_matches(is_space).len(),
            false => text.len() - text.trim_start_matches(is_space).len(),
        }
    };
    let (mut found, mut rest) = (Vec::new(), text);
    loop {
        let spaces = trim(rest);
        rest = if from_end { &rest[..rest.len() - spaces] } else { &rest[spaces..] };
        if rest.is_empty() {
            return found;
        }
        if found.len() + 1 == limit {
            found.push(rest);
            return found;
        }
        let (word, remaining) = match from_end {
            true => rest.rsplit_once(is_space).map_or((rest, ""), |(remaining, word)| (word, remaining)),
            false => rest.split_once(is_space).unwrap_or((rest, "")),
        };
        found.push(word);
        rest = remaining;
    }
}

fn lines(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (keep, options): (Option<bool>, Kwargs) = from_args(arguments)?;
    let keep = keep.or(options.get("keepends")?).unwrap_or(false);
    options.assert_all_used()?;
    let is_end = |letter: char| {
        matches!(letter, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let (mut found, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (line, end) = match rest.find(is_end) {
            None => (rest.len(), rest.len()),
            Some(at) if rest[at..].starts_with("\r\n") => (at, at + 2),
            Some(at) => (at, at + rest[at..].chars().next().map_or(0, char::len_utf8)),
        };
        found.push(Value::from(if keep { &rest[..end] } else { &rest[..line] }));
        rest = &rest[end..];
    }
    Ok(found.into())
}

/// Calls a method of bytes, a list or a map; `None` if it is another one.
pub(super) fn of_other(value: &Value, method: &str, arguments: &[Value]) -> Option<Result<Value, Error>> {
    match (value.kind(), method) {
        (ValueKind::Bytes, _) => Some(of_bytes(value.as_bytes()?, method, arguments)),
        (ValueKind::Seq | ValueKind::Map, "copy") => Some(no_arguments(method, arguments).map(|()| value.clone())),
        (ValueKind::Seq, "index") => Some(position(value, arguments)),
        _ => None,
    }
}

fn of_bytes(bytes: &[u8], method: &str, arguments: &[Value]) -> Result<Value, Error> {
    match method {
        "decode" => decoded(bytes, arguments),
        "hex" => no_arguments(method, arguments).map(|()| flyball_core::hex::encode(bytes).into()),
        _ => Err(reject(format!("the built-in executor does not support method {method} of bytes"))),
    }
}

/// Returns the index of an item.
fn position(list: &Value, arguments: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = from_args(arguments)?;
    let at = list.try_iter()?.position(|item| item == wanted);
    at.map(Value::from).ok_or_else(|| reject(format!("{wanted} is not in list")))
}
