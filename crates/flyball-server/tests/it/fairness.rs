//! Users share resources: requests of one user do not block others.

use crate::bounds::{MAPS, get, grant_access, metrics};
use crate::crash::ask;
use bytes::Bytes;
use flyball_core::Clock;
use flyball_server::{Body, Bounds, Caller, Options, Server, User, WebhookCall, WebhookFuture};
use futures_util::future::join_all;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A webhook that does not respond.
struct Silent;

impl Caller for Silent {
    fn call(&self, _: WebhookCall) -> WebhookFuture {
        Box::pin(std::future::pending())
    }
}

/// Creates a server on which each new config map waits for a number of webhooks, each with a timeout in seconds and
/// ignored failures.
async fn slow_server(bounds: Bounds, webhooks: usize, seconds: u64) -> Server {
    let webhooks_of = Arc::new(Silent);
    let server = Server::new(Options { bounds, webhooks: webhooks_of, ..Options::simulated(Clock::system(), 1) });
    let hook = |n: usize| {
        json!({
            "name": format!("hook-{n}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "timeoutSeconds": seconds, "clientConfig": {"url": "https://nobody.example.com/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        })
    };
    let hooks: Vec<Value> = (0..webhooks).map(hook).collect();
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": hooks});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let (code, answer) = ask(&server, Method::POST, path, &configuration).await;
    assert_eq!(code, 201, "{answer}");
    server
}

async fn create(server: &Server, user: &str, name: &str) -> Response<Body> {
    let object = json!({"metadata": {"name": name}});
    let mut request = Request::post(MAPS).body(Full::new(Bytes::from(object.to_string()))).unwrap();
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    request.extensions_mut().insert(User::new(user, &[]));
    server.handle(request).await
}

#[tokio::test(start_paused = true)]
async fn request_beyond_the_limit_gets_retry_after() {
    let bounds = Bounds { writes: 1, waiting: 1, max_wait: Duration::from_secs(2), ..Bounds::default() };
    let server = slow_server(bounds, 1, 3).await;
    grant_access(&server, "ann").await;
    let (slow, waited, full, watch, admin) = tokio::join!(
        create(&server, "ann", "a"),
        create(&server, "ann", "b"),
        create(&server, "ann", "c"),
        get(&server, User::new("ann", &[]), "/api/v1/configmaps?watch=1"),
        get(&server, User::new("admin", &["system:masters"]), MAPS),
    );
    assert_eq!(slow.status(), 201);
    for refused in [waited, full] {
        assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
        let text = refused.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(text, "Too many requests, please try again later.\n");
    }
    assert_eq!((watch.status().as_u16(), admin.status().as_u16()), (200, 200));
    assert_eq!(create(&server, "ann", "d").await.status(), 201);

    let page = metrics(&server).await;
    let post = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"POST\",version=\"v1\"";
    for line in [
        &format!("apiserver_request_total{{code=\"429\",{post}}} 2"),
        &format!("apiserver_request_total{{code=\"201\",{post}}} 2"),
        "resource=\"configmaps\",scope=\"cluster\",subresource=\"\",verb=\"WATCH\",version=\"v1\"} 1",
        "reason=\"queue-full\"} 1",
        "reason=\"time-out\"} 1",
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0",
        "apiserver_registered_watchers{group=\"\",resource=\"configmaps\"} 1",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_requests_of_a_user_do_not_delay_another() {
    let server = slow_server(Bounds { writes: 8, ..Bounds::default() }, 1, 10).await;
    grant_access(&server, "ann").await;
    grant_access(&server, "bob").await;
    let start = Instant::now();
    let names: Vec<String> = (0..1000).map(|n| format!("ann-{n}")).collect();
    let flood = join_all(names.iter().map(|name| create(&server, "ann", name)));
    let other = async {
        sleep(Duration::from_millis(1)).await;
        let mut took = Vec::new();
        for name in ["bob-1", "bob-2", "bob-3"] {
            let start = Instant::now();
            assert_eq!(create(&server, "bob", name).await.status(), 201);
            took.push(start.elapsed());
        }
        took
    };
    let (flood, took) = tokio::join!(flood, other);
    assert!(took.iter().all(|took| *took < Duration::from_secs(11)), "his wait for the webhook alone: {took:?}");
    let codes = |code: u16| flood.iter().filter(|response| response.status() == code).count();
    assert_eq!(codes(201) + codes(429), 1000);
    assert!((4..40).contains(&codes(201)), "{}", codes(201));
    assert!(start.elapsed() < Duration::from_secs(60));
    let waited = Instant::now();
    assert_eq!(create(&server, "ann", "later").await.status(), 201);
    assert!(waited.elapsed() < Duration::from_secs(11), "nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn webhooks_of_a_request_share_34_seconds() {
    let server = slow_server(Bounds::default(), 5, 30).await;
    grant_access(&server, "ann").await;
    let start = Instant::now();
    let late = create(&server, "ann", "a").await;
    assert_eq!((late.status().as_u16(), start.elapsed().as_secs()), (504, 34));
    let status: Value = serde_json::from_slice(&late.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
    assert_eq!((&status["message"], &status["reason"]), (&message.into(), &"Timeout".into()));
    assert_eq!(ask(&server, Method::GET, &format!("{MAPS}/a"), &Value::Null).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_version_holds_no_slot() {
    let server = Server::new(Options {
        bounds: Bounds { reads: 1, ..Bounds::default() },
        ..Options::simulated(Clock::system(), 1)
    });
    grant_access(&server, "ann").await;
    let ann = || User::new("ann", &[]);
    let (_, list) = ask(&server, Method::GET, MAPS, &Value::Null).await;
    let now: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let start = Instant::now();
    let next = format!("{MAPS}?resourceVersion={}", now + 1);
    let never = format!("{MAPS}?resourceVersion={}", now + 1000);
    let (one, stale) = (format!("{MAPS}/a?resourceVersion={}", now + 1000), format!("{MAPS}/a?resourceVersion={now}"));
    let far: Vec<_> = (0..50).map(|n| get(&server, ann(), [&never, &one][n % 2])).collect();
    let timed = async |path: &str| (get(&server, ann(), path).await.status().as_u16(), start.elapsed().as_millis());
    let write = async {
        sleep(Duration::from_millis(500)).await;
        // In another resource: versions are counted together.
        let secret = json!({"metadata": {"name": "a"}});
        assert_eq!(ask(&server, Method::POST, "/api/v1/namespaces/default/secrets", &secret).await.0, 201);
    };
    let (far, near, at_once, old, ()) = tokio::join!(join_all(far), timed(&next), timed(MAPS), timed(&stale), write);
    assert_eq!((near, at_once, old), ((200, 500), (200, 0), (404, 0)));
    assert!(far.iter().all(|late| late.status() == 504));
    assert_eq!(start.elapsed().as_secs(), 3);
}
