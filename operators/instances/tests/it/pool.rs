//! A pool never gives an address to two claims.

use crate::simulated::{SimulatedCloud, explorer, sample};
use flyball_explore::{Budget, Explorer, Report, Scenario, World};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

const POOL: &str = "
apiVersion: compute.flyball.dev/v1alpha1
kind: IpPool
metadata: {name: public}
spec: {addresses: [192.0.2.1, 192.0.2.2]}
";

fn claim(name: &str) -> String {
    sample!("ipclaim").replace("reserved", name)
}

/// Four claims for two addresses; later, two of them are deleted.
fn contention() -> Scenario {
    let claims = ["a", "b", "c", "d"].into_iter().map(claim);
    let applied = claims.fold(Scenario::new("contention").apply(POOL), Scenario::apply);
    // Addresses are given in the order of the claims, so all are given before the first deletion.
    let deleted = applied.settle().wait(Duration::from_secs(60)).delete("ipclaims.compute.flyball.dev/a");
    let moved = deleted.delete("ipclaims.compute.flyball.dev/c").settle();
    // A pool that a fault deletes waits for its claims.
    moved.delete("ipclaims.compute.flyball.dev/b").delete("ipclaims.compute.flyball.dev/d").settle()
}

/// Checks that each address has one holder, which exists, and that each claim has the address that the pool says.
fn addresses_are_held_once(world: &World) -> Result<(), String> {
    let claims = world.objects("ipclaims.compute.flyball.dev");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let by_uid: BTreeMap<String, &Value> =
        claims.iter().map(|claim| (text(&claim["metadata"]["uid"]), claim)).collect();
    let mut held: BTreeMap<String, String> = BTreeMap::new();
    for pool in world.objects("ippools.compute.flyball.dev") {
        for allocation in pool["status"]["allocations"].as_array().into_iter().flatten() {
            let (address, uid) = (text(&allocation["address"]), text(&allocation["claim"]["uid"]));
            if !by_uid.contains_key(&uid) {
                return Err(format!("the holder of {address} does not exist"));
            }
            if held.values().any(|holder| *holder == uid) {
                return Err(format!("a claim holds {address} and another address"));
            }
            if held.insert(address.clone(), uid).is_some() {
                return Err(format!("{address} has two holders in the pool"));
            }
        }
    }
    let mut used = BTreeSet::new();
    for (uid, claim) in &by_uid {
        let address = text(&claim["status"]["address"]);
        let is_deleting = !claim["metadata"]["deletionTimestamp"].is_null();
        if address.is_empty() || is_deleting {
            continue;
        }
        if !used.insert(address.clone()) {
            return Err(format!("two claims have {address}"));
        }
        if held.get(&address) != Some(uid) {
            return Err(format!("claim {} has {address}, which the pool does not say", claim["metadata"]["name"]));
        }
    }
    Ok(())
}

/// Asserts that an exploration finds nothing, and that it had many different interleavings.
#[expect(clippy::print_stderr, reason = "the coverage of an exploration is shown with --nocapture")]
fn assert_clean(report: &Report, interleavings: usize) {
    eprintln!("{report}");
    report.assert_clean();
    // `flyball explore` sets another budget.
    if std::env::var_os("FLYBALL_EXPLORE_BUDGET").is_none() {
        let traces = report.to_json()["traces"].as_u64().unwrap();
        assert!(traces >= u64::try_from(interleavings).unwrap(), "only {traces} interleavings");
    }
}

fn claims(explorer: Explorer) -> Explorer {
    let explorer = explorer.scenario(contention()).without_campaigns();
    explorer.invariant("an address has one holder", addresses_are_held_once)
}

#[test]
fn explore_claims_never_share_an_address() {
    let report = claims(explorer(SimulatedCloud::new)).budget(Budget::schedules(1200)).run();
    assert_clean(&report, 1000);
}

#[test]
fn explore_replicas_never_share_an_address() {
    let operator = || {
        let operator = instances::operator(|| Ok::<_, Infallible>(flyball_explore::external::<SimulatedCloud>()));
        operator.leader_election(flyball::LeaderElection::default())
    };
    let explorer = Explorer::of(operator).external(SimulatedCloud::new).nodes(0).replicas(2);
    assert_clean(&claims(explorer).budget(Budget::schedules(300)).run(), 200);
}

#[test]
fn explore_deleted_machine_leaves_nothing_behind() {
    let parts = [sample!("network"), sample!("firewall"), POOL, sample!("instance")];
    let scenario = parts.into_iter().fold(Scenario::new("machine"), Scenario::apply).settle();
    let deleted = scenario.wait(Duration::from_secs(30)).delete("instances.compute.flyball.dev/web-1").settle();
    let explorer = explorer(SimulatedCloud::new).scenario(deleted).without_campaigns();
    let explorer = explorer.invariant("an address has one holder", addresses_are_held_once);
    assert_clean(&explorer.budget(Budget::schedules(200)).run(), 100);
}
