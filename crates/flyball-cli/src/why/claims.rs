//! Claims: pages of operators that were found by a label, which everyone may set.
//!
//! An operator that the command line names, or that runs on this machine, is a witness: its ledger counts as facts. A
//! discovered one is a witness for an object only if the API server's data agrees: the managed fields contain a write
//! of its manager, and its service account may write the object. Then its write is shown as a confirmed claim. The
//! chain of causes follows no claim, since nothing confirms a cause. The console compares writes and chooses among
//! claimants in the same way.
//!
//! Evidence of a write, from the strongest to the weakest: the ledger of a named or local operator, the log of an
//! embedded control plane, managed fields, claims. A version of an object has one writer: among several claims to it,
//! a confirmed one beats the others, and equal ones are ambiguous, so that none of them counts as confirmed.
//! Confirmation comes before age: a claim contains its own time and version, and an invented one must not hide a real
//! one.

use super::fields::Manager;
use super::page::{Reconcile, Write, time};
use flyball_console::{ClaimStatus, Claimant, ClaimedWrite, LoggedWrite, ManagerEntry, best_claims, is_manager};

/// Limit of the Deployments with claims to one write that an answer names.
const MAX_CLAIMANTS: usize = 8;

/// The reconciles of an operator that involve an object.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) operator: String,
    /// Its field manager.
    pub(super) manager: String,
    /// The operator was merely discovered.
    pub(super) claimant: Option<Claimant>,
    pub(super) reconcile: Reconcile,
}

/// A claim to a write of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    pub(super) recorded: &'a Recorded,
    pub(super) claimant: &'a Claimant,
    pub(super) write: &'a Write,
    /// The write can be the one that is searched.
    pub(super) is_answer: bool,
    pub(super) is_confirmed: bool,
}

/// The best claim to a write.
#[derive(Clone, Debug)]
pub(super) struct Choice<'a> {
    pub(super) claim: Claim<'a>,
    /// The Deployments with an equal claim. If there are any, the claim is not confirmed.
    pub(super) others: Vec<String>,
    /// The number of further ones, beyond the limit.
    pub(super) omitted: usize,
}

/// Chooses among the claims to writes of an object, newest first: the newest confirmed answer, otherwise the newest
/// one, against all claims to its version. With a log, revisions decide which confirmed one is the newest, otherwise
/// the times of the claims.
pub(super) fn choose<'a>(claims: &[Claim<'a>], is_logged: bool) -> Option<Choice<'a>> {
    let revision = |claim: &&Claim<'_>| {
        let version = claim.write.after.as_deref().filter(|_| is_logged);
        version.and_then(|version| version.parse::<u64>().ok())
    };
    let answers = || claims.iter().filter(|claim| claim.is_answer);
    // Of equal ones, the last one is the maximum.
    let confirmed: Vec<&Claim<'_>> = answers().filter(|claim| claim.is_confirmed).collect();
    let first = confirmed.into_iter().rev().max_by_key(revision).or_else(|| answers().next())?;
    let is_rival = |claim: &&Claim<'_>| claim.write.after.is_some() && claim.write.after == first.write.after;
    let rivals: Vec<Claim<'a>> = std::iter::once(first).chain(claims.iter().filter(is_rival)).copied().collect();
    let (best, is_confirmed) =
        best_claims(&rivals.iter().map(|claim| (claim.claimant, claim.is_confirmed)).collect::<Vec<_>>());
    let (chosen, rest) = best.split_first()?;
    let others = rest.iter().take(MAX_CLAIMANTS - 1).map(|at| rivals[*at].claimant.deployment.clone());
    let others: Vec<String> = others.collect();
    let omitted = rest.len() - others.len();
    Some(Choice { claim: Claim { is_confirmed, ..rivals[*chosen] }, others, omitted })
}

/// Returns true if the managed fields of an object contain a write of an operator with this field manager.
pub(super) fn manages(manager: &str, managers: &[Manager]) -> bool {
    managers.iter().any(|entry| is_manager(manager, &entry.name))
}

/// Returns true if a claim has the version and the time by which it can be compared.
pub(super) fn is_verifiable(recorded: &Recorded, write: &Write) -> bool {
    write.after.as_deref().is_some_and(|version| !version.is_empty()) && time(&recorded.reconcile.began).is_some()
}

