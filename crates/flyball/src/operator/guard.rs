//! Authentication and authorization of callers of `/metrics` and `/debug/flyball`, by the API server.
//!
//! A caller presents a bearer token. The API server returns its user (`TokenReview`) and whether that user may `get`
//! the path (`SubjectAccessReview` of a non-resource URL), as kube-rbac-proxy did. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/authorization/>.
//!
//! Every pod in the cluster may send invented tokens, so reviews are bounded: both results are cached, denials
//! separately so that they cannot evict permissions, and tokens without a permission are reviewed at a limited rate,
//! in the order of arrival, so that a new valid token is reviewed as well.

use crate::client::exchange;
use crate::error::chain;
use crate::webhook::{Identity, ServingCertificate, read_certificate};
use flyball_core::Clock;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, StatusCode};
use k8s_openapi::api::rbac::v1::PolicyRule;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tower::BoxError;

/// Time for which a permission is cached.
const ALLOWED_TTL: Duration = Duration::from_secs(60);
/// Time for which a denial is cached; short, so that a new permission takes effect soon.
const DENIED_TTL: Duration = Duration::from_secs(10);
/// Limit of cached results of each kind; the oldest is evicted.
const MAX_DECISIONS: usize = 256;
/// Size limit of a token; those of service accounts have about 1,000 bytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Burst of reviews of unknown tokens.
const QUESTION_BURST: u32 = 10;
/// Interval after which the burst grows by one.
const QUESTION_INTERVAL: Duration = Duration::from_millis(100);
/// Header with the token of a caller whose requests the API server forwards to the pod: it removes `Authorization`.
pub const FORWARDED_AUTHORIZATION: &str = "flyball-authorization";
/// Interval at which the certificate is checked.
const CERTIFICATE_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Reviews callers with the API server, and caches the results.
pub(super) struct Guard {
    client: kube::Client,
    allowed: AuthorizationCache,
    denied: AuthorizationCache,
    /// Virtual time of the last review of an unknown token.
    turn: tokio::sync::Mutex<Option<Instant>>,
}

/// Results of one kind, with their times.
#[derive(Default)]
struct AuthorizationCache(Mutex<BTreeMap<AuthorizationKey, (Instant, Decision)>>);

impl AuthorizationCache {
    fn get(&self, question: &AuthorizationKey) -> Option<(Instant, Decision)> {
        self.0.lock().get(question).cloned()
    }

    fn insert(&self, question: AuthorizationKey, response: Decision) {
        let mut decisions = self.0.lock();
        if decisions.len() >= MAX_DECISIONS {
            let oldest = decisions.iter().min_by_key(|(_, (at, _))| *at).map(|(question, _)| question.clone());
            oldest.and_then(|oldest| decisions.remove(&oldest));
        }
        decisions.insert(question, (Instant::now(), response));
    }

    fn remove(&self, question: &AuthorizationKey) {
        self.0.lock().remove(question);
    }
}

/// Token, verb and path.
type AuthorizationKey = (String, String, String);
/// The reason of a denial.
type Decision = Result<(), (StatusCode, String)>;

