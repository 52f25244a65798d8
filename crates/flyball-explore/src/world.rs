//! The world at one revision, for invariants.

use crate::history::Change;
use bytes::Bytes;
use flyball_core::{GroupResource, ObjectKey};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The objects that changed in a run, at one revision. Events, leases, endpoints and nodes are not part of it.
#[derive(Clone, Debug, Default)]
pub struct World {
    revision: u64,
    at: Duration,
    objects: BTreeMap<(GroupResource, ObjectKey), Bytes>,
}

impl World {
    /// Applies the next write of the history.
    pub(crate) fn apply(&mut self, change: &Change) {
        (self.revision, self.at) = (change.revision, change.at);
        let key = (change.resource.clone(), change.key.clone());
        match change.is_removal {
            true => drop(self.objects.remove(&key)),
            false => drop(self.objects.insert(key, change.after.clone())),
        }
    }

    /// Returns the revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the time since the start of the run.
    pub fn elapsed(&self) -> Duration {
        self.at
    }

    /// Returns the objects of a resource, such as `pods` or `deployments.apps`, in the order of their names. They have
    /// no `apiVersion` and `kind`.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        let of_resource = self.objects.iter().filter(|((known, _), _)| known.to_string() == resource);
        of_resource.map(|(_, body)| serde_json::from_slice(body).unwrap_or_default()).collect()
    }

    /// Returns an object of the scenario's namespace, or a cluster-scoped one.
    pub fn object(&self, resource: &str, name: &str) -> Option<Value> {
        self.objects(resource).into_iter().find(|object| object["metadata"]["name"] == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Actor, ParsedMeta};

    #[test]
    fn world_follows_the_history() {
        let change = |revision: u64, is_removal: bool| Change {
            at: Duration::from_secs(revision),
            step: 1,
            actor: Actor::User,
            revision,
            resource: GroupResource::new("apps", "deployments"),
            key: ObjectKey::new(Some("test"), "a"),
            before: None,
            after: r#"{"metadata":{"name":"a"}}"#.into(),
            is_removal,
            user: None,
            parsed: ParsedMeta::default(),
        };
        let mut world = World::default();
        world.apply(&change(7, false));
        assert_eq!((world.revision(), world.objects("deployments.apps").len()), (7, 1));
        assert!(world.object("deployments.apps", "a").is_some() && world.object("pods", "a").is_none());
        world.apply(&change(8, true));
        assert!(world.objects("deployments.apps").is_empty());
    }
}
