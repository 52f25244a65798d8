//! The fields of an object that a cache keeps.
//!
//! The JSON of an object is copied field by field without the dropped fields, and without building a tree.

use flyball_core::json::{self, Elements, MalformedJson, Members};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The fields of an object that are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum KeptFields {
    #[default]
    Whole,
    Some(Fields),
    /// Only metadata; the rest is not transferred.
    Metadata,
    /// All fields of objects that the operator applied; all but confidential data of others.
    Own,
}

/// The members of a value that are kept; of an array, those of each element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fields {
    All,
    None,
    /// The given selection for these members, and another one for all other members.
    Some(BTreeMap<Box<str>, Fields>, Box<Fields>),
}

impl Fields {
    /// Keeps only these members.
    pub(crate) fn only<'a>(members: impl IntoIterator<Item = &'a str>) -> Self {
        let members = members.into_iter().map(|name| (name.into(), Self::All)).collect();
        Self::Some(members, Box::new(Self::None))
    }

    /// Keeps all but these members.
    pub(crate) fn all_but<'a>(members: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Some(members.into_iter().map(|name| (name.into(), Self::None)).collect(), Box::new(Self::All))
    }

    /// Keeps metadata, `apiVersion` and `kind`.
    pub(crate) fn metadata() -> Self {
        Self::only(["apiVersion", "kind", "metadata"])
    }

    /// Removes the value at a path from the selection.
    pub(crate) fn drop(&mut self, path: &[Box<str>]) {
        let Some((first, rest)) = path.split_first() else {
            *self = Self::None;
            return;
        };
        if *self == Self::All {
            *self = Self::Some(BTreeMap::new(), Box::new(Self::All));
        }
        if let Self::Some(members, others) = self {
            members.entry(first.clone()).or_insert_with(|| (**others).clone()).drop(rest);
        }
    }

    /// Returns the selection of a member.
    pub(crate) fn of(&self, member: &str) -> &Self {
        match self {
            Self::All | Self::None => self,
            Self::Some(members, others) => members.get(member).unwrap_or(others),
        }
    }

    /// Keeps all of a member.
    pub(crate) fn keep(&mut self, member: &str) {
        if let Self::Some(members, _) = self {
            members.insert(member.into(), Self::All);
        }
    }

    /// Returns the JSON of an object without dropped fields.
    pub(crate) fn cut<'a>(&self, object: &'a [u8]) -> Result<Cow<'a, [u8]>, MalformedJson> {
        if *self == Self::All {
            return Ok(Cow::Borrowed(object));
        }
        let mut out = Vec::new();
        self.copy(object, json::blank(object, 0), &mut out)?;
        Ok(Cow::Owned(out))
    }

    /// Copies the selected part of the value that starts at `at`.
    fn copy(&self, json: &[u8], at: usize, out: &mut Vec<u8>) -> Result<(), MalformedJson> {
        match (self, json.get(at)) {
            (Self::Some(..), Some(b'{')) => {
                let mut members = Members::new(json, at)?;
                out.push(b'{');
                let start = out.len();
                while let Some(member) = members.next()? {
                    // A name with escapes never matches a requested one.
                    let fields = std::str::from_utf8(&json[member.key.clone()]).map_or(self, |name| self.of(name));
                    if *fields != Self::None {
                        if out.len() > start {
                            out.push(b',');
                        }
                        out.extend_from_slice(&json[member.key.start - 1..member.key.end + 1]);
                        out.push(b':');
                        fields.copy(json, member.value.start, out)?;
                    }
                }
                out.push(b'}');
            }
            (Self::Some(..), Some(b'[')) => {
                let mut elements = Elements::new(json, at)?;
                out.push(b'[');
                let start = out.len();
                while let Some(element) = elements.next()? {
                    if out.len() > start {
                        out.push(b',');
                    }
                    // Nested arrays are kept completely, since their depth is controlled by the sender.
                    match json[element.start] {
                        b'[' => out.extend_from_slice(&json[element]),
                        _ => self.copy(json, element.start, out)?,
                    }
                }
                out.push(b']');
            }
            _ => out.extend_from_slice(&json[at..json::value_end(json, at)?]),
        }
        Ok(())
    }
}

/// Parses a path such as `status.images` or `metadata.annotations['example.com/notes']`.
pub(crate) fn path(text: &str) -> Result<Vec<Box<str>>, String> {
    let wrong = || format!("{text:?} is not a path such as status.images or metadata.annotations['example.com/notes']");
    let (mut path, mut rest) = (Vec::new(), text);
    loop {
        let name = match rest.strip_prefix("['") {
            Some(quoted) => {
                let (name, after) = quoted.split_once("']").ok_or_else(wrong)?;
                rest = after;
                name
            }
            None => {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                rest = after;
                name
            }
        };
        if name.is_empty() {
            return Err(wrong());
        }
        path.push(name.into());
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Ok(path),
            None if rest.starts_with("['") => {}
            None => return Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const OBJECT: &str = r#" {"kind":"K","metadata":{"name":"a","annotations":{"a.b/c":"1","d":"2"}},
        "spec" : {"list":[{"x":1,"y":[2]},{"y":3},[{"x":4}],5],"map":{"k":{"x":1,"y":2}}},"status":{}} "#;

    fn cut(fields: &Fields, object: &str) -> Value {
        serde_json::from_slice(&fields.cut(object.as_bytes()).unwrap()).unwrap()
    }

    fn without(paths: &[&str]) -> Fields {
        let mut fields = Fields::All;
        paths.iter().for_each(|text| fields.drop(&path(text).unwrap()));
        fields
    }

    #[test]
    fn paths_match_items_of_lists() {
        let kept =
            cut(&without(&["spec.list.x", "spec.map", "metadata.annotations['a.b/c']", "nothing.at.all"]), OBJECT);
        let spec = json!({"list": [{"y": [2]}, {"y": 3}, [{"x": 4}], 5]});
        let metadata = json!({"name": "a", "annotations": {"d": "2"}});
        assert_eq!(kept, json!({"kind": "K", "metadata": metadata, "spec": spec, "status": {}}));
    }

    #[test]
    fn metadata_selection_keeps_kind_and_metadata() {
        assert_eq!(
            cut(&Fields::metadata(), OBJECT).as_object().unwrap().keys().collect::<Vec<_>>(),
            ["kind", "metadata"]
        );
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for bad in ["", ".", "a.", ".a", "a..b", "a[b]", "a['b'", "a['']", "a['b']c"] {
            assert!(path(bad).is_err(), "{bad}");
        }
        assert_eq!(path("a['b.c'].d['e']").unwrap(), ["a", "b.c", "d", "e"].map(Box::from));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\a1 ".to_vec()), 0..40)) {
            let _ = without(&["a.a", "1"]).cut(&bytes);
        }
    }
}
