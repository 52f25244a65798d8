//! Writes YAML as PyYAML does, whose output `to_yaml` and `to_nice_yaml` of Ansible have: the same quotes, indentation
//! and folded lines.
//!
//! The rules are those of libyaml's emitter, which decides by the characters of a scalar and by the column.

use super::scalars::{Analysis, plain_text, resolves};
use crate::value::{Map, Value};
use std::fmt;

/// The options of `yaml.dump`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) indent: usize,
    pub(crate) width: usize,
    /// `None` for collections that contain only scalars.
    pub(crate) flow: Option<bool>,
    pub(crate) explicit_start: bool,
}

impl Options {
    /// The default of lines, in characters.
    pub(crate) const WIDTH: usize = 80;
}

/// Writes a document.
pub(crate) fn emit(out: &mut impl fmt::Write, value: &Value, options: Options) -> fmt::Result {
    let indent = if (2..10).contains(&options.indent) { options.indent } else { 2 };
    let width = if options.width > indent * 2 { options.width } else { Options::WIDTH };
    let mut emitter = Emitter {
        out,
        best_indent: indent,
        width,
        flow: options.flow,
        indent: None,
        column: 0,
        has_space: true,
        is_indention: true,
        flow_level: 0,
    };
    if options.explicit_start {
        emitter.indicator("---", true)?;
    }
    emitter.node(value, Context::Root)?;
    emitter.line()
}

/// The place of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Root,
    Item,
    Field,
    /// A key before `:`.
    Key,
}

struct Emitter<'o, W> {
    out: &'o mut W,
    best_indent: usize,
    width: usize,
    flow: Option<bool>,
    /// The current indentation; `None` outside of the root.
    indent: Option<usize>,
    column: usize,
    /// True after white space.
    has_space: bool,
    /// True if the line has only indentation and indicators of blocks.
    is_indention: bool,
    flow_level: usize,
}

