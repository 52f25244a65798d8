//! Behavior of machines and operations without faults.

use crate::simulated::sample;
use flyball_cluster::testing::Test;
use instances::api::instance_v1alpha1::{Instance, InstanceStatus};
use instances::api::ipclaim_v1alpha1::IpClaim;
use instances::api::ippool_v1alpha1::IpPool;
use instances::api::network_v1alpha1::Network;
use instances::api::operation_v1alpha1::{Operation, OperationStatus, Phase};
use instances::cloud::simulator::{SimulatedMachine, Simulator};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

struct World {
    test: Test,
    cloud: Arc<Simulator>,
}

impl World {
    /// Starts the operator with a machine.
    async fn with_machine() -> Self {
        let cloud = Arc::new(Simulator::default());
        let shared = cloud.clone();
        let operator = move || {
            let cloud = shared.clone();
            instances::operator(move || Ok::<_, Infallible>(cloud.clone()))
        };
        let test = Test::of(operator).start().await;
        for part in [sample!("network"), sample!("firewall"), sample!("ippool"), sample!("instance")] {
            test.apply(part).await;
        }
        let world = Self { test, cloud };
        world.ready().await;
        world
    }

    async fn ready(&self) -> InstanceStatus {
        self.test.eventually("web-1 is ready", async || is_ready(&self.status().await)).await;
        self.status().await
    }

    async fn status(&self) -> InstanceStatus {
        self.test.api::<Instance>().get("web-1").await.unwrap().status.unwrap_or_default()
    }

    fn machine(&self) -> SimulatedMachine {
        let mut all = self.cloud.machines_by_owner().remove(&format!("{}/web-1", self.test.namespace())).unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    async fn patch_instance(&self, spec: Value) -> kube::Result<Instance> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.test.api::<Instance>().patch("web-1", &PatchParams::default(), &patch).await
    }

    /// Runs an operation to its end.
    async fn run(&self, kind: &str) -> OperationStatus {
        let name = kind.to_lowercase();
        self.test
            .apply(&format!(
                "{{apiVersion: compute.flyball.dev/v1alpha1, kind: Operation, metadata: {{name: {name}}}, \
                 spec: {{type: {kind}, instance: web-1}}}}"
            ))
            .await;
        let status = async || self.test.api::<Operation>().get(&name).await.unwrap().status.unwrap_or_default();
        self.test.eventually("it ends", async || status().await.phase.is_some_and(Phase::is_final)).await;
        status().await
    }
}

fn is_ready(status: &InstanceStatus) -> bool {
    status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
}

