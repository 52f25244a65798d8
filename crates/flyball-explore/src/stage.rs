//! The stage of all runs: a snapshot of a control plane on which the operator is installed.

use crate::external::{MakeExternal, MakeProgram};
use crate::history::{Meta, TRANSIENT, counts, stable_name};
use crate::hub::time_at;
use crate::scenario::{Scenario, Step, parse_manifest};
pub(crate) use crate::site::OPERATOR_NAMESPACE;
use crate::site::{ELSEWHERE, NAMESPACE};
use crate::state::state_of_objects;
use crate::subject::Subject;
use flyball::is_aggregated_role;
use flyball_cluster::{Cluster, Controller, Controllers, Nodes, Options, Snapshot, StoredObject, User};
use flyball_core::{Clock, GroupResource, ObjectKey};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use kube::discovery::{Discovery, Scope};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time without changes after which the installation is complete.
const INSTALL_IDLE: Duration = Duration::from_secs(20);
/// Kinds of manifests that run the operator, which a child process does instead.
const WORKLOADS: [&str; 5] = ["Deployment", "StatefulSet", "DaemonSet", "Job", "Pod"];
/// Maximum time of the installation.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);

/// A resource that the API server of the stage serves.
#[derive(Clone, Debug)]
pub(crate) struct ServedResource {
    pub(crate) api_version: String,
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) is_namespaced: bool,
    /// True for kinds of custom resource definitions.
    pub(crate) is_custom: bool,
}

impl ServedResource {
    /// Returns the path of an object.
    pub(crate) fn path(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }

    /// Returns the path of a collection.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        let Self { api_version, plural, .. } = self;
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        match self.is_namespaced {
            true => format!("{root}/{api_version}/namespaces/{}/{plural}", namespace.unwrap_or(NAMESPACE)),
            false => format!("{root}/{api_version}/{plural}"),
        }
    }
}

/// An object of the installation: its key, and its name as it is in all runs.
pub(crate) type InstalledObject = (GroupResource, ObjectKey, String);

/// The state from which each run forks.
pub(crate) struct Stage {
    pub(crate) subject: Subject,
    pub(crate) externals: Vec<Arc<MakeExternal>>,
    pub(crate) program: Option<Arc<MakeProgram>>,
    pub(crate) snapshot: Snapshot,
    /// The revision of the snapshot.
    pub(crate) revision: u64,
    /// The objects of the snapshot, without values that differ from run to run.
    pub(crate) base: BTreeMap<String, Value>,
    /// The objects of the snapshot, with their names as in `base`, without those with generated names.
    pub(crate) installed: Vec<InstalledObject>,
    /// Time from the start of the clock to the snapshot.
    pub(crate) elapsed: Duration,
    pub(crate) controllers: Controllers,
    /// The resources of the garbage collector.
    pub(crate) collected: BTreeSet<GroupResource>,
    pub(crate) replicas: u8,
    /// Name of the operator.
    pub(crate) operator: String,
    /// The service account of the operator.
    pub(crate) user: User,
    pub(crate) served: Vec<(String, ServedResource)>,
    /// The definitions of the custom resources.
    pub(crate) definitions: Vec<Value>,
    /// Bindings of the operator's roles: collection and object.
    pub(crate) bindings: Vec<(String, Value)>,
    pub(crate) scenarios: BTreeMap<String, Scenario>,
}

/// Reason why an operator cannot be explored.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StageError(pub(crate) String);

/// The settings of a stage.
#[derive(Clone)]
pub(crate) struct StageSettings {
    pub(crate) subject: Subject,
    pub(crate) externals: Vec<Arc<MakeExternal>>,
    pub(crate) program: Option<Arc<MakeProgram>>,
    pub(crate) prerequisites: Vec<String>,
    pub(crate) nodes: usize,
    pub(crate) controllers: Controllers,
    pub(crate) replicas: u8,
    pub(crate) seed: u64,
    pub(crate) scenarios: Vec<Scenario>,
}

