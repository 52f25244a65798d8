//! Proofs of the operator's capability level, run by `flyball levels`.
//!
//! See <https://sdk.operatorframework.io/docs/overview/operator-capabilities/>.

use crate::world::{NAME_OF_SAMPLE, World, condition, run_scenario};
use etcd_operator::api::etcdbackup_v1beta2::EtcdBackup;
use etcd_operator::api::etcdcluster_v1beta2::{EtcdCluster, EtcdClusterStatus};
use etcd_operator::api::etcdrestore_v1beta2::EtcdRestore;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, PostParams};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

#[test]
fn level_1_install_creates_a_serving_cluster() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        let status = world.status().await;
        assert_eq!((status.members.ready.len(), status.current_version.as_str()), (3, "3.1.10"));
        assert!(world.names().await.iter().all(|name| name.starts_with(NAME_OF_SAMPLE)));
        let services: Api<Service> = Api::namespaced(world.admin.clone(), "default");
        for (name, is_headless) in [(NAME_OF_SAMPLE.to_owned(), true), (format!("{NAME_OF_SAMPLE}-client"), false)] {
            let spec = services.get(&name).await.unwrap().spec.unwrap();
            assert_eq!(spec.cluster_ip.as_deref() == Some("None"), is_headless);
        }
        world.put("foo", "bar").await;
        assert_eq!(world.get("foo").await.as_deref(), Some("bar"));
        assert_eq!(condition(&world.status().await, "Available"), "True");
    });
}

#[test]
fn level_2_upgrade_replaces_one_member_at_a_time() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        let before = world.names().await;
        world.start_counting();
        // As in the sample.
        let path = format!("/apis/etcd.database.coreos.com/v1beta2/namespaces/default/etcdclusters/{NAME_OF_SAMPLE}");
        let patch = json!([{"op": "replace", "path": "/spec/version", "value": "3.3.12"}]).to_string();
        let patch = http::Request::patch(path).header("content-type", "application/json-patch+json").body(patch.into());
        let _: EtcdCluster = world.admin.request(patch.unwrap()).await.unwrap();
        let upgrading = world.until("members run two versions", async |status| two_versions(status)).await;
        assert_eq!((upgrading.current_version.as_str(), upgrading.target_version.as_str()), ("3.1.10", "3.3.12"));
        let status = world.settled(3).await;
        assert!(status.versions.values().all(|version| version == "3.3.12"), "{status:#?}");
        assert_eq!(status.current_version, "3.3.12");
        assert_eq!(world.names().await, before, "members keep their data and their names");
        world.assert_no_client_errors();
    });
}

fn two_versions(status: &EtcdClusterStatus) -> bool {
    status.versions.len() == 3 && status.versions.values().any(|version| *version != status.current_version)
}

#[test]
fn level_3_backup_and_restore_recover_the_data() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        world.put("kept", "before").await;
        backup(world, "monday").await;
        world.put("kept", "after").await;

        restore(world, "undo", "monday").await;
        assert_eq!(world.get("kept").await.as_deref(), Some("before"));
        assert_eq!(world.settled(3).await.incarnation.unwrap().number, 2);

        // A restore runs once, so later writes are preserved.
        world.put("kept", "later").await;
        sleep(Duration::from_secs(300)).await;
        assert_eq!(world.get("kept").await.as_deref(), Some("later"));
        assert_eq!(world.status().await.incarnation.unwrap().number, 2);
    });
}

#[test]
fn level_3_a_lost_majority_is_restored_from_the_latest_backup() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        world.put("kept", "first").await;
        backup(world, "first").await;
        world.put("kept", "second").await;
        backup(world, "second").await;
        let names = world.names().await;
        for name in &names[..2] {
            world.delete_pod(name).await;
        }
        let lost = world
            .until("the status reports the lost member", async |status| condition(status, "Available") == "False")
            .await;
        assert!(lost.members.ready.len() < 2, "{lost:#?}");
        world
            .until("a new incarnation", async |status| status.incarnation.as_ref().is_some_and(|life| life.number == 2))
            .await;
        let status = world.settled(3).await;
        assert!(status.members.ready.iter().all(|name| !names.contains(name)), "all members are new");
        assert_eq!(world.get("kept").await.as_deref(), Some("second"));
    });
}

