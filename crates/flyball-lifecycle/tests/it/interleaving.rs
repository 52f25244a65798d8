//! An uninstallation at each request of an InstallPlan: Subscriptions and ClusterServiceVersions are deleted before or
//! after the request, while it is held back. Nothing may be left that an ordinary uninstallation does not leave, also
//! if deletions fail after the request, or the manager crashes.
//!
//! By default every fifth point is tried. `FLYBALL_LIFECYCLE_CRASHES=all` explores all of them.

use crate::behavior::catalog::{ADDRESS, Server};
use flyball_cluster::{Cluster, Controllers, Faults, Nodes, Options, Trace, User, simulated_clock};
use flyball_core::Rng;
use flyball_lifecycle::api::{ClusterServiceVersion, ClusterServiceVersionPhase, InstallPlan, Subscription};
use flyball_lifecycle::{Settings, operator};
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::service_fn;

const NAMESPACE: &str = "test";

/// The request of a plan at which the uninstallation happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Before(usize),
    After(usize),
}

/// Trouble of the manager after the uninstallation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trouble {
    #[default]
    None,
    /// Its next deletions fail.
    FailedDeletions,
    /// The manager crashes while the request is held back, and starts again.
    Crash,
    /// The status of the plan cannot be written after the last step, so that the plan is executed again. The
    /// ClusterServiceVersions belong to nobody then.
    SecondExecution,
}

/// Number of the deletions that fail.
const FAILURES: usize = 5;

/// Holds one request of the plan back.
#[derive(Default)]
struct Gate {
    point: Mutex<Option<Point>>,
    trouble: Trouble,
    /// Number of the next requests that fail.
    failures: AtomicUsize,
    /// Requests of the plan, with their methods and paths.
    seen: Mutex<Vec<String>>,
    reached: Notify,
    opened: Notify,
}

impl Gate {
    /// Counts a request; returns its number if it is one of a plan.
    fn count(&self, request: &Request<Body>) -> Option<usize> {
        let query = request.uri().query().unwrap_or_default();
        let is_of_plan = query.contains("fieldManager=flyball-olm-installplan") && !query.contains("dryRun");
        let is_released = request.method() == Method::PATCH && is_of_plan;
        is_released.then(|| {
            let mut seen = self.seen.lock();
            seen.push(request.uri().path().to_owned());
            seen.len()
        })
    }

