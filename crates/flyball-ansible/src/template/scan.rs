//! Splits an expression into operands and operators, as far as needed to change operands.
//!
//! The pieces together are the whole text. An operand is a value with its attributes, calls, indices and filters.

use super::Quotes;
use super::syntax::OPERATOR_WORDS;

/// A part of one level of nesting.
#[derive(Debug)]
pub(super) enum Piece<'t> {
    Operand(ScannedOperand<'t>),
    /// The word of an operator or a statement.
    Word(&'t str),
    /// An operator or a separator.
    Sign(&'t str),
    Space(&'t str),
}

/// A value with its attributes, calls, indices and filters.
#[derive(Debug)]
pub(super) struct ScannedOperand<'t> {
    /// The signs before it, with spaces.
    pub(super) signs: &'t str,
    pub(super) parts: Vec<Part<'t>>,
}

#[derive(Debug)]
pub(super) enum Part<'t> {
    /// A name, a number or a string.
    Primary(&'t str),
    /// A dot and a name, with spaces.
    Attribute(&'t str),
    /// A list, a map or parentheses; or a call or an index, if another part comes before.
    Brackets { open: &'t str, inner: &'t str, close: &'t str },
    /// A bar and the name of a filter, with spaces.
    Filter { text: &'t str, name: &'t str },
}

impl<'t> ScannedOperand<'t> {
    /// Returns the text of the parts before the first filter.
    pub(super) fn value(&self) -> String {
        let parts = self.parts.iter().take_while(|part| !matches!(part, Part::Filter { .. }));
        parts.map(Part::text).collect()
    }

    /// Returns the names of its filters, without their collections.
    pub(super) fn filters(&self) -> impl Iterator<Item = (usize, &'t str)> {
        self.parts.iter().enumerate().filter_map(|(at, part)| match part {
            Part::Filter { name, .. } => Some((at, name.rsplit('.').next().unwrap_or(name))),
            _ => None,
        })
    }

    /// Returns true for a number, a string, a list or a map without attributes and filters.
    pub(super) fn is_literal(&self) -> bool {
        match &self.parts[..] {
            [Part::Primary(text)] => {
                let is_constant = matches!(*text, "true" | "True" | "false" | "False" | "none" | "None");
                is_constant || text.starts_with(|letter: char| letter.is_ascii_digit() || matches!(letter, '\'' | '"'))
            }
            [Part::Brackets { open, .. }] => !open.ends_with('('),
            // A number with a fraction.
            [Part::Primary(text), Part::Attribute(_)] => text.starts_with(|letter: char| letter.is_ascii_digit()),
            _ => false,
        }
    }
}

impl Part<'_> {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Primary(text) | Self::Attribute(text) | Self::Filter { text, .. } => (*text).to_owned(),
            Self::Brackets { open, inner, close } => format!("{open}{inner}{close}"),
        }
    }
}

/// Splits a text into pieces.
pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut scanner = Scanner { text, at: 0 };
    let mut pieces = Vec::new();
    let mut follows_operand = false;
    while scanner.at < text.len() {
        let piece = scanner.piece(follows_operand);
        follows_operand = match piece {
            Piece::Operand(_) => true,
            Piece::Word(_) | Piece::Sign(_) => false,
            Piece::Space(_) => follows_operand,
        };
        pieces.push(piece);
    }
    pieces
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn advance(&mut self, length: usize) -> &'t str {
        let taken = &self.rest()[..length];
        self.at += length;
        taken
    }

    fn spaces(&self) -> usize {
        self.rest().len() - self.rest().trim_start().len()
    }

    fn piece(&mut self, follows_operand: bool) -> Piece<'t> {
        let spaces = self.spaces();
        if spaces > 0 {
            return Piece::Space(self.advance(spaces));
        }
        let start = self.at;
        if !follows_operand {
            while self.rest().starts_with(['-', '+']) {
                self.advance(1);
                self.advance(self.spaces());
            }
        }
        let signs = &self.text[start..self.at];
        let word = word(self.rest());
        if OPERATOR_WORDS.contains(&word) {
            if !signs.is_empty() {
                self.at = start;
                return Piece::Sign(self.advance(1));
            }
            return Piece::Word(self.advance(word.len()));
        }
        match self.primary() {
            Some(primary) => Piece::Operand(self.operand(signs, primary)),
            None => {
                self.at = start;
                Piece::Sign(self.sign())
            }
        }
    }

    fn sign(&mut self) -> &'t str {
        let double = ["==", "!=", "<=", ">=", "//", "**"].iter().any(|sign| self.rest().starts_with(sign));
        let length = if double { 2 } else { self.rest().chars().next().map_or(0, char::len_utf8) };
        self.advance(length)
    }

    fn primary(&mut self) -> Option<Part<'t>> {
        let word = word(self.rest());
        match self.rest().chars().next()? {
            '\'' | '"' => Some(Part::Primary(self.advance(quoted(self.rest())))),
            '(' | '[' | '{' => Some(self.brackets(0)),
            _ if !word.is_empty() => Some(Part::Primary(self.advance(word.len()))),
            _ => None,
        }
    }

    fn operand(&mut self, signs: &'t str, primary: Part<'t>) -> ScannedOperand<'t> {
        let mut parts = vec![primary];
        loop {
            let spaces = self.spaces();
            let rest = &self.rest()[spaces..];
            let part = match rest.chars().next() {
                Some('.') => {
                    let name = rest[1..].len() - rest[1..].trim_start().len();
                    let length = spaces + 1 + name + word(&rest[1 + name..]).len();
                    Part::Attribute(self.advance(length))
                }
                Some('(' | '[') => self.brackets(spaces),
                Some('|') => {
                    let gap = rest[1..].len() - rest[1..].trim_start().len();
                    let name = filter_name(&rest[1 + gap..]);
                    Part::Filter { text: self.advance(spaces + 1 + gap + name.len()), name }
                }
                _ => return ScannedOperand { signs, parts },
            };
            parts.push(part);
        }
    }

    /// Takes brackets after spaces, which need not be closed.
    fn brackets(&mut self, spaces: usize) -> Part<'t> {
        let open = self.advance(spaces + 1);
        let (mut quotes, mut depth) = (Quotes::default(), 0_usize);
        let end = self.rest().char_indices().find(|(_, letter)| match letter {
            letter if quotes.is_quoted(*letter) => false,
            '(' | '[' | '{' => {
                depth += 1;
                false
            }
            ')' | ']' | '}' if depth == 0 => true,
            ')' | ']' | '}' => {
                depth -= 1;
                false
            }
            _ => false,
        });
        let inner = self.advance(end.map_or(self.rest().len(), |(at, _)| at));
        let close = self.advance(usize::from(end.is_some()));
        Part::Brackets { open, inner, close }
    }
}

