//! The operator `%`, which formats strings in Python, as in `'%s-%d' % (a, b)`.
//!
//! The engine has `%` for numbers only. So the operator is replaced by a filter with the same precedence: in Jinja,
//! both operands of `%` include their filters. Only text in expressions is replaced, never within quotes, and no line
//! break is added or removed.

use super::printf::{Operand, printf};
use super::syntax::{OPERATOR_WORDS, with_parser_stack};
use super::{Quotes, reject, undefined};
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, State};

/// The filter that replaces the operator. Templates may use it under this name, with the same result.
pub(super) const FILTER: &str = "percent_operator";

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter(FILTER, percent);
}

/// Returns true if an expression may have the operator.
pub(super) fn has_modulo(expression: &str) -> bool {
    expression.contains('%')
}

/// Replaces the operator in an expression or a statement.
pub(super) fn replaced(expression: &str) -> String {
    let mut rewriter = Rewriter { text: expression, at: 0 };
    // The nesting is limited as for the parser.
    let out = with_parser_stack(|| rewriter.level());
    // An unexpected bracket is an error of the parser.
    out + rewriter.rest()
}

/// Copies an expression, and replaces operators.
struct Rewriter<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Rewriter<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Copies the characters up to an offset in the rest.
    fn copy(&mut self, length: usize, out: &mut String) {
        out.push_str(&self.rest()[..length]);
        self.at += length;
    }

    fn copy_spaces(&mut self, out: &mut String) {
        self.copy(self.rest().len() - self.rest().trim_start().len(), out);
    }

    /// Copies one level of nesting, up to a closing bracket.
    fn level(&mut self) -> String {
        let mut out = String::new();
        // True if the left operand of an operator is complete, and belongs to no product or power.
        let (mut is_left, mut is_product) = (false, false);
        loop {
            self.copy_spaces(&mut out);
            let Some(letter) = self.peek() else { return out };
            match letter {
                ')' | ']' | '}' => return out,
                '%' if is_left && !is_product => {
                    self.at += 1;
                    let mut right = String::new();
                    self.copy_spaces(&mut right);
                    let is_tuple = self.is_tuple();
                    let start = right.len();
                    self.operand(&mut right);
                    // Line breaks number the lines of errors.
                    let spaces = Some(&right[..start]).filter(|spaces| spaces.contains('\n')).unwrap_or_default();
                    let right = right[start..].trim_end();
                    out.truncate(out.trim_end().len());
                    let right = if is_tuple { &right[1..right.len() - 1] } else { right };
                    out.push_str(&format!("|{FILTER}({spaces}{right})"));
                }
                '*' | '/' | '%' => {
                    (is_left, is_product) = (false, true);
                    self.copy(1, &mut out);
                }
                '-' | '+' if !is_left => self.copy(1, &mut out),
                letter if letter.is_alphanumeric() || matches!(letter, '_' | '\'' | '"' | '(' | '[' | '{') => {
                    is_left = self.operand(&mut out);
                    is_product &= is_left;
                }
                letter => {
                    (is_left, is_product) = (false, false);
                    self.copy(letter.len_utf8(), &mut out);
                }
            }
        }
    }

    /// Copies an operand with its attributes, calls and filters; false if it is the word of an operator.
    fn operand(&mut self, out: &mut String) -> bool {
        while matches!(self.peek(), Some('-' | '+')) {
            self.copy(1, out);
            self.copy_spaces(out);
        }
        let word = self.word();
        match self.peek() {
            Some('\'' | '"') => self.quoted(out),
            Some('(' | '[' | '{') => self.brackets(out),
            _ if OPERATOR_WORDS.contains(&word) => {
                self.copy(word.len(), out);
                return false;
            }
            _ if !word.is_empty() => self.copy(word.len(), out),
            _ => return false,
        }
        loop {
            let before = (self.at, out.len());
            self.copy_spaces(out);
            match self.peek() {
                Some('.') => {
                    self.copy(1, out);
                    self.copy(self.word().len(), out);
                }
                Some('(' | '[') => self.brackets(out),
                Some('|') => {
                    self.copy(1, out);
                    self.copy_spaces(out);
                    self.copy(self.word().len(), out);
                }
                _ => {
                    // Spaces belong to what follows.
                    self.at = before.0;
                    out.truncate(before.1);
                    return true;
                }
            }
        }
    }

    fn word(&self) -> &'t str {
        let rest = self.rest();
        &rest[..rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len())]
    }

    fn quoted(&mut self, out: &mut String) {
        let mut quotes = Quotes::default();
        let rest = self.rest();
        let close = rest.char_indices().find(|(_, letter)| {
            quotes.is_quoted(*letter);
            !quotes.are_open()
        });
        self.copy(close.map_or(rest.len(), |(at, letter)| at + letter.len_utf8()), out);
    }

    fn brackets(&mut self, out: &mut String) {
        self.copy(1, out);
        let inner = self.level();
        out.push_str(&inner);
        let close = self.peek().map_or(0, char::len_utf8);
        self.copy(close, out);
    }

    /// Returns true if the next operand is a list in parentheses, whose items are the arguments of a format.
    fn is_tuple(&self) -> bool {
        let rest = self.rest();
        if !rest.starts_with('(') {
            return false;
        }
        let (mut quotes, mut depth, mut is_tuple) = (Quotes::default(), 0, false);
        for (at, letter) in rest.char_indices() {
            match letter {
                _ if quotes.is_quoted(letter) => {}
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => {
                    depth -= 1;
                    if depth == 0 {
                        // Attributes and filters make it another value.
                        return is_tuple && !rest[at + 1..].trim_start().starts_with(['.', '|', '[', '(']);
                    }
                }
                ',' => is_tuple |= depth == 1,
                _ => {}
            }
        }
        false
    }
}

