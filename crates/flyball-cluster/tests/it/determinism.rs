//! A cluster with an operator in it repeats from a seed.

use flyball::{Operator, Rng};
use flyball_cluster::{Cluster, Controllers, Faults, Options, Trace, User, simulated_clock};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::json;
use std::future::pending;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use vmgroup::converge::Groups;
use vmgroup::operator::{NAME, VmGroups};
use vmgroup::resource::{Phase, VmGroup};
use vmgroup::simulator::{self, Simulator, TaskTimes};
use vmgroup::vsphere::{Client, Site, Timing};

const GROUPS: usize = 20;
const SEEDS: u64 = 200;
const FAULTS: Faults = Faults { conflict: 0.03, refused: 0.03, lost: 0.03, cut: 0.02, late: 0.02, repeated: 0.02 };

/// Brings up groups, scales them, breaks them and deletes them; gives all that passed between operator and servers.
async fn story(seed: u64) -> String {
    let clock = simulated_clock();
    let cluster = Cluster::new(Options::simulated(clock.clone(), seed));
    let rng = Rng::from_seed(seed);
    let (trace, admin) = (Trace::default(), cluster.admin());

    let times =
        TaskTimes { clone: Duration::from_secs(3), power: Duration::from_secs(1), destroy: Duration::from_secs(1) };
    let simulator = Simulator::new(simulator::Options { tasks: times, ..simulator::Options::default() });
    let vcenter =
        Client::new(Simulator::credentials(), Site::default(), Timing::default(), simulator.transport()).unwrap();
    let groups = VmGroups::new(Groups::new(vcenter, 3), Duration::from_secs(60));
    let operator = Operator::new(NAME).clock(clock).rng(rng.fork("operator")).controller(groups.controller());
    let user = User::new("operator", &["system:masters"]);
    let client = cluster.simulated_client(user, FAULTS, rng.fork("faults"), trace.clone());

    let definitions = Api::all(admin.clone());
    definitions.create(&PostParams::default(), &VmGroup::crd()).await.unwrap();
    let objects: Api<VmGroup> = Api::namespaced(admin, "default");
    let story = async {
        for n in 0..GROUPS {
            let group = json!({
                "metadata": {"name": format!("vg-{n}")},
                "spec": {"cpu": 1, "memory": 1, "replicas": 1 + n % 3, "template": "vm-operator-template"},
            });
            let group = VmGroup { ..serde_json::from_value(group).unwrap() };
            objects.create(&PostParams::default(), &group).await.unwrap();
        }
        settled(&objects).await;
        for n in 0..GROUPS {
            let scale = json!({"spec": {"replicas": 1 + (n + 1) % 3}});
            objects.patch_scale(&format!("vg-{n}"), &PatchParams::default(), &Patch::Merge(scale)).await.unwrap();
        }
        simulator.power_off(&simulator.vms()[0].name);
        settled(&objects).await;
        let all = (DeleteParams::default(), ListParams::default());
        objects.delete_collection(&all.0, &all.1).await.unwrap();
        while !objects.list(&ListParams::default()).await.unwrap().items.is_empty() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let controllers = Controllers::all();
    tokio::select! {
        biased;
        ended = timeout(Duration::from_secs(24 * 3600), story) => ended.expect("the story comes to its end within a day"),
        ended = operator.run(client, pending()) => panic!("the operator ended: {ended:?}"),
        () = cluster.run(&controllers) => unreachable!("controllers run for ever"),
    }
    assert!(simulator.vms().is_empty(), "no machine is left behind");
    format!("{}{:#?}", trace.text(), simulator.calls())
}

/// Waits until every group is what it should be.
async fn settled(objects: &Api<VmGroup>) {
    loop {
        sleep(Duration::from_secs(5)).await;
        let groups = objects.list(&ListParams::default()).await.unwrap();
        let is_settled = |group: &VmGroup| {
            group.status.as_ref().is_some_and(|status| {
                status.phase == Some(Phase::Running)
                    && status.desired_replicas == Some(group.spec.replicas)
                    && status.current_replicas == Some(group.spec.replicas)
            })
        };
        if groups.iter().all(is_settled) {
            return;
        }
        assert!(groups.iter().all(|group| group.uid().is_some()));
    }
}

fn run(seed: u64) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(story(seed))
}

/// Says where two traces part, which is what one wants to know of two long texts.
fn assert_same(seed: u64, one: &str, other: &str) {
    if one == other {
        return;
    }
    let (at, (one, other)) = one.lines().zip(other.lines()).enumerate().find(|(_, (a, b))| a != b).unwrap_or_default();
    panic!("seed {seed} does not repeat, from line {at} on:\n{one:.600}\n{other:.600}");
}

#[test]
fn a_cluster_with_an_operator_repeats_from_a_seed() {
    let seeds = std::env::var("FLYBALL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let mut before = String::new();
    for seed in 0..seeds {
        let again = std::thread::spawn(move || run(seed));
        let trace = run(seed);
        assert_same(seed, &trace, &again.join().unwrap());
        assert_ne!(trace, before, "another seed is another story");
        before = trace;
    }
}
