//! TOML decoder with the order and messages of BurntSushi/toml.

use super::scan::{Problem, ScanResult, Scanner, StringLiteral, is_blank, is_line_end, quoted};
use crate::message;
use crate::value::{List, ListKind, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum nesting depth of lists and inline tables, and number of parts of a key.
const DEPTH: usize = 200;

/// Limit of steps between tables when keys are set. A key with many parts takes many steps, and the paths of its tables
/// are stored.
const MAX_STEPS: usize = 1_000_000;

/// The value at a key.
enum Node {
    Value(Value),
    Table(Table),
    Tables(Vec<Table>),
}

type Table = BTreeMap<String, Node>;

/// Decodes a document.
///
/// # Errors
///
/// Fails if the document is not TOML; the message contains the line and the last key.
pub(in super::super) fn read(text: &str) -> Result<Value, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.bytes().take(6).any(|byte| byte == 0) {
        let reason = "files cannot contain NULL bytes; probably using UTF-16; TOML files must be UTF-8";
        return Err(format!("toml: line 1: {reason}"));
    }
    let mut reader = Reader {
        scanner: Scanner::new(text),
        root: Table::new(),
        context: Vec::new(),
        key: String::new(),
        key_at: 0,
        implicit: BTreeSet::new(),
        lists: BTreeSet::new(),
        depth: 0,
        steps: 0,
    };
    match reader.document() {
        Ok(()) => Ok(map_of(&reader.root)),
        Err(Problem { message, line }) => match reader.current() {
            key if key.is_empty() => Err(format!("toml: line {line}: {message}")),
            key => Err(format!("toml: line {line} (last key {}): {message}", message::quoted(&key))),
        },
    }
}

fn value_of(node: &Node) -> Value {
    match node {
        Node::Value(value) => value.clone(),
        Node::Table(table) => map_of(table),
        Node::Tables(tables) => {
            let items = tables.iter().map(map_of).collect();
            Value::List(List::new(ListKind::Named("[]map[string]interface {}"), items))
        }
    }
}

fn map_of(table: &Table) -> Value {
    Value::map(table.iter().map(|(key, node)| (key.clone(), value_of(node))).collect())
}

/// Formats a key for messages.
fn format_key(key: &[String]) -> String {
    key.iter().map(|part| super::key(part)).collect::<Vec<_>>().join(".")
}

struct Reader<'t> {
    scanner: Scanner<'t>,
    root: Table,
    context: Vec<String>,
    key: String,
    /// Position of the last key.
    key_at: usize,
    /// Tables that other keys define implicitly.
    implicit: BTreeSet<Vec<String>>,
    /// Keys of lists.
    lists: BTreeSet<Vec<String>>,
    depth: usize,
    steps: usize,
}