impl<W: fmt::Write> Emitter<'_, W> {
    fn text(&mut self, text: &str) -> fmt::Result {
        self.column += text.chars().count();
        self.out.write_str(text)
    }

    fn indicator(&mut self, indicator: &str, needs_space: bool) -> fmt::Result {
        if needs_space && !self.has_space {
            self.text(" ")?;
        }
        self.text(indicator)?;
        (self.has_space, self.is_indention) = (false, false);
        Ok(())
    }

    /// Writes an indicator of a block, after which another one may follow in the same line.
    fn block_indicator(&mut self, indicator: &str) -> fmt::Result {
        let is_indention = self.is_indention;
        self.indicator(indicator, true)?;
        self.is_indention = is_indention;
        Ok(())
    }

    fn line_break(&mut self) -> fmt::Result {
        (self.has_space, self.is_indention, self.column) = (true, true, 0);
        self.out.write_char('\n')
    }

    /// Begins an indented line, unless this one is empty.
    fn line(&mut self) -> fmt::Result {
        let indent = self.indent.unwrap_or(0);
        if !self.is_indention || self.column > indent || (self.column == indent && !self.has_space) {
            self.line_break()?;
        }
        if self.column < indent {
            self.has_space = true;
            let spaces = " ".repeat(indent - self.column);
            self.text(&spaces)?;
        }
        Ok(())
    }

    /// Increases the indentation, and returns the previous one.
    fn deeper(&mut self, is_flow: bool, is_indentless: bool) -> Option<usize> {
        let before = self.indent;
        self.indent = Some(match before {
            None if is_flow => self.best_indent,
            None => 0,
            Some(indent) if is_indentless => indent,
            Some(indent) => indent + self.best_indent,
        });
        before
    }

    fn is_flow<'v>(&self, mut inner: impl Iterator<Item = &'v Value>) -> bool {
        let is_scalar = |value: &Value| !matches!(value, Value::Array(_) | Value::Object(_));
        self.flow_level > 0 || self.flow.unwrap_or_else(|| inner.all(is_scalar))
    }

    fn node(&mut self, value: &Value, context: Context) -> fmt::Result {
        match value {
            Value::Array(items) if items.is_empty() || self.is_flow(items.iter()) => self.flow_list(items),
            Value::Array(items) => self.block_list(items, context),
            Value::Object(fields) if fields.is_empty() || self.is_flow(fields.values()) => self.flow_map(fields),
            Value::Object(fields) => self.block_map(fields),
            Value::String(text) => self.scalar(text, !resolves(text), context),
            other => self.scalar(&plain_text(other), true, context),
        }
    }

    fn flow_list(&mut self, items: &[Value]) -> fmt::Result {
        self.flow_start("[")?;
        let before = self.deeper(true, false);
        for (at, item) in items.iter().enumerate() {
            self.flow_separator(at)?;
            self.node(item, Context::Item)?;
        }
        self.flow_end("]", before)
    }

    fn flow_map(&mut self, fields: &Map) -> fmt::Result {
        self.flow_start("{")?;
        let before = self.deeper(true, false);
        for (at, (key, value)) in fields.iter().enumerate() {
            self.flow_separator(at)?;
            if is_simple(key) {
                self.scalar(key, !resolves(key), Context::Key)?;
                self.indicator(":", false)?;
            } else {
                self.indicator("?", true)?;
                self.scalar(key, !resolves(key), Context::Field)?;
                if self.column > self.width {
                    self.line()?;
                }
                self.indicator(":", true)?;
            }
            self.node(value, Context::Field)?;
        }
        self.flow_end("}", before)
    }

    fn flow_start(&mut self, bracket: &str) -> fmt::Result {
        self.indicator(bracket, true)?;
        self.has_space = true;
        self.flow_level += 1;
        Ok(())
    }

    fn flow_separator(&mut self, at: usize) -> fmt::Result {
        if at > 0 {
            self.indicator(",", false)?;
        }
        if self.column > self.width { self.line() } else { Ok(()) }
    }

    fn flow_end(&mut self, bracket: &str, before: Option<usize>) -> fmt::Result {
        self.indent = before;
        self.flow_level -= 1;
        self.indicator(bracket, false)
    }

    fn block_list(&mut self, items: &[Value], context: Context) -> fmt::Result {
        let before = self.deeper(false, context == Context::Field && !self.is_indention);
        for item in items {
            self.line()?;
            self.block_indicator("-")?;
            self.node(item, Context::Item)?;
        }
        self.indent = before;
        Ok(())
    }

    fn block_map(&mut self, fields: &Map) -> fmt::Result {
        let before = self.deeper(false, false);
        for (key, value) in fields {
            self.line()?;
            if is_simple(key) {
                self.scalar(key, !resolves(key), Context::Key)?;
                self.indicator(":", false)?;
            } else {
                self.block_indicator("?")?;
                self.scalar(key, !resolves(key), Context::Field)?;
                self.line()?;
                self.block_indicator(":")?;
            }
            self.node(value, Context::Field)?;
        }
        self.indent = before;
        Ok(())
    }

    /// Writes a scalar; without quotes only if its text would have the same type.
    fn scalar(&mut self, text: &str, keeps_type: bool, context: Context) -> fmt::Result {
        let before = self.deeper(true, false);
        let (analysis, is_key) = (Analysis::of(text), context == Context::Key);
        let is_bare = text.is_empty() || analysis.is_multiline;
        let may_be_plain = if self.flow_level > 0 { analysis.allows_flow_plain } else { analysis.allows_block_plain };
        let characters: Vec<char> = text.chars().collect();
        if keeps_type && may_be_plain && !(is_key && is_bare) {
            self.plain(&characters, !is_key)?;
        } else if analysis.allows_single_quotes && !(is_key && analysis.is_multiline) {
            self.single_quoted(&characters, !is_key)?;
        } else {
            self.double_quoted(&characters, !is_key)?;
        }
        self.indent = before;
        Ok(())
    }

    /// Writes text without line breaks, folded at single spaces.
    fn plain(&mut self, text: &[char], splits: bool) -> fmt::Result {
        if !self.has_space {
            self.text(" ")?;
        }
        for (at, letter) in text.iter().enumerate() {
            let is_single = *letter == ' ' && text.get(at + 1) != Some(&' ') && at > 0 && text[at - 1] != ' ';
            if is_single && splits && self.column > self.width && at + 1 < text.len() {
                self.line()?;
            } else {
                self.text(letter.encode_utf8(&mut [0; 4]))?;
            }
        }
        (self.has_space, self.is_indention) = (false, false);
        Ok(())
    }

    fn single_quoted(&mut self, text: &[char], splits: bool) -> fmt::Result {
        self.indicator("'", true)?;
        let is_break = |letter: Option<&char>| letter.is_some_and(|letter| super::scalars::is_break(*letter));
        for (at, letter) in text.iter().enumerate() {
            let (before, after) = (at.checked_sub(1).map(|at| &text[at]), text.get(at + 1));
            let is_single = *letter == ' ' && after != Some(&' ') && before != Some(&' ');
            match letter {
                ' ' if is_single && splits && self.column > self.width && at > 0 && after.is_some() => self.line()?,
                '\'' => self.text("''")?,
                _ if is_break(Some(letter)) => {
                    // A single break would be folded to a space.
                    if !is_break(before) && *letter == '\n' {
                        self.line_break()?;
                    }
                    match letter {
                        '\n' => self.line_break()?,
                        other => {
                            self.line_break_of(*other)?;
                        }
                    }
                    if !is_break(after) {
                        self.line()?;
                    }
                }
                other => self.text(other.encode_utf8(&mut [0; 4]))?,
            }
            if !is_break(Some(letter)) {
                self.is_indention = false;
            }
        }
        self.indicator("'", false)
    }

    fn line_break_of(&mut self, letter: char) -> fmt::Result {
        (self.has_space, self.is_indention, self.column) = (true, true, 0);
        self.out.write_char(letter)
    }

    fn double_quoted(&mut self, text: &[char], splits: bool) -> fmt::Result {
        self.indicator("\"", true)?;
        let mut after_space = false;
        for (at, letter) in text.iter().enumerate() {
            if let Some(escape) = super::scalars::escaped(*letter) {
                self.text(&escape)?;
                after_space = false;
            } else if *letter == ' ' {
                if splits && !after_space && self.column > self.width && at > 0 && at + 1 < text.len() {
                    self.line()?;
                    if text[at + 1] == ' ' {
                        self.text("\\")?;
                    }
                } else {
                    self.text(" ")?;
                }
                after_space = true;
            } else {
                self.text(letter.encode_utf8(&mut [0; 4]))?;
                after_space = false;
            }
        }
        self.indicator("\"", false)
    }
}

/// Returns true if a key fits before `:`.
fn is_simple(key: &str) -> bool {
    key.len() <= 128 && !Analysis::of(key).is_multiline
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;

    #[test]
    fn documents_are_those_of_pyyaml() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../../tests/data/yaml.json")).unwrap();
        let (mut different, mut shown) = (0, String::new());
        for case in &cases {
            let number = |name: &str| usize::try_from(case[name].as_u64().unwrap()).unwrap();
            let options = Options {
                indent: number("indent"),
                width: number("width"),
                flow: case["default_flow_style"].as_bool(),
                explicit_start: false,
            };
            let mut out = String::new();
            emit(&mut out, &case["value"].sorted(), options).unwrap();
            if json!(out) != case["text"] {
                different += 1;
                shown += &format!("{}\n  expected {}\n  found    {}\n", case["value"], case["text"], json!(out));
            }
        }
        assert!(cases.len() >= 400);
        assert_eq!(different, 0, "{shown}");
    }
}
