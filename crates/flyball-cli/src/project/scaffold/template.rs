//! Templates with placeholders such as `{{name}}`.

/// Fills the gaps of a template.
pub(crate) fn fill(template: &str, gaps: &[(&str, &str)]) -> String {
    gaps.iter().fold(template.to_owned(), |text, (gap, filled)| text.replace(&format!("{{{{{gap}}}}}"), filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled() {
        for (template, expected) in
            [("a {{x}} b", "a 1 b"), ("use a::{{{x}}, {{y}}};", "use a::{1, two};"), ("{{z}} {x}", "{{z}} {x}")]
        {
            assert_eq!(fill(template, &[("x", "1"), ("y", "two")]), expected);
        }
    }
}
