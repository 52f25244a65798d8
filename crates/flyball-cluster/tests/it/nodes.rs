//! The scheduler and simulated nodes: pods are scheduled, run, fail and are deleted.

use crate::workloads::{api, create};
use crate::{cluster, eventually};
use flyball_cluster::{Cluster, ContainerRule, Nodes, Options, simulated_clock};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodCondition, Secret, Service, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

/// Returns a client, once pods can be created.
async fn client_of(cluster: Cluster) -> Client {
    let client = cluster.admin();
    eventually("a service account", || async { api::<ServiceAccount>(&client).get("default").await.is_ok() }).await;
    client
}

async fn pods(client: &Client) -> Vec<Pod> {
    api::<Pod>(client).list(&ListParams::default()).await.unwrap().items
}

async fn pod(client: &Client, name: &str) -> Pod {
    api::<Pod>(client).get(name).await.unwrap()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Creates a pod of one container, with annotations and more of its spec.
async fn run(client: &Client, name: &str, annotations: Value, spec: Value) {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    create::<Pod>(client, json!({"metadata": {"name": name, "annotations": annotations}, "spec": whole})).await;
}

async fn node_of(client: &Client, name: &str) -> Option<String> {
    pod(client, name).await.spec.unwrap().node_name
}

/// Waits for the scheduler's reason why a pod is unschedulable.
async fn refusal(client: &Client, name: &str) -> String {
    let message = || async {
        let pod = pod(client, name).await;
        let known = condition(&pod, "PodScheduled").filter(|known| known.reason.as_deref() == Some("Unschedulable"));
        known.and_then(|known| known.message.clone())
    };
    eventually("a refusal", || async { message().await.is_some() }).await;
    message().await.unwrap()
}

async fn reasons(client: &Client, about: &str) -> Vec<String> {
    let events = api::<Event>(client).list(&ListParams::default()).await.unwrap().items;
    let mut reasons: Vec<String> = events
        .into_iter()
        .filter(|event| event.involved_object.name.as_deref() == Some(about))
        .filter_map(|event| event.reason)
        .collect();
    reasons.sort();
    reasons
}

#[tokio::test(start_paused = true)]
async fn nodes_register_with_labels_and_capacity() {
    let client = client_of(cluster()).await;
    let names = Nodes::new("n", 2).capacity("cpu", "4").label("zone", "a").add_to(&client).await.unwrap();
    assert_eq!(names, ["n-1", "n-2"]);
    let nodes = Api::<Node>::all(client.clone());
    eventually("nodes that take pods", || async {
        let all = nodes.list(&ListParams::default()).await.unwrap().items;
        all.iter().all(|node| node.spec.as_ref().is_none_or(|spec| spec.taints.is_none()))
    })
    .await;
    let node = nodes.get("n-2").await.unwrap();
    assert_eq!((node.labels()["zone"].as_str(), node.labels()["kubernetes.io/hostname"].as_str()), ("a", "n-2"));
    let status = node.status.unwrap();
    assert_eq!(
        (status.allocatable.as_ref().unwrap()["cpu"].0.as_str(), status.capacity.unwrap()["pods"].0.as_str()),
        ("4", "110")
    );
    let addresses = status.addresses.unwrap();
    assert_eq!(addresses[0].address, "172.16.0.2");
    let ready = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("KubeletReady"));
}

#[tokio::test(start_paused = true)]
async fn pods_have_no_conditions_without_nodes() {
    let client = client_of(cluster()).await;
    run(&client, "p", json!({}), json!({})).await;
    sleep(Duration::from_secs(60)).await;
    let pod = pod(&client, "p").await;
    assert_eq!((phase(&pod), pod.status.as_ref().unwrap().conditions.as_ref()), ("Pending", None));
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    eventually("a ready pod", || async { is_ready(&crate::nodes::pod(&client, "p").await) }).await;
}

