//! The owners of a plan: the Subscriptions, or the ClusterExtension, that request what it installs.
//!
//! A plan belongs to all Subscriptions that were resolved together, and stays while one of them exists. A step is
//! executed only while its own Subscription exists, as the API server has it: caches lag behind, and an operator that
//! is being uninstalled must not be created again. The Subscription can also be deleted between this check and the
//! write. So the ClusterServiceVersions and Subscriptions that a plan creates belong to their requesters until all
//! steps are executed: the garbage collector of Kubernetes deletes them if their requesters are gone, also after a
//! crash of the manager. After the last step they belong to nobody, as in OLM.

use super::actor::{Actor, encoded, message_of};
use super::error::ExecutionError;
use super::members::Members;
use crate::api::{ClusterExtension, GROUP, InstallPlan, Step, is_extension, is_requester, is_subscription};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Attempts to release an object that others change at the same time. The plan is executed again after the last one.
const ATTEMPTS: usize = 5;

/// An owner of a plan that exists.
struct Requester<'p> {
    owner: &'p OwnerReference,
    /// The package and the current ClusterServiceVersion of a Subscription; others request the whole plan.
    requests: Option<(String, String)>,
}

/// The owners of a plan that exist.
pub(super) struct Requesters<'p> {
    plan: &'p InstallPlan,
    members: &'p Members,
    alive: Vec<Requester<'p>>,
}

impl<'p> Requesters<'p> {
    /// Reads the owners of a plan from the API server.
    ///
    /// # Errors
    ///
    /// If an answer shows neither that an owner exists, nor that it does not.
    pub(super) async fn read(
        plan: &'p InstallPlan,
        members: &'p Members,
        manager: &Actor<'_>,
    ) -> Result<Self, ExecutionError> {
        let owners = plan.owner_references();
        let subscriptions = match owners.iter().any(is_subscription) {
            true => subscriptions(&plan.namespace().unwrap_or_default(), manager).await?,
            false => Vec::new(),
        };
        let mut alive = Vec::new();
        for owner in owners {
            let is_it = |object: &&Value| object["metadata"]["uid"] == owner.uid.as_str() && !is_being_deleted(object);
            if is_subscription(owner) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let requests =
                    |found: &Value| Some((text(&found["spec"]["name"]), text(&found["status"]["currentCSV"])));
                let found = subscriptions.iter().find(is_it);
                alive.extend(found.map(|found| Requester { owner, requests: requests(found) }));
            } else if is_extension(owner) {
                // The version of the reference is text of whoever wrote it.
                let path = format!("{}/{}", ClusterExtension::url_path(&(), None), encoded(&owner.name));
                let found = manager.find(&path).await.map_err(|error| {
                    ExecutionError::new(format!("ClusterExtension {}: {}", owner.name, message_of(&error)))
                })?;
                alive.extend(found.as_ref().filter(is_it).map(|_| Requester { owner, requests: None }));
            } else {
                alive.push(Requester { owner, requests: None });
            }
        }
        Ok(Self { plan, members, alive })
    }

    /// Returns true if a plan has owners, and none of them exists: the garbage collector deletes the plan.
    pub(super) fn are_gone(&self) -> bool {
        self.alive.is_empty() && !self.plan.owner_references().is_empty()
    }

    /// Returns the owners that request a step; `None` if those that did are gone. The garbage collector removes the
    /// references to owners that are gone, so their number tells nothing.
    pub(super) fn of(&self, step: &Step) -> Option<Vec<Value>> {
        let csv = step.resolving.as_str();
        if self.plan.owner_references().is_empty() {
            return Some(Vec::new());
        }
        // A dependency goes with the operators that were planned together with it.
        let names = &self.plan.spec.cluster_service_version_names;
        let mut direct = names.iter().filter(|name| !self.members.is_dependency(name)).peekable();
        let requesters = match self.members.is_dependency(csv) {
            false => self.requesters_of(csv),
            true if direct.peek().is_none() => self.alive.iter().map(|requester| requester.owner).collect(),
            true => direct.flat_map(|name| self.requesters_of(name)).collect(),
        };
        (!requesters.is_empty()).then(|| references(requesters))
    }

    /// Returns the owners that request a ClusterServiceVersion.
    fn requesters_of(&self, csv: &str) -> Vec<&'p OwnerReference> {
        let package = self.members.package(csv);
        let is_of = |requester: &&Requester<'_>| match (&requester.requests, package) {
            (Some((of, current)), Some(package)) => of == package || current == csv,
            (None, _) | (_, None) => true,
        };
        self.alive.iter().filter(is_of).map(|requester| requester.owner).collect()
    }
}

/// Returns the Subscriptions of a namespace. An answer without a list is no evidence that they are gone.
async fn subscriptions(namespace: &str, manager: &Actor<'_>) -> Result<Vec<Value>, ExecutionError> {
    let failed = |why: &str| ExecutionError::new(format!("Subscriptions of namespace {namespace}: {why}"));
    let path = format!("/apis/{GROUP}/v1alpha1/namespaces/{}/subscriptions", encoded(namespace));
    let list = manager.get(&path).await.map_err(|error| failed(&message_of(&error)))?;
    items_of(list).ok_or_else(|| failed("the API server returned no list; check that the CRD exists"))
}

