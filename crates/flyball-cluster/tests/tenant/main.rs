//! The sample operators, with a tenant who may write only their custom resources in one namespace.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod payloads;
mod suite;

use etcd_operator::api::etcdbackup_v1beta2::EtcdBackup;
use etcd_operator::api::etcdcluster_v1beta2::EtcdCluster;
use etcd_operator::api::etcdrestore_v1beta2::EtcdRestore;
use etcd_operator::metrics::ClusterMetrics;
use etcd_operator::model::Model;
use flyball::{Operator, Rng};
use flyball_cluster::testing::Test;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use suite::{Latencies, Suite};
use tokio::time::Instant;
use vmgroup::converge::Groups;
use vmgroup::simulator::Simulator;
use vmgroup::vsphere::{Client, Site, Timing};

/// Minimum number of payloads of all suites together.
const MIN_PAYLOADS: usize = 1000;
/// Number of neighbors before the payloads, and of those during them.
const NEIGHBORS: usize = 20;
/// Timeout of deletions: some involve slow external systems.
const MAX_DELETION: Duration = Duration::from_secs(3600);
/// Time for the reconciliation of the payloads.
const PERIOD: Duration = Duration::from_secs(60);

/// An operator, and a valid spec for each of its definitions.
struct Sample {
    make: fn() -> Operator,
    definitions: Vec<(CustomResourceDefinition, Value)>,
}

fn crontab() -> Sample {
    let definition = include_str!("../../../../operators/crontab/config/foreign/crontabs.stable.example.com.yaml");
    let definition = serde_saphyr::from_str(definition).unwrap();
    let good = json!({"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"});
    Sample { make: crontab::operator, definitions: vec![(definition, good)] }
}

fn demovolume() -> Sample {
    let definition = demovolume::api::demovolume_v1::DemoVolume::crd();
    Sample { make: demovolume::operator, definitions: vec![(definition, json!({"name": "films", "size": 3}))] }
}

fn etcd() -> Sample {
    let make = || {
        let model = Arc::new(Model::new(Rng::from_seed(1)));
        etcd_operator::operator(model.clone(), model, ClusterMetrics::default())
    };
    let cluster = json!({"size": 3, "version": "3.1.10"});
    let (backup, restore) =
        (json!({"etcdCluster": {"name": "a"}}), json!({"etcdCluster": {"name": "a"}, "backup": "a"}));
    let definitions = vec![(EtcdCluster::crd(), cluster), (EtcdBackup::crd(), backup), (EtcdRestore::crd(), restore)];
    Sample { make, definitions }
}

fn memcached() -> Sample {
    let definition = memcached::api::memcached_v1alpha1::Memcached::crd();
    Sample { make: memcached::operator, definitions: vec![(definition, json!({"size": 2, "containerPort": 11211}))] }
}

fn myapp() -> Sample {
    let definition = myapp::api::myapp_v1alpha1::MyApp::crd();
    let good = json!({"images": "example.com/app", "version": "1.0", "replicas": 1, "port": 80, "storage": "1Gi"});
    Sample { make: myapp::operator, definitions: vec![(definition, good)] }
}

fn redis() -> Sample {
    let definition = redis::api::redis_v1alpha1::Redis::crd();
    Sample { make: redis::operator, definitions: vec![(definition, json!({"size": 2, "image": "redis:7"}))] }
}

fn sample_controller() -> Sample {
    let definition = sample_controller::api::foo_v1alpha1::Foo::crd();
    let good = json!({"deploymentName": "example-foo", "replicas": 1});
    Sample { make: sample_controller::operator, definitions: vec![(definition, good)] }
}

fn visitors() -> Sample {
    use visitors::NAME;
    use visitors::api::visitorsapp_v1::VisitorsApp;
    use visitors::controllers::visitorsapp;
    let make =
        || Operator::new(NAME).crd(VisitorsApp::crd()).controller(visitorsapp::controller(|| "drawn".to_owned()));
    Sample { make, definitions: vec![(VisitorsApp::crd(), json!({"size": 1, "title": "Visitors"}))] }
}

fn vmgroup() -> Sample {
    use vmgroup::api::vmgroup_v1alpha1::VmGroup;
    use vmgroup::controllers::vmgroup::{VmGroupReconciler, controller};
    let make = || {
        let transport = Simulator::new(vmgroup::simulator::Options::default()).transport();
        let client = Client::new(Simulator::credentials(), Site::default(), Timing::default(), transport).unwrap();
        vmgroup::operator(controller(VmGroupReconciler::new(Groups::new(client, 3), PERIOD)))
    };
    let good = json!({"cpu": 1, "memory": 1, "replicas": 1, "template": "vm-operator-template"});
    Sample { make, definitions: vec![(VmGroup::crd(), good)] }
}