impl Stage {
    /// Installs the operator, on a runtime with paused time.
    pub(crate) async fn install(settings: StageSettings) -> Result<Self, StageError> {
        let StageSettings { nodes, replicas, seed, .. } = settings;
        let StageSettings { subject, externals, program, prerequisites, controllers, scenarios, .. } = settings;
        let began = Instant::now();
        let clock = Clock::new(move || time_at(began, Duration::ZERO));
        let cluster = Cluster::new(Options::simulated(clock, seed));
        let (running, controlled) = (cluster.clone(), Controllers::all());
        let control_plane = tokio::spawn(async move { running.run(&controlled).await });
        if nodes > 0 {
            let added = Nodes::new("node", nodes).add_to(&cluster.admin()).await;
            added.map_err(|error| StageError(format!("cannot create nodes: {error}")))?;
        }
        let operator = subject.name();
        let mut installation = Installation { cluster: &cluster, served: Vec::new(), bindings: Vec::new() };
        installation.discover().await?;
        for namespace in [OPERATOR_NAMESPACE, NAMESPACE, ELSEWHERE] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            installation.apply(&object).await?;
        }
        let manifests = subject.manifests(OPERATOR_NAMESPACE);
        let user = match &subject {
            Subject::Operator(_) => {
                installation.install(&operator, &manifests).await?;
                User::service_account(OPERATOR_NAMESPACE, &operator)
            }
            Subject::Process(_) => installation.install_program(&operator, &manifests).await?,
        };
        for manifest in &prerequisites {
            for object in parse_manifest(manifest).map_err(StageError)? {
                installation.apply(&object).await?;
                installation.establish(&object).await?;
            }
        }
        installation.idle().await?;
        let definitions = installation.definitions().await;
        let Installation { served, bindings, .. } = installation;
        let collected = served.iter().map(|(_, served)| GroupResource::new(&served.group, &served.plural)).collect();
        control_plane.abort();
        // An aborted task returns an error.
        let _ = control_plane.await;
        let mut objects = cluster.server().stored_objects();
        objects.retain(|object| counts(&object.resource));
        let stage = Self {
            subject,
            user,
            externals,
            program,
            snapshot: cluster.snapshot(),
            revision: cluster.server().revision(),
            base: state_of_objects(&objects),
            installed: objects.iter().map(installed).filter(|(_, _, name)| !name.contains('*')).collect(),
            elapsed: began.elapsed(),
            controllers,
            collected,
            replicas,
            operator,
            served,
            definitions,
            bindings,
            scenarios: scenarios.into_iter().map(|scenario| (scenario.name().to_owned(), scenario)).collect(),
        };
        stage.scenarios.values().try_for_each(|scenario| stage.check(scenario))?;
        Ok(stage)
    }

    /// Creates the cluster of a run.
    pub(crate) fn fork(&self, options: Options) -> Cluster {
        self.snapshot.fork(options).with_collected(self.collected.iter().cloned())
    }

    /// Returns the path of an object in a manifest, and its resource.
    pub(crate) fn locate(&self, object: &Value) -> Result<(String, &ServedResource), StageError> {
        locate(&self.served, object)
    }

    /// Returns true if a name, as in sites, is that of a custom resource.
    pub(crate) fn is_custom(&self, name: &str) -> bool {
        let mut customs = self.served.iter().filter(|(_, served)| served.is_custom);
        customs.any(|(_, served)| name.starts_with(&format!("{}/{}/", served.group, served.plural)))
    }

    /// Returns the path of an object by a name like `deployments.apps/web`.
    pub(crate) fn locate_name(&self, name: &str) -> Result<String, StageError> {
        let invalid =
            || StageError(format!("no kind is named like the resource of {name:?} (as in deployments.apps/a)"));
        let (resource, object) = name.split_once('/').ok_or_else(invalid)?;
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let found = self.served.iter().find(|(_, served)| served.plural == plural && served.group == group);
        let (_, served) = found.ok_or_else(invalid)?;
        Ok(match object.split_once('/') {
            Some((namespace, object)) => served.path(Some(namespace), object),
            None => served.path(None, object),
        })
    }

    fn check(&self, scenario: &Scenario) -> Result<(), StageError> {
        if let Some(error) = &scenario.error {
            return Err(StageError(format!("scenario {}: {error}", scenario.name())));
        }
        for step in &scenario.steps {
            match step {
                Step::Apply(object) | Step::Remove(object) => drop(self.locate(object)?),
                Step::Delete(name) => drop(self.locate_name(name)?),
                Step::DeleteNamespace | Step::Settle | Step::Wait(_) => {}
            }
        }
        Ok(())
    }
}

