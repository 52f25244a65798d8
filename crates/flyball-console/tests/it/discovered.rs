//! Operators in the cluster, which the console reaches through the API server.

use crate::serve::{Kinds, Page};
use flyball_console::{Address, Console, FindOperators, Location, Origin, Settings};
use flyball_core::Clock;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use url::Url;

/// Paths of requests to pods, with the token that they contain.
type Received = Arc<Mutex<Vec<(String, String)>>>;

/// An API server that forwards requests to pods. The pod of `shop` requires a token.
fn client(received: &Received) -> Client {
    let received = received.clone();
    let respond = move |request: Request<Body>| {
        let received = received.clone();
        async move {
            let path = request.uri().path().to_owned();
            let token = request.headers().get("flyball-authorization");
            let token = token.and_then(|token| token.to_str().ok()).unwrap_or_default().to_owned();
            let (status, page) = match path.split_once("/proxy/debug/flyball") {
                Some((pod, _)) if pod.contains("/shop/") && token != "Bearer secret" => {
                    (StatusCode::UNAUTHORIZED, "a bearer token is required".into())
                }
                Some((_, "")) => (StatusCode::OK, json!({"operator": "shop-operator", "controllers": []})),
                Some((_, "/reconciles")) => (StatusCode::OK, json!({"reconciles": [], "omitted": 0})),
                _ => (StatusCode::NOT_FOUND, json!({"kind": "Status", "message": "no such page", "code": 404})),
            };
            if path.contains("/proxy/") {
                received.lock().expect("not poisoned").push((path, token));
            }
            let response = Response::builder().status(status).body(Body::from(page.to_string().into_bytes()));
            Ok::<_, kube::Error>(response.expect("valid"))
        }
    };
    Client::new(tower::service_fn(respond), "default")
}

#[derive(Debug)]
struct Found(Vec<Address>);

impl FindOperators for Found {
    fn operators(&self) -> Pin<Box<dyn Future<Output = Vec<Address>> + Send + '_>> {
        Box::pin(ready(self.0.clone()))
    }
}

/// The address of the pod of a Deployment, with a token that a claim must not receive.
fn pod(namespace: &str, is_claim: bool) -> Address {
    let path = format!("/api/v1/namespaces/{namespace}/pods/https:op-1:8443/proxy");
    let location = Location::Pod { deployment: format!("{namespace}/op"), path };
    let origin = if is_claim { Origin::Discovered } else { Origin::Named };
    let (account, token) = ("op".into(), Some("secret".into()));
    Address { location, origin, account, token, insecure_token: false, authority: None }
}

/// Returns names and errors of the operators of a console, when each of them has one.
async fn operators(found: Vec<Address>, received: &Received) -> Vec<(String, String)> {
    let client = client(received);
    let (cluster, context, clock, count) = (String::new(), "test".into(), Clock::system(), found.len());
    let finder: Option<Arc<dyn FindOperators>> = Some(Arc::new(Found(found)));
    let (operators, explorer, namespace) = (Vec::new(), None, None);
    let settings = Settings { port: 0, write: false, namespace, cluster, context, operators, finder, explorer, clock };
    let console = Console::bind(client.clone(), settings).await.expect("a free port");
    let url = Url::parse(&console.url()).expect("a URL");
    tokio::spawn(async move { console.run(&Kinds).await });
    let page = Page { url, client };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let described = async {
        loop {
            let described = page.get("/api/controllers").await;
            let all = described["operators"].as_array().cloned().unwrap_or_default();
            if all.len() == count && all.iter().all(|of| of["answered"] != "" || of["error"] != "") {
                return all;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let all = timeout(Duration::from_secs(20), described).await.expect("operators");
    all.iter().map(|operator| (text(&operator["name"]), text(&operator["error"]))).collect()
}

#[tokio::test]
async fn discovered_operators_are_claims_and_receive_no_token() {
    let received = Received::default();
    let found = operators(vec![pod("shop", true), pod("team-a", true)], &received).await;
    assert!(found[0].1.contains("--operator shop/op --operator-token-file FILE"), "{found:?}");
    assert_eq!(found[1], ("shop-operator, claimed by team-a/op".to_owned(), String::new()));
    let received = received.lock().expect("not poisoned");
    assert!(received.len() > 1 && received.iter().all(|(_, token)| token.is_empty()), "{received:?}");
}

#[tokio::test]
async fn named_operators_receive_no_token_through_the_api_server() {
    let received = Received::default();
    let found = operators(vec![pod("shop", false)], &received).await;
    assert!(found[0].1.contains("--insecure-operator-token"), "{found:?}");
    let received = received.lock().expect("not poisoned");
    assert!(!received.is_empty() && received.iter().all(|(_, token)| token.is_empty()), "{received:?}");
}

#[tokio::test]
async fn named_operators_receive_the_token_through_the_api_server_if_that_is_permitted() {
    let received = Received::default();
    let permitted = |namespace, is_claim| Address { insecure_token: true, ..pod(namespace, is_claim) };
    let found = operators(vec![permitted("shop", false), permitted("team-a", true)], &received).await;
    assert_eq!(found[0], ("shop-operator".to_owned(), String::new()));
    let received = received.lock().expect("not poisoned");
    let is_right = |(path, token): &(String, String)| path.contains("/shop/") == (token == "Bearer secret");
    assert!(received.iter().all(is_right), "{received:?}");
}
