//! Templates as the engine needs them: without the operator `%` for strings, and with checks of operands.

use super::modulo::{has_modulo, replaced};
use super::operands::{has_operands, with_checks};
use super::syntax::{check_operators, opening, section};
use minijinja::Error;
use std::borrow::Cow;

/// Returns a text for the engine, which lacks the operator `%` for strings and errors about undefined operands.
pub(super) fn prepared(text: &str) -> Result<String, Error> {
    check_operators(text)?;
    let text = rewritten_sections(text, has_modulo, replaced);
    Ok(rewritten_sections(&text, has_operands, with_checks).into_owned())
}

/// The same for an expression without braces.
pub(super) fn prepared_expression(expression: &str) -> Result<String, Error> {
    check_operators(&format!("{{{{{expression}"))?;
    let expression = if has_modulo(expression) { replaced(expression) } else { expression.to_owned() };
    // A sign at the beginning or the end of a section would be whitespace control.
    Ok(if has_operands(&expression) { with_checks(&format!(" {expression} ")) } else { expression })
}

/// Rewrites the expressions and statements of a text.
pub(super) fn rewritten_sections(text: &str, is_wanted: fn(&str) -> bool, rewrite: fn(&str) -> String) -> Cow<'_, str> {
    let (mut out, mut rest, mut is_raw) = (String::new(), text, false);
    while let Some(at) = opening(rest, &['{', '%']) {
        let (end, _) = section(&rest[at + 2..]);
        let inner = &rest[at + 2..at + 2 + end];
        let (expression, close) = match inner.len().checked_sub(2).filter(|at| inner.is_char_boundary(*at)) {
            Some(at) => inner.split_at(at),
            None => (inner, ""),
        };
        out.push_str(&rest[..at + 2]);
        let word = expression.trim_start_matches(['-', '+']).trim();
        let word = word.trim_end_matches(['-', '+']).trim_end();
        // A variable may have one of these names.
        let is_block = rest[at..].starts_with("{%");
        is_raw = if is_raw { !(is_block && word == "endraw") } else { is_block && word == "raw" };
        let is_closed = close == "}}" || close == "%}";
        match is_closed && !is_raw && is_wanted(expression) {
            true => out.push_str(&rewrite(expression)),
            false => out.push_str(expression),
        }
        out.push_str(close);
        rest = &rest[at + 2 + end..];
    }
    match out.is_empty() {
        true => text.into(),
        false => (out + rest).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::modulo::FILTER;
    use super::*;

    #[test]
    fn text_outside_of_expressions_is_unchanged() {
        let check = |text: &str, expected: &str| {
            assert_eq!(rewritten_sections(text, has_modulo, replaced), expected.replace("%%", FILTER), "{text}");
        };
        check(
            "5 % 3 {% if a % 2 %}{{ '}} % ' % b }}{% endif %}",
            "5 % 3 {% if a|%%(2) %}{{ '}} % '|%%(b) }}{% endif %}",
        );
        check("{% raw %}{{ a % b }}{% endraw %}{{ a % b }}", "{% raw %}{{ a % b }}{% endraw %}{{ a|%%(b) }}");
        check("{{ raw_config }}{{ raw }}{{ a % b }}", "{{ raw_config }}{{ raw }}{{ a|%%(b) }}");
        check("{%- raw -%}{{ endraw }}{{ a % b }}{%- endraw -%}", "{%- raw -%}{{ endraw }}{{ a % b }}{%- endraw -%}");
        check("{%- if a % 2 -%}", "{%- if a|%%(2) -%}");
        check("{{ a % b", "{{ a % b");
    }
}
