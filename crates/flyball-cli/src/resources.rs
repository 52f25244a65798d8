//! The resources that a cluster serves, found by the words that people use for them.
//!
//! See <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery>.

use crate::error::{Error, Result, ResultExt};
use http::Request;
use http::header::ACCEPT;
use kube::Client;
use serde::Deserialize;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource in the version that the API server prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) listed: bool,
}

impl Served {
    /// Returns the URL of its objects, in one namespace or in all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let Self { group, version, plural, .. } = self;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    /// Returns what an object of it is called in commands, such as `deployment.apps/web`.
    pub(crate) fn told(&self, name: &str) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}/{name}", self.singular, self.group)
    }

    /// Tells whether a word stands for it: its plural, singular, kind or a short name, with or without version and group.
    fn is_called(&self, word: &str) -> bool {
        let (name, rest) = word.split_once('.').map_or((word, None), |(name, rest)| (name, Some(rest)));
        let called = [&self.plural, &self.singular].into_iter().chain(&self.short_names).any(|own| own == name)
            || self.kind.to_lowercase() == name;
        let versioned = format!("{}.{}", self.version, self.group);
        called && rest.is_none_or(|rest| rest == self.group || rest == versioned.trim_end_matches('.'))
    }
}

#[derive(Deserialize)]
struct GroupList {
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupName,
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    response_kind: Option<Kind>,
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

/// Asks for all resources, those of the core group first, as the API server orders them.
pub(crate) async fn served(client: &Client) -> Result<Vec<Served>> {
    let mut served: Vec<Served> = Vec::new();
    for root in ["/api", "/apis"] {
        let request =
            Request::get(root).header(ACCEPT, AGGREGATED).body(Vec::new()).when("cannot ask for the kinds")?;
        let groups: GroupList = client.request(request).await.when("cannot learn which kinds the cluster has")?;
        for group in groups.items {
            let name = group.metadata.name;
            for Version { version, resources } in group.versions {
                for resource in resources {
                    if served.iter().any(|known| known.group == name && known.plural == resource.resource) {
                        continue;
                    }
                    let kind = resource.response_kind.map(|kind| kind.kind).unwrap_or_default();
                    let singular = match resource.singular_resource.as_str() {
                        "" => kind.to_lowercase(),
                        singular => singular.to_owned(),
                    };
                    served.push(Served {
                        group: name.clone(),
                        version: version.clone(),
                        plural: resource.resource,
                        singular,
                        kind,
                        short_names: resource.short_names,
                        categories: resource.categories,
                        namespaced: resource.scope == "Namespaced",
                        listed: resource.verbs.iter().any(|verb| verb == "list"),
                    });
                }
            }
        }
    }
    Ok(served)
}

/// Finds the resources that a word stands for: one, or all of a category such as `all`.
pub(crate) fn find(served: &[Served], word: &str) -> Result<Vec<Served>> {
    let word = word.to_lowercase();
    if let Some(found) = served.iter().find(|resource| resource.is_called(&word)) {
        return Ok(vec![found.clone()]);
    }
    let category: Vec<Served> =
        served.iter().filter(|resource| resource.categories.contains(&word) && resource.listed).cloned().collect();
    if !category.is_empty() {
        return Ok(category);
    }
    let mut near: Vec<(usize, &str)> =
        served.iter().map(|resource| (distance(&resource.plural, &word), resource.plural.as_str())).collect();
    near.sort_unstable();
    let error = Error::new(format!("the cluster has no kind {word:?}"));
    Err(match near.first() {
        Some((distance, name)) if *distance <= 2 => error.hint(format!("did you mean {name}?")),
        _ => error.hint("kinds of operators appear when their definitions are applied: `flyball get crds` lists those"),
    })
}

/// Counts the letters to change, to leave out and to put in that make one word of another.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let (mut corner, mut left) = (row[0], at + 1);
        row[0] = left;
        for (column, expected) in other.iter().enumerate() {
            let changed = corner + usize::from(letter != *expected);
            corner = row[column + 1];
            left = changed.min(corner + 1).min(left + 1);
            row[column + 1] = left;
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, version: &str, plural: &str, kind: &str, short: &str) -> Served {
        Served {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            kind: kind.into(),
            short_names: vec![short.into()],
            categories: vec!["all".into()],
            namespaced: true,
            listed: true,
        }
    }

    #[test]
    fn a_kind_is_found_by_what_people_call_it() {
        let served =
            [resource("", "v1", "pods", "Pod", "po"), resource("apps", "v1", "deployments", "Deployment", "deploy")];
        for word in ["pods", "pod", "Pod", "po", "PODS", "pods.v1"] {
            assert_eq!(find(&served, word).unwrap(), [served[0].clone()], "{word}");
        }
        for word in ["deploy", "deployments.apps", "deployment.v1.apps"] {
            assert_eq!(find(&served, word).unwrap(), [served[1].clone()], "{word}");
        }
        assert_eq!(find(&served, "all").unwrap().len(), 2);
        assert!(find(&served, "deployments.batch").is_err());
        assert_eq!(served[1].told("web"), "deployment.apps/web");
        assert_eq!(served[1].path(Some("a")), "/apis/apps/v1/namespaces/a/deployments");
    }

    #[test]
    fn letters_that_differ_are_counted() {
        for (one, other, expected) in [("pods", "pods", 0), ("pods", "pds", 1), ("", "ab", 2), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