#[tokio::test(start_paused = true)]
async fn machine_has_its_network_and_addresses() {
    let mut world = World::with_machine().await;
    let status = world.ready().await;
    let addresses = (status.private_ip.as_deref(), status.public_ip.as_deref());
    assert_eq!((status.state.as_deref(), addresses), (Some("Running"), (Some("10.0.0.4"), Some("192.0.2.1"))));
    assert_eq!(world.cloud.firewalls().into_values().next().unwrap().rules.len(), 2);
    world.test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn rebuild_replaces_the_disk_and_keeps_the_addresses() {
    let world = World::with_machine().await;
    let (before, key) = (world.status().await, world.machine());
    let status = world.run("Rebuild").await;
    assert_eq!((status.phase, status.machine_id.as_deref()), (Some(Phase::Succeeded), Some(&*key.machine.id)));
    let after = world.ready().await;
    assert_ne!(before.disk_id, after.disk_id);
    let kept =
        |status: &InstanceStatus| (status.private_ip.clone(), status.public_ip.clone(), status.machine_id.clone());
    assert_eq!(kept(&before), kept(&after));
    assert_eq!((world.machine().disks, world.machine().reboots), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn reboot_is_refused_while_the_machine_is_stopped() {
    let world = World::with_machine().await;
    world.patch_instance(json!({"power": "Stopped"})).await.unwrap();
    world.test.eventually("it is stopped", async || world.status().await.state.as_deref() == Some("Stopped")).await;
    let status = world.run("Reboot").await;
    assert_eq!((status.phase, status.request_id), (Some(Phase::Failed), None));
    assert_eq!(status.message.unwrap(), "instance web-1 is Stopped: only running ones are rebooted");
    assert_eq!(world.run("Rebuild").await.phase, Some(Phase::Succeeded));
    assert_eq!((world.machine().reboots, world.machine().disks), (0, 2));
    assert_eq!(world.status().await.state.as_deref(), Some("Stopped"), "a rebuild keeps the power state");
}

#[tokio::test(start_paused = true)]
async fn operation_waits_for_its_instance_and_expires() {
    let world = World::with_machine().await;
    let operations: Api<Operation> = world.test.api();
    let operation = sample!("operation").replace("web-1", "web-2");
    world.test.apply(&operation).await;
    sleep(Duration::from_secs(60)).await;
    let status = operations.get("rebuild-web-2").await.unwrap().status.unwrap();
    assert_eq!((status.phase, status.message.unwrap()), (Some(Phase::Pending), "there is no instance web-2".into()));
    world.test.apply(&sample!("instance").replace("web-1", "web-2")).await;
    let phase = async || operations.get("rebuild-web-2").await.unwrap().status.unwrap().phase;
    world.test.eventually("it is done", async || phase().await == Some(Phase::Succeeded)).await;
    sleep(Duration::from_secs(3500)).await;
    assert!(operations.get_opt("rebuild-web-2").await.unwrap().is_some());
    sleep(Duration::from_secs(200)).await;
    assert!(operations.get_opt("rebuild-web-2").await.unwrap().is_none(), "its TTL is an hour");
}

#[tokio::test(start_paused = true)]
async fn changes_in_the_cloud_are_taken_back() {
    let world = World::with_machine().await;
    let owner = format!("{}/web-1", world.test.namespace());
    assert!(world.cloud.power_off(&owner));
    sleep(Duration::from_secs(120)).await;
    assert_eq!(world.machine().machine.state.to_string(), "Running");
    let lost = world.machine().machine.id;
    assert!(world.cloud.remove(&owner));
    sleep(Duration::from_secs(180)).await;
    world.test.expect_errors("no longer exists");
    assert_ne!(world.ready().await.machine_id, Some(lost));
    assert_eq!(world.machine().machine.public_ip.as_deref(), Some("192.0.2.1"));
}

#[tokio::test(start_paused = true)]
async fn public_address_is_released_when_it_is_no_longer_requested() {
    let world = World::with_machine().await;
    world.patch_instance(json!({"publicIp": null})).await.unwrap();
    world.test.eventually("it has none", async || world.status().await.public_ip.is_none()).await;
    sleep(Duration::from_secs(10)).await;
    assert!(world.test.api::<IpClaim>().get_opt("web-1").await.unwrap().is_none());
    let pool = Api::<IpPool>::all(world.test.client()).get("public").await.unwrap().status.unwrap();
    assert_eq!((pool.capacity, pool.allocated, pool.allocations), (3, 0, vec![]));
    world.patch_instance(json!({"publicIp": {"pool": "public"}})).await.unwrap();
    world.test.eventually("it has one", async || world.status().await.public_ip.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn network_in_use_is_deleted_after_its_machines() {
    let world = World::with_machine().await;
    let (networks, instances) = (world.test.api::<Network>(), world.test.api::<Instance>());
    networks.delete("private", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.cloud.networks().len(), 1);
    instances.delete("web-1", &DeleteParams::default()).await.unwrap();
    let is_gone = async || networks.get_opt("private").await.unwrap().is_none();
    world.test.eventually("the network is gone", is_gone).await;
    assert!(world.cloud.machines_by_owner().is_empty() && world.cloud.networks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn invalid_specifications_are_rejected() {
    let world = World::with_machine().await;
    let message = |result: kube::Result<Instance>| result.unwrap_err().to_string();
    let changed = message(world.patch_instance(json!({"image": "ubuntu-26.04"})).await);
    assert!(changed.contains("size, image and network cannot change: create another instance"), "{changed}");
    for (kind, spec, why) in [
        ("Network", json!({"cidr": "10.0.0.0"}), "must be a CIDR"),
        ("Firewall", json!({"rules": [{"protocol": "TCP", "source": "::/0"}]}), "TCP and UDP need a port"),
        ("IpPool", json!({"addresses": ["192.0.2.256"]}), "must be IP addresses"),
        ("IpPool", json!({"addresses": []}), "should have at least 1 items"),
        ("Operation", json!({"type": "Resize", "instance": "web-1"}), "Unsupported value: \"Resize\""),
    ] {
        let version = "compute.flyball.dev/v1alpha1";
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        let error = create(&world.test, &object).await.unwrap_err().to_string();
        assert!(error.contains(why), "{kind}: {error}");
    }
}

async fn create(test: &Test, object: &Value) -> kube::Result<Value> {
    let kind = object["kind"].as_str().unwrap();
    let namespace = if kind == "IpPool" { String::new() } else { format!("/namespaces/{}", test.namespace()) };
    let path = format!("/apis/compute.flyball.dev/v1alpha1{namespace}/{}s", kind.to_lowercase());
    let request = kube::core::Request::new(path);
    let request = request.create(&Default::default(), object.to_string().into_bytes()).unwrap();
    test.client().request(request).await
}

#[tokio::test(start_paused = true)]
async fn unknown_size_is_reported() {
    let world = World::with_machine().await;
    world.test.apply(&sample!("instance").replace("web-1", "web-2").replace("small", "huge")).await;
    sleep(Duration::from_secs(30)).await;
    let status = world.test.api::<Instance>().get("web-2").await.unwrap().status.unwrap();
    let ready = &status.conditions[0];
    assert_eq!((&*ready.status, &*ready.reason), ("False", "Rejected"));
    assert_eq!(ready.message, "there is no size \"huge\"; use small, medium, large");
    assert!(world.test.api::<Instance>().get("web-2").await.unwrap().annotations().len() == 1, "only its key");
}
