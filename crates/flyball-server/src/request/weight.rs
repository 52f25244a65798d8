//! The memory that JSON takes once it is read.
//!
//! It is far more than the text: a map of one short key takes ninety times as much. So what may be read and stored is
//! bounded by this too, and who reads much waits until there is memory for it.

use flyball_schema::memory::NODE;
pub(crate) use flyball_schema::memory::{ITEM, entry};

/// The most bytes that a body or a stored object may take once it is read. Three million bytes of ordinary objects take
/// half of it.
pub(crate) const MAX_WEIGHT: usize = 48 << 20;

/// As deep as JSON is read.
const MAX_DEPTH: usize = 128;

/// Texts up to this length take little, whatever they say: ninety times as much.
const SHORT: usize = 64 << 10;

/// Returns what no text of so many bytes exceeds by much once it is read, whatever it says.
pub(crate) fn at_most(bytes: usize) -> usize {
    bytes.saturating_mul(NODE / 8).min(MAX_WEIGHT)
}

/// Returns what JSON takes once it is read.
fn of_text(text: &[u8]) -> usize {
    let (mut weight, mut in_string, mut is_escaped) = (text.len(), false, false);
    // How many entries each open map has. What is deeper than JSON may be counts with the map above.
    let mut maps = Vec::new();
    for byte in text {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' if maps.len() < MAX_DEPTH => maps.push(0),
            b'}' => drop(maps.pop()),
            b':' => {
                if let Some(count) = maps.last_mut() {
                    weight += entry(*count);
                    *count += 1;
                }
            }
            b',' | b'[' => weight += ITEM,
            _ => {}
        }
    }
    weight
}

/// Returns what JSON takes once it is read, if that is more than it may.
pub(crate) fn excess(text: &[u8]) -> Option<usize> {
    // Most objects are short, and need not be looked at.
    (text.len() > SHORT).then(|| of_text(text)).filter(|weight| *weight > MAX_WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_weigh_most() {
        let many = |item: &str| format!("[{}0]", format!("{item},").repeat(1000));
        let per_item = |item: &str| of_text(many(item).as_bytes()) / 1000;
        assert!((30..50).contains(&per_item("0")) && (30..50).contains(&per_item("{ }")));
        assert!((640..700).contains(&per_item("{\"a\":1}")) && (1280..1400).contains(&per_item("{\"a\":{\"b\":{}}}")));
        assert!(per_item("\"{\\\"a\\\":{}}\"") < 60, "braces in a text are text");
        assert!((640..900).contains(&per_item("{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5}")));
        assert_eq!((0..12).map(entry).sum::<usize>(), 2 * NODE);
    }

    #[test]
    fn ordinary_objects_of_any_length_are_within() {
        let container = r#"{"name":"container-12345","value":"some value","ports":[1,2,3]}"#;
        let text = format!(
            "{{\"a\":[{}0]}}",
            format!("{container},").repeat(super::super::body::LIMIT / (container.len() + 1))
        );
        assert_eq!(excess(text.as_bytes()), None);
        assert!(excess(format!("[{}0]", "{\"a\":{}},".repeat(100_000)).as_bytes()).is_some());
    }
}
