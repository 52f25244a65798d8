//! The history of a run: each write to the store, with its actor.

use crate::site::{kind_name, object_name};
use bytes::Bytes;
use flyball_core::{GroupResource, ObjectKey};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

/// The source of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The scenario.
    User,
    /// A process of the operator, by number.
    Operator(u8),
    /// An injected fault, as of another user or another controller.
    Fault,
    /// A controller of the control plane.
    ControlPlane,
}

/// A write to the store.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Time since the start of the run.
    pub at: Duration,
    /// Number of the step of the scenario, from 1 on.
    pub step: usize,
    /// The source.
    pub actor: Actor,
    /// Revision of the write.
    pub revision: u64,
    /// The resource.
    pub resource: GroupResource,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The previous state as JSON, if the object existed.
    pub before: Option<Bytes>,
    /// The new state as JSON; the last one if the object was removed.
    pub after: Bytes,
    /// True if the object was removed.
    pub is_removal: bool,
    /// Name of the user of the request, if it is known.
    pub user: Option<Box<str>>,
    /// The metadata of both states, parsed at the first use.
    pub(crate) parsed: ParsedMeta,
}

/// The metadata of the states before and after a write, parsed at the first use.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParsedMeta {
    before: OnceLock<Meta>,
    after: OnceLock<Meta>,
}

impl Change {
    /// Returns true if the write created the object.
    pub(crate) fn is_creation(&self) -> bool {
        self.before.is_none() && !self.is_removal
    }

    /// Returns true if the write started a deletion, or was one without a graceful period or finalizers.
    pub(crate) fn begins_deletion(&self) -> bool {
        let was_deleting = self.meta_before().is_some_and(Meta::is_deleting);
        !was_deleting && (self.is_removal || self.meta().is_deleting())
    }

    /// Returns the metadata of the new state.
    pub(crate) fn meta(&self) -> &Meta {
        self.parsed.after.get_or_init(|| Meta::of(&self.after))
    }

    /// Returns the metadata of the previous state, if the object existed.
    pub(crate) fn meta_before(&self) -> Option<&Meta> {
        let before = self.before.as_ref()?;
        Some(self.parsed.before.get_or_init(|| Meta::of(before)))
    }

    /// Returns the name of the object as it is in all runs: generated names are `*` after the prefix.
    pub(crate) fn stable_name(&self) -> String {
        stable_name(&self.resource, &self.key, self.meta())
    }
}

/// Resources that depend on time and not on the operator. They are no part of the state of a run.
pub(crate) const TRANSIENT: [&str; 5] = ["endpoints", "endpointslices", "events", "leases", "nodes"];

/// Returns true if writes of a resource count.
pub(crate) fn counts(resource: &GroupResource) -> bool {
    !TRANSIENT.contains(&&*resource.resource)
}

/// Returns the name of an object as it is in all runs.
pub(crate) fn stable_name(resource: &GroupResource, key: &ObjectKey, meta: &Meta) -> String {
    let kind = kind_name(&resource.group, &resource.resource);
    let generated = meta.generate_name.as_ref().filter(|prefix| is_generated(key.name(), prefix));
    let name = generated.map_or_else(|| key.name().to_owned(), |prefix| format!("{prefix}*"));
    object_name(&kind, key.namespace(), &name)
}

/// Returns true if the API server generated a name. The pods of a stateful set have a prefix as well, and a number.
pub(crate) fn is_generated(name: &str, prefix: &str) -> bool {
    let suffix = name.strip_prefix(prefix).unwrap_or_default();
    !suffix.is_empty() && suffix.bytes().any(|byte| !byte.is_ascii_digit())
}

/// The metadata of an object that oracles use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) generate_name: Option<String>,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) deletion_timestamp: Option<String>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) owner_references: Vec<Owner>,
    pub(crate) labels: BTreeMap<String, Value>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Owner {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WithMeta {
    metadata: Meta,
}

impl Meta {
    /// Parses the metadata of an object in JSON; empty if it has none.
    pub(crate) fn of(object: &[u8]) -> Self {
        serde_json::from_slice::<WithMeta>(object).unwrap_or_default().metadata
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

/// Resource with data that nobody may delete more often, regardless of the actor. The names of volumes are random.
const DATA: &str = "persistentvolumeclaims";

/// Number of creations and deletions by object.
pub(crate) type Tally = BTreeMap<String, (u32, u32)>;

/// Counts the creations and deletions of a run that its operator, or for data anybody, made.
pub(crate) fn tally(history: &[Change]) -> Tally {
    let mut tally = Tally::new();
    for change in history {
        let is_own = matches!(change.actor, Actor::Operator(_)) || *change.resource.resource == *DATA;
        if !is_own {
            continue;
        }
        let (creates, deletes) = (u32::from(change.is_creation()), u32::from(change.begins_deletion()));
        if creates + deletes > 0 {
            let count = tally.entry(change.stable_name()).or_default();
            *count = (count.0 + creates, count.1 + deletes);
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: Option<&str>, after: &str, is_removal: bool) -> Change {
        Change {
            at: Duration::ZERO,
            step: 1,
            actor: Actor::User,
            revision: 1,
            resource: GroupResource::new("", "pods"),
            key: ObjectKey::new(Some("test"), "web-x1"),
            before: before.map(|text| text.to_owned().into()),
            after: after.to_owned().into(),
            is_removal,
            user: None,
            parsed: ParsedMeta::default(),
        }
    }

    #[test]
    fn deletion_counts_once() {
        let deleting = r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        assert!(change(None, "{}", false).is_creation());
        assert!(change(Some("{}"), deleting, false).begins_deletion());
        assert!(change(Some("{}"), "{}", true).begins_deletion());
        assert!(!change(Some(deleting), deleting, true).begins_deletion());
        assert!(!change(Some("{}"), "{}", false).begins_deletion());
    }

    #[test]
    fn generated_names_are_equal_in_all_runs() {
        let name = |object: &str| change(None, object, false).stable_name();
        assert_eq!(name(r#"{"metadata":{"generateName":"web-"}}"#), "pods/web-*");
        assert_eq!(name(r#"{"metadata":{}}"#), "pods/web-x1");
        assert!(is_generated("web-7", "we") && !is_generated("web-7", "web-") && !is_generated("web", "pod-"));
    }

    fn write(actor: Actor, resource: &str, before: Option<&str>, is_removal: bool) -> Change {
        Change {
            at: Duration::ZERO,
            step: 1,
            actor,
            revision: 1,
            resource: GroupResource::new("", resource),
            key: ObjectKey::new(Some("test"), "a"),
            before: before.map(|text| text.to_owned().into()),
            after: "{}".into(),
            is_removal,
            user: None,
            parsed: ParsedMeta::default(),
        }
    }

    #[test]
    fn only_the_operator_and_data_count() {
        let history = [
            write(Actor::Operator(0), "secrets", None, false),
            write(Actor::User, "secrets", Some("{}"), true),
            write(Actor::ControlPlane, "persistentvolumeclaims", Some("{}"), true),
            write(Actor::ControlPlane, "pods", None, false),
        ];
        let expected = [("secrets/a".to_owned(), (1, 0)), ("persistentvolumeclaims/a".to_owned(), (0, 1))];
        assert_eq!(tally(&history), Tally::from(expected));
    }
}
