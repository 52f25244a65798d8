//! Claims: pages of operators that were found by a label, which everyone may set.
//!
//! An operator that the command line names, or that runs on this machine, is a witness: its ledger counts as facts. A
//! discovered one is a witness for an object only if the API server's data agrees: the managed fields contain a write
//! of its manager, and its service account may write the object. Then its write is shown as a confirmed claim. The
//! chain of causes follows no claim, since nothing confirms a cause. The rules are those of the console.

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
