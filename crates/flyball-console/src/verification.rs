//! Verification of claims: which claimed writes data of the API server confirms or contradicts.
//!
//! Sources, in this order: the log of an embedded control plane for the object that the page shows, the observed change
//! that made the version, and the managed fields of the object. A write counts as confirmed only if the service account
//! of the claimant may write such objects, which the API server is asked once a minute.

use crate::claims::{
    ClaimStatus, Claimant, ClaimedWrite, LoggedWrite, ManagerEntry, WriteTarget, best_claims, logged_writes,
};
use crate::kind::Kind;
use crate::object::ObjectRef;
use crate::operators::{Operator, Reconcile};
use crate::store::Change;
use crate::summary::{LastWrites, ManagedWrite, is_future, items, text};
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339};
use futures_util::StreamExt;
use futures_util::stream::iter;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Time for which a permission is remembered.
const PERMISSION_AGE: SignedDuration = SignedDuration::from_secs(60);
/// Limit of remembered permissions.
const MAX_PERMISSIONS: usize = 1_000;
/// Limit of permissions that one answer asks for, and of those at a time.
const MAX_QUESTIONS: usize = 64;
const MAX_CONCURRENT: usize = 8;
/// Timeout of all reviews of one answer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// A claimed write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// Index of the operator.
    operator: usize,
    /// ID of the reconcile.
    reconcile: String,
    object: ObjectRef,
    subresource: String,
    /// The version that it made.
    version: String,
}

impl Claim {
    fn of(reconcile: &Reconcile, write: &Value) -> Self {
        let field = |field: &Value| text(field).to_owned();
        Self {
            operator: reconcile.operator,
            reconcile: field(&reconcile.value["id"]),
            object: ObjectRef::of(&write["object"]),
            subresource: field(&write["subresource"]),
            version: field(&write["after"]),
        }
    }
}
/// A permission: the claimant, the index of the kind, the namespace and the subresource.
type Permission = (Claimant, usize, String, String);

/// The statuses of claimed writes.
#[derive(Debug, Default)]
pub(crate) struct ClaimStatuses(BTreeMap<Claim, ClaimStatus>);

impl ClaimStatuses {
    /// Returns the status of a write of a reconcile.
    pub(crate) fn of(&self, reconcile: &Reconcile, write: &Value) -> ClaimStatus {
        self.0.get(&Claim::of(reconcile, write)).copied().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn from_iter<'a>(statuses: impl IntoIterator<Item = (&'a Reconcile, &'a Value, ClaimStatus)>) -> Self {
        Self(statuses.into_iter().map(|(reconcile, write, status)| (Claim::of(reconcile, write), status)).collect())
    }

    /// A version has one writer: if several claimants are confirmed for it, none is.
    fn dispute(&mut self, operators: &[Operator]) {
        let mut claims: BTreeMap<(ObjectRef, String), Vec<(&Claimant, bool)>> = BTreeMap::new();
        for (claim, status) in &self.0 {
            let claimant = operators.get(claim.operator).and_then(|operator| operator.claimant.as_ref());
            let claimed = claimant.map(|claimant| (claimant, *status == ClaimStatus::Confirmed));
            claims.entry((claim.object.clone(), claim.version.clone())).or_default().extend(claimed);
        }
        claims.retain(|_, claims| !best_claims(claims).1);
        for (claim, status) in &mut self.0 {
            let is_disputed = claims.contains_key(&(claim.object.clone(), claim.version.clone()));
            if *status == ClaimStatus::Confirmed && is_disputed {
                *status = ClaimStatus::Open;
            }
        }
    }
}

/// The data for a verification.
pub(crate) struct ObservedData<'a> {
    pub(crate) kinds: &'a [Kind],
    pub(crate) operators: &'a [Operator],
    pub(crate) reconciles: &'a [Reconcile],
    pub(crate) changes: &'a [Arc<Change>],
    /// Coordinates of the object of a change.
    pub(crate) refers: &'a (dyn Fn(&Change) -> ObjectRef + Sync),
    /// The object that the page shows, and its body.
    pub(crate) shown: Option<(&'a ObjectRef, &'a Value)>,
    pub(crate) now: Timestamp,
}

