//! Line diffs of Go's internal types, as in kube-apiserver's errors.
//!
//! Lines are matched like in Python's `difflib`, of which kube-apiserver uses a port: frequent lines of long texts are
//! not matched. The result is the same diff, which is not always the shortest.

use super::display::internal;
use flyball_core::field::BadValue;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Maximum number of compared lines, because the time is quadratic.
const MAX_LINES: usize = 2_000;
/// The number of context lines around each change.
const CONTEXT: usize = 3;
/// Number of lines above which frequent lines are not matched.
const MIN_LINES_OF_LONG_TEXT: usize = 200;

/// Returns the diff of two values of an internal type; empty if they are very long.
pub(super) fn difference(ty: &str, before: &Value, after: &Value) -> String {
    let lines = |value: &Value| match internal(ty, value) {
        BadValue::Raw(json) => indented(&json),
        _ => Vec::new(),
    };
    let (before, after) = (lines(before), lines(after));
    if before.len().max(after.len()) > MAX_LINES { String::new() } else { unified(&before, &after) }
}

/// Encodes JSON with a line for each member, like Go's `json.MarshalIndent` with an indentation of one space.
fn indented(json: &str) -> Vec<String> {
    let (mut lines, mut line, mut depth) = (Vec::new(), String::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    let mut chars = json.chars().peekable();
    let mut end = |line: &mut String, depth: usize| lines.push(std::mem::replace(line, " ".repeat(depth)));
    while let Some(c) = chars.next() {
        if quoted {
            (quoted, escaped) = (escaped || c != '"', !escaped && c == '\\');
            line.push(c);
            continue;
        }
        match c {
            '{' | '[' => {
                line.push(c);
                if let Some(close) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    line.push(close);
                } else {
                    depth += 1;
                    end(&mut line, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                end(&mut line, depth);
                line.push(c);
            }
            ',' => {
                line.push(c);
                end(&mut line, depth);
            }
            ':' => line.push_str(": "),
            c => {
                quoted = c == '"';
                line.push(c);
            }
        }
    }
    lines.push(line);
    lines
}

/// A common run of lines.
#[derive(Clone, Copy)]
struct Match {
    before: usize,
    after: usize,
    length: usize,
}

/// Matching lines of both texts.
#[derive(Clone, Copy)]
struct Part {
    same: bool,
    before: (usize, usize),
    after: (usize, usize),
}

struct Texts<'l> {
    before: &'l [String],
    after: &'l [String],
    /// The positions of lines in the second text, without very frequent lines.
    places: BTreeMap<&'l str, Vec<usize>>,
}

impl<'l> Texts<'l> {
    fn new(before: &'l [String], after: &'l [String]) -> Self {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, line) in after.iter().enumerate() {
            places.entry(line).or_default().push(at);
        }
        if after.len() >= MIN_LINES_OF_LONG_TEXT {
            places.retain(|_, at| at.len() <= after.len() / 100 + 1);
        }
        Self { before, after, places }
    }

    /// Finds the first longest common run within these limits.
    fn longest(&self, before: (usize, usize), after: (usize, usize)) -> Match {
        let mut best = Match { before: before.0, after: after.0, length: 0 };
        // The lengths of the runs that end before each line of the second text.
        let mut runs: BTreeMap<usize, usize> = BTreeMap::new();
        for at in before.0..before.1 {
            let mut now = BTreeMap::new();
            let places = self.places.get(self.before[at].as_str()).map_or(&[][..], Vec::as_slice);
            for place in places.iter().filter(|place| (after.0..after.1).contains(place)) {
                let length = runs.get(place).map_or(1, |run| run + 1);
                now.insert(place + 1, length);
                if length > best.length {
                    best = Match { before: at + 1 - length, after: place + 1 - length, length };
                }
            }
            runs = now;
        }
        let same = |a: usize, b: usize| self.before[a] == self.after[b];
        while best.before > before.0 && best.after > after.0 && same(best.before - 1, best.after - 1) {
            best = Match { before: best.before - 1, after: best.after - 1, length: best.length + 1 };
        }
        while best.before + best.length < before.1
            && best.after + best.length < after.1
            && same(best.before + best.length, best.after + best.length)
        {
            best.length += 1;
        }
        best
    }

    /// Returns all common runs in order, followed by an empty one.
    fn matches(&self) -> Vec<Match> {
        let (a, b) = (self.before.len(), self.after.len());
        let mut found: Vec<Match> = Vec::new();
        let mut open = vec![((0, a), (0, b))];
        while let Some((before, after)) = open.pop() {
            let run = self.longest(before, after);
            if run.length > 0 {
                found.push(run);
                let (next_before, next_after) = (run.before + run.length, run.after + run.length);
                open.push(((before.0, run.before), (after.0, run.after)));
                open.push(((next_before, before.1), (next_after, after.1)));
            }
        }
        found.sort_by_key(|run| run.before);
        let mut joined: Vec<Match> = Vec::new();
        for run in found {
            match joined.last_mut() {
                Some(last) if (last.before + last.length, last.after + last.length) == (run.before, run.after) => {
                    last.length += run.length;
                }
                _ => joined.push(run),
            }
        }
        joined.push(Match { before: a, after: b, length: 0 });
        joined
    }

    /// Returns the edits in order.
    fn parts(&self) -> Vec<Part> {
        let (mut parts, mut at) = (Vec::new(), (0, 0));
        for Match { before, after, length } in self.matches() {
            if at != (before, after) {
                parts.push(Part { same: false, before: (at.0, before), after: (at.1, after) });
            }
            if length > 0 {
                parts.push(Part { same: true, before: (before, before + length), after: (after, after + length) });
            }
            at = (before + length, after + length);
        }
        parts
    }
}

