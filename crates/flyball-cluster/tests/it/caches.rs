//! What operators watch and keep, on a whole API server: selectors, metadata, secrets, kinds that come and go.

use crate::{cluster, eventually};
use flyball::{Action, Cache, Context, Controller, ObjectKey, Operator, Reconcile, Result, Rng};
use flyball_cluster::simulated_clock;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use myapp::resource::MyApp;
use serde_json::{Value, json};
use std::future::pending;
use std::sync::{Arc, Mutex};

/// Tells what it finds: config maps, applications, labels of a secret and what is in it.
#[derive(Clone, Default)]
struct Look(Arc<Mutex<String>>);

impl Look {
    fn seen(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

fn names<T: ResourceExt>(found: Vec<T>) -> String {
    found.iter().map(|object| object.name_any()).collect::<Vec<_>>().join(" ")
}

impl Reconcile for Look {
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

fn looks<T>(_: &T, _: &flyball::Caches) -> Result<Vec<ObjectKey>> {
    Ok(vec![ObjectKey::new(Some("default"), "looks")])
}

async fn make<T>(client: &Client, object: Value) -> T
where
    T: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    T: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    Api::<T>::default_namespaced(client.clone()).create(&PostParams::default(), &object).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_what_it_selects_of_kinds_that_come_and_go() {
    let client = cluster().admin();
    let look = Look::default();
    let controller = Controller::new(look.clone())
        .watches(looks::<ConfigMap>)
        .watches(looks::<PartialObjectMeta<MyApp>>)
        .refers_to::<Secret>(|_| vec![ObjectKey::new(None, "key")]);
    let operator = Operator::new("looks")
        .clock(simulated_clock())
        .rng(Rng::from_seed(1))
        .controller(controller)
        .cache(Cache::<ConfigMap>::new().labels("app in (web)").namespaces(["default"]));
    let theirs = client.clone();
    tokio::spawn(async move { operator.run(theirs, pending()).await.unwrap() });
    let sees = async |expected: &str| eventually(expected, || async { look.seen() == expected }).await;

    // The kind of applications is not there, and nobody waits for it.
    make::<ServiceAccount>(&client, json!({"metadata": {"name": "looks"}})).await;
    sees("; ; ").await;
    let label = |app: &str| json!({"metadata": {"name": "map", "labels": {"app": app}}});
    make::<ConfigMap>(&client, label("web")).await;
    sees("map; ; ").await;
    make::<Secret>(&client, json!({"metadata": {"name": "key"}, "stringData": {"key": "value"}})).await;
    sees("map; ; value").await;
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    maps.patch("map", &PatchParams::default(), &Patch::Merge(label("db"))).await.unwrap();
    sees("; ; value").await;
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    let other = json!({"stringData": {"key": "other"}});
    secrets.patch("key", &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
    sees("; ; other").await;

    // It comes, goes with what there is of it, and comes back.
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let app = |name: &str| {
        let spec = json!({"images": "registry.example.com/shop", "version": "1.0", "replicas": 2});
        MyApp::new(name, serde_json::from_value(spec).unwrap())
    };
    for round in ["one", "two"] {
        definitions.create(&PostParams::default(), &MyApp::crd()).await.unwrap();
        eventually("the kind is served", || async {
            let apps = Api::<MyApp>::default_namespaced(client.clone());
            apps.create(&PostParams::default(), &app(round)).await.is_ok()
        })
        .await;
        sees(&format!("; {round}; other")).await;
        definitions.delete(MyApp::crd_name(), &DeleteParams::default()).await.unwrap();
        sees("; ; other").await;
        eventually("the kind is gone", || async { definitions.get_opt(MyApp::crd_name()).await.unwrap().is_none() })
            .await;
    }
}
