//! Published packages in old formats: their CRDs have the version v1beta1, which Kubernetes 1.22 removed.

use crate::behavior::catalog::{ADDRESS, Server};
use crate::fixture::{SUCCEEDED, namespace, own_group, setup_of, state, state_in, until};
use flyball::Operator;
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{CatalogSource, ClusterServiceVersion, InstallPlan, Subscription, SubscriptionState};
use flyball_lifecycle::content::{Blobs, BundleBlob, ChannelBlob, ChannelEntry, Content, PackageBlob};
use flyball_lifecycle::manifests::BundleFolder;
use flyball_lifecycle::source::{Sources, read_folder};
use flyball_lifecycle::{Settings, operator};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The namespace of the book.
const MARKETPLACE: &str = "marketplace";
const VISITORS: &str = "visitors-operator.v1.0.0";
const ETCD: &str = "etcdoperator.v0.9.4";

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/packages").join(of)
}

fn document(name: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path(name)).unwrap()).unwrap()
}

fn manager(settings: Settings) -> Operator {
    operator(&Settings { global_namespace: "test".to_owned(), ..settings })
}

/// Creates the catalog of the book in a ConfigMap, the OperatorGroup and the Subscription.
async fn subscribe_to_visitors(test: &Test, change: impl FnOnce(&mut Value)) {
    namespace(test, MARKETPLACE, json!({})).await;
    let mut definition = document("visitors/example_v1_visitorsapp_crd.yaml");
    change(&mut definition);
    let csv = document(&format!("visitors/{VISITORS}.clusterserviceversion.yaml"));
    let list = |document: Value| json!([document]).to_string();
    let data = json!({
        "packages": list(document("visitors/visitors-operator.package.yaml")),
        "clusterServiceVersions": list(csv),
        "customResourceDefinitions": list(definition),
    });
    let labels = json!({"olm.flyball.dev/catalog": "true"});
    let metadata = json!({"name": "jdob-operators", "namespace": MARKETPLACE, "labels": labels});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    let source = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": metadata,
        "spec": {"sourceType": "internal", "configMap": "jdob-operators"},
    });
    let (group, subscription) = (document("visitors/operator-group.yaml"), document("visitors/subscription.yaml"));
    for object in [map, source, group, subscription] {
        test.apply(&object.to_string()).await;
    }
}

/// Returns the catalog with the bundle of the etcd operator.
fn etcd_catalog(change: impl Fn(&mut Value)) -> Content {
    let folder = BundleFolder::read(&read_folder(&path("etcd/0.9.4")).unwrap()).unwrap();
    let mut bundle = BundleBlob::of_folder(&folder, "");
    bundle.objects = std::fs::read_dir(path("etcd/0.9.4/manifests"))
        .unwrap()
        .map(|file| {
            let mut object = document(&format!("etcd/0.9.4/manifests/{}", file.unwrap().file_name().display()));
            change(&mut object);
            object.to_string().into()
        })
        .collect();
    let channel = folder.annotations.default_channel().unwrap().to_owned();
    let csv = folder.manifests.csv();
    let entry = ChannelEntry {
        name: bundle.name.clone(),
        replaces: csv["spec"]["replaces"].as_str().unwrap().to_owned(),
        ..ChannelEntry::default()
    };
    let package = folder.annotations.package.clone();
    let content = Content::new(Blobs {
        packages: vec![PackageBlob { name: package.clone(), default_channel: channel.clone(), ..Default::default() }],
        channels: vec![ChannelBlob { name: channel, package, entries: vec![entry], ..Default::default() }],
        bundles: vec![bundle],
        ..Blobs::default()
    });
    assert!(content.problems().is_empty(), "{:?}", content.problems());
    content
}

/// Subscribes to the package of the etcd operator in the namespace of the test.
async fn subscribe_to_etcd(test: &Test) {
    own_group(test).await;
    let version = "operators.coreos.com/v1alpha1";
    let spec = json!({"sourceType": "grpc", "address": ADDRESS});
    let source =
        json!({"apiVersion": version, "kind": "CatalogSource", "metadata": {"name": "community"}, "spec": spec});
    let spec = json!({
        "name": "etcd", "channel": "singlenamespace-alpha", "source": "community", "sourceNamespace": test.namespace(),
    });
    let subscription =
        json!({"apiVersion": version, "kind": "Subscription", "metadata": {"name": "etcd"}, "spec": spec});
    test.apply(&source.to_string()).await;
    test.apply(&subscription.to_string()).await;
}

/// Returns a schema that v1 cannot express.
fn reference() -> Value {
    json!({"openAPIV3Schema": {"properties": {"spec": {"$ref": "#/definitions/spec"}}}})
}

fn resources(test: &Test, namespace: &str, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(test.client(), namespace, &resource)
}

/// Returns the custom resources in the annotation `alm-examples`.
fn examples(csv: &Value) -> Vec<DynamicObject> {
    serde_json::from_str(csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap()).unwrap()
}

