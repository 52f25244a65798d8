//! `flyball cluster node`.

use crate::Home;
use crate::operators::on_cluster;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

impl Home {
    fn nodes(&self) -> Value {
        serde_json::from_str(&self.run(&["cluster", "node", "list", "-o", "json"]).ok().out).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.nodes().as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Adds nodes and returns the output.
    fn add(&self, flags: &[&str]) -> String {
        self.run(&[&["cluster", "node", "add"], flags].concat()).ok().out
    }

    fn remove(&self, flags: &[&str]) -> String {
        self.run(&[&["cluster", "node", "remove"], flags].concat()).ok().out
    }
}

#[test]
fn nodes_are_added_and_removed() {
    let home = Home::new("nodes");
    let up = home.run(&["cluster", "up", "--nodes", "1"]).ok();
    assert!(!up.out.contains("node add"), "{up:?}");
    assert_eq!(home.add(&["--count", "2"]), "ready node-2 to node-3, 2 nodes\n");
    assert_eq!(home.add(&["--name-prefix", "big"]), "ready big-1\n");
    assert_eq!(home.add(&["--quiet"]), "");
    assert_eq!(home.add(&["--no-wait", "--name-prefix", "late"]), "added late-1\n");
    assert_eq!(home.names(), ["big-1", "late-1", "node-1", "node-2", "node-3", "node-4"]);
    for line in [&["cluster", "status", "-o", "json"][..], &["cluster", "up", "-o", "json"]] {
        let state: Value = serde_json::from_str(&home.run(line).ok().out).unwrap();
        assert_eq!((&state["nodes"], &state["ready"]), (&json!(6), &json!(true)), "{state}");
    }
    let listed: Value = serde_json::from_str(&home.run(&["cluster", "list", "-o", "json"]).ok().out).unwrap();
    assert_eq!(listed[0]["nodes"], 6);
    let table = home.run(&["cluster", "node", "list"]).ok().out;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "STATUS", "CPU", "MEMORY", "PODS"]);
    assert_eq!(rows[3], ["node-1", "ready", "8", "32Gi", "0/110"], "{table}");

    assert_eq!(home.remove(&["node-2"]), "removed node-2\n");
    assert_eq!(home.remove(&["big-1", "late-1"]), "removed 2 nodes\n");
    assert_eq!(home.add(&["--count", "2"]), "ready node-2 to node-5, 2 nodes\n", "numbers that are free");
    assert_eq!(home.remove(&["--all"]), "removed 5 nodes\n");
    assert_eq!(home.remove(&["--all"]), "no nodes to remove\n");
    assert_eq!(home.run(&["cluster", "node", "list"]).ok().out, "no nodes found\n");
}

#[test]
fn node_has_the_requested_properties() {
    let home = Home::new("node");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let properties =
        ["--cpu", "500m", "--memory", "1Gi", "--pods", "1", "--resource", "example.com/gpu=2", "-o", "json"];
    let marks =
        ["--label", "disk=ssd", "--label", "zone=", "--taint", "gpu=yes:NoSchedule", "--taint", "old:NoExecute"];
    let added: Value = serde_json::from_str(&home.add(&[&properties[..], &marks].concat())).unwrap();
    assert_eq!(added, json!({"nodes": ["node-1"]}));
    let taints = json!([
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "old", "effect": "NoExecute"},
    ]);
    let listed = json!([{
        "name": "node-1", "ready": true, "simulated": true, "cpu": "500m", "memory": "1Gi", "pods": 0, "maxPods": 1,
        "taints": taints,
    }]);
    assert_eq!(home.nodes(), listed);
    let yaml = home.run(&["cluster", "node", "list", "-o", "yaml"]).ok().out;
    assert!(yaml.contains("name: node-1") && yaml.contains("maxPods: 1"), "{yaml}");

    on_cluster(&home, async |client| {
        let node = Api::<Node>::all(client.clone()).get("node-1").await.unwrap();
        assert_eq!((node.labels()["disk"].as_str(), node.labels()["zone"].as_str()), ("ssd", ""));
        let allocatable = node.status.unwrap().allocatable.unwrap();
        assert_eq!(allocatable["example.com/gpu"].0, "2");
        let pod = json!({
            "metadata": {"name": "fits"},
            "spec": {"containers": [{"name": "a", "image": "a"}], "tolerations": [{"operator": "Exists"}]},
        });
        let pods: Api<Pod> = Api::default_namespaced(client);
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let bound = async || pods.get("fits").await.unwrap().spec.unwrap().node_name.is_some();
        while !bound().await {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(home.nodes()[0]["pods"], 1);
}

#[test]
fn invalid_node_operations_are_reported() {
    let home = Home::new("nonode");
    for command in [&["add"][..], &["list"], &["remove", "--all"]] {
        home.run(&[&["cluster", "node"], command].concat())
            .fails_with(&["flyball is not running", "flyball cluster up"]);
    }
    home.run(&["cluster", "node", "add", "--name", "other"])
        .fails_with(&["cluster other is not running", "flyball cluster up --name other"]);

    let makes_no_sense = |flags: &[&str], why: &str| {
        let output = home.run(&[&["cluster", "node"], flags].concat());
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.err.contains(why), "no {why:?} in {output:?}");
    };
    makes_no_sense(&["add", "--cpu", "many"], "--cpu");
    makes_no_sense(&["add", "--memory=-1Gi"], "must not be negative");
    makes_no_sense(&["add", "--count", "0"], "0 is not in 1..=100000");
    makes_no_sense(&["add", "--label", "a"], "write KEY=VALUE");
    makes_no_sense(&["add", "--label", "a=b c"], "must be an empty string or consist of alphanumeric characters");
    makes_no_sense(&["add", "--resource", "/=1"], "prefix part must be non-empty");
    makes_no_sense(&["add", "--taint", "a"], "write KEY=VALUE:EFFECT or KEY:EFFECT");
    makes_no_sense(&["add", "--taint", "a:Odd"], "invalid effect; use one of NoSchedule, PreferNoSchedule, NoExecute");
    makes_no_sense(&["add", "--name-prefix", "No"], "lower case alphanumeric");
    makes_no_sense(&["add", "--quiet", "-o", "json"], "cannot be used with");
    makes_no_sense(&["remove"], "required");
    makes_no_sense(&["remove", "--all", "node-1"], "cannot be used with");

    home.run(&["cluster", "up", "--quiet", "--nodes", "2"]).ok();
    home.run(&["cluster", "node", "remove", "node-2", "node-9"])
        .fails_with(&["node node-9 not found", "flyball cluster node list"]);
    assert_eq!(home.names(), ["node-1"], "what came before it is done");
}
