//! Test harness for operators: a cluster in the test process, and the operator on it with only its declared
//! permissions.
//!
//! ```
//! # use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
//! # use flyball_cluster::testing::Test;
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use kube::core::ObjectMeta;
//! # struct Copies;
//! # impl Reconcile for Copies {
//! #     type Resource = ConfigMap;
//! #     async fn reconcile(&self, original: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
//! #         let name = original.metadata.name.clone().unwrap_or_default();
//! #         if !name.ends_with("-copy") && name != "kube-root-ca.crt" {
//! #             let metadata = ObjectMeta { name: Some(format!("{name}-copy")), ..ObjectMeta::default() };
//! #             cx.apply(&ConfigMap { metadata, data: original.data.clone(), ..ConfigMap::default() }).await?;
//! #         }
//! #         Ok(Action::done())
//! #     }
//! # }
//! fn operator() -> Operator {
//!     Operator::new("copies").controller(Controller::new(Copies).owns::<ConfigMap>())
//! }
//!
//! # fn main() {
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
//! // #[tokio::test(start_paused = true)]
//! let mut test = Test::of(operator).start().await;
//! test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: page}, data: {title: Hello}}").await;
//! test.assert_converges().await;
//! let copy = test.api::<ConfigMap>().get("page-copy").await?;
//! assert_eq!(copy.data.unwrap()["title"], "Hello");
//! test.assert_idempotent().await;
//! # Ok::<(), kube::Error>(()) }).unwrap() }
//! ```
//!
//! # Guarantees
//!
//! - Each test has its own cluster, in process, without sockets and threads. If [tokio's time is
//!   paused](https://docs.rs/tokio/latest/tokio/time/fn.pause.html), idle time passes at once. The same seed gives the
//!   same run.
//! - The operator runs as a service account with only the roles of its [manifests](flyball::Operator::manifests). A
//!   denied request fails the test at its end, with the missing permission and, in a debug build, the line of the
//!   operator that sent the request. [`Test::unused_permissions`] returns the granted permissions that were not used;
//!   `flyball test --rbac` reports them over all tests, from the lines that each test adds to the file in
//!   `FLYBALL_TEST_PERMISSIONS`.
//! - Tests whose names begin with `chaos_` are the operator's chaos suite, which `flyball lint` runs. It counts the
//!   injected faults: [`explore_crashes`] and [`Test::assert_outage_is_harmless`] each add a line to the file in
//!   `FLYBALL_TEST_CHAOS`.
//! - If `FLYBALL_TEST_KUBECONFIG` is the path of a kubeconfig, the same test runs on that cluster, in real time, in a
//!   namespace that is created for it and deleted afterwards. The operator is limited to that namespace; definitions
//!   and cluster roles stay. [Faults](Setup::faults), [nodes](Setup::nodes), [programs](Setup::program) and controllers
//!   are those of the cluster. Changes of the operator in other namespaces are not checked.

mod explore;
mod flapping;
mod foreign;
mod outage;
mod report;
mod requests;
mod target;

pub use explore::{explore_crashes, state_of};
pub use requests::{Denial, Permission, Requests};

use crate::{Controllers, Faults, Program};
use flyball::{Operator, RunError, is_aggregated_role};
use foreign::Allowlist;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use requests::{Crash, Log};
use serde_json::{Value, json};
use std::fmt::{self, Write};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use target::Target;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Field manager of a test.
const MANAGER: &str = "flyball-test";

/// Polling interval of conditions.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Lifetime of the token of an [account](Test::account).
const TOKEN_SECONDS: i64 = 24 * 3600;

/// Downtime of an operator after a crash.
const RESTART: Duration = Duration::from_secs(1);

/// Constructor of the operator, called at each start.
type Make = dyn Fn() -> Operator + Send + Sync;

/// Builder of a [`Test`]: seed, nodes, controllers, faults.
#[must_use = "a test does nothing until it runs"]
#[doc(alias = "fake.NewClientBuilder")]
#[doc(alias = "FakeClientBuilder")]
pub struct Setup {
    make: Arc<Make>,
    seed: u64,
    nodes: usize,
    controllers: Controllers,
    program: Option<Arc<dyn Program>>,
    faults: Faults,
    crash: Option<Crash>,
    allowed: Allowlist,
}

/// An operator that runs on a cluster, until this is dropped.
#[doc(alias = "envtest")]
#[doc(alias = "KopfRunner")]
#[doc(alias = "FakeClient")]
pub struct Test {
    installed: Arc<Launcher>,
    rules: Vec<PolicyRule>,
    running: Option<RunningOperator>,
}

