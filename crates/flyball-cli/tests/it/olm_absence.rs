//! Explanations of `flyball olm why` for what is absent: the lifecycle manager, and catalogs of other namespaces.

use crate::Home;
use crate::olm::{Catalog, apply, namespace, subscription, until};
use serde_json::{Value, json};
use std::fs;

#[test]
fn missing_manager_and_catalogs_elsewhere_are_explained() {
    let home = Home::new("olm-absent");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["olm", "install", "--quiet"]).ok();
    let catalog = Catalog::serve(&home);
    namespace(&home, &catalog.address);
    let memo = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": {"name": "memo", "namespace": "away"},
        "spec": {"name": "memo", "source": "demo", "sourceNamespace": "demo"}});
    apply(&home, &[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "away"}}), memo]);
    let why = home.run(&["olm", "why", "memo", "-n", "away"]);
    assert!(why.out.contains("namespace away does not see CatalogSource demo/demo"), "{why:?}");
    assert!(!why.out.contains("no lifecycle manager runs"), "{why:?}");
    let elsewhere = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": {"name": "other", "namespace": "away"},
        "spec": {"name": "memo", "source": "none", "sourceNamespace": "away"}});
    apply(&home, &[elsewhere]);
    let why = until(&home, "olm why other -n away", |why| why.out.contains("package memo is in CatalogSource demo"));
    assert!(why.out.contains("of namespace demo, which namespace away does not see"), "{why:?}");

    let record = fs::read_to_string(home.0.join(".local/state/flyball/flyball.olm.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let pid = rustix::process::Pid::from_raw(record["pid"].as_i64().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    apply(&home, &[subscription("memo", json!({}))]);
    let why = until(&home, "olm why memo -n demo", |output| output.out.contains("no lifecycle manager runs"));
    assert_eq!(why.code, Some(1), "{why:?}");
    let first = why.out.lines().find(|line| line.starts_with("blocked")).unwrap();
    assert!(first.contains("no lifecycle manager runs: nothing acts on Subscriptions"), "{why:?}");
    assert!(why.out.contains("remedy: install it: flyball olm install"), "{why:?}");
}
