//! A control plane in simulation with the manager, on which the steps of a scenario are played.

use super::observer::{Observer, has_seen, key_of, resource_of};
use super::scenario::{Action, Condition, Step, Target};
use super::{catalog, normalization};
use flyball::Operator;
use flyball_cluster::{
    Cluster, Controllers, Exit, Faults, Launch, Nodes, Options, Program, ProgramState, RunningContainer, StartError,
    StartResult, Trace, User, simulated_clock,
};
use flyball_core::time::{SignedDuration, Timestamp};
use flyball_core::{Clock, Rng};
use flyball_lifecycle::packages::PackageServer;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The global catalog namespace, in which the manager runs.
pub(crate) const NAMESPACE: &str = "olm";
const MANAGER: &str = "flyball-olm";

/// Delay until a pod is ready.
const READY: SignedDuration = SignedDuration::from_secs(2);
/// Interval of readiness probes.
const PROBE: SignedDuration = SignedDuration::from_secs(1);
/// Polling interval of conditions.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The labels `app` of pods that are not ready.
#[derive(Clone, Default)]
struct Unready(Arc<Mutex<BTreeSet<String>>>);

impl Program for Unready {
    fn start(&self, launch: &Launch<'_>) -> Result<StartResult, StartError> {
        let uid = launch.pod.metadata.uid.as_deref().unwrap_or_default();
        Ok(StartResult::Started(format!("simulated://{uid}/{}/{}", launch.container.name, launch.attempt)))
    }

    fn observe(&self, running: &RunningContainer<'_>, now: Timestamp) -> ProgramState {
        let app = running.pod.metadata.labels.as_ref().and_then(|labels| labels.get("app"));
        let is_unready = app.is_some_and(|app| self.0.lock().contains(app));
        let ready = running.started + READY;
        let next = if ready > now { ready } else { now + PROBE };
        ProgramState::Running { is_ready: !is_unready && ready <= now, until: Some(next) }
    }

    fn stop(&self, _: &RunningContainer<'_>, _: Timestamp, _: SignedDuration, now: Timestamp) -> ProgramState {
        ProgramState::Exited(Exit { code: 0, at: now })
    }
}

/// A control plane with one node, and the manager on it with only its own rights.
pub(crate) struct ControlPlane {
    pub(crate) client: Client,
    /// The requests of the manager that the API server refused.
    pub(crate) denied: Arc<Mutex<Vec<String>>>,
    /// The control plane and the manager, to be aborted at the end.
    pub(crate) tasks: Vec<JoinHandle<()>>,
}

impl ControlPlane {
    pub(crate) async fn start(cluster: &Cluster, clock: Clock, manager: Operator) -> Self {
        let controlled = cluster.clone();
        let mut tasks = vec![tokio::spawn(async move { controlled.run(&Controllers::all()).await })];
        let client = cluster.admin();
        Nodes::new("node", 1).add_to(&client).await.unwrap();
        create(&client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
            .await
            .unwrap();
        for manifest in manager.manifests() {
            install(&client, &manifest).await;
        }
        let user = format!("system:serviceaccount:{NAMESPACE}:{MANAGER}");
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{NAMESPACE}"), "system:authenticated"];
        let rng = Rng::from_seed(1);
        let user = User::new(&user, &groups);
        let wire = cluster.simulated_client(user, Faults::NONE, rng.fork("wire"), Trace::default());
        let denied: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = denied.clone();
        let manager = manager.clock(clock).rng(rng.fork("operator")).on_error(move |controller, object, error| {
            if error.status().is_some_and(kube::core::Status::is_forbidden) {
                record.lock().push(format!("{controller} {object}: {error}"));
            }
        });
        tasks.push(tokio::spawn(async move { manager.run(wire, std::future::pending()).await.unwrap() }));
        Self { client, denied, tasks }
    }
}

pub(crate) struct World {
    client: Client,
    pub(crate) observer: Observer,
    unready: Unready,
    catalog: catalog::Server,
    packages: PackageServer,
    /// The requests of the manager that the API server refused.
    denied: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
    /// The requests that the API server refused in the current step.
    pub(crate) refused: Vec<Value>,
    /// The responses to `get` in the current step.
    pub(crate) responses: Vec<Value>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let (clock, unready, catalog) = (simulated_clock(), Unready::default(), catalog::Server::default());
        let cluster = Cluster::new(Options::simulated(clock.clone(), 1)).with_program(Arc::new(unready.clone()));
        let packages = PackageServer::new(NAMESPACE, clock.clone());
        let manager = catalog::manager(&catalog, &packages);
        let ControlPlane { client, denied, tasks } = ControlPlane::start(&cluster, clock, manager).await;
        let observer = Observer::start(&client);
        let world = Self {
            client,
            observer,
            unready,
            catalog,
            packages,
            denied,
            tasks,
            refused: Vec::new(),
            responses: Vec::new(),
        };
        world.observer.quiet(Duration::from_secs(5), Duration::from_secs(120)).await;
        world
    }

    /// Returns the requests of the manager that the API server refused.
    pub(crate) fn denied(&self) -> Vec<String> {
        self.denied.lock().clone()
    }