/// Returns the items of a list that was read.
fn items_of(list: Option<Value>) -> Option<Vec<Value>> {
    match list?["items"].take() {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn references(mut owners: Vec<&OwnerReference>) -> Vec<Value> {
    let mut known = BTreeSet::new();
    owners.retain(|owner| known.insert(&owner.uid));
    let reference = |owner: &OwnerReference| {
        json!({
            "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
            "controller": false, "blockOwnerDeletion": false,
        })
    };
    owners.into_iter().map(reference).collect()
}

/// Makes the requesters of an object its owners, if the plan creates it, or an earlier attempt has.
pub(super) fn claim(object: &mut Value, requesters: Vec<Value>, known: Option<&Value>) {
    if !requesters.is_empty() && known.is_none_or(is_claimed) {
        object["metadata"]["ownerReferences"] = requesters.into();
    }
}

/// Returns true if an object belongs to its requesters: the plan that created it is not complete.
fn is_claimed(object: &Value) -> bool {
    claims(object).next().is_some()
}

fn claims(object: &Value) -> impl Iterator<Item = &Value> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter(|owner| serde_json::from_value((*owner).clone()).is_ok_and(|owner| is_requester(&owner)))
}

/// Takes an object from its requesters: from now on it stays without them. `applied` is the object as the plan has
/// written it.
pub(super) async fn release(path: &str, applied: &Value, manager: &Actor<'_>) -> kube::Result<()> {
    let mut current = Some(applied.clone());
    for attempt in 1.. {
        let Some(object) = current.filter(is_claimed) else { return Ok(()) };
        let claimed: Vec<&Value> = claims(&object).collect();
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let others: Vec<&Value> = owners.filter(|owner| !claimed.contains(owner)).collect();
        let (uid, version) = (&object["metadata"]["uid"], &object["metadata"]["resourceVersion"]);
        let patch = json!({"metadata": {"uid": uid, "resourceVersion": version, "ownerReferences": others}});
        match manager.merge(path, &patch).await {
            Err(kube::Error::Api(status)) if status.is_conflict() && attempt < ATTEMPTS => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            released => return released.map(drop),
        }
        // Another object of this name belongs to another plan.
        current = manager.get(path).await?.filter(|other| other["metadata"]["uid"] == object["metadata"]["uid"]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{StepResource, Subscription};

    fn owner(name: &str) -> OwnerReference {
        let api_version = Subscription::api_version(&()).into_owned();
        let kind = "Subscription".to_owned();
        OwnerReference { api_version, kind, name: name.to_owned(), uid: name.to_owned(), ..OwnerReference::default() }
    }

    fn step(kind: &str, name: &str) -> Step {
        let package = name.split('.').next().unwrap();
        let properties = json!([{"type": "olm.package", "value": {"packageName": package, "version": "1.0.0"}}]);
        let annotations = json!({"operatorframework.io/properties": json!({"properties": properties}).to_string()});
        let manifest = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {}}).to_string();
        let resource = StepResource { kind: kind.to_owned(), name: name.to_owned(), manifest, ..Default::default() };
        Step { resolving: name.to_owned(), resource, ..Step::default() }
    }

    /// Returns a plan of two Subscriptions, of which one has a dependency.
    fn plan() -> InstallPlan {
        let mut plan = InstallPlan::default();
        plan.metadata.owner_references = Some(vec![owner("a"), owner("b")]);
        let names = ["a.v1", "b.v1", "needed.v1"];
        plan.spec.cluster_service_version_names = names.map(str::to_owned).to_vec();
        plan.status.plan = names.map(|name| step("ClusterServiceVersion", name)).to_vec();
        plan.status.plan.push(step("Subscription", "needed.v1"));
        plan
    }

    #[test]
    fn steps_go_with_their_subscriptions() {
        let plan = plan();
        let (owners, members) = (plan.owner_references(), Members::of(&plan));
        let check = |alive: &[usize], csv: &str, expected: Option<&[&str]>| {
            let alive = alive
                .iter()
                .map(|at| Requester { owner: &owners[*at], requests: Some((owners[*at].name.clone(), String::new())) });
            let requesters = Requesters { plan: &plan, members: &members, alive: alive.collect() };
            let found = requesters.of(&step("Role", csv));
            let names = found.map(|found| found.iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect());
            assert_eq!(names, expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()));
        };
        check(&[0, 1], "a.v1", Some(&["a"]));
        check(&[0, 1], "needed.v1", Some(&["a", "b"]));
        check(&[1], "a.v1", None);
        check(&[1], "b.v1", Some(&["b"]));
        check(&[1], "needed.v1", Some(&["b"]));
        check(&[], "b.v1", None);
        check(&[], "needed.v1", None);
    }

    #[test]
    fn answer_without_a_list_is_no_evidence() {
        assert_eq!(items_of(None), None);
        assert_eq!(items_of(Some(json!({"kind": "SubscriptionList"}))), None);
        assert_eq!(items_of(Some(json!({"items": "text"}))), None);
        assert_eq!(items_of(Some(json!({"items": []}))), Some(Vec::new()));
    }

    #[test]
    fn only_what_the_plan_creates_is_claimed() {
        let requesters = || references(vec![&owner("a")]);
        let claimed = |known: Option<&Value>| {
            let mut object = json!({"metadata": {"name": "a.v1"}});
            claim(&mut object, requesters(), known);
            is_claimed(&object)
        };
        assert!(claimed(None));
        assert!(claimed(Some(&json!({"metadata": {"ownerReferences": requesters()}}))));
        assert!(!claimed(Some(&json!({"metadata": {}}))));
    }
}
