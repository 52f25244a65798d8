//! Claims: what operators say that were found by a label, which everyone may set, and how data of the API server
//! confirms or contradicts it. `flyball why` uses the same rules.
//!
//! A claimed write is confirmed only if the API server names the manager of the operator for it, and the service
//! account of the operator may write the object: the name of a field manager is no proof. The cause of a write is never
//! confirmed, since only the operator knows it.

use flyball_core::service_account;
use flyball_core::time::{SignedDuration, Timestamp, saturating_add};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

/// Managed fields have whole seconds, and clocks differ.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);
/// Status code of a request without permission.
const FORBIDDEN: u16 = StatusCode::FORBIDDEN.as_u16();

/// A Deployment that was merely discovered, with the service account of its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    /// `NAMESPACE/DEPLOYMENT`.
    pub deployment: String,
    /// Namespace of the Deployment.
    pub namespace: String,
    /// Service account of the pod.
    pub account: String,
}

/// An object, or all objects of a kind in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteTarget<'a> {
    /// Group, empty for the core group.
    pub group: &'a str,
    /// Version.
    pub version: &'a str,
    /// Plural name of the kind.
    pub plural: &'a str,
    /// Subresource, empty for none.
    pub subresource: &'a str,
    /// Namespace, empty for none.
    pub namespace: &'a str,
    /// Name, empty for all objects.
    pub name: &'a str,
}

impl Claimant {
    /// Returns the name of its user.
    pub fn user(&self) -> String {
        service_account::user_name(&self.namespace, &self.account)
    }

    /// Returns true if its service account may patch an object, or a subresource of it. Without permission to ask, it
    /// counts as not allowed; after another failed request, the permission is unknown.
    pub async fn may_write(&self, client: &Client, target: &WriteTarget<'_>) -> Option<bool> {
        let [all, own] = service_account::group_names(&self.namespace);
        let groups = [&*all, &*own, "system:authenticated"];
        let WriteTarget { group, version, plural, subresource, namespace, name } = target;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": self.user(), "groups": groups, "resourceAttributes": {
                "group": group, "version": version, "resource": plural, "subresource": subresource,
                "namespace": namespace, "name": name, "verb": "patch",
            }},
        });
        let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header(CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes());
        match client.request::<Value>(request.ok()?).await {
            Ok(review) => review["status"]["allowed"].as_bool(),
            Err(kube::Error::Api(status)) if status.code == FORBIDDEN => Some(false),
            Err(_) => None,
        }
    }
}

/// A write of an object that an embedded control plane keeps, with its user.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoggedWrite {
    /// The resource version that it resulted in.
    pub revision: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Time.
    pub time: String,
    /// Authenticated user.
    pub user: String,
    /// User agent.
    pub agent: String,
    /// Field manager.
    pub manager: String,
    /// Verb of the request.
    pub verb: String,
}

/// The writes that an embedded control plane keeps.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WriteLog {
    writes: Vec<LoggedWrite>,
}

/// Returns the writes of an object with their users, newest first. Embedded control planes keep them, for
/// administrators; `None` on other clusters.
pub async fn logged_writes(
    client: &Client,
    (group, plural): (&str, &str),
    (namespace, name): (&str, &str),
) -> Option<Vec<LoggedWrite>> {
    let pairs = [("group", group), ("resource", plural), ("name", name), ("namespace", namespace)];
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let request = Request::get(format!("/debug/api/writes?{query}")).body(Vec::new()).ok()?;
    client.request::<WriteLog>(request).await.ok().map(|log| log.writes)
}

/// An entry of managed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagerEntry<'a> {
    /// The manager.
    pub name: &'a str,
    /// Subresource, empty for none.
    pub subresource: &'a str,
    /// Time of its last write.
    pub time: Option<Timestamp>,
}

