//! Documents: JSON or YAML streams, decoded one value at a time.
//!
//! Their authors are not trusted: size, depth, number and aliases are bounded. A JSON stream is never held as a whole
//! list of values, so that a large catalog costs the memory of its largest document.

use flyball_core::json::check_keys;
use flyball_core::memory;
use serde_json::Value;

/// Maximum size of one stream, in bytes.
pub(crate) const MAX_STREAM_BYTES: usize = 512 << 20;
/// Maximum size of one document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 32 << 20;
/// Maximum memory of a decoded document, in bytes. Ordinary ones take up to ten times the memory of their text, lists
/// of small maps ninety times.
const MAX_DECODED_BYTES: usize = 256 << 20;
/// Maximum number of values in a part of a YAML stream: as many small maps take the same memory.
const MAX_YAML_VALUES: usize = 1_000_000;
/// Size of the part of a YAML stream that is decoded at once, in bytes; a document is not split.
const YAML_PART_BYTES: usize = 1 << 20;
/// Maximum size of a stream that is YAML, in bytes. Reading YAML takes more time and memory than reading JSON.
pub(crate) const MAX_YAML_BYTES: usize = 128 << 20;
/// Maximum number of documents in a stream.
pub(crate) const MAX_DOCUMENTS: usize = 200_000;
/// Maximum nesting of a document.
const MAX_DEPTH: usize = 100;

/// A stream that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDocument {
    /// The stream is too large.
    #[error("it has {bytes} bytes, at most {max} are read; split it into smaller files")]
    Size {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A document is too large.
    #[error("a document has more than {MAX_DOCUMENT_BYTES} bytes")]
    DocumentSize,
    /// A document has too many values.
    #[error("a document takes more than {} MiB of memory; it has too many values", MAX_DECODED_BYTES >> 20)]
    DocumentMemory,
    /// There are too many documents.
    #[error("it has more than {MAX_DOCUMENTS} documents; split it into smaller files")]
    Count,
    /// The bytes are not text.
    #[error("it is not UTF-8 text")]
    Text,
    /// The text is neither valid JSON nor valid YAML.
    #[error("{0}")]
    Syntax(String),
}

/// Calls a function with each document of a stream, and stops at its first error.
pub(crate) fn for_each<E: From<InvalidDocument>>(
    bytes: &[u8],
    mut use_document: impl FnMut(Value) -> Result<(), E>,
) -> Result<(), E> {
    if bytes.len() > MAX_STREAM_BYTES {
        return Err(InvalidDocument::Size { bytes: bytes.len(), max: MAX_STREAM_BYTES }.into());
    }
    if bytes.trim_ascii_start().starts_with(b"{") {
        match json(bytes) {
            Ok(Extent { documents, .. }) if documents > MAX_DOCUMENTS => return Err(InvalidDocument::Count.into()),
            Ok(Extent { bytes, .. }) if bytes > MAX_DOCUMENT_BYTES => return Err(InvalidDocument::DocumentSize.into()),
            Ok(Extent { memory, .. }) if memory > MAX_DECODED_BYTES => {
                return Err(InvalidDocument::DocumentMemory.into());
            }
            Ok(_) => return stream(bytes).try_for_each(|value| use_document(value.map_err(syntax)?)),
            // YAML documents may begin with a brace as well.
            Err(error) if !bytes.windows(4).any(|four| four == b"\n---") => return Err(syntax(error).into()),
            Err(_) => {}
        }
    }
    if bytes.len() > MAX_YAML_BYTES {
        return Err(InvalidDocument::Size { bytes: bytes.len(), max: MAX_YAML_BYTES }.into());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidDocument::Text)?;
    let mut count = 0;
    for part in yaml_parts(text, YAML_PART_BYTES) {
        if part.len() > YAML_PART_BYTES + MAX_DOCUMENT_BYTES {
            return Err(InvalidDocument::DocumentSize.into());
        }
        let documents = yaml(part)?;
        count += documents.len();
        if count > MAX_DOCUMENTS {
            return Err(InvalidDocument::Count.into());
        }
        documents.into_iter().try_for_each(&mut use_document)?;
    }
    Ok(())
}

/// Returns the documents of a stream.
pub(crate) fn all(bytes: &[u8]) -> Result<Vec<Value>, InvalidDocument> {
    let mut documents = Vec::new();
    for_each(bytes, |document| {
        documents.push(document);
        Ok::<_, InvalidDocument>(())
    })?;
    Ok(documents)
}

/// Returns the only document of a stream; null if there is none.
pub(crate) fn one(bytes: &[u8]) -> Result<Value, InvalidDocument> {
    let mut documents = all(bytes)?.into_iter();
    match (documents.next(), documents.next()) {
        (first, None) => Ok(first.unwrap_or_default()),
        (_, Some(_)) => Err(InvalidDocument::Syntax("it has several documents, expected one".to_owned())),
    }
}

fn stream(bytes: &[u8]) -> impl Iterator<Item = serde_json::Result<Value>> {
    serde_json::Deserializer::from_slice(bytes).into_iter()
}

/// Decodes JSON of an author who is not trusted; `None` if it is invalid, or takes too much memory.
pub(crate) fn json_value(text: &str) -> Option<Value> {
    let is_bounded = text.len() <= MAX_DOCUMENT_BYTES && memory::of_text(text.as_bytes()) <= MAX_DECODED_BYTES;
    if is_bounded { serde_json::from_str(text).ok() } else { None }
}

/// The number of documents of a JSON stream, and the size and memory of the largest ones.
#[derive(Default)]
struct Extent {
    documents: usize,
    bytes: usize,
    memory: usize,
}

