//! Lexer of templates with the tokens, positions, lines and errors of Go's `text/template/parse`.

use crate::quote;
use memchr::memmem;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The kind of a token. The order matters: those after `Block` are keywords.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Error,
    Bool,
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

/// A token: its kind, position, text and line.
#[derive(Clone, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) at: usize,
    /// A part of the template, or an error message.
    pub(crate) text: Cow<'a, str>,
    pub(crate) line: usize,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Eof => f.write_str("EOF"),
            Kind::Error => f.write_str(&self.text),
            kind if kind >= Kind::Block => write!(f, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                let start: String = self.text.chars().take(10).collect();
                write!(f, "{}...", quote::quote(start.as_bytes()))
            }
            _ => f.write_str(&quote::quote(self.text.as_bytes())),
        }
    }
}

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const LEFT_COMMENT: &str = "/*";
const RIGHT_COMMENT: &str = "*/";
/// The error about an action that contains untrusted data.
const IS_DATA: &str = "an action contains text of the custom resource or of the cluster, which is untrusted: to allow authors of such \
                       text to run templates, set evaluateTemplates in watches.yaml";
/// The length of `- ` and ` -`.
const MARKER: usize = 2;

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The state of the lexer between tokens.
#[derive(Clone, Copy)]
enum State {
    Text,
    Inside,
    Ended,
}