#[tokio::test(start_paused = true)]
async fn container_restarts_after_image_change() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    run(&client, "p", json!({}), json!({})).await;
    eventually("a ready pod", || async { is_ready(&pod(&client, "p").await) }).await;
    for (restarts, image) in [(1, "j"), (2, "k")] {
        let patch = Patch::Strategic(json!({"spec": {"containers": [{"name": "c", "image": image}]}}));
        api::<Pod>(&client).patch("p", &PatchParams::default(), &patch).await.unwrap();
        let runs = || async {
            let status = pod(&client, "p").await.status.unwrap().container_statuses.unwrap().remove(0);
            (status.image.as_str(), status.restart_count, status.ready) == (image, restarts, true)
        };
        eventually("a container of the new image", runs).await;
    }
    assert!(reasons(&client, "p").await.iter().any(|reason| reason == "Killing"));
}

#[tokio::test(start_paused = true)]
async fn pod_status_matches_kubelet() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    let annotations = json!({"flyball.dev/start-after": "2s", "flyball.dev/ready-after": "5s"});
    let init = json!([{"name": "i", "image": "i"}, {"name": "s", "image": "i", "restartPolicy": "Always"}]);
    run(&client, "p", annotations, json!({"initContainers": init})).await;
    eventually("a node", || async { pod(&client, "p").await.status.unwrap().host_ip.is_some() }).await;
    let early = pod(&client, "p").await;
    let waits = early.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].state.clone().unwrap().waiting;
    assert_eq!((phase(&early), waits.unwrap().reason.as_deref()), ("Pending", Some("PodInitializing")));
    let text = condition(&early, "Initialized").unwrap().message.clone().unwrap();
    assert_eq!(text, "containers with incomplete status: [i s]");
    eventually("a running pod", || async { phase(&pod(&client, "p").await) == "Running" }).await;
    let running = pod(&client, "p").await;
    assert_eq!(condition(&running, "Ready").unwrap().message.as_deref(), Some("containers with unready status: [s c]"));
    eventually("a ready pod", || async { is_ready(&pod(&client, "p").await) }).await;
    let ready = pod(&client, "p").await;
    let why = condition(&ready, "Ready").map(|condition| (&condition.reason, &condition.message));
    assert_eq!(why, Some((&None, &None)), "outdated conditions are removed");
    let status = ready.status.unwrap();
    assert_eq!((status.host_ip.as_deref(), status.pod_ip.as_deref()), (Some("172.16.0.1"), Some("10.64.0.1")));
    assert_eq!(
        status.init_container_statuses.unwrap()[0]
            .state
            .as_ref()
            .unwrap()
            .terminated
            .as_ref()
            .unwrap()
            .reason
            .as_deref(),
        Some("Completed")
    );
    let container = &status.container_statuses.unwrap()[0];
    assert!(container.ready && container.started == Some(true) && container.restart_count == 0);
    let recorded = reasons(&client, "p").await;
    assert!(
        ["Scheduled", "Pulled", "Created", "Started"].iter().all(|reason| recorded.iter().any(|one| one == reason)),
        "{recorded:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_are_scheduled_by_constraints_and_resources() {
    let client = client_of(cluster()).await;
    let taint = |effect: &str| serde_json::from_value(json!({"key": "k", "value": "v", "effect": effect})).unwrap();
    Nodes::new("small", 1).capacity("cpu", "1").add_to(&client).await.unwrap();
    Nodes::new("large", 1)
        .capacity("cpu", "16")
        .capacity("example.com/gpu", "1")
        .taint(taint("NoSchedule"))
        .add_to(&client)
        .await
        .unwrap();
    Nodes::new("spare", 1).capacity("cpu", "16").taint(taint("PreferNoSchedule")).add_to(&client).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    let requesting = |resource: &str, amount: &str| json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {resource: amount}, "limits": {resource: amount}}}]});
    let bound = async |name: &str, spec: Value| {
        run(&client, name, json!({}), spec).await;
        eventually("a node", || async { node_of(&client, name).await.is_some() }).await;
        node_of(&client, name).await.unwrap()
    };
    assert_eq!(bound("a", json!({})).await, "small-1");
    assert_eq!(bound("b", requesting("cpu", "2")).await, "spare-1");
    let tolerations = json!([{"key": "k", "operator": "Exists"}]);
    let mut gpu = requesting("example.com/gpu", "1");
    gpu["tolerations"] = tolerations;
    assert_eq!(bound("c", gpu.clone()).await, "large-1");
    assert_eq!(bound("d", json!({"nodeSelector": {"kubernetes.io/hostname": "spare-1"}})).await, "spare-1");
    run(&client, "e", json!({}), gpu).await;
    let preemption = |none: u32, helpless: u32| {
        format!(
            "no new claims to deallocate, preemption: 0/3 nodes are available: {none} No preemption victims found for \
             incoming pod, {helpless} Preemption is not helpful for scheduling."
        )
    };
    let message = refusal(&client, "e").await;
    assert_eq!(message, format!("0/3 nodes are available: 3 Insufficient example.com/gpu. {}", preemption(1, 2)));
    run(&client, "f", json!({}), requesting("cpu", "15")).await;
    let message = refusal(&client, "f").await;
    let why = "1 node(s) had untolerated taint(s), 2 Insufficient cpu";
    assert_eq!(message, format!("0/3 nodes are available: {why}. {}", preemption(1, 2)));
    assert_eq!(reasons(&client, "f").await, ["FailedScheduling"]);
    // The blocking pod is deleted.
    api::<Pod>(&client).delete("b", &DeleteParams::default()).await.unwrap();
    eventually("a node", || async { node_of(&client, "f").await.as_deref() == Some("spare-1") }).await;
    let scheduled = pod(&client, "f").await;
    assert_eq!(condition(&scheduled, "PodScheduled").unwrap().status, "True");
}