/// Result of the comparison of a claim with data of the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimStatus {
    /// The API server names the operator for the write.
    Confirmed,
    /// The API server names another writer.
    Contradicted,
    /// The API server has no evidence.
    #[default]
    Open,
}

/// A write in the ledger of an operator.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedWrite<'a> {
    /// Field manager of the operator. Further controllers of a kind apply the status as `MANAGER/CONTROLLER`.
    pub manager: &'a str,
    /// Start of the reconcile.
    pub began: Option<Timestamp>,
    /// The resource version that it resulted in; empty for none.
    pub version: &'a str,
    /// Subresource, empty for none.
    pub subresource: &'a str,
}

/// Chooses among claims to one version of an object, which has one writer. Each claim has its claimant, and whether the
/// API server confirms it. Returns the positions of the best claims, one for each claimant, and whether the first of
/// them counts as confirmed: equal ones are ambiguous.
pub fn best_claims(claims: &[(&Claimant, bool)]) -> (Vec<usize>, bool) {
    let has_confirmed = claims.iter().any(|(_, is_confirmed)| *is_confirmed);
    let mut best: Vec<usize> = Vec::new();
    for (at, (claimant, is_confirmed)) in claims.iter().enumerate() {
        if *is_confirmed == has_confirmed && best.iter().all(|known| claims[*known].0 != *claimant) {
            best.push(at);
        }
    }
    let is_confirmed = has_confirmed && best.len() == 1;
    (best, is_confirmed)
}

