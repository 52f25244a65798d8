//! One custom resource with seven objects: without faults, with faults, and with an operator that is killed.

use crate::cluster;
use flyball::{Operator, Rng};
use flyball_cluster::{Cluster, Controller, Controllers, Faults, Options, Trace, User, simulated_clock};
use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use myapp::NAME;
use myapp::api::myapp_v1alpha1::MyApp;
use myapp::controllers::myapp::controller;
use serde_json::{Value, json};
use std::cell::Cell;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tower::service_fn;

/// Watch events are delayed and duplicated, and watches break off; no other faults.
const DISORDER: Faults =
    Faults { broken_watch: 0.1, late: 0.3, repeated: 0.2, expired: 0.2, slow: 0.1, ..Faults::NONE };

fn app() -> MyApp {
    let spec = json!({"images": "registry.example.com/shop", "version": "1.0", "replicas": 2});
    MyApp::new("shop", serde_json::from_value(spec).unwrap())
}

async fn install(admin: &Client) -> Api<MyApp> {
    Api::all(admin.clone()).create(&PostParams::default(), &MyApp::crd()).await.unwrap();
    Api::namespaced(admin.clone(), "default")
}

/// Returns the application and its objects, without values that differ between runs.
async fn objects(admin: &Client) -> Vec<String> {
    let kinds = [
        ApiResource::erase::<MyApp>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
    ];
    let mut found = Vec::new();
    for kind in kinds {
        let objects: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &kind);
        let listed = objects.list(&ListParams::default()).await.unwrap();
        let ours = listed.into_iter().filter(|object| object.name_any().starts_with("shop"));
        found.extend(ours.map(|object| {
            let object = without_chance(serde_json::to_value(object).unwrap());
            format!("{} {object}", kind.kind)
        }));
    }
    found
}

/// Removes random values and times of the server.
fn without_chance(mut value: Value) -> Value {
    const CHANCE: [&str; 10] = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "lastTransitionTime",
        "lastUpdateTime",
        "time",
        "clusterIP",
        "clusterIPs",
        "nodePort",
        "healthCheckNodePort",
    ];
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|name, _| !CHANCE.contains(&name.as_str()));
            fields.values_mut().for_each(|field| *field = without_chance(field.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_chance(item.take())),
        _ => {}
    }
    value
}

