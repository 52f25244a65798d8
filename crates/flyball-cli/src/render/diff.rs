//! Unified diffs of two texts, as by `diff -u`.

use similar::TextDiff;
use std::time::Duration;

/// Time for a comparison. After it, lines that were not compared yet count as replaced.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the diff of a file; empty if it is unchanged.
pub(crate) fn unified(name: &str, old: &str, new: &str) -> String {
    TextDiff::configure().timeout(TIMEOUT).diff_lines(old, new).unified_diff().header(name, name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_shows_changes_with_context() {
        let old: String = (1..=12).map(|line| format!("{line}\n")).collect();
        let new = old.replace("6\n", "six\nsix and a half\n");
        let expected = "--- f\n+++ f\n@@ -3,7 +3,8 @@\n 3\n 4\n 5\n-6\n+six\n+six and a half\n 7\n 8\n 9\n";
        assert_eq!(unified("f", &old, &new), expected);
        assert_eq!(unified("f", &old, &old), "");
        assert_eq!(unified("f", "", "a\n"), "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n");
        assert_eq!(unified("f", "a\n", ""), "--- f\n+++ f\n@@ -1 +0,0 @@\n-a\n");
        assert_eq!(unified("f", "a\nb\nc\n", "a\nc\n"), "--- f\n+++ f\n@@ -1,3 +1,2 @@\n a\n-b\n c\n");
    }
}
