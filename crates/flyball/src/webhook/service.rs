//! The webhooks of an operator as a function from request to response.

use super::Declaration;
use super::budget::{self, Budget, Rejection};
use super::convert::{self, Conversions};
use super::handler::Handler;
use super::metrics::WebhookMetrics;
use crate::cache::Caches;
use crate::panics::{self, caught};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Path of conversions.
pub(super) const CONVERT_PATH: &str = "/convert";
/// Size limit of a review of one write: the API server accepts 3 MiB, and a review contains two objects.
const MAX_ADMISSION_BYTES: usize = 8 << 20;
/// Size limit of a conversion review, which may contain a whole list, unless the author sets a higher one.
pub(super) const MAX_CONVERSION_BYTES: usize = 16 << 20;
/// Timeout of a review if the API server sends none.
const MAX_REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// The parts of a running operator that webhooks use.
#[derive(Debug)]
pub(crate) struct OperatorState {
    pub(crate) caches: Arc<Caches>,
    pub(crate) metrics: WebhookMetrics,
    /// Hooks for panics.
    pub(crate) panics: panics::Hooks,
}

/// The webhooks of an [`Operator`](crate::Operator), for calls within the process.
///
/// The operator serves them over TLS at the address of its [webhook server](crate::Operator::webhook_server). A
/// simulation, which must not open sockets, calls them directly:
///
/// ```
/// # use flyball::{Operator, webhook::{AdmissionRequest, Verdict, Webhook}};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let refuses = |_: &AdmissionRequest<ConfigMap>| Ok(Verdict::deny("no"));
/// let webhooks = Operator::new("pages").webhook(Webhook::new().validates(refuses)).webhooks();
/// assert_eq!(webhooks.paths().collect::<Vec<_>>(), ["/validate--v1-configmap"]);
///
/// let body = http_body_util::Full::<bytes::Bytes>::default();
/// let request = http::Request::post("/validate--v1-configmap").body(body).unwrap();
/// assert_eq!(webhooks.handle(request).await.status(), 503, "the operator is not running yet");
/// # });
/// ```
#[derive(Clone)]
pub struct Webhooks(Arc<ServiceState>);

struct ServiceState {
    routes: BTreeMap<String, Arc<dyn Handler>>,
    budget: Budget,
    max_conversion_bytes: usize,
    live: Arc<OnceLock<OperatorState>>,
}

impl Webhooks {
    pub(crate) fn new(declared: &[Declaration], live: Arc<OnceLock<OperatorState>>) -> Self {
        let mut routes: BTreeMap<String, Arc<dyn Handler>> = BTreeMap::new();
        let mut converted = BTreeMap::new();
        let mut max_conversion_bytes = MAX_CONVERSION_BYTES;
        for each in declared {
            if let Some(handler) = &each.validates {
                routes.insert(each.path("validate"), handler.clone());
            }
            if let Some(handler) = &each.defaults {
                routes.insert(each.path("mutate"), handler.clone());
            }
            if let Some(conversions) = &each.converts {
                let gvk = each.scope.kind.gvk();
                converted.insert(format!("{}.{}", gvk.kind, gvk.group), conversions.clone());
                max_conversion_bytes = max_conversion_bytes.max(each.max_conversion_bytes);
            }
        }
        if !converted.is_empty() {
            routes.insert(CONVERT_PATH.to_owned(), Arc::new(ConversionHandler(converted)));
        }
        Self(Arc::new(ServiceState { routes, budget: Budget::new(max_conversion_bytes), max_conversion_bytes, live }))
    }

