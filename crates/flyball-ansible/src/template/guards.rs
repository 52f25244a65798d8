//! Guards: the parts of a template that handle an undefined variable, as `default` and `is defined` do.
//!
//! The engine treats undefined values as empty, and the [`Scope`](super::Scope) records the names of those that a
//! template used. This module finds out by the text of the template whether they are errors. Invariant: a guard covers
//! the operand that it follows, so operators as in `a ~ b` are never covered by a guard around them, as in Ansible.

use super::syntax::{Token, first_name, sections, tokens};

/// Filters that accept an undefined value.
const FILTERS: [&str; 3] = ["default", "d", "mandatory"];
/// The words of expressions and statements that are not variables.
const KEYWORDS: [&str; 13] =
    ["and", "or", "not", "in", "is", "if", "elif", "else", "for", "set", "recursive", "endif", "endfor"];

/// Returns true if a template may handle undefined variables.
pub(super) fn has_guard(text: &str) -> bool {
    ["default", "d(", "defined", "mandatory"].iter().any(|guard| text.contains(guard))
}

/// Returns true if a text handles that a variable is undefined.
pub(super) fn handles(text: &str, name: &str) -> bool {
    has_guard(text) && handled_in(&sections(text).into_iter().map(|(_, section)| section).collect::<Vec<_>>(), name)
}

/// Returns true if an expression handles that a variable is undefined.
pub(super) fn expression_handles(expression: &str, name: &str) -> bool {
    has_guard(expression) && handled_in(&[expression], name)
}

fn handled_in(sections: &[&str], name: &str) -> bool {
    let (mut total, mut guarded, mut is_conditional) = (0, 0, false);
    for section in sections {
        let tokens = tokens(section);
        // The condition may be the reason why an unguarded use was not evaluated.
        is_conditional |= tokens.iter().any(|token| matches!(token, Token::Name("if" | "elif" | "and" | "or" | "for")));
        if section.contains(name) {
            let mut uses = Uses { tokens: &tokens, name, total: 0, guarded: 0 };
            // `set` passes an undefined value on.
            uses.visit(0, tokens.len(), first_name(&tokens) == Some("set"));
            total += uses.total;
            guarded += uses.guarded;
        }
    }
    // Names that are not in the text are those of other templates, or computed.
    total == 0 || guarded == total || (guarded > 0 && is_conditional)
}

/// The uses of a name in an expression or statement.
struct Uses<'t> {
    tokens: &'t [Token<'t>],
    name: &'t str,
    total: usize,
    guarded: usize,
}

