//! Line numbers of the nodes of a document.

use granit_parser::{Event, Parser};

/// The line of a node, and the lines of its children.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) line: usize,
    items: Vec<Lines>,
    fields: Vec<(String, Lines)>,
}

impl Lines {
    /// Returns the lines of the first document of a text; empty if it is invalid.
    pub(crate) fn of(text: &str) -> Self {
        // Unfinished nodes, each with the key in a map whose value follows.
        let mut open: Vec<(Self, Option<String>, bool)> = Vec::new();
        for next in Parser::new_from_str_with_options(text, super::compose::options()) {
            let Ok((event, span)) = next else { break };
            let line = span.start.line();
            let leaf = Self { line, ..Self::default() };
            let complete = match event {
                Event::SequenceStart(..) => {
                    open.push((leaf, None, false));
                    continue;
                }
                Event::MappingStart(..) => {
                    open.push((leaf, None, true));
                    continue;
                }
                Event::Scalar(text, ..) => match open.last_mut() {
                    Some((_, key @ None, true)) => {
                        *key = Some(text.into_owned());
                        continue;
                    }
                    _ => leaf,
                },
                Event::Alias(_) => leaf,
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some((node, ..)) => node,
                    None => break,
                },
                _ => continue,
            };
            match open.last_mut() {
                None => return complete,
                Some((node, key, true)) => node.fields.push((key.take().unwrap_or_default(), complete)),
                Some((node, ..)) => node.items.push(complete),
            }
        }
        Self::default()
    }

    /// Returns the lines of an item of a list.
    pub(crate) fn item(&self, index: usize) -> Option<&Self> {
        self.items.get(index)
    }

    /// Returns the lines of a field of a map.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, lines)| lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_lines_of_their_text() {
        let lines = Lines::of("# c\n- name: a\n  block:\n    - &x {b: 1}\n\n    - *x\n- c:\n    d\n--- 1\n");
        let line = |lines: Option<&Lines>| lines.map(|lines| lines.line);
        assert_eq!((line(lines.item(0)), line(lines.item(1)), line(lines.item(2))), (Some(2), Some(7), None));
        let block = lines.item(0).and_then(|task| task.field("block")).unwrap();
        assert_eq!((line(block.item(0)), line(block.item(1))), (Some(4), Some(6)));
        assert_eq!(line(lines.item(1).and_then(|task| task.field("c"))), Some(8));
        assert_eq!(Lines::of("a: [").line, 0);
    }
}
