//! A cached object: its JSON, and the positions of metadata for indexes and predicates.

use super::fields::{Fields, KeptFields};
use crate::kind::{self, AnyResource, Kind};
use flyball_core::ObjectKey;
use flyball_core::json::{self, Elements, MalformedJson, Members, RawJson};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Range;

/// The annotation that pauses an object, if it is `true`.
pub(super) const PAUSED: &str = "flyball.dev/paused";

/// An object as sent by the API server, without its managed fields.
///
/// The JSON is kept and decoded on use: a tree of maps and strings would take several times the memory, and most
/// objects in a cache are never read. Of `metadata.managedFields`, often a third of an object, only the fields that
/// the operator applied are kept, separately: [`crate::apply`] compares with them.
#[derive(Debug)]
pub(crate) struct Entry {
    json: Box<str>,
    applied: Option<Box<str>>,
    uid: Span,
    labels: Span,
    annotations: Span,
    owner_references: Span,
    finalizers: Span,
    /// 0 if it is not a number, which [KEP-5504](https://kep.k8s.io/5504) rules out.
    resource_version: u64,
    generation: i64,
    deleting: bool,
    withheld: bool,
}

/// A range of an entry's JSON; empty if there is no such member.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// The reason why JSON is not an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    MalformedJson(#[from] MalformedJson),
    #[error("the object has no metadata.{0}")]
    Missing(&'static str),
    #[error("the object is larger than 4 GiB")]
    TooLarge,
    #[error("the object is not UTF-8")]
    NotText,
}

impl Entry {
    /// Parses an object, and keeps only the managed fields that `manager` applied.
    pub(crate) fn parse(object: &[u8], manager: &str) -> Result<(ObjectKey, Self), Error> {
        u32::try_from(object.len()).map_err(|_| Error::TooLarge)?;
        let metadata = Members::new(object, 0)?.find("metadata")?.ok_or(Error::Missing("name"))?;
        let (mut name, mut namespace, mut resource_version) = (None, None, 0);
        let (mut generation, mut deleting, mut applied, mut cut) = (0, false, Vec::new(), 0..0);
        let [mut uid, mut labels, mut annotations, mut owner_references, mut finalizers] = [const { 0..0 }; 5];
        let (mut members, mut previous) = (Members::new(object, metadata)?, None);
        while let Some((key, start)) = members.begin()? {
            let end = match &object[key.clone()] {
                // Parsed while searching for their end, since they may be most of the object.
                b"managedFields" => {
                    let end;
                    (end, applied) = applied_by(object, start, manager)?;
                    cut = member(object, previous, key.start - 1, end);
                    end
                }
                _ => json::value_end(object, start)?,
            };
            members.resume(end);
            let (place, value) = (start..end, &object[start..end]);
            match &object[key] {
                b"name" => name = json::text(value),
                b"namespace" => namespace = json::text(value).filter(|text| !text.is_empty()),
                b"resourceVersion" => {
                    resource_version = json::text(value).and_then(|text| text.parse().ok()).unwrap_or_default();
                }
                b"generation" => generation = json::integer(value).unwrap_or_default(),
                b"deletionTimestamp" => deleting = value != b"null",
                b"uid" => uid = place,
                b"labels" => labels = place,
                b"annotations" => annotations = place,
                b"ownerReferences" => owner_references = place,
                b"finalizers" => finalizers = place,
                _ => {}
            }
            previous = Some(end);
        }
        let key = ObjectKey::new(namespace.as_deref(), &name.ok_or(Error::Missing("name"))?);
        let span = |piece: Range<usize>| {
            let by = if piece.start < cut.end { 0 } else { cut.len() };
            Span { start: (piece.start - by) as u32, end: (piece.end - by) as u32 }
        };
        let text = |text| Ok::<_, Error>(String::from_utf8(text).map_err(|_| Error::NotText)?.into_boxed_str());
        let json = [&object[..cut.start], &object[cut.end..]].concat();
        let entry = Self {
            json: text(json)?,
            applied: (!applied.is_empty()).then(|| text(applied)).transpose()?,
            uid: span(uid),
            labels: span(labels),
            annotations: span(annotations),
            owner_references: span(owner_references),
            finalizers: span(finalizers),
            resource_version,
            generation,
            deleting,
            withheld: false,
        };
        Ok((key, entry))
    }