/// Returns true if the name is the field manager of an operator, or that of a further controller of it.
pub fn is_manager(manager: &str, name: &str) -> bool {
    let rest = name.strip_prefix(manager).filter(|_| !manager.is_empty());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl ClaimedWrite<'_> {
    /// Compares the write with the log of an embedded control plane, which knows user and manager of a version. The log
    /// proves nothing about those that it has dropped.
    pub fn by_log(&self, claimant: &Claimant, log: &[LoggedWrite]) -> ClaimStatus {
        let logged = log.iter().find(|logged| !self.version.is_empty() && logged.revision == self.version);
        let Some(logged) = logged else { return ClaimStatus::Open };
        let is_same = is_manager(self.manager, &logged.manager) && logged.subresource == self.subresource;
        match logged.user == claimant.user() && is_same {
            true => ClaimStatus::Confirmed,
            false => ClaimStatus::Contradicted,
        }
    }

    /// Compares the write with managed fields, which contain the last write of each manager. It is not before the
    /// reconcile.
    ///
    /// `is_of_version` means that they are those of the object right after the claimed write. Then a write of another
    /// manager after the begin of the reconcile contradicts the claim. An earlier one proves nothing: it may have
    /// caused the reconcile, and a server-side apply without fields leaves no entry.
    pub fn by_managers(&self, managers: &[ManagerEntry<'_>], is_of_version: bool) -> ClaimStatus {
        let Some(began) = self.began else { return ClaimStatus::Open };
        let is_same =
            |entry: &ManagerEntry<'_>| is_manager(self.manager, entry.name) && entry.subresource == self.subresource;
        let is_possible =
            |entry: &ManagerEntry<'_>| entry.time.is_some_and(|at| saturating_add(at, TOLERANCE) >= began);
        let is_later = |entry: &ManagerEntry<'_>| entry.time.is_some_and(|at| at > began);
        if managers.iter().any(|entry| is_same(entry) && is_possible(entry)) {
            return ClaimStatus::Confirmed;
        }
        match is_of_version && managers.iter().any(is_later) {
            true => ClaimStatus::Contradicted,
            false => ClaimStatus::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(second: u32) -> Option<Timestamp> {
        format!("2026-01-01T00:00:{second:02}Z").parse().ok()
    }

    fn write() -> ClaimedWrite<'static> {
        ClaimedWrite { manager: "shop", began: time(10), version: "7", subresource: "" }
    }

    #[test]
    fn managed_fields_confirm_or_contradict_a_write() {
        let manager = |name, second| ManagerEntry { name, subresource: "", time: time(second) };
        let status = ManagerEntry { subresource: "status", ..manager("shop", 11) };
        for (managers, of_any_version, of_this_version) in [
            (vec![], ClaimStatus::Open, ClaimStatus::Open),
            (vec![manager("shop", 11)], ClaimStatus::Confirmed, ClaimStatus::Confirmed),
            (vec![manager("shop", 10), manager("other", 11)], ClaimStatus::Confirmed, ClaimStatus::Confirmed),
            // It wrote last before the reconcile.
            (vec![manager("shop", 5)], ClaimStatus::Open, ClaimStatus::Open),
            (vec![manager("shop", 5), manager("other", 11)], ClaimStatus::Open, ClaimStatus::Contradicted),
            (vec![manager("other", 11)], ClaimStatus::Open, ClaimStatus::Contradicted),
            (vec![manager("other", 5)], ClaimStatus::Open, ClaimStatus::Open),
            // It may have caused the reconcile.
            (vec![manager("other", 9)], ClaimStatus::Open, ClaimStatus::Open),
            (vec![manager("other", 10)], ClaimStatus::Open, ClaimStatus::Open),
            // A further controller, and another operator.
            (vec![manager("shop/web", 11)], ClaimStatus::Confirmed, ClaimStatus::Confirmed),
            (vec![manager("shopping", 11)], ClaimStatus::Open, ClaimStatus::Contradicted),
            (vec![status], ClaimStatus::Open, ClaimStatus::Contradicted),
        ] {
            assert_eq!(write().by_managers(&managers, false), of_any_version, "{managers:?}");
            assert_eq!(write().by_managers(&managers, true), of_this_version, "{managers:?}");
        }
        let nameless = ClaimedWrite { manager: "", ..write() };
        assert_eq!(nameless.by_managers(&[manager("", 11)], false), ClaimStatus::Open);
    }

    #[test]
    fn confirmed_claim_beats_others_and_equal_ones_are_ambiguous() {
        let claimant = |name: &&str| Claimant { deployment: (*name).into(), ..Claimant::default() };
        let [a, b, c] = ["a/op", "b/op", "c/op"].each_ref().map(claimant);
        let check = |claims: &[(&Claimant, bool)], best: &[usize], is_confirmed: bool| {
            assert_eq!(best_claims(claims), (best.to_vec(), is_confirmed), "{claims:?}");
        };
        check(&[], &[], false);
        check(&[(&a, true)], &[0], true);
        check(&[(&a, false)], &[0], false);
        check(&[(&a, false), (&b, true)], &[1], true);
        check(&[(&a, true), (&b, false), (&c, true)], &[0, 2], false);
        check(&[(&a, false), (&b, false)], &[0, 1], false);
        check(&[(&a, false), (&a, true), (&a, true)], &[1], true);
    }

    #[test]
    fn log_of_an_embedded_control_plane_decides_about_its_versions() {
        let claimant = Claimant { deployment: "team-a/op".into(), namespace: "team-a".into(), account: "robot".into() };
        let robot = "system:serviceaccount:team-a:robot";
        let status = |revision: &str, user: &str, manager: &str| {
            let (revision, user, manager) = (revision.into(), user.into(), manager.into());
            write().by_log(&claimant, &[LoggedWrite { revision, user, manager, ..LoggedWrite::default() }])
        };
        assert_eq!(
            (status("7", robot, "shop"), status("7", robot, "shop/web")),
            (ClaimStatus::Confirmed, ClaimStatus::Confirmed)
        );
        for (user, manager) in [("system:serviceaccount:shop-system:shop", "shop"), (robot, "shopping")] {
            assert_eq!(status("7", user, manager), ClaimStatus::Contradicted, "{user} {manager}");
        }
        assert_eq!(status("6", robot, "shop"), ClaimStatus::Open);
    }
}