/// Returns the key of a stored object, and its name as it is in all runs.
fn installed(object: &StoredObject) -> InstalledObject {
    let name = stable_name(&object.resource, &object.key, &Meta::of(&object.body));
    (object.resource.clone(), object.key.clone(), name)
}

/// Returns the controllers that act on a resource.
pub(crate) fn controllers_of(resource: &str) -> &'static [Controller] {
    use Controller as C;
    match resource {
        "statefulsets" => &[C::StatefulSet],
        "deployments" => &[C::Deployment, C::ReplicaSet],
        "replicasets" => &[C::ReplicaSet],
        "replicationcontrollers" => &[C::ReplicationController],
        "daemonsets" => &[C::DaemonSet],
        "jobs" => &[C::Job, C::TtlAfterFinished],
        "pods" => &[C::Kubelet, C::Scheduler, C::PodGarbageCollector],
        "persistentvolumeclaims" | "persistentvolumes" => &[
            C::PersistentVolumeBinder,
            C::PersistentVolumeClaimProtection,
            C::PersistentVolumeProtection,
            C::VolumeProvisioner,
        ],
        "services" => &[C::ServiceLb],
        "horizontalpodautoscalers" => &[C::HorizontalPodAutoscaler],
        "poddisruptionbudgets" => &[C::Disruption],
        "resourcequotas" => &[C::ResourceQuota],
        _ => &[],
    }
}

fn locate<'a>(
    served: &'a [(String, ServedResource)],
    object: &Value,
) -> Result<(String, &'a ServedResource), StageError> {
    let (version, kind) =
        (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
    let found = served.iter().find(|(known, resource)| known == kind && resource.api_version == version);
    let (_, resource) =
        found.ok_or_else(|| StageError(format!("the API server serves no kind {kind:?} of version {version:?}")))?;
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    Ok((resource.path(metadata["namespace"].as_str(), name), resource))
}

/// Returns the binding of a role to the operator's account.
fn binding(role: &Value, operator: &str) -> Value {
    let (api, kind) = ("rbac.authorization.k8s.io", role["kind"].as_str().unwrap_or_default());
    let mut metadata = role["metadata"].clone();
    metadata["name"] = format!("{}-explored", metadata["name"].as_str().unwrap_or_default()).into();
    json!({
        "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": kind, "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "namespace": OPERATOR_NAMESPACE, "name": operator}],
    })
}

/// Returns the first service account of a binding.
fn subject_of(binding: &Value) -> Option<User> {
    let mut subjects = binding["subjects"].as_array()?.iter();
    let found = subjects.find(|subject| subject["kind"] == "ServiceAccount")?;
    Some(User::service_account(found["namespace"].as_str().unwrap_or(OPERATOR_NAMESPACE), found["name"].as_str()?))
}

/// The installation of an operator on a cluster.
struct Installation<'a> {
    cluster: &'a Cluster,
    served: Vec<(String, ServedResource)>,
    bindings: Vec<(String, Value)>,
}