impl Reader<'_> {
    fn current(&self) -> String {
        match (self.key.is_empty(), self.context.is_empty()) {
            (true, _) => format_key(&self.context),
            (false, true) => self.key.clone(),
            (false, false) => format!("{}.{}", format_key(&self.context), self.key),
        }
    }

    /// An error at the last key.
    fn key_error<T>(&self, message: String) -> ScanResult<T> {
        Err(Problem { message, line: self.scanner.line_at(self.key_at) })
    }

    fn document(&mut self) -> ScanResult<()> {
        loop {
            self.scanner.skip(|c| is_blank(c) || is_line_end(c))?;
            match self.scanner.peek() {
                None => return Ok(()),
                Some('#') => {
                    self.scanner.comment()?;
                    continue;
                }
                Some('[') => self.header()?,
                Some(_) => {
                    let outer = self.context.clone();
                    self.pair()?;
                    self.context = outer;
                    self.key.clear();
                }
            }
            self.scanner.skip(is_blank)?;
            match self.scanner.next()? {
                None => return Ok(()),
                Some('#') => self.scanner.comment()?,
                Some(c) if is_line_end(c) => {}
                c => {
                    let c = quoted(c);
                    return self.scanner.fail(
                        Some(' '),
                        format!(
                            "expected a top-level item to end with a newline, comment, or EOF, but got {c} instead"
                        ),
                    );
                }
            }
        }
    }

    /// `[table]` or `[[list]]`.
    fn header(&mut self) -> ScanResult<()> {
        self.scanner.next()?;
        let is_list = self.scanner.next_if(|c| c == '[')?.is_some();
        let mut key = Vec::new();
        loop {
            self.scanner.skip(is_blank)?;
            match self.scanner.peek() {
                c @ (Some(']') | None) => {
                    return self.scanner.fail(c, "unexpected end of table name (table names cannot be empty)");
                }
                c @ Some('.') => {
                    return self.scanner.fail(c, "unexpected table separator (table names cannot be empty)");
                }
                Some(_) => {}
            }
            if key.is_empty() {
                self.key_at = self.scanner.at;
            }
            let part = self.scanner.name()?;
            key.push(self.text(&part)?);
            self.scanner.skip(is_blank)?;
            match self.scanner.next()? {
                Some('.') => {}
                Some(']') => break,
                c => {
                    let message = format!("expected '.' or ']' to end table name, but got {} instead", quoted(c));
                    return self.scanner.fail(c, message);
                }
            }
        }
        if is_list {
            match self.scanner.next()? {
                Some(']') => {}
                c => {
                    let message =
                        format!("expected end of table array name delimiter ']', but got {} instead", quoted(c));
                    return self.scanner.fail(c, message);
                }
            }
        }
        self.enter(key, is_list)
    }

    /// `a.b = value`; context and key remain set afterwards.
    fn pair(&mut self) -> ScanResult<()> {
        self.scanner.skip(is_blank)?;
        match self.scanner.peek() {
            c @ (Some('=') | None) => return self.scanner.fail(c, "unexpected '=': key name appears blank"),
            c @ Some('.') => return self.scanner.fail(c, "unexpected '.': keys cannot start with a '.'"),
            Some(_) => {}
        }
        self.key_at = self.scanner.at;
        let mut key = Vec::new();
        loop {
            self.scanner.skip(is_blank)?;
            match self.scanner.peek() {
                c @ (Some('=') | None) if !key.is_empty() => return self.scanner.fail(c, "unexpected '='"),
                c @ Some('.') => return self.scanner.fail(c, "unexpected '.'"),
                _ => {}
            }
            let part = self.scanner.name()?;
            key.push(self.text(&part)?);
            self.scanner.skip(is_blank)?;
            match self.scanner.next()? {
                Some('.') => {}
                Some('=') => break,
                None => return self.scanner.fail(None, "unexpected EOF; expected key separator '='"),
                c => {
                    let message = format!("expected '.' or '=', but got {} instead", quoted(c));
                    return if c == Some('\n') {
                        self.scanner.fail_before(message)
                    } else {
                        self.scanner.fail(c, message)
                    };
                }
            }
        }
        self.check_depth(self.context.len() + key.len())?;
        self.key = key.pop().unwrap_or_default();
        for part in &key {
            let mut implied = self.context.clone();
            implied.push(part.clone());
            self.implicit.insert(implied.clone());
            self.enter(implied, false)?;
        }
        let value = self.value(false)?;
        let name = self.key.clone();
        self.set(&name, Node::Value(value))
    }

    fn value(&mut self, in_list: bool) -> ScanResult<Value> {
        self.scanner.skip(is_blank)?;
        let from = self.scanner.at;
        let c = self.scanner.next()?;
        match c {
            Some('0'..='9' | '+' | '-') => self.number(from, c),
            Some('[') => self.nested(Self::list),
            Some('{') => self.nested(|reader| reader.inline(in_list)),
            Some(quote @ ('"' | '\'')) => {
                let literal = match self.scanner.next_if(|c| c == quote)? {
                    None if quote == '"' => self.scanner.basic()?,
                    None => self.scanner.raw()?,
                    Some(_) => match self.scanner.next_if(|c| c == quote)? {
                        None => StringLiteral::Raw(""),
                        Some(_) => self.scanner.lines(quote)?,
                    },
                };
                self.text(&literal).map(Value::str)
            }
            Some('.') => self.scanner.fail(c, "floats must start with a digit, not '.'"),
            Some(letter) if letter.is_alphabetic() => {
                self.scanner.skip(char::is_alphabetic)?;
                match self.scanner.since(from) {
                    "true" => Ok(Value::Bool(true)),
                    "false" => Ok(Value::Bool(false)),
                    "inf" => Ok(Value::Float(f64::INFINITY)),
                    "nan" => Ok(Value::Float(f64::NAN)),
                    word => {
                        let message = format!("expected value but found {} instead", message::quoted(word));
                        self.scanner.fail(c, message)
                    }
                }
            }
            None => self.scanner.fail(None, "unexpected EOF; expected value"),
            Some('\n') => self.scanner.fail_before("expected value but found '\\n' instead"),
            c => self.scanner.fail(c, format!("expected value but found {} instead", quoted(c))),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> ScanResult<Value>) -> ScanResult<Value> {
        self.depth += 1;
        if self.depth > DEPTH {
            return self.scanner.fail(Some(' '), format!("values are nested deeper than {DEPTH}"));
        }
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Skips to the next element of an array or an inline table; returns false at its terminator.
    fn has_element(&mut self, terminator: char) -> ScanResult<bool> {
        loop {
            self.scanner.skip(|c| is_blank(c) || is_line_end(c))?;
            match self.scanner.peek() {
                Some('#') => self.scanner.comment()?,
                c @ Some(',') => {
                    self.scanner.next()?;
                    return self.scanner.fail(c, "unexpected comma");
                }
                c => return Ok(c != Some(terminator)),
            }
        }
    }

    /// Skips to the terminator, or past a comma. `message` is the error of another character, which replaces `{}`.
    fn separator(&mut self, terminator: char, message: &str) -> ScanResult<()> {
        loop {
            self.scanner.skip(|c| is_blank(c) || is_line_end(c))?;
            match self.scanner.peek() {
                Some('#') => self.scanner.comment()?,
                Some(c) if c == ',' || c == terminator => break,
                c => {
                    self.scanner.next()?;
                    let got = c.map_or_else(|| "end of file".to_owned(), |c| format!("'{c}'"));
                    return self.scanner.fail(c, message.replacen("{}", &got, 1));
                }
            }
        }
        self.scanner.next_if(|c| c == ',')?;
        Ok(())
    }

    fn list(&mut self) -> ScanResult<Value> {
        let mut path = self.context.clone();
        path.push(self.key.clone());
        self.lists.insert(path);
        let mut items = Vec::new();
        while self.has_element(']')? {
            items.push(self.value(true)?);
            self.separator(']', "expected a comma (',') or array terminator (']'), but got {}")?;
        }
        self.scanner.next()?;
        Ok(Value::list(items))
    }

    fn inline(&mut self, in_list: bool) -> ScanResult<Value> {
        let (outer, outer_key) = (self.context.clone(), std::mem::take(&mut self.key));
        let mut path = outer.clone();
        path.push(outer_key.clone());
        self.implicit.insert(path.clone());
        self.enter(path.clone(), in_list)?;
        while self.has_element('}')? {
            self.pair()?;
            self.context.clone_from(&path);
            self.separator('}', "expected a comma or an inline table terminator '}', but got {} instead")?;
        }
        self.scanner.next()?;
        // Otherwise it is already in its table, see `set`.
        let value = if in_list { self.table(&path).map_or(Value::Nil, |table| map_of(table)) } else { Value::Nil };
        (self.context, self.key) = (outer, outer_key);
        Ok(value)
    }

    fn number(&mut self, from: usize, first: Option<char>) -> ScanResult<Value> {
        let is_signed = matches!(first, Some('+' | '-'));
        if is_signed {
            let c = self.scanner.next()?;
            match c {
                Some(start @ ('i' | 'n')) => {
                    let word = if start == 'i' { "nf" } else { "an" };
                    for letter in word.chars() {
                        if self.scanner.next_if(|c| c == letter)?.is_none() {
                            let message = format!("invalid float: '{}'", self.scanner.since(from));
                            return self.scanner.fail(c, message);
                        }
                    }
                    let number = if start == 'n' { f64::NAN } else { f64::INFINITY };
                    return Ok(Value::Float(if first == Some('-') { -number } else { number }));
                }
                Some('0') if matches!(self.scanner.peek(), Some('b' | 'o' | 'x')) => {
                    let (current, base) = (self.scanner.since(from), self.scanner.peek().unwrap_or_default());
                    let message = format!("cannot use sign with non-decimal numbers: '{current}{base}'");
                    return self.scanner.fail(c, message);
                }
                Some('.') => return self.scanner.fail(c, "floats must start with a digit, not '.'"),
                Some('0'..='9') => {}
                c => return self.scanner.fail(c, format!("expected a digit but got {}", quoted(c))),
            }
        }
        if first == Some('0')
            && let Some(base @ ('b' | 'o' | 'x')) = self.scanner.peek()
        {
            self.scanner.next()?;
            let (radix, name) = match base {
                'b' => (2, "a binary"),
                'o' => (8, "an octal"),
                _ => (16, "a hexadecimal"),
            };
            let next = self.scanner.peek();
            if !next.is_some_and(|c| c.is_digit(radix)) {
                let message = format!("not {name} number: '{}{}'", self.scanner.since(from), next.unwrap_or('\0'));
                return self.scanner.fail(next, message);
            }
            self.scanner.skip(|c| c.is_digit(radix) || c == '_')?;
            return self.integer(from, radix);
        }
        self.scanner.skip(|c| c.is_ascii_digit())?;
        match self.scanner.peek() {
            Some('-' | ':') if !is_signed => {
                self.scanner.skip(|c| c.is_ascii_digit() || "-:Tt .Zz+".contains(c))?;
                self.date(from)
            }
            _ => {
                self.scanner.skip(|c| c.is_ascii_digit() || c == '_')?;
                if !matches!(self.scanner.peek(), Some('.' | 'e' | 'E')) {
                    return self.integer(from, 10);
                }
                self.scanner.skip(|c| c.is_ascii_digit() || "_.-+eE".contains(c))?;
                self.float(from)
            }
        }
    }

    fn integer(&mut self, from: usize, radix: u32) -> ScanResult<Value> {
        let text = self.scanner.since(from);
        let fail =
            |reason: &str| self.scanner.fail(Some(' '), format!("Invalid integer {}: {reason}", message::quoted(text)));
        if !has_valid_underscores(text) {
            return fail("underscores must be surrounded by digits");
        }
        if has_leading_zero(text) {
            return fail("cannot have leading zeroes");
        }
        let plain = text.replace('_', "");
        let digits = if radix == 10 { plain.trim_start_matches('+') } else { &plain[2..] };
        match i64::from_str_radix(digits, radix) {
            Ok(whole) => Ok(Value::int64(whole)),
            Err(_) => self.scanner.fail(Some(' '), format!("{} is out of range for int64", message::excerpt(text))),
        }
    }

    fn float(&mut self, from: usize) -> ScanResult<Value> {
        let text = self.scanner.since(from);
        let quoted = message::quoted(text);
        let fail = |reason: String| self.scanner.fail(Some(' '), reason);
        let mut parts = text.split(['.', 'e', 'E']).filter(|part| !part.is_empty()).peekable();
        let first = parts.peek().copied().unwrap_or_default();
        if !parts.all(has_valid_underscores) {
            return fail(format!("Invalid float {quoted}: underscores must be surrounded by digits"));
        }
        if has_leading_zero(first) {
            return fail(format!("Invalid float {quoted}: cannot have leading zeroes"));
        }
        if text.split('.').skip(1).any(|part| !part.starts_with(|c: char| c.is_ascii_digit())) {
            return fail(format!("Invalid float {quoted}: '.' must be followed by one or more digits"));
        }
        match crate::number::parse_float(&text.replace('_', "")) {
            Some(number) if number.is_finite() => Ok(Value::Float(number)),
            Some(_) => fail(format!("{} is out of range for float64", message::excerpt(text))),
            None => fail(format!("Invalid float value: {quoted}")),
        }
    }

    fn date(&mut self, from: usize) -> ScanResult<Value> {
        let text = self.scanner.since(from).trim_end();
        let plain = text.replace('z', "Z").replace(['t', ' '], "T");
        match plain.parse::<::toml::value::Datetime>() {
            Ok(date) => Ok(Value::str(date.to_string())),
            Err(_) => self.scanner.fail(Some(' '), format!("invalid datetime: {}", message::quoted(&plain))),
        }
    }

    /// Returns the content of a string.
    fn text(&self, literal: &StringLiteral<'_>) -> ScanResult<String> {
        let without_first_line_end = |text: &str| {
            let rest = text.strip_prefix("\r\n").or_else(|| text.strip_prefix('\n'));
            rest.unwrap_or(text).to_owned()
        };
        match literal {
            StringLiteral::Raw(text) => Ok((*text).to_owned()),
            StringLiteral::RawLines(text) => Ok(without_first_line_end(text)),
            StringLiteral::Basic(text) => self.unescaped(text),
            StringLiteral::Lines(text) => self.unescaped(&without_first_line_end(text)),
        }
    }

    fn unescaped(&self, text: &str) -> ScanResult<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let c = rest.chars().next().unwrap_or('\0');
            let digits = match c {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                c if c.is_ascii_whitespace() => {
                    // A backslash at the end of a line removes all white space after it.
                    let after = rest.trim_start_matches([' ', '\t', '\r', '\n']);
                    if !rest[..rest.len() - after.len()].contains('\n') {
                        return self.scanner.fail(Some(' '), format!("invalid escape: '\\{c}'"));
                    }
                    rest = after;
                    continue;
                }
                _ => 0,
            };
            let digits = rest.get(1..=digits).unwrap_or_default();
            rest = rest.get(c.len_utf8() + digits.len()..).unwrap_or_default();
            out.push(match c {
                'b' => '\x08',
                't' => '\t',
                'n' => '\n',
                'f' => '\x0c',
                'r' => '\r',
                'e' => '\x1b',
                'x' | 'u' | 'U' => match u32::from_str_radix(digits, 16).ok().and_then(char::from_u32) {
                    Some(c) => c,
                    None => {
                        let message = format!("Escaped character '\\u{digits}' is not valid UTF-8.");
                        return self.scanner.fail(Some(' '), message);
                    }
                },
                c => c,
            });
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Finds the table of a key; for a list of tables, the last one.
    fn table(&mut self, key: &[String]) -> Result<&mut Table, Vec<String>> {
        let mut table = &mut self.root;
        for (at, part) in key.iter().enumerate() {
            table = match table.get_mut(part) {
                Some(Node::Table(inner)) => inner,
                Some(Node::Tables(tables)) if !tables.is_empty() => {
                    let last = tables.len() - 1;
                    &mut tables[last]
                }
                _ => return Err(key[..=at].to_vec()),
            };
        }
        Ok(table)
    }

    fn check_depth(&self, parts: usize) -> ScanResult<()> {
        if parts > DEPTH { self.key_error(format!("keys are nested deeper than {DEPTH}")) } else { Ok(()) }
    }

    /// Charges the steps of setting a key.
    fn walk(&mut self, steps: usize) -> ScanResult<()> {
        self.steps += steps;
        if self.steps > MAX_STEPS {
            self.key_error("the document has too many keys with many parts".into())
        } else {
            Ok(())
        }
    }

    /// Makes a key the context, and creates the tables on its path.
    fn enter(&mut self, mut key: Vec<String>, is_list: bool) -> ScanResult<()> {
        self.check_depth(key.len())?;
        self.walk(key.len() * key.len())?;
        let last = key.pop().unwrap_or_default();
        for length in 1..=key.len() {
            let (parent, part) = (&key[..length - 1], &key[length - 1]);
            let Ok(table) = self.table(parent) else { continue };
            if !table.contains_key(part) {
                table.insert(part.clone(), Node::Table(Table::new()));
                self.implicit.insert(key[..length].to_vec());
            } else if matches!(table[part], Node::Value(_)) {
                self.context = key[..length - 1].to_vec();
                return self.key_error(format!("Key '{}' was already created as a hash.", format_key(&key[..length])));
            }
        }
        self.context.clone_from(&key);
        if is_list {
            let used = |reader: &Self| {
                let whole = [&key[..], std::slice::from_ref(&last)].concat();
                reader.key_error(format!(
                    "Key '{}' was already created and cannot be used as an array.",
                    format_key(&whole)
                ))
            };
            let Ok(table) = self.table(&key) else { return used(self) };
            match table.entry(last.clone()).or_insert_with(|| Node::Tables(Vec::new())) {
                Node::Tables(tables) => tables.push(Table::new()),
                _ => return used(self),
            }
        } else {
            self.set(&last, Node::Table(Table::new()))?;
        }
        self.context.push(last);
        Ok(())
    }

    /// Sets a key of the context.
    fn set(&mut self, key: &str, node: Node) -> ScanResult<()> {
        self.walk(self.context.len() + 1)?;
        let context = self.context.clone();
        let whole = [&context[..], &[key.to_owned()]].concat();
        let (is_list, is_implicit) = (self.lists.contains(&whole), self.implicit.contains(&whole));
        let defined = |reader: &Self, key: &[String]| {
            reader.key_error(format!("Key '{}' has already been defined.", format_key(key)))
        };
        let table = match self.table(&context) {
            Ok(table) => table,
            Err(part) => return defined(self, &part),
        };
        if !table.contains_key(key) {
            table.insert(key.to_owned(), node);
            return Ok(());
        }
        if !is_implicit {
            return defined(self, &whole);
        }
        // Values of inline tables are already set; lists of them are stored as lists of tables.
        if is_list {
            table.insert(key.to_owned(), node);
        }
        self.implicit.remove(&whole);
        Ok(())
    }
}

/// Underscores must be between digits.
fn has_valid_underscores(text: &str) -> bool {
    let mut is_digit = false;
    for c in text.chars() {
        if c == '_' && !is_digit {
            return false;
        }
        is_digit = c.is_ascii_hexdigit();
    }
    is_digit
}

fn has_leading_zero(text: &str) -> bool {
    let bytes = text.as_bytes();
    match bytes {
        [b'0', second, ..] => !matches!(second, b'b' | b'o' | b'x'),
        [b'-' | b'+', b'0', _, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_of_dotted_keys_is_bounded() {
        for (document, reason) in [
            (format!("{}a = 1", "a.".repeat(100_000)), "keys are nested deeper than 200"),
            (format!("[{}a]", "a.".repeat(100_000)), "keys are nested deeper than 200"),
            (
                (0..20_000).map(|n| format!("k{n}.{}a = 1\n", "a.".repeat(50))).collect(),
                "too many keys with many parts",
            ),
            (format!("a = {}1", "{a = ".repeat(300)), "too many keys with many parts"),
            (format!("a = {}", "[".repeat(300)), "values are nested deeper than 200"),
        ] {
            let error = read(&document).map(drop).unwrap_err();
            assert!(error.contains(reason), "{error:.300}");
        }
        let many: String = (0..50_000).map(|n| format!("a.b.k{n} = {n}\n")).collect();
        assert!(read(&many).is_ok());
    }
}