/// Checks a JSON stream, and returns its extent.
fn json(bytes: &[u8]) -> serde_json::Result<Extent> {
    check_keys_of_stream(bytes)?;
    let mut documents = serde_json::Deserializer::from_slice(bytes).into_iter::<serde::de::IgnoredAny>();
    let (mut extent, mut start) = (Extent::default(), 0);
    while let Some(document) = documents.next() {
        document?;
        let end = documents.byte_offset();
        extent.documents += 1;
        extent.bytes = extent.bytes.max(end - start);
        extent.memory = extent.memory.max(memory::of_text(&bytes[start..end]));
        start = end;
    }
    Ok(extent)
}

/// Rejects keys that have a meaning for the decoder, see [`check_keys`].
fn check_keys_of_stream(bytes: &[u8]) -> serde_json::Result<()> {
    if !flyball_core::json::has_reserved_keys() {
        return Ok(());
    }
    let mut documents = serde_json::Deserializer::from_slice(bytes).into_iter::<serde::de::IgnoredAny>();
    let mut start = 0;
    while let Some(document) = documents.next() {
        document?;
        let end = documents.byte_offset();
        check_keys(&bytes[start..end])?;
        start = end;
    }
    Ok(())
}

/// Splits a YAML stream before markers of documents, into parts of at least this size except for the last.
///
/// A line that begins with `---` is a marker everywhere, also in the text of a scalar. Directives belong to the marker
/// that follows them, so that a stream with directives is not split.
fn yaml_parts(text: &str, min_bytes: usize) -> impl Iterator<Item = &str> {
    let has_directives = text.starts_with('%') || text.contains("\n%");
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let is_marker = |at: &usize| text[at + 4..].bytes().next().is_none_or(|next| next.is_ascii_whitespace());
        let mut markers = text.match_indices("\n---").map(|(at, _)| at).filter(is_marker);
        let marker = markers.find(|at| *at >= min_bytes && !has_directives);
        let (part, following) = marker.map_or((text, None), |at| (&text[..=at], Some(&text[at + 1..])));
        rest = following;
        Some(part)
    })
}

/// Returns the documents of YAML except for empty ones.
fn yaml(text: &str) -> Result<Vec<Value>, InvalidDocument> {
    // Every event takes a byte at least, so that most of these limits follow from the size of the text.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: MAX_DOCUMENTS,
            max_events: 4 * text.len() + 64,
            max_nodes: (4 * text.len() + 64).min(MAX_YAML_VALUES),
            max_total_scalar_bytes: 2 * text.len() + 64,
            max_aliases: 1_000,
        },
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| InvalidDocument::Syntax(error.render_with_formatter(&serde_saphyr::UserMessageFormatter)))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn syntax(error: serde_json::Error) -> InvalidDocument {
    InvalidDocument::Syntax(format!("invalid JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn streams_are_json_or_yaml() {
        let expected = vec![json!({"a": 1}), json!({"b": [2]})];
        for text in [
            "{\"a\": 1}\n{\"b\": [2]}",
            "{\"a\": 1}{\"b\": [2]}\n",
            "a: 1\n---\nb:\n- 2\n",
            "---\na: 1\n---\n---\nb: [2]\n---\n",
            "{\"a\": 1}\n---\n{\"b\": [2]}\n",
        ] {
            assert_eq!(all(text.as_bytes()).as_ref(), Ok(&expected), "{text}");
        }
        assert_eq!(one(b"a: 1"), Ok(json!({"a": 1})));
        assert_eq!(one(b""), Ok(Value::Null));
        assert!(one(b"a: 1\n---\nb: 1").is_err());
    }

    #[test]
    fn yaml_is_split_at_markers() {
        let text = "a: |\n  ---\n  b\n---\nc: 1\n---x: 2\n--- {d: 3}\n";
        let parts: Vec<_> = yaml_parts(text, 1).collect();
        assert_eq!(parts, ["a: |\n  ---\n  b\n", "---\nc: 1\n---x: 2\n", "--- {d: 3}\n"]);
        assert_eq!(yaml_parts(text, 1_000).collect::<Vec<_>>(), [text]);
        let directives = "%YAML 1.2\n---\na: 1\n";
        assert_eq!(yaml_parts(directives, 1).collect::<Vec<_>>(), [directives]);
    }

    #[test]
    fn size_of_a_document_is_bounded() {
        let list = "[1],".repeat(MAX_DOCUMENT_BYTES / 4);
        assert_eq!(all(format!("{{\"a\": [{list}1]}}").as_bytes()), Err(InvalidDocument::DocumentSize));
        let maps = "{\"a\":1},".repeat(1_000_000);
        let text = format!("{{\"a\": [{maps}1]}}");
        assert_eq!((all(text.as_bytes()), json_value(&text)), (Err(InvalidDocument::DocumentMemory), None));
        assert!(all(format!("a: [{}1]", "{a: 1},".repeat(1_000_000)).as_bytes()).is_err());
        assert_eq!(json_value("{\"a\":1}"), Some(json!({"a": 1})));
    }

    #[test]
    fn invalid_and_hostile_streams_are_errors() {
        let deep_json = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
        let deep_yaml = "- ".repeat(200) + "1";
        let laughs = (0..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
            format!("{text}a{0}: &a{0} [{1}]\n", level + 1, vec![format!("*a{level}"); 9].join(", "))
        });
        for text in ["{\"a\": ", "a: [", "\u{0}", &deep_json, &deep_yaml, &laughs, &"[".repeat(100_000)] {
            assert!(all(text.as_bytes()).is_err(), "{}", &text[..text.len().min(40)]);
        }
        assert_eq!(all(b"\xff\xfe"), Err(InvalidDocument::Text));
    }
}