    /// Parses the selected part of an object.
    pub(crate) fn read(object: &[u8], manager: &str, kept: &KeptFields) -> Result<(ObjectKey, Self), Error> {
        match kept {
            KeptFields::Whole => Self::parse(object, manager),
            KeptFields::Some(fields) => Self::parse(&fields.cut(object)?, manager),
            KeptFields::Metadata => Self::parse(&Fields::metadata().cut(object)?, manager),
            KeptFields::Own => {
                let (key, entry) = Self::parse(object, manager)?;
                if entry.applied.is_some() {
                    return Ok((key, entry));
                }
                let rest = Fields::all_but(["data", "stringData"]).cut(entry.json.as_bytes())?.into_owned();
                let (key, entry) = Self::parse(&rest, manager)?;
                Ok((key, Self { withheld: true, ..entry }))
            }
        }
    }

    /// Returns the identity and version of this state, without other data.
    pub(crate) fn identity(&self) -> Self {
        let json: Box<str> = self.piece(self.uid).into();
        Self {
            uid: Span { start: 0, end: json.len() as u32 },
            json,
            applied: None,
            labels: Span::default(),
            annotations: Span::default(),
            owner_references: Span::default(),
            finalizers: Span::default(),
            ..*self
        }
    }

    /// Decodes the object, which is of this kind.
    pub(crate) fn object<T: AnyResource>(&self, kind: &Kind) -> serde_json::Result<T> {
        kind::decode(&self.json, kind)
    }

    /// Decodes the fields that are kept.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        json::check_keys(self.json.as_bytes())?;
        serde_json::from_str(&self.json)
    }

    /// Decodes the fields that are kept, restricted to those in `shape`.
    pub(crate) fn decode_like(&self, shape: &Value) -> serde_json::Result<Value> {
        json::check_keys(self.json.as_bytes())?;
        json::decode_like(&self.json, shape)
    }

    /// Returns true if the object has more data than the entry; readers get it from the API server.
    pub(crate) fn is_withheld(&self) -> bool {
        self.withheld
    }

    /// Returns the UID, empty if there is none.
    pub(crate) fn uid(&self) -> Cow<'_, str> {
        json::text(self.piece(self.uid).as_bytes()).unwrap_or_default()
    }

    /// Returns the resource version, 0 if there is none.
    pub(crate) fn resource_version(&self) -> u64 {
        self.resource_version
    }

    /// Returns the generation; 0 if there is none.
    pub(crate) fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns true if the object is being deleted, and still waits for finalizers or a grace period.
    pub(crate) fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Returns the labels as JSON; empty if there are none. Equal JSON means equal labels, because keys are sorted.
    pub(crate) fn labels(&self) -> &str {
        self.piece(self.labels)
    }

    /// Returns the annotations as JSON; empty if there are none.
    pub(crate) fn annotations(&self) -> &str {
        self.piece(self.annotations)
    }

    /// Returns true if the object is paused.
    pub(crate) fn is_paused(&self) -> bool {
        let annotations = self.annotations();
        let value =
            || serde_json::from_str::<serde_json::Value>(annotations).ok()?.get(PAUSED).map(|value| value == "true");
        annotations.contains(PAUSED) && value() == Some(true)
    }

    /// Returns the references to owners as JSON; empty if there are none.
    pub(crate) fn owners(&self) -> &str {
        self.piece(self.owner_references)
    }

    /// Returns the references to owners.
    pub(crate) fn owner_references(&self) -> Vec<OwnerReference<'_>> {
        self.list(self.owner_references)
    }

    /// Returns the controller reference, if there is one.
    pub(crate) fn controller(&self) -> Option<OwnerReference<'_>> {
        self.owner_references().into_iter().find(|owner| owner.controller)
    }

    /// Returns the finalizers.
    pub(crate) fn finalizers(&self) -> Vec<String> {
        self.list(self.finalizers)
    }

    /// Returns the text of an annotation.
    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        let annotations = self.annotations();
        if annotations.is_empty() { None } else { RawJson(annotations).find(name).ok()??.text().map(Cow::into_owned) }
    }

    /// Returns the text of the object.
    pub(crate) fn text(&self) -> &str {
        &self.json
    }

    /// Returns the object as JSON text.
    pub(crate) fn raw(&self) -> RawJson<'_> {
        RawJson(&self.json)
    }

    /// Returns the managed fields that a field manager of the operator applied, to `subresource` or with `""` to the
    /// object itself.
    pub(crate) fn applied_fields(&self, subresource: &str, manager: &str) -> Option<RawJson<'_>> {
        fn text<'a>(entry: RawJson<'a>, field: &str) -> Option<Cow<'a, str>> {
            Some(entry.find(field).ok()?.and_then(RawJson::text).unwrap_or_default())
        }
        let is_of =
            |entry: RawJson<'_>| Some(text(entry, "subresource")? == subresource && text(entry, "manager")? == manager);
        let mut entries = RawJson(self.applied.as_deref()?).elements()?.into_iter();
        entries.find(|entry| is_of(*entry) == Some(true))?.find("fieldsV1").ok()?
    }

    /// Returns the fields that the operator's field managers applied, as in the metadata.
    pub(crate) fn applied_entries(&self) -> Vec<serde_json::Value> {
        self.applied.as_deref().and_then(|applied| serde_json::from_str(applied).ok()).unwrap_or_default()
    }

    fn list<'a, T: Deserialize<'a>>(&'a self, span: Span) -> Vec<T> {
        let json = self.piece(span);
        // If this list cannot be decoded, neither can the object, and the error is reported there.
        if json.is_empty() { Vec::new() } else { serde_json::from_str(json).unwrap_or_default() }
    }

    fn piece(&self, span: Span) -> &str {
        &self.json[span.start as usize..span.end as usize]
    }
}

