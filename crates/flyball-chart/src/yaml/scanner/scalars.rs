//! Scalars: plain, quoted, and block scalars, with line folding.

use super::{Kind, Scan, Scanner, Style, is_blank, is_blankz, is_break};

impl Scanner<'_> {
    pub(super) fn block_scalar(&mut self, is_literal: bool) -> Scan {
        let start = self.mark;
        self.skip();
        let mut chomping = 0;
        let mut increment = 0;
        for _ in 0..2 {
            match self.at(0) {
                '+' if chomping == 0 => chomping = 1,
                '-' if chomping == 0 => chomping = -1,
                '0' if increment == 0 => return self.error("found an indentation indicator equal to 0"),
                c @ '1'..='9' if increment == 0 => {
                    increment = isize::try_from(c.to_digit(10).unwrap_or(0)).unwrap_or(0);
                }
                _ => break,
            }
            self.skip();
        }
        self.end_of_line()?;
        let mut indent = if increment > 0 { self.indent.max(0) + increment } else { 0 };
        let mut text = String::new();
        let mut leading = String::new();
        let mut trailing = String::new();
        self.breaks(&mut indent, &mut trailing)?;
        let mut was_blank = false;
        while self.column() == indent && !self.is_end() {
            let is_blank_now = is_blank(self.at(0));
            if !is_literal && !was_blank && !is_blank_now && leading.starts_with('\n') {
                if trailing.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(&leading);
            }
            leading.clear();
            text.push_str(&trailing);
            trailing.clear();
            was_blank = is_blank_now;
            text.push_str(self.rest_of_line());
            self.read_line_if_any(&mut leading);
            self.breaks(&mut indent, &mut trailing)?;
        }
        if chomping != -1 {
            text.push_str(&leading);
        }
        if chomping == 1 {
            text.push_str(&trailing);
        }
        self.push(Kind::Scalar(text, Style::Quoted), start);
        Ok(())
    }

    fn read_line_if_any(&mut self, into: &mut String) {
        if is_break(self.at(0)) {
            self.read_line(into);
        }
    }

    /// Skips empty lines and indentation; detects the indentation of a block without an indicator.
    fn breaks(&mut self, indent: &mut isize, into: &mut String) -> Scan {
        let mut deepest = 0;
        loop {
            while (*indent == 0 || self.column() < *indent) && self.at(0) == ' ' {
                self.skip();
            }
            deepest = deepest.max(self.column());
            if (*indent == 0 || self.column() < *indent) && self.at(0) == '\t' {
                return self.error("found a tab character where an indentation space is expected");
            }
            if !is_break(self.at(0)) {
                break;
            }
            self.read_line(into);
        }
        if *indent == 0 {
            *indent = deepest.max(self.indent + 1).max(1);
        }
        Ok(())
    }

    pub(super) fn quoted(&mut self, is_single: bool) -> Scan {
        let start = self.mark;
        self.skip();
        let quote = if is_single { '\'' } else { '"' };
        let mut text = String::new();
        loop {
            let three = (self.at(0), self.at(1), self.at(2));
            let is_indicator = three == ('-', '-', '-') || three == ('.', '.', '.');
            if self.mark.column == 0 && is_indicator && is_blankz(self.at(3)) {
                return self.error("found unexpected document indicator");
            }
            if self.is_end() {
                return self.error("found unexpected end of stream");
            }
            let mut joins = false;
            while !is_blankz(self.at(0)) {
                if is_single && self.at(0) == '\'' && self.at(1) == '\'' {
                    text.push('\'');
                    self.skip();
                    self.skip();
                } else if self.at(0) == quote {
                    break;
                } else if !is_single && self.at(0) == '\\' && is_break(self.at(1)) {
                    self.skip();
                    self.skip_line();
                    joins = true;
                    break;
                } else if !is_single && self.at(0) == '\\' {
                    self.escape(&mut text)?;
                } else {
                    self.read(&mut text);
                    text.push_str(self.run_of(|byte| byte > b' ' && !matches!(byte, b'\'' | b'"' | b'\\')));
                }
            }
            if self.at(0) == quote {
                break;
            }
            self.fold(&mut text, joins);
        }
        self.skip();
        self.push(Kind::Scalar(text, Style::Quoted), start);
        Ok(())
    }

    /// White space within a scalar: line breaks are folded.
    fn fold(&mut self, text: &mut String, joins: bool) {
        let mut spaces = String::new();
        let mut leading = String::new();
        let mut trailing = String::new();
        let mut has_break = joins;
        while is_blank(self.at(0)) || is_break(self.at(0)) {
            if is_blank(self.at(0)) {
                if has_break {
                    self.skip();
                } else {
                    self.read(&mut spaces);
                }
            } else if has_break {
                self.read_line(&mut trailing);
            } else {
                spaces.clear();
                self.read_line(&mut leading);
                has_break = true;
            }
        }
        join(text, has_break, &spaces, &leading, &trailing);
    }

    fn escape(&mut self, text: &mut String) -> Scan {
        let length = match self.at(1) {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let c = match self.at(1) {
            '0' => '\0',
            'a' => '\x07',
            'b' => '\x08',
            't' | '\t' => '\t',
            'n' => '\n',
            'v' => '\x0b',
            'f' => '\x0c',
            'r' => '\r',
            'e' => '\x1b',
            ' ' => ' ',
            '"' => '"',
            '/' => '/',
            '\\' => '\\',
            'N' => '\u{85}',
            '_' => '\u{a0}',
            'L' => '\u{2028}',
            'P' => '\u{2029}',
            'x' | 'u' | 'U' => {
                let mut code = 0u32;
                self.skip();
                self.skip();
                for offset in 0..length {
                    let Some(digit) = self.at(offset).to_digit(16) else {
                        return self.error("did not find expected hexdecimal number");
                    };
                    code = code.wrapping_mul(16) + digit;
                }
                let Some(c) = char::from_u32(code) else {
                    return self.error("found invalid Unicode character escape code");
                };
                (0..length).for_each(|_| self.skip());
                text.push(c);
                return Ok(());
            }
            _ => return self.error("found unknown escape character"),
        };
        self.skip();
        self.skip();
        text.push(c);
        Ok(())
    }

    pub(super) fn plain(&mut self) -> Scan {
        let start = self.mark;
        let mut text = String::new();
        let (mut spaces, mut leading, mut trailing) = (String::new(), String::new(), String::new());
        let mut has_break = false;
        let indent = self.indent + 1;
        loop {
            let three = (self.at(0), self.at(1), self.at(2));
            let is_indicator = three == ('-', '-', '-') || three == ('.', '.', '.');
            if (self.mark.column == 0 && is_indicator && is_blankz(self.at(3))) || self.at(0) == '#' {
                break;
            }
            while !is_blankz(self.at(0)) {
                let (c, next) = (self.at(0), self.at(1));
                let in_flow = self.flow_level > 0;
                let ends_key = c == ':' && (is_blankz(next) || (in_flow && ",?[]{}".contains(next)));
                if ends_key || (in_flow && (",[]{}".contains(c) || (c == '?' && is_blankz(next)))) {
                    break;
                }
                if has_break || !spaces.is_empty() {
                    join(&mut text, has_break, &spaces, &leading, &trailing);
                    (has_break, _, _, _) = (false, spaces.clear(), leading.clear(), trailing.clear());
                }
                self.read(&mut text);
                text.push_str(self.run_of(|byte| byte > b' ' && !b":,?[]{}".contains(&byte)));
            }
            if !(is_blank(self.at(0)) || is_break(self.at(0))) {
                break;
            }
            while is_blank(self.at(0)) || is_break(self.at(0)) {
                if is_blank(self.at(0)) {
                    if has_break && self.column() < indent && self.at(0) == '\t' {
                        return self.error("found a tab character that violates indentation");
                    }
                    if has_break {
                        self.skip();
                    } else {
                        self.read(&mut spaces);
                    }
                } else if has_break {
                    self.read_line(&mut trailing);
                } else {
                    spaces.clear();
                    self.read_line(&mut leading);
                    has_break = true;
                }
            }
            if self.flow_level == 0 && self.column() < indent {
                break;
            }
        }
        if has_break {
            self.simple_key_allowed = true;
        }
        self.push(Kind::Scalar(text, Style::Plain), start);
        Ok(())
    }
}

fn join(text: &mut String, has_break: bool, spaces: &str, leading: &str, trailing: &str) {
    if !has_break {
        return text.push_str(spaces);
    }
    if leading.starts_with('\n') && trailing.is_empty() {
        text.push(' ');
    } else {
        if !leading.starts_with('\n') {
            text.push_str(leading);
        }
        text.push_str(trailing);
    }
}