/// Verifies claims, and remembers permissions of service accounts.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    permissions: Mutex<BTreeMap<Permission, (bool, Timestamp)>>,
}

impl Verifier {
    /// Returns the statuses of the writes of operators that were merely discovered.
    pub(crate) async fn verify(&self, client: &kube::Client, observed: &ObservedData<'_>) -> ClaimStatuses {
        if observed.operators.iter().all(|operator| operator.claimant.is_none()) {
            return ClaimStatuses::default();
        }
        let log = observed.log(client).await;
        let (mut statuses, needed) = observed.statuses(log.as_deref());
        let wanted: BTreeSet<Permission> = needed.values().cloned().collect();
        let allowed = self.allowed(client, observed, wanted).await;
        for (claim, permission) in needed {
            if !allowed.contains(&permission) {
                statuses.insert(claim, ClaimStatus::Open);
            }
        }
        let mut statuses = ClaimStatuses(statuses);
        statuses.dispute(observed.operators);
        statuses
    }

    /// Returns the permissions that exist. Those beyond the limit count as missing, and unknown ones until the next
    /// request.
    async fn allowed(
        &self,
        client: &kube::Client,
        observed: &ObservedData<'_>,
        wanted: BTreeSet<Permission>,
    ) -> BTreeSet<Permission> {
        let (mut allowed, mut unknown) = (BTreeSet::new(), Vec::new());
        {
            let known = self.permissions.lock();
            for permission in wanted {
                let fresh = known.get(&permission).filter(|(_, at)| observed.now.duration_since(*at) < PERMISSION_AGE);
                match fresh {
                    Some((true, _)) => drop(allowed.insert(permission)),
                    Some((false, _)) => {}
                    None => unknown.push(permission),
                }
            }
        }
        let questions = in_turns(unknown).into_iter().take(MAX_QUESTIONS).filter_map(|permission| {
            let kind = observed.kinds.get(permission.1)?;
            Some(async move {
                let (claimant, _, namespace, subresource) = &permission;
                let Kind { group, version, plural, .. } = kind;
                let target = WriteTarget { group, version, plural, subresource, namespace, name: "" };
                let may = claimant.may_write(client, &target).await;
                (permission, may)
            })
        });
        // Those that have no answer in time are unknown.
        let answers = iter(questions).buffer_unordered(MAX_CONCURRENT).take_until(sleep(REVIEW_TIMEOUT));
        let answers: Vec<(Permission, Option<bool>)> = answers.collect().await;
        let mut known = self.permissions.lock();
        let answered = answers.into_iter().filter_map(|(permission, may)| Some((permission, may?)));
        for (permission, may) in answered {
            known.insert(permission.clone(), (may, observed.now));
            if may {
                allowed.insert(permission);
            }
        }
        evict(&mut known, observed.now);
        allowed
    }
}

/// Orders permissions so that the claimants take turns: one with many questions does not delay the others.
fn in_turns(permissions: Vec<Permission>) -> Vec<Permission> {
    let mut numbers: BTreeMap<Claimant, usize> = BTreeMap::new();
    let mut numbered: Vec<(usize, Permission)> = permissions
        .into_iter()
        .map(|permission| {
            let number = numbers.entry(permission.0.clone()).or_default();
            *number += 1;
            (*number, permission)
        })
        .collect();
    numbered.sort();
    numbered.into_iter().map(|(_, permission)| permission).collect()
}

/// Forgets permissions that are too old, and the oldest ones beyond the limit.
fn evict(known: &mut BTreeMap<Permission, (bool, Timestamp)>, now: Timestamp) {
    if known.len() <= MAX_PERMISSIONS {
        return;
    }
    known.retain(|_, (_, at)| now.duration_since(*at) < PERMISSION_AGE);
    let mut by_age: Vec<(Timestamp, Permission)> =
        known.iter().map(|(permission, (_, at))| (*at, permission.clone())).collect();
    by_age.sort();
    for (_, permission) in by_age.into_iter().take(known.len().saturating_sub(MAX_PERMISSIONS)) {
        known.remove(&permission);
    }
}

