//! Unified diffs of two texts, as by `diff -u`.

/// Lines that are shown around what differs.
const CONTEXT: usize = 3;
/// With more lines to compare than this, all are told as replaced: what is that different needs no comparison.
const MAX_CELLS: usize = 4_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Same,
    Gone,
    New,
}

/// Tells how a file changes; nothing if it does not.
pub(crate) fn unified(name: &str, old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let steps = steps(&old, &new);
    let changes: Vec<usize> = (0..steps.len()).filter(|at| steps[*at] != Step::Same).collect();
    let mut hunks: Vec<(usize, usize)> = Vec::new();
    for at in changes {
        let (from, to) = (at.saturating_sub(CONTEXT), (at + CONTEXT + 1).min(steps.len()));
        match hunks.last_mut().filter(|(_, end)| *end >= from) {
            Some((_, end)) => *end = to,
            None => hunks.push((from, to)),
        }
    }
    if hunks.is_empty() {
        return String::new();
    }
    let mut out = format!("--- {name}\n+++ {name}\n");
    for (from, to) in hunks {
        let count = |steps: &[Step], but: Step| steps.iter().filter(|step| **step != but).count();
        let (mut left, mut right) = (count(&steps[..from], Step::New), count(&steps[..from], Step::Gone));
        let (lefts, rights) = (count(&steps[from..to], Step::New), count(&steps[from..to], Step::Gone));
        let start = |at: usize, lines: usize| if lines == 0 { at } else { at + 1 };
        out += &format!("@@ -{},{lefts} +{},{rights} @@\n", start(left, lefts), start(right, rights));
        for step in &steps[from..to] {
            let (sign, line) = match step {
                Step::Same => (' ', old[left]),
                Step::Gone => ('-', old[left]),
                Step::New => ('+', new[right]),
            };
            left += usize::from(*step != Step::New);
            right += usize::from(*step != Step::Gone);
            out += &format!("{sign}{line}\n");
        }
    }
    out
}

/// Finds the way from one text to the other that keeps the most lines.
fn steps(old: &[&str], new: &[&str]) -> Vec<Step> {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let mut steps = vec![Step::Same; head];
    if old.len().saturating_mul(new.len()) > MAX_CELLS {
        steps.extend(old.iter().map(|_| Step::Gone).chain(new.iter().map(|_| Step::New)));
    } else {
        // How many lines can be kept of what is left from each pair of places on.
        let wide = new.len() + 1;
        let mut kept = vec![0u32; (old.len() + 1) * wide];
        for left in (0..old.len()).rev() {
            for right in (0..new.len()).rev() {
                kept[left * wide + right] = match old[left] == new[right] {
                    true => kept[(left + 1) * wide + right + 1] + 1,
                    false => kept[(left + 1) * wide + right].max(kept[left * wide + right + 1]),
                };
            }
        }
        let (mut left, mut right) = (0, 0);
        while left < old.len() || right < new.len() {
            let step = if left < old.len() && right < new.len() && old[left] == new[right] {
                Step::Same
            } else if right == new.len()
                || (left < old.len() && kept[(left + 1) * wide + right] >= kept[left * wide + right + 1])
            {
                Step::Gone
            } else {
                Step::New
            };
            left += usize::from(step != Step::New);
            right += usize::from(step != Step::Gone);
            steps.push(step);
        }
    }
    steps.extend(std::iter::repeat_n(Step::Same, tail));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_shown_with_what_is_around() {
        let old: String = (1..=12).map(|line| format!("{line}\n")).collect();
        let new = old.replace("6\n", "six\nsix and a half\n");
        let expected = "--- f\n+++ f\n@@ -3,7 +3,8 @@\n 3\n 4\n 5\n-6\n+six\n+six and a half\n 7\n 8\n 9\n";
        assert_eq!(unified("f", &old, &new), expected);
        assert_eq!(unified("f", &old, &old), "");
        assert_eq!(unified("f", "", "a\n"), "--- f\n+++ f\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(unified("f", "a\n", ""), "--- f\n+++ f\n@@ -1,1 +0,0 @@\n-a\n");
        assert_eq!(unified("f", "a\nb\nc\n", "a\nc\n"), "--- f\n+++ f\n@@ -1,3 +1,2 @@\n a\n-b\n c\n");
    }
}