#[test]
fn level_4_insights_report_members_steps_and_backups() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        world.put("foo", "bar").await;
        backup(world, "monday").await;
        let names = world.names().await;
        world.delete_pod(&names[0]).await;
        world
            .until("the status reports the lost member", async |status| !status.members.ready.contains(&names[0]))
            .await;
        world.settled(3).await;

        let metrics = metrics(world);
        let labels = format!("namespace=\"default\",name=\"{NAME_OF_SAMPLE}\"");
        for line in [
            format!("etcd_cluster_members{{{labels}}} 3\n"),
            format!("etcd_cluster_members_well{{{labels}}} 3\n"),
            format!("etcd_cluster_available{{{labels}}} 1\n"),
            format!("etcd_cluster_steps_total{{{labels},step=\"Remove\"}} 1\n"),
            format!("etcd_cluster_steps_total{{{labels},step=\"Add\"}} 3\n"),
        ] {
            assert!(metrics.contains(&line), "no {line}in\n{metrics}");
        }
        assert!(metrics.contains(&format!("etcd_cluster_last_backup_timestamp_seconds{{{labels}}} 1767")), "{metrics}");

        let alerts: Value = serde_saphyr::from_str(include_str!("../../config/alerts.yaml")).unwrap();
        let rules = alerts["spec"]["groups"][0]["rules"].as_array().unwrap();
        assert!(rules.len() > 3);
        for rule in rules {
            let expression = rule["expr"].as_str().unwrap();
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let mut named = words.filter(|word| word.starts_with("etcd_cluster_")).peekable();
            assert!(named.peek().is_some(), "{expression}");
            assert!(named.all(|name| metrics.contains(&format!("\n{name}{{"))), "{expression} uses an unknown metric");
        }

        sleep(Duration::from_secs(10)).await;
        let events: Api<Event> = Api::namespaced(world.admin.clone(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let reasons: Vec<&str> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
        for reason in ["Seed", "Add", "Start", "Remove", "BackedUp"] {
            assert!(reasons.contains(&reason), "no {reason} in {reasons:?}");
        }

        // The metrics of a deleted cluster are removed.
        world.clusters.delete(NAME_OF_SAMPLE, &Default::default()).await.unwrap();
        let other = json!({"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "other"}, "spec": {"size": 1}});
        world.clusters.create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        let metrics = self::metrics(world);
        assert!(!metrics.contains(NAME_OF_SAMPLE) && metrics.contains("name=\"other\""), "{metrics}");
    });
}

#[test]
fn level_5_autopilot_defragments_one_member_at_a_time() {
    run_scenario(async |world| {
        let autopilot = json!({"defragmentAbovePercent": 50, "defragmentAboveBytes": 20_000});
        world.create(3, json!({"autopilot": autopilot})).await;
        world.start_counting();
        for _ in 0..30 {
            world.put("large", &"x".repeat(1000)).await;
        }
        let is_loose = |metrics: &str| figure(metrics, "database_bytes") >= 20_000;
        world.until("the unused space is released", async |status| status.defragmented.len() == 3).await;
        let mut times: Vec<String> = world.settled(3).await.defragmented.into_values().collect();
        times.sort();
        times.dedup();
        assert!(times.len() > 1, "not all at once: {times:?}");
        sleep(Duration::from_secs(60)).await;
        let metrics = metrics(world);
        assert!(!is_loose(&metrics) && metrics.contains("step=\"Defragment\"} 3\n"), "{metrics}");
        world.assert_no_client_errors();

        // Space that becomes unused shortly afterwards is not released immediately.
        for _ in 0..30 {
            world.put("large", &"y".repeat(1000)).await;
        }
        sleep(Duration::from_secs(120)).await;
        assert!(is_loose(&self::metrics(world)));
        sleep(Duration::from_secs(600)).await;
        assert!(!is_loose(&self::metrics(world)));
    });
}

#[test]
fn level_5_autopilot_backs_up_on_schedule_and_keeps_the_latest() {
    run_scenario(async |world| {
        let policy = json!({"backupIntervalInSecond": 60, "maxBackups": 2});
        world.create(1, json!({"backupPolicy": policy})).await;
        sleep(Duration::from_secs(600)).await;
        let backups: Api<EtcdBackup> = Api::namespaced(world.admin.clone(), "default");
        let listed = backups.list(&ListParams::default()).await.unwrap().items;
        let snapshots = world.model.snapshots();
        assert!((2..=3).contains(&listed.len()) && snapshots.len() <= listed.len(), "{} {snapshots:?}", listed.len());
        assert!(world.model.calls()["snapshot"] >= 9);

        // Snapshots outlive the cluster, and are deleted with their objects.
        world.clusters.delete(NAME_OF_SAMPLE, &Default::default()).await.unwrap();
        sleep(Duration::from_secs(120)).await;
        assert!(world.names().await.is_empty());
        assert_eq!(world.model.snapshots().len(), backups.list(&ListParams::default()).await.unwrap().items.len());
        for backup in backups.list(&ListParams::default()).await.unwrap().items {
            backups.delete(backup.metadata.name.as_deref().unwrap(), &Default::default()).await.unwrap();
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(world.model.snapshots(), Vec::<String>::new());
    });
}

/// Creates a backup and waits for it.
pub(crate) async fn backup(world: &World, name: &str) {
    let backups: Api<EtcdBackup> = Api::namespaced(world.admin.clone(), "default");
    let backup = json!({"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
        "metadata": {"name": name}, "spec": {"etcdCluster": {"name": NAME_OF_SAMPLE}}});
    backups.create(&PostParams::default(), &serde_json::from_value(backup).unwrap()).await.unwrap();
    let is_done = async |_: &EtcdClusterStatus| {
        let status = backups.get(name).await.unwrap().status;
        status.is_some_and(|status| status.succeeded && status.bytes > 0 && status.etcd_revision > 0)
    };
    world.until(&format!("backup {name}"), is_done).await;
}

/// Restores a backup and waits for it.
pub(crate) async fn restore(world: &World, name: &str, backup: &str) {
    let restores: Api<EtcdRestore> = Api::namespaced(world.admin.clone(), "default");
    let restore = json!({"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
        "metadata": {"name": name}, "spec": {"etcdCluster": {"name": NAME_OF_SAMPLE}, "backup": backup}});
    restores.create(&PostParams::default(), &serde_json::from_value(restore).unwrap()).await.unwrap();
    let is_done =
        async |_: &EtcdClusterStatus| restores.get(name).await.unwrap().status.is_some_and(|status| status.succeeded);
    world.until(&format!("restore {name}"), is_done).await;
}

fn metrics(world: &World) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    world.metrics.register(&mut registry);
    encode(&mut text, &registry).unwrap();
    text
}

fn figure(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find(|line| line.starts_with(&format!("etcd_cluster_{name}{{"))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}
