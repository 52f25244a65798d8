//! The cluster that a test runs on: one of its own, or a real one.

use super::foreign::WriteTarget;
use super::requests::{Crash, Log};
use crate::{Cluster, Controllers, Faults, LocalWebhooks, Nodes, Options, Program, Trace, User, simulated_clock};
use flyball::webhook::Webhooks;
use flyball_core::{Clock, Rng, service_account};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tower::{ServiceExt, service_fn};

/// Environment variable with the kubeconfig of a real cluster for tests.
pub(super) const KUBECONFIG: &str = "FLYBALL_TEST_KUBECONFIG";

/// The cluster that a test runs on.
pub(super) enum Target {
    Own {
        cluster: Box<Cluster>,
        webhooks: LocalWebhooks,
        trace: Trace,
        faults: Faults,
        rng: Rng,
        running: JoinHandle<()>,
    },
    Real {
        config: Box<Config>,
    },
}

impl Target {
    /// Starts a cluster in process.
    pub(super) async fn own(
        seed: u64,
        nodes: usize,
        controllers: Controllers,
        program: Option<Arc<dyn Program>>,
        faults: Faults,
        log: &Log,
    ) -> Self {
        let (clock, webhooks) = (simulated_clock(), LocalWebhooks::default());
        let options = Options { webhooks: Arc::new(webhooks.clone()), ..Options::simulated(clock, seed) };
        let log = log.clone();
        let panicked = move |place: &str, message: &str| log.panicked(&format!("control plane, {place}"), message);
        let cluster = Cluster::new(options).on_panic(panicked);
        let cluster = match program {
            Some(program) => cluster.with_program(program),
            None => cluster,
        };
        let controlled = cluster.clone();
        let running = tokio::spawn(async move { controlled.run(&controllers).await });
        if nodes > 0 {
            Nodes::new("node", nodes).add_to(&cluster.admin()).await.expect("a new cluster accepts nodes");
        }
        let rng = Rng::from_seed(seed).fork("operator");
        Self::Own { cluster: Box::new(cluster), webhooks, trace: Trace::default(), faults, rng, running }
    }

    /// Connects to the cluster of a kubeconfig.
    pub(super) async fn real(path: &str) -> Self {
        let kubeconfig = Kubeconfig::read_from(path).unwrap_or_else(|error| panic!("{KUBECONFIG}={path}: {error}"));
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.unwrap_or_else(|error| panic!("{KUBECONFIG}={path}: {error}"));
        Self::Real { config: Box::new(config) }
    }

    /// Returns a client with all permissions of the test.
    pub(super) fn admin(&self) -> Client {
        match self {
            Self::Own { cluster, .. } => cluster.admin(),
            Self::Real { config } => client(config),
        }
    }

    /// Returns a client with all permissions, whose writes count as those of the test.
    pub(super) fn user(&self, log: &Log) -> Client {
        recorded(self.admin(), log.clone())
    }

    /// Returns a client with a bearer token, whose writes count as those of the test.
    pub(super) fn bearer(&self, token: &str, log: &Log) -> Client {
        let client = match self {
            Self::Own { cluster, .. } => {
                let header =
                    HeaderValue::from_str(&format!("Bearer {token}")).expect("a token is a valid header value");
                let bear = move |mut request: Request<Body>| {
                    request.headers_mut().insert(AUTHORIZATION, header.clone());
                    request
                };
                Client::new(cluster.server().clone().map_request(bear), "default")
            }
            Self::Real { config } => {
                let mut config = (**config).clone();
                config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
                client(&config)
            }
        };
        recorded(client, log.clone())
    }

    /// Returns a client with the service account of an operator, whose requests are counted.
    pub(super) fn operator(&self, namespace: &str, account: &str, log: &Log) -> Client {
        let name = service_account::user_name(namespace, account);
        let [all, own] = service_account::group_names(namespace);
        let groups = [&*all, &*own, "system:authenticated"];
        let client = match self {
            Self::Own { cluster, trace, faults, rng, .. } => {
                let user = User::new(&name, &groups);
                cluster.simulated_client(user, *faults, rng.fork("wire"), trace.clone())
            }
            Self::Real { config } => {
                let mut config = (**config).clone();
                config.auth_info.impersonate = Some(name);
                config.auth_info.impersonate_groups = Some(groups.map(str::to_owned).into());
                client(&config)
            }
        };
        counted(client, namespace, log.clone())
    }

