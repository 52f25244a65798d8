//! The pages of one operator, at a URL or through the API server.
//!
//! Invariant: the token is sent only to operators that the user named.

use bytes::Bytes;
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// Timeout of an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Size limit of an answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Header with the token of the caller. The API server removes `Authorization` from what it forwards to a pod.
const FORWARDED_TOKEN: &str = "flyball-authorization";

/// The place where an operator responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A URL, with or without the path `/debug/flyball`.
    Url(Url),
    /// A path of the API server, which forwards requests to a pod.
    Pod {
        /// The Deployment of the pod, as `NAMESPACE/NAME`.
        deployment: String,
        /// The path.
        path: String,
    },
}

/// The address of an operator and the credentials for it.
#[derive(Clone, Debug)]
pub struct Address {
    /// The place where it responds.
    pub location: Location,
    /// Bearer token that may `get` the non-resource URL `/debug/flyball`. Not sent to an operator whose pages are
    /// claims.
    pub token: Option<String>,
    /// CA bundle in PEM for `https`; without it, the trust store of the machine.
    pub authority: Option<Vec<u8>>,
    /// True for an operator that was merely discovered, by a label that everyone may set: its pages are claims.
    pub is_claim: bool,
}

impl Address {
    /// Creates the address of an operator at a URL.
    pub fn url(url: Url) -> Self {
        Self { location: Location::Url(url), token: None, authority: None, is_claim: false }
    }
}

/// Failures of a request to an operator.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("no answer within 5 s")]
    Timeout,
    #[error("cannot set up TLS: is the file of --operator-ca a PEM bundle?")]
    Tls,
    #[error("{0}")]
    Connection(String),
    #[error("{0}")]
    Status(String),
    #[error("the answer is not a JSON object: is this the metrics address of an operator built with Flyball?")]
    Content,
}

/// The source of the pages of an operator.
pub(super) struct Source {
    address: Address,
    /// The client for a URL; none if TLS cannot be set up.
    web: Option<Client>,
}

impl Source {
    pub(super) fn new(address: Address) -> Self {
        let trust = address.authority.as_deref().map_or(Trust::System, Trust::Bundle);
        let is_url = matches!(address.location, Location::Url(_));
        let web = is_url.then(|| Client::new(trust, Proxies::from_env()).ok()).flatten();
        Self { address, web }
    }

    /// Returns true if an address has the same location.
    pub(super) fn is_at(&self, address: &Address) -> bool {
        self.address.location == address.location
    }

    /// Returns true if an address is that of another pod of the same Deployment.
    pub(super) fn is_predecessor(&self, address: &Address) -> bool {
        let deployment = |address: &Address| match &address.location {
            Location::Pod { deployment, .. } => Some((deployment.clone(), address.is_claim)),
            Location::Url(_) => None,
        };
        let own = deployment(&self.address);
        own.is_some() && own == deployment(address)
    }

    /// Returns the Deployment whose claims the pages are; empty for an operator that the user named.
    pub(super) fn claimed_by(&self) -> &str {
        match &self.address.location {
            Location::Pod { deployment, .. } if self.address.is_claim => deployment,
            _ => "",
        }
    }

    /// Requests a page. `client` is that of the API server.
    pub(super) async fn fetch(&self, client: &kube::Client, page: &str, query: &str) -> Result<Value, Error> {
        let answer = async {
            match &self.address.location {
                Location::Url(url) => self.fetch_url(url, page, query).await,
                Location::Pod { path, .. } => self.fetch_pod(client, path, page, query).await,
            }
        };
        let answer = timeout(TIMEOUT, answer).await.map_err(|_| Error::Timeout)??;
        let value: Value = serde_json::from_slice(&answer).map_err(|_| Error::Content)?;
        if value.is_object() { Ok(value) } else { Err(Error::Content) }
    }

    /// Returns the value of the header with the token, if the operator may receive it.
    fn bearer(&self) -> Result<Option<HeaderValue>, Error> {
        let token = self.address.token.as_ref().filter(|_| !self.address.is_claim);
        let bearer = token.map(|token| HeaderValue::from_str(&format!("Bearer {}", token.trim())));
        bearer.transpose().map_err(|_| Error::Connection("the token contains control characters".to_owned()))
    }

    async fn fetch_url(&self, url: &Url, page: &str, query: &str) -> Result<Bytes, Error> {
        let web = self.web.as_ref().ok_or(Error::Tls)?;
        let mut url = url.clone();
        let path = url.path().trim_end_matches('/').trim_end_matches("/metrics").trim_end_matches("/debug/flyball");
        let path = format!("{path}/debug/flyball{page}");
        url.set_path(&path);
        url.set_query((!query.is_empty()).then_some(query));
        let mut request = Request::get(url.as_str()).body(Bytes::new()).map_err(invalid)?;
        if let Some(bearer) = self.bearer()? {
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        let answer = web.fetch(request, MAX_ANSWER_BYTES).await;
        let answer = answer.map_err(|error| Error::Connection(error.to_string()))?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(self.rejected(status)),
        }
    }

    async fn fetch_pod(&self, client: &kube::Client, path: &str, page: &str, query: &str) -> Result<Bytes, Error> {
        let separator = if query.is_empty() { "" } else { "?" };
        let request = Request::get(format!("{path}/debug/flyball{page}{separator}{query}"));
        let mut request = request.body(Body::empty()).map_err(invalid)?;
        if let Some(bearer) = self.bearer()? {
            request.headers_mut().insert(FORWARDED_TOKEN, bearer);
        }
        let unreachable = |reason: String| Error::Connection(format!("the API server cannot reach the pod: {reason}"));
        let answer = client.send(request).await.map_err(|error| unreachable(error.to_string()))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| unreachable(error.to_string()))?.to_bytes();
        if status == StatusCode::OK {
            return Ok(body);
        }
        // The API server says so as a `Status`, unlike an operator.
        match serde_json::from_slice::<Status>(&body) {
            Ok(refused) => Err(unreachable(refused.message)),
            Err(_) => Err(self.rejected(status)),
        }
    }

    fn rejected(&self, status: StatusCode) -> Error {
        let code = status.as_u16();
        Error::Status(match (status, self.claimed_by()) {
            (StatusCode::NOT_FOUND, _) => "404: this operator does not serve /debug/flyball".to_owned(),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, "") => {
                format!("{code}: pass --operator-token-file FILE with a token that may get /debug/flyball")
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, deployment) => format!(
                "{code}: it requires a token, which only named operators receive: --operator {deployment} \
                 --operator-token-file FILE"
            ),
            _ => format!("status {code}"),
        })
    }
}

fn invalid(error: http::Error) -> Error {
    Error::Connection(format!("not a URL: {error}"))
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address.location {
            Location::Url(url) => f.write_str(&display(url)),
            Location::Pod { path, .. } => f.write_str(path),
        }
    }
}

/// Returns a URL without credentials in it.
fn display(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail for URLs without a host, which have no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_addresses_are_not_shown() {
        let url = Url::parse("http://user:secret@127.0.0.1:8080/").expect("a URL");
        assert_eq!(Source::new(Address::url(url)).to_string(), "http://127.0.0.1:8080/");
    }
}
