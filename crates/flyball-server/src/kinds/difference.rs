//! Line diffs of Go's internal types, as in kube-apiserver's errors.
//!
//! Lines are matched like in Python's `difflib`, of which kube-apiserver uses a port: frequent lines of long texts are
//! not matched. The result is the same diff, which is not always the shortest.

use super::display::internal;
use flyball_core::field::BadValue;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Limit of lines of a compared text.
const MAX_LINES: usize = 2_000;
/// Limit of steps of a comparison, whose worst case is cubic. Changes of a few fields take fewer.
const MAX_STEPS: usize = 200_000;
/// The number of context lines around each change.
const CONTEXT: usize = 3;
/// Number of lines above which frequent lines are not matched.
const MIN_LINES_OF_LONG_TEXT: usize = 200;

/// Returns the diff of two values of an internal type; empty if they are very long, or differ in very many lines.
pub(super) fn difference(ty: &str, before: &Value, after: &Value) -> String {
    let lines = |value: &Value| match internal(ty, value) {
        BadValue::Raw(json) => indented(&json),
        _ => Some(Vec::new()),
    };
    let diff = || unified(&lines(before)?, &lines(after)?);
    diff().unwrap_or_default()
}

/// Encodes JSON with a line for each member, like Go's `json.MarshalIndent` with an indentation of one space; `None`
/// above the limit of lines.
fn indented(json: &str) -> Option<Vec<String>> {
    let (mut lines, mut line, mut depth) = (Vec::new(), String::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    let mut chars = json.chars().peekable();
    let end = |lines: &mut Vec<String>, line: &mut String, depth: usize| {
        lines.push(std::mem::replace(line, " ".repeat(depth)));
    };
    while let Some(c) = chars.next() {
        if lines.len() == MAX_LINES {
            return None;
        }
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
                    end(&mut lines, &mut line, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                end(&mut lines, &mut line, depth);
                line.push(c);
            }
            ',' => {
                line.push(c);
                end(&mut lines, &mut line, depth);
            }
            ':' => line.push_str(": "),
            c => {
                quoted = c == '"';
                line.push(c);
            }
        }
    }
    lines.push(line);
    Some(lines)
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
    positions: BTreeMap<&'l str, Vec<usize>>,
    /// The remaining steps.
    steps: usize,
}

impl<'l> Texts<'l> {
    fn new(before: &'l [String], after: &'l [String]) -> Self {
        let mut positions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, line) in after.iter().enumerate() {
            positions.entry(line).or_default().push(at);
        }
        if after.len() >= MIN_LINES_OF_LONG_TEXT {
            positions.retain(|_, at| at.len() <= after.len() / 100 + 1);
        }
        Self { before, after, positions, steps: MAX_STEPS }
    }

    /// Finds the first longest common run within these limits; `None` if no steps remain.
    fn longest(&mut self, before: (usize, usize), after: (usize, usize)) -> Option<Match> {
        let mut best = Match { before: before.0, after: after.0, length: 0 };
        // The lengths of the runs that end before each line of the second text.
        let mut runs: BTreeMap<usize, usize> = BTreeMap::new();
        for at in before.0..before.1 {
            let mut now = BTreeMap::new();
            let positions = self.positions.get(self.before[at].as_str()).map_or(&[][..], Vec::as_slice);
            self.steps = self.steps.checked_sub(1 + positions.len())?;
            for position in positions.iter().filter(|position| (after.0..after.1).contains(position)) {
                let length = runs.get(position).map_or(1, |run| run + 1);
                now.insert(position + 1, length);
                if length > best.length {
                    best = Match { before: at + 1 - length, after: position + 1 - length, length };
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
        Some(best)
    }

    /// Returns all common runs in order, followed by an empty one.
    fn matches(&mut self) -> Option<Vec<Match>> {
        let (a, b) = (self.before.len(), self.after.len());
        let mut found: Vec<Match> = Vec::new();
        let mut open = vec![((0, a), (0, b))];
        while let Some((before, after)) = open.pop() {
            let run = self.longest(before, after)?;
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
        Some(joined)
    }

    /// Returns the edits in order.
    fn parts(&mut self) -> Option<Vec<Part>> {
        let (mut parts, mut at) = (Vec::new(), (0, 0));
        for Match { before, after, length } in self.matches()? {
            if at != (before, after) {
                parts.push(Part { same: false, before: (at.0, before), after: (at.1, after) });
            }
            if length > 0 {
                parts.push(Part { same: true, before: (before, before + length), after: (after, after + length) });
            }
            at = (before + length, after + length);
        }
        Some(parts)
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

/// Formats the changes like `diff -u`; `None` if there are very many.
fn unified(before: &[String], after: &[String]) -> Option<String> {
    let range = |from: usize, to: usize| match to - from {
        0 => format!("{from},0"),
        1 => (from + 1).to_string(),
        length => format!("{},{length}", from + 1),
    };
    let mut diff = String::new();
    for hunk in hunks(&Texts::new(before, after).parts()?) {
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
    Some(diff)
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
        assert_eq!(indented(json).unwrap(), [&lines[..], &rest[..]].concat());
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
        let diff = |before: &str, after: &str| unified(&lines(before), &lines(after)).unwrap().replace('\n', "|");
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
        let diff = unified(&before, &after).unwrap().replace('\n', "|");
        assert!(diff.starts_with("@@ -98,106 +98,106 @@| u97| u98| u99|-p|-z|-q|-z|"), "{diff}");
        assert_eq!((diff.matches("-z|").count(), diff.matches("+z|").count()), (101, 101), "{diff}");
    }

    #[test]
    fn very_long_texts_are_not_compared() {
        let pod = |n: usize| json!({"tolerations": vec![json!({"key": "a"}); n]});
        assert_eq!(difference("PodSpec", &pod(400), &pod(401)), "");
        assert_ne!(difference("PodSpec", &pod(100), &pod(101)), "");
    }

    #[test]
    fn comparisons_of_many_short_runs_are_limited() {
        let pod = |name: &str, n: usize| {
            let args: Vec<_> = (0..n).flat_map(|i| [format!("x{}", i % 49), format!("{name}{i}")]).collect();
            json!({"containers": [{"args": args}]})
        };
        assert_ne!(difference("PodSpec", &pod("a", 60), &pod("b", 60)), "");
        assert_eq!(difference("PodSpec", &pod("a", 860), &pod("b", 860)), "");
    }
}
