//! Reader of Prometheus' text format.
//!
//! Lines that do not follow the [format] are skipped, as are comments and timestamps.
//!
//! [format]: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format

use std::borrow::Cow;

/// A value of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The name of the metric.
    pub name: &'a str,
    /// The text between the braces, checked.
    labels: &'a str,
    /// The value.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// Returns the labels, in the order of the text.
    pub fn labels(self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let (name, value, after) = label(rest)?;
            rest = after;
            Some((name, unescape(value)))
        })
    }

    /// Returns the value of a label.
    pub fn label(self, name: &str) -> Option<Cow<'a, str>> {
        self.labels().find(|(label, _)| *label == name).map(|(_, value)| value)
    }
}

/// Reads the samples of a text.
///
/// ```
/// use flyball_core::exposition::samples;
/// let text = "# TYPE requests counter\nrequests_total{path=\"/a,b\",code=\"200\"} 3\nup 1\n";
/// let found: Vec<_> = samples(text).map(|sample| (sample.name, sample.value)).collect();
/// assert_eq!(found, [("requests_total", 3.0), ("up", 1.0)]);
/// assert_eq!(samples(text).next().unwrap().label("path").unwrap(), "/a,b");
/// ```
pub fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(sample)
}

/// Reads a line.
fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => ("", rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    (!name.is_empty() && !name.starts_with('#')).then_some(Sample { name, labels, value })
}

/// Splits a text behind an opening brace into the labels and the rest behind the closing brace.
fn labels(inside: &str) -> Option<(&str, &str)> {
    let mut rest = inside;
    while let Some((.., after)) = label(rest) {
        rest = after;
    }
    // A comma may follow the last label.
    let end = rest.trim_start();
    let end = end.strip_prefix(',').unwrap_or(end).trim_start().strip_prefix('}')?;
    Some((&inside[..inside.len() - rest.len()], end))
}

/// Reads a label: its name, its value with escapes, and the rest of the text.
fn label(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_start().trim_start_matches(',').trim_start();
    let (name, rest) = text.split_once('=')?;
    let name = name.trim_end();
    let rest = rest.trim_start().strip_prefix('"')?;
    let mut is_escaped = false;
    let end = rest.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })?;
    let is_name = !name.is_empty() && !name.contains(['{', '}', '"', ',', ' ']);
    is_name.then_some((name, &rest[..end], &rest[end + 1..]))
}

/// Replaces the escapes `\\`, `\"` and `\n`.
fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let (mut text, mut chars) = (String::with_capacity(value.len()), value.chars());
    while let Some(char) = chars.next() {
        match (char, char == '\\') {
            (_, true) => match chars.next() {
                Some('n') => text.push('\n'),
                Some(escaped @ ('\\' | '"')) => text.push(escaped),
                other => text.extend(Some('\\').into_iter().chain(other)),
            },
            (char, false) => text.push(char),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(String, Vec<String>, f64)> {
        let labels = |sample: Sample<'_>| sample.labels().map(|(name, value)| format!("{name}={value}")).collect();
        samples(line).next().map(|sample| (sample.name.to_owned(), labels(sample), sample.value))
    }

    #[test]
    fn samples_have_name_labels_and_value() {
        let sample = |name: &str, labels: &[&str], value| {
            Some((name.to_owned(), labels.iter().map(|label| (*label).to_owned()).collect(), value))
        };
        for (line, expected) in [
            ("up 1", sample("up", &[], 1.0)),
            ("up{} 1", sample("up", &[], 1.0)),
            ("  up 1.5e3 1700000000000 ", sample("up", &[], 1500.0)),
            ("a{b=\"c\"} 2", sample("a", &["b=c"], 2.0)),
            ("a{b=\"c\",d=\"e\",} 2", sample("a", &["b=c", "d=e"], 2.0)),
            ("a { b = \"c\" , d = \"e\" } 2", sample("a", &["b=c", "d=e"], 2.0)),
            ("a{b=\"x, y=\\\"z\\\"} \\\\\"} 2", sample("a", &["b=x, y=\"z\"} \\"], 2.0)),
            ("a{b=\"1\\n2\\t\"} 2", sample("a", &["b=1\n2\\t"], 2.0)),
            ("a{b=\"ä\"} +Inf", sample("a", &["b=ä"], f64::INFINITY)),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn malformed_lines_are_skipped() {
        for line in [
            "",
            " ",
            "# HELP up 1",
            "#up 1",
            "up",
            "up x",
            "{a=\"b\"} 1",
            "a{b=\"c} 1",
            "a{b=c} 1",
            "a{b=\"c\" 1",
            "a{=\"c\"} 1",
            "a{b=\"c\"}",
            "a{b=\"c\\\"} 1",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        let text = "broken{ 1\nup 2\nbroken\n";
        assert_eq!(samples(text).map(|sample| sample.value).collect::<Vec<_>>(), [2.0]);
    }
}