/// Groups changes that are close together into hunks with context.
fn hunks(parts: &[Part]) -> Vec<Vec<Part>> {
    let head = |(from, to): (usize, usize)| (from, to.min(from + CONTEXT));
    let tail = |(from, to): (usize, usize)| (from.max(to.saturating_sub(CONTEXT)), to);
    let (mut hunks, mut hunk) = (Vec::new(), Vec::new());
    for (i, part) in parts.iter().enumerate() {
        let (first, last) = (i == 0, i + 1 == parts.len());
        match part {
            Part { same: true, before, after } if first => {
                hunk.push(Part { same: true, before: tail(*before), after: tail(*after) });
            }
            Part { same: true, before, after } if last => {
                hunk.push(Part { same: true, before: head(*before), after: head(*after) });
            }
            Part { same: true, before, after } if before.1 - before.0 > 2 * CONTEXT => {
                hunk.push(Part { same: true, before: head(*before), after: head(*after) });
                hunks.push(std::mem::take(&mut hunk));
                hunk.push(Part { same: true, before: tail(*before), after: tail(*after) });
            }
            part => hunk.push(*part),
        }
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|part| !part.same));
    hunks
}

/// Formats the changes like `diff -u`.
fn unified(before: &[String], after: &[String]) -> String {
    let range = |from: usize, to: usize| match to - from {
        0 => format!("{from},0"),
        1 => (from + 1).to_string(),
        length => format!("{},{length}", from + 1),
    };
    let mut diff = String::new();
    for hunk in hunks(&Texts::new(before, after).parts()) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let (old, new) = (range(first.before.0, last.before.1), range(first.after.0, last.after.1));
        let _ = writeln!(diff, "@@ -{old} +{new} @@");
        for part in hunk {
            let (removed, added) = (&before[part.before.0..part.before.1], &after[part.after.0..part.after.1]);
            let (sign, added) = if part.same { (' ', &[][..]) } else { ('-', added) };
            let lines = removed.iter().map(|line| (sign, line)).chain(added.iter().map(|line| ('+', line)));
            for (sign, line) in lines {
                let _ = writeln!(diff, "{sign}{line}");
            }
        }
    }
    diff
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_indented_as_in_go() {
        let json = r#"{"A":{},"B":[],"C":["x\",{","\\"],"D":{"e":1}}"#;
        let lines =
            ["{", " \"A\": {},", " \"B\": [],", " \"C\": [", "  \"x\\\",{\",", "  \"\\\\\"", " ],", " \"D\": {"];
        let rest = ["  \"e\": 1", " }", "}"];
        assert_eq!(indented(json), [&lines[..], &rest[..]].concat());
    }

    #[test]
    fn resized_claim_differs_in_one_line() {
        let claim = |size: &str| {
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
                "storageClassName": "x", "volumeMode": "Filesystem"})
        };
        let diff = difference("PersistentVolumeClaimSpec", &claim("1Gi"), &claim("2Gi"));
        let lines = [
            "@@ -6,7 +6,7 @@",
            "  \"Resources\": {",
            "   \"Limits\": null,",
            "   \"Requests\": {",
            "-   \"storage\": \"1Gi\"",
            "+   \"storage\": \"2Gi\"",
            "   }",
            "  },",
            "  \"VolumeName\": \"\",",
            "",
        ];
        assert_eq!(diff, lines.join("\n"));
    }

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn changes_are_shown_with_their_context() {
        let diff = |before: &str, after: &str| unified(&lines(before), &lines(after)).replace('\n', "|");
        assert_eq!(diff("a b c", "a b c"), "");
        assert_eq!(diff("a b c d e f g h", "a b c d X f g h"), "@@ -2,7 +2,7 @@| b| c| d|-e|+X| f| g| h|");
        assert_eq!(diff("a", "b"), "@@ -1 +1 @@|-a|+b|");
        assert_eq!(diff("a b", "a b c"), "@@ -1,2 +1,3 @@| a| b|+c|");
        assert_eq!(diff("", "x y"), "@@ -0,0 +1,2 @@|+x|+y|");
        assert_eq!(
            diff("x 1 2 3 4 5 6 7 y", "X 1 2 3 4 5 6 7 Y"),
            "@@ -1,4 +1,4 @@|-x|+X| 1| 2| 3|@@ -6,4 +6,4 @@| 5| 6| 7|-y|+Y|"
        );
        assert_eq!(diff("x 1 2 3 4 5 6 y", "X 1 2 3 4 5 6 Y"), "@@ -1,8 +1,8 @@|-x|+X| 1| 2| 3| 4| 5| 6|-y|+Y|");
        assert_eq!(diff("a b c d", "b c a d"), "@@ -1,4 +1,4 @@|-a| b| c|+a| d|");
    }

    #[test]
    fn frequent_lines_of_long_texts_are_not_matched() {
        let common = "z ".repeat(100);
        let unique: String = (0..100).map(|n| format!("u{n} ")).collect();
        let before = lines(&format!("{unique} p z q {common}"));
        let after = lines(&format!("{unique} r z s {common}"));
        let diff = unified(&before, &after).replace('\n', "|");
        assert!(diff.starts_with("@@ -98,106 +98,106 @@| u97| u98| u99|-p|-z|-q|-z|"), "{diff}");
        assert_eq!((diff.matches("-z|").count(), diff.matches("+z|").count()), (101, 101), "{diff}");
    }

    #[test]
    fn very_long_texts_are_not_compared() {
        let pod = |n: usize| json!({"tolerations": vec![json!({"key": "a"}); n]});
        assert_eq!(difference("PodSpec", &pod(400), &pod(401)), "");
        assert_ne!(difference("PodSpec", &pod(100), &pod(101)), "");
    }
}
