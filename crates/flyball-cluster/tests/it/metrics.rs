//! The metrics endpoint of an operator, and its authorization.

use crate::eventually;
use flyball::{Action, Context, Controller, MetricsServer, Operator, Reconcile, Result};
use flyball_cluster::{Cluster, Controllers, Options, User};
use http::Request;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::future::pending;

struct Maps;

impl Reconcile for Maps {
    type Resource = ConfigMap;

    async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> {
        Ok(Action::done())
    }
}

async fn create(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let resource = ApiResource::from_gvk(&object.types.as_ref().unwrap().try_into().unwrap());
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Creates a service account; returns a token of it.
async fn account(client: &Client, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    create(
        client,
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}),
    )
    .await;
    let response = accounts.create_token_request(name, &PostParams::default(), &TokenRequest::default()).await.unwrap();
    response.status.unwrap().token.unwrap()
}

fn binding(role: &str, subject: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{role}-{}", subject["name"].as_str().unwrap())},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}

#[tokio::test]
async fn protected_metrics_require_a_permitted_token() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cluster = Cluster::new(Options::system().unwrap());
    let (admin, server) = (cluster.admin(), cluster.clone());
    tokio::spawn(async move { server.run(&Controllers::all()).await });
    eventually("namespace default", || async {
        Api::<ConfigMap>::namespaced(admin.clone(), "default").list(&Default::default()).await.is_ok()
    })
    .await;

    // The operator has only the permissions of its manifests.
    let operator = |address| {
        let metrics = MetricsServer { address, secure: true, ..MetricsServer::default() };
        Operator::new("metered").controller(Controller::new(Maps)).metrics_server(metrics)
    };
    for manifest in operator(None).manifests() {
        create(&admin, manifest).await;
    }
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "metered"});
    create(&admin, binding("metered", user)).await;
    let (reader, guest) = (account(&admin, "prometheus").await, account(&admin, "guest").await);
    let prometheus = json!({"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"});
    create(&admin, binding("metered-metrics-reader", prometheus)).await;
    let client = cluster.client(User::new("metered", &["system:authenticated"]));
    tokio::spawn(async move { operator(Some(address)).run(client, pending()).await.unwrap() });

    let ask = async |scheme: &str, token: &str, path: &str| {
        let mut config = Config::new(format!("{scheme}://{address}").parse().unwrap());
        config.accept_invalid_certs = true;
        config.default_retry = false;
        config.auth_info.token = (!token.is_empty()).then(|| token.to_owned().into());
        let client = Client::try_from(config).unwrap();
        let answer = client.send(Request::get(path).body(kube::client::Body::empty()).unwrap()).await.ok()?;
        let code = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        Some((code, String::from_utf8(body.to_vec()).unwrap()))
    };
    let code = async |token: &str, path: &str| ask("https", token, path).await.map(|(code, _)| code);
    eventually("the metrics", || async { code(&reader, "/metrics").await == Some(200) }).await;
    assert_eq!(code("", "/metrics").await, Some(401));
    assert_eq!(code("nobody", "/metrics").await, Some(401));
    assert_eq!(code(&reader, "/other").await, Some(403), "more than the role says");
    let (refused, why) = ask("https", &guest, "/metrics").await.unwrap();
    assert_eq!(refused, 403);
    assert!(why.starts_with("system:serviceaccount:default:guest may not get /metrics"), "{why}");
    assert_eq!(ask("http", &reader, "/metrics").await, None, "plain HTTP is rejected");

    // Latency, traffic, errors and saturation, without code in the operator.
    let (_, text) = ask("https", &reader, "/metrics").await.unwrap();
    for series in [
        "flyball_latency_seconds_bucket",
        "controller_runtime_reconcile_total",
        "controller_runtime_reconcile_errors_total",
        "flyball_saturation",
    ] {
        assert!(text.lines().any(|line| line.starts_with(series)), "no {series} in\n{text}");
    }
}
