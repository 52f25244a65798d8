//! Claims: pages of operators that were found by a label, which everyone may set.
//!
//! An operator that the command line names, or that runs on this machine, is a witness: its ledger counts as facts. A
//! discovered one is a witness for an object only if the API server's data agrees: the managed fields contain a write
//! of its manager, and its service account may write the object. What others say is shown as a claim, and the chain of
//! causes does not follow it. The rules are those of the console.

use super::fields::Manager;
use super::page::{Reconcile, Write, time};
use flyball_console::{Claimant, ClaimedWrite, LoggedWrite, ManagerEntry, Verdict};

/// The reconciles of an operator that involve an object.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) operator: String,
    /// The operator was merely discovered.
    pub(super) claimant: Option<Claimant>,
    pub(super) reconcile: Reconcile,
}

/// Returns true if the managed fields of an object contain a write of an operator.
pub(super) fn manages(operator: &str, managers: &[Manager]) -> bool {
    managers.iter().any(|manager| manager.name == operator)
}

/// Returns true if the API server's data agrees with a write of a claimant that may write the object. With a log of an
/// embedded control plane, only the log counts.
pub(super) fn is_confirmed(
    recorded: &Recorded,
    claimant: &Claimant,
    write: &Write,
    managers: &[Manager],
    log: Option<&[LoggedWrite]>,
) -> bool {
    let claimed = ClaimedWrite {
        operator: &recorded.operator,
        began: time(&recorded.reconcile.began),
        version: write.after.as_deref().unwrap_or_default(),
        subresource: &write.subresource,
    };
    let verdict = match log {
        Some(log) => claimed.by_log(claimant, log),
        None => {
            let entries = managers.iter().map(|Manager { name, subresource, time, .. }| ManagerEntry {
                name,
                subresource,
                time: *time,
            });
            claimed.by_managers(&entries.collect::<Vec<_>>(), false)
        }
    };
    verdict == Verdict::Confirmed
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