/// Returns the message of a condition of a Subscription; empty if it has none.
async fn condition(api: &Api<Subscription>, name: &str, kind: &str) -> String {
    let conditions = api.get(name).await.unwrap().status.conditions;
    conditions
        .into_iter()
        .find(|condition| condition.kind == kind)
        .map(|condition| condition.message)
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn visitors_operator_of_the_book_is_installed_from_its_local_catalog() {
    let make = || manager(Settings::new(Arc::new(Sources::default())));
    let test = setup_of(make).allows_changes_in(MARKETPLACE).start().await;
    subscribe_to_visitors(&test, |_| ()).await;
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(test.client(), MARKETPLACE);
    let plans: Api<InstallPlan> = Api::namespaced(test.client(), MARKETPLACE);
    test.eventually("the operator runs", async || {
        for plan in plans.list(&ListParams::default()).await.unwrap() {
            assert_eq!(plan.status.message, "");
        }
        state_in(&csvs, VISITORS).await == SUCCEEDED
    })
    .await;
    test.assert_converges().await;
    let subscriptions: Api<Subscription> = Api::namespaced(test.client(), MARKETPLACE);
    let status = subscriptions.get("book-sub").await.unwrap().status;
    assert_eq!((status.installed_csv.as_str(), status.state), (VISITORS, SubscriptionState::AtLatestKnown));

    let deployments: Api<Deployment> = Api::namespaced(test.client(), MARKETPLACE);
    let deployment = deployments.get("visitors-operator").await.unwrap();
    assert_eq!(deployment.status.unwrap().available_replicas, Some(1));
    let roles: Api<Role> = Api::namespaced(test.client(), MARKETPLACE);
    let granted = roles.list(&ListParams::default()).await.unwrap().items;
    let mut rules: Vec<usize> = granted.iter().filter_map(|role| role.rules.as_ref()).map(Vec::len).collect();
    rules.sort_unstable();
    assert_eq!(rules, [1, 5], "those of the bundle, and that of the OperatorCondition");

    // The CRD is one of v1 with the old meaning: its schema applies, and fields outside of the schema are preserved.
    let apps = resources(&test, MARKETPLACE, "example.com", "v1", "VisitorsApp");
    let mut app = examples(&document(&format!("visitors/{VISITORS}.clusterserviceversion.yaml"))).remove(0);
    app.data["spec"]["theme"] = json!("dark");
    let created = apps.create(&PostParams::default(), &app).await.unwrap();
    assert_eq!(created.data["spec"], json!({"size": 1, "title": "Custom Dashboard Title", "theme": "dark"}));
    app.metadata.name = Some("without-size".to_owned());
    app.data["spec"] = json!({"title": "x"});
    let error = apps.create(&PostParams::default(), &app).await.unwrap_err().to_string();
    assert!(error.contains("spec.size: Required value"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn etcd_operator_of_the_community_catalog_is_installed() {
    let make = || manager(Settings::new(Arc::new(Server::of(etcd_catalog(|_| ())))));
    let mut test = setup_of(make).start().await;
    subscribe_to_etcd(&test).await;
    until(&test, ETCD, SUCCEEDED).await;
    let deployment = test.api::<Deployment>().get("etcd-operator").await.unwrap();
    assert_eq!(deployment.spec.unwrap().template.spec.unwrap().containers.len(), 3);
    let definitions: Api<CustomResourceDefinition> = Api::all(test.client());
    for plural in ["etcdbackups", "etcdclusters", "etcdrestores"] {
        let definition = definitions.get(&format!("{plural}.etcd.database.coreos.com")).await.unwrap();
        assert_eq!(definition.spec.versions[0].name, "v1beta2");
    }
    let clusters = resources(&test, test.namespace(), "etcd.database.coreos.com", "v1beta2", "EtcdCluster");
    let csv = document(&format!("etcd/0.9.4/manifests/{ETCD}.clusterserviceversion.yaml"));
    for example in examples(&csv) {
        clusters.create(&PostParams::default(), &example).await.unwrap();
    }
    assert_eq!(clusters.get("example").await.unwrap().data["spec"]["size"], 3);
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn v1beta1_crds_that_lose_something_are_refused_by_name() {
    const EXPECTED: [&str; 3] =
        ["has apiVersion apiextensions.k8s.io/v1beta1, which Kubernetes no longer serves", "$ref", "write the schema"];
    let check = |name: &str, message: &str| {
        let parts = EXPECTED.into_iter().chain([name]);
        parts.for_each(|part| assert!(message.contains(part), "{part} is missing: {message}"));
    };

    let make = || manager(Settings::new(Arc::new(Sources::default())));
    let test = setup_of(make).allows_changes_in(MARKETPLACE).start().await;
    subscribe_to_visitors(&test, |definition| definition["spec"]["validation"] = reference()).await;
    test.assert_converges().await;
    let sources: Api<CatalogSource> = Api::namespaced(test.client(), MARKETPLACE);
    check("visitorsapps.example.com", &sources.get("jdob-operators").await.unwrap().status.message);
    let subscriptions: Api<Subscription> = Api::namespaced(test.client(), MARKETPLACE);
    check("visitorsapps.example.com", &condition(&subscriptions, "book-sub", "ResolutionFailed").await);

    let make = || {
        let content = etcd_catalog(|object| {
            if object["metadata"]["name"] == "etcdrestores.etcd.database.coreos.com" {
                object["spec"]["validation"] = reference();
            }
        });
        manager(Settings::new(Arc::new(Server::of(content))))
    };
    let test = setup_of(make).start().await;
    subscribe_to_etcd(&test).await;
    let subscriptions = test.api::<Subscription>();
    test.eventually("the bundle is refused", async || {
        !condition(&subscriptions, "etcd", "BundleUnpackFailed").await.is_empty()
    })
    .await;
    check("etcdrestores.etcd.database.coreos.com", &condition(&subscriptions, "etcd", "BundleUnpackFailed").await);
    assert_eq!(state(&test, ETCD).await, "absent");
}
