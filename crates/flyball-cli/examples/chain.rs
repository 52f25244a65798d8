//! Four operators in one process whose controllers cause each other, for the tests of `flyball why`.
//!
//! A Service determines a ConfigMap, which determines a Deployment, which determines a PodDisruptionBudget. The fourth
//! operator has no permissions, so that its watch fails. With `CHAIN_ABSENT`, the first operator owns a kind that is not
//! installed; with `CHAIN_LATE`, the cache of the second one observes Deployments late.

use flyball::{
    Action, Cache, Context, Controller, Error, Kind, LeaderElection, MetricsServer, Operator, Predicate, Reconcile,
    Result, RunError,
};
use futures_util::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::client::Body;
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use tower::service_fn;

/// Delay of events with `CHAIN_LATE`: less than the time for which a key is held.
const LATE: Duration = Duration::from_secs(8);

/// Creates an object of a type from JSON.
fn object<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

/// Copies the annotation `size` of a Service into a ConfigMap.
struct Shops;

impl Reconcile for Shops {
    type Resource = Service;

    async fn reconcile(&self, shop: &Service, cx: &Context<Service>) -> Result<Action> {
        if shop.annotations().get("fail").is_some_and(|fail| fail == "true") {
            return Err(Error::from("the warehouse is closed"));
        }
        let size = shop.annotations().get("size").map_or("1", String::as_str);
        cx.apply(&object::<ConfigMap>(json!({"metadata": {"name": shop.name_any()}, "data": {"size": size}}))?).await?;
        Ok(Action::done())
    }
}

/// Runs as many pods as a ConfigMap says.
struct Configs;

impl Reconcile for Configs {
    type Resource = ConfigMap;

    async fn reconcile(&self, config: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
        let size = config.data.as_ref().and_then(|data| data.get("size")).and_then(|size| size.parse::<i32>().ok());
        let Some(size) = size else { return Ok(Action::done()) };
        let labels = json!({"app": config.name_any()});
        let deployment = json!({
            "metadata": {"name": config.name_any()},
            "spec": {
                "replicas": size,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1"}]},
                },
            },
        });
        cx.apply(&object::<Deployment>(deployment)?).await?;
        Ok(Action::done())
    }
}

/// Protects the pods of a Deployment.
struct Budgets;

impl Reconcile for Budgets {
    type Resource = Deployment;

    async fn reconcile(&self, deployment: &Deployment, cx: &Context<Deployment>) -> Result<Action> {
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let budget = json!({
            "metadata": {"name": deployment.name_any()},
            "spec": {"maxUnavailable": replicas, "selector": {"matchLabels": {"app": deployment.name_any()}}},
        });
        cx.apply(&object::<PodDisruptionBudget>(budget)?).await?;
        Ok(Action::done())
    }
}

/// Does nothing with Secrets.
struct Keys;

impl Reconcile for Keys {
    type Resource = Secret;

    async fn reconcile(&self, _: &Secret, _: &Context<Secret>) -> Result<Action> {
        Ok(Action::done())
    }
}

/// Returns the operators, which serve their pages at the addresses.
fn operators(addresses: &[String]) -> Vec<Operator> {
    let shops = Controller::new(Shops).owns::<ConfigMap>();
    let shops = match std::env::var_os("CHAIN_ABSENT") {
        Some(_) => shops.dynamic(&Kind::new("example.com", "v1", "Gadget")).owns(),
        None => shops,
    };
    let shops = Operator::new("shop-operator")
        .version("1.2.0")
        .cache(Cache::<Service>::new().labels("app=shop"))
        .controller(shops);
    let configs = Operator::new("config-operator").controller(Controller::new(Configs).owns::<Deployment>());
    let budgets = Controller::new(Budgets).filter::<Deployment>(Predicate::generation()).owns::<PodDisruptionBudget>();
    let budgets = Operator::new("budget-operator").namespace("default").controller(budgets);
    let budgets = match std::env::var_os("CHAIN_LEASE") {
        Some(_) => budgets.leader_election(LeaderElection::default()),
        None => budgets,
    };
    let keys = Operator::new("key-operator").controller(Controller::new(Keys));
    let serve = |(operator, address): (Operator, &String)| {
        let address = address.parse().expect("an address on the command line");
        operator.metrics_server(MetricsServer { address: Some(address), ..MetricsServer::default() })
    };
    [shops, configs, budgets, keys].into_iter().zip(addresses).map(serve).collect()
}

/// Delays the events of watches of Deployments, as a slow connection does.
fn late(client: Client) -> Client {
    let send = move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let is_late = is_watch && request.uri().path().ends_with("/deployments");
            let response = client.send(request).await?;
            if !is_late {
                return Ok::<_, kube::Error>(response.map(BodyExt::boxed_unsync));
            }
            let (head, body) = response.into_parts();
            let delayed = body.into_data_stream().then(|data| async {
                let has_event = |data: &[u8]| data.windows(7).any(|word| word == b"\"ADDED\"");
                if data.as_ref().is_ok_and(|data| has_event(data)) {
                    tokio::time::sleep(LATE).await;
                }
                data.map(Frame::data)
            });
            Ok(Response::from_parts(head, StreamBody::new(delayed).boxed_unsync()))
        }
    };
    Client::new(service_fn(send), "default")
}

async fn run() -> Result<(), RunError> {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    let config = kube::Config::infer().await.expect("a cluster");
    let mut running = tokio::task::JoinSet::new();
    for (at, operator) in operators(&addresses).into_iter().enumerate() {
        let mut config = config.clone();
        if at == 3 {
            config.auth_info.impersonate = Some("nobody".into());
        }
        if at == 1 && std::env::var_os("CHAIN_LATE").is_some() {
            let client = flyball::connect(config).expect("a client");
            running.spawn(operator.run(late(client), std::future::pending()));
            continue;
        }
        running.spawn(operator.run_at(config, std::future::pending()));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no operator panics")?;
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the test shows it if an operator fails")]
fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
