//! YAML scanner with the tokens, errors and lines of libyaml, of which go-yaml is a port.

mod scalars;

use std::collections::VecDeque;

/// A position in the input, in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mark {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// The style of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Style {
    Plain,
    Quoted,
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    StreamEnd,
    VersionDirective(u32, u32),
    TagDirective(String, String),
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag(String, String),
    Scalar(String, Style),
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: Mark,
}

/// A syntax error, with go-yaml's line number, if any.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) message: String,
}

#[derive(Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    required: bool,
    token: usize,
    mark: Mark,
}

/// Nesting limit of collections, as in go-yaml.
const DEPTH: usize = 10_000;

pub(super) struct Scanner<'a> {
    text: &'a str,
    /// The position in the text, in bytes.
    offset: usize,
    mark: Mark,
    tokens: VecDeque<Token>,
    taken: usize,
    started: bool,
    ended: bool,
    flow_level: usize,
    indent: isize,
    indents: Vec<isize>,
    simple_key_allowed: bool,
    simple_keys: Vec<SimpleKey>,
}

type Scan<T = ()> = Result<T, Problem>;

const END: char = '\0';

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn is_blankz(c: char) -> bool {
    is_blank(c) || is_break(c) || c == END
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text: text.strip_prefix('\u{feff}').unwrap_or(text),
            offset: 0,
            mark: Mark::default(),
            tokens: VecDeque::new(),
            taken: 0,
            started: false,
            ended: false,
            flow_level: 0,
            indent: -1,
            indents: Vec::new(),
            simple_key_allowed: true,
            simple_keys: vec![SimpleKey::default()],
        }
    }

    /// Returns the next token without consuming it.
    pub(super) fn peek(&mut self) -> Scan<&Token> {
        self.fetch_more()?;
        Ok(self.tokens.front().expect("a token was fetched, and the end is never consumed"))
    }

    /// Consumes the next token; the end of the stream is never consumed.
    pub(super) fn next(&mut self) -> Scan<Token> {
        self.fetch_more()?;
        if self.tokens.len() == 1 && self.ended {
            return Ok(self.tokens[0].clone());
        }
        self.taken += 1;
        Ok(self.tokens.pop_front().expect("a token was fetched"))
    }

    fn error<T>(&self, message: &str) -> Scan<T> {
        // Line numbers start at one; errors on the first line have none.
        let line = if self.mark.line == 0 { 0 } else { self.mark.line + 1 };
        Err(Problem { line, message: message.to_owned() })
    }

    /// Returns a character ahead, after this number of ASCII characters.
    fn at(&self, ahead: usize) -> char {
        match self.text.as_bytes().get(self.offset + ahead) {
            None => END,
            Some(byte) if byte.is_ascii() => char::from(*byte),
            Some(_) => self.text.get(self.offset + ahead..).and_then(|rest| rest.chars().next()).unwrap_or(END),
        }
    }

    fn is_end(&self) -> bool {
        self.at(0) == END
    }

    fn skip(&mut self) {
        self.offset = self.text.len().min(self.offset + self.at(0).len_utf8());
        self.mark.index += 1;
        self.mark.column += 1;
    }

    fn skip_line(&mut self) {
        if self.at(0) == '\r' && self.at(1) == '\n' {
            self.offset += 1;
            self.mark.index += 1;
        }
        if is_break(self.at(0)) {
            self.skip();
            self.mark.column = 0;
            self.mark.line += 1;
        }
    }

    /// Consumes and returns the rest of the line, without its break.
    fn rest_of_line(&mut self) -> &'a str {
        let rest = &self.text[self.offset..];
        let line = &rest[..memchr::memchr3(b'\n', b'\r', b'\0', rest.as_bytes()).unwrap_or(rest.len())];
        let line = if line.is_ascii() { line } else { &line[..line.find(is_break).unwrap_or(line.len())] };
        self.advance(line);
        line
    }

    /// Consumes and returns the ASCII characters ahead that pass a check.
    fn run_of(&mut self, check: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.text[self.offset..];
        let run = &rest[..rest.bytes().take_while(|byte| byte.is_ascii() && check(*byte)).count()];
        self.advance(run);
        run
    }

    /// Consumes text ahead that has no line breaks.
    fn advance(&mut self, text: &str) {
        let chars = if text.is_ascii() { text.len() } else { text.chars().count() };
        self.offset += text.len();
        self.mark.index += chars;
        self.mark.column += chars;
    }

    fn read(&mut self, into: &mut String) {
        into.push(self.at(0));
        self.skip();
    }

    fn read_line(&mut self, into: &mut String) {
        match self.at(0) {
            '\r' | '\n' | '\u{85}' => into.push('\n'),
            c => into.push(c),
        }
        self.skip_line();
    }

    fn column(&self) -> isize {
        isize::try_from(self.mark.column).unwrap_or(isize::MAX)
    }

    fn fetch_more(&mut self) -> Scan {
        loop {
            if !self.tokens.is_empty() {
                let mut needed = false;
                for at in 0..self.simple_keys.len() {
                    if self.simple_keys[at].possible && self.simple_keys[at].token == self.taken {
                        needed = self.is_valid(at)?;
                    }
                }
                if !needed {
                    return Ok(());
                }
            }
            if self.ended {
                return Ok(());
            }
            self.fetch_next()?;
        }
    }

    /// A simple key is limited to one line and 1024 characters.
    fn is_valid(&mut self, at: usize) -> Scan<bool> {
        let key = self.simple_keys[at];
        if key.mark.line < self.mark.line || key.mark.index + 1024 < self.mark.index {
            if key.required {
                return self.error("could not find expected ':'");
            }
            self.simple_keys[at].possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn push(&mut self, kind: Kind, start: Mark) {
        self.tokens.push_back(Token { kind, start });
    }

    fn fetch_next(&mut self) -> Scan {
        self.started = true;
        self.skip_to_token();
        self.unroll(self.column());
        if self.is_end() {
            return self.stream_end();
        }
        let (c, next) = (self.at(0), self.at(1));
        if self.mark.column == 0 {
            if c == '%' {
                return self.directive();
            }
            let three = (c, next, self.at(2));
            if is_blankz(self.at(3)) && three == ('-', '-', '-') {
                return self.document_indicator(Kind::DocumentStart);
            }
            if is_blankz(self.at(3)) && three == ('.', '.', '.') {
                return self.document_indicator(Kind::DocumentEnd);
            }
        }
        let in_flow = self.flow_level > 0;
        match c {
            '[' => self.flow_start(Kind::FlowSequenceStart),
            '{' => self.flow_start(Kind::FlowMappingStart),
            ']' => self.flow_end(Kind::FlowSequenceEnd),
            '}' => self.flow_end(Kind::FlowMappingEnd),
            ',' => {
                self.remove_simple_key()?;
                self.simple_key_allowed = true;
                self.single(Kind::FlowEntry);
                Ok(())
            }
            '-' if is_blankz(next) => self.block_entry(),
            '?' if in_flow || is_blankz(next) => self.key(),
            ':' if in_flow || is_blankz(next) => self.value(),
            '*' | '&' => self.anchor(),
            '!' => self.tag(),
            '|' | '>' if !in_flow => {
                self.remove_simple_key()?;
                self.simple_key_allowed = true;
                self.block_scalar(c == '|')
            }
            '\'' | '"' => {
                self.save_simple_key()?;
                self.simple_key_allowed = false;
                self.quoted(c == '\'')
            }
            _ => {
                let is_indicator = is_blankz(c) || "-?:,[]{}#&*!|>'\"%@`".contains(c);
                let may_begin = !is_indicator
                    || (c == '-' && !is_blank(next))
                    || (!in_flow && matches!(c, '?' | ':') && !is_blankz(next));
                if !may_begin {
                    return self.error("found character that cannot start any token");
                }
                self.save_simple_key()?;
                self.simple_key_allowed = false;
                self.plain()
            }
        }
    }

    fn single(&mut self, kind: Kind) {
        let start = self.mark;
        self.skip();
        self.push(kind, start);
    }

    fn save_simple_key(&mut self) -> Scan {
        let required = self.flow_level == 0 && self.indent == self.column();
        if self.simple_key_allowed {
            self.remove_simple_key()?;
            let key = SimpleKey { possible: true, required, token: self.taken + self.tokens.len(), mark: self.mark };
            *self.simple_keys.last_mut().expect("one for each level") = key;
        }
        Ok(())
    }

    fn remove_simple_key(&mut self) -> Scan {
        let key = self.simple_keys.last_mut().expect("one for each level");
        if key.possible && key.required {
            return self.error("could not find expected ':'");
        }
        key.possible = false;
        Ok(())
    }

    fn roll(&mut self, number: Option<usize>, kind: Kind, start: Mark, column: isize) -> Scan {
        if self.flow_level > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > DEPTH {
            return self.error(&format!("exceeded max depth of {DEPTH}"));
        }
        let token = Token { kind, start };
        match number {
            Some(number) => self.tokens.insert(number - self.taken, token),
            None => self.tokens.push_back(token),
        }
        Ok(())
    }

    fn unroll(&mut self, column: isize) {
        if self.flow_level > 0 {
            return;
        }
        while self.indent > column {
            self.push(Kind::BlockEnd, self.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn stream_end(&mut self) -> Scan {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.unroll(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push(Kind::StreamEnd, self.mark);
        self.ended = true;
        Ok(())
    }

    fn document_indicator(&mut self, kind: Kind) -> Scan {
        self.unroll(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        (0..3).for_each(|_| self.skip());
        self.push(kind, start);
        Ok(())
    }

    fn flow_start(&mut self, kind: Kind) -> Scan {
        self.save_simple_key()?;
        self.simple_keys.push(SimpleKey::default());
        self.flow_level += 1;
        if self.flow_level > DEPTH {
            return self.error(&format!("exceeded max depth of {DEPTH}"));
        }
        self.simple_key_allowed = true;
        self.single(kind);
        Ok(())
    }

    fn flow_end(&mut self, kind: Kind) -> Scan {
        self.remove_simple_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            self.simple_keys.pop();
        }
        self.simple_key_allowed = false;
        self.single(kind);
        Ok(())
    }

    fn block_entry(&mut self) -> Scan {
        if self.flow_level == 0 {
            if !self.simple_key_allowed {
                return self.error("block sequence entries are not allowed in this context");
            }
            self.roll(None, Kind::BlockSequenceStart, self.mark, self.column())?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.single(Kind::BlockEntry);
        Ok(())
    }

    fn key(&mut self) -> Scan {
        if self.flow_level == 0 {
            if !self.simple_key_allowed {
                return self.error("mapping keys are not allowed in this context");
            }
            self.roll(None, Kind::BlockMappingStart, self.mark, self.column())?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = self.flow_level == 0;
        self.single(Kind::Key);
        Ok(())
    }

    fn value(&mut self) -> Scan {
        let last = self.simple_keys.len() - 1;
        let key = self.simple_keys[last];
        if key.possible && self.is_valid(last)? {
            self.tokens.insert(key.token - self.taken, Token { kind: Kind::Key, start: key.mark });
            let column = isize::try_from(key.mark.column).unwrap_or(isize::MAX);
            self.roll(Some(key.token), Kind::BlockMappingStart, key.mark, column)?;
            self.simple_keys[last].possible = false;
            self.simple_key_allowed = false;
        } else {
            if self.flow_level == 0 {
                if !self.simple_key_allowed {
                    return self.error("mapping values are not allowed in this context");
                }
                self.roll(None, Kind::BlockMappingStart, self.mark, self.column())?;
            }
            self.simple_key_allowed = self.flow_level == 0;
        }
        self.single(Kind::Value);
        Ok(())
    }

    fn skip_to_token(&mut self) {
        loop {
            while self.at(0) == ' ' || ((self.flow_level > 0 || !self.simple_key_allowed) && self.at(0) == '\t') {
                self.skip();
            }
            if self.at(0) == '#' {
                self.rest_of_line();
            }
            if !is_break(self.at(0)) {
                return;
            }
            self.skip_line();
            if self.flow_level == 0 {
                self.simple_key_allowed = true;
            }
        }
    }

    fn skip_blanks(&mut self) {
        while is_blank(self.at(0)) {
            self.skip();
        }
    }

    /// Skips the rest of a line, which may only have a comment.
    fn end_of_line(&mut self) -> Scan {
        self.skip_blanks();
        if self.at(0) == '#' {
            self.rest_of_line();
        }
        if !is_break(self.at(0)) && !self.is_end() {
            return self.error("did not find expected comment or line break");
        }
        if is_break(self.at(0)) {
            self.skip_line();
        }
        Ok(())
    }

    fn directive(&mut self) -> Scan {
        self.unroll(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        self.skip();
        let mut name = String::new();
        while is_word(self.at(0)) {
            self.read(&mut name);
        }
        if name.is_empty() {
            return self.error("could not find expected directive name");
        }
        if !is_blankz(self.at(0)) {
            return self.error("found unexpected non-alphabetical character");
        }
        let kind = match name.as_str() {
            "YAML" => {
                self.skip_blanks();
                let major = self.version_number()?;
                if self.at(0) != '.' {
                    return self.error("did not find expected digit or '.' character");
                }
                self.skip();
                Kind::VersionDirective(major, self.version_number()?)
            }
            "TAG" => {
                self.skip_blanks();
                let handle = self.tag_handle(true)?;
                if !is_blank(self.at(0)) {
                    return self.error("did not find expected whitespace");
                }
                self.skip_blanks();
                let prefix = self.tag_uri(true, String::new())?;
                if !is_blankz(self.at(0)) {
                    return self.error("did not find expected whitespace or line break");
                }
                Kind::TagDirective(handle, prefix)
            }
            _ => return self.error("found unknown directive name"),
        };
        self.end_of_line()?;
        self.push(kind, start);
        Ok(())
    }

    fn version_number(&mut self) -> Scan<u32> {
        let mut digits = String::new();
        while self.at(0).is_ascii_digit() {
            if digits.len() == 2 {
                return self.error("found extremely long version number");
            }
            self.read(&mut digits);
        }
        match digits.parse() {
            Ok(number) => Ok(number),
            Err(_) => self.error("did not find expected version number"),
        }
    }

    fn anchor(&mut self) -> Scan {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let is_alias = self.at(0) == '*';
        self.skip();
        let mut name = String::new();
        while is_word(self.at(0)) {
            self.read(&mut name);
        }
        let c = self.at(0);
        if name.is_empty() || !(is_blankz(c) || "?:,]}%@`".contains(c)) {
            return self.error("did not find expected alphabetic or numeric character");
        }
        self.push(if is_alias { Kind::Alias(name) } else { Kind::Anchor(name) }, start);
        Ok(())
    }

    fn tag(&mut self) -> Scan {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let (handle, suffix);
        if self.at(1) == '<' {
            self.skip();
            self.skip();
            handle = String::new();
            suffix = self.tag_uri(false, String::new())?;
            if self.at(0) != '>' {
                return self.error("did not find the expected '>'");
            }
            self.skip();
        } else {
            let first = self.tag_handle(false)?;
            if first.len() > 1 && first.starts_with('!') && first.ends_with('!') {
                handle = first;
                suffix = self.tag_uri(false, String::new())?;
            } else {
                let rest = self.tag_uri(false, first)?;
                // A single `!` is a suffix without a handle.
                (handle, suffix) =
                    if rest.is_empty() { (String::new(), "!".to_owned()) } else { ("!".to_owned(), rest) };
            }
        }
        if !is_blankz(self.at(0)) {
            return self.error("did not find expected whitespace or line break");
        }
        self.push(Kind::Tag(handle, suffix), start);
        Ok(())
    }

    fn tag_handle(&mut self, is_directive: bool) -> Scan<String> {
        if self.at(0) != '!' {
            return self.error("did not find expected '!'");
        }
        let mut handle = String::new();
        self.read(&mut handle);
        while is_word(self.at(0)) {
            self.read(&mut handle);
        }
        if self.at(0) == '!' {
            self.read(&mut handle);
        } else if is_directive && handle != "!" {
            return self.error("did not find expected '!'");
        }
        Ok(handle)
    }

    fn tag_uri(&mut self, is_directive: bool, head: String) -> Scan<String> {
        let has_head = !head.is_empty();
        let mut uri: String = head.chars().skip(1).collect();
        while is_word(self.at(0))
            || ";/?:@&=+$.!~*'()%".contains(self.at(0))
            || (is_directive && ",[]".contains(self.at(0)))
        {
            if self.at(0) == '%' {
                let mut bytes = Vec::new();
                while self.at(0) == '%' {
                    let (Some(high), Some(low)) = (self.at(1).to_digit(16), self.at(2).to_digit(16)) else {
                        return self.error("did not find URI escaped octet");
                    };
                    bytes.push(u8::try_from(high * 16 + low).unwrap_or(0));
                    (0..3).for_each(|_| self.skip());
                }
                uri.push_str(&String::from_utf8_lossy(&bytes));
            } else {
                self.read(&mut uri);
            }
        }
        if uri.is_empty() && !has_head {
            return self.error("did not find expected tag URI");
        }
        Ok(uri)
    }
}