#[tokio::test(start_paused = true)]
async fn pod_affinity_and_topology_spread_are_respected() {
    let client = client_of(cluster()).await;
    for zone in ["a", "b", "c"] {
        Nodes::new(zone, 2).label("zone", zone).add_to(&client).await.unwrap();
    }
    sleep(Duration::from_secs(5)).await;
    let about =
        |app: &str, topology: &str| json!([{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}]);
    let set = async |name: &str, replicas: u32, mut spec: Value| {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        let labels = json!({"app": name});
        let spec = json!({
            "replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec},
        });
        create::<ReplicaSet>(&client, json!({"metadata": {"name": name}, "spec": spec})).await;
        sleep(Duration::from_secs(30)).await;
        let of = ListParams::default().labels(&format!("app={name}"));
        let pods = api::<Pod>(&client).list(&of).await.unwrap().items;
        let mut zones: BTreeMap<String, u32> = BTreeMap::new();
        for node in pods.into_iter().filter_map(|pod| pod.spec?.node_name) {
            *zones.entry(node[..1].to_owned()).or_default() += 1;
        }
        zones.values().copied().collect::<Vec<_>>()
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let apart = json!({"affinity": {"podAntiAffinity": {required: about("apart", "zone")}}});
    assert_eq!(set("apart", 4, apart).await, [1, 1, 1]);
    let together = json!({"affinity": {"podAffinity": {required: about("together", "zone")}}});
    assert_eq!(set("together", 4, together).await, [4]);
    let spread = json!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "spread"}}},
    ]});
    assert_eq!(set("spread", 9, spread).await, [3, 3, 3]);
    // A node with four of them has the least resources left.
    assert_eq!(set("plain", 8, json!({})).await, [4, 4]);
    let pending = api::<Pod>(&client).list(&ListParams::default().labels("app=apart")).await.unwrap().items;
    let unscheduled = pending.iter().find(|pod| pod.spec.as_ref().unwrap().node_name.is_none()).unwrap();
    let text = refusal(&client, &unscheduled.name_any()).await;
    assert!(text.starts_with("0/6 nodes are available: 6 node(s) didn't match pod anti-affinity rules."), "{text}");
}

