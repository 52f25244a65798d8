//! Framing of responses: lines of a watch, items of a list.

use flyball_core::json::{self, MalformedJson, Members};
use kube::core::Status;
use std::borrow::Cow;

/// Size limit of an object: etcd's limit (1.5 MiB by default), with a margin.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Size limit of a member of a list other than its items: its metadata consists mainly of the continue token.
const MAX_MEMBER_BYTES: usize = 256 << 10;

/// The reason why a response cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("an object is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("a member of the list other than its items is longer than {MAX_MEMBER_BYTES} bytes")]
    LongMember,
    #[error("the list has no numeric metadata.resourceVersion")]
    NoRevision,
    #[error(transparent)]
    MalformedJson(#[from] MalformedJson),
}

/// Splits chunks of bytes into lines, with any chunk boundaries.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The start of an incomplete line.
    partial: Vec<u8>,
}

impl Lines {
    /// Adds a chunk and calls `line` for each completed line; a line within one chunk is not copied.
    pub(super) fn push(&mut self, chunk: &[u8], mut line: impl FnMut(&[u8])) -> Result<(), FrameError> {
        let mut rest = chunk;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (piece, after) = (&rest[..end], &rest[end + 1..]);
            if self.partial.is_empty() {
                line(piece);
            } else {
                self.partial.extend_from_slice(piece);
                line(&self.partial);
                self.partial.clear();
            }
            rest = after;
        }
        if self.partial.len() + rest.len() > MAX_LINE_BYTES {
            return Err(FrameError::TooLong);
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event<'a> {
    /// An object was added or modified.
    Put(&'a [u8]),
    /// An object was deleted.
    Deleted(&'a [u8]),
    /// All events up to this revision were sent; `initial` marks the end of the initial events.
    Bookmark { revision: u64, initial: bool },
    /// The server ended the watch.
    Error(Box<Status>),
}

/// Parses one line of a watch, [as sent by the API server
/// it](https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes).
pub(super) fn event(line: &[u8]) -> Result<Event<'_>, MalformedJson> {
    let (mut kind, mut object) = (None, None);
    let mut members = Members::new(line, 0)?;
    while let Some((key, start)) = members.begin()? {
        // The object is the last member of a WatchEvent; searching its end would take as long as parsing it.
        let last = || line[start..].trim_ascii_end().strip_suffix(b"}").map(<[u8]>::trim_ascii_end);
        if kind.is_some()
            && &line[key.clone()] == b"object"
            && let Some(last) = last().filter(|object| object.ends_with(b"}"))
        {
            object = Some(last);
            break;
        }
        let end = json::value_end(line, start)?;
        match &line[key] {
            b"type" => kind = json::text(&line[start..end]),
            b"object" => object = Some(&line[start..end]),
            _ => {}
        }
        members.resume(end);
    }
    let object = object.ok_or(MalformedJson(line.len()))?;
    match kind.as_deref() {
        Some("ADDED" | "MODIFIED") => Ok(Event::Put(object)),
        Some("DELETED") => Ok(Event::Deleted(object)),
        Some("BOOKMARK") => bookmark(object),
        Some("ERROR") => {
            serde_json::from_slice(object).map(|status| Event::Error(Box::new(status))).map_err(|_| MalformedJson(0))
        }
        _ => Err(MalformedJson(0)),
    }
}

fn bookmark(object: &[u8]) -> Result<Event<'_>, MalformedJson> {
    let metadata = Members::new(object, 0)?.find("metadata")?.ok_or(MalformedJson(object.len()))?;
    let (mut revision, mut initial) = (0, false);
    let mut members = Members::new(object, metadata)?;
    while let Some(member) = members.next()? {
        match &object[member.key] {
            b"resourceVersion" => revision = number(&object[member.value]),
            b"annotations" => {
                let end = Members::new(object, member.value.start)?.find("k8s.io/initial-events-end")?;
                initial = end.is_some_and(|value| object[value..].starts_with(b"\"true\""));
            }
            _ => {}
        }
    }
    Ok(Event::Bookmark { revision, initial })
}

/// The metadata of a list, or of a page of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListMeta {
    pub(super) revision: u64,
    /// The continue token of the next page, empty after the last one.
    pub(super) next: String,
}

/// An incremental parser of a list, which never stores the whole list.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Received bytes that are not parsed yet.
    buffer: Vec<u8>,
    place: Position,
    scan: Scan,
    meta: ListMeta,
    /// True if the list has a resource version.
    has_revision: bool,
}

/// The position of the parser in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Before the list itself.
    #[default]
    Start,
    /// Between the members of the list.
    Members,
    /// Between the items.
    Items,
    /// After the list.
    End,
}