    /// Returns the paths that are served.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.routes.keys().map(String::as_str)
    }

    /// Handles a review in an HTTP request.
    ///
    /// An invalid review results in a status from 400 on, any request before the operator runs in 503, a panic in 500,
    /// and an answer after the `timeout` in the query in 504.
    pub async fn handle<B: Body<Data: Send> + Send>(&self, request: Request<B>) -> Response<Bytes>
    where
        B::Error: Into<tower::BoxError>,
    {
        let Some(live) = self.0.live.get() else {
            return reject(StatusCode::SERVICE_UNAVAILABLE, "the operator is not running yet");
        };
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let Some(handler) = self.0.routes.get(path) else {
            return reject(StatusCode::NOT_FOUND, "no webhook at this path");
        };
        let call = live.metrics.begin(path);
        let began = Instant::now();
        let limit = if path == CONVERT_PATH { self.0.max_conversion_bytes } else { MAX_ADMISSION_BYTES };
        let response = match check(&head, limit) {
            Err(response) => *response,
            Ok(deadline) => {
                let result = live.panics.within(self.respond(&**handler, body, limit, path, live));
                let late = |_| reject(StatusCode::GATEWAY_TIMEOUT, "the webhook timed out");
                timeout(deadline, result).await.unwrap_or_else(late)
            }
        };
        call.end(response.status(), began.elapsed());
        response
    }

    async fn respond<B: Body<Data: Send> + Send>(
        &self,
        handler: &dyn Handler,
        body: B,
        limit: usize,
        path: &str,
        live: &OperatorState,
    ) -> Response<Bytes> {
        let review = match self.0.budget.read(body, limit).await {
            Ok(review) => review,
            Err(rejection) => return rejection_response(rejection, path),
        };
        let _parsed = match self.0.budget.parse(handler.tree_bytes(&review.text)).await {
            Ok(permit) => permit,
            Err(rejection) => return rejection_response(rejection, path),
        };
        // This calls the author's code.
        let response =
            AssertUnwindSafe(async { handler.handle(&review.text, live.caches.clone(), &self.0.budget).await });
        match response.catch_unwind().await {
            Ok(Ok(response)) => {
                let mut response = Response::new(review.into_response(response));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Ok(Err(rejection)) => rejection_response(rejection, path),
            Err(panic) => {
                live.metrics.panicked();
                let why = caught(format_args!("webhook {path}"), &*panic);
                tracing::error!(webhook = path, why, "webhook panicked");
                reject(StatusCode::INTERNAL_SERVER_ERROR, &format!("the webhook panicked: {why}"))
            }
        }
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.paths()).finish()
    }
}

/// Converts all kinds.
struct ConversionHandler(BTreeMap<String, Arc<Conversions>>);

impl Handler for ConversionHandler {
    fn handle<'a>(
        &'a self,
        body: &'a [u8],
        _: Arc<Caches>,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<budget::Response, Rejection>> {
        Box::pin(async move {
            let request = convert::read(body).map_err(Rejection::Invalid)?;
            let result = budget.converted.decode(|meter| convert::convert_all(&self.0, &request, meter)).await;
            let (text, charge) = result.unwrap_or_else(|error| (convert::reject(&request, &error), None));
            Ok(budget::Response { text, charge })
        })
    }

    fn tree_bytes(&self, body: &[u8]) -> usize {
        convert::tree_bytes(body)
    }
}

/// Validates the head of a request; returns the remaining time.
fn check(head: &http::request::Parts, limit: usize) -> Result<Duration, Box<Response<Bytes>>> {
    let reject = |code, why| Box::new(reject(code, why));
    if head.method != Method::POST {
        return Err(reject(StatusCode::METHOD_NOT_ALLOWED, "reviews require POST"));
    }
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text(CONTENT_TYPE).split(';').next().map(str::trim) != Some("application/json") {
        return Err(reject(StatusCode::UNSUPPORTED_MEDIA_TYPE, "reviews require the content type application/json"));
    }
    if text(CONTENT_LENGTH).parse().is_ok_and(|length: u64| length > limit as u64) {
        return Err(Box::new(rejection_response(Rejection::TooLong { limit }, head.uri.path())));
    }
    let parameters = head.uri.query().into_iter().flat_map(|query| query.split('&'));
    let seconds = parameters.filter_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok()).next();
    Ok(seconds.map_or(MAX_REVIEW_TIMEOUT, Duration::from_secs).min(MAX_REVIEW_TIMEOUT))
}

