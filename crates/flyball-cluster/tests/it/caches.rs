//! Watches and caches of operators on a complete API server: selectors, metadata, secrets, kinds that are added and
//! removed.

use flyball::{Action, Cache, Context, Controller, ObjectKey, Operator, Reconcile, Result};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, CustomResourceExt, ResourceExt};
use myapp::api::myapp_v1alpha1::MyApp;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// Reconciler that records the objects in its caches: config maps, applications, labels and data of a secret.
#[derive(Clone, Default)]
struct CacheRecorder(Arc<Mutex<String>>);

impl CacheRecorder {
    fn seen(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

fn names<T: ResourceExt>(found: Vec<T>) -> String {
    found.iter().map(|object| object.name_any()).collect::<Vec<_>>().join(" ")
}

impl Reconcile for CacheRecorder {
    type Resource = ServiceAccount;

    async fn reconcile(&self, account: &ServiceAccount, cx: &Context<ServiceAccount>) -> Result<Action> {
        if account.name_any() != "looks" {
            return Ok(Action::done());
        }
        let maps = names(cx.list::<ConfigMap>(None).await?);
        let apps = names(cx.list::<PartialObjectMeta<MyApp>>(None).await?);
        let secret = cx.get::<Secret>(&cx.sibling("key")).await?;
        let value = secret.and_then(|secret| secret.data?.remove("key")).unwrap_or_default();
        let seen = format!("{maps}; {apps}; {}", String::from_utf8_lossy(&value.0));
        *self.0.lock().unwrap() = seen;
        Ok(Action::done())
    }
}

fn looks<T: flyball::Resource>(object: &T, _: &flyball::Caches) -> Result<Vec<ObjectKey>> {
    Ok(vec![ObjectKey::new(object.meta().namespace.as_deref(), "looks")])
}

fn operator(look: CacheRecorder) -> Operator {
    let controller = Controller::new(look)
        .watches(looks::<ConfigMap>)
        .watches(looks::<PartialObjectMeta<MyApp>>)
        .refers_to::<Secret>(|_| vec![ObjectKey::new(None, "key")]);
    Operator::new("looks").controller(controller).cache(Cache::<ConfigMap>::new().labels("app in (web)"))
}

#[tokio::test(start_paused = true)]
async fn operator_observes_selected_objects_of_reinstalled_kinds() {
    let look = CacheRecorder::default();
    let theirs = look.clone();
    let test = Test::of(move || operator(theirs.clone())).start().await;
    let sees = async |expected: &str| test.eventually(expected, async || look.seen() == expected).await;

    // The kind of applications is not served, and the operator does not wait for it.
    test.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: looks}}").await;
    sees("; ; ").await;
    let map =
        |app: &str| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: map, labels: {{app: {app}}}}}}}");
    let key = |value: &str| {
        format!("{{apiVersion: v1, kind: Secret, metadata: {{name: key}}, stringData: {{key: {value}}}}}")
    };
    test.apply(&map("web")).await;
    sees("map; ; ").await;
    test.apply(&key("value")).await;
    sees("map; ; value").await;
    test.apply(&map("db")).await;
    sees("; ; value").await;
    test.apply(&key("other")).await;
    sees("; ; other").await;

    // The kind is added, removed with its objects, and added again.
    let definitions: Api<CustomResourceDefinition> = Api::all(test.client());
    let app = |name: &str| {
        let spec = json!({"images": "registry.example.com/shop", "version": "1.0", "replicas": 2});
        MyApp::new(name, serde_json::from_value(spec).unwrap())
    };
    for round in ["one", "two"] {
        definitions.create(&PostParams::default(), &MyApp::crd()).await.unwrap();
        let served = async || test.api::<MyApp>().create(&PostParams::default(), &app(round)).await.is_ok();
        test.eventually("the kind is served", served).await;
        sees(&format!("; {round}; other")).await;
        definitions.delete(MyApp::crd_name(), &DeleteParams::default()).await.unwrap();
        sees("; ; other").await;
        let is_deleted = async || definitions.get_opt(MyApp::crd_name()).await.unwrap().is_none();
        test.eventually("the kind is gone", is_deleted).await;
    }
}