impl List {
    /// Adds a chunk and calls `item` for each completed item.
    pub(super) fn push(&mut self, chunk: &[u8], mut item: impl FnMut(&[u8])) -> Result<(), FrameError> {
        self.buffer.extend_from_slice(chunk);
        let mut at = 0;
        while let Some(step) = self.step(at)? {
            if let Step::Item(from, to) = step {
                item(&self.buffer[from..to]);
            }
            at = step.end();
        }
        self.buffer.drain(..at);
        match self.place {
            Position::Items if self.buffer.len() > MAX_LINE_BYTES => Err(FrameError::TooLong),
            // An incomplete token is parsed from its start each time.
            Position::Start | Position::Members | Position::End if self.buffer.len() > MAX_MEMBER_BYTES => {
                Err(FrameError::LongMember)
            }
            _ => Ok(()),
        }
    }

    /// Returns the metadata of the list, once it is complete.
    pub(super) fn finish(self) -> Result<ListMeta, FrameError> {
        match self.place {
            Position::End if self.has_revision => Ok(self.meta),
            Position::End => Err(FrameError::NoRevision),
            Position::Start | Position::Members | Position::Items => Err(MalformedJson(self.buffer.len()).into()),
        }
    }

    /// Parses the next token at `at`; `None` if it is incomplete.
    fn step(&mut self, at: usize) -> Result<Option<Step>, MalformedJson> {
        let start = json::blank(&self.buffer, at);
        let Some(&byte) = self.buffer.get(start) else { return Ok(None) };
        match (self.place, byte) {
            (Position::Start, b'{') => self.place = Position::Members,
            (Position::Members, b',') | (Position::Items, b',') => {}
            (Position::Members, b'}') => self.place = Position::End,
            (Position::Members, b'"') => return self.member(start),
            (Position::Items, b']') => self.place = Position::Members,
            (Position::Items, b'{') => {
                let end = self.scan.end(&self.buffer, start);
                return Ok(end.map(|end| Step::Item(start, end)));
            }
            _ => return Err(MalformedJson(start)),
        }
        Ok(Some(Step::Skip(start + 1)))
    }

    fn member(&mut self, start: usize) -> Result<Option<Step>, MalformedJson> {
        let json = &self.buffer[..];
        let Ok(key_end) = json::string_end(json, start) else { return Ok(None) };
        let colon = json::blank(json, key_end);
        let value = json::blank(json, colon + 1);
        match (json.get(colon), json.get(value)) {
            (Some(b':'), Some(b'[')) if &json[start..key_end] == b"\"items\"" => {
                self.place = Position::Items;
                Ok(Some(Step::Skip(value + 1)))
            }
            (Some(b':'), Some(_)) => {
                let Ok(end) = json::value_end(json, value) else { return Ok(None) };
                // A literal at the end of the received bytes may be incomplete.
                if end == json.len() {
                    return Ok(None);
                }
                if &json[start..key_end] == b"\"metadata\"" && json[value] == b'{' {
                    (self.meta, self.has_revision) = list_meta(&json[value..end])?;
                }
                Ok(Some(Step::Skip(end)))
            }
            (None | Some(b':'), None) => Ok(None),
            _ => Err(MalformedJson(colon)),
        }
    }
}

/// A complete token of a list.
enum Step {
    /// The range of an item.
    Item(usize, usize),
    /// Skipped text, up to here.
    Skip(usize),
}

impl Step {
    fn end(&self) -> usize {
        match self {
            Self::Item(_, end) | Self::Skip(end) => *end,
        }
    }
}

/// An incremental search for the end of an item, which reads each byte once.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes of the item that were scanned.
    seen: usize,
    depth: usize,
    in_text: bool,
}

impl Scan {
    /// Returns the end of the item that starts at `start`; `None` if it is incomplete.
    fn end(&mut self, json: &[u8], start: usize) -> Option<usize> {
        let mut at = start + self.seen;
        while let Some(&byte) = json.get(at) {
            if self.in_text {
                let Some(found) = json::quote_or_backslash(json, at) else {
                    at = json.len();
                    break;
                };
                at = found;
                if json[at] == b'\\' {
                    if at + 1 == json.len() {
                        break;
                    }
                    at += 1;
                } else {
                    self.in_text = false;
                }
            } else {
                match byte {
                    b'"' => self.in_text = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' if self.depth == 1 => {
                        *self = Self::default();
                        return Some(at + 1);
                    }
                    b'}' | b']' => self.depth -= 1,
                    _ => {}
                }
            }
            at += 1;
        }
        self.seen = at - start;
        None
    }
}

/// Parses the metadata of a list, and returns true if there is a revision.
fn list_meta(metadata: &[u8]) -> Result<(ListMeta, bool), MalformedJson> {
    let (mut meta, mut has_revision) = (ListMeta::default(), false);
    let mut members = Members::new(metadata, 0)?;
    while let Some(member) = members.next()? {
        match &metadata[member.key] {
            b"resourceVersion" => {
                let revision = json::text(&metadata[member.value]).and_then(|text| text.parse::<u64>().ok());
                has_revision = revision.is_some();
                meta.revision = revision.unwrap_or_default();
            }
            b"continue" => meta.next = json::text(&metadata[member.value]).unwrap_or_default().into_owned(),
            _ => {}
        }
    }
    Ok((meta, has_revision))
}