/// An iterator over tokens.
pub(crate) struct Lexer<'a> {
    input: &'a str,
    /// Ranges of untrusted data: no action starts in them or contains any of them.
    data: &'a [Range<usize>],
    start: usize,
    at: usize,
    line: usize,
    start_line: usize,
    parens: i32,
    state: State,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(input: &'a str, data: &'a [Range<usize>]) -> Self {
        Self { input, data, start: 0, at: 0, line: 1, start_line: 1, parens: 0, state: State::Text }
    }

    /// Returns the next token; after an error or the end, returns the end repeatedly.
    pub(crate) fn next_token(&mut self) -> Token<'a> {
        loop {
            let token = match self.state {
                State::Text => self.text(),
                State::Inside => Some(self.inside()),
                State::Ended => {
                    Some(Token { kind: Kind::Eof, at: self.at, text: Cow::Borrowed("EOF"), line: self.start_line })
                }
            };
            if let Some(token) = token {
                if token.kind == Kind::Error {
                    self.state = State::Ended;
                }
                return token;
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.input[self.at..]
    }

    fn peek(&self) -> Option<char> {
        match self.input.as_bytes().get(self.at) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            _ => self.rest().chars().next(),
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }

    /// Returns true if any byte of a range is data.
    fn holds_data(&self, from: usize, to: usize) -> bool {
        let next = self.data.partition_point(|mark| mark.end <= from);
        self.data.get(next).is_some_and(|mark| mark.start < to)
    }

    /// Finds the start of the next action.
    fn find_left(&self) -> Option<usize> {
        let mut from = self.at;
        loop {
            let found = from + memmem::find(&self.input.as_bytes()[from..], LEFT.as_bytes())?;
            if !self.holds_data(found, found + LEFT.len()) {
                return Some(found - self.at);
            }
            // A brace is a single byte.
            from = found + 1;
        }
    }

    fn emit(&mut self, kind: Kind) -> Token<'a> {
        if kind != Kind::Text && self.holds_data(self.start, self.at) {
            return self.error(IS_DATA.to_owned());
        }
        let text = Cow::Borrowed(&self.input[self.start..self.at]);
        let token = Token { kind, at: self.start, text, line: self.start_line };
        self.start = self.at;
        self.start_line = self.line;
        token
    }

    fn ignore(&mut self) {
        self.line += self.input[self.start..self.at].matches('\n').count();
        self.start = self.at;
        self.start_line = self.line;
    }

    fn error(&self, message: String) -> Token<'a> {
        Token { kind: Kind::Error, at: self.start, text: Cow::Owned(message), line: self.start_line }
    }

    /// Text before an action or the end.
    fn text(&mut self) -> Option<Token<'a>> {
        let Some(length) = self.find_left() else {
            self.at = self.input.len();
            if self.at > self.start {
                self.line += self.input[self.start..].matches('\n').count();
                return Some(self.emit(Kind::Text));
            }
            self.state = State::Ended;
            return Some(Token { kind: Kind::Eof, at: self.start, text: Cow::Borrowed(""), line: self.start_line });
        };
        if length > 0 {
            let delimiter = self.at + length;
            let has_marker = has_left_marker(&self.input[delimiter + LEFT.len()..]);
            let text = &self.input[self.start..delimiter];
            let end = if has_marker { text.trim_end_matches(is_space).len() } else { text.len() };
            self.at = self.start + end;
            self.line += self.input[self.start..self.at].matches('\n').count();
            let token = self.emit(Kind::Text);
            self.at = delimiter;
            self.ignore();
            if !token.text.is_empty() {
                return Some(token);
            }
        }
        self.left_delimiter()
    }

    fn left_delimiter(&mut self) -> Option<Token<'a>> {
        self.at += LEFT.len();
        let marker = if has_left_marker(self.rest()) { MARKER } else { 0 };
        if self.input[self.at + marker..].starts_with(LEFT_COMMENT) {
            self.at += marker;
            self.ignore();
            return self.comment();
        }
        let token = self.emit(Kind::LeftDelim);
        self.at += marker;
        self.ignore();
        self.parens = 0;
        self.state = State::Inside;
        Some(token)
    }

    fn comment(&mut self) -> Option<Token<'a>> {
        self.at += LEFT_COMMENT.len();
        let Some(length) = self.rest().find(RIGHT_COMMENT) else {
            return Some(self.error("unclosed comment".to_owned()));
        };
        self.at += length + RIGHT_COMMENT.len();
        let (ends, trims) = self.right_delimiter_ahead();
        if !ends {
            return Some(self.error("comment ends before closing delimiter".to_owned()));
        }
        self.at += RIGHT.len() + if trims { MARKER } else { 0 };
        if trims {
            self.skip_space();
        }
        self.ignore();
        None
    }

    fn skip_space(&mut self) {
        self.at = self.input.len() - self.rest().trim_start_matches(is_space).len();
    }

    /// Returns whether the action ends here, and whether it trims the white space after it.
    fn right_delimiter_ahead(&self) -> (bool, bool) {
        let rest = self.rest();
        if has_right_marker(rest) && rest[MARKER..].starts_with(RIGHT) {
            return (true, true);
        }
        (rest.starts_with(RIGHT), false)
    }

    fn right_delimiter(&mut self) -> Token<'a> {
        let (_, trims) = self.right_delimiter_ahead();
        if trims {
            self.at += MARKER;
            self.ignore();
        }
        self.at += RIGHT.len();
        let token = self.emit(Kind::RightDelim);
        if trims {
            self.skip_space();
            self.ignore();
        }
        self.state = State::Text;
        token
    }

    fn inside(&mut self) -> Token<'a> {
        if self.right_delimiter_ahead().0 {
            if self.parens == 0 {
                return self.right_delimiter();
            }
            return self.error("unclosed left paren".to_owned());
        }
        let before = (self.at, self.line);
        let Some(c) = self.next() else { return self.error("unclosed action".to_owned()) };
        match c {
            c if is_space(c) => {
                (self.at, self.line) = before;
                self.space()
            }
            '=' => self.emit(Kind::Assign),
            ':' => {
                if self.next() != Some('=') {
                    return self.error("expected :=".to_owned());
                }
                self.emit(Kind::Declare)
            }
            '|' => self.emit(Kind::Pipe),
            '"' => self.quoted('"', Kind::String, "unterminated quoted string"),
            '\'' => self.quoted('\'', Kind::CharConstant, "unterminated character constant"),
            '`' => match self.rest().split_once('`') {
                None => self.error("unterminated raw quoted string".to_owned()),
                Some((text, _)) => {
                    self.at += text.len() + 1;
                    self.line += text.matches('\n').count();
                    self.emit(Kind::RawString)
                }
            },
            '$' => self.field_or_variable(Kind::Variable),
            '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) && self.at < self.input.len() => {
                self.field_or_variable(Kind::Field)
            }
            '.' | '+' | '-' | '0'..='9' => {
                (self.at, self.line) = before;
                self.number()
            }
            c if is_alphanumeric(c) => self.identifier(),
            '(' => {
                self.parens += 1;
                self.emit(Kind::LeftParen)
            }
            ')' => {
                self.parens -= 1;
                if self.parens < 0 {
                    return self.error("unexpected right paren".to_owned());
                }
                self.emit(Kind::RightParen)
            }
            ' '..='~' => self.emit(Kind::Char),
            c => self.error(format!("unrecognized character in action: {}", quote::unicode(c))),
        }
    }

    fn space(&mut self) -> Token<'a> {
        let mut spaces = 0;
        let mut last = (self.at, self.line);
        while self.peek().is_some_and(is_space) {
            last = (self.at, self.line);
            self.next();
            spaces += 1;
        }
        // The white space before `-}}` is part of the marker.
        let tail = &self.input[last.0..];
        if has_right_marker(tail) && tail[MARKER..].starts_with(RIGHT) {
            (self.at, self.line) = last;
            if spaces == 1 {
                return self.right_delimiter();
            }
        }
        self.emit(Kind::Space)
    }

    fn quoted(&mut self, end: char, kind: Kind, message: &str) -> Token<'a> {
        loop {
            match self.next() {
                Some('\\') => {
                    if matches!(self.next(), None | Some('\n')) {
                        return self.error(message.to_owned());
                    }
                }
                None | Some('\n') => return self.error(message.to_owned()),
                Some(c) if c == end => return self.emit(kind),
                Some(_) => {}
            }
        }
    }

    fn skip_alphanumeric(&mut self) {
        let is_alphanumeric_ascii = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        self.at += self.rest().as_bytes().iter().take_while(is_alphanumeric_ascii).count();
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
    }

    fn is_at_terminator(&self) -> bool {
        match self.peek() {
            None => true,
            Some(c) => is_space(c) || matches!(c, '.' | ',' | '|' | ':' | ')' | '(') || self.rest().starts_with(RIGHT),
        }
    }

    fn bad_character(&self) -> Token<'a> {
        let c = self.peek().unwrap_or(char::REPLACEMENT_CHARACTER);
        self.error(format!("bad character {}", quote::unicode(c)))
    }

    fn field_or_variable(&mut self, kind: Kind) -> Token<'a> {
        if self.is_at_terminator() {
            return self.emit(if kind == Kind::Variable { kind } else { Kind::Dot });
        }
        self.skip_alphanumeric();
        if !self.is_at_terminator() {
            return self.bad_character();
        }
        self.emit(kind)
    }

    fn identifier(&mut self) -> Token<'a> {
        self.skip_alphanumeric();
        if !self.is_at_terminator() {
            return self.bad_character();
        }
        let kind = match &self.input[self.start..self.at] {
            "block" => Kind::Block,
            "break" => Kind::Break,
            "continue" => Kind::Continue,
            "define" => Kind::Define,
            "else" => Kind::Else,
            "end" => Kind::End,
            "if" => Kind::If,
            "nil" => Kind::Nil,
            "range" => Kind::Range,
            "template" => Kind::Template,
            "with" => Kind::With,
            "true" | "false" => Kind::Bool,
            _ => Kind::Identifier,
        };
        self.emit(kind)
    }

    fn number(&mut self) -> Token<'a> {
        let mut is_good = self.scan_number();
        let mut kind = Kind::Number;
        if is_good && matches!(self.peek(), Some('+' | '-')) {
            kind = Kind::Complex;
            is_good = self.scan_number() && self.input[..self.at].ends_with('i');
        }
        if is_good {
            return self.emit(kind);
        }
        let written = &self.input.as_bytes()[self.start..self.at];
        self.error(format!("bad number syntax: {}", quote::quote(written)))
    }

    fn accept(&mut self, set: &str) -> bool {
        let is = self.peek().is_some_and(|c| set.contains(c));
        if is {
            self.next();
        }
        is
    }

    fn accept_run(&mut self, set: &str) {
        while self.accept(set) {}
    }

    fn scan_number(&mut self) -> bool {
        const DECIMAL: &str = "0123456789_";
        const HEX: &str = "0123456789abcdefABCDEF_";
        self.accept("+-");
        let mut digits = DECIMAL;
        if self.accept("0") {
            if self.accept("xX") {
                digits = HEX;
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        if (digits == DECIMAL && self.accept("eE")) || (digits == HEX && self.accept("pP")) {
            self.accept("+-");
            self.accept_run(DECIMAL);
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }
}

fn has_left_marker(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('-') && chars.next().is_some_and(is_space)
}

fn has_right_marker(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(is_space) && chars.next() == Some('-')
}
