//! The fields that a write changed: their paths and hashes of their values, and never the values.
//!
//! Two stored states of an object are compared as JSON text: the API server encodes both, so equal values have equal
//! text, and unchanged members are skipped without decoding.

use flyball_core::json::{MalformedJson, NamedMembers, RawJson};
use flyball_core::metadata::REVISION_FIELDS;
use foldhash::fast::FixedState;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Limit of fields that are kept for a write; further ones are counted.
pub(crate) const MAX_FIELDS: usize = 8;
/// Limit of the bytes of the text of a path.
const MAX_PATH_BYTES: usize = 256;
/// Depth below which values are compared as a whole.
const MAX_DEPTH: usize = 16;
/// Longer lists are compared as a whole.
const MAX_ELEMENTS: usize = 256;
/// Fields that name an element of a list.
const ELEMENT_NAMES: [&str; 4] = ["name", "type", "containerPort", "mountPath"];
/// Seed of the hashes of values. They are compared within a process, and never shown.
const SEED: u64 = 0x6c65_6467_6572;

/// The fields that a write changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedFields {
    pub(crate) known: Vec<ChangedField>,
    pub(crate) omitted: u32,
}

/// A field with hashes of its values, 0 for an absent field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangedField {
    /// Shared with the flap detector.
    pub(crate) path: Arc<[Segment]>,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    Field(Box<str>),
    /// The element of a list with this name or type.
    Element(&'static str, Box<str>),
}

impl ChangedFields {
    pub(super) fn heap_bytes(&self) -> usize {
        let text = |segment: &Segment| match segment {
            Segment::Field(name) | Segment::Element(_, name) => size_of::<Segment>() + name.len(),
        };
        let path = |field: &ChangedField| field.path.iter().map(text).sum::<usize>();
        self.known.capacity() * size_of::<ChangedField>() + self.known.iter().map(path).sum::<usize>()
    }
}

/// Formats a path as in error messages of the API server, such as `spec.containers[name=web].image`.
pub(crate) fn path_text(path: &[Segment]) -> String {
    let mut text = String::new();
    for segment in path {
        // Writing to a string cannot fail.
        let _ = match segment {
            Segment::Field(name) if text.is_empty() => write!(text, "{name}"),
            Segment::Field(name) if is_plain(name) => write!(text, ".{name}"),
            Segment::Field(name) => write!(text, "[{name}]"),
            Segment::Element(field, name) => write!(text, "[{field}={name}]"),
        };
    }
    text.truncate(text.floor_char_boundary(MAX_PATH_BYTES));
    text
}

fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl fmt::Display for ChangedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&path_text(&self.path))
    }
}

/// Compares the states of an object before and after a write to `subresource`. `is_partial` is true if the earlier
/// state may lack fields.
pub(crate) fn changed_fields(
    before: RawJson<'_>,
    after: RawJson<'_>,
    subresource: &str,
    is_partial: bool,
) -> ChangedFields {
    let mut comparison = Comparison { found: ChangedFields::default(), path: Vec::new(), is_partial };
    // An object that the API server sent is well-formed; otherwise the comparison ends here.
    let _ = comparison.top(before, after, subresource);
    comparison.found
}

/// Returns the hash of the value at a path, 0 if there is none.
pub(crate) fn value_at(object: RawJson<'_>, path: &[Segment]) -> u64 {
    let mut value = object;
    for segment in path {
        let found = match segment {
            Segment::Field(name) => value.find(name).ok().flatten(),
            Segment::Element(field, name) => element(value, field, name),
        };
        let Some(found) = found else { return 0 };
        value = found;
    }
    hash(value)
}

fn element<'a>(list: RawJson<'a>, field: &str, name: &str) -> Option<RawJson<'a>> {
    let elements = list.elements()?;
    elements
        .into_iter()
        .find(|element| element.find(field).ok().flatten().is_some_and(|value| *text_of(value) == *name))
}

