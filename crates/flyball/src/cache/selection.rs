//! Label and field selectors of a cache.

use flyball_core::{FieldSelector, LabelSelector, ObjectKey};
use serde_json::Value;
use std::fmt::Write;

/// The watched objects of a kind: all, unless selectors restrict them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// The selectors as declared.
    text: (String, String),
}

impl Selection {
    /// Parses selectors, both of which may be empty.
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, String> {
        let wrong = |error: flyball_core::selector::Error| error.to_string();
        Ok(Self {
            labels: LabelSelector::parse(labels).map_err(wrong)?,
            fields: FieldSelector::parse(fields).map_err(wrong)?,
            text: (labels.to_owned(), fields.to_owned()),
        })
    }

    /// Selects the object with this name, so that a role can allow only this object.
    pub(crate) fn named(name: &str) -> Self {
        let mut selection = Self::default();
        selection.require_name(name);
        selection
    }

    /// Restricts this selection to the object with this name.
    pub(crate) fn and_named(&self, name: &str) -> Self {
        let mut selection = self.clone();
        selection.require_name(name);
        selection
    }

    fn require_name(&mut self, name: &str) {
        self.fields.require("metadata.name", name);
        let comma = if self.text.1.is_empty() { "" } else { "," };
        write!(self.text.1, "{comma}metadata.name={name}").expect("writing to a string cannot fail");
    }

    /// Returns true if all objects are selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the additional query parameters of a request, each after a `&`.
    pub(crate) fn query(&self) -> String {
        let parameter = |name: &str, text: &str| match text {
            "" => String::new(),
            text => format!("&{name}={}", percent_encoded(text)),
        };
        parameter("labelSelector", &self.text.0) + &parameter("fieldSelector", &self.text.1)
    }

    /// Returns true if an object with this name may be selected. Other criteria are unknown.
    pub(crate) fn may_select(&self, key: &ObjectKey) -> bool {
        let known = |field: &str| match field {
            "metadata.name" => Some(key.name()),
            "metadata.namespace" => Some(key.namespace().unwrap_or_default()),
            _ => None,
        };
        let holds = |value: &str, expected: &str, negated: bool| (value == expected) != negated;
        self.fields.terms.iter().all(|term| known(&term.field).is_none_or(|v| holds(v, &term.value, term.negated)))
    }

    /// Returns true if an object with this JSON would be selected if it were stored.
    pub(crate) fn may_select_object(&self, key: &ObjectKey, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.may_select(key) && self.labels.matches(|label| labels.get(label).and_then(Value::as_str))
    }

    /// Returns the selectors as text.
    pub(crate) fn describe(&self) -> String {
        let parts = [&self.text.0, &self.text.1];
        parts.into_iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join(",")
    }
}

/// Encodes a string for a query.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_query_parameters() {
        let check = |labels: &str, fields: &str, expected: &str| {
            assert_eq!(Selection::parse(labels, fields).unwrap().query(), expected);
        };
        check("", "", "");
        check("app=web", "", "&labelSelector=app%3Dweb");
        check("a in (b,c)", "spec.x!=1", "&labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=spec.x%21%3D1");
        assert_eq!(Selection::named("a").query(), "&fieldSelector=metadata.name%3Da");
        let both = Selection::parse("", "spec.x=1").unwrap().and_named("a");
        assert_eq!(both.query(), "&fieldSelector=spec.x%3D1%2Cmetadata.name%3Da");
        assert!(Selection::parse("a in b", "").is_err() && Selection::parse("", "a").is_err());
    }

    #[test]
    fn objects_outside_the_selection_are_detected_by_name_and_labels() {
        let selection = Selection::parse("app=web", "metadata.namespace!=kube-system,spec.x=1").unwrap();
        let (key, system) = (ObjectKey::new(Some("ns"), "a"), ObjectKey::new(Some("kube-system"), "a"));
        assert!(selection.may_select(&key) && !selection.may_select(&system));
        assert!(selection.may_select_object(&key, &json!({"metadata": {"labels": {"app": "web"}}})));
        assert!(!selection.may_select_object(&key, &json!({"metadata": {"labels": {"app": "db"}}})));
        assert!(!selection.may_select_object(&key, &json!({"metadata": {}})));
        assert!(!Selection::named("b").may_select(&key));
    }
}
