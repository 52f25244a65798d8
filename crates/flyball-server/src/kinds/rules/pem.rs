//! PEM blocks, parsed like in Go's `encoding/pem`: other text is skipped.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Maximum number of false starts of blocks, each of which needs a search through the rest.
const MAX_BROKEN: usize = 100;

/// A PEM block.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::kinds) struct Block {
    /// The label after `BEGIN`.
    pub(in crate::kinds) label: String,
    pub(in crate::kinds) has_headers: bool,
    pub(in crate::kinds) content: Vec<u8>,
}

/// Iterates over the blocks of a string.
pub(in crate::kinds) fn blocks(text: &[u8]) -> impl Iterator<Item = Block> {
    let text = String::from_utf8_lossy(text).into_owned();
    let (mut at, mut broken) = (0, 0);
    std::iter::from_fn(move || {
        while broken < MAX_BROKEN {
            let (begin, line_end) = begin(&text, at)?;
            let (found, end) = read(&text[begin..line_end], &text[line_end..]);
            at = line_end + end;
            if found.is_some() {
                return found;
            }
            broken += 1;
        }
        None
    })
}

/// Finds the next line that begins a block; returns the range of its label and the end of the line.
fn begin(text: &str, from: usize) -> Option<(usize, usize)> {
    const BEGIN: &str = "-----BEGIN ";
    let mut at = from;
    loop {
        let found = at + text[at..].find(BEGIN)?;
        let line_end = text[found..].find('\n').map_or(text.len(), |end| found + end + 1);
        if found == 0 || text.as_bytes()[found - 1] == b'\n' {
            return Some((found + BEGIN.len(), line_end));
        }
        at = line_end;
    }
}

/// Parses a block with a label; also returns its end.
fn read(label: &str, rest: &str) -> (Option<Block>, usize) {
    let Some(label) = label.trim_end().strip_suffix("-----") else { return (None, 0) };
    let end = format!("-----END {label}-----");
    let mut headers = 0;
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if !line.contains(':') {
            break;
        }
        headers += 1;
        at += line.len();
    }
    let Some(length) = rest[at..].find(&end) else { return (None, 0) };
    let body: String = rest[at..at + length].chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let stop = at + length + end.len();
    let tail = rest[stop..].lines().next().unwrap_or_default();
    match STANDARD.decode(body) {
        Ok(content) if tail.trim().is_empty() => {
            (Some(Block { label: label.to_owned(), has_headers: headers > 0, content }), stop)
        }
        _ => (None, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<(String, bool, usize)> {
        blocks(text.as_bytes()).map(|block| (block.label, block.has_headers, block.content.len())).collect()
    }

    #[test]
    fn blocks_are_found_between_other_text() {
        let a = "-----BEGIN A-----\nAAAA\n-----END A-----\n";
        assert_eq!(labels(&format!("x\n{a}y\n{a}")), [("A".into(), false, 3), ("A".into(), false, 3)]);
        assert_eq!(labels("-----BEGIN A-----\nk: v\n\nAAAA\n-----END A-----"), [("A".into(), true, 3)]);
        assert_eq!(labels("-----BEGIN A-----\n-----END A-----"), [("A".into(), false, 0)]);
        for broken in [
            "",
            "-----BEGIN A-----",
            "-----BEGIN A-----\n!!\n-----END A-----",
            "x -----BEGIN A-----\nAAAA\n-----END A-----",
        ] {
            assert_eq!(labels(broken), [], "{broken}");
        }
        // A malformed block does not hide the next one.
        assert_eq!(labels(&format!("-----BEGIN B-----\n!!\n-----END B-----\n{a}")), [("A".into(), false, 3)]);
    }
}
