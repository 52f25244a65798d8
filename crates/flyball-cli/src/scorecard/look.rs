//! What there is on a control plane at one moment, as far as it is somebody's doing.

use crate::error::{Result, ResultExt};
use crate::kinds::{Kind, Kinds};
use http::Request;
use kube::Client;
use serde_json::Value;
use std::collections::BTreeMap;

/// Resources that tell of the way, and not of what is there.
const PASSING: [&str; 4] = ["endpoints", "endpointslices", "events", "leases"];

/// All objects, by what they are called: `Pod default/web-0`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Look(pub(super) BTreeMap<String, Seen>);

/// One object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    uid: String,
    version: String,
    /// Restarts of all its containers, if it is a pod.
    restarts: i64,
}

impl Look {
    pub(super) async fn take(client: &Client, kinds: &Kinds) -> Result<Self> {
        let mut look = Self::default();
        for kind in kinds.all().iter().filter(|kind| kind.can_list && !PASSING.contains(&kind.plural.as_str())) {
            let what = || format!("cannot list {}", kind.plural);
            let request = Request::get(kind.path(None, None)).body(Vec::new()).when(what())?;
            let list: Value = client.request(request).await.when(what())?;
            look.0.extend(list["items"].as_array().into_iter().flatten().map(|object| Seen::of(kind, object)));
        }
        Ok(look)
    }

    /// Leaves out what was there before.
    pub(super) fn without(mut self, before: &Self) -> Self {
        self.0.retain(|name, _| !before.0.contains_key(name));
        self
    }

    /// Names what is not there any more, is another one by its name, or has restarted since this look.
    pub(super) fn harmed(&self, later: &Self) -> Vec<String> {
        let harmed = |(name, was): (&String, &Seen)| match later.0.get(name) {
            None => Some(format!("{name} is gone")),
            Some(is) if is.uid != was.uid => Some(format!("{name} was replaced")),
            Some(is) if is.restarts != was.restarts => Some(format!("{name} was restarted")),
            Some(_) => None,
        };
        self.0.iter().filter_map(harmed).collect()
    }

    /// Names what came, went or was written between this look and a later one.
    pub(super) fn moved(&self, later: &Self) -> Vec<String> {
        let all = self.0.keys().chain(later.0.keys().filter(|name| !self.0.contains_key(*name)));
        all.filter(|name| self.0.get(*name) != later.0.get(*name)).cloned().collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

impl Seen {
    fn of(kind: &Kind, object: &Value) -> (String, Self) {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = metadata["namespace"].as_str().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let containers = ["initContainerStatuses", "containerStatuses"].map(|list| object["status"][list].as_array());
        let restarts = containers.into_iter().flatten().flatten().filter_map(|one| one["restartCount"].as_i64()).sum();
        let seen = Self { uid: text(&metadata["uid"]), version: text(&metadata["resourceVersion"]), restarts };
        (format!("{} {place}{}", kind.kind, text(&metadata["name"])), seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_compared() {
        let seen = |uid: &str, version: &str, restarts| Seen { uid: uid.into(), version: version.into(), restarts };
        let look = |of: &[(&str, Seen)]| Look(of.iter().map(|(name, seen)| ((*name).into(), seen.clone())).collect());
        let before = look(&[
            ("a", seen("1", "5", 0)),
            ("b", seen("2", "6", 0)),
            ("c", seen("3", "7", 0)),
            ("d", seen("4", "8", 0)),
        ]);
        let after = look(&[
            ("b", seen("9", "9", 0)),
            ("c", seen("3", "10", 1)),
            ("d", seen("4", "11", 0)),
            ("e", seen("5", "12", 0)),
        ]);
        assert_eq!(before.harmed(&after), ["a is gone", "b was replaced", "c was restarted"]);
        assert_eq!(before.moved(&after), ["a", "b", "c", "d", "e"]);
        assert_eq!(before.moved(&before), Vec::<String>::new());
        assert_eq!(after.without(&before).names(), ["e"]);
    }
}
