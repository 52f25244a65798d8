//! Verification of claims: which claimed writes data of the API server confirms or contradicts.
//!
//! Sources, in this order: the log of an embedded control plane for the object that the page shows, the observed change
//! that made the version, and the managed fields of the object. A write counts as confirmed only if the service account
//! of the claimant may write such objects, which the API server is asked once a minute.

use crate::claims::{Claimant, ClaimedWrite, LoggedWrite, ManagerEntry, Verdict, WriteTarget, logged_writes};
use crate::kind::Kind;
use crate::object::ObjectRef;
use crate::operators::{Operator, Reconcile};
use crate::store::Change;
use crate::summary::{items, text};
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339};
use futures_util::StreamExt;
use futures_util::stream::iter;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Time for which a permission is remembered.
const PERMISSION_AGE: SignedDuration = SignedDuration::from_secs(60);
/// Limit of remembered permissions.
const MAX_PERMISSIONS: usize = 1_000;
/// Limit of permissions that one answer asks for, and of those at a time.
const MAX_QUESTIONS: usize = 64;
const MAX_CONCURRENT: usize = 8;

/// A claimed write: the operator by index, the object, and the version that it made.
type Claim = (usize, ObjectRef, String);
/// A permission: the claimant, the index of the kind, the namespace and the subresource.
type Permission = (Claimant, usize, String, String);

/// The verdicts about claimed writes.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(BTreeMap<Claim, Verdict>);

impl Verdicts {
    /// Returns the verdict about a write.
    pub(crate) fn of(&self, operator: usize, object: &ObjectRef, version: &str) -> Verdict {
        self.0.get(&(operator, object.clone(), version.to_owned())).copied().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn from_iter(verdicts: impl IntoIterator<Item = (usize, ObjectRef, &'static str, Verdict)>) -> Self {
        Self(
            verdicts
                .into_iter()
                .map(|(at, object, version, verdict)| ((at, object, version.into()), verdict))
                .collect(),
        )
    }
}

/// The data for a verification.
pub(crate) struct Evidence<'a> {
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
    /// Returns the verdicts about the writes of operators that were merely discovered.
    pub(crate) async fn verify(&self, client: &kube::Client, evidence: &Evidence<'_>) -> Verdicts {
        if evidence.operators.iter().all(|operator| operator.claimant.is_none()) {
            return Verdicts::default();
        }
        let log = evidence.log(client).await;
        let (mut verdicts, needed) = evidence.verdicts(log.as_deref());
        let wanted: BTreeSet<Permission> = needed.values().cloned().collect();
        let allowed = self.allowed(client, evidence, wanted).await;
        for (claim, permission) in needed {
            if !allowed.contains(&permission) {
                verdicts.insert(claim, Verdict::Open);
            }
        }
        Verdicts(verdicts)
    }

    /// Returns the permissions that exist. Those beyond the limit count as missing.
    async fn allowed(
        &self,
        client: &kube::Client,
        evidence: &Evidence<'_>,
        wanted: BTreeSet<Permission>,
    ) -> BTreeSet<Permission> {
        let (mut allowed, mut unknown) = (BTreeSet::new(), Vec::new());
        {
            let known = self.permissions.lock();
            for permission in wanted {
                let fresh = known.get(&permission).filter(|(_, at)| evidence.now.duration_since(*at) < PERMISSION_AGE);
                match fresh {
                    Some((true, _)) => drop(allowed.insert(permission)),
                    Some((false, _)) => {}
                    None => unknown.push(permission),
                }
            }
        }
        unknown.truncate(MAX_QUESTIONS);
        let questions = unknown.into_iter().filter_map(|permission| {
            let kind = evidence.kinds.get(permission.1)?;
            Some(async move {
                let (claimant, _, namespace, subresource) = &permission;
                let Kind { group, version, plural, .. } = kind;
                let target = WriteTarget { group, version, plural, subresource, namespace, name: "" };
                let may = claimant.may_write(client, &target).await;
                (permission, may)
            })
        });
        let answers: Vec<(Permission, bool)> = iter(questions).buffer_unordered(MAX_CONCURRENT).collect().await;
        let mut known = self.permissions.lock();
        if known.len() + answers.len() > MAX_PERMISSIONS {
            known.clear();
        }
        for (permission, may) in answers {
            known.insert(permission.clone(), (may, evidence.now));
            if may {
                allowed.insert(permission);
            }
        }
        allowed
    }
}

impl Evidence<'_> {
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

