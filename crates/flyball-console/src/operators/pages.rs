//! The debug pages of one operator, at a URL or through the API server.
//!
//! The console polls them, and `flyball why` reads them. They are data of others: their size and the time for them are
//! bounded.
//!
//! Invariant: the token is sent only to operators that the user named, and only where no one else can receive it,
//! unless the user permits more. The API server does not verify the certificates of pods, and everyone who may create a
//! pod can give it the labels and owner references of an operator's. So a request through the API server has no token
//! without this permission.

use crate::claims::Claimant;
use bytes::Bytes;
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust, is_confidential};
use flyball::{FORWARDED_AUTHORIZATION, error_chain};
use flyball_core::memory;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode, Uri};
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
/// Limits of the memory of an answer, and of one of an operator that was merely found.
const MAX_MEMORY: usize = 256 << 20;
const MAX_CLAIM_MEMORY: usize = 8 << 20;

/// The place where an operator responds.
#[derive(Clone, Debug)]
pub enum Location {
    /// A URL to which `/debug/flyball` is appended. [`Location::url`] creates it from that of a page.
    Url(Url),
    /// A path of the API server, which forwards requests to a pod.
    Pod {
        /// The Deployment of the pod, as `NAMESPACE/NAME`.
        deployment: String,
        /// The path.
        path: String,
    },
}

impl Location {
    /// Creates the location of an operator from the address of its metrics, with or without the path `/metrics` or
    /// `/debug/flyball`.
    pub fn url(mut url: Url) -> Self {
        let path = url.path().trim_end_matches('/');
        let base = path.strip_suffix("/metrics").or_else(|| path.strip_suffix("/debug/flyball")).unwrap_or(path);
        let base = base.to_owned();
        url.set_path(&base);
        url.set_query(None);
        url.set_fragment(None);
        Self::Url(url)
    }

    /// Returns true if both are the same place. Several Deployments may select one pod.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Url(one), Self::Url(other)) => display(one) == display(other),
            (Self::Pod { path: one, .. }, Self::Pod { path: other, .. }) => one == other,
            (Self::Url(_), Self::Pod { .. }) | (Self::Pod { .. }, Self::Url(_)) => false,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(&display(url)),
            Self::Pod { path, .. } => f.write_str(path),
        }
    }
}

/// The source of an address. It determines how far the operator is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user named the operator: its pages are facts, and it may receive the token.
    Named,
    /// A process of the user on this machine: its pages are facts.
    Local,
    /// Discovered by a label, which everyone may set: its pages are claims.
    Discovered,
}

/// The address of an operator and the credentials for it.
#[derive(Clone)]
pub struct Address {
    /// The place where it responds.
    pub location: Location,
    /// The source of the address.
    pub origin: Origin,
    /// Service account of the pod of a discovered operator; empty if unknown.
    pub account: String,
    /// Bearer token that may `get` the non-resource URL `/debug/flyball`. Sent only to named operators, over `https`
    /// with a verified certificate, or to this machine.
    pub token: Option<String>,
    /// Permits to send the token over `http`, and through the API server to pods that serve `https`.
    pub insecure_token: bool,
    /// CA bundle in PEM for `https`; without it, the trust store of the machine.
    pub authority: Option<Vec<u8>>,
}

impl Address {
    /// Creates the address of an operator at a URL that the user named.
    pub fn url(url: Url) -> Self {
        Self {
            location: Location::url(url),
            origin: Origin::Named,
            account: String::new(),
            token: None,
            insecure_token: false,
            authority: None,
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, origin, .. } = self;
        write!(f, "{origin:?} operator at {location}")
    }
}

/// Failures of a request to an operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator did not answer in time.
    #[error("no answer within 5 s")]
    Timeout,
    /// The CA bundle is invalid, or this machine has no trust store.
    #[error("cannot set up TLS: is the CA of the operator a bundle in PEM?")]
    Tls,
    /// The answer takes too much memory.
    #[error("its answer takes more than {limit} MiB of memory: more is read of operators that are named by --operator")]
    TooLarge {
        /// The limit in MiB.
        limit: usize,
    },
    /// The request or its response failed.
    #[error("{0}")]
    Connection(String),
    /// The operator does not serve the pages.
    #[error("404: it has no debug pages: build it with this version of Flyball")]
    NoPages,
    /// A named operator requires a token, and there is none.
    #[error(
        "{code}: it requires a token that may get /debug/flyball: pass --operator-token-file FILE, or set \
         FLYBALL_OPERATOR_TOKEN"
    )]
    TokenRequired {
        /// The status code.
        code: u16,
    },
    /// An operator requires a token, which it does not receive since it was merely found.
    #[error(
        "{code}: it requires a token that may get /debug/flyball, and only named operators receive it: \
         --operator {name} --operator-token-file FILE, or FLYBALL_OPERATOR_TOKEN instead of the file"
    )]
    NameRequired {
        /// The status code.
        code: u16,
        /// The name of the operator on the command line.
        name: String,
    },
    /// An operator requires the token, which others could receive.
    #[error(
        "{code}: it requires the token, which is sent to an https address, or with --insecure-operator-token: {reason}"
    )]
    TokenWithheld {
        /// The status code.
        code: u16,
        /// The reason.
        reason: String,
    },
    /// The operator rejects the token.
    #[error("{code}: it requires a token that may get /debug/flyball, and rejects this one")]
    TokenRejected {
        /// The status code.
        code: u16,
    },
    /// The operator returned another error status.
    #[error("status {0}")]
    Status(u16),
    /// The page is no JSON object.
    #[error("the answer is not a JSON object: is this the metrics address of an operator built with Flyball?")]
    Content,
}