impl Guard {
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            client,
            allowed: AuthorizationCache::default(),
            denied: AuthorizationCache::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Decides if a request with these headers is served; an error is the response that rejects it.
    pub(super) async fn admit(&self, headers: &HeaderMap, method: &Method, path: &str) -> Decision {
        // kube-apiserver removes `Authorization` from a request that it forwards to a pod.
        let value = headers.get(AUTHORIZATION).or_else(|| headers.get(FORWARDED_AUTHORIZATION));
        let value = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (scheme, token) = value.split_once(' ').unwrap_or_default();
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
            return Err((StatusCode::UNAUTHORIZED, "a bearer token is required\n".into()));
        }
        if token.len() > MAX_TOKEN_BYTES {
            return Err((StatusCode::UNAUTHORIZED, "the token is too long\n".into()));
        }
        let question = (token.to_owned(), method.as_str().to_ascii_lowercase(), path.to_owned());
        let allowed = self.allowed.get(&question);
        if let Some((_, response)) = allowed.as_ref().filter(|(at, _)| at.elapsed() < ALLOWED_TTL) {
            return response.clone();
        }
        if let Some((_, response)) = self.denied.get(&question).filter(|(at, _)| at.elapsed() < DENIED_TTL) {
            return response;
        }
        if allowed.is_none() {
            self.wait_for_turn().await;
        }
        let response = self.review_access(&question).await.map_err(|error| {
            tracing::warn!(error = chain(&*error), "cannot review access to metrics");
            (StatusCode::INTERNAL_SERVER_ERROR, "the access review failed\n".into())
        })?;
        if response.is_ok() {
            self.allowed.insert(question, response.clone());
        } else {
            self.allowed.remove(&question);
            self.denied.insert(question, response.clone());
        }
        response
    }

    /// Completes when one more unknown token may be reviewed. A canceled wait uses no slot.
    async fn wait_for_turn(&self) {
        let mut last = self.turn.lock().await;
        let now = Instant::now();
        let earliest = now.checked_sub(QUESTION_INTERVAL * QUESTION_BURST).unwrap_or(now);
        let turn = last.map_or(earliest, |last| last.max(earliest)) + QUESTION_INTERVAL;
        sleep_until(turn).await;
        *last = Some(turn);
    }

    async fn review_access(&self, (token, verb, path): &AuthorizationKey) -> Result<Decision, BoxError> {
        let review = self.review("authentication.k8s.io", "TokenReview", json!({"token": token})).await?;
        if review["authenticated"] != true {
            return Ok(Err((StatusCode::UNAUTHORIZED, "invalid token\n".into())));
        }
        let user = &review["user"];
        let mut spec = json!({"user": user["username"], "nonResourceAttributes": {"path": path, "verb": verb}});
        for field in ["uid", "groups", "extra"] {
            if !user[field].is_null() {
                spec[field] = user[field].clone();
            }
        }
        let review = self.review("authorization.k8s.io", "SubjectAccessReview", spec).await?;
        if review["allowed"] == true {
            return Ok(Ok(()));
        }
        let name = user["username"].as_str().unwrap_or_default();
        let remedy = format!("{name} may not {verb} {path}: bind it to a ClusterRole with that nonResourceURL\n");
        Ok(Err((StatusCode::FORBIDDEN, remedy)))
    }

    /// Sends a review to the API server, and returns its status.
    async fn review(&self, group: &str, kind: &str, spec: Value) -> Result<Value, BoxError> {
        let review = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
        let request = Request::post(format!("/apis/{group}/v1/{}s", kind.to_ascii_lowercase()));
        let request = request.header(CONTENT_TYPE, "application/json").body(review.to_string().into_bytes())?;
        let mut response: Value = serde_json::from_slice(&exchange(&self.client, request).await?)?;
        Ok(response["status"].take())
    }
}

/// RBAC rules for the reviews of callers, cluster-wide.
pub(super) fn rules() -> Vec<PolicyRule> {
    let rule = |group: &str, resource: &str| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: vec!["create".to_owned()],
        ..PolicyRule::default()
    };
    vec![rule("authentication.k8s.io", "tokenreviews"), rule("authorization.k8s.io", "subjectaccessreviews")]
}

/// Creates the role for readers of the metrics, such as Prometheus.
pub(super) fn reader(operator: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": format!("{operator}-metrics-reader")},
        "rules": [{"nonResourceURLs": ["/metrics", "/debug/flyball", "/debug/flyball/*"], "verbs": ["get"]}],
    })
}

