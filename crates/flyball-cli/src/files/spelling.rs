//! Names that are probably meant by a mistyped one.

use crate::error::Error;
use std::fs;
use std::path::Path;

/// Edits after which a name is probably another one.
const MAX_EDITS: usize = 2;
/// Limit of the names of a folder that are compared.
const MAX_ENTRIES: usize = 10_000;

/// Returns the name that was probably meant.
pub(crate) fn meant<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // A short word is near to every other one.
    let is_near = |edits: usize| edits <= MAX_EDITS && edits < word.chars().count();
    let near = names.into_iter().map(|name| (distance(name, word), name)).min();
    near.filter(|(edits, _)| is_near(*edits)).map(|(_, name)| name)
}

/// Adds a hint to an error about a path that does not exist: the nearest name beside the first part of the path that is
/// missing. A path that exists leaves the error as it is.
pub(crate) fn with_meant_path(error: Error, path: &Path) -> Error {
    let Some(missing) = path.ancestors().filter(|part| !part.as_os_str().is_empty() && !part.exists()).last() else {
        return error;
    };
    let parent = missing.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = missing.file_name().unwrap_or_default().to_string_lossy();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    match meant(&name, names.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean {}?", missing.with_file_name(near).display())),
        None => error,
    }
}

/// Returns the edit distance of two words.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let (mut corner, mut left) = (row[0], at + 1);
        row[0] = left;
        for (column, expected) in other.iter().enumerate() {
            let changed = corner + usize::from(letter != *expected);
            corner = row[column + 1];
            left = changed.min(corner + 1).min(left + 1);
            row[column + 1] = left;
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (one, other, expected) in [("pods", "pods", 0), ("pods", "pds", 1), ("", "ab", 2), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn short_words_mean_nothing_else() {
        let check = |word: &str, expected: Option<&str>| assert_eq!(meant(word, ["pods", "jobs"]), expected, "{word}");
        check("podz", Some("pods"));
        check("po", None);
        check("services", None);
        check("", None);
    }

    #[test]
    fn first_missing_part_of_a_path_is_named() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let hints = |path: &str| with_meant_path(Error::new("no"), &folder.join(path)).hints().to_vec();
        let near = folder.join("src/files");
        assert_eq!(hints("src/filez/spelling.rs"), [format!("did you mean {}?", near.display())]);
        for path in ["src/entirely-absent/x", "src"] {
            assert_eq!(hints(path), [""; 0], "{path}");
        }
    }
}