impl ObservedData<'_> {
    fn kind_of(&self, object: &ObjectRef) -> Option<usize> {
        self.kinds.iter().position(|kind| kind.group == object.group && kind.kind == object.kind)
    }

    /// Returns the log of the shown object, if a claim concerns it.
    async fn log(&self, client: &kube::Client) -> Option<Vec<LoggedWrite>> {
        let (object, _) = self.shown?;
        let is_of_claim = |reconcile: &&Reconcile| {
            self.operators.get(reconcile.operator).is_some_and(|operator| operator.claimant.is_some())
        };
        let claimed = self.reconciles.iter().filter(is_of_claim);
        let mut writes = claimed.flat_map(|reconcile| items(&reconcile.value["writes"]));
        if !writes.any(|write| object.is(&write["object"])) {
            return None;
        }
        let kind = self.kinds.get(self.kind_of(object)?)?;
        logged_writes(client, (&kind.group, &kind.plural), (&object.namespace, &object.name)).await
    }

    /// Returns the statuses without permissions, and the permission that each confirmed write needs.
    fn statuses(&self, log: Option<&[LoggedWrite]>) -> (BTreeMap<Claim, ClaimStatus>, BTreeMap<Claim, Permission>) {
        let changes: BTreeMap<(ObjectRef, &str), &Change> = self
            .changes
            .iter()
            .filter(|change| !change.after.is_empty())
            .map(|change| (((self.refers)(change), change.after.as_str()), &**change))
            .collect();
        let (mut statuses, mut needed) = (BTreeMap::new(), BTreeMap::new());
        for reconcile in self.reconciles {
            let Some(operator) = self.operators.get(reconcile.operator) else { continue };
            let Some(claimant) = &operator.claimant else { continue };
            for write in items(&reconcile.value["writes"]) {
                let (version, subresource) = (text(&write["after"]), text(&write["subresource"]));
                if version.is_empty() || text(&write["result"]) == "unchanged" {
                    continue;
                }
                let claim = Claim::of(reconcile, write);
                let (manager, began) = (operator.field_manager(), Some(reconcile.began));
                let claimed = ClaimedWrite { manager, began, version, subresource };
                let change = changes.get(&(claim.object.clone(), version)).copied();
                let mut status = self.status(&claimed, claimant, &claim.object, change, log);
                // Removing a finalizer of another manager leaves no trace in managed fields.
                if status == ClaimStatus::Contradicted && text(&write["verb"]) == "finalizer" {
                    status = ClaimStatus::Open;
                }
                if status == ClaimStatus::Confirmed {
                    let Some(kind) = self.kind_of(&claim.object) else { continue };
                    let namespace = claim.object.namespace.clone();
                    let permission = (claimant.clone(), kind, namespace, subresource.to_owned());
                    needed.insert(claim.clone(), permission);
                }
                statuses.insert(claim, status);
            }
        }
        (statuses, needed)
    }

    fn status(
        &self,
        write: &ClaimedWrite<'_>,
        claimant: &Claimant,
        object: &ObjectRef,
        change: Option<&Change>,
        log: Option<&[LoggedWrite]>,
    ) -> ClaimStatus {
        let shown = self.shown.filter(|(shown, _)| *shown == object).map(|(_, body)| body);
        if let (Some(_), Some(log)) = (shown, log) {
            return write.by_log(claimant, log);
        }
        if let Some(change) = change {
            let LastWrites { writes, is_of_version } = &change.last_writes;
            let entries: Vec<ManagerEntry<'_>> = writes
                .iter()
                .map(|ManagedWrite { manager, subresource, time }| ManagerEntry {
                    name: manager,
                    subresource,
                    time: *time,
                })
                .collect();
            let status = write.by_managers(&entries, *is_of_version);
            if status != ClaimStatus::Open {
                return status;
            }
        }
        let Some(body) = shown else { return ClaimStatus::Open };
        let metadata = &body["metadata"];
        let entries: Vec<ManagerEntry<'_>> = items(&metadata["managedFields"])
            .map(|entry| ManagerEntry {
                name: text(&entry["manager"]),
                subresource: text(&entry["subresource"]),
                time: parse_rfc3339(text(&entry["time"])),
            })
            .filter(|entry| entry.time.is_none_or(|time| !is_future(time, self.now)))
            .collect();
        // An observed change knows the version before as well.
        write.by_managers(&entries, change.is_none() && text(&metadata["resourceVersion"]) == write.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use kube::client::Body;
    use serde_json::json;

    const OPERATOR: &str = "system:serviceaccount:team-a:op";

    /// An API server on which one user may write everything, with the number of reviews and a log of writes.
    fn client(writer: &'static str, log: Option<Value>, reviews: &Arc<Mutex<usize>>) -> kube::Client {
        let reviews = reviews.clone();
        let respond = move |request: http::Request<Body>| {
            let (log, reviews) = (log.clone(), reviews.clone());
            async move {
                let path = request.uri().path().to_owned();
                let sent = request.into_body().collect_bytes().await?;
                let review: Value = serde_json::from_slice(&sent).unwrap_or_default();
                let (code, body) = match (path.as_str(), log) {
                    ("/debug/api/writes", Some(writes)) => (200, json!({"writes": writes})),
                    ("/apis/authorization.k8s.io/v1/subjectaccessreviews", _) => {
                        *reviews.lock() += 1;
                        (200, json!({"status": {"allowed": review["spec"]["user"] == writer}}))
                    }
                    _ => (404, json!({"kind": "Status", "message": "no such page", "code": 404})),
                };
                let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, kube::Error>(response.expect("valid"))
            }
        };
        kube::Client::new(tower::service_fn(respond), "default")
    }

    fn reference(name: &str) -> ObjectRef {
        let text = |text: &str| text.to_owned();
        ObjectRef { group: text(""), kind: text("ConfigMap"), namespace: text("ns"), name: text(name) }
    }

    /// A change to version 7, with these managers and the seconds of their writes, the newest one first.
    fn change(name: &str, writes: &[(&str, u32)], is_of_version: bool) -> Arc<Change> {
        let write = |(manager, second): &(&str, u32)| {
            let time = format!("2026-01-01T00:00:{second:02}Z").parse().ok();
            ManagedWrite { manager: (*manager).into(), subresource: String::new(), time }
        };
        Arc::new(Change {
            sequence: 1,
            time: String::new(),
            id: name.into(),
            kind: 0,
            namespace: "ns".into(),
            name: name.into(),
            owner: String::new(),
            verb: "change",
            before: String::new(),
            after: "7".into(),
            parts: Vec::new(),
            writer: String::new(),
            last_writes: LastWrites { writes: writes.iter().map(write).collect(), is_of_version },
        })
    }

    /// Returns the statuses of writes of these objects, each of which is claimed to have made version 7.
    async fn statuses(
        client: &kube::Client,
        verifier: &Verifier,
        names: &[&str],
        changes: &[Arc<Change>],
        shown: Option<Value>,
    ) -> Vec<ClaimStatus> {
        statuses_of(json!({"operator": "shop"}), client, verifier, names, changes, shown).await
    }

    /// The same for an operator in this state.
    async fn statuses_of(
        state: Value,
        client: &kube::Client,
        verifier: &Verifier,
        names: &[&str],
        changes: &[Arc<Change>],
        shown: Option<Value>,
    ) -> Vec<ClaimStatus> {
        let text = |text: &str| text.to_owned();
        let (group, version, kind, plural) = (text(""), text("v1"), text("ConfigMap"), text("configmaps"));
        let claimant = Claimant { deployment: text("team-a/op"), namespace: text("team-a"), account: text("op") };
        let operator = Operator { state: Arc::new(state), ..Operator::default() };
        let operators = [Operator { claimed_by: text("team-a/op"), claimant: Some(claimant), ..operator }];
        let write = |name: &&str| json!({"object": json!(reference(name)), "verb": "apply", "after": "7"});
        let value = Arc::new(json!({"writes": names.iter().map(write).collect::<Vec<_>>()}));
        let began = "2026-01-01T00:00:10Z".parse().expect("a time");
        let object = reference(names.first().copied().unwrap_or_default());
        let reconcile = Reconcile { operator: 0, began, value };
        let observed = ObservedData {
            kinds: &[Kind { group, version, kind, plural, namespaced: true }],
            operators: &operators,
            reconciles: std::slice::from_ref(&reconcile),
            changes,
            refers: &|change| reference(&change.name),
            shown: shown.as_ref().map(|body| (&object, body)),
            now: began,
        };
        let found = verifier.verify(client, &observed).await;
        names.iter().map(|name| found.of(&reconcile, &write(name))).collect()
    }

    #[tokio::test]
    async fn observed_versions_confirm_or_contradict_claims() {
        let names = ["own", "other", "same-second", "earlier", "unobserved"];
        let changes = [
            change("own", &[("shop", 10)], true),
            change("other", &[("kubectl", 11)], true),
            change("same-second", &[("kubectl", 11)], false),
            change("earlier", &[("kubectl", 1)], true),
        ];
        let (reviews, verifier) = (Arc::default(), Verifier::default());
        let allowed = client(OPERATOR, None, &reviews);
        let open = ClaimStatus::Open;
        let expected = [ClaimStatus::Confirmed, ClaimStatus::Contradicted, open, open, open];
        assert_eq!(statuses(&allowed, &verifier, &names, &changes, None).await, expected);
        assert_eq!(statuses(&allowed, &verifier, &names, &changes, None).await, expected);
        assert_eq!(*reviews.lock(), 1, "a permission is remembered");
        // The name of a field manager is no proof.
        let denied = client("system:serviceaccount:shop:op", None, &reviews);
        let found = statuses(&denied, &Verifier::default(), &names, &changes, None).await;
        assert_eq!(found[..2], [ClaimStatus::Open, ClaimStatus::Contradicted]);
    }

    #[tokio::test]
    async fn genuine_writes_are_not_contradicted() {
        let allowed = client(OPERATOR, None, &Arc::default());
        let check = async |state: &Value, writes: &[(&str, u32)], expected: ClaimStatus| {
            let changes = [change("a", writes, true)];
            let found = statuses_of(state.clone(), &allowed, &Verifier::default(), &["a"], &changes, None).await;
            assert_eq!(found, [expected], "{state} {writes:?}");
        };
        let named = json!({"operator": "shop", "fieldManager": "shop-controller"});
        check(&named, &[("shop-controller", 10)], ClaimStatus::Confirmed).await;
        check(&named, &[("shop-controller/second", 10)], ClaimStatus::Confirmed).await;
        check(&named, &[("shop", 11)], ClaimStatus::Contradicted).await;
        let unnamed = json!({"operator": "shop"});
        check(&unnamed, &[("shop/second", 11)], ClaimStatus::Confirmed).await;
        // Another manager wrote in the same second, or by a clock that is ahead.
        check(&unnamed, &[("kubectl", 11), ("shop", 11)], ClaimStatus::Confirmed).await;
        check(&unnamed, &[("kubectl", 12), ("shop", 11)], ClaimStatus::Confirmed).await;
        // The write that caused the reconcile, before an apply without fields.
        for second in [9, 10] {
            check(&unnamed, &[("kubectl", second)], ClaimStatus::Open).await;
        }
    }

    #[tokio::test]
    async fn failed_review_is_no_denial() {
        let reviews: Arc<Mutex<usize>> = Arc::default();
        let counted = reviews.clone();
        let respond = move |_: http::Request<Body>| {
            let mut reviews = counted.lock();
            *reviews += 1;
            let (code, body) = match *reviews {
                1 => (429, json!({"kind": "Status", "message": "later", "code": 429})),
                _ => (200, json!({"status": {"allowed": true}})),
            };
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, kube::Error>(response.expect("valid")))
        };
        let client = kube::Client::new(tower::service_fn(respond), "default");
        let (verifier, changes) = (Verifier::default(), [change("a", &[("shop", 10)], true)]);
        for expected in [ClaimStatus::Open, ClaimStatus::Confirmed, ClaimStatus::Confirmed] {
            assert_eq!(statuses(&client, &verifier, &["a"], &changes, None).await, [expected]);
        }
        assert_eq!(*reviews.lock(), 2, "only the answer is remembered");
    }

    #[tokio::test]
    async fn object_that_is_shown_is_verified_by_its_log_or_its_managed_fields() {
        let body = |version: &str, manager: &str| {
            let entry = json!({"manager": manager, "operation": "Apply", "time": "2026-01-01T00:00:11Z"});
            Some(json!({"metadata": {"resourceVersion": version, "managedFields": [entry]}}))
        };
        let reviews = Arc::default();
        let plain = client(OPERATOR, None, &reviews);
        for (version, manager, status) in [
            ("7", "shop", ClaimStatus::Confirmed),
            ("9", "shop", ClaimStatus::Confirmed),
            ("7", "kubectl", ClaimStatus::Contradicted),
            ("9", "kubectl", ClaimStatus::Open),
        ] {
            let found = statuses(&plain, &Verifier::default(), &["a"], &[], body(version, manager)).await;
            assert_eq!(found, [status], "{version} {manager}");
        }
        let logged = |user: &str| Some(json!([{"revision": "7", "user": user, "manager": "shop"}]));
        for (user, status) in [(OPERATOR, ClaimStatus::Confirmed), ("mallory", ClaimStatus::Contradicted)] {
            let logging = client(OPERATOR, logged(user), &reviews);
            let found = statuses(&logging, &Verifier::default(), &["a"], &[], body("7", "shop")).await;
            assert_eq!(found, [status], "{user}");
        }
    }

    #[tokio::test]
    async fn version_with_several_confirmed_claimants_is_confirmed_for_none() {
        let text = |text: &str| text.to_owned();
        let (group, version, kind, plural) = (text(""), text("v1"), text("ConfigMap"), text("configmaps"));
        let operator = |deployment: &str| {
            let claimant = Claimant { deployment: deployment.into(), namespace: text("team-a"), account: text("op") };
            let state = Arc::new(json!({"operator": "shop"}));
            Operator { state, claimed_by: deployment.into(), claimant: Some(claimant), ..Operator::default() }
        };
        let operators = [operator("team-a/op"), operator("team-a/other")];
        let began = "2026-01-01T00:00:10Z".parse().expect("a time");
        let write = |name: &str, subresource: &str| {
            let object = json!(reference(name));
            json!({"object": object, "verb": "apply", "after": "7", "subresource": subresource})
        };
        let reconcile = |operator, id: &str, writes: &[Value]| Reconcile {
            operator,
            began,
            value: Arc::new(json!({"id": id, "writes": writes})),
        };
        let (both, own, status) = (write("both", ""), write("own", ""), write("own", "status"));
        let reconciles =
            [reconcile(0, "1", &[both.clone(), own.clone()]), reconcile(1, "2", &[both.clone(), status.clone()])];
        let observed = ObservedData {
            kinds: &[Kind { group, version, kind, plural, namespaced: true }],
            operators: &operators,
            reconciles: &reconciles,
            changes: &["both", "own"].map(|name| change(name, &[("shop", 10)], false)),
            refers: &|change| reference(&change.name),
            shown: None,
            now: began,
        };
        let client = client(OPERATOR, None, &Arc::default());
        let found = Verifier::default().verify(&client, &observed).await;
        let [first, second] = &reconciles;
        assert_eq!((found.of(first, &both), found.of(second, &both)), (ClaimStatus::Open, ClaimStatus::Open));
        // The claim of another part of the object, or of another reconcile, is another claim.
        assert_eq!((found.of(first, &own), found.of(second, &status)), (ClaimStatus::Confirmed, ClaimStatus::Open));
        assert_eq!((found.of(first, &status), found.of(second, &own)), (ClaimStatus::Open, ClaimStatus::Open));
    }

    #[tokio::test]
    async fn managed_fields_later_than_now_are_no_evidence() {
        let entry = json!({"manager": "shop", "operation": "Apply", "time": "2099-01-01T00:00:00Z"});
        let body = json!({"metadata": {"resourceVersion": "7", "managedFields": [entry]}});
        let client = client(OPERATOR, None, &Arc::default());
        let found = statuses(&client, &Verifier::default(), &["a"], &[], Some(body)).await;
        assert_eq!(found, [ClaimStatus::Open]);
    }

    fn permission(deployment: &str, number: usize) -> Permission {
        let claimant = Claimant { deployment: deployment.into(), ..Claimant::default() };
        (claimant, number, String::new(), String::new())
    }

    #[test]
    fn claimants_take_turns() {
        let mut permissions: Vec<Permission> = (0..100).map(|number| permission("aaa/many", number)).collect();
        permissions.extend([permission("shop/op", 1), permission("shop/op", 2)]);
        let first: Vec<String> =
            in_turns(permissions).into_iter().take(5).map(|(claimant, ..)| claimant.deployment).collect();
        assert_eq!(first, ["aaa/many", "shop/op", "aaa/many", "shop/op", "aaa/many"]);
    }

    #[test]
    fn oldest_permissions_are_forgotten() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mut known: BTreeMap<Permission, (bool, Timestamp)> =
            (0..MAX_PERMISSIONS).map(|number| (permission("aaa/many", number), (false, at(100)))).collect();
        known.insert(permission("shop/op", 0), (true, at(99)));
        known.insert(permission("shop/op", 1), (true, at(101)));
        let mut later = known.clone();
        evict(&mut known, at(101));
        assert_eq!(known.len(), MAX_PERMISSIONS);
        assert!(!known.contains_key(&permission("shop/op", 0)) && known.contains_key(&permission("shop/op", 1)));
        evict(&mut later, at(160));
        assert_eq!(later.into_keys().collect::<Vec<_>>(), [permission("shop/op", 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_of_an_answer_have_one_timeout() {
        // The first review is answered, the others are not.
        let count: Arc<Mutex<usize>> = Arc::default();
        let respond = move |_: http::Request<Body>| {
            *count.lock() += 1;
            let is_first = *count.lock() == 1;
            async move {
                if !is_first {
                    std::future::pending::<()>().await;
                }
                let body = json!({"status": {"allowed": true}}).to_string().into_bytes();
                Ok::<_, kube::Error>(Response::new(Body::from(body)))
            }
        };
        let client = kube::Client::new(tower::service_fn(respond), "default");
        let text = |text: &str| text.to_owned();
        let (group, version, kind, plural) = (text(""), text("v1"), text("ConfigMap"), text("configmaps"));
        let kind = Kind { group, version, kind, plural, namespaced: true };
        let kinds = vec![kind; 20];
        let observed = ObservedData {
            kinds: &kinds,
            operators: &[],
            reconciles: &[],
            changes: &[],
            refers: &|_| ObjectRef::default(),
            shown: None,
            now: Timestamp::UNIX_EPOCH,
        };
        let wanted: BTreeSet<Permission> = (0..20).map(|number| permission("a/op", number)).collect();
        let verifier = Verifier::default();
        let allowed = tokio::time::timeout(REVIEW_TIMEOUT * 2, verifier.allowed(&client, &observed, wanted));
        assert_eq!(allowed.await.expect("an answer in time").len(), 1);
    }
}