/// Keeps a valid certificate served until it is dropped: from files, or a self-signed one that only exists in this
/// process.
pub(super) async fn keep_certificate(
    serving: Arc<ServingCertificate>,
    directory: Option<PathBuf>,
    clock: Clock,
    name: String,
    names: Vec<String>,
) {
    let (mut own, mut last_failure): (Option<Identity>, String) = (None, String::new());
    let mut update_certificate = || -> Result<(), BoxError> {
        if let Some(directory) = &directory {
            let (certificate, key) = read_certificate(directory)?;
            return Ok(serving.set(&certificate, &key)?);
        }
        let now = clock.now();
        if own.as_ref().is_none_or(|own| own.is_old(now)) {
            let identity = Identity::make(&name, &names, now)?;
            serving.set(&identity.certificate, &identity.key)?;
            own = Some(identity);
        }
        Ok(())
    };
    loop {
        let failure = update_certificate().err().map(|error| chain(&*error)).unwrap_or_default();
        if failure != last_failure && !failure.is_empty() {
            tracing::warn!(error = failure, "no certificate for the metrics server");
        }
        last_failure = failure;
        sleep(CERTIFICATE_POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use http_body_util::BodyExt;
    use kube::client::Body;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::advance;

    /// Answers token reviews: one token with permission, one without; all others are invalid.
    async fn server(requests: Arc<AtomicUsize>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        requests.fetch_add(1, Ordering::Relaxed);
        let path = request.uri().path().to_owned();
        let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
        let spec = &review["spec"];
        let status = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => match spec["token"].as_str() {
                Some("broken") => return Ok(Response::builder().status(403).body(Body::empty())?),
                Some("nobody") | None => json!({"authenticated": false}),
                Some(token) => json!({"authenticated": true, "user": {"username": token, "groups": ["g"], "uid": "u"}}),
            },
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                assert_eq!((&spec["groups"], &spec["uid"]), (&json!(["g"]), &json!("u")));
                let access = &spec["nonResourceAttributes"];
                json!({"allowed": spec["user"] == "reader" && access["path"] == "/metrics" && access["verb"] == "get"})
            }
            other => panic!("{other}"),
        };
        Ok(Response::new(Body::from(json!({"status": status}).to_string().into_bytes())))
    }

    #[tokio::test(start_paused = true)]
    async fn access_is_reviewed_by_the_api_server_and_cached() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let client = kube::Client::new(tower::service_fn(move |request| server(counted.clone(), request)), "default");
        let guard = Guard::new(client);
        let check = async |header: &str, path: &str, code: u16, questions: usize| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]);
            let response = guard.admit(&headers, &Method::GET, path).await;
            assert_eq!(response.err().map_or(200, |(code, _)| code.as_u16()), code, "{header} {path}");
            assert_eq!(requests.swap(0, Ordering::Relaxed), questions, "{header} {path}");
        };
        assert_eq!(guard.admit(&HeaderMap::new(), &Method::GET, "/metrics").await.unwrap_err().0, 401);
        for header in ["", "Basic reader", "Bearer", "Bearer  "] {
            check(header, "/metrics", 401, 0).await;
        }
        check("Bearer nobody", "/metrics", 401, 1).await;
        let forwarded = [(http::HeaderName::from_static(FORWARDED_AUTHORIZATION), "Bearer nobody".parse().unwrap())];
        let response = guard.admit(&HeaderMap::from_iter(forwarded), &Method::GET, "/metrics").await;
        assert_eq!(response.unwrap_err(), (StatusCode::UNAUTHORIZED, "invalid token\n".into()));
        check("bearer reader", "/metrics", 200, 2).await;
        check("Bearer reader", "/metrics", 200, 0).await;
        check("Bearer reader", "/other", 403, 2).await;
        check("Bearer guest", "/metrics", 403, 2).await;
        check("Bearer broken", "/metrics", 500, 1).await;
        check("Bearer broken", "/metrics", 500, 1).await;
        advance(DENIED_TTL).await;
        check("Bearer guest", "/metrics", 403, 2).await;
        check("Bearer reader", "/metrics", 200, 0).await;
        advance(ALLOWED_TTL).await;
        check("Bearer reader", "/metrics", 200, 2).await;
        for guess in 0..2 * MAX_DECISIONS {
            check(&format!("Bearer guest-{guess}"), "/metrics", 403, 2).await;
        }
        check("Bearer reader", "/metrics", 200, 0).await;
        assert_eq!(guard.denied.0.lock().len(), MAX_DECISIONS, "denials do not evict permissions");
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_of_unknown_tokens_are_rate_limited() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let client = kube::Client::new(tower::service_fn(move |request| server(counted.clone(), request)), "default");
        let guard = Arc::new(Guard::new(client));
        async fn admit(guard: Arc<Guard>, token: String) -> bool {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())]);
            guard.admit(&headers, &Method::GET, "/metrics").await.is_ok()
        }
        assert!(admit(guard.clone(), "reader".into()).await && !admit(guard.clone(), "x".repeat(1 << 20)).await);
        let mut guesses = tokio::task::JoinSet::new();
        for guess in 0..1000 {
            guesses.spawn(admit(guard.clone(), format!("guess-{guess}")));
        }
        sleep(Duration::from_secs(5)).await;
        // Two reviews each, since the tokens belong to users.
        let most = 2 * (5 * 10 + QUESTION_BURST as usize + 2);
        assert!(requests.load(Ordering::Relaxed) <= most, "{} questions", requests.load(Ordering::Relaxed));
        guesses.abort_all();
        while guesses.join_next().await.is_some() {}
        advance(ALLOWED_TTL).await;
        let began = Instant::now();
        assert!(
            admit(guard.clone(), "reader".into()).await && began.elapsed() < QUESTION_INTERVAL,
            "the permission is cached"
        );
        assert!(!admit(guard, "new".into()).await && began.elapsed() <= QUESTION_INTERVAL, "no review slot is lost");
    }
}