    /// Returns true if a request fails.
    fn fails(&self, request: &Request<Body>) -> bool {
        let (method, path) = (request.method(), request.uri().path());
        let may_fail = match self.trouble {
            Trouble::None | Trouble::Crash => false,
            Trouble::FailedDeletions => {
                method == Method::DELETE && path.starts_with("/apis/rbac.authorization.k8s.io/v1/clusterrole")
            }
            Trouble::SecondExecution => {
                let is_status = path.contains("/installplans/") && path.ends_with("/status");
                method == Method::PATCH && is_status && !self.seen.lock().is_empty()
            }
        };
        let one_less = |left: usize| left.checked_sub(1);
        may_fail && self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    async fn pass(&self, point: Point) {
        if *self.point.lock() == Some(point) {
            self.reached.notify_one();
            self.opened.notified().await;
        }
    }
}

/// A control plane with the manager, whose requests pass a gate.
struct World {
    client: Client,
    gate: Arc<Gate>,
    /// Starts the manager with a seed.
    start_manager: Box<dyn Fn(u64) -> JoinHandle<()>>,
    /// The manager is the last one.
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl World {
    async fn start(point: Option<Point>, trouble: Trouble) -> Self {
        let clock = simulated_clock();
        let cluster = Cluster::new(Options::simulated(clock.clone(), 1));
        let (controlled, client) = (cluster.clone(), cluster.admin());
        let mut tasks = vec![tokio::spawn(async move { controlled.run(&Controllers::all()).await })];
        Nodes::new("node", 1).add_to(&client).await.unwrap();
        let make = || {
            let settings = Settings::new(Arc::new(Server::default()));
            operator(&Settings { global_namespace: NAMESPACE.to_owned(), ..settings })
        };
        let gate = Arc::new(Gate { point: Mutex::new(point), trouble, ..Gate::default() });
        gate.failures.store(usize::from(trouble == Trouble::SecondExecution), Ordering::Relaxed);
        let world_client = client.clone();
        for manifest in [json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})]
            .into_iter()
            .chain(make().manifests())
        {
            if !["Deployment", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
                .contains(&manifest["kind"].as_str().unwrap())
            {
                apply(&client, &manifest).await;
            }
        }
        let held = gate.clone();
        let start_manager = move |seed: u64| {
            let user = User::new("admin", &["system:masters"]);
            let wire = cluster.simulated_client(user, Faults::NONE, Rng::from_seed(1), Trace::default());
            let held = held.clone();
            let wire = service_fn(move |request: Request<Body>| {
                let (wire, gate) = (wire.clone(), held.clone());
                async move {
                    if gate.fails(&request) {
                        let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "failed"});
                        let body = status.to_string().into_bytes();
                        return Ok(Response::builder().status(500).body(body.into()).unwrap());
                    }
                    let number = gate.count(&request);
                    if let Some(number) = number {
                        gate.pass(Point::Before(number)).await;
                    }
                    let response = wire.send(request).await;
                    if let Some(number) = number {
                        gate.pass(Point::After(number)).await;
                    }
                    response
                }
            });
            let manager = make().clock(clock.clone()).rng(Rng::from_seed(seed));
            let wire = Client::new(wire, NAMESPACE);
            tokio::spawn(async move { manager.run(wire, std::future::pending()).await.unwrap() })
        };
        tasks.push(start_manager(2));
        Self { client: world_client, gate, start_manager: Box::new(start_manager), tasks }
    }

    /// Ends the manager and its requests, and starts it again.
    async fn crash(&mut self) {
        let manager = self.tasks.pop().unwrap();
        manager.abort();
        let _ = manager.await;
        *self.gate.point.lock() = None;
        let manager = (self.start_manager)(3);
        self.tasks.push(manager);
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates the OperatorGroup, Subscriptions and the catalog, so that one plan contains all of them.
    async fn subscribe(&self, packages: &[&str]) {
        self.create("operators.coreos.com/v1", "OperatorGroup", "group", json!({})).await;
        for package in packages {
            let spec = json!({"name": package, "source": "demo", "sourceNamespace": NAMESPACE});
            self.create("operators.coreos.com/v1alpha1", "Subscription", package, spec).await;
        }
        let spec = json!({"sourceType": "grpc", "address": ADDRESS});
        self.create("operators.coreos.com/v1alpha1", "CatalogSource", "demo", spec).await;
    }

    async fn create(&self, version: &str, kind: &str, name: &str, spec: Value) {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        apply(&self.client, &json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})).await;
    }

    /// Deletes the Subscriptions, except for one, and their ClusterServiceVersions, as a user does.
    async fn uninstall(&self, except: Option<&str>) {
        let stays = |name: &str| except.is_some_and(|package| name.split('.').next() == Some(package));
        for name in names(&self.api::<Subscription>()).await {
            if !stays(&name) {
                // The garbage collector may have deleted it.
                let _ = self.api::<Subscription>().delete(&name, &DeleteParams::default()).await;
            }
        }
        for name in names(&self.api::<ClusterServiceVersion>()).await {
            if !stays(&name) {
                let _ = self.api::<ClusterServiceVersion>().delete(&name, &DeleteParams::default()).await;
            }
        }
    }

    /// Returns the objects that exist.
    async fn left(&self) -> BTreeSet<String> {
        let mut left = BTreeSet::new();
        self.list::<Subscription>(self.api(), &mut left).await;
        self.list::<ClusterServiceVersion>(self.api(), &mut left).await;
        self.list::<InstallPlan>(self.api(), &mut left).await;
        self.list::<ServiceAccount>(self.api(), &mut left).await;
        self.list::<Service>(self.api(), &mut left).await;
        self.list::<ConfigMap>(self.api(), &mut left).await;
        self.list::<Role>(self.api(), &mut left).await;
        self.list::<RoleBinding>(self.api(), &mut left).await;
        self.list::<ClusterRole>(Api::all(self.client.clone()), &mut left).await;
        self.list::<ClusterRoleBinding>(Api::all(self.client.clone()), &mut left).await;
        left
    }

    async fn list<K>(&self, api: Api<K>, left: &mut BTreeSet<String>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        left.extend(names(&api).await.into_iter().map(|name| format!("{} {name}", K::kind(&()))));
    }
}

async fn names<K>(api: &Api<K>) -> Vec<String>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    api.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect()
}

async fn apply(client: &Client, manifest: &Value) {
    let object: kube::core::DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
    let gvk = kube::core::GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let (resource, capabilities) = kube::discovery::pinned_kind(client, &gvk).await.unwrap();
    let api: Api<kube::core::DynamicObject> = match capabilities.scope {
        kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
        kube::discovery::Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| NAMESPACE.to_owned());
            Api::namespaced_with(client.clone(), &namespace, &resource)
        }
    };
    let name = object.name_any();
    api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

