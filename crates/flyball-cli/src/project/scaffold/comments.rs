//! Comments above the keys of a YAML mapping, which describe its fields.

use std::collections::BTreeMap;

/// Longer descriptions are cut off.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// Comments by the path of the key.
#[derive(Debug, Default)]
pub(crate) struct Comments(BTreeMap<Vec<String>, String>);

impl Comments {
    /// Reads the comments directly above the keys of block mappings. Items of lists have none.
    pub(crate) fn of(text: &str) -> Self {
        let mut found = BTreeMap::new();
        let mut parents: Vec<(usize, String)> = Vec::new();
        let mut comment: Vec<&str> = Vec::new();
        for line in text.lines() {
            let content = line.trim_start();
            if let Some(words) = content.strip_prefix('#') {
                // helm-docs marks descriptions with `# -- `.
                comment.push(words.trim_start_matches('#').trim().trim_start_matches("-- "));
                continue;
            }
            let words: Vec<&str> = std::mem::take(&mut comment);
            let Some(key) = key(content) else { continue };
            let indent = line.len() - content.len();
            while parents.last().is_some_and(|(parent, _)| *parent >= indent) {
                parents.pop();
            }
            parents.push((indent, key.to_owned()));
            let description = words.join(" ");
            if !description.trim().is_empty() {
                let path = parents.iter().map(|(_, key)| key.clone()).collect();
                found.insert(path, description.trim().chars().take(MAX_DESCRIPTION_CHARS).collect());
            }
        }
        Self(found)
    }

    /// Returns the comment above a key.
    pub(crate) fn at(&self, path: &[String]) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }
}

/// Returns the key at the beginning of a line.
fn key(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once(':')?;
    let key = key.trim_matches(['"', '\'']);
    let is_plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    (is_plain && !key.starts_with('-') && (rest.is_empty() || rest.starts_with(' '))).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_belong_to_the_key_below() {
        let comments = Comments::of(
            "# License\n\n# -- How many\n# pods.\nsize: 1\nimage:\n  ## Name of it.\n  tag: \"\"\n  args:\n  # Of an item.\n  - a: 1\n\
             # none\n- x: 1\nlast: 1\n",
        );
        let at = |path: &[&str]| comments.at(&path.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        assert_eq!(at(&["size"]), Some("How many pods."));
        assert_eq!(at(&["image", "tag"]), Some("Name of it."));
        assert_eq!((at(&["image"]), at(&["last"]), comments.0.len()), (None, None, 2));
    }
}
