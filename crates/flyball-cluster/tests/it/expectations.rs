//! Recent creations and deletions of an operator count, even if the watch is delayed.

use crate::{cluster, eventually};
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use flyball_cluster::{Cluster, User};
use futures_util::StreamExt;
use http::{Method, Request};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::time::sleep;
use tower::service_fn;

/// Maintains the number of pods in the config map `count`.
struct Pods(Arc<AtomicUsize>);

impl Reconcile for Pods {
    type Resource = ConfigMap;

    async fn reconcile(&self, map: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
        let Some(desired) = map.data.as_ref().and_then(|data| data.get("count")) else { return Ok(Action::done()) };
        let desired: usize = desired.parse().unwrap_or(0);
        self.0.fetch_add(1, Ordering::Relaxed);
        let mut pods = cx.children::<Pod>().await?;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        let pod = json!({"metadata": {"generateName": "part-"}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
        for _ in pods.len()..desired {
            cx.create::<Pod>(&serde_json::from_value(pod.clone())?).await?;
        }
        for pod in pods.iter().skip(desired) {
            cx.delete(pod).await?;
        }
        Ok(Action::done())
    }
}

/// The operator, and the gate that can block the watch of its pods.
struct Stage {
    admin: Client,
    gate: Arc<RwLock<()>>,
    reconciles: Arc<AtomicUsize>,
    /// Writes of pods: method, and body.
    writes: Arc<Mutex<Vec<(Method, Value)>>>,
}

impl Stage {
    async fn start(cluster: &Cluster, pods: usize) -> Self {
        let gate = Arc::<RwLock<()>>::default();
        let (reconciles, writes) = (Arc::default(), Arc::<Mutex<Vec<_>>>::default());
        let stage = Self { admin: cluster.admin(), gate: gate.clone(), reconciles, writes: writes.clone() };
        let client = gated(cluster, gate, writes);
        let controller = Controller::new(Pods(stage.reconciles.clone())).owns::<Pod>();
        tokio::spawn(async move { Operator::new("parts").controller(controller).run(client, pending()).await });
        let map = json!({"metadata": {"name": "count"}, "data": {"count": pods.to_string()}});
        let maps: Api<ConfigMap> = Api::namespaced(stage.admin.clone(), "default");
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        stage
    }

    /// Blocks the watch.
    async fn hold(&self) -> OwnedRwLockWriteGuard<()> {
        self.gate.clone().write_owned().await
    }

    async fn pods(&self) -> usize {
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), "default");
        let listed = pods.list(&ListParams::default()).await.unwrap();
        listed.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
    }

