//! Quoting and unquoting of strings like Go's `strconv`.

/// Quotes a string like `%q`.
pub(crate) fn quote(bytes: &[u8]) -> String {
    quote_with(bytes, false)
}

/// Quotes a string, optionally with only ASCII.
pub(crate) fn quote_with(bytes: &[u8], is_ascii: bool) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            escape(&mut out, c, '"', is_ascii);
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}

/// Quotes a string with backquotes if possible, otherwise with double quotes, like Go's messages about patterns.
pub(crate) fn backquote(text: &str) -> String {
    let can_stand = |c: char| c != '`' && c != '\u{7f}' && c != '\u{feff}' && (c >= ' ' || c == '\t');
    if text.chars().all(can_stand) { format!("`{text}`") } else { quote(text.as_bytes()) }
}

pub(crate) fn escape(out: &mut String, c: char, quote: char, is_ascii: bool) {
    match c {
        '\\' => out.push_str("\\\\"),
        c if c == quote => out.extend(['\\', c]),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        c if (c.is_ascii() || !is_ascii) && is_print(c) => out.push(c),
        c if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
}

/// Go's `unicode.IsPrint`, as far as the tables of std permit: no control or format characters, and no space except the
/// plain one.
pub(crate) fn is_print(c: char) -> bool {
    match c {
        ' ' => true,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => false,
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' | '\u{fff0}'..='\u{fffb}' => false,
        c => !c.is_control() && !c.is_whitespace(),
    }
}

/// `%#U`: `U+002D '-'`.
pub(crate) fn unicode(c: char) -> String {
    if is_print(c) { format!("U+{:04X} '{c}'", u32::from(c)) } else { format!("U+{:04X}", u32::from(c)) }
}

/// Returns the content of a quoted string: `"…"` with escapes, `'…'`, or raw `` `…` ``.
pub(crate) fn unquote(written: &str) -> Option<Vec<u8>> {
    let quote = written.chars().next()?;
    let inner = written.strip_prefix(quote)?.strip_suffix(quote)?;
    if quote == '`' {
        return Some(inner.bytes().filter(|byte| *byte != b'\r').collect());
    }
    unescape(inner, quote)
}

fn unescape(inner: &str, quote: char) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == quote || c == '\n' {
            return None;
        }
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        let code = chars.next()?;
        let mut digits = |count: usize, base: u32, first: Option<char>| {
            let more = chars.by_ref().take(count - usize::from(first.is_some()));
            let text: String = first.into_iter().chain(more).collect();
            (text.len() == count).then(|| u32::from_str_radix(&text, base).ok()).flatten()
        };
        match code {
            'a' => out.push(7),
            'b' => out.push(8),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(11),
            '\\' => out.push(b'\\'),
            'x' => out.push(u8::try_from(digits(2, 16, None)?).ok()?),
            '0'..='7' => out.push(u8::try_from(digits(3, 8, Some(code))?).ok()?),
            'u' | 'U' => {
                let c = char::from_u32(digits(if code == 'u' { 4 } else { 8 }, 16, None)?)?;
                out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            }
            c if c == quote => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            _ => return None,
        }
    }
    Some(out)
}