/// Formats a string, or divides numbers.
fn percent(state: &State<'_, '_>, left: Value, arguments: Rest<Value>) -> Result<Value, Error> {
    let mut arguments = arguments.0;
    if let Some(text) = left.as_str() {
        let operand = match arguments.as_slice() {
            [one] if one.is_tuple() => Operand::Tuple(one.try_iter()?.collect()),
            [_] => Operand::Value(arguments.swap_remove(0)),
            _ => Operand::Tuple(arguments),
        };
        return printf(state, text, &operand).map(Value::from);
    }
    if left.is_undefined() || arguments.iter().any(Value::is_undefined) {
        return Err(undefined());
    }
    let [right] = arguments.as_slice() else { return Err(reject("% requires two numbers")) };
    let is_number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    if !is_number(&left) || !is_number(right) {
        return Err(reject(format!(
            "% requires numbers, or a string on the left, not {} % {}",
            left.kind(),
            right.kind()
        )));
    }
    let zero = || reject("integer modulo by zero");
    // A float without a fraction converts to an integer as well, but its remainder is a float, as in Python.
    let integer = |value: &Value| {
        let is_integer = value.is_integer() || value.kind() == ValueKind::Bool;
        i64::try_from(value.clone()).ok().filter(|_| is_integer)
    };
    match (integer(&left), integer(right)) {
        (Some(left), Some(right)) if right != 0 => {
            let rest = left.wrapping_rem(right);
            // The result has the sign of the divisor, as in Python.
            Ok(Value::from(if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest }))
        }
        (Some(_), Some(_)) => Err(zero()),
        _ => {
            let (left, right) = (f64::try_from(left)?, f64::try_from(right.clone())?);
            if right == 0.0 { Err(zero()) } else { Ok(Value::from(left - right * (left / right).floor())) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_becomes_a_filter_of_the_same_precedence() {
        let check = |expression: &str, expected: &str| {
            let expected = expected.replace("%%", FILTER);
            assert_eq!(replaced(expression), expected, "{expression}");
        };
        check("'%s-%d' % (a, b)", "'%s-%d'|%%(a, b)");
        check("'%s' % (a)", "'%s'|%%((a))");
        check("'%s' % (a, b)[0]", "'%s'|%%((a, b)[0])");
        check("x.y | f(1) % -z | g ~ 'a' % b", "x.y | f(1)|%%(-z | g) ~ 'a'|%%(b)");
        check("a % 2 == 0 and not b % 3", "a|%%(2) == 0 and not b|%%(3)");
        check("f('%' % (a % 2,))[b % 3] % c", "f('%'|%%(a|%%(2),))[b|%%(3)]|%%(c)");
        check("a * b % c + d % e", "a * b % c + d|%%(e)");
        check("a ** b % c", "a ** b % c");
        check("'100%' ~ \"5 % 3\"", "'100%' ~ \"5 % 3\"");
        check("a % b % c", "a|%%(b)|%%(c)");
        check("{'a': '%s' % b}", "{'a': '%s'|%%(b)}");
        check("a %\n b", "a|%%(\n b)");
        check("a } % b", "a } % b");
        check("a % b) % c", "a|%%(b)) % c");
        for broken in ["a %", "% a", "a % (b", "a % 'b", "a % % b", "%", "é % ü", "a % ]"] {
            let _ = replaced(broken);
        }
    }

    #[test]
    fn remainders_have_the_type_and_sign_of_python() {
        let mut env = Environment::new();
        add(&mut env);
        let check = |left: Value, right: Value, expected: &str| {
            let template = format!("{{{{ a|{FILTER}(b) }}}}");
            let context = std::collections::BTreeMap::from([("a", left), ("b", right)]);
            assert_eq!(env.render_str(&template, context).unwrap(), expected);
        };
        check(5.0.into(), 2.into(), "1.0");
        check((-5).into(), 2.0.into(), "1.0");
        check((-5).into(), 2.into(), "1");
        check(true.into(), 2.into(), "1");
        check(i64::MIN.into(), (-1).into(), "0");
    }
}