fn kind_of(definition: &CustomResourceDefinition) -> ApiResource {
    let version = definition.spec.versions.iter().find(|version| version.storage).unwrap();
    let gvk = GroupVersionKind::gvk(&definition.spec.group, &version.name, &definition.spec.names.kind);
    ApiResource::from_gvk_with_plural(&gvk, &definition.spec.names.plural)
}

fn is_settled(object: &DynamicObject) -> bool {
    !object.data["status"].is_null()
}

/// Sends all payloads for the schemas of an operator's definitions, checks that neighbors are served, and deletes all
/// objects.
async fn check_isolation(sample: Sample) {
    let test = Test::of(sample.make).start().await;
    let kinds: Vec<ApiResource> = sample.definitions.iter().map(|(definition, _)| kind_of(definition)).collect();
    for (definition, _) in &sample.definitions {
        test.apply(&serde_json::to_string(&definition.clone()).unwrap()).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let suite = Suite::begin(&test, &kinds, "vault").await;
    let (kind, good) = (&kinds[0], &sample.definitions[0].1);
    let neighbors = |name: &'static str| {
        (0..NEIGHBORS).map(move |at| {
            let mut spec = good.clone();
            // Each names a Deployment of its own.
            if let Some(deployment) = spec.get_mut("deploymentName") {
                *deployment = format!("{name}-{at}").into();
            }
            json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": format!("{name}{at}")}, "spec": spec})
        })
    };
    // A CronTab has no status.
    let is_served = async |object: &DynamicObject| {
        let has_job = async || test.api::<CronJob>().get_opt(&object.name_any()).await.unwrap().is_some();
        is_settled(object) || kind.kind == "CronTab" && has_job().await
    };
    let calm = suite.latencies(kind, neighbors("calm"), is_served).await;

    let (mut sent, mut all) = (0, 0);
    for (kind, (definition, good)) in kinds.iter().zip(&sample.definitions) {
        let api = suite.api(kind);
        for payload in payloads::of(definition, good) {
            all += 1;
            let Ok(object) = serde_json::from_value(payload) else { continue };
            sent += usize::from(api.create(&PostParams::default(), &object).await.is_ok());
        }
    }
    assert!(sent > all / 10, "{sent} of {all} payloads are stored");
    let attacked = suite.latencies(kind, neighbors("attacked"), is_served).await;
    Latencies::print(&calm, &attacked, all, &format!("{} ({sent} stored)", kind.kind));
    tokio::time::sleep(PERIOD).await;
    suite.assert_harmless(|_| false).await;

    for kind in &kinds {
        suite.api(kind).delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    }
    let start = Instant::now();
    for kind in &kinds {
        let api = suite.api(kind);
        // One was created with a finalizer that is never removed.
        let is_held = |object: &DynamicObject| object.finalizers().iter().any(|finalizer| finalizer == "example.com/a");
        while let Some(remaining) =
            api.list(&ListParams::default()).await.unwrap().iter().find(|object| !is_held(object))
        {
            let finalizers = remaining.finalizers();
            assert!(start.elapsed() < MAX_DELETION, "{} {} is left: {finalizers:?}", kind.kind, remaining.name_any());
            tokio::time::sleep(MAX_DELETION / 60).await;
        }
    }
    suite.assert_harmless(|_| false).await;
}

#[test]
fn payloads_reach_the_minimum_count() {
    let samples =
        [crontab(), demovolume(), etcd(), memcached(), myapp(), redis(), sample_controller(), visitors(), vmgroup()];
    let definitions = samples.into_iter().flat_map(|sample| sample.definitions);
    let count: usize = definitions.map(|(definition, good)| payloads::of(&definition, &good).len()).sum();
    assert!(count >= MIN_PAYLOADS, "{count}");
}

#[tokio::test(start_paused = true)]
async fn tenant_of_crontab_is_isolated() {
    check_isolation(crontab()).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_of_demovolume_is_isolated() {
    check_isolation(demovolume()).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_of_etcd_is_isolated() {
    check_isolation(etcd()).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_of_memcached_is_isolated() {
    check_isolation(memcached()).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_of_myapp_is_isolated() {
    check_isolation(myapp()).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_of_redis_is_isolated() {
    check_isolation(redis()).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_of_sample_controller_is_isolated() {
    check_isolation(sample_controller()).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_of_visitors_is_isolated() {
    check_isolation(visitors()).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_of_vmgroup_is_isolated() {
    check_isolation(vmgroup()).await;
}
