//! Claims: pages of operators that were found by a label, which everyone may set.
//!
//! An operator that the command line names, or that runs on this machine, is a witness: its ledger counts as facts. A
//! discovered one is a witness for an object only if the API server's data agrees: the managed fields contain a write
//! of its manager, and its service account may write the object. Then its write is shown as a confirmed claim. The
//! chain of causes follows no claim, since nothing confirms a cause. The rules are those of the console.
//!
//! Evidence of a write, from the strongest to the weakest: the ledger of a named or local operator, the log of an
//! embedded control plane, managed fields, claims. A version of an object has one writer: among several claims to it,
//! a confirmed one beats the others, and equal ones are ambiguous, so that none of them counts as confirmed.

use super::fields::Manager;
use super::page::{Reconcile, Write, time};
use flyball_console::{ClaimStatus, Claimant, ClaimedWrite, LoggedWrite, ManagerEntry, is_manager};

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

/// A claim to a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    pub(super) recorded: &'a Recorded,
    pub(super) claimant: &'a Claimant,
    pub(super) write: &'a Write,
    pub(super) is_confirmed: bool,
}

/// Chooses among the claims to one write, newest first. Returns it with the Deployments of those that are equal to it;
/// if there are any, it is not confirmed.
pub(super) fn choose<'a>(claims: &[Claim<'a>]) -> Option<(Claim<'a>, Vec<String>)> {
    let has_confirmed = claims.iter().any(|claim| claim.is_confirmed);
    let mut best = claims.iter().filter(|claim| claim.is_confirmed == has_confirmed);
    let chosen = *best.next()?;
    let others: Vec<String> = best.map(|claim| claim.claimant.deployment.clone()).collect();
    Some((Claim { is_confirmed: has_confirmed && others.is_empty(), ..chosen }, others))
}

/// Returns true if the managed fields of an object contain a write of an operator with this field manager.
pub(super) fn manages(manager: &str, managers: &[Manager]) -> bool {
    managers.iter().any(|entry| is_manager(manager, &entry.name))
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
        let write = Write::default();
        let check = |confirmed: &[bool], expected: Option<(&str, bool, &[&str])>| {
            let claims = claimants.iter().zip(confirmed).map(|(claimant, is_confirmed)| Claim {
                recorded: &recorded,
                claimant,
                write: &write,
                is_confirmed: *is_confirmed,
            });
            let chosen = choose(&claims.collect::<Vec<_>>());
            let chosen = chosen.map(|(claim, others)| (claim.claimant.deployment.clone(), claim.is_confirmed, others));
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