/// Returns true if the API server's data agrees with a write of a claimant that may write the object. With a log of an
/// embedded control plane, only the log counts. Managed fields do not count if another operator has the manager.
pub(super) fn is_confirmed(
    recorded: &Recorded,
    claimant: &Claimant,
    write: &Write,
    managers: Option<&[Manager]>,
    log: Option<&[LoggedWrite]>,
) -> bool {
    let claimed = ClaimedWrite {
        manager: &recorded.manager,
        began: time(&recorded.reconcile.began),
        version: write.after.as_deref().unwrap_or_default(),
        subresource: &write.subresource,
    };
    let status = match log {
        Some(log) => claimed.by_log(claimant, log),
        None => {
            let Some(managers) = managers else { return false };
            let entries = managers.iter().map(|Manager { name, subresource, time, .. }| ManagerEntry {
                name,
                subresource,
                time: *time,
            });
            claimed.by_managers(&entries.collect::<Vec<_>>(), false)
        }
    };
    status == ClaimStatus::Confirmed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmed_claim_beats_others_and_equal_ones_are_ambiguous() {
        let claimant = |name: &str| Claimant { deployment: name.into(), ..Claimant::default() };
        let claimants = [claimant("a/op"), claimant("b/op"), claimant("c/op")];
        let recorded =
            Recorded { operator: "op".into(), manager: "op".into(), claimant: None, reconcile: Reconcile::default() };
        let write = Write { after: Some("7".into()), ..Write::default() };
        let check = |confirmed: &[bool], expected: Option<(&str, bool, &[&str])>| {
            let claims = claimants.iter().zip(confirmed).map(|(claimant, is_confirmed)| Claim {
                recorded: &recorded,
                claimant,
                write: &write,
                is_answer: true,
                is_confirmed: *is_confirmed,
            });
            let chosen = choose(&claims.collect::<Vec<_>>(), false);
            let chosen = chosen
                .map(|Choice { claim, others, .. }| (claim.claimant.deployment.clone(), claim.is_confirmed, others));
            let expected = expected.map(|(name, is_confirmed, others)| {
                (name.to_owned(), is_confirmed, others.iter().map(ToString::to_string).collect())
            });
            assert_eq!(chosen, expected, "{confirmed:?}");
        };
        check(&[], None);
        check(&[true], Some(("a/op", true, &[])));
        check(&[false], Some(("a/op", false, &[])));
        check(&[false, true], Some(("b/op", true, &[])));
        check(&[true, false, true], Some(("a/op", false, &["c/op"])));
        check(&[false, false], Some(("a/op", false, &["b/op"])));
    }

    #[test]
    fn confirmed_claim_beats_newer_ones_to_other_versions() {
        let claimant = |name: &str| Claimant { deployment: name.into(), ..Claimant::default() };
        let recorded =
            Recorded { operator: "op".into(), manager: "op".into(), claimant: None, reconcile: Reconcile::default() };
        // The claims, newest first: the claimant, the version, whether it can be the answer, and is confirmed.
        let check = |claims: &[(&str, &str, bool, bool)], is_logged: bool, expected: (&str, &str, bool)| {
            let parts = claims.iter().map(|(name, version, is_answer, is_confirmed)| {
                let write = Write { after: Some((*version).to_owned()), ..Write::default() };
                (claimant(name), write, *is_answer, *is_confirmed)
            });
            let parts: Vec<_> = parts.collect();
            let found = parts.iter().map(|(claimant, write, is_answer, is_confirmed)| {
                let (is_answer, is_confirmed) = (*is_answer, *is_confirmed);
                Claim { recorded: &recorded, claimant, write, is_answer, is_confirmed }
            });
            let Choice { claim, .. } = choose(&found.collect::<Vec<_>>(), is_logged).unwrap();
            let version = claim.write.after.as_deref().unwrap_or_default();
            assert_eq!((&*claim.claimant.deployment, version, claim.is_confirmed), expected, "{claims:?}");
        };
        let (invented, real) = (("evil/op", "999", true, false), ("shop/op", "7", true, true));
        check(&[invented, real], false, ("shop/op", "7", true));
        check(&[invented, real], true, ("shop/op", "7", true));
        check(&[invented, ("shop/op", "7", true, false)], false, ("evil/op", "999", false));
        check(&[("other/op", "5", true, true), real], false, ("other/op", "5", true));
        check(&[("other/op", "5", true, true), real], true, ("shop/op", "7", true));
        check(&[("shop/op", "9", false, true), real], true, ("shop/op", "7", true));
        check(&[("shop/op", "7", false, false), real], false, ("shop/op", "7", true));
    }

    #[test]
    fn writes_of_discovered_operators_are_facts_only_if_the_api_server_agrees() {
        let claimant = Claimant { deployment: "team-a/op".into(), namespace: "team-a".into(), account: "robot".into() };
        let recorded = Recorded {
            operator: "Shop".into(),
            manager: "shop".into(),
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
            is_confirmed(&recorded, &claimant, &write, Some(managers), log)
        };
        let timeless = Reconcile { began: "zzz".into(), ..Reconcile::default() };
        let timeless = Recorded { reconcile: timeless, ..recorded.clone() };
        assert!(is_verifiable(&recorded, &write) && !is_verifiable(&timeless, &write));
        assert!(!is_verifiable(&recorded, &Write::default()), "it names no version");
        assert!(!is_confirmed(&recorded, &claimant, &write, None, None), "another operator has this manager");
        assert!(!check(&[], None) && !check(&[manager("other", 11)], None));
        assert!(check(&[manager("shop", 11)], None) && check(&[manager("shop", 10)], None));
        assert!(check(&[manager("shop/web", 11)], None), "another controller of the operator wrote the status");
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
        assert!(manages("shop", &[manager("shop", 5)]) && manages("shop", &[manager("shop/web", 5)]));
        assert!(!manages("shop", &[manager("shopping", 5)]) && !manages("shop", &[manager("other", 5)]));
    }
}