/// Returns the kind of an object.
pub(super) fn kind(object: &[u8]) -> Option<Cow<'_, str>> {
    let start = Members::new(object, 0).ok()?.find("kind").ok()??;
    json::text(&object[start..json::value_end(object, start).ok()?])
}

/// Parses a resource version, which is [a number](https://kep.k8s.io/5504) in quotes.
fn number(value: &[u8]) -> u64 {
    json::text(value).and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn event_types_are_recognized() {
        let check = |line: &str, expected: Event<'_>| assert_eq!(event(line.as_bytes()).unwrap(), expected, "{line}");
        check(r#"{"type":"ADDED","object":{"a":1}}"#, Event::Put(br#"{"a":1}"#));
        check(r#"{"object":{"a":1},"type":"DELETED"}"#, Event::Deleted(br#"{"a":1}"#));
        check("{ \"type\" : \"ADDED\" , \"object\" : {\"a\":1} } \r", Event::Put(br#"{"a":1}"#));
        check(r#"{"type":"ADDED","object":{"a":1},"more":2}"#, Event::Put(br#"{"a":1}"#));
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}"#;
        check(bookmark, Event::Bookmark { revision: 12, initial: false });
        let end = bookmark.replace("}}}", r#","annotations":{"k8s.io/initial-events-end":"true"}}}}"#);
        check(&end, Event::Bookmark { revision: 12, initial: true });
        let error = event(br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#);
        assert!(matches!(error, Ok(Event::Error(status)) if status.code == 410));
        for bad in ["", "{}", r#"{"type":"ADDED"}"#, r#"{"type":"MOVED","object":{}}"#, r#"{"type":"ADDED","object":{"#]
        {
            assert!(event(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    /// Parses a list in chunks of this size.
    fn read(body: &[u8], chunk: usize) -> Result<(ListMeta, Vec<String>), FrameError> {
        let (mut list, mut items) = (List::default(), Vec::new());
        for chunk in body.chunks(chunk) {
            list.push(chunk, |item| items.push(String::from_utf8(item.to_vec()).unwrap()))?;
        }
        Ok((list.finish()?, items))
    }

    #[test]
    fn list_is_parsed_independent_of_chunk_size() {
        let items = [r#"{"a":"]}\"\\"}"#, r#"{"b":[{"c":"{"}]}"#];
        let text = items.join(" , ");
        let meta = r#""metadata":{"resourceVersion":"7","continue":"a\u003d"}"#;
        for body in [
            format!(r#"{{"kind":"PodList",{meta},"items":[{text}]}}"#),
            format!("{{ \"items\" : [ {text} ] ,\n \"n\":12, {meta} }}\n"),
        ] {
            for chunk in 1..body.len() + 1 {
                let (meta, found) = read(body.as_bytes(), chunk).unwrap();
                assert_eq!(meta, ListMeta { revision: 7, next: "a=".into() }, "{chunk}");
                assert_eq!(found, items, "{chunk}");
            }
            for cut in 0..body.trim_end().len() - 1 {
                assert!(read(&body.as_bytes()[..cut], 5).is_err(), "{}", &body[..cut]);
            }
        }
    }

    #[test]
    fn empty_list_has_no_items() {
        for items in ["null", "[]"] {
            let body = format!(r#"{{"items":{items},"metadata":{{"resourceVersion":"7"}}}}"#);
            assert_eq!(read(body.as_bytes(), 3).unwrap(), (ListMeta { revision: 7, next: String::new() }, vec![]));
        }
        assert!(read(b"<html>", 3).is_err());
        for metadata in ["{}", r#"{"resourceVersion":""}"#, r#"{"resourceVersion":"x"}"#] {
            let body = format!(r#"{{"metadata":{metadata},"items":[]}}"#);
            assert_eq!(read(body.as_bytes(), 3), Err(FrameError::NoRevision), "{metadata}");
        }
        assert_eq!(read(br#"{"items":[]}"#, 3), Err(FrameError::NoRevision));
        assert!(read(br#"{"items":[1]}"#, 3).is_err());
    }

    #[test]
    fn members_other_than_items_are_bounded() {
        let long = "a".repeat(2 * MAX_MEMBER_BYTES);
        let body = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{{"a":"{long}"}}]}}"#);
        assert_eq!(read(body.as_bytes(), 8 << 10).map(|(_, items)| items.len()), Ok(1));
        let body = format!(r#"{{"metadata":{{"resourceVersion":"7","continue":"{long}"}},"items":[]}}"#);
        assert!(matches!(read(body.as_bytes(), 8 << 10), Err(FrameError::LongMember)));
    }

    proptest! {
        #[test]
        fn lines_are_independent_of_chunk_boundaries(
            lines in prop::collection::vec("[a-z]{0,5}", 0..6),
            cuts in prop::collection::vec(0usize..40, 0..6),
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let (mut reader, mut found) = (Lines::default(), Vec::new());
            for pair in cuts.windows(2) {
                let chunk = &text.as_bytes()[pair[0]..pair[1]];
                reader.push(chunk, |line| found.push(String::from_utf8(line.to_vec()).unwrap())).unwrap();
            }
            prop_assert_eq!(found, lines);
        }
    }
}
