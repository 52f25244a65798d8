//! The owners of a plan: the Subscriptions, or the ClusterExtension, that request what it installs.
//!
//! A plan belongs to all Subscriptions that were resolved together, and stays while one of them exists. A step is
//! executed only while its own Subscription exists, as the API server has it: caches lag behind, and an operator that
//! is being uninstalled must not be created again. The cache only tells which owners request a step. One of them is
//! read before the step, and only its metadata: the cost of a plan must not depend on the number and the size of the
//! other Subscriptions in its namespace, which their users choose. The Subscription can also be deleted between this
//! check and the write. So the ClusterServiceVersions and Subscriptions that a plan creates belong to their requesters
//! until all steps are executed: the garbage collector of Kubernetes deletes them if their requesters are gone, also
//! after a crash of the manager. After the last step they belong to nobody, as in OLM.

use super::actor::{Actor, encoded, message_of};
use super::error::ExecutionError;
use super::members::Members;
use crate::api::{ClusterExtension, GROUP, InstallPlan, Step, Subscription, is_requester, is_subscription};
use flyball::{Context, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Attempts to release an object that others change at the same time. The plan is executed again after the last one.
const ATTEMPTS: usize = 5;

/// An owner of a plan that is not known to be gone.
struct Requester<'p> {
    owner: &'p OwnerReference,
    /// The package and the current ClusterServiceVersion of a Subscription; others request the whole plan.
    requests: Option<Request>,
}

/// The package and the current ClusterServiceVersion of a Subscription.
type Request = (String, String);

/// The owners of a plan that are not known to be gone.
pub(super) struct Requesters<'p> {
    plan: &'p InstallPlan,
    members: &'p Members,
    namespace: String,
    alive: Vec<Requester<'p>>,
}

impl<'p> Requesters<'p> {
    /// Returns the owners of a plan. Subscriptions that the cache does not contain are read from the API server.
    ///
    /// # Errors
    ///
    /// If an answer shows neither that an owner exists, nor that it does not.
    pub(super) async fn read(
        plan: &'p InstallPlan,
        members: &'p Members,
        manager: &Actor<'_>,
        cx: &Context<InstallPlan>,
    ) -> Result<Self, ExecutionError> {
        let namespace = plan.namespace().unwrap_or_default();
        let (owners, mut known) = (plan.owner_references(), BTreeSet::new());
        let mut alive = Vec::new();
        for owner in owners.iter().filter(|owner| known.insert(&owner.uid)) {
            let cached = if is_subscription(owner) { cached(&namespace, owner, cx).await } else { None };
            let requests = match cached {
                None if is_subscription(owner) => match find(owner, &namespace, manager, false).await? {
                    Some(found) => Some(request(&found)),
                    None => continue,
                },
                cached => cached,
            };
            alive.push(Requester { owner, requests });
        }
        Ok(Self { plan, members, namespace, alive })
    }

    /// Returns true if a plan has owners, and all of them are known to be gone: the garbage collector deletes the plan.
    pub(super) fn are_gone(&self) -> bool {
        self.alive.is_empty() && !self.plan.owner_references().is_empty()
    }

    /// Returns references to the owners that request a step, after one of them was read; `None` if those that did are
    /// gone.
    pub(super) async fn confirm(
        &mut self,
        step: &Step,
        manager: &Actor<'_>,
    ) -> Result<Option<Vec<Value>>, ExecutionError> {
        while let Some(requesters) = self.of(step) {
            let Some(first) = requesters.first().copied().filter(|owner| is_requester(owner)) else {
                return Ok(Some(references(requesters)));
            };
            if find(first, &self.namespace, manager, true).await?.is_some() {
                return Ok(Some(references(requesters)));
            }
            self.alive.retain(|requester| requester.owner.uid != first.uid);
        }
        Ok(None)
    }

    /// Returns the owners that request a step; `None` if those that did are gone. The garbage collector removes the
    /// references to owners that are gone, so their number tells nothing.
    fn of(&self, step: &Step) -> Option<Vec<&'p OwnerReference>> {
        let csv = step.resolving.as_str();
        if self.plan.owner_references().is_empty() {
            return Some(Vec::new());
        }
        // A dependency goes with the operators that were planned together with it.
        let names = &self.plan.spec.cluster_service_version_names;
        let mut direct = names.iter().filter(|name| !self.members.is_dependency(name)).peekable();
        let requesters: Vec<&OwnerReference> = match self.members.is_dependency(csv) {
            false => self.requesters_of(csv),
            true if direct.peek().is_none() => self.alive.iter().map(|requester| requester.owner).collect(),
            true => direct.flat_map(|name| self.requesters_of(name)).collect(),
        };
        (!requesters.is_empty()).then_some(requesters)
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

/// Returns what a Subscription requests, if the cache contains it.
async fn cached(namespace: &str, owner: &OwnerReference, cx: &Context<InstallPlan>) -> Option<Request> {
    // One that does not decode is read from the API server as well.
    let found = cx.get::<Subscription>(&ObjectKey::new(Some(namespace), &owner.name)).await.ok()??;
    (found.uid().as_deref() == Some(&*owner.uid)).then_some((found.spec.package, found.status.current_csv))
}

/// Returns what a Subscription requests.
fn request(subscription: &Value) -> Request {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&subscription["spec"]["name"]), text(&subscription["status"]["currentCSV"]))
}

/// Returns a Subscription or a ClusterExtension that owns a plan, unless it is gone or being deleted.
async fn find(
    owner: &OwnerReference,
    namespace: &str,
    manager: &Actor<'_>,
    only_metadata: bool,
) -> Result<Option<Value>, ExecutionError> {
    // The version of the reference is text of whoever wrote it.
    let path = match is_subscription(owner) {
        true => format!("/apis/{GROUP}/v1alpha1/namespaces/{}/subscriptions", encoded(namespace)),
        false => ClusterExtension::url_path(&(), None),
    };
    let path = format!("{path}/{}", encoded(&owner.name));
    let failed = |why: &str| ExecutionError::new(format!("{} {}: {why}", owner.kind, owner.name));
    let found = manager.find(&path, only_metadata).await.map_err(|error| failed(&message_of(&error)))?;
    is_alive(found, &owner.uid).map_err(failed)
}

/// Returns an object with this UID, unless it is being deleted. An answer without an object is no evidence that it is
/// gone.
fn is_alive(found: Option<Value>, uid: &str) -> Result<Option<Value>, &'static str> {
    match found {
        Some(found) if !found["metadata"]["uid"].is_string() => Err("the API server returned no object"),
        found => Ok(found.filter(|found| found["metadata"]["uid"] == uid && !is_being_deleted(found))),
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
    use crate::api::StepResource;

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
            let namespace = "test".to_owned();
            let requesters = Requesters { plan: &plan, members: &members, namespace, alive: alive.collect() };
            let found = requesters.of(&step("Role", csv)).map(references);
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
    fn answer_without_an_object_is_no_evidence() {
        let check = |found: Option<Value>, expected: Result<bool, ()>| {
            let alive = is_alive(found.clone(), "1").map(|found| found.is_some()).map_err(drop);
            assert_eq!(alive, expected, "{found:?}");
        };
        check(None, Ok(false));
        check(Some(json!({"metadata": {"uid": "1"}})), Ok(true));
        check(Some(json!({"metadata": {"uid": "2"}})), Ok(false));
        check(Some(json!({"metadata": {"uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"}})), Ok(false));
        check(Some(json!({"kind": "SubscriptionList", "items": []})), Err(()));
        check(Some(json!("text")), Err(()));
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