#[tokio::test(start_paused = true)]
async fn crash_loop_backs_off() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    run(&client, "p", json!({"flyball.dev/crash-loop": "5", "flyball.dev/fail": "3"}), json!({})).await;
    let count = || async {
        let status = pod(&client, "p").await.status.unwrap();
        let status = status.container_statuses.and_then(|all| all.into_iter().next());
        status.map_or((0, String::new()), |status| {
            let waiting = status.state.and_then(|state| state.waiting).and_then(|waiting| waiting.message);
            (status.restart_count, waiting.unwrap_or_default())
        })
    };
    eventually("a restart", || async { count().await.0 == 1 }).await;
    for (restarts, wait) in [(1, "10s"), (2, "20s"), (3, "40s"), (4, "1m20s")] {
        eventually("a wait", || async { count().await.1.starts_with("back-off") }).await;
        let (known, message) = count().await;
        assert_eq!(known, restarts);
        assert!(
            message.starts_with(&format!("back-off {wait} restarting failed container=c pod=p_default(")),
            "{message}"
        );
        let looping = pod(&client, "p").await;
        assert_eq!((phase(&looping), is_ready(&looping)), ("Running", false));
        let last =
            looping.status.unwrap().container_statuses.unwrap()[0].last_state.clone().unwrap().terminated.unwrap();
        assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
        sleep(Duration::from_secs(10 << (restarts - 1))).await;
    }
    eventually("recovery", || async { is_ready(&pod(&client, "p").await) }).await;
    assert!(reasons(&client, "p").await.contains(&"BackOff".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn jobs_complete_and_fail() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 2).add_to(&client).await.unwrap();
    let job = async |name: &str, annotations: Value, policy: &str, limit: u32| {
        let containers = json!([{"name": "c", "image": "i"}]);
        let template = json!({"metadata": {"annotations": annotations}, "spec": {"restartPolicy": policy, "containers": containers}});
        let spec = json!({"completions": 3, "parallelism": 2, "backoffLimit": limit, "template": template});
        create::<Job>(&client, json!({"metadata": {"name": name}, "spec": spec})).await;
    };
    job("good", json!({}), "Never", 1).await;
    job("bad", json!({"flyball.dev/fail": "7"}), "Never", 1).await;
    job("late", json!({"flyball.dev/crash-loop": "1"}), "OnFailure", 5).await;
    let ends = async |name: &str, condition: &str| {
        eventually("the end of a job", || async {
            let status = api::<Job>(&client).get(name).await.unwrap().status.unwrap_or_default();
            status.conditions.iter().flatten().any(|known| known.type_ == condition && known.status == "True")
        })
        .await;
        api::<Job>(&client).get(name).await.unwrap().status.unwrap()
    };
    assert_eq!(ends("good", "Complete").await.succeeded, Some(3));
    assert!(ends("bad", "Failed").await.failed >= Some(2));
    assert_eq!(ends("late", "Complete").await.failed, None);
    let failed = pods(&client).await.into_iter().find(|pod| pod.name_any().starts_with("bad")).unwrap();
    assert_eq!((phase(&failed), condition(&failed, "Ready").unwrap().reason.as_deref()), ("Failed", Some("PodFailed")));
}

