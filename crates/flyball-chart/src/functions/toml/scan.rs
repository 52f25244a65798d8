//! The characters of a TOML document, and the errors of BurntSushi/toml, which contain line and last key.

/// Error in a document, with its line.
pub(super) struct Problem {
    pub(super) message: String,
    pub(super) line: usize,
}

pub(super) type ScanResult<T> = Result<T, Problem>;

/// A document that is read character by character.
pub(super) struct Scanner<'t> {
    text: &'t str,
    pub(super) at: usize,
}

pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

pub(super) fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r')
}

fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Quotes a character like Go; the end of input is a zero.
pub(super) fn quoted(c: Option<char>) -> String {
    let text = crate::quote::quote(c.unwrap_or('\0').encode_utf8(&mut [0; 4]).as_bytes());
    let inner = &text[1..text.len() - 1];
    match c {
        Some('\'') => r"'\''".to_owned(),
        Some('"') => "'\"'".to_owned(),
        _ => format!("'{inner}'"),
    }
}

/// A string as written in the document.
pub(super) enum StringLiteral<'t> {
    Basic(&'t str),
    Lines(&'t str),
    Raw(&'t str),
    RawLines(&'t str),
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn since(&self, from: usize) -> &'t str {
        &self.text[from..self.at]
    }

    /// The line of the last character read.
    pub(super) fn line(&self) -> usize {
        self.line_at(self.at)
    }

    /// Counts the lines up to a position; only used for errors.
    pub(super) fn line_at(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// Consumes a character.
    pub(super) fn next(&mut self) -> ScanResult<Option<char>> {
        let Some(c) = self.peek() else { return Ok(None) };
        let lone_return = c == '\r' && !self.text[self.at + 1..].starts_with('\n');
        if lone_return || (c < ' ' && !matches!(c, '\t' | '\r' | '\n')) || c == '\u{7f}' {
            let message = format!("TOML files cannot contain control characters: '0x{:02x}'", u32::from(c));
            return Err(Problem { message, line: self.line() });
        }
        self.at += c.len_utf8();
        Ok(Some(c))
    }

    /// Consumes a character if it is the expected one.
    pub(super) fn next_if(&mut self, is: impl Fn(char) -> bool) -> ScanResult<Option<char>> {
        match self.peek().filter(|c| is(*c)) {
            Some(_) => self.next(),
            None => Ok(None),
        }
    }

    pub(super) fn skip(&mut self, is: impl Fn(char) -> bool) -> ScanResult<()> {
        while self.next_if(&is)?.is_some() {}
        Ok(())
    }

    /// Skips a comment after its start.
    pub(super) fn comment(&mut self) -> ScanResult<()> {
        self.skip(|c| !is_line_end(c))
    }

    /// An error at the current position; `None` is the end of input.
    pub(super) fn fail<T>(&self, read: Option<char>, message: impl Into<String>) -> ScanResult<T> {
        let is_blank_end = read.is_none() && self.text[..self.at].ends_with('\n');
        Err(Problem { message: message.into(), line: self.line() - usize::from(is_blank_end) })
    }

    /// An error in the previous line.
    pub(super) fn fail_before<T>(&self, message: impl Into<String>) -> ScanResult<T> {
        Err(Problem { message: message.into(), line: self.line() - 1 })
    }

    /// A part of a key.
    pub(super) fn name(&mut self) -> ScanResult<StringLiteral<'t>> {
        match self.peek() {
            Some(quote @ ('"' | '\'')) => {
                self.next()?;
                if quote == '"' { self.basic() } else { self.raw() }
            }
            _ => {
                let from = self.at;
                self.skip(is_bare)?;
                Ok(StringLiteral::Raw(self.since(from)))
            }
        }
    }

    /// A single-line string after its opening quote.
    pub(super) fn basic(&mut self) -> ScanResult<StringLiteral<'t>> {
        let from = self.at;
        loop {
            match self.next()? {
                None => return self.fail(None, "unexpected EOF; expected '\"'"),
                Some(c) if is_line_end(c) => return self.fail_before("strings cannot contain newlines"),
                Some('\\') => self.escape(from)?,
                Some('"') => return Ok(StringLiteral::Basic(&self.text[from..self.at - 1])),
                Some(_) => {}
            }
        }
    }

    pub(super) fn raw(&mut self) -> ScanResult<StringLiteral<'t>> {
        let from = self.at;
        loop {
            match self.next()? {
                None => return self.fail(None, "unexpected EOF; expected \"'\""),
                Some(c) if is_line_end(c) => return self.fail_before("strings cannot contain newlines"),
                Some('\'') => return Ok(StringLiteral::Raw(&self.text[from..self.at - 1])),
                Some(_) => {}
            }
        }
    }

    /// A multi-line string after its opening quotes.
    pub(super) fn lines(&mut self, quote: char) -> ScanResult<StringLiteral<'t>> {
        let from = self.at;
        let three = String::from_iter([quote; 3]);
        loop {
            match self.next()? {
                None if quote == '"' => return self.fail(None, "unexpected EOF; expected '\"\"\"'"),
                None => return self.fail(None, "unexpected EOF; expected \"'''\""),
                Some('\\') if quote == '"' => {
                    if self.next_if(is_line_end)?.is_none() {
                        self.escape(from)?;
                    }
                }
                Some(c) if c == quote && self.text[self.at - 1..].starts_with(&three) => {
                    // Up to two quotes before the closing three belong to the string.
                    let count = self.text[self.at - 1..].chars().take_while(|c| *c == quote).count();
                    let is_escaped = quote == '"' && self.text[..self.at - 1].ends_with('\\');
                    if count >= 6 && !is_escaped {
                        self.at += 4;
                        let six = String::from_iter([quote; 6]);
                        let quoted = if quote == '"' { format!("'{six}'") } else { format!("\"{six}\"") };
                        return self.fail(Some(c), format!("unexpected {quoted}"));
                    }
                    self.at += count.min(5) - 1;
                    let inner = &self.text[from..self.at - 3];
                    return Ok(if quote == '"' { StringLiteral::Lines(inner) } else { StringLiteral::RawLines(inner) });
                }
                Some(_) => {}
            }
        }
    }

    /// Validates an escape after its backslash.
    fn escape(&mut self, from: usize) -> ScanResult<()> {
        let c = self.next()?;
        let (count, words) = match c {
            Some('e' | 'b' | 't' | 'n' | 'f' | 'r' | '"' | ' ' | '\t' | '\\') => return Ok(()),
            Some('x') => (2, "two hexadecimal digits after '\\x'"),
            Some('u') => (4, "four hexadecimal digits after '\\u'"),
            Some('U') => (8, "eight hexadecimal digits after '\\U'"),
            c => {
                let message = format!("invalid escape in string '\\{}'", c.unwrap_or('\0'));
                return Err(Problem { message, line: self.line() - usize::from(c.is_none()) });
            }
        };
        for _ in 0..count {
            let c = self.next()?;
            if !c.is_some_and(|c| c.is_ascii_hexdigit()) {
                let current = crate::message::quoted(self.since(from));
                return self.fail(c, format!("expected {words}, but got {current} instead"));
            }
        }
        Ok(())
    }
}
