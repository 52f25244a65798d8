//! Tests of the lifecycle of clusters: recovery, growth, shrinking, pause and deletion.

use crate::levels::backup;
use crate::world::{NAME_OF_SAMPLE, condition, run_scenario};
use etcd_operator::api::etcdcluster_v1beta2::{EtcdCluster, Phase};
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

#[test]
fn member_with_deleted_pod_is_replaced() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        world.put("foo", "bar").await;
        world.start_counting();
        for _ in 0..3 {
            let names = world.names().await;
            world.delete_pod(&names[1]).await;
            world
                .until("the status reports the lost member", async |status| !status.members.ready.contains(&names[1]))
                .await;
            let status = world.settled(3).await;
            assert!(
                !status.members.ready.contains(&names[1]) && status.members.ready.contains(&names[0]),
                "{status:#?}"
            );
        }
        world.assert_no_client_errors();
        assert_eq!(world.get("foo").await.as_deref(), Some("bar"));
        assert_eq!(world.status().await.incarnation.unwrap().number, 1);
    });
}

#[test]
fn cluster_scales_to_seven_and_to_one() {
    run_scenario(async |world| {
        world.create(1, json!({})).await;
        world.put("foo", "bar").await;
        for size in [3, 7] {
            world.patch(json!({"size": size})).await;
            world.settled(size).await;
        }
        // While a cluster grows from one to two members, both are needed for a quorum, and one has not started.
        world.start_counting();
        for size in [5, 2, 1] {
            world.patch(json!({"size": size})).await;
            world.settled(size).await;
        }
        world.assert_no_client_errors();
        assert_eq!(world.get("foo").await.as_deref(), Some("bar"));
        assert_eq!(world.model.member_counts(), [(1, 1)]);
    });
}

#[test]
fn invalid_sizes_and_versions_are_rejected() {
    run_scenario(async |world| {
        world.create(1, json!({})).await;
        let cluster = |name: &str, size: u8, version: &str| -> EtcdCluster {
            serde_json::from_value(json!({"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
                "metadata": {"name": name}, "spec": {"size": size, "version": version}}))
            .unwrap()
        };
        for (wrong, word) in [
            (cluster("a", 0, "3.5.0"), "spec.size"),
            (cluster("a", 8, "3.5.0"), "spec.size"),
            (cluster("a", 3, "latest"), "spec.version"),
        ] {
            let rejected = world.clusters.create(&PostParams::default(), &wrong).await.unwrap_err().to_string();
            assert!(rejected.contains(word), "{rejected}");
        }
    });
}

#[test]
fn paused_cluster_is_not_changed() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        world.patch(json!({"paused": true})).await;
        world.until("the status reports the pause", async |status| status.control_paused).await;
        let names = world.names().await;
        world.delete_pod(&names[0]).await;
        world.patch(json!({"size": 5, "version": "3.3.12"})).await;
        sleep(Duration::from_secs(300)).await;
        assert_eq!(world.names().await, names[1..]);
        let status = world.status().await;
        assert_eq!((status.members.ready.len(), status.current_version.as_str()), (2, "3.1.10"), "it still looks");

        world.patch(json!({"paused": false})).await;
        let status = world.settled(5).await;
        assert_eq!(status.current_version, "3.3.12");
    });
}

#[test]
fn lost_majority_without_a_backup_is_not_repaired() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        let names = world.names().await;
        for name in &names[1..] {
            world.delete_pod(name).await;
        }
        sleep(Duration::from_secs(300)).await;
        let status = world.status().await;
        assert_eq!(condition(&status, "Available"), "False");
        let progressing = status.conditions.iter().find(|condition| condition.kind == "Progressing").unwrap();
        assert!(progressing.message.contains("there is no backup"), "{progressing:?}");
        assert_eq!(world.names().await, names[..1], "the remaining pods may still serve clients");
    });
}

#[test]
fn backup_of_an_earlier_cluster_of_the_same_name_is_not_used() {
    run_scenario(async |world| {
        world.create(1, json!({})).await;
        world.put("whose", "the first one's").await;
        backup(world, "first").await;
        world.clusters.delete(NAME_OF_SAMPLE, &Default::default()).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        world.create(1, json!({})).await;
        let names = world.names().await;
        world.delete_pod(&names[0]).await;
        sleep(Duration::from_secs(300)).await;
        let status = world.status().await;
        assert_eq!((status.incarnation.unwrap().number, status.phase), (1, Phase::Running));
        crate::levels::restore(world, "by-hand", "first").await;
        assert_eq!(world.get("whose").await.as_deref(), Some("the first one's"));
    });
}

#[test]
fn deletion_removes_all_objects_of_the_cluster() {
    run_scenario(async |world| {
        world.create(3, json!({})).await;
        let created = world.clusters.get(NAME_OF_SAMPLE).await.unwrap();
        assert_eq!(created.finalizers(), &[] as &[String], "owners' references do");
        world.clusters.delete(NAME_OF_SAMPLE, &Default::default()).await.unwrap();
        sleep(Duration::from_secs(120)).await;
        assert!(world.names().await.is_empty());
        let services: Api<Service> = Api::namespaced(world.admin.clone(), "default");
        let services = services.list(&ListParams::default()).await.unwrap();
        assert!(services.iter().all(|service| !service.name_any().starts_with(NAME_OF_SAMPLE)));
    });
}