#[tokio::test(start_paused = true)]
async fn missing_references_block_a_pod() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    let env = json!([{"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    run(&client, "env", json!({}), json!({"containers": [{"name": "c", "image": "i", "env": env}]})).await;
    run(&client, "volume", json!({}), json!({"volumes": [{"name": "v", "configMap": {"name": "m"}}]})).await;
    run(
        &client,
        "optional",
        json!({}),
        json!({"volumes": [{"name": "v", "secret": {"secretName": "no", "optional": true}}]}),
    )
    .await;
    run(&client, "claim", json!({}), json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "no"}}]}))
        .await;
    eventually("a ready pod", || async { is_ready(&pod(&client, "optional").await) }).await;
    let waits = async |name: &str| {
        let status = pod(&client, name).await.status.unwrap();
        let state = status.container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
        (state.reason.unwrap(), state.message.unwrap_or_default())
    };
    let env = json!([{"name": "A", "value": "0123456789"}, {"name": "B", "value": "$(A)".repeat(1000)},
        {"name": "C", "value": "$(B)".repeat(1000)}]);
    run(&client, "large", json!({}), json!({"containers": [{"name": "c", "image": "i", "env": env}]})).await;
    sleep(Duration::from_secs(5)).await;
    let text = "the environment variables of container \"c\" exceed 1048576 bytes";
    assert_eq!(waits("large").await, ("CreateContainerError".into(), text.into()));
    assert_eq!(waits("env").await, ("CreateContainerConfigError".into(), "secret \"s\" not found".into()));
    assert_eq!(waits("volume").await, ("ContainerCreating".into(), String::new()));
    assert!(
        refusal(&client, "claim")
            .await
            .starts_with("0/1 nodes are available: persistentvolumeclaim \"no\" not found. ")
    );
    assert!(reasons(&client, "volume").await.contains(&"FailedMount".to_owned()));
    create::<Secret>(&client, json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}})).await;
    create::<k8s_openapi::api::core::v1::ConfigMap>(&client, json!({"metadata": {"name": "m"}})).await;
    for name in ["env", "volume"] {
        eventually("a ready pod", || async { is_ready(&pod(&client, name).await) }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pod_stops_within_its_grace_period() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    run(&client, "quick", json!({}), json!({})).await;
    run(&client, "slow", json!({"flyball.dev/stop-after": "5s"}), json!({})).await;
    run(&client, "stubborn", json!({"flyball.dev/stop-after": "never"}), json!({"terminationGracePeriodSeconds": 8}))
        .await;
    eventually("ready pods", || async { pods(&client).await.iter().all(is_ready) }).await;
    for pod in pods(&client).await {
        api::<Pod>(&client).delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    }
    let remaining = || async { pods(&client).await.iter().map(ResourceExt::name_any).collect::<Vec<_>>() };
    for (wait, expected) in [(1, vec!["slow", "stubborn"]), (5, vec!["stubborn"]), (3, vec![])] {
        sleep(Duration::from_secs(wait)).await;
        assert_eq!(remaining().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn rules_script_pods() {
    let rule: ContainerRule = serde_json::from_value(json!({
        "selector": {"matchLabels": {"app": "web"}}, "script": {"readyAfter": "20s..40s"},
    }))
    .unwrap();
    let cluster = Cluster::new(Options::simulated(simulated_clock(), 1)).with_rules([rule]);
    let running = cluster.clone();
    tokio::spawn(async move { running.run(&flyball_cluster::Controllers::all()).await });
    let client = client_of(cluster).await;
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    run(&client, "other", json!({}), json!({})).await;
    let containers = json!([{"name": "c", "image": "i"}]);
    create::<Pod>(
        &client,
        json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"containers": containers}}),
    )
    .await;
    eventually("a ready pod", || async { is_ready(&pod(&client, "other").await) }).await;
    sleep(Duration::from_secs(19)).await;
    assert!(!is_ready(&pod(&client, "web").await));
    sleep(Duration::from_secs(22)).await;
    assert!(is_ready(&pod(&client, "web").await));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_removed_node_are_replaced() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 3).add_to(&client).await.unwrap();
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 6, "selector": {"matchLabels": labels}, "template": template});
    create::<Deployment>(&client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let on = |node: &'static str| {
        let client = client.clone();
        async move {
            pods(&client)
                .await
                .iter()
                .filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node))
                .count()
        }
    };
    let ready = || async { pods(&client).await.iter().filter(|pod| is_ready(pod)).count() };
    eventually("six ready pods", || async { ready().await == 6 }).await;
    assert_eq!((on("n-1").await, on("n-2").await, on("n-3").await), (2, 2, 2));
    let nodes = Api::<Node>::all(client.clone());
    nodes.delete("n-1", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(50)).await;
    eventually("six ready pods", || async { ready().await == 6 && on("n-1").await == 0 }).await;
    // A node without heartbeat keeps its pods for five minutes.
    let down = Patch::Merge(json!({"metadata": {"annotations": {"flyball.dev/down": "true"}}}));
    nodes.patch("n-2", &PatchParams::default(), &down).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(ready().await, 3);
    sleep(Duration::from_secs(330)).await;
    let terminating = pods(&client).await;
    let terminating = terminating.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
    assert_eq!((ready().await, terminating), (6, 3));
    let up = Patch::Merge(json!({"metadata": {"annotations": {"flyball.dev/down": null}}}));
    nodes.patch("n-2", &PatchParams::default(), &up).await.unwrap();
    eventually("no more terminating pods", || async { pods(&client).await.len() == 6 }).await;
}

