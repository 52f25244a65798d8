//! The indexes of an indexed job, as its status writes them: `0,2-4`.

use std::collections::BTreeSet;

/// Reads a list of indexes; what lies outside of the job is passed over.
pub(super) fn parse(text: &str, completions: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            found.extend(first.max(0)..=last.min(completions - 1));
        }
    }
    found
}

/// Writes a list of indexes; three and more in a row as a range.
pub(super) fn print(indexes: &BTreeSet<i32>) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let text = |(first, last): &(i32, i32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        let check = |text, expect| assert_eq!(print(&parse(text, 10)), expect, "{text}");
        check("", "");
        check("0,2-4", "0,2-4");
        check("3,1,2", "1-3");
        check("1-2,7", "1,2,7");
        check("8-20,x", "8,9");
    }
}