    async fn edit(&self, patch: Value) {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "default");
        maps.patch("count", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn want(&self, pods: usize) {
        self.edit(json!({"data": {"count": pods.to_string()}})).await;
    }

    /// Triggers the key a hundred times.
    async fn wake(&self, pause: Duration) {
        for n in 0..100 {
            self.edit(json!({"metadata": {"annotations": {"n": n.to_string()}}})).await;
            sleep(pause).await;
        }
    }

    fn reconciles(&self) -> usize {
        self.reconciles.swap(0, Ordering::Relaxed)
    }

    /// Takes the recorded writes: the number of created pods, and the preconditions of deletions.
    fn writes(&self) -> (usize, Vec<Value>) {
        let writes = std::mem::take(&mut *self.writes.lock().unwrap());
        let deleted = writes.iter().filter(|(method, _)| method == Method::DELETE);
        let deleted: Vec<Value> = deleted.map(|(_, body)| body["preconditions"].clone()).collect();
        (writes.len() - deleted.len(), deleted)
    }
}

/// Creates a client that receives pod watches only while the gate is open.
fn gated(cluster: &Cluster, gate: Arc<RwLock<()>>, writes: Arc<Mutex<Vec<(Method, Value)>>>) -> Client {
    let server = cluster.server().clone();
    let pass = move |request: Request<kube::client::Body>| {
        let (server, gate, writes) = (server.clone(), gate.clone(), writes.clone());
        async move {
            let (mut head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            head.extensions.insert(User::new("operator", &["system:masters"]));
            let of_pods = head.uri.path().contains("/pods");
            let is_blocked = of_pods && head.uri.query().unwrap_or_default().contains("watch=true");
            if of_pods && head.method != Method::GET {
                let body = serde_json::from_slice(&body).unwrap_or_default();
                writes.lock().unwrap().push((head.method.clone(), body));
            }
            let answer = server.handle(Request::from_parts(head, http_body_util::Full::new(body))).await;
            Ok::<_, kube::Error>(answer.map(|body| {
                let frames = http_body_util::BodyStream::new(body).then(move |frame| {
                    let gate = gate.clone();
                    async move {
                        if is_blocked {
                            drop(gate.read().await);
                        }
                        frame
                    }
                });
                StreamBody::new(frames.boxed())
            }))
        }
    };
    Client::new(service_fn(pass), "default")
}

#[tokio::test(start_paused = true)]
async fn blocked_watch_causes_no_duplicate_pods() {
    let stage = Stage::start(&cluster(), 0).await;
    sleep(Duration::from_secs(1)).await;
    let blocked = stage.hold().await;
    stage.reconciles();
    stage.want(3).await;
    stage.wake(Duration::from_millis(50)).await;
    assert_eq!((stage.pods().await, stage.writes().0, stage.reconciles()), (3, 3, 1));
    drop(blocked);
    sleep(Duration::from_secs(1)).await;
    assert!(stage.reconciles() > 0, "it continues with the watch");
    assert_eq!((stage.pods().await, stage.writes()), (3, (0, Vec::new())));
    stage.want(4).await;
    eventually("the fourth", || async { stage.pods().await == 4 }).await;
}

#[tokio::test(start_paused = true)]
async fn blocked_watch_past_the_timeout_causes_no_duplicate_pods() {
    let stage = Stage::start(&cluster(), 0).await;
    sleep(Duration::from_secs(1)).await;
    let _held = stage.hold().await;
    stage.want(3).await;
    sleep(Duration::from_secs(1)).await;
    stage.reconciles();
    stage.wake(Duration::from_secs(11)).await;
    let reconciles = stage.reconciles();
    assert!(reconciles >= 100, "{reconciles} reconciles, none of which saw a pod by its watch");
    assert_eq!((stage.pods().await, stage.writes().0), (3, 3));
    // The watch is still blocked.
    stage.want(5).await;
    sleep(Duration::from_secs(11)).await;
    assert_eq!((stage.pods().await, stage.writes().0), (5, 2));
    stage.want(2).await;
    stage.wake(Duration::from_secs(11)).await;
    assert_eq!((stage.pods().await, stage.writes().1.len()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn deletions_are_matched_by_uid() {
    let stage = Stage::start(&cluster(), 5).await;
    eventually("five pods", || async { stage.pods().await == 5 }).await;
    sleep(Duration::from_secs(1)).await;
    let blocked = stage.hold().await;
    stage.reconciles();
    stage.writes();
    stage.want(2).await;
    stage.wake(Duration::from_millis(50)).await;
    let (created, deleted) = stage.writes();
    assert_eq!((stage.pods().await, created, deleted.len(), stage.reconciles()), (2, 0, 3, 1));
    assert!(deleted.iter().all(|precondition| precondition["uid"].is_string()), "{deleted:?}");
    // Another client deletes one of the remaining pods, which no reconcile has observed yet.
    let pods: Api<Pod> = Api::namespaced(stage.admin.clone(), "default");
    let name = pods.list(&ListParams::default()).await.unwrap().items[0].name_any();
    pods.delete(&name, &Default::default()).await.unwrap();
    drop(blocked);
    eventually("a replacement", || async { stage.pods().await == 2 }).await;
    sleep(Duration::from_secs(11)).await;
    assert_eq!((stage.pods().await, stage.writes()), (2, (1, Vec::new())));
}