    /// Returns true if others use the cluster as well.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Real { .. })
    }

    /// Returns the name of a namespace for one test.
    pub(super) fn namespace(&self) -> String {
        match self {
            Self::Own { .. } => "test".to_owned(),
            Self::Real { .. } => format!("flyball-test-{:08x}", self.rng(0).next() as u32),
        }
    }

    /// Registers the webhooks of an operator with the API server.
    pub(super) fn serve(&self, operator: &str, namespace: &str, webhooks: Webhooks) {
        if let Self::Own { webhooks: local, .. } = self {
            local.serve(webhook_host(operator, namespace), webhooks);
        }
    }

    /// Unregisters the webhooks of an operator, so that calls fail.
    pub(super) fn silence(&self, operator: &str, namespace: &str) {
        if let Self::Own { webhooks, .. } = self {
            webhooks.silence(&webhook_host(operator, namespace));
        }
    }

    /// Returns the trace of requests of the operator to the API server.
    pub(super) fn trace(&self) -> String {
        match self {
            Self::Own { trace, .. } => trace.text(),
            Self::Real { .. } => String::new(),
        }
    }

    /// Deletes the namespace of a test from a shared cluster.
    pub(super) fn leave(&self, namespace: &str) {
        let Self::Real { config } = self else { return };
        let (config, namespace) = (config.clone(), namespace.to_owned());
        // The runtime of the test is about to end, so another one is needed.
        let delete = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let deleted = async {
                let namespaces: Api<Namespace> = Api::all(client(&config));
                namespaces.delete(&namespace, &DeleteParams::default()).await
            };
            runtime.block_on(deleted).map(drop).map_err(std::io::Error::other)
        };
        if let Ok(Err(error)) = std::thread::spawn(delete).join() {
            tracing::warn!(%error, "cannot delete the namespace of the test");
        }
    }

    /// Returns the clock of the cluster.
    pub(super) fn clock(&self) -> Clock {
        match self {
            Self::Own { cluster, .. } => cluster.clock().clone(),
            Self::Real { .. } => Clock::system(),
        }
    }

    /// Returns the random source of an operator.
    pub(super) fn rng(&self, run: u64) -> Rng {
        match self {
            Self::Own { rng, .. } => rng.fork(&format!("run {run}")),
            Self::Real { .. } => Rng::from_os(),
        }
    }

    /// Returns the time without writes after which the operator counts as converged, and the timeout.
    pub(super) fn convergence_times(&self) -> (Duration, Duration) {
        match self {
            Self::Own { .. } => (Duration::from_secs(60), Duration::from_secs(3600)),
            Self::Real { .. } => (Duration::from_secs(5), Duration::from_secs(300)),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Self::Own { running, .. } = self {
            running.abort();
        }
    }
}

/// Resumes tokio's time if it is paused, since a real cluster runs in real time.
pub(super) async fn resume_time() {
    #[expect(clippy::disallowed_methods, reason = "detects whether tokio's time is paused")]
    let began = std::time::Instant::now();
    let wait = Duration::from_millis(50);
    tokio::time::sleep(wait).await;
    if began.elapsed() < wait {
        tokio::time::resume();
    }
}

fn webhook_host(operator: &str, namespace: &str) -> String {
    format!("{operator}-webhook.{namespace}.svc")
}

fn client(config: &Config) -> Client {
    flyball::connect(config.clone()).unwrap_or_else(|error| panic!("{KUBECONFIG}: {error}"))
}

/// Reads the response to a write.
async fn read(response: http::Response<Body>) -> kube::Result<(http::Response<Body>, serde_json::Value)> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let value = serde_json::from_slice(&body).unwrap_or_default();
    Ok((http::Response::from_parts(head, Body::from(body.to_vec())), value))
}

/// Records the writes of a client as those of the test.
fn recorded(client: Client, log: Log) -> Client {
    let pass = move |request: Request<Body>| {
        let (client, log) = (client.clone(), log.clone());
        async move {
            let place = WriteTarget::of(request.method(), request.uri());
            let response = client.send(request).await?;
            let Some(place) = place.filter(|_| response.status().is_success()) else { return Ok(response) };
            let (response, value) = read(response).await?;
            log.record_test_write(&place, &value);
            Ok::<_, kube::Error>(response)
        }
    };
    Client::new(service_fn(pass), "default")
}

/// Counts the requests of a client, and records its denials.
fn counted(client: Client, namespace: &str, log: Log) -> Client {
    let pass = move |request: Request<Body>| {
        let (client, log) = (client.clone(), log.clone());
        async move {
            let crash = log.sent(request.method());
            if let Some(Crash::Before(_)) = crash {
                log.crash().await;
            }
            let permission = log.count(request.method(), request.uri());
            let (method, place) = (request.method().clone(), WriteTarget::of(request.method(), request.uri()));
            let mut response = client.send(request).await?;
            if response.status() == StatusCode::CREATED && method == Method::PATCH {
                permission.iter().for_each(|permission| log.created(permission));
            }
            if let Some(place) = place.filter(|_| response.status().is_success()) {
                let value;
                (response, value) = read(response).await?;
                log.changed(&method, &place, &value);
            }
            if let Some(Crash::After(_)) = crash {
                log.crash().await;
            }
            let (head, body) = response.into_parts();
            let denied = permission.filter(|_| head.status.as_u16() == 403);
            let Some(permission) = denied else { return Ok(http::Response::from_parts(head, body)) };
            let body = body.collect().await?.to_bytes();
            let status: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            log.denied(permission, status["message"].as_str().unwrap_or_default());
            Ok::<_, kube::Error>(http::Response::from_parts(head, Body::from(body.to_vec())))
        }
    };
    Client::new(service_fn(pass), namespace)
}
