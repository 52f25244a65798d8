//! Authentication and authorization of readers of results, by the API server.
//!
//! A reader presents a bearer token. The API server returns its user (`TokenReview`), and decides if that user may
//! `get` the Report (`SubjectAccessReview`): results have the rights of their Report. Decisions are cached for a short
//! time; reviews are limited, since every pod may send invented tokens.

use crate::api::GROUP;
use flyball::Client;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Request, StatusCode};
use k8s_openapi::api::rbac::v1::PolicyRule;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time for which a decision is cached.
const TTL: Duration = Duration::from_secs(30);
/// Limit of cached decisions; the oldest is evicted.
const MAX_DECISIONS: usize = 256;
/// Size limit of a token.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Time between reviews of tokens without a cached decision.
const REVIEW_INTERVAL: Duration = Duration::from_millis(50);

/// A rejection: the status code, and a text for the reader.
pub type Rejection = (StatusCode, String);

/// The result of a review.
type Decision = Result<(), Rejection>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The report that a reader asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Reviews readers with the API server.
pub struct Access {
    client: Client,
    decisions: Mutex<BTreeMap<(String, ReportName), (Instant, Decision)>>,
    turn: tokio::sync::Mutex<()>,
}

impl Access {
    /// Creates a reviewer.
    pub fn new(client: Client) -> Self {
        Self { client, decisions: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Decides if a request with these headers may read a report.
    ///
    /// # Errors
    ///
    /// The rejection.
    pub async fn admit(&self, headers: &HeaderMap, report: &ReportName) -> Result<(), Rejection> {
        let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (scheme, token) = value.split_once(' ').unwrap_or_default();
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return Err((StatusCode::UNAUTHORIZED, "a bearer token is required\n".into()));
        }
        let key = (token.to_owned(), report.clone());
        let cached = self.decisions.lock().get(&key).filter(|(at, _)| at.elapsed() < TTL).cloned();
        if let Some((_, decision)) = cached {
            return decision;
        }
        let turn = self.turn.lock().await;
        sleep(REVIEW_INTERVAL).await;
        drop(turn);
        let decision = self.review(token, report).await.map_err(|error| {
            tracing::warn!(error = &*error, "cannot review access to results");
            (StatusCode::INTERNAL_SERVER_ERROR, "the access review failed\n".to_owned())
        })?;
        let mut decisions = self.decisions.lock();
        if decisions.len() >= MAX_DECISIONS {
            let oldest = decisions.iter().min_by_key(|(_, (at, _))| *at).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| decisions.remove(&oldest));
        }
        decisions.insert(key, (Instant::now(), decision.clone()));
        decision
    }

    async fn review(&self, token: &str, report: &ReportName) -> Result<Decision, BoxError> {
        let status = self.post("authentication.k8s.io", "TokenReview", json!({"token": token})).await?;
        if status["authenticated"] != true {
            return Ok(Err((StatusCode::UNAUTHORIZED, "invalid token\n".into())));
        }
        let user = &status["user"];
        let attributes = json!({"group": GROUP, "resource": "reports", "verb": "get",
            "namespace": report.namespace, "name": report.name});
        let mut spec = json!({"user": user["username"], "resourceAttributes": attributes});
        for field in ["uid", "groups", "extra"] {
            if !user[field].is_null() {
                spec[field] = user[field].clone();
            }
        }
        let status = self.post("authorization.k8s.io", "SubjectAccessReview", spec).await?;
        Ok(match status["allowed"] == true {
            true => Ok(()),
            false => Err((StatusCode::FORBIDDEN, "you may not get reports.metering.flyball.dev of this name\n".into())),
        })
    }

    /// Returns true if a report does not exist, as far as the API server answers.
    pub(crate) async fn is_absent(&self, report: &ReportName) -> bool {
        let ReportName { namespace, name } = report;
        let request = Request::get(format!("/apis/{GROUP}/v1alpha1/namespaces/{namespace}/reports/{name}"));
        let Ok(request) = request.body(Vec::new()) else { return false };
        let found = self.client.request::<serde::de::IgnoredAny>(request).await;
        matches!(found, Err(kube::Error::Api(status)) if status.code == 404)
    }

    /// Sends a review to the API server, and returns its status.
    async fn post(&self, group: &str, kind: &str, spec: Value) -> Result<Value, BoxError> {
        let review = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
        let request = Request::post(format!("/apis/{group}/v1/{}s", kind.to_ascii_lowercase()));
        let request = request.header(CONTENT_TYPE, "application/json").body(review.to_string().into_bytes())?;
        let mut response: Value = self.client.request(request).await?;
        Ok(response["status"].take())
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

/// RBAC rules for reviews.
pub fn rules() -> [PolicyRule; 2] {
    let rule = |group: &str, resource: &str| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: vec!["create".to_owned()],
        ..PolicyRule::default()
    };
    [rule("authentication.k8s.io", "tokenreviews"), rule("authorization.k8s.io", "subjectaccessreviews")]
}