    /// Returns the verdicts without permissions, and the permission that each confirmed write needs.
    fn verdicts(&self, log: Option<&[LoggedWrite]>) -> (BTreeMap<Claim, Verdict>, BTreeMap<Claim, Permission>) {
        let changes: BTreeMap<(ObjectRef, &str), &Change> = self
            .changes
            .iter()
            .filter(|change| !change.after.is_empty())
            .map(|change| (((self.refers)(change), change.after.as_str()), &**change))
            .collect();
        let (mut verdicts, mut needed) = (BTreeMap::new(), BTreeMap::new());
        for reconcile in self.reconciles {
            let Some(operator) = self.operators.get(reconcile.operator) else { continue };
            let Some(claimant) = &operator.claimant else { continue };
            for write in items(&reconcile.value["writes"]) {
                let (version, subresource) = (text(&write["after"]), text(&write["subresource"]));
                if version.is_empty() || text(&write["result"]) == "unchanged" {
                    continue;
                }
                let object = ObjectRef::of(&write["object"]);
                let (name, began) = (text(&operator.state["operator"]), Some(reconcile.began));
                let claimed = ClaimedWrite { operator: name, began, version, subresource };
                let change = changes.get(&(object.clone(), version)).copied();
                let mut verdict = self.verdict(&claimed, claimant, &object, change, log);
                // Removing a finalizer of another manager leaves no trace in managed fields.
                if verdict == Verdict::Contradicted && text(&write["verb"]) == "finalizer" {
                    verdict = Verdict::Open;
                }
                let claim = (reconcile.operator, object, version.to_owned());
                if verdict == Verdict::Confirmed {
                    let Some(kind) = self.kind_of(&claim.1) else { continue };
                    let permission = (claimant.clone(), kind, claim.1.namespace.clone(), subresource.to_owned());
                    needed.insert(claim.clone(), permission);
                }
                verdicts.insert(claim, verdict);
            }
        }
        (verdicts, needed)
    }

    fn verdict(
        &self,
        write: &ClaimedWrite<'_>,
        claimant: &Claimant,
        object: &ObjectRef,
        change: Option<&Change>,
        log: Option<&[LoggedWrite]>,
    ) -> Verdict {
        let shown = self.shown.filter(|(shown, _)| *shown == object).map(|(_, body)| body);
        if let (Some(_), Some(log)) = (shown, log) {
            return write.by_log(claimant, log);
        }
        if let Some(change) = change {
            let last = &change.last_write;
            let entry = ManagerEntry { name: &last.manager, subresource: &last.subresource, time: last.time };
            let verdict = write.by_managers(&[entry], last.is_only);
            if verdict != Verdict::Open {
                return verdict;
            }
        }
        let Some(body) = shown else { return Verdict::Open };
        let metadata = &body["metadata"];
        let entries: Vec<ManagerEntry<'_>> = items(&metadata["managedFields"])
            .map(|entry| ManagerEntry {
                name: text(&entry["manager"]),
                subresource: text(&entry["subresource"]),
                time: parse_rfc3339(text(&entry["time"])),
            })
            .collect();
        write.by_managers(&entries, text(&metadata["resourceVersion"]) == write.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::LastWrite;
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

    fn change(name: &str, manager: &str, second: u32, is_only: bool) -> Arc<Change> {
        let time = format!("2026-01-01T00:00:{second:02}Z").parse().ok();
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
            writer: manager.into(),
            last_write: LastWrite { manager: manager.into(), subresource: String::new(), time, is_only },
        })
    }