impl Installation<'_> {
    /// Reads the served kinds.
    async fn discover(&mut self) -> Result<(), StageError> {
        let discovery = Discovery::new(self.cluster.admin()).run().await;
        let discovery = discovery.map_err(|error| StageError(format!("cannot discover the served kinds: {error}")))?;
        let custom: BTreeSet<String> = self.definition_names();
        let mut served = Vec::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.resources_by_stability() {
                let entry = ServedResource {
                    api_version: resource.api_version.clone(),
                    group: resource.group.clone(),
                    plural: resource.plural.clone(),
                    is_namespaced: capabilities.scope == Scope::Namespaced,
                    is_custom: custom.contains(&format!("{}.{}", resource.plural, resource.group)),
                };
                served.push((resource.kind.clone(), entry));
            }
        }
        self.served = served;
        Ok(())
    }

    fn definition_names(&self) -> BTreeSet<String> {
        let objects = self.cluster.server().stored_objects().into_iter();
        let definitions = objects.filter(|object| &*object.resource.resource == "customresourcedefinitions");
        definitions.map(|object| object.key.name().to_owned()).collect()
    }

    async fn definitions(&self) -> Vec<Value> {
        let mut definitions = Vec::new();
        for name in self.definition_names() {
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            definitions.push(self.send(Method::GET, &path, &Value::Null).await.1);
        }
        definitions
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let content_type = if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let Ok(mut request) = request.body(Full::new(bytes::Bytes::from(bytes))) else { return (400, Value::Null) };
        request.extensions_mut().insert(User::new("kubernetes-admin", &["system:masters"]));
        let response = self.cluster.server().handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn apply(&self, object: &Value) -> Result<(), StageError> {
        let (path, _) = locate(&self.served, object)?;
        let (code, response) =
            self.send(Method::PATCH, &format!("{path}?fieldManager=install&force=true"), object).await;
        match code {
            200 | 201 => Ok(()),
            _ => Err(StageError(format!("{path} is rejected: {}", response["message"]))),
        }
    }

    /// Waits until the kind of a definition is served.
    async fn establish(&mut self, object: &Value) -> Result<(), StageError> {
        if object["kind"] != "CustomResourceDefinition" {
            return Ok(());
        }
        self.idle().await?;
        self.discover().await
    }

    /// Applies the manifests of an operator, and binds its roles to its service account.
    async fn install(&mut self, operator: &str, manifests: &[Value]) -> Result<(), StageError> {
        for manifest in manifests {
            self.apply(manifest).await?;
            self.establish(manifest).await?;
            let kind = manifest["kind"].as_str().unwrap_or_default();
            if !["ClusterRole", "Role"].contains(&kind) || is_aggregated_role(manifest) {
                continue;
            }
            self.bind(binding(manifest, operator)).await?;
        }
        Ok(())
    }

    /// Applies a binding of the operator's roles.
    async fn bind(&mut self, binding: Value) -> Result<(), StageError> {
        self.apply(&binding).await?;
        let (path, _) = locate(&self.served, &binding)?;
        let collection = path.rsplit_once('/').map_or(&*path, |(collection, _)| collection);
        self.bindings.push((collection.to_owned(), binding));
        Ok(())
    }

    /// Applies the manifests of a program, and returns its service account: the first one that a binding names.
    async fn install_program(&mut self, operator: &str, manifests: &[Value]) -> Result<User, StageError> {
        let kind_of = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
        let has = |kinds: [&str; 2]| manifests.iter().any(|object| kinds.contains(&&*kind_of(object)));
        // Definitions first: other objects may be of their kinds.
        let (definitions, others): (Vec<&Value>, Vec<&Value>) =
            manifests.iter().partition(|object| kind_of(object) == "CustomResourceDefinition");
        for object in &definitions {
            self.apply(object).await?;
        }
        if !definitions.is_empty() {
            self.idle().await?;
            self.discover().await?;
        }
        let mut objects = Vec::new();
        for object in others.into_iter().filter(|object| !WORKLOADS.contains(&&*kind_of(object))) {
            objects.push(self.placed(object, OPERATOR_NAMESPACE).await?);
        }
        let mut user = None;
        if has(["RoleBinding", "ClusterRoleBinding"]) {
            for object in objects {
                if kind_of(&object).ends_with("Binding") {
                    user = user.or_else(|| subject_of(&object));
                    self.bind(object).await?;
                } else {
                    self.apply(&object).await?;
                }
            }
        } else {
            if !has(["Role", "ClusterRole"]) {
                let role = json!({"kind": "ClusterRole", "metadata": {"name": "cluster-admin"}});
                self.bind(binding(&role, operator)).await?;
            }
            self.install(operator, &objects).await?;
        }
        Ok(user.unwrap_or_else(|| User::service_account(OPERATOR_NAMESPACE, operator)))
    }

    /// Returns an object with its namespace, which is created if it does not exist.
    async fn placed(&self, object: &Value, default: &str) -> Result<Value, StageError> {
        let (_, served) = locate(&self.served, object)?;
        let mut object = object.clone();
        if served.is_namespaced {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(default).to_owned();
            self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await?;
            object["metadata"]["namespace"] = namespace.into();
        }
        Ok(object)
    }

    /// Waits until nothing changes.
    async fn idle(&self) -> Result<(), StageError> {
        let (began, mut last, mut since) = (Instant::now(), 0, Instant::now());
        while since.elapsed() < INSTALL_IDLE {
            let change = self.cluster.server().last_change(&TRANSIENT);
            if change != last {
                (last, since) = (change, Instant::now());
            }
            if began.elapsed() > INSTALL_TIMEOUT {
                let why = "the objects of the installation and the prerequisites still change after ten minutes";
                return Err(StageError(why.to_owned()));
            }
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }
}
