//! Probes: conditions that all custom resources of an operator must have.
//!
//! They are read when a rollout depends on them, and not kept. Messages contain numbers only: followers of a rollout
//! may not see the objects.

use crate::api::labels::TARGET_NAMESPACES;
use crate::api::{ClusterServiceVersion, CrdDescription};
use crate::plan::encoded;
use flyball::{Context, Result};
use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde_json::Value;

/// Probes of a Subscription.
pub(super) const MAX_PROBES: usize = 8;
/// Custom resources in one page of a list.
const PAGE: usize = 500;
/// Custom resources that the probes of one operator read.
const MAX_OBJECTS: usize = 5_000;

/// A condition of all custom resources of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    /// The name of the CRD.
    definition: String,
    condition: String,
}

impl Probe {
    /// Parses a probe such as `memos.example.com=Ready`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').map(|(definition, condition)| (definition.trim(), condition.trim()));
        match parts {
            Some((definition, condition)) if definition.contains('.') && !condition.is_empty() => {
                Ok(Self { definition: definition.to_owned(), condition: condition.to_owned() })
            }
            _ => Err(format!("expected PLURAL.GROUP=CONDITION, not {text:?}")),
        }
    }
}

/// Returns the first failure of the probes of an operator.
pub(super) async fn failure(
    probes: &[Probe],
    csv: &ClusterServiceVersion,
    cx: &Context<Namespace>,
) -> Result<Option<String>> {
    let mut left = MAX_OBJECTS;
    for probe in probes {
        let Some(description) = csv.spec.crds.owned.iter().find(|crd| crd.name == probe.definition) else {
            return Ok(Some(format!("does not provide {}, which its probe names", probe.definition)));
        };
        let (mut passed, mut failed) = (0, 0);
        for namespace in targets(csv) {
            match count(probe, description, namespace.as_deref(), left, cx).await {
                Ok(Some((of_passed, of_failed))) => {
                    (passed, failed) = (passed + of_passed, failed + of_failed);
                    left = left.saturating_sub(of_passed + of_failed);
                }
                Ok(None) => return Ok(Some(format!("more than {MAX_OBJECTS} custom resources cannot be probed"))),
                Err(error) => return Ok(Some(format!("{} cannot be listed: {error}", probe.definition))),
            }
        }
        if failed > 0 {
            let Probe { definition, condition } = probe;
            let all = passed + failed;
            return Ok(Some(format!("{failed} of {all} {definition} do not have condition {condition}")));
        }
    }
    Ok(None)
}

/// Returns the namespaces whose custom resources an operator reconciles; `None` for all.
fn targets(csv: &ClusterServiceVersion) -> Vec<Option<String>> {
    match csv.annotations().get(TARGET_NAMESPACES).map(String::as_str) {
        Some("") => vec![None],
        Some(list) => list.split(',').map(|name| Some(name.to_owned())).collect(),
        None => vec![csv.namespace()],
    }
}

/// Counts the custom resources with and without a condition; `None` if there are too many.
async fn count(
    probe: &Probe,
    description: &CrdDescription,
    namespace: Option<&str>,
    limit: usize,
    cx: &Context<Namespace>,
) -> kube::Result<Option<(usize, usize)>> {
    let (plural, group) = description.name.split_once('.').unwrap_or((&description.name, ""));
    let within = namespace.map(|name| format!("/namespaces/{}", encoded(name))).unwrap_or_default();
    let (group, plural) = (encoded(group), encoded(plural));
    let collection = format!("/apis/{group}/{}{within}/{plural}", encoded(&description.version));
    let (mut passed, mut failed, mut page) = (0, 0, String::new());
    loop {
        let request = Request::get(format!("{collection}?limit={PAGE}{page}")).body(Vec::new());
        let list: Value = cx.client().request(request.map_err(kube::Error::HttpError)?).await?;
        for object in list["items"].as_array().into_iter().flatten() {
            match has_condition(object, &probe.condition) {
                Some(true) => passed += 1,
                Some(false) => failed += 1,
                None => {}
            }
        }
        if passed + failed > limit {
            return Ok(None);
        }
        match list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(token) => page = format!("&continue={}", encoded(token)),
            None => return Ok(Some((passed, failed))),
        }
    }
}

/// Returns true if a condition of a custom resource is true; `None` if the object is being deleted.
fn has_condition(object: &Value, kind: &str) -> Option<bool> {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    Some(conditions.any(|condition| condition["type"] == kind && condition["status"] == "True"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_of_objects_that_stay_are_checked() {
        let check = |object: Value, expected: Option<bool>| assert_eq!(has_condition(&object, "Ready"), expected);
        let with = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        check(with("Ready", "True"), Some(true));
        check(with("Ready", "False"), Some(false));
        check(with("Synced", "True"), Some(false));
        check(json!({}), Some(false));
        check(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), None);
    }

    #[test]
    fn probes_have_a_definition_and_a_condition() {
        let probe = Probe::parse(" memos.demo.flyball.dev = Ready ").unwrap();
        assert_eq!((probe.definition.as_str(), probe.condition.as_str()), ("memos.demo.flyball.dev", "Ready"));
        assert!(["memos=Ready", "memos.a.b=", "=Ready", ""].iter().all(|text| Probe::parse(text).is_err()));
    }

    #[test]
    fn objects_of_the_target_namespaces_are_probed() {
        let mut csv = ClusterServiceVersion::new(Some("demo"), "memo.v1");
        assert_eq!(targets(&csv), [Some("demo".to_owned())]);
        csv.annotations_mut().insert(TARGET_NAMESPACES.to_owned(), String::new());
        assert_eq!(targets(&csv), [None]);
        csv.annotations_mut().insert(TARGET_NAMESPACES.to_owned(), "a,b".to_owned());
        assert_eq!(targets(&csv).len(), 2);
    }
}