#[tokio::test(start_paused = true)]
async fn visitors_site_becomes_ready_and_is_deleted() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/visitors");
    let texts = ["database.yaml", "backend.yaml", "frontend.yaml"]
        .map(|name| std::fs::read_to_string(folder.join(name)).unwrap());
    let applied = |text: &str| {
        let parts = text.split("\n---").map(|part| serde_saphyr::from_str::<Value>(part).unwrap());
        parts.filter(|part| part.is_object()).collect::<Vec<_>>()
    };
    for object in texts.iter().flat_map(|text| applied(text)) {
        match object["kind"].as_str().unwrap() {
            "Deployment" => create::<Deployment>(&client, object).await,
            "Service" => create::<Service>(&client, object).await,
            "Secret" => create::<Secret>(&client, object).await,
            other => panic!("a {other}"),
        }
    }
    let deployments = || async { api::<Deployment>(&client).list(&ListParams::default()).await.unwrap().items };
    eventually("ready deployments", || async {
        let all = deployments().await;
        all.len() == 3
            && all
                .iter()
                .all(|one| one.status.as_ref().unwrap().available_replicas == one.spec.as_ref().unwrap().replicas)
    })
    .await;
    assert!(pods(&client).await.iter().all(is_ready));
    for object in texts.iter().rev().flat_map(|text| applied(text)) {
        let (name, params) = (object["metadata"]["name"].as_str().unwrap().to_owned(), DeleteParams::background());
        match object["kind"].as_str().unwrap() {
            "Deployment" => drop(api::<Deployment>(&client).delete(&name, &params).await.unwrap()),
            "Service" => drop(api::<Service>(&client).delete(&name, &params).await.unwrap()),
            _ => drop(api::<Secret>(&client).delete(&name, &params).await.unwrap()),
        }
    }
    eventually("nothing left", || async { pods(&client).await.is_empty() && deployments().await.is_empty() }).await;
    let sets = api::<ReplicaSet>(&client).list(&ListParams::default()).await.unwrap().items;
    assert!(sets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn thousand_nodes_run_many_pods() {
    let count = std::env::var("FLYBALL_PODS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let client = client_of(cluster()).await;
    Nodes::new("n", 1000).add_to(&client).await.unwrap();
    let nodes = Api::<Node>::all(client.clone());
    eventually("a thousand nodes", || async {
        let all = nodes.list(&ListParams::default()).await.unwrap().items;
        all.iter().all(|node| node.spec.as_ref().is_none_or(|spec| spec.taints.is_none()))
    })
    .await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": count, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    create::<Deployment>(&client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    eventually("ready pods", || async {
        let status = api::<Deployment>(&client).get("web").await.unwrap().status.unwrap_or_default();
        status.ready_replicas == Some(count)
    })
    .await;
    let mut by_node: BTreeMap<String, i32> = BTreeMap::new();
    for pod in pods(&client).await {
        *by_node.entry(pod.spec.unwrap().node_name.unwrap()).or_default() += 1;
    }
    assert!(by_node.values().all(|there| *there == count.div_euclid(1000).max(1)), "evenly spread");
}

#[tokio::test(start_paused = true)]
async fn pods_with_extreme_grace_periods_end() {
    let client = client_of(cluster()).await;
    Nodes::new("n", 1).add_to(&client).await.unwrap();
    let pods = api::<Pod>(&client);
    let grace_of_spec = json!({"terminationGracePeriodSeconds": i64::MAX});
    run(&client, "spec", json!({}), grace_of_spec.clone()).await;
    run(&client, "request", json!({}), json!({})).await;
    run(&client, "never", json!({"flyball.dev/stop-after": "never"}), grace_of_spec).await;
    for name in ["spec", "request", "never"] {
        eventually("a ready pod", || async { is_ready(&pod(&client, name).await) }).await;
    }
    pods.delete("spec", &DeleteParams::default()).await.unwrap();
    pods.delete("request", &DeleteParams { grace_period_seconds: Some(u32::MAX), ..DeleteParams::default() })
        .await
        .unwrap();
    for name in ["spec", "request"] {
        eventually("the end of a pod", || async { pods.get_opt(name).await.unwrap().is_none() }).await;
    }
    pods.delete("never", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert!(pods.get_opt("never").await.unwrap().is_some());
    pods.delete("never", &DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() }).await.unwrap();
    eventually("the end of a pod", || async { pods.get_opt("never").await.unwrap().is_none() }).await;
}
