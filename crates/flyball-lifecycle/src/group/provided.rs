//! APIs that operators provide.

use crate::api::{ClusterServiceVersion, OperatorGroup, labels};
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::fmt;

/// A kind of an API that an operator provides, written as `Memo.v1.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProvidedApi {
    /// Kind.
    pub kind: String,
    /// API version.
    pub version: String,
    /// API group.
    pub group: String,
}

impl fmt::Display for ProvidedApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.kind, self.version, self.group)
    }
}

/// The APIs that an operator, or all operators of a group, provide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProvidedApis(pub BTreeSet<ProvidedApi>);

impl ProvidedApis {
    /// Returns the APIs that a ClusterServiceVersion owns.
    pub fn of(csv: &ClusterServiceVersion) -> Self {
        let crds = csv.spec.crds.owned.iter().map(|crd| (&crd.kind, &crd.version, crd.group()));
        let apis = csv.spec.api_services.owned.iter().map(|api| (&api.kind, &api.version, api.group.as_str()));
        let api = |(kind, version, group): (&String, &String, &str)| ProvidedApi {
            kind: kind.clone(),
            version: version.clone(),
            group: group.to_owned(),
        };
        Self(crds.chain(apis).map(api).collect())
    }

    /// Reads the annotation of an OperatorGroup; malformed entries are ignored.
    pub fn annotated(group: &OperatorGroup) -> Self {
        let annotation = group.annotations().get(labels::PROVIDED_APIS).map_or("", String::as_str);
        let api = |text: &str| {
            let (kind, rest) = text.split_once('.')?;
            let (version, group) = rest.split_once('.')?;
            Some(ProvidedApi { kind: kind.into(), version: version.into(), group: group.into() })
        };
        Self(annotation.split(',').filter_map(api).collect())
    }
}

impl fmt::Display for ProvidedApis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotation_is_read_and_written_in_order() {
        let text = "Memo.v1.demo.flyball.dev,Memo.v2.demo.flyball.dev";
        let group = serde_json::from_value(json!({"metadata": {"annotations": {
            labels::PROVIDED_APIS: "Memo.v2.demo.flyball.dev,,broken,Memo.v1.demo.flyball.dev",
        }}}));
        assert_eq!(ProvidedApis::annotated(&group.unwrap()).to_string(), text);
        assert_eq!(ProvidedApis::annotated(&OperatorGroup::default()).to_string(), "");
        let csv = serde_json::from_value(json!({"spec": {"customresourcedefinitions": {"owned": [
            {"name": "memos.demo.flyball.dev", "version": "v2", "kind": "Memo"},
            {"name": "memos.demo.flyball.dev", "version": "v1", "kind": "Memo"},
        ]}}}));
        assert_eq!(ProvidedApis::of(&csv.unwrap()).to_string(), text);
    }
}
