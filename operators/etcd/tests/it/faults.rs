//! Tests with seeded random faults in calls to etcd and to the API server.

use crate::world::{World, run_scenario, run_scenario_with};
use etcd_operator::model::Faults as Etcd;
use flyball_cluster::Faults;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

const API: Faults = Faults {
    conflict: 0.03,
    server_error: 0.03,
    lost_response: 0.03,
    broken_watch: 0.02,
    late: 0.05,
    repeated: 0.02,
    ..Faults::NONE
};
const ETCD: Etcd = Etcd { rejected: 0.1, lost: 0.1 };

/// Creates a cluster, breaks it, upgrades it and resizes it.
async fn scenario(world: &World) {
    world.model.set_faults(ETCD);
    world.create(3, json!({})).await;
    world.put("foo", "bar").await;
    world.start_counting();
    let names = world.names().await;
    world.delete_pod(&names[0]).await;
    world.until("the status reports the lost member", async |status| !status.members.ready.contains(&names[0])).await;
    world.settled(3).await;
    world.patch(json!({"version": "3.3.12"})).await;
    sleep(Duration::from_secs(10)).await;
    world.settled(3).await;
    for size in [4, 2] {
        world.patch(json!({"size": size})).await;
        sleep(Duration::from_secs(10)).await;
        world.settled(size).await;
    }
    assert_eq!(world.get("foo").await.as_deref(), Some("bar"));
    assert!(world.quorum_kept.get(), "the quorum was lost");
    assert!(world.failures.borrow().is_empty(), "{:?}", world.failures.borrow());
    assert_eq!(world.model.member_counts(), [(2, 2)]);
}

#[test]
fn faulty_run_converges_and_repeats_by_seed() {
    let seeds = std::env::var("FLYBALL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    for seed in 0..seeds {
        let first = run_scenario_with(seed, API, scenario);
        let again = run_scenario_with(seed, API, scenario);
        let differs = first.lines().zip(again.lines()).find(|(a, b)| a != b);
        assert!(differs.is_none() && first.len() == again.len(), "seed {seed}: {differs:?}");
    }
}

#[test]
fn errors_of_etcd_are_retried() {
    run_scenario(async |world| {
        world.create(1, json!({})).await;
        world.model.set_faults(Etcd { rejected: 1.0, lost: 0.0 });
        world.patch(json!({"size": 3})).await;
        sleep(Duration::from_secs(900)).await;
        assert_eq!(world.model.member_counts(), [(1, 1)]);
        world.model.set_faults(Etcd::default());
        world.settled(3).await;
        assert_eq!(world.status().await.incarnation.unwrap().number, 1, "a member that does not respond is not lost");
    });
}

#[test]
fn no_member_is_added_while_one_cannot_start() {
    run_scenario(async |world| {
        world.create(1, json!({})).await;
        // All nodes are unschedulable.
        world.cordon(true).await;
        world.patch(json!({"size": 3})).await;
        let status = world.until("a member is added", async |status| status.size == 2).await;
        assert_ne!(crate::world::condition(&status, "Available"), "True");
        for _ in 0..200 {
            sleep(Duration::from_secs(1)).await;
            let status = world.status().await;
            assert_ne!(crate::world::condition(&status, "Available"), "True");
            assert_eq!(world.model.member_counts(), [(2, 1)], "none is added while one has not started");
        }
        world.cordon(false).await;
        world.settled(3).await;
        assert_eq!(world.status().await.incarnation.unwrap().number, 1);
    });
}
