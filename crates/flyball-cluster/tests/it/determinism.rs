//! A cluster with an operator is deterministic for a seed.

use flyball::{Operator, Rng};
use flyball_cluster::{Cluster, Controller, Controllers, Faults, Nodes, Options, Trace, User, simulated_clock};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::json;
use std::future::pending;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use vmgroup::NAME;
use vmgroup::api::vmgroup_v1alpha1::{Phase, VmGroup};
use vmgroup::controllers::vmgroup::{VmGroupReconciler, controller};
use vmgroup::converge::Groups;
use vmgroup::simulator::{self, Simulator, TaskTimes};
use vmgroup::vsphere::{Client, Site, Timing};

const GROUPS: usize = 20;
const SEEDS: u64 = 200;
const FAULTS: Faults = Faults {
    conflict: 0.03,
    server_error: 0.03,
    lost_response: 0.03,
    broken_watch: 0.02,
    late: 0.02,
    repeated: 0.02,
    expired: 0.05,
    slow: 0.02,
};

/// Creates groups, scales them, breaks them and deletes them; returns the trace of the operator's requests.
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
    let groups = VmGroupReconciler::new(Groups::new(vcenter, 3), Duration::from_secs(60));
    let operator = Operator::new(NAME).clock(clock).rng(rng.fork("operator")).controller(controller(groups));
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
    // Running all controllers takes five times as long, without finding more.
    let controllers = match seed % 20 {
        0 => Controllers::all(),
        _ => [Controller::GarbageCollector, Controller::Namespace, Controller::ServiceAccount].into_iter().collect(),
    };
    tokio::select! {
        biased;
        end = timeout(Duration::from_secs(24 * 3600), story) => end.expect("the story comes to its end within a day"),
        result = operator.run(client, pending()) => panic!("the operator ended: {result:?}"),
        () = cluster.run(&controllers) => unreachable!("controllers run for ever"),
    }
    assert!(simulator.vms().is_empty(), "no machine is left behind");
    format!("{}{:#?}", trace.text(), simulator.calls())
}

/// Waits until every group is in its desired state.
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

/// Asserts that two traces are equal, and reports the first difference.
fn assert_same(seed: u64, one: &str, other: &str) {
    if one == other {
        return;
    }
    let (at, (one, other)) = one.lines().zip(other.lines()).enumerate().find(|(_, (a, b))| a != b).unwrap_or_default();
    panic!("seed {seed} does not repeat, from line {at} on:\n{one:.600}\n{other:.600}");
}

#[test]
fn cluster_with_an_operator_repeats_by_seed() {
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

/// Runs a deployment and a job on simulated nodes, one of which is removed; returns all objects at the end.
async fn nodes(seed: u64) -> String {
    let cluster = Cluster::new(Options::simulated(simulated_clock(), seed));
    let client = cluster.admin();
    let get = async |path: &str| client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    let post = async |path: &str, object: serde_json::Value| {
        let request = http::Request::post(path).header("content-type", "application/json");
        client.request_text(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap()
    };
    let story = async {
        Nodes::new("n", 4).add_to(&client).await.unwrap();
        let template = |annotations: serde_json::Value, policy: &str| {
            let containers = json!([{"name": "c", "image": "i"}]);
            let metadata = json!({"labels": {"app": "web"}, "annotations": annotations});
            json!({"metadata": metadata, "spec": {"restartPolicy": policy, "containers": containers}})
        };
        let slow = json!({"flyball.dev/ready-after": "1s..20s", "flyball.dev/crash-loop": "1"});
        let spec =
            json!({"replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template(slow, "Always")});
        post("/apis/apps/v1/namespaces/default/deployments", json!({"metadata": {"name": "web"}, "spec": spec})).await;
        let spec =
            json!({"completions": 5, "template": template(json!({"flyball.dev/complete-after": "1s..9s"}), "Never")});
        post("/apis/batch/v1/namespaces/default/jobs", json!({"metadata": {"name": "job"}, "spec": spec})).await;
        sleep(Duration::from_secs(90)).await;
        Api::<k8s_openapi::api::core::v1::Node>::all(client.clone())
            .delete("n-2", &DeleteParams::default())
            .await
            .unwrap();
        sleep(Duration::from_secs(120)).await;
        let mut all = String::new();
        for kind in ["pods", "nodes", "events"] {
            all += &get(&format!("/api/v1/{kind}")).await.replace("},{", "},\n{");
        }
        all
    };
    let controllers = Controllers::all();
    tokio::select! {
        biased;
        all = story => all,
        () = cluster.run(&controllers) => unreachable!("controllers run for ever"),
    }
}

#[test]
fn simulated_nodes_repeat_by_seed() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(nodes(seed))
    };
    for seed in 0..3 {
        let again = std::thread::spawn(move || run(seed));
        let all = run(seed);
        assert_same(seed, &all, &again.join().unwrap());
        assert_eq!(all.matches("\"phase\":\"Running\"").count(), 10, "ten pods run");
    }
}