fn text_of(value: RawJson<'_>) -> Cow<'_, str> {
    value.text().unwrap_or(Cow::Borrowed(value.0))
}

fn hash(value: RawJson<'_>) -> u64 {
    FixedState::with_seed(SEED).hash_one(value.0).max(1)
}

struct Comparison {
    found: ChangedFields,
    path: Vec<Segment>,
    is_partial: bool,
}

type Member<'a> = (Cow<'a, str>, RawJson<'a>);
type Members<'a> = Vec<Member<'a>>;

impl Comparison {
    fn top(&mut self, before: RawJson<'_>, after: RawJson<'_>, subresource: &str) -> Result<(), MalformedJson> {
        if subresource == "status" {
            return self.value(|| Segment::Field("status".into()), before.find("status")?, after.find("status")?);
        }
        self.members(before, after, |name| !matches!(name, "apiVersion" | "kind" | "status"))
    }

    fn members(
        &mut self,
        before: RawJson<'_>,
        after: RawJson<'_>,
        is_compared: impl Fn(&str) -> bool,
    ) -> Result<(), MalformedJson> {
        let (mut before, mut after) = (before.members()?, after.members()?);
        // Most objects have the same members in the same order. Only the rest is joined by name.
        let differing = loop {
            match (before.next()?, after.next()?) {
                (Some((name, old)), Some((other, new))) if name == other => {
                    if is_compared(&name) {
                        self.value(|| Segment::Field(name.into()), Some(old), Some(new))?;
                    }
                }
                (None, None) => return Ok(()),
                differing => break differing,
            }
        };
        for (name, [old, new]) in joined(rest(differing.0, before)?, rest(differing.1, after)?) {
            if is_compared(&name) {
                self.value(|| Segment::Field(name.into()), old, new)?;
            }
        }
        Ok(())
    }

    /// Compares the values below a segment, which is not created for equal ones: most are.
    fn value(
        &mut self,
        segment: impl FnOnce() -> Segment,
        before: Option<RawJson<'_>>,
        after: Option<RawJson<'_>>,
    ) -> Result<(), MalformedJson> {
        if before.map(|value| value.0) == after.map(|value| value.0) {
            return Ok(());
        }
        self.path.push(segment());
        self.changed(before, after)?;
        self.path.pop();
        Ok(())
    }

    fn changed(&mut self, before: Option<RawJson<'_>>, after: Option<RawJson<'_>>) -> Result<(), MalformedJson> {
        let (Some(old), Some(new)) = (before, after) else {
            // A field that the cache does not keep is not a new one.
            if !(self.is_partial && before.is_none()) {
                self.add(before, after);
            }
            return Ok(());
        };
        let is_metadata = matches!(&*self.path, [Segment::Field(name)] if **name == *"metadata");
        match (old.0.as_bytes().first(), new.0.as_bytes().first()) {
            (Some(b'{'), Some(b'{')) if self.path.len() < MAX_DEPTH => {
                self.members(old, new, |name| !is_metadata || !REVISION_FIELDS.contains(&name))
            }
            (Some(b'['), Some(b'[')) if self.path.len() < MAX_DEPTH => self.elements(old, new),
            _ => {
                self.add(before, after);
                Ok(())
            }
        }
    }

    /// Compares lists by the names of their elements if all have one; otherwise as a whole.
    fn elements(&mut self, before: RawJson<'_>, after: RawJson<'_>) -> Result<(), MalformedJson> {
        let named = ELEMENT_NAMES.iter().find_map(|field| Some((*field, named(before, field)?, named(after, field)?)));
        let Some((field, old, new)) = named else {
            self.add(Some(before), Some(after));
            return Ok(());
        };
        let mut differs = false;
        for (name, [old, new]) in joined(old, new) {
            differs |= old.map(|value| value.0) != new.map(|value| value.0);
            self.value(|| Segment::Element(field, name.into()), old, new)?;
        }
        // Only the order changed.
        if !differs {
            self.add(Some(before), Some(after));
        }
        Ok(())
    }

    fn add(&mut self, before: Option<RawJson<'_>>, after: Option<RawJson<'_>>) {
        if self.found.known.len() < MAX_FIELDS {
            let hash = |value: Option<RawJson<'_>>| value.map_or(0, hash);
            let path = self.path.as_slice().into();
            self.found.known.push(ChangedField { path, before: hash(before), after: hash(after) });
        } else {
            self.found.omitted = self.found.omitted.saturating_add(1);
        }
    }
}

/// Returns a member and those that follow it.
fn rest<'a>(first: Option<Member<'a>>, mut members: NamedMembers<'a>) -> Result<Members<'a>, MalformedJson> {
    let mut found: Members<'a> = first.into_iter().collect();
    while let Some(member) = members.next()? {
        found.push(member);
    }
    Ok(found)
}

/// Joins the members of two states by name.
fn joined<'a>(before: Members<'a>, after: Members<'a>) -> BTreeMap<Cow<'a, str>, [Option<RawJson<'a>>; 2]> {
    let mut pairs: BTreeMap<_, [_; 2]> = before.into_iter().map(|(name, value)| (name, [Some(value), None])).collect();
    for (name, value) in after {
        pairs.entry(name).or_default()[1] = Some(value);
    }
    pairs
}

/// Returns the elements of a list by their names; `None` if one has none, or two have the same.
fn named<'a>(list: RawJson<'a>, field: &str) -> Option<Members<'a>> {
    let elements = list.elements()?;
    if elements.is_empty() || elements.len() > MAX_ELEMENTS {
        return None;
    }
    let mut found: Members<'a> = Vec::with_capacity(elements.len());
    for element in elements {
        let name = text_of(element.find(field).ok()??);
        found.push((name, element));
    }
    let mut names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1]).then_some(found)
}
