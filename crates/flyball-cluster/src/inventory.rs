//! Inventory of a cluster at one point in time, for comparison with another one.

use k8s_openapi::api::core::v1::PodStatus;
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::collections::BTreeMap;

/// Identities of objects at one moment: UID, resource version and container restarts, by name.
///
/// ```
/// use flyball_cluster::Inventory;
/// use kube::api::DynamicObject;
///
/// let with = |uid: &str| {
///     let object = serde_json::json!({"metadata": {"name": "web", "uid": uid}});
///     serde_json::from_value(object).map(|object: DynamicObject| Inventory::from_iter([("pods web".into(), &object)]))
/// };
/// assert_eq!(with("1")?.disruptions(&with("2")?), ["pods web was replaced by another one of its name"]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory(BTreeMap<String, Identity>);

/// Identity and state of an object.
#[derive(Clone, Debug, Default, PartialEq)]
struct Identity {
    uid: String,
    version: String,
    /// Restart counts of the containers of a pod.
    restarts: BTreeMap<String, i32>,
}

impl Inventory {
    /// Transient resources that depend on the history of a cluster. Inventories exclude them.
    pub const TRANSIENT_RESOURCES: [&str; 4] = ["endpoints", "endpointslices", "events", "leases"];

    /// Returns the names of the objects, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Excludes the objects of another inventory.
    pub fn without(mut self, other: &Self) -> Self {
        self.0.retain(|name, _| !other.0.contains_key(name));
        self
    }

    /// Describes the objects that were deleted, replaced, or whose containers restarted before `later`. New and updated
    /// objects are not listed.
    pub fn disruptions(&self, later: &Self) -> Vec<String> {
        let disruption = |(name, was): (&String, &Identity)| match later.0.get(name) {
            None => vec![format!("{name} was deleted")],
            Some(is) if is.uid != was.uid => vec![format!("{name} was replaced by another one of its name")],
            Some(is) => was.restarted(is).map(|restarts| format!("{name}: {restarts}")).collect(),
        };
        self.0.iter().flat_map(disruption).collect()
    }

    /// Returns the objects that were created, deleted or changed before `later`.
    pub fn changed(&self, later: &Self) -> Vec<String> {
        let all = self.0.keys().chain(later.0.keys().filter(|name| !self.0.contains_key(*name)));
        all.filter(|name| self.0.get(*name) != later.0.get(*name)).cloned().collect()
    }
}

impl<'a> FromIterator<(String, &'a DynamicObject)> for Inventory {
    fn from_iter<I: IntoIterator<Item = (String, &'a DynamicObject)>>(objects: I) -> Self {
        Self(objects.into_iter().map(|(name, object)| (name, Identity::of(object))).collect())
    }
}

impl Identity {
    fn of(object: &DynamicObject) -> Self {
        // Other kinds have another status, or none.
        let status: PodStatus = serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
        let containers = [status.init_container_statuses, status.container_statuses].into_iter().flatten().flatten();
        Self {
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().unwrap_or_default(),
            restarts: containers.map(|container| (container.name, container.restart_count)).collect(),
        }
    }

    fn restarted(&self, later: &Self) -> impl Iterator<Item = String> {
        later.restarts.iter().filter_map(|(container, count)| {
            let before = self.restarts.get(container).copied().unwrap_or_default();
            (before != *count).then(|| format!("restarts of container {container} went from {before} to {count}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inventories_are_compared() {
        let inventory = |of: &[(&str, &str, &str, i32)]| {
            let identity = |(name, uid, version, restarts): &(&str, &str, &str, i32)| {
                let restarts = [("web".to_owned(), *restarts)].into();
                ((*name).to_owned(), Identity { uid: (*uid).into(), version: (*version).into(), restarts })
            };
            Inventory(of.iter().map(identity).collect())
        };
        let before = inventory(&[("a", "1", "5", 0), ("b", "2", "6", 0), ("c", "3", "7", 1), ("d", "4", "8", 0)]);
        let after = inventory(&[("b", "9", "9", 0), ("c", "3", "10", 2), ("d", "4", "11", 0), ("e", "5", "12", 0)]);
        let harmed = [
            "a was deleted",
            "b was replaced by another one of its name",
            "c: restarts of container web went from 1 to 2",
        ];
        assert_eq!(before.disruptions(&after), harmed);
        assert_eq!(before.changed(&after), ["a", "b", "c", "d", "e"]);
        assert_eq!((before.disruptions(&before), before.changed(&before)), (Vec::new(), Vec::new()));
        assert_eq!(after.without(&before).names().collect::<Vec<_>>(), ["e"]);
    }
}