/// Parts that start the operator.
struct Launcher {
    target: Target,
    make: Arc<Make>,
    operator: String,
    namespace: String,
    log: Log,
    runs: AtomicU64,
}

struct RunningOperator {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Setup {
    /// Sets the seed of all randomness. Defaults to 1.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of simulated nodes, on which pods become ready. Defaults to 0.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the controllers of the control plane that run. Defaults to all.
    pub fn controllers(mut self, controllers: Controllers) -> Self {
        self.controllers = controllers;
        self
    }

    /// Sets the [`Program`] that runs containers. Defaults to a [simulation](crate::SimulatedProgram).
    pub fn program(mut self, program: impl Program) -> Self {
        self.program = Some(Arc::new(program));
        self
    }

    /// Injects faults into the operator's requests and watches.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Allows the operator to change objects of another namespace. Other changes outside of the test's namespace fail
    /// the test, except for objects that the test created, and objects that these own. Custom resources of the
    /// operator's own kinds are no exception.
    pub fn allows_changes_in(mut self, namespace: impl Into<String>) -> Self {
        self.allowed.namespaces.insert(namespace.into());
        self
    }

    /// Allows the operator to change objects of a kind in any namespace and in none, such as cluster roles.
    pub fn allows_changes_of<K: kube::Resource<DynamicType: Default>>(mut self) -> Self {
        let kind = K::DynamicType::default();
        for name in [K::plural(&kind), K::kind(&kind)] {
            self.allowed.resources.insert((K::group(&kind).into_owned(), name.into_owned()));
        }
        self
    }

    /// Crashes the operator before it sends this request, counted from 1. It restarts after a second.
    pub fn crash_before(mut self, request: u64) -> Self {
        self.crash = Some(Crash::Before(request));
        self
    }

    /// Crashes the operator after the API server processed this request; the response is lost. It restarts after a
    /// second.
    pub fn crash_after(mut self, request: u64) -> Self {
        self.crash = Some(Crash::After(request));
        self
    }

    /// Starts the cluster, installs the operator and runs it.
    ///
    /// # Panics
    ///
    /// If the operator's manifests are rejected, or the cluster of `FLYBALL_TEST_KUBECONFIG` is unreachable.
    pub async fn start(self) -> Test {
        let log = Log::default();
        if self.faults != Faults::NONE {
            log.expect_faults();
        }
        let target = match std::env::var(target::KUBECONFIG) {
            Ok(path) => {
                target::resume_time().await;
                Target::real(&path).await
            }
            Err(_) => Target::own(self.seed, self.nodes, self.controllers, self.program, self.faults, &log).await,
        };
        let operator = (self.make)();
        let rules = operator.rules();
        let installed = Launcher {
            namespace: target.namespace(),
            operator: operator.describe().name,
            target,
            make: self.make,
            log,
            runs: AtomicU64::new(0),
        };
        installed.log.plan(self.crash);
        if !installed.target.is_shared() {
            installed.log.watch_foreign_changes(&installed.namespace, self.allowed);
        }
        let operator = installed.prepared(operator);
        let mut test = Test { installed: Arc::new(installed), rules, running: None };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": test.namespace()}});
        test.apply_object(&namespace).await;
        test.install(&operator.manifests()).await;
        test.restart().await;
        test
    }
}

impl Launcher {
    fn prepared(&self, operator: Operator) -> Operator {
        let operator = operator.namespace(&self.namespace);
        if self.target.is_shared() { operator.namespaces([&self.namespace]) } else { operator }
    }

    /// Runs the operator until it is stopped, and again after each crash.
    async fn run(self: Arc<Self>, stop: oneshot::Receiver<()>) -> Result<(), RunError> {
        // Dropping the test stops it as well.
        let mut stopped = pin!(async { drop(stop.await) });
        loop {
            let run = self.runs.fetch_add(1, Ordering::Relaxed);
            let operator = self.prepared((self.make)()).clock(self.target.clock()).rng(self.target.rng(run));
            let (failed, succeeded, panicked) = (self.log.clone(), self.log.clone(), self.log.clone());
            let operator = operator
                .on_error(move |controller, object, error| failed.failed(controller, object, error))
                .on_success(move |controller, object| succeeded.record_success(controller, object))
                .on_panic(move |place, message| panicked.panicked(place, message));
            self.log.started();
            self.target.serve(&self.operator, &self.namespace, operator.webhooks());
            let client = self.target.operator(&self.namespace, &self.operator, &self.log);
            tokio::select! {
                biased;
                result = operator.run(client, stopped.as_mut()) => {
                    self.log.ended(result.as_ref().err());
                    return result;
                }
                () = self.log.crashes() => {
                    // The webhooks of a stopped operator do not respond.
                    self.target.silence(&self.operator, &self.namespace);
                    sleep(RESTART).await;
                }
            }
        }
    }
}

impl Test {
    /// Returns the setup for a test of an operator, which is constructed at each start.
    pub fn of(operator: impl Fn() -> Operator + Send + Sync + 'static) -> Setup {
        let (controllers, faults) = (Controllers::all(), Faults::default());
        Setup {
            make: Arc::new(operator),
            seed: 1,
            nodes: 0,
            controllers,
            program: None,
            faults,
            crash: None,
            allowed: Allowlist::default(),
        }
    }

