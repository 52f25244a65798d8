//! Claims: pages of operators that were found by a label, which everyone may set.
//!
//! An operator that the command line names, or that runs on this machine, is a witness: its ledger counts as facts. A
//! discovered one is a witness for an object only if the API server's data agrees: the managed fields contain a write
//! of its manager, and its service account may write the object. What others say is shown as a claim, and the chain of
//! causes does not follow it.

use super::fields::Manager;
use super::page::{LoggedWrite, Object, Reconcile, Write, time};
use crate::cluster::kinds::Kind;
use flyball_core::time::{SignedDuration, saturating_add};
use http::Request;
use http::header::CONTENT_TYPE;
use kube::Client;
use serde_json::{Value, json};

/// Managed fields have whole seconds, and clocks differ.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// A Deployment that was discovered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claimant {
    /// `NAMESPACE/DEPLOYMENT`.
    pub(super) deployment: String,
    pub(super) namespace: String,
    /// Service account of the pod.
    pub(super) account: String,
}

/// The reconciles of an operator that involve an object.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) operator: String,
    /// The operator was merely discovered.
    pub(super) claimant: Option<Claimant>,
    pub(super) reconcile: Reconcile,
}

impl Claimant {
    /// Returns the name of its user.
    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }

    /// Returns true if its service account may patch an object, or a subresource of it. Without permission to ask, it
    /// counts as not allowed.
    pub(super) async fn may_write(&self, client: &Client, kind: &Kind, object: &Object, subresource: &str) -> bool {
        let of_namespace = format!("system:serviceaccounts:{}", self.namespace);
        let groups = ["system:serviceaccounts", of_namespace.as_str(), "system:authenticated"];
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": self.user(), "groups": groups, "resourceAttributes": {
                "group": object.group, "version": object.version, "resource": kind.plural,
                "subresource": subresource, "namespace": object.namespace, "name": object.name, "verb": "patch",
            }},
        });
        let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header(CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes());
        let Ok(request) = request else { return false };
        let review = client.request::<Value>(request).await.unwrap_or_default();
        review["status"]["allowed"] == true
    }
}

/// Returns true if the managed fields of an object contain a write of an operator.
pub(super) fn manages(operator: &str, managers: &[Manager]) -> bool {
    managers.iter().any(|manager| manager.name == operator)
}

/// Returns true if the API server's data agrees with a write of a claimant that may write the object.
///
/// The log of an embedded control plane knows user and manager of a version; it proves nothing about those that it has
/// dropped. Without a log, managed fields contain the last write of the manager, which is not before the reconcile.
pub(super) fn is_confirmed(
    recorded: &Recorded,
    claimant: &Claimant,
    write: &Write,
    managers: &[Manager],
    log: Option<&[LoggedWrite]>,
) -> bool {
    if let Some(log) = log {
        let logged = log.iter().find(|logged| write.after.as_ref() == Some(&logged.revision));
        let is_manager = |name: &str| {
            name.strip_prefix(&recorded.operator).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        return logged.is_some_and(|logged| {
            logged.user == claimant.user() && is_manager(&logged.manager) && logged.subresource == write.subresource
        });
    }
    let Some(began) = time(&recorded.reconcile.began) else { return false };
    let is_after = |manager: &&Manager| manager.time.is_some_and(|at| saturating_add(at, TOLERANCE) >= began);
    let is_same =
        |manager: &&Manager| (&manager.name, &manager.subresource) == (&recorded.operator, &write.subresource);
    managers.iter().filter(is_same).any(|manager| is_after(&manager))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_discovered_operators_are_facts_only_if_the_api_server_agrees() {
        let claimant = Claimant { deployment: "team-a/op".into(), namespace: "team-a".into(), account: "robot".into() };
        let recorded = Recorded {
            operator: "shop".into(),
            claimant: Some(claimant.clone()),
            reconcile: Reconcile { began: "2026-01-01T00:00:10Z".into(), ..Reconcile::default() },
        };
        let manager = |name: &str, second: u32| Manager {
            name: name.into(),
            operation: "Apply".into(),
            subresource: String::new(),
            time: time(&format!("2026-01-01T00:00:{second:02}Z")),
        };
        let write = Write { after: Some("7".into()), ..Write::default() };
        let logged = |revision: &str, user: &str, manager: &str| LoggedWrite {
            revision: revision.into(),
            user: user.into(),
            manager: manager.into(),
            ..LoggedWrite::default()
        };
        let check = |managers: &[Manager], log: Option<&[LoggedWrite]>| {
            is_confirmed(&recorded, &claimant, &write, managers, log)
        };
        assert!(!check(&[], None) && !check(&[manager("other", 11)], None));
        assert!(check(&[manager("shop", 11)], None) && check(&[manager("shop", 10)], None));
        assert!(!check(&[manager("shop", 5)], None), "the manager wrote last before the reconcile");
        let status = Manager { subresource: "status".into(), ..manager("shop", 11) };
        assert!(!check(&[status], None), "the manager wrote the status");
        let robot = "system:serviceaccount:team-a:robot";
        assert!(check(&[], Some(&[logged("7", robot, "shop")])) && check(&[], Some(&[logged("7", robot, "shop/web")])));
        let others =
            [("7", "system:serviceaccount:shop-system:shop", "shop"), ("7", robot, "shopping"), ("6", robot, "shop")];
        for (revision, user, name) in others {
            let log = [logged(revision, user, name)];
            assert!(!check(&[manager("shop", 11)], Some(&log)), "{revision} {user} {name}");
        }
        assert!(manages("shop", &[manager("shop", 5)]) && !manages("shop", &[manager("other", 5)]));
    }
}