#[tokio::test(start_paused = true)]
async fn application_creates_seven_objects_and_deletes_them_with_it() {
    let cluster = cluster();
    let admin = cluster.admin();
    let apps = install(&admin).await;
    let client = cluster.client(User::new("operator", &["system:masters"]));
    tokio::spawn(async move { Operator::new(NAME).controller(controller()).run(client, pending()).await });

    let app = apps.create(&PostParams::default(), &app()).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let found = objects(&admin).await;
    let kinds: Vec<&str> = found.iter().filter_map(|object| object.split(' ').next()).collect();
    let deployments = ["Deployment"; 4];
    assert_eq!(kinds, [&["MyApp"], &deployments[..], &["PersistentVolumeClaim", "Service", "ServiceAccount"]].concat());
    let owned = |object: &String| {
        object.contains(r#""blockOwnerDeletion":true,"controller":true,"kind":"MyApp","name":"shop""#)
    };
    assert!(found[1..].iter().all(owned), "{found:#?}");

    let services: Api<Service> = Api::namespaced(admin.clone(), "default");
    let service = services.get("shop").await.unwrap();
    assert_eq!(service.spec.as_ref().unwrap().type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(service.owner_references()[0].uid, app.uid().unwrap());

    apps.delete("shop", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(objects(&admin).await, Vec::<String>::new());
}

/// Waits until the operator has reconciled the application.
async fn observed(apps: &Api<MyApp>) {
    loop {
        sleep(Duration::from_millis(100)).await;
        let app = apps.get("shop").await.unwrap();
        let conditions = app.status.iter().flat_map(|status| &status.conditions);
        if conditions.map(|condition| condition.observed_generation).eq([app.metadata.generation]) {
            return;
        }
    }
}

/// The point of the operator's first crash: the number of the request, and whether it is executed.
#[derive(Clone, Copy, Debug)]
enum Crash {
    Before(u64),
    After(u64),
}

/// Creates a client whose process crashes at one request, with a notification.
fn crashing(client: Client, crash: Option<Crash>) -> (Client, Arc<Notify>) {
    let (requests, crashed) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let notify = crashed.clone();
    let pass = move |request: Request<kube::client::Body>| {
        let (number, client, notify) = (requests.fetch_add(1, Ordering::Relaxed), client.clone(), notify.clone());
        async move {
            let end = async || {
                notify.notify_one();
                pending::<()>().await;
            };
            if matches!(crash, Some(Crash::Before(at)) if at == number) {
                end().await;
            }
            let answer = client.send(request).await;
            if matches!(crash, Some(Crash::After(at)) if at == number) {
                end().await;
            }
            answer
        }
    };
    (Client::new(service_fn(pass), "default"), crashed)
}

/// The end of a story.
struct End {
    objects: Vec<String>,
    /// True if the operator did not crash.
    survived: bool,
}

/// Creates an application, changes it, breaks its objects, and waits for convergence.
async fn story(seed: u64, faults: Faults, crash: Option<Crash>) -> End {
    let clock = simulated_clock();
    let cluster = Cluster::new(Options::simulated(clock.clone(), 1));
    let (admin, rng) = (cluster.admin(), Rng::from_seed(seed));
    let operator = || Operator::new(NAME).clock(clock.clone()).rng(rng.fork("operator")).controller(controller());
    let user = User::new("operator", &["system:masters"]);
    let client = cluster.simulated_client(user, faults, rng.fork("faults"), Trace::default());
    let (first, crashed) = crashing(client.clone(), crash);

    let apps = install(&admin).await;
    let story = async {
        apps.create(&PostParams::default(), &app()).await.unwrap();
        // A generation counts writes, so each change of deployments is awaited before the next.
        observed(&apps).await;
        let merge = Patch::Merge(json!({"spec": {"version": "1.1", "replicas": 3}}));
        apps.patch("shop", &PatchParams::default(), &merge).await.unwrap();
        observed(&apps).await;
        let deployments: Api<Deployment> = Api::namespaced(admin.clone(), "default");
        deployments.delete("shop-backend", &DeleteParams::default()).await.unwrap();
        let merge = Patch::Merge(json!({"spec": {"port": 8080}}));
        apps.patch("shop", &PatchParams::default(), &merge).await.unwrap();
        sleep(Duration::from_secs(120)).await;
    };
    let survived = Cell::new(true);
    let operators = async {
        tokio::select! {
            biased;
            () = crashed.notified() => survived.set(false),
            result = operator().run(first, pending()) => panic!("the operator ended: {result:?}"),
        }
        operator().run(client, pending()).await
    };
    // The objects of deployments depend on their creation times; this test is about the deployments only.
    let controllers = Controllers::from_iter([Controller::GarbageCollector]);
    tokio::select! {
        biased;
        end = timeout(Duration::from_secs(3600), story) => end.expect("the story comes to its end within an hour"),
        result = operators => panic!("the second operator ended: {result:?}"),
        () = cluster.run(&controllers) => unreachable!("controllers run for ever"),
    }
    End { objects: objects(&admin).await, survived: survived.get() }
}

fn run(seed: u64, faults: Faults, crash: Option<Crash>) -> End {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(story(seed, faults, crash))
}

fn assert_same(found: &[String], calm: &[String], when: &str) {
    for (found, calm) in found.iter().zip(calm) {
        assert_eq!(found, calm, "{when}");
    }
    assert_eq!(found.len(), calm.len(), "{when}");
}

#[test]
fn disorder_of_watch_events_changes_nothing() {
    let seeds = std::env::var("FLYBALL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let calm = run(0, Faults::default(), None).objects;
    assert_eq!(calm.len(), 8);
    let check = |seed| assert_same(&run(seed, DISORDER, None).objects, &calm, &format!("seed {seed}"));
    thread::scope(|threads| {
        threads.spawn(|| (0..seeds / 2).for_each(check));
        (seeds / 2..seeds).for_each(check);
    });
}

#[test]
fn crash_at_any_request_changes_nothing() {
    let calm = run(0, Faults::default(), None).objects;
    for crash in [Crash::Before as fn(u64) -> Crash, Crash::After] {
        for request in 0.. {
            let end = run(0, Faults::default(), Some(crash(request)));
            if end.survived {
                assert!(request > 20, "only {request} requests were tried");
                break;
            }
            assert_same(&end.objects, &calm, &format!("{:?}", crash(request)));
        }
    }
}