    /// Returns a client with all permissions. The operator may change objects that it creates.
    pub fn client(&self) -> Client {
        self.installed.target.user(&self.installed.log)
    }

    /// Creates a service account with only these permissions in the namespace of the test, and returns a client with
    /// its token, which is valid for a day. The operator may change objects that the client creates.
    ///
    /// # Panics
    ///
    /// If it has the name of the operator's account, or one of its objects is rejected.
    #[doc(alias = "impersonate")]
    pub async fn account(&self, name: &str, rules: &[PolicyRule]) -> Client {
        assert_ne!(name, self.installed.operator, "the service account {name} is the operator's");
        let (api, metadata) = ("rbac.authorization.k8s.io", json!({"name": name}));
        let object = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "metadata": metadata});
        let version = format!("{api}/v1");
        let (mut role, mut binding) = (object(&version, "Role"), object(&version, "RoleBinding"));
        role["rules"] = json!(rules);
        binding["roleRef"] = json!({"apiGroup": api, "kind": "Role", "name": name});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": name, "namespace": self.namespace()}]);
        for object in [object("v1", "ServiceAccount"), role, binding] {
            self.apply_object(&object).await;
        }
        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let response = self.api::<ServiceAccount>().create_token_request(name, &PostParams::default(), &request).await;
        let response =
            response.unwrap_or_else(|error| panic!("cannot create a token for the service account {name}: {error}"));
        let token = response.status.and_then(|status| status.token).unwrap_or_default();
        self.installed.target.bearer(&token, &self.installed.log)
    }

    /// Returns the namespace of the test.
    pub fn namespace(&self) -> &str {
        &self.installed.namespace
    }

    /// Returns the objects of a kind in the namespace of the test.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client(), &self.installed.namespace)
    }

    /// Applies manifests in YAML or JSON, one after the other. Objects without a namespace go to that of the test.
    ///
    /// # Panics
    ///
    /// If they are invalid YAML, or are rejected.
    pub async fn apply(&self, manifests: &str) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifests)
            .unwrap_or_else(|error| panic!("cannot parse the manifests: {error}\n{manifests}"));
        for document in documents.iter().filter(|document| !document.is_null()) {
            self.apply_object(document).await;
        }
    }

    /// Waits until a condition is true.
    ///
    /// # Panics
    ///
    /// If it is not true within an hour of paused time, or five minutes on a real cluster, or if the operator failed.
    pub async fn eventually(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let (_, timeout) = self.installed.target.convergence_times();
        let end = Instant::now() + timeout;
        while !condition().await {
            self.assert_works();
            assert!(Instant::now() < end, "timed out after {timeout:?}: {what}{}", self.last_writes());
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the operator has converged: it has written nothing for a minute, or for five seconds on a real
    /// cluster.
    ///
    /// # Panics
    ///
    /// If it still writes after an hour, or after five minutes on a real cluster, if it failed or panicked, or if an
    /// object failed repeatedly with errors that are not [expected](Self::expect_errors).
    pub async fn assert_converges(&self) {
        let (quiet, timeout) = self.installed.target.convergence_times();
        let end = Instant::now() + timeout;
        loop {
            let before = self.requests();
            sleep(quiet).await;
            self.assert_works();
            if self.requests().since(&before).writes == 0 {
                return self.assert_no_failures(quiet / 2);
            }
            if Instant::now() >= end {
                let (flapping, writes) = (self.flapping_fields().await, self.last_writes());
                panic!("the operator still writes after {timeout:?}{flapping}{writes}");
            }
        }
    }

    /// Waits until the operator has converged, restarts it, and asserts that it writes nothing.
    ///
    /// # Panics
    ///
    /// If it writes; the message contains the writes.
    pub async fn assert_idempotent(&mut self) {
        self.assert_converges().await;
        let before = self.requests();
        self.restart().await;
        let quiet = self.installed.target.convergence_times().0;
        sleep(quiet).await;
        self.assert_works();
        self.assert_no_failures(quiet / 2);
        let since = self.requests().since(&before);
        assert!(since.writes == 0, "{} writes where nothing had changed{}", since.writes, self.last_writes());
    }

    /// Kills the operator at once, without a graceful shutdown. Its webhooks do not respond until it is
    /// [restarted](Self::restart).
    pub async fn crash(&mut self) {
        if let Some(RunningOperator { task, .. }) = self.running.take() {
            task.abort();
            // An aborted task returns an error.
            let _ = task.await;
        }
        self.installed.target.silence(&self.installed.operator, &self.installed.namespace);
    }

    /// Shuts the operator down gracefully, if it runs, and starts it.
    ///
    /// # Panics
    ///
    /// If it had ended with an error.
    pub async fn restart(&mut self) {
        if let Some(RunningOperator { stop, task }) = self.running.take() {
            // If it has exited, its result is checked below.
            let _ = stop.send(());
            let result =
                task.await.unwrap_or_else(|error| panic!("the operator {} panicked: {error}", self.installed.operator));
            result.unwrap_or_else(|error| panic!("the operator {} could not run: {error}", self.installed.operator));
        }
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(self.installed.clone().run(stopped));
        self.running = Some(RunningOperator { stop, task });
    }

    /// Returns true if the crash of [`Setup::crash_before`] or [`Setup::crash_after`] has happened.
    pub fn crashed(&self) -> bool {
        self.installed.log.crashed().is_some()
    }

    /// Returns the requests of the operator so far. Updates of leader election leases do not count as writes.
    pub fn requests(&self) -> Requests {
        self.installed.log.requests()
    }

    /// Returns the denied requests of the operator so far. If there are any, the test fails at its end.
    pub fn denials(&self) -> Vec<Denial> {
        self.installed.log.denials()
    }

    /// Accepts the denials so far, and returns them.
    pub fn expect_denials(&self) -> Vec<String> {
        self.installed.log.take_denials()
    }

    /// Accepts the panics of the operator and the control plane so far, and returns them: controller, object and
    /// message. Other panics fail the test.
    pub fn expect_panics(&self) -> Vec<String> {
        self.installed.log.take_panics()
    }

    /// Allows repeated errors of reconciles that contain this text. Other repeated errors fail the test. Errors that
    /// [wait](flyball::Error::wait) for a change or are [terminal](flyball::Error::terminal) do not repeat.
    pub fn expect_errors(&self, part: &str) {
        self.installed.log.expect_errors(part);
    }

    /// Returns the permissions of the operator's [rules](Operator::rules) that it has not used so far.
    pub fn unused_permissions(&self) -> Vec<Permission> {
        let used = self.installed.log.used();
        let mut granted = Permission::granted(&self.rules);
        granted.retain(|permission| !used.contains(permission));
        granted
    }

    /// Returns the trace of all requests and responses of the operator; empty on a real cluster.
    pub fn trace(&self) -> String {
        self.installed.target.trace()
    }

    /// Returns true if the cluster is the test's own.
    fn is_alone(&self) -> bool {
        !self.installed.target.is_shared()
    }

    /// Applies the operator's manifests, and binds its roles to its service account.
    async fn install(&self, manifests: &[Value]) {
        for manifest in manifests {
            self.apply_object(manifest).await;
            let (kind, name) = (manifest["kind"].as_str().unwrap_or_default(), &manifest["metadata"]["name"]);
            match kind {
                "ClusterRole" | "Role" if !is_aggregated_role(manifest) => {
                    let mut metadata = manifest["metadata"].clone();
                    metadata["name"] =
                        format!("{}-{}", name.as_str().unwrap_or_default(), self.installed.namespace).into();
                    let api = "rbac.authorization.k8s.io";
                    self.apply_object(&json!({
                        "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
                        "roleRef": {"apiGroup": api, "kind": kind, "name": name},
                        "subjects": [{"kind": "ServiceAccount", "namespace": self.installed.namespace, "name": self.installed.operator}],
                    }))
                    .await;
                }
                "CustomResourceDefinition" => {
                    let (plural, group) = (&manifest["spec"]["names"]["plural"], &manifest["spec"]["group"]);
                    self.eventually(&format!("{plural} of {group}"), async || self.is_established(manifest).await)
                        .await;
                }
                _ => {}
            }
        }
    }

    async fn is_established(&self, crd: &Value) -> bool {
        let (spec, text) = (&crd["spec"], |value: &Value| value.as_str().unwrap_or_default().to_owned());
        let served = spec["versions"].as_array().into_iter().flatten().find(|version| version["served"] == true);
        let version = text(&served.unwrap_or(&Value::Null)["name"]);
        let gvk = GroupVersionKind::gvk(&text(&spec["group"]), &version, &text(&spec["names"]["kind"]));
        pinned_kind(&self.client(), &gvk).await.is_ok()
    }

    async fn apply_object(&self, manifest: &Value) {
        let object: DynamicObject = serde_json::from_value(manifest.clone())
            .unwrap_or_else(|error| panic!("the manifest is not an object: {error}\n{manifest}"));
        let what = || format!("{} {}", manifest["kind"], manifest["metadata"]["name"]);
        let types = object.types.as_ref().unwrap_or_else(|| panic!("{} names no apiVersion and kind", what()));
        let gvk = GroupVersionKind::try_from(types).unwrap_or_else(|error| panic!("{}: {error}", what()));
        let client = self.client();
        let (resource, capabilities) =
            pinned_kind(&client, &gvk).await.unwrap_or_else(|error| panic!("{}: {error}", what()));
        let namespace = object.metadata.namespace.as_deref().unwrap_or(&self.installed.namespace);
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Namespaced => Api::namespaced_with(client, namespace, &resource),
            Scope::Cluster => Api::all_with(client, &resource),
        };
        let name = object.metadata.name.as_deref().unwrap_or_else(|| panic!("{} has no metadata.name", what()));
        loop {
            let applied = api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(manifest)).await;
            match applied {
                // A webhook of the operator does not respond: retry after its restart, as a user would.
                Err(kube::Error::Api(status)) if status.code == 500 && self.installed.log.is_restarting() => {
                    sleep(RESTART).await;
                }
                Err(error) => panic!("{} is refused: {error}", what()),
                Ok(_) => break,
            }
        }
    }

    /// Fails if the operator is not running, which must not count as converged.
    fn assert_works(&self) {
        if let Some(error) = self.installed.log.failure() {
            panic!("the operator {} could not run: {error}", self.installed.operator);
        }
        let panics = self.installed.log.panics();
        assert!(panics.is_empty(), "{}", self.describe_panics(&panics));
        let changes = self.installed.log.unexpected_changes();
        assert!(changes.is_empty(), "{}", self.describe_changes(&changes));
    }

    fn describe_changes(&self, changes: &[String]) -> String {
        let (operator, list) = (&self.installed.operator, changes.join("\n  "));
        format!(
            "the operator {operator} changed what is neither its own nor the test's (Setup::allows_changes_in and \
             allows_changes_of take that as expected):\n  {list}"
        )
    }

    fn describe_panics(&self, panics: &[String]) -> String {
        let (operator, list) = (&self.installed.operator, panics.join("\n  "));
        format!("the operator {operator}, or the control plane, panicked (Test::expect_panics accepts it):\n  {list}")
    }

    /// Fails if reconciles fail repeatedly, which must not count as converged.
    fn assert_no_failures(&self, period: Duration) {
        let failing = self.installed.log.failing_for(period);
        assert!(
            failing.is_empty(),
            "the operator {} still fails without further changes (Test::expect_errors accepts it):\n  {}",
            self.installed.operator,
            failing.join("\n  ")
        );
    }

    fn last_writes(&self) -> String {
        let mut text = String::from("; its last writes, the latest first:");
        for write in self.installed.log.last_writes() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n  {write}");
        }
        text
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.task.abort();
        }
        self.installed.target.leave(&self.installed.namespace);
        let reported = report::write(&self.installed.operator, &self.rules, &self.installed.log);
        let denied = self.installed.log.describe_denials();
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = reported {
            panic!("FLYBALL_TEST_PERMISSIONS cannot be written: {error}");
        }
        if !denied.is_empty() {
            panic!(
                "the operator {} was denied what its controllers do not declare (Controller::owns, watches, reads, \
                 replaces or allows would):\n  {}",
                self.installed.operator,
                denied.join("\n  ")
            );
        }
        let panics = self.installed.log.panics();
        assert!(panics.is_empty(), "{}", self.describe_panics(&panics));
        let changes = self.installed.log.unexpected_changes();
        assert!(changes.is_empty(), "{}", self.describe_changes(&changes));
        // No retries after a stop.
        let period = self.installed.target.convergence_times().0 / 2;
        if self.running.is_some() && self.installed.log.is_idle(period) {
            self.assert_no_failures(period);
        }
    }
}

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Test")
            .field("operator", &self.installed.operator)
            .field("namespace", &self.installed.namespace)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("seed", &self.seed).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