/// Describes why a body is rejected, and the remedy.
fn rejection_response(rejection: Rejection, path: &str) -> Response<Bytes> {
    let code = match rejection {
        Rejection::TooLong { .. } | Rejection::TooManyValues => StatusCode::PAYLOAD_TOO_LARGE,
        Rejection::Crowded => StatusCode::SERVICE_UNAVAILABLE,
        Rejection::BrokeOff | Rejection::Invalid(_) => StatusCode::BAD_REQUEST,
    };
    let remedy = match rejection {
        Rejection::TooLong { .. } if path == CONVERT_PATH => ": increase Webhook::max_conversion_bytes",
        _ => "",
    };
    reject(code, &format!("{rejection}{remedy}"))
}

fn reject(code: StatusCode, why: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{why}\n")));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::{AdmissionRequest, Verdict, Webhook};
    use http_body_util::{BodyExt, Full};
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;
    use tokio::sync::Barrier;

    fn webhooks(declared: &[Declaration]) -> Webhooks {
        let live = Arc::<OnceLock<OperatorState>>::default();
        let (caches, _) = Caches::new([], &BTreeSet::new());
        let metrics = WebhookMetrics::default();
        assert!(live.set(OperatorState { caches: Arc::new(caches), metrics, panics: Default::default() }).is_ok());
        Webhooks::new(declared, live)
    }

    async fn send(webhooks: &Webhooks, path: &str, body: String) -> (StatusCode, String) {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        let response = webhooks.handle(request.body(Full::new(Bytes::from(body))).unwrap()).await;
        let code = response.status();
        let body = Full::new(response.into_body()).collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Sends a review of an object, and returns its response.
    async fn review(webhooks: &Webhooks, path: &str, operation: &str, object: &Value) -> Value {
        let old = if operation == "CREATE" { &Value::Null } else { object };
        review_change(webhooks, path, operation, [old, object]).await
    }

    /// Sends a review of a change of an object, and returns its response.
    async fn review_change(webhooks: &Webhooks, path: &str, operation: &str, [old, object]: [&Value; 2]) -> Value {
        let request = json!({"uid": "u", "operation": operation, "name": "a", "namespace": "b", "object": object,
            "oldObject": old});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let (code, text) = send(webhooks, path, review.to_string()).await;
        assert_eq!(code, StatusCode::OK, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["response"].take()
    }

    fn pod(spec: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}, "spec": spec})
    }

    /// A pod as of a service mesh with many containers.
    fn large_pod() -> Value {
        let env = |n: usize| json!({"name": format!("VARIABLE_{n}"), "valueFrom": {"fieldRef": {"fieldPath": "a.b"}}});
        let mount = |n: usize| json!({"name": format!("volume-{n}"), "mountPath": format!("/some/path/{n}")});
        let container = |n: usize| {
            let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
            json!({"name": format!("container-{n}"), "image": "registry.example.com/some/image:v1.2.3",
                "env": (0..12).map(env).collect::<Vec<_>>(), "volumeMounts": (0..6).map(mount).collect::<Vec<_>>(),
                "ports": [{"containerPort": 8080}], "readinessProbe": probe, "livenessProbe": probe,
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}})
        };
        let volume = |n: usize| json!({"name": format!("volume-{n}"), "configMap": {"name": format!("map-{n}")}});
        pod(&json!({"containers": (0..20).map(container).collect::<Vec<_>>(),
            "volumes": (0..10).map(volume).collect::<Vec<_>>()}))
    }

    #[tokio::test]
    async fn objects_that_are_large_when_decoded_are_rejected() {
        let webhook = Webhook::<Pod>::new()
            .validates(|_: &AdmissionRequest<Pod>| Ok(Verdict::allow()))
            .defaults(|_: &mut Pod, _: &AdmissionRequest<Pod>| Ok(()))
            .on_deletion();
        let webhooks = webhooks(&[webhook.declared()]);
        // 120 KB of text that take 128 MB as volumes.
        let volumes = pod(&json!({"containers": [], "volumes": vec![json!({}); 40_000]}));
        for (path, operation) in
            [("/validate--v1-pod", "CREATE"), ("/validate--v1-pod", "UPDATE"), ("/mutate--v1-pod", "CREATE")]
        {
            let response = review(&webhooks, path, operation, &volumes).await;
            let message = response["status"]["message"].as_str().unwrap();
            assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(413)));
            assert!(message.contains("64 MiB") && message.contains("list items"), "{message}");
        }
        let response = review(&webhooks, "/validate--v1-pod", "DELETE", &volumes).await;
        assert_eq!(response["allowed"], true, "it can be deleted");
        assert!(response["warnings"][0].as_str().unwrap().contains("not validated"));
    }

    #[tokio::test]
    async fn terminating_objects_are_validated_unless_only_finalizers_change() {
        let rejects = |_: &AdmissionRequest<Pod>| Ok(Verdict::deny("never"));
        let webhooks = webhooks(&[Webhook::<Pod>::new().validates(rejects).declared()]);
        let object = |field: &str, value: Value| {
            let mut pod = pod(&json!({"containers": []}));
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            pod["metadata"][field] = value;
            pod
        };
        let before = object("finalizers", json!(["example.com/a"]));
        for (field, value, is_allowed) in [
            ("finalizers", json!([]), true),
            ("managedFields", json!([{"manager": "m"}]), true),
            ("resourceVersion", json!("2"), true),
            ("generation", json!(2), true),
            ("annotations", json!({"example.com/final-backup": "false"}), false),
            ("labels", json!({"a": "b"}), false),
            ("ownerReferences", json!([{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}]), false),
        ] {
            let response =
                review_change(&webhooks, "/validate--v1-pod", "UPDATE", [&before, &object(field, value)]).await;
            assert_eq!(response["allowed"], is_allowed, "{field}: {response}");
        }
    }

    #[tokio::test]
    async fn large_stored_objects_can_be_reduced() {
        let immutable = |request: &AdmissionRequest<Pod>| {
            let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let moves = request.old().is_some_and(|old| node(old) != node(request.object()));
            Ok(if moves { Verdict::deny("the node is immutable") } else { Verdict::allow() })
        };
        let defaults = |pod: &mut Pod, _: &AdmissionRequest<Pod>| {
            pod.metadata.generate_name = Some("a".into());
            Ok(())
        };
        let webhook = Webhook::<Pod>::new().validates(immutable).defaults(defaults);
        let webhooks = webhooks(&[webhook.declared()]);
        // A volume takes 3 KiB, and three times as much in a list that grows.
        let on = |node: &str, volumes: usize| {
            pod(&json!({"containers": [], "nodeName": node, "volumes": vec![json!({}); volumes]}))
        };
        for path in ["/validate--v1-pod", "/mutate--v1-pod"] {
            let response = review_change(&webhooks, path, "UPDATE", [&on("b", 40_000), &on("a", 1)]).await;
            assert_eq!(response["allowed"], true, "too large to be created: {response}");
        }
        let response =
            review_change(&webhooks, "/validate--v1-pod", "UPDATE", [&on("b", 6_000), &on("a", 6_000)]).await;
        assert_eq!(response["allowed"], false, "an object that may be created does not evade the rule: {response}");
        assert!(response["status"]["message"].as_str().unwrap().contains("immutable"), "{response}");
    }

    /// Waits until all concurrent reviews are being validated.
    struct Meets(Barrier);

    impl<T: crate::kind::Resource> crate::webhook::Validator<T> for Meets {
        async fn validate(&self, _: &AdmissionRequest<T>) -> crate::Result<Verdict> {
            self.0.wait().await;
            Ok(Verdict::allow())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ordinary_reviews_are_processed_concurrently() {
        const COUNT: usize = 24;
        let webhook = Webhook::<Pod>::new().validates(Meets(Barrier::new(COUNT)));
        let webhooks = webhooks(&[webhook.declared()]);
        let pod = large_pod();
        assert!(pod.to_string().len() > 25_000);
        let reviews = (0..COUNT).map(|_| review(&webhooks, "/validate--v1-pod", "UPDATE", &pod));
        for response in futures_util::future::join_all(reviews).await {
            assert_eq!(response["allowed"], true);
        }
    }

    /// Validates large pods only after a day.
    struct Hesitates;

    impl crate::webhook::Validator<Pod> for Hesitates {
        async fn validate(&self, request: &AdmissionRequest<Pod>) -> crate::Result<Verdict> {
            let volumes = request.object().spec.as_ref().and_then(|spec| spec.volumes.as_ref());
            if volumes.is_some_and(|volumes| volumes.len() > 1000) {
                tokio::time::sleep(Duration::from_hours(24)).await;
            }
            Ok(Verdict::allow())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ordinary_reviews_do_not_wait_for_large_ones() {
        let webhooks = webhooks(&[Webhook::<Pod>::new().validates(Hesitates).declared()]);
        let large = pod(&json!({"containers": [], "volumes": vec![json!({}); 6_000]}));
        let mut waiting: Vec<_> =
            (0..40).map(|_| Box::pin(review(&webhooks, "/validate--v1-pod", "CREATE", &large))).collect();
        for review in &mut waiting {
            assert!(review.now_or_never().is_none());
        }
        let pod = large_pod();
        let ordinary = review(&webhooks, "/validate--v1-pod", "UPDATE", &pod);
        let response = timeout(Duration::from_secs(1), ordinary).await.expect("it waits for a large review");
        assert_eq!(response["allowed"], true);
    }

    #[tokio::test]
    async fn large_objects_are_accepted() {
        let webhook = Webhook::<EndpointSlice>::new()
            .validates(|_: &AdmissionRequest<EndpointSlice>| Ok(Verdict::allow()))
            .defaults(|slice: &mut EndpointSlice, _: &AdmissionRequest<EndpointSlice>| {
                slice.address_type = "IPv6".into();
                Ok(())
            });
        let webhooks = webhooks(&[webhook.declared()]);
        let endpoint = |n: usize| {
            json!({"addresses": [format!("10.0.{}.{}", n / 256, n % 256)], "conditions": {"ready": true},
                "nodeName": format!("node-{n}"), "targetRef": {"kind": "Pod", "name": format!("pod-{n}")}})
        };
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "a", "namespace": "b"}, "endpoints": (0..9000).map(endpoint).collect::<Vec<_>>()});
        assert!(slice.to_string().len() > 1 << 20);
        for path in ["/validate-discovery-k8s-io-v1-endpointslice", "/mutate-discovery-k8s-io-v1-endpointslice"] {
            let response = review(&webhooks, path, "UPDATE", &slice).await;
            assert_eq!(response["allowed"], true, "{response}");
            assert_eq!(response["patch"].is_string(), path.starts_with("/mutate"));
        }
    }

    #[tokio::test]
    async fn many_small_objects_of_a_conversion_are_rejected_before_parsing() {
        let converting = Arc::new(ConversionHandler(BTreeMap::new()));
        let review = |objects: &str| {
            format!(
                r#"{{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "request": {{"uid": "u", "desiredAPIVersion": "g/v1", "objects": [{objects}]}}}}"#
            )
        };
        let bomb = review(&vec!["1"; 7 << 20].join(","));
        let budget = Budget::new(MAX_CONVERSION_BYTES);
        assert_eq!(budget.parse(converting.tree_bytes(bomb.as_bytes())).await.unwrap_err(), Rejection::TooManyValues);
        // A list of 10,000 objects, as the API server sends it.
        let object = format!(r#"{{"kind": "A", "apiVersion": "g/v2", "spec": {{"text": "{}"}}}}"#, "x,[{".repeat(350));
        let list = review(&vec![&*object; 10_000].join(","));
        let estimate = converting.tree_bytes(list.as_bytes());
        assert!(estimate < list.len() + (2 << 20), "{estimate}");
        assert!(budget.parse(estimate).await.is_ok());
    }
}