/// Installs operators, and uninstalls them at a request of their plan, or when they run. Returns what is left, and the
/// requests of the plan.
async fn play(
    packages: &[&str],
    except: Option<&str>,
    point: Option<Point>,
    trouble: Trouble,
) -> (BTreeSet<String>, Vec<String>) {
    let mut world = World::start(point, trouble).await;
    sleep(Duration::from_secs(5)).await;
    let before = world.left().await;
    world.subscribe(packages).await;
    match point {
        Some(point) => {
            let reached = tokio::time::timeout(Duration::from_secs(600), world.gate.reached.notified()).await;
            assert!(reached.is_ok(), "the plan has no request {point:?}");
            world.uninstall(except).await;
            // The garbage collector and the cleanup of the ClusterServiceVersions end before the request goes on.
            sleep(Duration::from_secs(30)).await;
            match trouble {
                Trouble::None | Trouble::SecondExecution => world.gate.opened.notify_one(),
                Trouble::FailedDeletions => {
                    world.gate.failures.store(FAILURES, Ordering::Relaxed);
                    world.gate.opened.notify_one();
                }
                Trouble::Crash => world.crash().await,
            }
        }
        None => {
            sleep(Duration::from_secs(120)).await;
            let csvs = world.api::<ClusterServiceVersion>().list(&ListParams::default()).await.unwrap().items;
            let phases: Vec<_> = csvs.iter().map(|csv| (csv.name_any(), csv.status.phase)).collect();
            let runs = phases.iter().all(|(_, phase)| *phase == ClusterServiceVersionPhase::Succeeded);
            assert!(!phases.is_empty() && runs, "{phases:?}");
            assert!(csvs.iter().all(|csv| csv.owner_references().is_empty()), "they belong to nobody");
            world.uninstall(except).await;
        }
    }
    sleep(Duration::from_secs(180)).await;
    // The roles for users of the APIs belong to the OperatorGroup and the CRDs.
    let is_for_users = |name: &str| name.contains("olm.og.group.") || name.contains(".demo.flyball.dev-v1-");
    let left = world.left().await.into_iter().filter(|name| !before.contains(name) && !is_for_users(name)).collect();
    let requests = world.gate.seen.lock().clone();
    (left, requests)
}

/// Plays an uninstallation when the operators run, whose result is checked, and before and after requests of a plan.
fn explore(packages: &[&str], except: Option<&str>, trouble: Trouble, check: impl FnOnce(&BTreeSet<String>)) -> usize {
    let (expected, requests) = run(play(packages, except, None, trouble));
    check(&expected);
    let is_new = |left: &&String| !left.starts_with("InstallPlan ") && !expected.contains(*left);
    let stride = if std::env::var("FLYBALL_LIFECYCLE_CRASHES").is_ok_and(|value| value == "all") { 1 } else { 5 };
    let points = (1..=requests.len()).flat_map(|number| [Point::Before(number), Point::After(number)]);
    let points: Vec<Point> = match trouble {
        // The requests that could create an object again.
        Trouble::SecondExecution => {
            let half = requests.len() / 2;
            let is_own = |path: &str| path.contains("/operators.coreos.com/");
            (half..requests.len()).filter(|at| is_own(&requests[*at])).map(|at| Point::Before(at + 1)).collect()
        }
        _ => points.step_by(stride).collect(),
    };
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (found, seen) = run(play(packages, except, Some(*point), trouble));
                    let more: Vec<&String> = found.iter().filter(is_new).collect();
                    assert!(more.is_empty(), "{point:?}, {:?}: {more:#?}", seen.last());
                    let missing: Vec<&String> = expected.difference(&found).collect();
                    let missing = missing.iter().filter(|name| !name.starts_with("InstallPlan ")).count();
                    assert!(missing == 0, "{point:?}: {expected:?} {found:?}");
                }
            });
        }
    });
    points.len()
}

#[test]
fn uninstallation_at_any_request_of_a_plan_leaves_nothing() {
    let points = explore(&["front"], None, Trouble::None, |left| {
        assert!(left.is_empty(), "an ordinary uninstallation leaves nothing: {left:?}");
    });
    assert!(points > 10, "{points}");
}

#[test]
fn uninstallation_leaves_nothing_if_deletions_fail() {
    let points = explore(&["front"], None, Trouble::FailedDeletions, |left| assert!(left.is_empty(), "{left:?}"));
    assert!(points > 10, "{points}");
}

#[test]
fn uninstallation_at_a_second_execution_of_a_plan_leaves_nothing() {
    let points = explore(&["front"], None, Trouble::SecondExecution, |left| assert!(left.is_empty(), "{left:?}"));
    assert!(points >= 3, "{points}");
}

#[test]
fn uninstallation_leaves_nothing_if_the_manager_crashes() {
    let points = explore(&["front"], None, Trouble::Crash, |left| assert!(left.is_empty(), "{left:?}"));
    assert!(points > 10, "{points}");
}

#[test]
fn uninstallation_of_one_operator_of_a_plan_spares_the_others() {
    let stays = ["Subscription worn", "ClusterServiceVersion worn.v1.1.0"];
    let points = explore(&["pool", "worn"], Some("worn"), Trouble::None, |left| {
        assert!(stays.iter().all(|name| left.contains(*name)), "{left:?}");
    });
    assert!(points > 5, "{points}");
}
