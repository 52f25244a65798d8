//! Methods of Python's strings and bytes, and those of lists and maps that change nothing.
//!
//! See <https://docs.python.org/3/library/stdtypes.html#string-methods>. Positions are those of characters, as in
//! Python. The engine charges a result after its creation, so sizes of results are checked in advance.

use super::output::check_size;
use super::reject;
use minijinja::Error;
use minijinja::value::{Kwargs, Value, ValueKind, from_args};

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
        _ => none().map(|()| is_of_class(text, method).into())?,
    })
}

fn no_arguments(method: &str, arguments: &[Value]) -> Result<(), Error> {
    match arguments.len() {
        0 => Ok(()),
        count => Err(reject(format!("str.{method}() takes no arguments ({count} given)"))),
    }
}

/// Returns the tests of the characters of a string.
fn is_of_class(text: &str, method: &str) -> bool {
    let all = |is: fn(char) -> bool| !text.is_empty() && text.chars().all(is);
    let is_cased = |letter: char| letter.is_lowercase() || letter.is_uppercase();
    match method {
        "isalnum" => all(|letter| letter.is_alphanumeric()),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => text.is_ascii(),
        "isdecimal" => all(is_decimal),
        "isdigit" => all(|letter| is_decimal(letter) || is_superscript(letter)),
        "isidentifier" => {
            let is_start = |letter: char| letter.is_alphabetic() || letter == '_';
            text.starts_with(is_start) && text.chars().all(|letter| is_start(letter) || letter.is_alphanumeric())
        }
        "islower" => text.chars().any(is_cased) && !text.chars().any(char::is_uppercase),
        "isnumeric" => all(|letter| letter.is_numeric() || is_ideograph_of_number(letter)),
        "isprintable" => text.chars().all(|letter| letter == ' ' || !letter.is_control() && !letter.is_whitespace()),
        "isspace" => all(char::is_whitespace),
        "isupper" => text.chars().any(is_cased) && !text.chars().any(char::is_lowercase),
        // The last one: each word begins in upper case and continues in lower case.
        _ => {
            let (mut is_title, mut follows) = (false, false);
            for letter in text.chars() {
                if letter.is_uppercase() && follows || letter.is_lowercase() && !follows {
                    return false;
                }
                follows = is_cased(letter);
                is_title |= follows;
            }
            is_title
        }
    }
}

fn is_decimal(letter: char) -> bool {
    // Decimal digits of other scripts are ten consecutive numeric characters, which start at these.
    const ZEROS: [u32; 8] = [0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xe50, 0xff10];
    ZEROS.iter().any(|zero| (*zero..zero + 10).contains(&u32::from(letter)))
}

fn is_superscript(letter: char) -> bool {
    const RANGES: [(char, char); 4] =
        [('\u{2070}', '\u{2070}'), ('\u{2074}', '\u{2079}'), ('\u{2080}', '\u{2089}'), ('\u{2460}', '\u{2468}')];
    "¹²³".contains(letter) || RANGES.iter().any(|(first, last)| (*first..=*last).contains(&letter))
}

fn is_ideograph_of_number(letter: char) -> bool {
    "零一二三四五六七八九十百千万億兆".contains(letter)
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(title_case).unwrap_or_default();
    first + &letters.as_str().to_lowercase()
}

/// Returns a letter in title case, which differs from upper case for a few digraphs.
fn title_case(letter: char) -> String {
    match letter {
        'Ǆ' | 'ǅ' | 'ǆ' => "ǅ".to_owned(),
        'Ǉ' | 'ǈ' | 'ǉ' => "ǈ".to_owned(),
        'Ǌ' | 'ǋ' | 'ǌ' => "ǋ".to_owned(),
        'Ǳ' | 'ǲ' | 'ǳ' => "ǲ".to_owned(),
        'ß' => "Ss".to_owned(),
        letter => letter.to_uppercase().collect(),
    }
}

fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect::<String>().replace('ß', "ss").replace('ς', "σ")
}

fn swapped(text: &str) -> String {
    let swap = |letter: char| -> String {
        if letter.is_uppercase() { letter.to_lowercase().collect() } else { letter.to_uppercase().collect() }
    };
    text.chars().map(swap).collect()
}

fn titled(text: &str) -> String {
    let (mut out, mut follows) = (String::new(), false);
    for letter in text.chars() {
        match follows {
            true => out.extend(letter.to_lowercase()),
            false => out.push_str(&title_case(letter)),
        }
        follows = letter.is_alphabetic();
    }
    out
}

/// Pads a text by the method `center`, `ljust` or `rjust`.
pub(super) fn padded(text: &str, method: &str, arguments: &[Value]) -> Result<String, Error> {
    let (width, fill): (i64, Option<String>) = from_args(arguments)?;
    let fill = fill.unwrap_or_else(|| " ".to_owned());
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
    let (width,): (i64,) = from_args(arguments)?;
    let width = usize::try_from(width).unwrap_or(0);
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

fn encoded(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (encoding, options): (Option<String>, Kwargs) = from_args(arguments)?;
    let encoding = encoding.or(options.get("encoding")?).unwrap_or_else(|| "utf-8".to_owned());
    options.assert_all_used()?;
    let limit = match encoding.to_ascii_lowercase().replace('_', "-").as_str() {
        "utf-8" | "utf8" => return Ok(Value::from_bytes(text.as_bytes().to_vec())),
        "ascii" | "us-ascii" => 0x80,
        "latin-1" | "latin1" | "iso-8859-1" => 0x100,
        _ => {
            return Err(reject(format!(
                "the built-in executor does not support encoding {encoding}; supported: utf-8, ascii, latin-1"
            )));
        }
    };
    let mut bytes = Vec::new();
    for (at, letter) in text.chars().enumerate() {
        match u8::try_from(u32::from(letter)).ok().filter(|byte| u32::from(*byte) < limit) {
            Some(byte) => bytes.push(byte),
            None => {
                return Err(reject(format!(
                    "'{encoding}' codec can't encode a character in position {at}: ordinal not in range({limit})"
                )));
            }
        }
    }
    Ok(Value::from_bytes(bytes))
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
        _ => return Err(reject(format!("{method} first arg must be str or a tuple of str"))),
    }
    let Some((_, text)) = window(text, start, end) else { return Ok(false) };
    let has = |affix: &Value| {
        affix.as_str().is_some_and(|affix| match method {
            "startswith" => text.starts_with(affix),
            _ => text.ends_with(affix),
        })
    };
    Ok(affixes.iter().any(has))
}

fn stripped<'t>(text: &'t str, method: &str, arguments: &[Value]) -> Result<&'t str, Error> {
    let (letters,): (Option<String>,) = from_args(arguments)?;
    let is_stripped = |letter: char| match &letters {
        Some(letters) => letters.contains(letter),
        None => letter.is_whitespace(),
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
    Ok(parts.map(Value::from).into_iter().collect::<Vec<_>>().into())
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
            true => text.len() - text.trim_end().len(),
            false => text.len() - text.trim_start().len(),
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
            true => rest.rsplit_once(char::is_whitespace).map_or((rest, ""), |(remaining, word)| (word, remaining)),
            false => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
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
        "decode" => {
            let (encoding, options): (Option<String>, Kwargs) = from_args(arguments)?;
            let encoding = encoding.or(options.get("encoding")?).unwrap_or_else(|| "utf-8".to_owned());
            options.assert_all_used()?;
            if !matches!(encoding.to_ascii_lowercase().as_str(), "utf-8" | "utf8" | "ascii") {
                return Err(reject(format!(
                    "the built-in executor does not support encoding {encoding}; supported: utf-8"
                )));
            }
            std::str::from_utf8(bytes).map(Value::from).map_err(|_| reject("decode: the bytes are not valid UTF-8"))
        }
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