    /// Returns the verdicts about writes of these objects, each of which is claimed to have made version 7.
    async fn verdicts(
        client: &kube::Client,
        verifier: &Verifier,
        names: &[&str],
        changes: &[Arc<Change>],
        shown: Option<Value>,
    ) -> Vec<Verdict> {
        let text = |text: &str| text.to_owned();
        let (group, version, kind, plural) = (text(""), text("v1"), text("ConfigMap"), text("configmaps"));
        let claimant = Claimant { deployment: text("team-a/op"), namespace: text("team-a"), account: text("op") };
        let operator = Operator { state: Arc::new(json!({"operator": "shop"})), ..Operator::default() };
        let operators = [Operator { claimed_by: text("team-a/op"), claimant: Some(claimant), ..operator }];
        let write = |name: &&str| json!({"object": json!(reference(name)), "verb": "apply", "after": "7"});
        let value = Arc::new(json!({"writes": names.iter().map(write).collect::<Vec<_>>()}));
        let began = "2026-01-01T00:00:10Z".parse().expect("a time");
        let object = reference(names.first().copied().unwrap_or_default());
        let evidence = Evidence {
            kinds: &[Kind { group, version, kind, plural, namespaced: true }],
            operators: &operators,
            reconciles: &[Reconcile { operator: 0, began, value }],
            changes,
            refers: &|change| reference(&change.name),
            shown: shown.as_ref().map(|body| (&object, body)),
            now: began,
        };
        let found = verifier.verify(client, &evidence).await;
        names.iter().map(|name| found.of(0, &reference(name), "7")).collect()
    }

    #[tokio::test]
    async fn observed_versions_confirm_or_contradict_claims() {
        let names = ["own", "other", "same-second", "earlier", "unobserved"];
        let changes = [
            change("own", "shop", 10, true),
            change("other", "kubectl", 11, true),
            change("same-second", "kubectl", 11, false),
            change("earlier", "kubectl", 1, true),
        ];
        let (reviews, verifier) = (Arc::default(), Verifier::default());
        let allowed = client(OPERATOR, None, &reviews);
        let expected = [Verdict::Confirmed, Verdict::Contradicted, Verdict::Open, Verdict::Open, Verdict::Open];
        assert_eq!(verdicts(&allowed, &verifier, &names, &changes, None).await, expected);
        assert_eq!(verdicts(&allowed, &verifier, &names, &changes, None).await, expected);
        assert_eq!(*reviews.lock(), 1, "a permission is remembered");
        // The name of a field manager is no proof.
        let denied = client("system:serviceaccount:shop:op", None, &reviews);
        let found = verdicts(&denied, &Verifier::default(), &names, &changes, None).await;
        assert_eq!(found[..2], [Verdict::Open, Verdict::Contradicted]);
    }

    #[tokio::test]
    async fn object_that_is_shown_is_verified_by_its_log_or_its_managed_fields() {
        let body = |version: &str, manager: &str| {
            let entry = json!({"manager": manager, "operation": "Apply", "time": "2026-01-01T00:00:11Z"});
            Some(json!({"metadata": {"resourceVersion": version, "managedFields": [entry]}}))
        };
        let reviews = Arc::default();
        let plain = client(OPERATOR, None, &reviews);
        for (version, manager, verdict) in [
            ("7", "shop", Verdict::Confirmed),
            ("9", "shop", Verdict::Confirmed),
            ("7", "kubectl", Verdict::Contradicted),
            ("9", "kubectl", Verdict::Open),
        ] {
            let found = verdicts(&plain, &Verifier::default(), &["a"], &[], body(version, manager)).await;
            assert_eq!(found, [verdict], "{version} {manager}");
        }
        let logged = |user: &str| Some(json!([{"revision": "7", "user": user, "manager": "shop"}]));
        for (user, verdict) in [(OPERATOR, Verdict::Confirmed), ("mallory", Verdict::Contradicted)] {
            let logging = client(OPERATOR, logged(user), &reviews);
            let found = verdicts(&logging, &Verifier::default(), &["a"], &[], body("7", "shop")).await;
            assert_eq!(found, [verdict], "{user}");
        }
    }
}