    /// Plays a step; returns true if its conditions came true in time.
    pub(crate) async fn play(&mut self, step: &Step) -> bool {
        self.observer.begin_step();
        (self.refused, self.responses) = (Vec::new(), Vec::new());
        for action in step.actions() {
            self.act(action).await;
        }
        let began = Instant::now();
        let is_reached = loop {
            if step.until.iter().all(|condition| self.holds(condition)) {
                break true;
            }
            if began.elapsed() >= step.timeout() {
                break false;
            }
            sleep(POLL_INTERVAL).await;
        };
        self.observer.quiet(step.quiet(), Duration::from_secs(60)).await;
        is_reached
    }

    fn holds(&self, condition: &Condition) -> bool {
        let Some(key) = self.key(&condition.target) else { return condition.absent };
        match &condition.seen {
            Some(expected) => self.observer.states().get(&key).is_some_and(|states| has_seen(states, expected)),
            None => condition.holds(self.observer.object(&key).as_ref()),
        }
    }

    /// Returns the key of a target, if it is known.
    fn key(&self, target: &Target) -> Option<String> {
        let Target { kind, namespace, name, name_like, install_plan_of } = target;
        if let Some(subscription) = install_plan_of {
            let subscription = self.observer.object(&key_of("Subscription", namespace, subscription))?;
            let plan = subscription["status"]["installPlanRef"]["name"].as_str()?;
            return Some(key_of("InstallPlan", namespace, plan));
        }
        let Some(pattern) = name_like else { return Some(key_of(kind, namespace, name)) };
        let (pattern, prefix) = (regex::Regex::new(pattern).unwrap(), key_of(kind, namespace, ""));
        let named = |key: &String| key.strip_prefix(&prefix).is_some_and(|name| pattern.is_match(name));
        self.observer.keys().into_iter().rfind(named)
    }

    async fn act(&mut self, action: Action) {
        let result = match action {
            Action::Create(object) => create(&self.client, &object).await,
            Action::CreateFromCatalog { bundle, kind, namespace } => {
                let mut object = normalization::manifest(&bundle, &kind).unwrap().clone();
                object["metadata"]["namespace"] = namespace.into();
                create(&self.client, &object).await
            }
            Action::Patch { target, body, is_strategic } => {
                let (api, name) = self.api(&target).await;
                let patch = if is_strategic { Patch::Strategic(&body) } else { Patch::Merge(&body) };
                api.patch(&name, &PatchParams::default(), &patch).await.map(drop)
            }
            Action::Delete(target) => match self.key(&target) {
                Some(_) => {
                    let (api, name) = self.api(&target).await;
                    match api.delete(&name, &DeleteParams::background()).await {
                        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                        result => result.map(drop),
                    }
                }
                None => Ok(()),
            },
            Action::Pods { app, is_ready } => {
                let mut unready = self.unready.0.lock();
                if is_ready {
                    unready.remove(&app)
                } else {
                    unready.insert(app)
                };
                Ok(())
            }
            Action::CatalogServer { runs } => {
                self.catalog.set_running(runs);
                Ok(())
            }
            // It is part of the manager.
            Action::PackageServer => Ok(()),
            Action::Get { path, accept } => {
                let response = get(&self.packages, &path, accept.as_deref());
                self.responses.push(response);
                Ok(())
            }
            Action::Sleep(time) => {
                sleep(time).await;
                Ok(())
            }
        };
        if let Err(error) = result {
            let kube::Error::Api(status) = error else { panic!("{error}") };
            self.refused.push(json!({"code": status.code, "message": status.message}));
        }
    }

    async fn api(&self, target: &Target) -> (Api<DynamicObject>, String) {
        let key = self.key(target).unwrap_or_else(|| panic!("no object is {target:?}"));
        let (kind, name) = key.split_once(' ').unwrap();
        let name = name.rsplit('/').next().unwrap().to_owned();
        let resource = resource_of(kind).unwrap_or_else(|| {
            let gvk = GroupVersionKind::gvk("demo.flyball.dev", "v1", kind);
            ApiResource::from_gvk(&gvk)
        });
        let api = match &*target.namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        (api, name)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Creates an object of any kind, as soon as its kind is served.
pub(crate) async fn create(client: &Client, object: &Value) -> kube::Result<()> {
    let mut object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let gvk = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let (resource, capabilities) = loop {
        match pinned_kind(client, &gvk).await {
            Ok(found) => break found,
            Err(_) => sleep(POLL_INTERVAL).await,
        }
    };
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.get_or_insert_with(|| "default".to_owned()).clone();
            Api::namespaced_with(client.clone(), &namespace, &resource)
        }
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.map(drop)
}

/// Creates a manifest of the manager, and binds its roles.
async fn install(client: &Client, manifest: &Value) {
    match create(client, manifest).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        result => result.unwrap_or_else(|error| panic!("{manifest}: {error}")),
    }
    let kind = manifest["kind"].as_str().unwrap_or_default();
    // Those with labels are for users.
    if ["Role", "ClusterRole"].contains(&kind) && manifest["metadata"]["labels"].is_null() {
        let api = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"),
            "metadata": {"name": format!("{MANAGER}-test"), "namespace": manifest["metadata"]["namespace"]},
            "roleRef": {"apiGroup": api, "kind": kind, "name": manifest["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": MANAGER}],
        });
        create(client, &binding).await.unwrap();
    }
}

/// Asks the package server, as the API server does on behalf of a user.
fn get(packages: &PackageServer, path: &str, accept: Option<&str>) -> Value {
    let request = http::Request::get(path).header("accept", accept.unwrap_or("application/json")).body(()).unwrap();
    let response = packages.handle(&request);
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    json!({"get": path, "status": response.status().as_u16(), "body": normalization::response(&body)})
}