fn word(text: &str) -> &str {
    &text[..text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len())]
}

/// Returns the name of a filter, which may have a collection.
fn filter_name(text: &str) -> &str {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.');
    text[..text.find(|letter| !is_part(letter)).unwrap_or(text.len())].trim_end_matches('.')
}

/// Returns the length of the string that a text begins with.
fn quoted(text: &str) -> usize {
    let mut quotes = Quotes::default();
    let close = text.char_indices().find(|(_, letter)| {
        quotes.is_quoted(*letter);
        !quotes.are_open()
    });
    close.map_or(text.len(), |(at, letter)| at + letter.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[Piece<'_>]) -> String {
        let text = |piece: &Piece<'_>| match piece {
            Piece::Operand(operand) => {
                operand.signs.to_owned() + &operand.parts.iter().map(Part::text).collect::<String>()
            }
            Piece::Word(text) | Piece::Sign(text) | Piece::Space(text) => (*text).to_owned(),
        };
        pieces.iter().map(text).collect()
    }

    #[test]
    fn pieces_are_the_whole_text() {
        for (text, operands) in [
            ("a.b | f(1) ~ -c['d']  == x.y()", 3),
            ("not a in (b, c) if d is defined else 'e ~ f'", 5),
            ("1.5 + a . b | ansible.builtin.default('x')", 2),
            ("{'a': b}.c // [1, 2][0] ** -(-d)", 3),
            ("- if x", 1),
            ("é ~ 'ü", 2),
            ("a) % ] b", 2),
            ("((", 1),
            ("a | | b .", 1),
        ] {
            let found = pieces(text);
            assert_eq!(joined(&found), text);
            let count = found.iter().filter(|piece| matches!(piece, Piece::Operand(_))).count();
            assert_eq!(count, operands, "{text}: {found:?}");
        }
    }
}