/// The pages of an operator.
pub struct Pages {
    address: Address,
    /// The client for a URL; none if TLS cannot be set up.
    web: Option<Client>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Pages {
    /// Creates the reader of an operator's pages. It sends nothing yet.
    pub fn new(address: Address) -> Self {
        let trust = address.authority.as_deref().map_or(Trust::System, Trust::Bundle);
        let is_url = matches!(address.location, Location::Url(_));
        let web = is_url.then(|| Client::new(trust, Proxies::from_env()).ok()).flatten();
        Self { address, web }
    }

    /// Returns the address of the operator.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns true if an address is that of another pod of the same Deployment.
    pub(super) fn is_predecessor(&self, address: &Address) -> bool {
        match (&self.address.location, &address.location) {
            (Location::Pod { deployment: own, .. }, Location::Pod { deployment, .. }) => {
                own == deployment && self.address.origin == address.origin
            }
            _ => false,
        }
    }

    /// Returns the Deployment whose claims the pages are; empty if they are facts.
    pub(super) fn claimed_by(&self) -> &str {
        match &self.address.location {
            Location::Pod { deployment, .. } if self.address.origin == Origin::Discovered => deployment,
            _ => "",
        }
    }

    /// Returns the Deployment and the service account whose claims the pages are; none if they are facts.
    pub(super) fn claimant(&self) -> Option<Claimant> {
        let deployment = Some(self.claimed_by()).filter(|deployment| !deployment.is_empty())?.to_owned();
        let namespace = deployment.split_once('/').map_or("", |(namespace, _)| namespace).to_owned();
        Some(Claimant { deployment, namespace, account: self.address.account.clone() })
    }

    /// Requests the page at a path below `/debug/flyball`, with a query without its question mark; both may be empty.
    /// `client` is that of the API server.
    ///
    /// # Errors
    ///
    /// If there is no JSON object in time.
    pub async fn get(&self, client: &kube::Client, page: &str, query: &str) -> Result<Value, Error> {
        let answer = async {
            match &self.address.location {
                Location::Url(url) => self.fetch_url(url, page, query).await,
                Location::Pod { path, .. } => self.fetch_pod(client, path, page, query).await,
            }
        };
        let answer = timeout(TIMEOUT, answer).await.map_err(|_| Error::Timeout)??;
        let limit = if self.address.origin == Origin::Discovered { MAX_CLAIM_MEMORY } else { MAX_MEMORY };
        if memory::of_text(&answer) > limit {
            return Err(Error::TooLarge { limit: limit >> 20 });
        }
        let value: Value = serde_json::from_slice(&answer).map_err(|_| Error::Content)?;
        if value.is_object() { Ok(value) } else { Err(Error::Content) }
    }

    /// Returns the token, if the operator may receive it.
    fn token(&self) -> Option<&str> {
        let Address { location, origin, token, insecure_token, .. } = &self.address;
        let may_receive = match location {
            Location::Url(url) => *insecure_token || url.as_str().parse::<Uri>().is_ok_and(|uri| is_confidential(&uri)),
            // Metrics without TLS require no token.
            Location::Pod { path, .. } => *insecure_token && path.contains("/pods/https:"),
        };
        token.as_deref().filter(|_| *origin == Origin::Named && may_receive)
    }

    /// Returns why a named operator does not receive the token, if there is one.
    fn withheld(&self) -> Option<String> {
        let is_withheld = self.address.token.is_some() && self.token().is_none();
        is_withheld.then(|| match &self.address.location {
            Location::Url(_) => "others can read http".to_owned(),
            Location::Pod { path, .. } if !path.contains("/pods/https:") => "its pod serves no https".to_owned(),
            Location::Pod { deployment, .. } => format!(
                "the API server does not verify pods, so everyone who may create pods in the namespace of {deployment} \
                 could receive it"
            ),
        })
    }

    /// Returns the value of the header with the token.
    fn bearer(&self) -> Result<Option<HeaderValue>, Error> {
        let bearer = self.token().map(|token| HeaderValue::from_str(&format!("Bearer {}", token.trim())));
        bearer.transpose().map_err(|_| Error::Connection("the token contains control characters".to_owned()))
    }

    async fn fetch_url(&self, url: &Url, page: &str, query: &str) -> Result<Bytes, Error> {
        let web = self.web.as_ref().ok_or(Error::Tls)?;
        let mut url = url.clone();
        let path = format!("{}/debug/flyball{page}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.set_query((!query.is_empty()).then_some(query));
        let mut request = Request::get(url.as_str()).body(Bytes::new()).map_err(invalid)?;
        if let Some(bearer) = self.bearer()? {
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        let answer = web.fetch(request, MAX_ANSWER_BYTES).await;
        let answer = answer.map_err(|error| Error::Connection(error_chain(&*error)))?;
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
            request.headers_mut().insert(FORWARDED_AUTHORIZATION, bearer);
        }
        let unreachable = |reason: String| Error::Connection(format!("the API server cannot reach the pod: {reason}"));
        let answer = client.send(request).await.map_err(|error| unreachable(error_chain(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| unreachable(error_chain(&*error)))?.to_bytes();
        if status == StatusCode::OK {
            return Ok(body);
        }
        // The API server says so as a `Status`, unlike an operator.
        match serde_json::from_slice::<Status>(&body) {
            Ok(refused) if !refused.message.is_empty() => Err(unreachable(refused.message)),
            _ => Err(self.rejected(status)),
        }
    }

    fn rejected(&self, status: StatusCode) -> Error {
        let code = status.as_u16();
        match status {
            StatusCode::NOT_FOUND => Error::NoPages,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => match (self.address.origin, self.token()) {
                (Origin::Named, Some(_)) => Error::TokenRejected { code },
                (Origin::Named, None) => match self.withheld() {
                    Some(reason) => Error::TokenWithheld { code, reason },
                    None => Error::TokenRequired { code },
                },
                (Origin::Local | Origin::Discovered, _) => Error::NameRequired { code, name: self.name() },
            },
            _ => Error::Status(code),
        }
    }

    /// Returns how the command line names the operator.
    fn name(&self) -> String {
        match &self.address.location {
            Location::Url(url) => display(url),
            Location::Pod { deployment, .. } => deployment.clone(),
        }
    }
}

fn invalid(error: http::Error) -> Error {
    Error::Connection(format!("not a URL: {error}"))
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
        assert_eq!(Location::url(url).to_string(), "http://127.0.0.1:8080/");
    }

    #[test]
    fn locations_are_the_same_whatever_page_or_deployment_names_them() {
        let url = |text: &str| Location::url(Url::parse(text).expect("a URL"));
        let pod = |deployment: &str, path: &str| Location::Pod { deployment: deployment.into(), path: path.into() };
        for same in ["http://h:1/", "http://h:1/metrics", "http://h:1/debug/flyball/?a=b", "http://u:p@h:1"] {
            assert!(url("http://h:1").is_same(&url(same)), "{same}");
        }
        for other in ["http://h:2", "https://h:1", "http://h:1/op/metrics"] {
            assert!(!url("http://h:1").is_same(&url(other)), "{other}");
        }
        assert!(pod("a/op", "/1").is_same(&pod("a/copy", "/1")) && !pod("a/op", "/1").is_same(&pod("a/op", "/2")));
    }

    #[test]
    fn tokens_are_sent_only_where_no_one_else_receives_them() {
        let url = |text: &str| Location::url(Url::parse(text).expect("a URL"));
        let pod = |scheme: &str| {
            let path = format!("/api/v1/namespaces/a/pods/{scheme}op-1:8443/proxy");
            Location::Pod { deployment: "a/op".into(), path }
        };
        let sent = |location: &Location, origin, insecure_token| {
            let (location, token) = (location.clone(), Some("t".to_owned()));
            let pages = Pages::new(Address {
                location,
                origin,
                account: String::new(),
                token,
                insecure_token,
                authority: None,
            });
            (pages.token().is_some(), pages.rejected(StatusCode::UNAUTHORIZED).to_string())
        };
        for (location, is_sent, is_sent_if_permitted) in [
            (url("https://op.a:8443"), true, true),
            (url("http://127.0.0.1:8080"), true, true),
            (url("http://op.a:8080"), false, true),
            (pod("https:"), false, true),
            (pod(""), false, false),
        ] {
            let (found, hint) = sent(&location, Origin::Named, false);
            assert_eq!((found, hint.contains("--insecure-operator-token")), (is_sent, !is_sent), "{location}: {hint}");
            assert_eq!(sent(&location, Origin::Named, true).0, is_sent_if_permitted, "{location}");
            assert!(!sent(&location, Origin::Discovered, true).0, "{location}");
        }
    }

    #[test]
    fn hints_say_how_the_operator_receives_a_token() {
        let rejected = |origin, token: Option<&str>| {
            let location = Location::Pod { deployment: "a/op".into(), path: "/pods/https:1".into() };
            let token = token.map(str::to_owned);
            let address =
                Address { location, origin, account: String::new(), token, insecure_token: true, authority: None };
            Pages::new(address).rejected(StatusCode::UNAUTHORIZED).to_string()
        };
        for (origin, token) in [(Origin::Named, None), (Origin::Local, None), (Origin::Discovered, Some("t"))] {
            let hint = rejected(origin, token);
            assert!(hint.contains("--operator-token-file FILE") && hint.contains("FLYBALL_OPERATOR_TOKEN"), "{hint}");
            assert_eq!(hint.contains("--operator a/op"), origin != Origin::Named, "{hint}");
        }
        assert!(rejected(Origin::Named, Some("t")).ends_with("rejects this one"));
    }
}
