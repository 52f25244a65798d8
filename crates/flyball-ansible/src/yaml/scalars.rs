//! The rules for scalars in PyYAML: which texts need quotes.

use crate::value::Value;
use regex::Regex;
use std::sync::LazyLock;

/// Texts without quotes that are not strings in YAML 1.1.
static OTHERS: LazyLock<Regex> = LazyLock::new(|| {
    let parts = [
        "|~|null|Null|NULL|<<|=",
        "yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        r"[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?",
        r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        r"[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
        r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?([ \t]*(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?",
    ];
    Regex::new(&format!("^(?:{})$", parts.join("|"))).expect("the expression is valid")
});

/// Returns true if a text without quotes is not a string.
pub(super) fn resolves(text: &str) -> bool {
    // The longest of them are numbers, which are rarely long.
    OTHERS.is_match(text)
}

/// Returns the text of a number, a boolean or null.
pub(super) fn plain_text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Number(number) if number.is_f64() => float(number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// Formats a number as Python does, with a period as YAML requires.
fn float(number: f64) -> String {
    let shortest = format!("{number:e}");
    let Some((digits, exponent)) = shortest.split_once('e') else { return shortest };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let text = number.to_string();
        return if text.contains('.') { text } else { text + ".0" };
    }
    let digits = if digits.contains('.') { digits.to_owned() } else { format!("{digits}.0") };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The styles that the characters of a text allow.
#[derive(Debug)]
pub(super) struct Analysis {
    pub(super) is_multiline: bool,
    pub(super) allows_flow_plain: bool,
    pub(super) allows_block_plain: bool,
    pub(super) allows_single_quotes: bool,
}

pub(super) fn is_break(letter: char) -> bool {
    matches!(letter, '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_space(letter: Option<char>) -> bool {
    letter.is_none_or(|letter| matches!(letter, '\0' | ' ' | '\t' | '\r') || is_break(letter))
}

fn is_printable(letter: char) -> bool {
    matches!(letter, '\n' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && letter != '\u{feff}'
}

impl Analysis {
    pub(super) fn of(text: &str) -> Self {
        if text.is_empty() {
            let (is_multiline, allows_flow_plain) = (false, false);
            return Self { is_multiline, allows_flow_plain, allows_block_plain: true, allows_single_quotes: true };
        }
        let starts_document = text.starts_with("---") || text.starts_with("...");
        let (mut in_block, mut in_flow) = (starts_document, starts_document);
        let (mut is_multiline, mut is_special, mut break_space, mut space_break) = (false, false, false, false);
        let mut before = None;
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let (is_first, space_follows) = (before.is_none(), is_space(letters.peek().copied()));
            match letter {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                    if is_first =>
                {
                    (in_flow, in_block) = (true, true);
                }
                '?' | ':' if is_first => (in_flow, in_block) = (true, in_block || space_follows),
                '-' if is_first && space_follows => (in_flow, in_block) = (true, true),
                ',' | '?' | '[' | ']' | '{' | '}' if !is_first => in_flow = true,
                ':' if !is_first => (in_flow, in_block) = (true, in_block || space_follows),
                '#' if !is_first && is_space(before) => (in_flow, in_block) = (true, true),
                _ => {}
            }
            is_multiline |= is_break(letter);
            is_special |= !is_printable(letter);
            break_space |= letter == ' ' && before.is_some_and(is_break);
            space_break |= is_break(letter) && before == Some(' ');
            before = Some(letter);
        }
        let is_edge = |letter: Option<char>| letter.is_some_and(|letter| letter == ' ' || is_break(letter));
        let is_bare = is_edge(text.chars().next()) || is_edge(text.chars().next_back());
        let is_plain = !(is_bare || break_space || space_break || is_special || is_multiline);
        Self {
            is_multiline,
            allows_flow_plain: is_plain && !in_flow,
            allows_block_plain: is_plain && !in_block,
            allows_single_quotes: !(break_space || space_break || is_special),
        }
    }
}

/// Returns the escape sequence of a character in double quotes; `None` if it needs none.
pub(super) fn escaped(letter: char) -> Option<String> {
    if is_printable(letter) && !is_break(letter) && !matches!(letter, '"' | '\\') {
        return None;
    }
    let short = match letter {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        other => {
            let code = u32::from(other);
            return Some(match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            });
        }
    };
    Some(format!("\\{short}"))
}