/// An owner reference.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwnerReference<'a> {
    #[serde(borrow)]
    pub(crate) api_version: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) uid: Cow<'a, str>,
    #[serde(default)]
    pub(crate) controller: bool,
}

/// Returns the range to remove a member that starts at `start` and ends at `end`; the previous member ends at
/// `previous`.
fn member(object: &[u8], previous: Option<usize>, start: usize, end: usize) -> Range<usize> {
    // One comma is removed with it: the one before it, or, for the first member, the one after it. There is one,
    // because the metadata also contains a name.
    let behind = || object[end..].iter().position(|b| *b == b',').map_or(0, |n| n + 1);
    previous.map_or_else(|| start..end + behind(), |previous| previous..end)
}

/// Returns true if a field manager is `manager`, or that of one of its controllers: `manager/controller`.
fn is_ours(found: &str, manager: &str) -> bool {
    found.strip_prefix(manager).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the end of the managed fields that start at `at`, and the list of those that `manager` applied.
fn applied_by(object: &[u8], at: usize, manager: &str) -> Result<(usize, Vec<u8>), MalformedJson> {
    if object.get(at) != Some(&b'[') {
        return Ok((json::value_end(object, at)?, Vec::new()));
    }
    let (mut entries, mut applied) = (Elements::new(object, at)?, Vec::new());
    while let Some(start) = entries.begin()? {
        let (is_ours, end) = is_applied_by(object, start, manager)?;
        if is_ours {
            applied.reserve_exact(end - start + 2);
            applied.push(if applied.is_empty() { b'[' } else { b',' });
            applied.extend_from_slice(&object[start..end]);
        }
        entries.resume(end);
    }
    if !applied.is_empty() {
        applied.push(b']');
    }
    Ok((entries.end(), applied))
}

/// Returns true if the entry of managed fields that starts at `at` was applied by `manager`, and its end.
fn is_applied_by(object: &[u8], at: usize, manager: &str) -> Result<(bool, usize), MalformedJson> {
    let (mut members, mut ours, mut applied) = (Members::new(object, at)?, None, None);
    // Both precede the fields themselves, which may be many.
    while ours.is_none() || applied.is_none() {
        let Some(member) = members.next()? else { break };
        match &object[member.key] {
            b"manager" => ours = Some(json::text(&object[member.value]).is_some_and(|text| is_ours(&text, manager))),
            b"operation" => applied = Some(&object[member.value] == b"\"Apply\""),
            _ => {}
        }
    }
    Ok((ours == Some(true) && applied == Some(true), members.end()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entry(metadata: &str) -> (ObjectKey, Entry) {
        let object = format!(r#"{{"kind":"Widget","metadata":{{{metadata}}},"spec":{{"managedFields":[1]}}}}"#);
        Entry::parse(object.as_bytes(), "me").unwrap()
    }

    #[test]
    fn header_matches_metadata() {
        let (key, entry) = entry(
            r#""name":"a","namespace":"ns","uid":"u-1","resourceVersion":"17","generation":3,"labels":{"l":"1"},
            "finalizers":["f"],"deletionTimestamp":"2026-01-01T00:00:00Z",
            "ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"u-0","controller":true}]"#,
        );
        assert_eq!(key, ObjectKey::new(Some("ns"), "a"));
        assert_eq!((&*entry.uid(), entry.resource_version(), entry.generation()), ("u-1", 17, 3));
        assert_eq!(entry.labels(), r#"{"l":"1"}"#);
        assert_eq!(entry.finalizers(), ["f"]);
        assert!(entry.is_deleting());
        assert_eq!(entry.controller().unwrap().uid, "u-0");
    }

    #[test]
    fn foreign_managed_fields_are_dropped_at_any_position() {
        let theirs = r#""managedFields":[{"manager":"x","operation":"Apply","fieldsV1":{"f:a":{}}},{"manager":"me","operation":"Update"}]"#;
        for metadata in [
            format!(r#"{theirs},"name":"a","uid":"u""#),
            format!(r#""name":"a",{theirs},"uid":"u""#),
            format!("\"name\":\"a\",\"uid\":\"u\" , {theirs}"),
        ] {
            let (_, entry) = entry(&metadata);
            let expected =
                json!({"kind": "Widget", "metadata": {"name": "a", "uid": "u"}, "spec": {"managedFields": [1]}});
            assert_eq!(entry.decode::<Value>().unwrap(), expected, "{metadata}");
            assert_eq!((entry.uid().as_ref(), entry.applied_fields("", "me").is_some()), ("u", false), "{metadata}");
        }
    }

    #[test]
    fn own_managed_fields_are_kept() {
        let (_, entry) = entry(
            r#""managedFields":[{"manager":"me","operation":"Apply","fieldsV1":{"f:spec":{}}},{"manager":"x","operation":"Update","fieldsV1":{}},{"manager":"me","operation":"Apply","subresource":"status","fieldsV1":{"f:status":{}}}],"name":"a","uid":"u""#,
        );
        let applied = |subresource| entry.applied_fields(subresource, "me").map(|fields| fields.0);
        assert_eq!(applied(""), Some(r#"{"f:spec":{}}"#));
        assert_eq!(applied("status"), Some(r#"{"f:status":{}}"#));
        assert_eq!(applied("scale"), None);
        assert!(entry.applied_fields("status", "me/other").is_none());
        assert_eq!(entry.uid(), "u");
        assert_eq!(entry.decode::<Value>().unwrap()["metadata"], json!({"name": "a", "uid": "u"}));
    }

    #[test]
    fn fields_that_are_not_kept_are_removed_from_the_text() {
        let managed = r#""managedFields":[{"manager":"x","operation":"Update","fieldsV1":{}}]"#;
        let metadata = r#""name":"a","uid":"u","labels":{"l":"1"}"#;
        let object =
            format!(r#"{{"kind":"Pod","metadata":{{{managed},{metadata}}},"spec":{{"a":[1,{{"b":2}}]}},"x":1}}"#);
        let check = |kept: &KeptFields, expected: &str| {
            let (key, entry) = Entry::read(object.as_bytes(), "me", kept).unwrap();
            let expected = expected.replace("META", metadata);
            assert_eq!((&*entry.json, entry.labels(), key.name()), (&*expected, r#"{"l":"1"}"#, "a"));
        };
        // Independent of the size of the object.
        check(&KeptFields::Metadata, r#"{"kind":"Pod","metadata":{META}}"#);
        let mut fields = Fields::All;
        fields.drop(&["spec".into(), "a".into(), "b".into()]);
        check(&KeptFields::Some(fields), r#"{"kind":"Pod","metadata":{META},"spec":{"a":[1,{}]},"x":1}"#);
        check(&KeptFields::Whole, r#"{"kind":"Pod","metadata":{META},"spec":{"a":[1,{"b":2}]},"x":1}"#);
    }

    #[test]
    fn data_of_foreign_secrets_is_withheld() {
        let read = |metadata: &str| {
            let object = format!(r#"{{"data":{{"key":"dmFsdWU="}},"metadata":{{{metadata}}},"type":"t"}}"#);
            Entry::read(object.as_bytes(), "me", &KeptFields::Own).unwrap().1
        };
        let theirs = read(r#""name":"a","uid":"u","managedFields":[{"manager":"x","operation":"Apply"}]"#);
        let expected = json!({"metadata": {"name": "a", "uid": "u"}, "type": "t"});
        assert_eq!((theirs.decode::<Value>().unwrap(), theirs.is_withheld(), &*theirs.uid()), (expected, true, "u"));
        let ours = read(r#""name":"a","managedFields":[{"manager":"me","operation":"Apply"}]"#);
        assert!(!ours.is_withheld() && ours.decode::<Value>().unwrap()["data"]["key"] == "dmFsdWU=");
    }

    #[test]
    fn invalid_objects_are_rejected() {
        for (bad, error) in [
            ("[]", Error::MalformedJson(MalformedJson(0))),
            ("{}", Error::Missing("name")),
            (r#"{"metadata":{}}"#, Error::Missing("name")),
            (r#"{"metadata":1}"#, Error::MalformedJson(MalformedJson(12))),
        ] {
            assert_eq!(Entry::parse(bad.as_bytes(), "me").unwrap_err(), error, "{bad}");
        }
        assert_eq!(
            Entry::parse(b"{\"metadata\":{\"name\":\"a\"},\"data\":\"\xff\"}", "me").unwrap_err(),
            Error::NotText
        );
    }
}