impl Uses<'_> {
    /// Visits the operands of one nesting level; `is_guarded` covers those without operators.
    fn visit(&mut self, mut at: usize, end: usize, is_guarded: bool) {
        while at < end {
            let next = self.end_of_operand(at, end);
            if next == at {
                at += 1;
                continue;
            }
            let is_alone = !self.is_operator(at.wrapping_sub(1)) && !self.is_operator(next);
            self.operand(at, next, is_guarded && is_alone);
            at = next;
        }
    }

    /// Visits an operand: a value with its attributes, calls, filters and tests.
    fn operand(&mut self, start: usize, end: usize, is_guarded: bool) {
        let guard = self.end_of_guards(start, end);
        let (mut at, mut is_function, mut is_argument) = (start, false, false);
        while at < end {
            let is_covered = is_guarded || at < guard;
            match self.tokens[at] {
                Token::Sign('(' | '[' | '{') => {
                    let close = self.close(at, end);
                    self.visit(at + 1, close, is_covered || is_argument);
                    at = close;
                }
                Token::Sign('|') => is_function = true,
                Token::Name("is") => is_function = true,
                Token::Name("not") => {}
                Token::Name(name) => {
                    let is_attribute = at > start && self.tokens[at - 1] == Token::Sign('.');
                    // `vars.a` is the variable a.
                    let is_variable = !is_attribute || self.tokens[start] == Token::Name("vars");
                    if name == self.name && is_variable && !is_function && !self.is_assignment(at + 1) {
                        self.total += 1;
                        self.guarded += usize::from(is_covered);
                    }
                    // Its arguments are evaluated, but at most one of them is used.
                    is_argument = is_function && name == "ternary";
                    is_function &= self.tokens.get(at + 1) == Some(&Token::Sign('.'));
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Returns the end of the operand at a position; the position itself if there is none.
    fn end_of_operand(&self, start: usize, end: usize) -> usize {
        let mut at = match self.tokens[start] {
            Token::Name(word) if KEYWORDS.contains(&word) => return start,
            Token::Name(_) | Token::Text(_) => start + 1,
            Token::Sign('(' | '[' | '{') => self.close(start, end) + 1,
            // The operand before it is a number, which is no token.
            Token::Sign('|') => start,
            Token::Sign(_) => return start,
        };
        while at < end {
            at = match &self.tokens[at..end] {
                [Token::Sign('.' | '|'), Token::Name(_), ..] => at + 2,
                [Token::Sign('.'), ..] => at + 1,
                [Token::Sign('(' | '['), ..] => self.close(at, end) + 1,
                [Token::Name("is"), Token::Name("not"), Token::Name(_), ..] => at + 3,
                [Token::Name("is"), Token::Name(_), ..] => at + 2,
                _ => break,
            };
        }
        at.min(end)
    }

    /// Returns the end of the last guard of an operand; the start of the operand if it has none.
    fn end_of_guards(&self, start: usize, end: usize) -> usize {
        let (mut guard, mut at) = (start, start);
        while at < end {
            let tokens = &self.tokens[at..end];
            let is_test = matches!(tokens, [Token::Name("is"), ..]);
            let is_guard = match tokens {
                [Token::Sign('|'), Token::Name(_), ..] => {
                    let filter = self.function(at + 1, end);
                    FILTERS.contains(&filter.0) || self.accepts_undefined(filter.1, end)
                }
                [Token::Name("is"), Token::Name("not"), Token::Name(test), ..]
                | [Token::Name("is"), Token::Name(test), ..] => {
                    // Other tests of a variable were false before ansible-core 2.19.
                    matches!(*test, "defined" | "undefined") || at == start + 1
                }
                // A function such as `lookup` may have a default.
                [Token::Sign('('), ..] if at > start => self.accepts_undefined(at, end),
                _ => false,
            };
            let next = match tokens {
                [Token::Sign('|'), ..] => self.function(at + 1, end).1,
                [Token::Name("is"), Token::Name("not"), ..] => at + 3,
                [Token::Name("is"), ..] => at + 2,
                _ => at,
            };
            if is_guard && is_test {
                guard = next.min(end);
            }
            at = match self.tokens.get(next).filter(|_| next < end) {
                Some(Token::Sign('(' | '[' | '{')) => self.close(next, end) + 1,
                _ => next.max(at + 1),
            };
            if is_guard && !is_test {
                guard = at.min(end);
            }
        }
        guard
    }

    /// Returns the last part of a function's name at a position, and the end of the name.
    fn function(&self, at: usize, end: usize) -> (&str, usize) {
        let (mut name, mut at) = ("", at);
        while let [Token::Name(part), rest @ ..] = &self.tokens[at.min(end)..end] {
            name = part;
            at += 1;
            match rest {
                [Token::Sign('.'), Token::Name(_), ..] => at += 1,
                _ => break,
            }
        }
        (name, at)
    }

    /// Returns true if the arguments at a position select defined values, or contain a default.
    fn accepts_undefined(&self, open: usize, end: usize) -> bool {
        if open >= end || self.tokens[open] != Token::Sign('(') {
            return false;
        }
        let close = self.close(open, end);
        (open + 1..close).any(|at| match self.tokens[at] {
            Token::Text("defined" | "undefined") => true,
            Token::Name("default") => self.is_assignment(at + 1),
            _ => false,
        })
    }

    /// Returns the position of the bracket that closes the one at a position, or the end.
    fn close(&self, open: usize, end: usize) -> usize {
        let mut depth = 0_usize;
        for at in open..end {
            match self.tokens[at] {
                Token::Sign('(' | '[' | '{') => depth += 1,
                Token::Sign(')' | ']' | '}') => {
                    depth -= 1;
                    if depth == 0 {
                        return at;
                    }
                }
                _ => {}
            }
        }
        end
    }

    /// Returns true if there is an operator at a position.
    fn is_operator(&self, at: usize) -> bool {
        match self.tokens.get(at) {
            Some(Token::Sign('~' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '!')) => true,
            Some(Token::Sign('=')) => !self.is_assignment(at),
            Some(Token::Name(word)) => matches!(*word, "and" | "or" | "not" | "in"),
            _ => false,
        }
    }

    /// Returns true if there is a single equal sign at a position.
    fn is_assignment(&self, at: usize) -> bool {
        let is_comparison = |at: usize| matches!(self.tokens.get(at), Some(Token::Sign('=' | '!' | '<' | '>')));
        self.tokens.get(at) == Some(&Token::Sign('=')) && !is_comparison(at + 1) && !is_comparison(at.wrapping_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_covers_its_operand_alone() {
        let check = |expression: &str, handled: &[&str], missing: &[&str]| {
            for (names, expected) in [(handled, true), (missing, false)] {
                for name in names {
                    assert_eq!(expression_handles(expression, name), expected, "{name} in {expression}");
                    let text = format!("x {{{{ {expression} }}}}");
                    assert_eq!(handles(&text, name), expected, "{name} in {text}");
                }
            }
        };
        check("(a | default('x')) ~ typo", &["a"], &["typo"]);
        check("typo ~ a.b[c] | default('x')", &["a", "c"], &["typo"]);
        check("(a ~ typo) | default('x')", &[], &["a", "typo"]);
        check("(((a))) | ansible.builtin.default('x')", &["a"], &[]);
        check("f(a, typo + 1) | default(b, typo ~ c)", &["a", "b"], &["typo", "c"]);
        check("a | default('x') | combine(typo)", &["a"], &["typo"]);
        check("a | combine(b) | d({})", &["a", "b"], &[]);
        check("a is defined and typo", &["a"], &["typo"]);
        check("a is not defined or a.b == typo", &["a"], &["typo"]);
        check("(a | default('x')) ~ a", &[], &["a"]);
        check("a | default(false) and a", &["a"], &[]);
        check("a if a is defined else b", &["a"], &["b"]);
        check("a is defined | ternary(a, b)", &["a", "b"], &[]);
        check("(a is defined) | ternary(a, typo ~ 'x')", &["a"], &["typo"]);
        check("[a, b] | select('defined') | join(typo)", &["a", "b"], &["typo"]);
        check("lookup('vars', a, default='x') ~ typo", &["a"], &["typo"]);
        check("list | map(attribute='a', default=typo)", &["list", "typo", "a"], &[]);
        check("{'default': typo}.x == a | default(1)", &["a"], &["typo"]);
        check("a is number or b is version(typo, '>') or c | default(1)", &["a", "b", "c"], &["typo"]);
        check("(a | default('x')) ~ b.a ~ vars.c | default(1) ~ vars.typo", &["a", "c"], &["b", "typo"]);
        check("1 | default(2) ~ typo", &["other"], &["typo"]);
        check("(a | default(1)) + 1 - typo.a", &[], &["typo"]);
        check("not (a | default(false))", &["a"], &[]);
        check("a == '' | default(b)", &["b"], &["a"]);
        check("x.a | default(y.x)", &["x", "y"], &[]);
        // Neither unbalanced brackets nor other nonsense is a panic.
        check(")(]a | default(", &["a"], &[]);
        check("a | | default is is not", &[], &["a"]);
        assert!(!expression_handles("a is number", "a"), "no guard");
    }

    #[test]
    fn set_passes_undefined_values_on() {
        let text = "{% set a = b %}{% set c = (d | default('x')) ~ typo %}{{ a | default('x') }}";
        assert!(handles(text, "b") && handles(text, "d") && !handles(text, "typo"));
    }
}
